use std::sync::Barrier;
use std::thread;
use std::vec::Vec;

use super::*;

/// Fills a block with a byte.
fn fill(block: *mut u8, size: usize, byte: u8) {
    assert!(!block.is_null());
    // SAFETY: tests fill blocks of at least that size, which they own.
    unsafe { block.write_bytes(byte, size) };
}

/// True if all bytes of a block are this one.
fn is_filled(block: *const u8, size: usize, byte: u8) -> bool {
    // SAFETY: tests look at blocks of at least that size, which they own and have filled.
    unsafe { core::slice::from_raw_parts(block, size) }.iter().all(|&each| each == byte)
}

/// Returns the usable size of a block of a test's.
fn usable(block: *const u8) -> usize {
    // SAFETY: tests ask about blocks of their own, or about addresses that are not the allocator's.
    unsafe { usable_size(block) }
}

/// Frees a block of a test's.
fn release(block: *mut u8) {
    // SAFETY: tests free a block once, and use it no more.
    unsafe { free(block) };
}

fn resize(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: tests use the result only.
    let new = unsafe { reallocate(block, size) };
    assert!(!new.is_null());
    new
}

const SIZES: [usize; 18] =
    [0, 1, 16, 17, 100, 129, 1000, 1024, 1025, 4096, 8192, 8193, 50_000, 65_536, 65_537, 300_000, 1 << 20, 5 << 20];

#[test]
fn blocks_are_aligned_do_not_overlap_and_have_their_good_size() {
    let blocks: Vec<_> = SIZES.iter().cycle().take(1000).map(|&size| (allocate(size), size)).collect();
    for (number, &(block, size)) in blocks.iter().enumerate() {
        assert_eq!(block.addr() % ALIGNMENT, 0);
        assert_eq!(Some(usable(block)), good_size(size));
        fill(block, size, number as u8);
    }
    for (number, &(block, size)) in blocks.iter().enumerate() {
        assert!(is_filled(block, size, number as u8), "{size}");
        release(block);
    }
}

#[test]
fn aligned_blocks_are_aligned() {
    for shift in 0..=23 {
        let alignment = 1 << shift;
        let blocks: Vec<_> = SIZES.iter().map(|&size| (allocate_aligned(size, alignment), size)).collect();
        for &(block, size) in &blocks {
            assert_eq!(block.addr() % alignment, 0, "{size}");
            assert!(usable(block) >= size);
            fill(block, size, 1);
        }
        blocks.into_iter().for_each(|(block, _)| release(block));
    }
}

#[test]
fn zeroed_blocks_are_zero_whoever_had_them() {
    for round in 0..3 {
        for size in SIZES {
            let blocks: Vec<_> = (0..5).map(|_| allocate_zeroed(size)).collect();
            for &block in &blocks {
                assert!(is_filled(block, size, 0), "{size} in round {round}");
                fill(block, usable(block), 0xFF);
            }
            blocks.into_iter().for_each(release);
        }
    }
}

#[test]
fn a_reallocated_block_keeps_its_content() {
    for from in SIZES {
        for to in SIZES {
            let block = allocate(from);
            fill(block, from, 5);
            let block = resize(block, to);
            assert!(is_filled(block, from.min(to), 5), "{from} to {to}");
            fill(block, to, 6);
            release(block);
        }
    }
}

#[test]
fn a_growing_block_keeps_its_content() {
    let (mut block, mut size) = (allocate(1), 1);
    fill(block, 1, 9);
    while size < 100 << 20 {
        let larger = size + size / 2 + 1;
        block = resize(block, larger);
        assert!(is_filled(block, size.min(1 << 16), 9), "{size}");
        // SAFETY: the new part lies in the block.
        fill(unsafe { block.add(size) }, larger - size, 9);
        size = larger;
    }
    assert!(is_filled(block, size, 9));
    block = resize(block, 3 << 20);
    assert_eq!(usable(block), 3 << 20);
    block = resize(block, 10);
    assert!(is_filled(block, 10, 9));
    release(block);
}

