//! What the files of a log are called.

use wire::ids::SegmentId;

/// The superblock.
pub(crate) const SUPER: &str = "super";
/// A file with written blocks, opened first.
pub(crate) const SEED: &str = "seed";
/// What the name of a segment ends with while it is being zeroed.
pub(crate) const UNFINISHED: &str = ".new";

const PREFIX: &str = "seg-";

/// The file name of a segment.
pub(crate) fn segment_name(segment: SegmentId) -> String {
    format!("{PREFIX}{:016x}", segment.get())
}

/// The segment of a file name, if it is one. Nobody writes the last number: the one after it has to be there too.
pub(crate) fn parse_segment_name(name: &str) -> Option<SegmentId> {
    let digits = name.strip_prefix(PREFIX)?;
    let id = u64::from_str_radix(digits, 16).ok().filter(|id| *id < u64::MAX).map(SegmentId::new)?;
    (segment_name(id) == name).then_some(id)
}

/// Whether a file name is that of a segment that was never finished.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(UNFINISHED)
}
