//! How much more than usual is tried?

/// Says how often what is usual is done: 1 where it isn't set.
const VARIABLE: &str = "NOVA_TEST_SOAK";

/// So many, as often as `NOVA_TEST_SOAK` says.
///
/// # Panics
/// When it says no number above 0.
#[must_use]
pub fn soaked(usual: u32) -> u32 {
    let said = std::env::var(VARIABLE).ok().filter(|said| !said.is_empty());
    let times = said.map_or(1, |said| match said.parse() {
        Ok(times @ 1..) => times,
        _ => panic!("{VARIABLE} is `{said}`: it must be a number above 0"),
    });
    usual.saturating_mul(times)
}
