use super::*;

#[test]
fn rings_are_used_again() {
    let pool = Pool::default();
    let (ring, _) = pool.take(64 << 10).unwrap();
    ring.ring().publish(5);
    let address = ring.ring().mapping();
    pool.give(ring);
    let (other, _) = pool.take(32 << 10).unwrap();
    assert_ne!(other.ring().mapping(), address);
    let (again, fd) = pool.take(64 << 10).unwrap();
    assert_eq!((again.ring().mapping(), again.ring().head()), (address, 0));
    assert_eq!(rustix::fs::fstat(&fd).unwrap().st_size as usize, again.length());
    // A ring that was not made by the pool has no descriptor, and is dropped.
    pool.give(SharedRing::new(64 << 10).unwrap().0);
    assert!(pool.lock().is_empty());
}
