//! How the hand-laid layouts read and write their little-endian fields.

/// Reads the `N` bytes at `at`.
///
/// Callers have checked the length of `bytes` once for a whole header.
#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

macro_rules! ints {
    ($($get:ident $put:ident $int:ty;)*) => {$(
        #[inline]
        pub(crate) fn $get(bytes: &[u8], at: usize) -> $int {
            <$int>::from_le_bytes(array(bytes, at))
        }

        #[inline]
        pub(crate) fn $put(bytes: &mut [u8], at: usize, value: $int) {
            bytes[at..at + size_of::<$int>()].copy_from_slice(&value.to_le_bytes());
        }
    )*};
}

ints! {
    u16_at put_u16 u16;
    u32_at put_u32 u32;
    u64_at put_u64 u64;
    i64_at put_i64 i64;
}
