use super::*;

#[test]
fn at_equal_stamps_releases_come_first() {
    assert!(Key::new(5, true) < Key::new(5, false));
    assert!(Key::new(5, false) < Key::of_end(5) && Key::of_end(5) < Key::new(6, true));
    assert!(Key::before(6) >= Key::of_end(5) && Key::before(6) < Key::new(6, true));
    assert!(Key::before(0) < Key::new(0, true));
    assert!(Key::before(u64::MAX) >= Key::of_end(u64::MAX));
    assert!(Key::new(0, true) > Key::NONE);
}