#[test]
fn a_block_that_shrinks_within_its_class_stays_where_it_is() {
    for (from, to) in [(16, 1), (128, 113), (1 << 20, (1 << 20) - 10), (5 << 20, (5 << 20) - 10)] {
        let block = allocate(from);
        assert_eq!(resize(block, to), block, "{from} to {to}");
        release(block);
    }
}

#[test]
fn a_huge_block_grows_though_the_program_has_split_its_mapping() {
    use core::ffi::{c_int, c_void};

    const PROT_READ: c_int = 1;
    const MADV_DONTDUMP: c_int = 16;
    unsafe extern "C" {
        fn mprotect(start: *mut c_void, length: usize, protection: c_int) -> c_int;
        fn madvise(start: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    for round in 0..4 {
        let block = allocate(5 << 20);
        fill(block, 5 << 20, 4);
        let page = block.wrapping_add(2 << 20).cast();
        // SAFETY: the page lies in the block, and nobody writes to it until the block has moved.
        let answer = unsafe {
            if round % 2 == 0 { mprotect(page, 4096, PROT_READ) } else { madvise(page, 4096, MADV_DONTDUMP) }
        };
        assert_eq!(answer, 0);
        let block = resize(block, 9 << 20);
        assert!(is_filled(block, 5 << 20, 4), "{round}");
        fill(block, 9 << 20, 5);
        release(block);
    }
}

#[test]
fn sizes_that_no_block_can_have_are_refused() {
    for size in [usize::MAX, usize::MAX - 4095, isize::MAX as usize + 1, isize::MAX as usize, 1 << 47] {
        assert!(allocate(size).is_null(), "{size:#x}");
        assert!(allocate_zeroed(size).is_null());
        assert!(allocate_aligned(size, 64).is_null());
        let block = allocate(40);
        fill(block, 40, 3);
        // SAFETY: the block stays ours, because the result is null.
        assert!(unsafe { reallocate(block, size) }.is_null());
        assert!(is_filled(block, 40, 3));
        release(block);
    }
    assert!(allocate_aligned(10, 1 << 62).is_null());
    assert_eq!(good_size(usize::MAX), None);
}

#[test]
fn addresses_of_others_have_no_usable_size() {
    let local = 0_u8;
    assert_eq!(usable(&raw const local), 0);
    assert_eq!(usable(core::ptr::null()), 0);
    assert_eq!(usable(core::ptr::without_provenance(1 << 46)), 0);
    assert_eq!(usable(core::ptr::without_provenance(usize::MAX << 22)), 0);
}

/// Blocks that go from thread to thread.
struct Parcel(Vec<(*mut u8, usize)>);

// SAFETY: `Send` demands that another thread may use them: the one that sends gives them up.
unsafe impl Send for Parcel {}

#[test]
fn what_other_threads_free_is_used_again() {
    const ROUNDS: usize = 100;
    const BLOCKS: usize = 2000;
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Parcel>(1);
    let (done, wait) = std::sync::mpsc::sync_channel(1);
    let other = thread::spawn(move || {
        for Parcel(blocks) in receiver {
            for (block, size) in blocks {
                assert!(is_filled(block, size, 2));
                release(block);
            }
            done.send(()).unwrap();
        }
    });
    // In a thread of its own, so that nobody else's blocks are in its heap.
    let addresses = thread::spawn(move || {
        let mut addresses = std::collections::HashSet::new();
        for _ in 0..ROUNDS {
            let blocks = (0..BLOCKS).map(|_| (allocate(200), 200)).collect::<Vec<_>>();
            for &(block, size) in &blocks {
                addresses.insert(block.addr());
                fill(block, size, 2);
            }
            sender.send(Parcel(blocks)).unwrap();
            wait.recv().unwrap();
        }
        addresses.len()
    });
    let addresses = addresses.join().unwrap();
    other.join().unwrap();
    // Without reuse there would be 200,000 of them.
    assert!(addresses < 4 * BLOCKS, "{addresses} addresses");
}

#[test]
fn threads_that_end_leave_their_heaps_to_others() {
    let work = || {
        let blocks: Vec<_> = SIZES.iter().take(14).map(|&size| allocate(size)).collect();
        blocks.into_iter().for_each(release);
    };
    (0..50).for_each(|_| thread::spawn(work).join().unwrap());
    let before = statistics();
    (0..1000).for_each(|_| thread::spawn(work).join().unwrap());
    let after = statistics();
    // Other tests run meanwhile, with some megabytes.
    assert!(after.bookkeeping_bytes < before.bookkeeping_bytes + (1 << 20), "{before:?} {after:?}");
}

#[test]
fn a_block_outlives_its_thread() {
    let Parcel(blocks) = thread::spawn(|| {
        let blocks = SIZES.map(|size| (allocate(size), size));
        blocks.iter().for_each(|&(block, size)| fill(block, size, 8));
        Parcel(blocks.to_vec())
    })
    .join()
    .unwrap();
    for (block, size) in blocks {
        assert!(is_filled(block, size, 8));
        release(resize(block, size * 2));
    }
}

#[test]
fn many_threads_at_once_have_blocks_of_their_own() {
    const THREADS: usize = 8;
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for round in 0..50 {
                    let blocks: Vec<_> = (0..500).map(|each| (allocate(each * 7 % 3000), each * 7 % 3000)).collect();
                    blocks.iter().for_each(|&(block, size)| fill(block, size, number as u8));
                    for (block, size) in blocks {
                        assert!(is_filled(block, size, number as u8), "{round}");
                        release(block);
                    }
                }
            });
        }
    });
}

