use super::*;

#[test]
fn nobody_waits_for_a_reader_that_never_ends() {
    let readers = Readers::new();
    assert!(readers.wait());
    let stuck = readers.begin();
    assert!(!readers.wait() && readers.is_stuck.load(Ordering::Relaxed));
    assert!(!readers.wait());
    // New readers are counted elsewhere.
    let other = readers.begin();
    assert!(!core::ptr::eq(stuck, other));
    other.fetch_sub(1, Ordering::SeqCst);
    stuck.fetch_sub(1, Ordering::SeqCst);
    assert!(readers.wait() && !readers.is_stuck.load(Ordering::Relaxed));
}
