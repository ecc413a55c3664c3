use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::process::Command;
use std::string::String;
use std::vec::Vec;
use std::{env, format};

use super::super::tests::{arena, bytes, filled, release, rubbish};
use crate::arenas::Arena;
use crate::geometry::{PAGE, SLICE};
use crate::purges::{self, PurgeEvent, PurgeResult};
use crate::trim;

/// True in a process that runs this test only. Elsewhere, runs the test in such a process: budgets
/// and the queue are the process's, and other tests return the memory of all arenas at any time.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "HEAPLEDGER_TEST_ALONE";
    // Under Miri, one test runs at a time, and there are no processes.
    if cfg!(miri) || env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = Command::new(env::current_exe().unwrap());
    let output = child.args(["--exact", &format!("arena::purge::tests::{test}")]).env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("test result: ok. 1 passed"), "{text}");
    false
}

#[test]
fn budgets_follow_parameters_and_modifiers() {
    if !is_alone("budgets_follow_parameters_and_modifiers") {
        return;
    }
    let dirty = |arena: &Arena| {
        let blocks: Vec<_> = (0..200).map(|_| filled(arena, 60_000, 1)).collect();
        blocks.into_iter().for_each(release);
        arena.statistics()
    };
    let usual = arena("usual");
    assert_eq!(usual.statistics().dirty_bytes_max, (1 << 20) / 8);
    let now = dirty(&usual);
    assert!(now.dirty_bytes <= now.dirty_bytes_max && now.purges > 0, "{now:?}");

    let given = Arena::builder().dirty_bytes_max(3 << 20).dirty_overrides(2, -3).create().unwrap();
    assert_eq!(given.statistics().dirty_bytes_max, 3 << 20);
    purges::set_dirty_modifier(1);
    assert_eq!(arena("new").statistics().dirty_bytes_max, (1 << 20) / 4);
    assert_eq!(given.statistics().dirty_bytes_max, 12 << 20);
    let now = dirty(&given);
    assert!(now.dirty_bytes > 3 << 20, "{now:?}");
    // Lowered: at once.
    purges::set_dirty_modifier(-1);
    assert_eq!(arena("new").statistics().dirty_bytes_max, (1 << 20) / 16);
    let now = given.statistics();
    assert_eq!(now.dirty_bytes_max, (3 << 20) >> 3);
    assert!(now.dirty_bytes <= now.dirty_bytes_max, "{now:?}");
    purges::set_dirty_modifier(70);
    assert!(usual.statistics().dirty_bytes_max >= usize::MAX / 2);
    purges::set_dirty_modifier(-70);
    assert_eq!(usual.statistics().dirty_bytes_max, 0);
    purges::set_dirty_modifier(0);
}

#[test]
fn deferred_purges_wait_until_the_program_asks() {
    if !is_alone("deferred_purges_wait_until_the_program_asks") {
        return;
    }
    let first = arena("deferred");
    let second = arena("deferred too");
    assert!(!purges::enable_deferred_purge(true));
    let make_dirty = |arena: &Arena| {
        let blocks: Vec<_> = (0..400).map(|_| filled(arena, 60_000, 1)).collect();
        blocks.into_iter().for_each(release);
        release(arena.allocate(bytes(100)).unwrap());
        let now = arena.statistics();
        assert!(now.dirty_bytes > now.dirty_bytes_max && now.purges == 0, "{now:?}");
    };
    make_dirty(&first);
    make_dirty(&second);
    assert_eq!(purges::purge_now(true, 0, usize::MAX), PurgeResult::NeedsMore);
    assert_eq!(first.statistics().purges, 0);
    // A dirty page has just been used again: no test takes an hour.
    let again: Vec<_> = [&first, &second].map(|arena| filled(arena, 60_000, 1)).into();
    again.into_iter().for_each(release);
    // Other tests' arenas may be in the queue, which were not used again.
    let before = first.statistics();
    purges::purge_now(false, 3_600_000, usize::MAX);
    assert_eq!(first.statistics().purges, before.purges);
    let result = purges::purge_now(true, 3_600_000, usize::MAX);
    assert_eq!(result, PurgeResult::WantsLater);
    // A budget of a page is one chunk.
    purges::purge_now(false, 0, 1);
    while purges::purge_now(false, 0, 1) == PurgeResult::NeedsMore {}
    assert!(first.statistics().purges > 1 && second.statistics().purges > 1);
    for arena in [&first, &second] {
        let now = arena.statistics();
        assert!(now.dirty_bytes <= now.dirty_bytes_max / 2, "{now:?}");
    }
    // The arenas that wait are purged when deferring ends.
    let third = arena("deferred to the end");
    make_dirty(&third);
    assert!(purges::enable_deferred_purge(false));
    let now = third.statistics();
    assert!(now.dirty_bytes <= now.dirty_bytes_max, "{now:?}");
}

