extern crate std;

use core::cell::UnsafeCell;

use super::*;

#[test]
fn a_failed_attempt_leaves_the_lock_held() {
    let lock = Lock::new();
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    assert!(lock.try_lock().is_none());
    drop(guard);
    assert!(lock.try_lock().is_some());
}

#[test]
fn a_wait_for_a_lock_ends() {
    let lock = Lock::new();
    let guard = lock.lock_within(0).unwrap();
    assert!(lock.lock_within(2).is_none());
    drop(guard);
    assert!(lock.lock_within(2).is_some());
    std::thread::scope(|scope| {
        let guard = lock.lock();
        let waiter = scope.spawn(|| lock.lock_within(600_000).is_some());
        drop(guard);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn one_at_a_time() {
    struct Shared(Lock, UnsafeCell<u64>);
    // SAFETY: `Sync` asks that shared references race nowhere. The lock is `Sync` itself. The
    // cell is accessed below only, by threads that hold the lock, and at the end, when one
    // thread is left.
    unsafe impl Sync for Shared {}
    const ITERATIONS: u64 = if cfg!(miri) { 50 } else { 100_000 };
    let shared = Shared(Lock::new(), UnsafeCell::new(0));
    let shared = &shared;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for iteration in 0..ITERATIONS {
                    let guard = if iteration % 3 == thread % 3 { shared.0.try_lock() } else { Some(shared.0.lock()) };
                    if guard.is_some() {
                        // SAFETY: the pointer is that of a live cell, and nobody else uses it:
                        // all threads do so under the lock, which `guard` holds.
                        unsafe { *shared.1.get() += 1 };
                    } else {
                        let _guard = shared.0.lock();
                        // SAFETY: the pointer is that of a live cell, and nobody else uses it:
                        // all threads do so under the lock, which `_guard` holds.
                        unsafe { *shared.1.get() += 1 };
                    }
                }
            });
        }
    });
    // SAFETY: the pointer is that of a live cell. Nobody writes to it any more: `scope` has
    // waited for the end of all threads that do.
    assert_eq!(unsafe { *shared.1.get() }, 4 * ITERATIONS);
}
