use core::alloc::Layout;
use core::ffi::c_void;
use core::ops::ControlFlow;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, mpsc};
use std::thread;
use std::vec::Vec;

use crate::arenas::{
    Arena, ArenaId, ChunkCallbacks, arena_of, arena_statistics, find_by_label, free_in, main_arena, reallocate_in,
};
use crate::{allocate, free, pointer_info, reallocate, trim, usable_size, walk};

pub(super) fn bytes(size: usize) -> Layout {
    Layout::from_size_align(size, 16).unwrap()
}

pub(super) fn arena(label: &str) -> Arena {
    Arena::builder().label(label).create().unwrap()
}

/// Returns a block that is filled with a byte.
pub(super) fn filled(arena: &Arena, size: usize, byte: u8) -> NonNull<u8> {
    let block = arena.allocate(bytes(size)).unwrap();
    // SAFETY: a new block of that size.
    unsafe { block.write_bytes(byte, size) };
    block
}

fn is_filled(block: NonNull<u8>, size: usize, byte: u8) -> bool {
    // SAFETY: tests look at blocks of at least that size, which they own and have filled.
    unsafe { core::slice::from_raw_parts(block.as_ptr(), size) }.iter().all(|&each| each == byte)
}

fn owner(block: NonNull<u8>) -> Option<ArenaId> {
    // SAFETY: tests ask about blocks of their own.
    unsafe { arena_of(block.as_ptr()) }
}

/// Frees a block of a test's without naming its arena.
pub(super) fn release(block: NonNull<u8>) {
    // SAFETY: tests free a block once, and use it no more.
    unsafe { free(block.as_ptr()) };
}

/// A block that another thread may use.
struct Sent(NonNull<u8>);

// SAFETY: `Send` demands that another thread may use it: the one that sends gives it up.
unsafe impl Send for Sent {}

/// Waits for the other tests that change or purge all arenas.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|error| error.into_inner())
}

const SIZES: [usize; 9] = [1, 16, 100, 1000, 5000, 60_000, 300_000, 1 << 20, 5 << 20];

#[test]
fn blocks_are_of_their_arena_and_keep_their_content() {
    let arenas = [arena("a"), arena("b")];
    let mut blocks = Vec::new();
    for (number, &size) in SIZES.iter().cycle().take(200).enumerate() {
        let arena = &arenas[number % 2];
        blocks.push((filled(arena, size, number as u8), size, number));
    }
    for &(block, size, number) in &blocks {
        assert_eq!(owner(block), Some(arenas[number % 2].id()));
        assert!(is_filled(block, size, number as u8), "{size}");
    }
    let local = 0_u8;
    // SAFETY: the address is not in memory of the allocator, and neither is null.
    unsafe {
        assert_eq!(arena_of(&raw const local), None);
        assert_eq!(arena_of(ptr::null()), None);
    }
    let plain = NonNull::new(allocate(100)).unwrap();
    assert_eq!(owner(plain), Some(main_arena()));
    release(plain);
    for (block, _, number) in blocks {
        if number % 3 == 0 {
            release(block);
        } else {
            // SAFETY: a block of the arena, which is not used any more.
            unsafe { arenas[number % 2].free(block) };
        }
    }
}

#[test]
fn zeroed_and_aligned_blocks_are_so() {
    let arena = arena("zeroed");
    for _ in 0..3 {
        for size in SIZES {
            let block = arena.allocate_zeroed(bytes(size)).unwrap();
            assert!(is_filled(block, size, 0), "{size}");
            // SAFETY: a block of that size.
            unsafe { block.write_bytes(0xFF, size) };
            release(block);
        }
        for shift in 0..=23 {
            let layout = Layout::from_size_align(3000, 1 << shift).unwrap();
            let (block, zeroed) = (arena.allocate(layout).unwrap(), arena.allocate_zeroed(layout).unwrap());
            for block in [block, zeroed] {
                assert_eq!(block.as_ptr().addr() % layout.align(), 0);
                assert_eq!(owner(block), Some(arena.id()));
            }
            assert!(is_filled(zeroed, 3000, 0));
            release(zeroed);
            release(block);
        }
    }
}