#[test]
fn all_and_excess_reach_every_arena() {
    if !is_alone("all_and_excess_reach_every_arena") {
        return;
    }
    let arena = Arena::builder().dirty_bytes_max(2 << 20).create().unwrap();
    let blocks: Vec<_> = (0..300).map(|_| filled(&arena, 60_000, 1)).collect();
    blocks.into_iter().for_each(release);
    trim();
    assert_eq!(arena.statistics().dirty_bytes, 0);
    purges::enable_deferred_purge(true);
    let blocks: Vec<_> = (0..300).map(|_| filled(&arena, 60_000, 1)).collect();
    blocks.into_iter().for_each(release);
    assert!(arena.statistics().dirty_bytes > 2 << 20);
    purges::purge_excess();
    let now = arena.statistics();
    assert!(now.dirty_bytes <= 2 << 20, "{now:?}");
    purges::purge_all();
    assert_eq!(arena.statistics().dirty_bytes, 0);
    purges::enable_deferred_purge(false);
}

#[test]
fn pages_decay_when_they_are_old_enough() {
    if !is_alone("pages_decay_when_they_are_old_enough") {
        return;
    }
    let arena = Arena::builder().dirty_bytes_max(64 << 20).create().unwrap();
    purges::set_dirty_decay(1000);
    let second = super::super::clock::second();
    let blocks: Vec<_> = (0..100).map(|_| filled(&arena, 60_000, 1)).collect();
    blocks.into_iter().for_each(release);
    super::decay::tick_at(1000, second + 999);
    assert!(arena.statistics().dirty_bytes > 0);
    super::decay::tick_at(1000, second + 1000);
    assert_eq!(arena.statistics().dirty_bytes, 0);
    // A thread that has asked the clock earlier does not set it back.
    super::decay::tick_at(1000, second + 999);
    assert_eq!(super::super::clock::second(), second + 1000);
    purges::set_dirty_decay(0);
}

#[test]
fn the_hook_is_told_of_purges() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    static IS_RIGHT: AtomicBool = AtomicBool::new(false);
    static WANTED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn hook(event: *const PurgeEvent) {
        // SAFETY: the allocator passes a valid event, whose strings are valid.
        let (event, label, caller) =
            unsafe { (*event, core::ffi::CStr::from_ptr((*event).label), core::ffi::CStr::from_ptr((*event).caller)) };
        if event.arena as usize == WANTED.load(Ordering::Relaxed) && caller == c"all" {
            SEEN.fetch_add(1, Ordering::Relaxed);
            let is_right = label == c"watched"
                && event.size as usize == size_of::<PurgeEvent>()
                && (1..1024).contains(&event.pages)
                && (1..=63).contains(&event.calls)
                && event.chunks == 1
                && event.start_ns > 0
                && event.start_ns <= event.end_ns;
            IS_RIGHT.store(is_right, Ordering::Relaxed);
        }
    }

    if !is_alone("the_hook_is_told_of_purges") {
        return;
    }
    let arena = Arena::builder().label("watched").dirty_bytes_max(64 << 20).create().unwrap();
    WANTED.store(arena.id().to_raw() as usize, Ordering::Relaxed);
    let blocks: Vec<_> = (0..40).map(|_| filled(&arena, 60_000, 1)).collect();
    // One stays, so that the chunk does.
    blocks[1..].iter().copied().for_each(release);
    // SAFETY: the hook allocates nothing, and is a function of this program.
    unsafe { purges::set_purge_hook(Some(hook)) };
    purges::enable_deferred_purge(true);
    // The heap's empty runs go back to the arena, but not from there to the system.
    super::super::lookup::heap_in(super::super::registry::find(arena.id().to_raw()).unwrap()).unwrap().trim();
    purges::purge_all();
    purges::enable_deferred_purge(false);
    // SAFETY: there is no function.
    unsafe { purges::set_purge_hook(None) };
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    assert!(IS_RIGHT.load(Ordering::Relaxed));
    release(blocks[0]);
}