#[test]
fn the_block_that_was_freed_last_is_the_next_one_and_zero_if_asked_for() {
    for size in [513, 1024, 2000, 8192, 20_000, 65_536, 300_000, 1 << 20] {
        let (other, block) = (allocate(size), allocate(size));
        fill(block, size, 7);
        release(block);
        let again = allocate_zeroed(size);
        assert_eq!(again, block, "{size}");
        assert!(is_filled(again, size, 0), "{size}");
        release(again);
        release(other);
    }
}

#[test]
fn runs_that_were_freed_in_disorder_give_blocks_in_order() {
    const SIZE: usize = 64;
    // In a thread of its own, so that no blocks of others are among them.
    let in_order = thread::spawn(|| {
        let mut blocks: Vec<_> = (0..8192).map(|_| allocate(SIZE)).collect();
        // Every third block, then the next ones.
        for start in [1, 2, 0] {
            blocks.iter().skip(start).step_by(3).for_each(|&block| release(block));
        }
        blocks.clear();
        blocks.extend((0..8192).map(|_| allocate(SIZE)));
        let in_order = blocks.windows(2).filter(|pair| pair[1].addr() == pair[0].addr() + SIZE).count();
        blocks.into_iter().for_each(release);
        in_order
    });
    // The current run and those with blocks in use are as they were.
    assert!(in_order.join().unwrap() > 8192 * 3 / 4);
}

#[test]
fn zeroed_blocks_are_zero_however_often_one_was_used_again() {
    // As `malloc` of the preload library: both functions look for a block that was just freed.
    let malloc = |size| match allocate_any_at_once(size) {
        block if block.is_null() => allocate_otherwise(size),
        block => block,
    };
    for size in [700, 5000, 70_000] {
        // So many times that any count of eight bits comes round.
        for times in 1..600 {
            let block = malloc(size);
            // SAFETY: a block of that size, which nobody else has until it is freed.
            unsafe {
                block.write_bytes(7, size);
                free(block);
            }
            let zeroed = allocate_zeroed(size);
            // SAFETY: as before.
            let is_zero = unsafe { core::slice::from_raw_parts(zeroed, size) }.iter().all(|&byte| byte == 0);
            assert!(is_zero, "{size} bytes after {times} times");
            // SAFETY: our block.
            unsafe { free(zeroed) };
        }
    }
}

/// A sampler knows which page is read for an address.
#[test]
fn the_metadata_of_an_address_is_on_the_page_that_samplers_know() {
    for address in (0..200).map(|number: usize| 0x7f12_3456_0000 + number.wrapping_mul(0x1_2345_6790) % (1 << 36)) {
        // SAFETY: the address of the metadata is computed, not used.
        let run = unsafe { crate::run::RunPtr::of(core::ptr::without_provenance_mut(address)) };
        assert_eq!(run.as_ptr().addr() & !0xfff, heapledger_core::block_sampler::metadata_page(address));
    }
}