#[test]
fn a_reallocated_block_stays_in_its_arena() {
    let arena = arena("growing");
    for from in SIZES {
        for to in SIZES {
            for is_plain in [false, true] {
                let block = filled(&arena, from, 3);
                // SAFETY: the block is the test's, which uses the result only.
                let block = unsafe {
                    if is_plain {
                        reallocate(block.as_ptr(), to)
                    } else {
                        reallocate_in(arena.id(), block.as_ptr(), to)
                    }
                };
                let block = NonNull::new(block).unwrap();
                assert!(is_filled(block, from.min(to), 3), "{from} to {to}");
                assert_eq!(owner(block), Some(arena.id()), "{from} to {to}");
                // SAFETY: a block of the arena, which is not used any more.
                unsafe { free_in(arena.id(), block.as_ptr()) };
            }
        }
    }
    // Another thread reallocates and frees: it has no heap of the arena before.
    let block = Sent(filled(&arena, 100, 5));
    let id = arena.id();
    thread::spawn(move || {
        let Sent(block) = { block };
        // SAFETY: the block is this thread's, which uses the result only.
        let block = NonNull::new(unsafe { reallocate(block.as_ptr(), 5000) }).unwrap();
        assert!(is_filled(block, 100, 5));
        assert_eq!(owner(block), Some(id));
        release(block);
    })
    .join()
    .unwrap();
}

#[test]
fn an_arena_that_ends_returns_its_chunks() {
    let arena = arena("short");
    let blocks: Vec<_> = (0..20_000).map(|number| filled(&arena, number % 3000, 1)).collect();
    let before = arena.statistics();
    assert!(before.chunk_bytes >= 20 << 20 && before.mapped_bytes == before.chunk_bytes, "{before:?}");
    let place = blocks[0];
    blocks.into_iter().for_each(release);
    let id = arena.id();
    drop(arena);
    assert_eq!(arena_statistics(id), None);
    // The addresses may have been given to another test's arena, but not to this one.
    assert_ne!(owner(place), Some(id));
}

#[test]
fn descriptions_and_heaps_of_arenas_are_used_again() {
    let work = || {
        for number in 0..200 {
            let arena = arena("one of many");
            let block = filled(&arena, 100 + number, 1);
            assert_eq!(owner(block), Some(arena.id()));
            release(block);
        }
    };
    work();
    let before = crate::statistics().bookkeeping_bytes;
    (0..10).for_each(|_| work());
    let after = crate::statistics().bookkeeping_bytes;
    // 2000 heaps would be 12 MB. Other tests run meanwhile, one of them with 300 arenas.
    assert!(after < before + (4 << 20), "{before} {after}");
}

#[test]
fn many_arenas_are_all_found() {
    let arenas: Vec<_> = (0..300).map(|_| arena("one of many")).collect();
    for round in 0..3 {
        for arena in arenas.iter().rev() {
            let block = filled(arena, 40, round);
            assert_eq!(owner(block), Some(arena.id()));
            release(block);
        }
    }
}

#[test]
fn threads_have_heaps_of_their_own_and_leave_them() {
    let _alone = alone();
    let arena = arena("shared");
    let barrier = Barrier::new(4);
    for _ in 0..20 {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let threads = [0, 1, 2, 3].map(|number: u8| {
                let (arena, barrier, sender) = (&arena, &barrier, sender.clone());
                scope.spawn(move || {
                    barrier.wait();
                    for each in 0..500 {
                        let size = each * 13 % 2000 + 1;
                        let block = filled(arena, size, number);
                        if each % 2 == 0 {
                            sender.send((Sent(block), size, number)).unwrap();
                        } else {
                            release(block);
                        }
                    }
                })
            });
            // The end of a scope does not wait until threads have left their heaps.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        drop(sender);
        for (Sent(block), size, number) in receiver {
            assert!(is_filled(block, size, number));
            // SAFETY: a block of the arena, which is not used any more.
            unsafe { arena.free(block) };
        }
    }
    // Heaps were adopted again: 80 of them would have 160 MiB. A block of each size is a run.
    assert!(arena.statistics().chunk_bytes <= 32 << 20, "{:?}", arena.statistics());
    trim();
    assert_eq!(arena.statistics().run_bytes, 0);
}

