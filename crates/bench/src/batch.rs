//! What do the records of a run hold?

use wire::batch::{BatchBuilder, VerifiedBatch};

use crate::error::BenchError;
use crate::random::Random;

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
}

impl EncodedBatch {
    /// So many records of so many printable bytes, the same for the same seed.
    pub(crate) fn printable(records: usize, record_bytes: usize, seed: u64) -> Result<Self, BenchError> {
        let mut random = Random::new(seed);
        let mut builder = BatchBuilder::new();
        let mut body = vec![0; record_bytes];
        for _ in 0..records {
            random.fill_printable(&mut body);
            builder.push::<&[u8], &[u8]>(None, &[], &body)?;
        }
        let mut bytes = Vec::new();
        let crc = builder.finish(&mut bytes)?;
        let verified = VerifiedBatch::verify(&bytes, crc)?;
        let (records, content_bytes) = (verified.records(), verified.content_bytes());
        Ok(Self { bytes, crc, records: records.into(), content_bytes: content_bytes.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::{EncodedBatch, VerifiedBatch};

    #[test]
    fn a_batch_is_valid_printable_and_the_same_for_the_same_seed() {
        let batch = EncodedBatch::printable(3, 21, 7).unwrap();
        let verified = VerifiedBatch::verify(&batch.bytes, batch.crc).unwrap();
        assert_eq!((verified.records(), verified.content_bytes()), (3, 63));
        assert_eq!((batch.records, batch.content_bytes), (3, 63));
        let bodies: Vec<_> = verified.iter().map(|record| record.body.to_vec()).collect();
        assert!(bodies.iter().flatten().all(u8::is_ascii_graphic));
        assert_ne!(bodies[0], bodies[1]);
        assert_eq!(EncodedBatch::printable(3, 21, 7).unwrap().bytes, batch.bytes);
        assert_ne!(EncodedBatch::printable(3, 21, 8).unwrap().bytes, batch.bytes);
    }

    #[test]
    fn records_that_fit_in_no_batch_are_refused() {
        assert!(EncodedBatch::printable(1_001, 1, 0).is_err());
        assert!(EncodedBatch::printable(1, (1 << 20) + 1, 0).is_err());
    }
}
