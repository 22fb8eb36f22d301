//! How nova sums bytes: CRC-32C everywhere.

use crc_fast::{CrcAlgorithm, checksum};

/// The CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `bytes`.
#[must_use]
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the library answers a 32-bit sum in 64 bits")]
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_check_value_of_the_standard_holds() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(b""), 0);
    }
}