#[test]
fn an_arena_may_be_disposed_of_while_threads_have_heaps_of_it() {
    let (to_thread, arenas) = mpsc::channel::<std::sync::Arc<Arena>>();
    let (done, wait) = mpsc::channel();
    let other = thread::spawn(move || {
        for arena in arenas {
            let block = filled(&arena, 700, 1);
            assert_eq!(owner(block), Some(arena.id()));
            release(block);
            drop(arena);
            done.send(()).unwrap();
        }
    });
    for _ in 0..100 {
        let arena = std::sync::Arc::new(arena("of another thread"));
        to_thread.send(arena.clone()).unwrap();
        wait.recv().unwrap();
        drop(std::sync::Arc::into_inner(arena).unwrap());
    }
    drop(to_thread);
    other.join().unwrap();
}

#[test]
fn a_thread_that_works_elsewhere_takes_what_others_freed() {
    let arena = arena("left alone");
    thread::scope(|scope| {
        scope.spawn(|| {
            let blocks: Vec<_> = (0..3000).map(|_| Sent(filled(&arena, 1000, 1))).collect();
            thread::scope(|scope| {
                scope.spawn(|| blocks.into_iter().for_each(|Sent(block)| release(block))).join().unwrap()
            });
            let before = arena.statistics().run_bytes;
            assert!(before >= 3_000_000, "{before}");
            // All bins of the thread's home heap are visited within some thousand refills.
            let is_returned = (0..100_000).any(|_| {
                let blocks = [(); 16].map(|()| NonNull::new(allocate(3000)).unwrap());
                blocks.into_iter().for_each(release);
                arena.statistics().run_bytes == 0
            });
            assert!(is_returned, "{:?}", arena.statistics());
        });
    });
}

#[test]
fn a_limit_is_kept_and_what_is_freed_counts_no_more() {
    let arena = Arena::builder().label("limited").mapped_bytes_max(12 << 20).create().unwrap();
    for _ in 0..3 {
        let mut blocks = Vec::new();
        while let Some(block) = arena.allocate(bytes(50_000)) {
            blocks.push(block);
        }
        assert_eq!(arena.statistics().mapped_bytes, 12 << 20);
        assert!(blocks.len() > 180, "{}", blocks.len());
        assert!(arena.allocate(bytes(2 << 20)).is_none());
        assert!(arena.allocate_zeroed(bytes(50_000)).is_none());
        // SAFETY: the block is the test's, and stays so because the result is null.
        assert!(unsafe { arena.reallocate(blocks[0], 3 << 20) }.is_none());
        blocks.into_iter().for_each(release);
        // Blocks of another size need the runs that those of the first size had.
        let block = arena.allocate(bytes(900_000)).unwrap();
        release(block);
        assert!(arena.statistics().mapped_bytes <= 12 << 20);
    }
    let block = arena.allocate(bytes(5 << 20)).unwrap();
    // SAFETY: the block is the test's, which uses the result only.
    let block = unsafe {
        assert!(arena.reallocate(block, 13 << 20).is_none());
        arena.reallocate(block, 11 << 20).unwrap()
    };
    assert_eq!(arena.statistics().mapped_bytes, 11 << 20);
    release(block);
}

/// A source that fills its memory with rubbish, counts what is in use, and makes decommitted memory
/// inaccessible.
pub(super) mod rubbish {
    use super::*;

    const PROT_NONE: i32 = 0;
    const PROT_READ_WRITE: i32 = 3;

    unsafe extern "C" {
        fn mprotect(start: *mut c_void, length: usize, protection: i32) -> i32;
    }

    #[derive(Default)]
    pub(crate) struct Counts {
        pub(crate) mapped: AtomicUsize,
        pub(crate) decommits: AtomicUsize,
        pub(crate) commits: AtomicUsize,
        pub(crate) is_refusing: AtomicBool,
        /// Commits and decommits are refused from the one with this number on, unless it is 0.
        pub(crate) calls_max: AtomicUsize,
    }

    fn is_refused(counts: &Counts, calls: &AtomicUsize) -> bool {
        let calls_max = counts.calls_max.load(Ordering::Relaxed);
        counts.is_refusing.load(Ordering::Relaxed) || (calls_max > 0 && calls.load(Ordering::Relaxed) >= calls_max)
    }

