use super::*;

#[test]
fn an_idempotency_key_travels_in_two_halves_and_is_not_zero() {
    assert_eq!(halves(None).unwrap(), (0, 0));
    assert_eq!(halves(Some(1)).unwrap(), (0, 1));
    assert_eq!(halves(Some(u128::MAX - 1)).unwrap(), (u64::MAX, u64::MAX - 1));
    assert_eq!(halves(Some(0)).unwrap_err().reason(), Reason::Invalid);
}
