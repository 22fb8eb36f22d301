//! What do the records of a run hold?

use std::path::Path;

use wire::batch::{BatchBuilder, VerifiedBatch};
use wire::limits::BATCH_CONTENT_BYTES_MAX;

use crate::error::BenchError;
use crate::random::Random;
use crate::shape::Sizes;

/// A batch encoded once and sent as often as a run likes.
#[derive(Debug, Clone)]
pub(crate) struct EncodedBatch {
    /// The batch.
    pub(crate) bytes: Vec<u8>,
    /// Its CRC-32C.
    pub(crate) crc: u32,
    /// Its records.
    pub(crate) records: u32,
    /// Its content.
    pub(crate) content_bytes: u64,
    /// The bodies of its records.
    pub(crate) bodies: Vec<Vec<u8>>,
}

/// Batches that a run sends in turn: one when all are alike, else enough that sizes are spread.
const BATCHES: usize = 256;
/// Content of them all, at most.
const BATCHES_BYTES_MAX: usize = 64 << 20;

/// The batches of a run.
#[derive(Debug, Clone)]
pub(crate) struct Batches {
    all: Vec<EncodedBatch>,
    /// Records of each.
    pub(crate) records: u32,
    /// Content of one, on average.
    pub(crate) content_bytes: u64,
}

impl EncodedBatch {
    fn of(bodies: Vec<Vec<u8>>) -> Result<Self, BenchError> {
        let mut builder = BatchBuilder::new();
        for body in &bodies {
            builder.push::<&[u8], &[u8]>(None, &[], body)?;
        }
        let mut bytes = Vec::new();
        let crc = builder.finish(&mut bytes)?;
        let verified = VerifiedBatch::verify(&bytes, crc)?;
        let (records, content_bytes) = (verified.records(), verified.content_bytes());
        Ok(Self { bytes, crc, records: records.into(), content_bytes: content_bytes.into(), bodies })
    }
}

impl Batches {
    /// Batches of so many records each, of printable bytes that are the same for the same seed, or of the lines of a file.
    pub(crate) fn new(records: usize, (record_bytes, sizes): (usize, &Sizes), seed: u64) -> Result<Self, BenchError> {
        let bodies = match sizes {
            Sizes::Lines(path) => lines(path, records)?,
            sizes => printable(records, (record_bytes, sizes), seed),
        };
        let all = bodies.into_iter().map(EncodedBatch::of).collect::<Result<Vec<_>, _>>()?;
        let content: u64 = all.iter().map(|batch| batch.content_bytes).sum();
        let records = all[0].records;
        Ok(Self { records, content_bytes: content / all.len() as u64, all })
    }

    /// The batch of an append, by its number.
    #[inline]
    pub(crate) fn at(&self, no: u64) -> &EncodedBatch {
        if let [one] = &self.all[..] {
            return one;
        }
        let at = usize::try_from(no).unwrap_or(0) % self.all.len();
        &self.all[at]
    }
}

fn printable(records: usize, (record_bytes, sizes): (usize, &Sizes), seed: u64) -> Vec<Vec<Vec<u8>>> {
    let mut random = Random::new(seed);
    let bytes_max = BATCH_CONTENT_BYTES_MAX / records.max(1);
    let (mut all, mut content) = (Vec::new(), 0);
    let count = if *sizes == Sizes::Fixed { 1 } else { BATCHES };
    while all.len() < count && (all.is_empty() || content < BATCHES_BYTES_MAX) {
        let body = |_| {
            // What does not fit is for the batch to refuse, where all are alike.
            let max = if *sizes == Sizes::Fixed { usize::MAX } else { bytes_max };
            let mut body = vec![0; sizes.draw(record_bytes, max, &mut random)];
            random.fill_printable(&mut body);
            body
        };
        let bodies: Vec<Vec<u8>> = (0..records).map(body).collect();
        content += bodies.iter().map(Vec::len).sum::<usize>();
        all.push(bodies);
    }
    all
}

/// The lines of a file in batches; what is left over at the end is left out.
fn lines(path: &Path, records: usize) -> Result<Vec<Vec<Vec<u8>>>, BenchError> {
    let text =
        std::fs::read(path).map_err(|source| BenchError::File { action: "reading", path: path.to_owned(), source })?;
    let lines: Vec<Vec<u8>> =
        text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    let bytes_max = BATCH_CONTENT_BYTES_MAX / records.max(1);
    if let Some(long) = lines.iter().find(|line| line.len() > bytes_max) {
        let range = format!("lines of at most {bytes_max} bytes, so that {records} fit in a batch");
        return Err(BenchError::option("sizes", format!("a line of {} bytes", long.len()), range));
    }
    let mut batches: Vec<_> = lines.chunks_exact(records.max(1)).map(<[Vec<u8>]>::to_vec).collect();
    let mut content = 0;
    batches.retain(|bodies| {
        content += bodies.iter().map(Vec::len).sum::<usize>();
        content <= BATCHES_BYTES_MAX
    });
    if batches.is_empty() {
        return Err(BenchError::option("sizes", path.display(), format!("a file of at least {records} lines")));
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::{Batches, Sizes, VerifiedBatch};
    use crate::error::BenchError;

    fn fixed(records: usize, record_bytes: usize, seed: u64) -> Result<Batches, BenchError> {
        Batches::new(records, (record_bytes, &Sizes::Fixed), seed)
    }

    #[test]
    fn a_batch_is_valid_printable_and_the_same_for_the_same_seed() {
        let batches = fixed(3, 21, 7).unwrap();
        let batch = batches.at(5);
        let verified = VerifiedBatch::verify(&batch.bytes, batch.crc).unwrap();
        assert_eq!((verified.records(), verified.content_bytes()), (3, 63));
        assert_eq!((batches.records, batches.content_bytes), (3, 63));
        let bodies: Vec<_> = verified.iter().map(|record| record.body.to_vec()).collect();
        assert!(bodies.iter().flatten().all(u8::is_ascii_graphic));
        assert_ne!(bodies[0], bodies[1]);
        assert_eq!(fixed(3, 21, 7).unwrap().at(1).bytes, batch.bytes);
        assert_ne!(fixed(3, 21, 8).unwrap().at(1).bytes, batch.bytes);
    }

    #[test]
    fn records_that_fit_in_no_batch_are_refused() {
        assert!(fixed(1_001, 1, 0).is_err());
        assert!(fixed(1, (1 << 20) + 1, 0).is_err());
    }

    #[test]
    fn sizes_are_spread_over_batches_and_lines_come_in_order() {
        let batches = Batches::new(4, (0, &Sizes::Uniform { low: 10, high: 50 }), 1).unwrap();
        let sizes: Vec<_> = (0..256).map(|no| batches.at(no).content_bytes).collect();
        assert!(sizes.iter().all(|bytes| (40..=200).contains(bytes)) && sizes.iter().any(|bytes| *bytes != sizes[0]));
        assert!((100..140).contains(&batches.content_bytes), "{}", batches.content_bytes);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\ntwo\n\nthree\nfour\nfive").unwrap();
        let lines = Batches::new(2, (0, &Sizes::Lines(file.path().to_owned())), 1).unwrap();
        assert_eq!(lines.at(1).bodies, [b"three".to_vec(), b"four".to_vec()]);
        assert_eq!((lines.at(2).bodies[0].as_slice(), lines.content_bytes), (b"one".as_slice(), 7));
        let error = Batches::new(9, (0, &Sizes::Lines(file.path().to_owned())), 1).unwrap_err();
        assert!(error.to_string().contains("at least 9 lines"), "{error}");
    }
}