    fn counts(context: *mut c_void) -> &'static Counts {
        // SAFETY: the context is a leaked `Counts`.
        unsafe { &*context.cast() }
    }

    unsafe extern "C" fn map(context: *mut c_void, length: usize, alignment: usize) -> *mut c_void {
        let start = crate::os::map_aligned(length, alignment, 0);
        if !start.is_null() {
            // SAFETY: new memory of that size.
            unsafe { start.write_bytes(0xAB, length) };
            counts(context).mapped.fetch_add(length, Ordering::Relaxed);
        }
        start.cast()
    }

    unsafe extern "C" fn unmap(context: *mut c_void, start: *mut c_void, length: usize) {
        counts(context).mapped.fetch_sub(length, Ordering::Relaxed);
        // SAFETY: the allocator returns what `map` returned.
        unsafe { crate::os::unmap(start.cast(), length) };
    }

    unsafe extern "C" fn commit(context: *mut c_void, start: *mut c_void, length: usize) -> i32 {
        if is_refused(counts(context), &counts(context).commits) {
            return -1;
        }
        counts(context).commits.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a range of the allocator's, with rubbish in it afterwards.
        unsafe {
            let answer = mprotect(start, length, PROT_READ_WRITE);
            start.cast::<u8>().write_bytes(0xCD, length);
            answer
        }
    }

    unsafe extern "C" fn decommit(context: *mut c_void, start: *mut c_void, length: usize) -> i32 {
        if is_refused(counts(context), &counts(context).decommits) {
            return -1;
        }
        counts(context).decommits.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a range of the allocator's, which it does not use.
        unsafe { mprotect(start, length, PROT_NONE) }
    }

    pub(crate) fn callbacks() -> (ChunkCallbacks, &'static Counts) {
        let counts: &'static Counts = std::boxed::Box::leak(std::boxed::Box::default());
        let context = ptr::from_ref(counts).cast_mut().cast();
        let callbacks = ChunkCallbacks {
            context,
            map: Some(map),
            unmap: Some(unmap),
            commit: Some(commit),
            decommit: Some(decommit),
        };
        (callbacks, counts)
    }
}