/// Returns an arena of one chunk, of whose slices 40 are free, with one in use between them.
fn with_free_slices(source: crate::arenas::ChunkCallbacks) -> (Arena, NonNull<u8>) {
    // SAFETY: the functions do what they have to.
    let arena = unsafe { Arena::builder().mapped_bytes_max(4 << 20).dirty_bytes_max(64 << 20).chunk_callbacks(source) };
    let arena = arena.create().unwrap();
    let mut blocks: Vec<_> = (0..41).map(|_| filled(&arena, 60_000, 1)).collect();
    let keep = blocks.remove(20);
    blocks.into_iter().for_each(release);
    super::super::lookup::heap_in(super::super::registry::find(arena.id().to_raw()).unwrap()).unwrap().trim();
    (arena, keep)
}

#[test]
fn a_purge_that_is_partly_refused_counts_what_was_returned() {
    if !is_alone("a_purge_that_is_partly_refused_counts_what_was_returned") {
        return;
    }
    let (callbacks, counts) = rubbish::callbacks();
    let (arena, keep) = with_free_slices(callbacks);
    let before = arena.statistics();
    counts.calls_max.store(1, Ordering::Relaxed);
    let returned = purges::purge_all();
    let after = arena.statistics();
    assert!(after.dirty_bytes > 0 && after.returned_bytes > before.returned_bytes, "{after:?}");
    assert_eq!(returned, after.returned_bytes - before.returned_bytes);
    counts.calls_max.store(0, Ordering::Relaxed);
    release(keep);
}

#[test]
fn a_source_that_cannot_decommit_is_not_purged() {
    if !is_alone("a_source_that_cannot_decommit_is_not_purged") {
        return;
    }
    let (callbacks, _) = rubbish::callbacks();
    let (arena, keep) = with_free_slices(crate::arenas::ChunkCallbacks { decommit: None, ..callbacks });
    assert_eq!(purges::purge_all(), 0);
    assert_eq!(arena.statistics().purges, 0);
    assert!(arena.statistics().dirty_bytes >= 40 * (SLICE - PAGE));
    release(keep);
}

#[test]
fn slices_that_were_committed_in_vain_are_purged_again() {
    if !is_alone("slices_that_were_committed_in_vain_are_purged_again") {
        return;
    }
    let (callbacks, counts) = rubbish::callbacks();
    let (arena, keep) = with_free_slices(callbacks);
    trim();
    assert_eq!(arena.statistics().dirty_bytes, 0);
    counts.calls_max.store(counts.commits.load(Ordering::Relaxed) + 2, Ordering::Relaxed);
    let blocks: Vec<_> = core::iter::from_fn(|| arena.allocate(bytes(900_000))).collect();
    counts.calls_max.store(0, Ordering::Relaxed);
    assert_eq!(arena.statistics().dirty_bytes, 2 * SLICE);
    trim();
    assert_eq!(arena.statistics().dirty_bytes, 0);
    blocks.into_iter().for_each(release);
    release(keep);
}
