//! Arenas of threads: the malloc functions of a thread allocate from one if the thread asks for it.
//!
//! Each thread has a heap of its own anyway. An arena of its own keeps its small blocks out of the
//! chunks of others, and gives it a budget for dirty pages. New huge blocks are in the main arena
//! as before; a block of the own arena that realloc makes larger than 1 MiB stays in that arena.
//! The arena of a thread that has ended goes to the next thread that asks for one.

use super::{MAIN, Settings, SharedArena, lookup, registry};
use crate::arch::thread_pointer;
use crate::heap::HeapPtr;
use crate::{arch, threads};

const LABEL: &[u8] = b"thread";

/// Lets the malloc functions of this thread allocate from an arena of the thread's own, or from the
/// main arena again. Blocks stay where they are. If there is no memory, nothing changes.
pub fn use_thread_local_arena(is_enabled: bool) {
    let mut home = arch::own();
    if home.is_empty() {
        match threads::acquire() {
            Some(own) => home = own,
            None => return,
        }
    }
    let to = match (is_enabled, home.arena().is_main()) {
        (true, true) => claimed(home).and_then(lookup::heap_in),
        (false, false) => lookup::heap_in(&MAIN),
        _ => None,
    };
    if let Some(to) = to {
        threads::move_home(home, to);
    }
}

/// Returns the arena of this thread, which may have got one before.
fn claimed(home: HeapPtr) -> Option<&'static SharedArena> {
    let thread = thread_pointer();
    let mut found = None;
    home.each_sibling(|heap| {
        if !heap.is_retired() && heap.arena().is_claimed_by(thread) {
            found = Some(heap.arena());
        }
    });
    registry::for_each(|arena| {
        if found.is_none() && arena.claim(thread) {
            found = Some(arena);
        }
    });
    found.or_else(|| {
        let mut settings = Settings::DEFAULT;
        settings.label.iter_mut().zip(LABEL).for_each(|(to, &from)| *to = from);
        let arena = registry::create(&settings)?;
        arena.claim_new(thread);
        Some(arena)
    })
}