#[test]
fn readers_without_a_lock_find_no_memory_that_was_decommitted() {
    let _alone = alone();
    let (callbacks, counts) = rubbish::callbacks();
    // SAFETY: the functions do what they have to.
    let arena = unsafe { Arena::builder().label("read").chunk_callbacks(callbacks) }.create().unwrap();
    let (is_over, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Follows the lists of all runs, also of those that are released just now.
                let _ = crate::walk(|_| core::ops::ControlFlow::Continue(()));
                looks.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 0.. {
            if round >= 30 && looks.load(Ordering::Relaxed) > 1 {
                break;
            }
            let blocks: Vec<_> = (0..4000).map(|_| arena.allocate(bytes(48)).unwrap()).collect();
            blocks.into_iter().for_each(release);
            trim();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(counts.decommits.load(Ordering::Relaxed) > 0);
}

#[test]
fn an_arena_may_have_a_source_of_its_own() {
    let _alone = alone();
    let (callbacks, counts) = rubbish::callbacks();
    // SAFETY: the functions do what they have to.
    let arena = unsafe { Arena::builder().label("own source").chunk_callbacks(callbacks) }.create().unwrap();
    for _ in 0..3 {
        let mut blocks: Vec<_> = SIZES.iter().cycle().take(100).map(|&size| (filled(&arena, size, 9), size)).collect();
        for (block, size) in &mut blocks {
            // SAFETY: the block is the test's, which uses the result only.
            *block = unsafe { arena.reallocate(*block, *size * 2) }.unwrap();
            assert!(is_filled(*block, *size, 9), "{size}");
            // SAFETY: the block has that size now.
            unsafe { block.write_bytes(1, *size * 2) };
        }
        let statistics = arena.statistics();
        assert_eq!(statistics.mapped_bytes, counts.mapped.load(Ordering::Relaxed));
        for (block, size) in blocks {
            assert!(is_filled(block, size * 2, 1), "{size}");
            release(block);
        }
        trim();
        for size in SIZES {
            let block = arena.allocate_zeroed(bytes(size)).unwrap();
            assert!(is_filled(block, size, 0), "{size}");
            release(block);
        }
    }
    assert!(counts.decommits.load(Ordering::Relaxed) > 0 && counts.commits.load(Ordering::Relaxed) > 0);
    drop(arena);
    assert_eq!(counts.mapped.load(Ordering::Relaxed), 0);
}

#[test]
fn a_source_that_refuses_leaves_the_arena_usable() {
    let _alone = alone();
    let (callbacks, counts) = rubbish::callbacks();
    // SAFETY: the functions do what they have to.
    let arena = unsafe { Arena::builder().mapped_bytes_max(4 << 20).chunk_callbacks(callbacks) }.create().unwrap();
    let keep = filled(&arena, 100, 7);
    let blocks: Vec<_> = (0..40).map(|_| filled(&arena, 60_000, 1)).collect();
    counts.is_refusing.store(true, Ordering::Relaxed);
    blocks.into_iter().for_each(release);
    trim();
    assert!(arena.statistics().dirty_bytes > 0);
    counts.is_refusing.store(false, Ordering::Relaxed);
    trim();
    assert_eq!(arena.statistics().dirty_bytes, 0);
    counts.is_refusing.store(true, Ordering::Relaxed);
    // The slices that were decommitted cannot be had.
    while let Some(block) = arena.allocate(bytes(900_000)) {
        // They were never dirty.
        assert!(block.as_ptr().addr() != 0);
    }
    counts.is_refusing.store(false, Ordering::Relaxed);
    let block = filled(&arena, 60_000, 1);
    assert!(is_filled(keep, 100, 7));
    release(block);
    release(keep);
    core::mem::forget(arena);
}

#[test]
fn callbacks_that_are_missing_are_refused() {
    let callbacks = ChunkCallbacks { context: ptr::null_mut(), map: None, unmap: None, commit: None, decommit: None };
    // SAFETY: there are no functions.
    assert!(unsafe { Arena::builder().chunk_callbacks(callbacks) }.create().is_none());
}

#[test]
fn a_label_is_text_of_127_bytes_at_most() {
    use super::registry;

    let long = "x".repeat(300);
    let arena = Arena::builder().label(&long).create().unwrap();
    let shared = registry::find(arena.id().to_raw()).unwrap();
    assert_eq!(shared.label(), &long[..127]);
    let other = Arena::builder().label_bytes(b"a\xFFb").create().unwrap();
    assert_eq!(registry::find(other.id().to_raw()).unwrap().label(), "a label that is not text");
    assert_eq!(super::MAIN.label(), "main");
}

#[test]
fn the_main_arena_has_an_id_too() {
    // SAFETY: the main arena is never disposed of.
    let block = NonNull::new(unsafe { crate::arenas::allocate_in(main_arena(), 100) }).unwrap();
    assert_eq!(owner(block), Some(main_arena()));
    // SAFETY: a block of the main arena, which is not used any more; then null.
    unsafe {
        assert!(usable_size(block.as_ptr()) >= 100);
        free_in(main_arena(), block.as_ptr());
        free_in(main_arena(), ptr::null_mut());
    }
    assert_eq!(ArenaId::from_raw(main_arena().to_raw()), main_arena());
}

#[test]
fn a_thread_may_have_an_arena_of_its_own() {
    use crate::arenas::use_thread_local_arena;

    let work = || {
        let arena_of_new = || {
            let block = NonNull::new(allocate(200)).unwrap();
            let arena = owner(block).unwrap();
            (block, arena)
        };
        let (before, main) = arena_of_new();
        assert_eq!(main, main_arena());
        use_thread_local_arena(true);
        use_thread_local_arena(true);
        let (inside, own) = arena_of_new();
        assert_ne!(own, main);
        // SAFETY: the blocks are the test's, which uses the results only.
        let (before, inside) = unsafe { (reallocate(before.as_ptr(), 5000), reallocate(inside.as_ptr(), 5000)) };
        let (before, inside) = (NonNull::new(before).unwrap(), NonNull::new(inside).unwrap());
        assert_eq!((owner(before), owner(inside)), (Some(main), Some(own)));
        let other = arena("beside");
        let third = filled(&other, 100, 1);
        use_thread_local_arena(false);
        let (after, again) = arena_of_new();
        assert_eq!(again, main);
        let fourth = filled(&other, 100, 1);
        assert_eq!(owner(fourth), Some(other.id()));
        use_thread_local_arena(true);
        let (last, same) = arena_of_new();
        assert_eq!(same, own);
        for block in [before, inside, third, fourth, after, last] {
            release(block);
        }
        own
    };
    let first = thread::spawn(work).join().unwrap();
    let mut arenas = std::collections::HashSet::from([first]);
    for _ in 0..50 {
        arenas.insert(thread::spawn(work).join().unwrap());
    }
    // The arena of a thread that has ended is used again.
    assert_eq!(arenas.len(), 1);
}

#[test]
fn new_blocks_of_a_randomised_arena_begin_anywhere() {
    let first_block = |builder: crate::arenas::ArenaBuilder| {
        let arena = builder.create().unwrap();
        let blocks: Vec<_> = (0..4096).map(|number| filled(&arena, 16, number as u8)).collect();
        let places: std::collections::HashSet<_> = blocks.iter().map(|block| block.as_ptr().addr()).collect();
        assert_eq!(places.len(), blocks.len());
        assert!(blocks.iter().enumerate().all(|(number, &block)| is_filled(block, 16, number as u8)));
        let place = blocks[0].as_ptr().addr() % 4096;
        blocks.into_iter().for_each(release);
        let zeroed: Vec<_> = (0..4096).map(|_| arena.allocate_zeroed(bytes(16)).unwrap()).collect();
        assert!(zeroed.iter().all(|&block| is_filled(block, 16, 0)));
        zeroed.into_iter().for_each(release);
        place
    };
    // 256 blocks are in a page.
    let places: std::collections::HashSet<_> = (0..40).map(|_| first_block(Arena::builder().randomise())).collect();
    assert!(places.len() > 10, "{places:?}");
    assert_eq!(first_block(Arena::builder()), 0);
    assert_eq!(first_block(Arena::builder().flags(3)), 0);
}

#[test]
fn the_id_of_a_private_arena_is_not_told() {
    let shared = Arena::builder().label("found by all").create().unwrap();
    let private = Arena::builder().label("found by none").private().create().unwrap();
    assert_eq!(find_by_label(b"found by all"), Some(shared.id()));
    assert_eq!(find_by_label(b"found by none"), None);
    assert_eq!((find_by_label(b""), find_by_label(b"found by"), find_by_label(b"main")), (None, None, None));
    for size in [100, 200_000, 3 << 20] {
        for (arena, id) in [(&shared, shared.id().to_raw()), (&private, 0)] {
            let block = arena.allocate(bytes(size)).unwrap();
            let address = block.as_ptr();
            assert_eq!(pointer_info(address.wrapping_add(50)).arena, id);
            let mut walked = None;
            let _ = walk(|found| {
                if found.start == address.addr() {
                    walked = Some(found.arena);
                }
                ControlFlow::Continue(())
            });
            assert_eq!(walked, Some(id));
            // The owner of a block may know.
            assert_eq!(owner(block), Some(arena.id()));
            // SAFETY: a block of the arena, which nobody uses.
            unsafe { arena.free(block) };
        }
    }
    assert_eq!(
        std::format!("{}", super::registry::find(private.id().to_raw()).unwrap().name()),
        "private arena (found by none)"
    );
    drop(shared);
    assert_eq!(find_by_label(b"found by all"), None);
}

#[cfg(feature = "allocator-api2")]
#[test]
fn collections_grow_and_shrink_in_an_arena() {
    use allocator_api2::alloc::Allocator;
    use allocator_api2::vec::Vec;

    #[derive(Clone, Debug, PartialEq)]
    #[repr(align(64))]
    struct Line(u32);

    let arena = arena("collections");
    let mut numbers = Vec::new_in(&arena);
    let mut lines = Vec::new_in(&arena);
    for number in 0..500_000 {
        numbers.push(number);
        if number % 10 == 0 {
            lines.push(Line(number));
        }
    }
    lines.truncate(1000);
    lines.shrink_to_fit();
    numbers.truncate(100);
    numbers.shrink_to_fit();
    assert!(numbers.iter().enumerate().all(|(place, &number)| place as u32 == number));
    assert!(lines.iter().enumerate().all(|(place, line)| line.0 == place as u32 * 10));
    assert_eq!(lines.as_ptr().addr() % 64, 0);
    assert_eq!(owner(NonNull::from(&numbers[0]).cast()), Some(arena.id()));
    let block = Allocator::allocate(&arena, bytes(100)).unwrap().cast::<u8>();
    // SAFETY: the block has that layout, and the test uses the results only.
    unsafe {
        block.write_bytes(7, 100);
        let block = arena.grow_zeroed(block, bytes(100), bytes(200_000)).unwrap().cast::<u8>();
        assert!(is_filled(block, 100, 7) && is_filled(block.add(100), 199_900, 0));
        arena.deallocate(block, bytes(200_000));
    }
}
