use super::*;
use crate::sys;

#[test]
fn touched_pages_are_resident() {
    const LENGTH: usize = 64 << 20;
    let start = sys::map_private(LENGTH).unwrap();
    let address = start.expose_provenance();
    const MADV_NOHUGEPAGE: usize = 15;
    // SAFETY: the advice changes nothing but the size of pages. Kernels without large pages
    // refuse it.
    unsafe { call(nr::MADVISE, [address, LENGTH, MADV_NOHUGEPAGE, 0, 0, 0]) };
    assert_eq!(bytes_resident_in(address, LENGTH), 0);
    // In the first range that the kernel is asked about, and in the last.
    for page in [0, 1, 5000, LENGTH / PAGE - 1] {
        // SAFETY: the mapping has `LENGTH` bytes, which may be written, and `page` is below the
        // number of its pages. It is this test's alone.
        unsafe { start.add(page * PAGE).write_volatile(1) };
    }
    assert_eq!(bytes_resident_in(address, LENGTH), 4 * PAGE as u64);
    let entered = || slots().any(|slot| slot.start.load(Ordering::Relaxed) == address);
    assert!(entered() && bytes_resident() >= 4 * PAGE as u64);
    // SAFETY: the mapping is this test's, and not used any more.
    unsafe { sys::unmap(start, LENGTH) };
    assert_eq!(bytes_resident_in(address, LENGTH), 0, "a range that is not mapped has nothing resident");
}

#[test]
fn there_is_room_for_many() {
    let starts: [_; 3 * SLOTS] = core::array::from_fn(|_| sys::map_private(PAGE).unwrap());
    let is_entered = |start: *mut u8| slots().any(|slot| slot.start.load(Ordering::Relaxed) == start.addr());
    assert!(starts.iter().all(|&start| is_entered(start)));
    for start in starts {
        // SAFETY: the mapping is this test's, and not used any more.
        unsafe { sys::unmap(start, PAGE) };
    }
    // Another test may have been given the addresses.
    assert!(slots().filter(|slot| slot.start.load(Ordering::Relaxed) != 0).count() < 2 * SLOTS);
}
