//! Memory for the stacks of threads.
//!
//! Not thread-local storage: of that, a library which is loaded while the program runs may get only
//! some hundred bytes in the threads that there are, since hooks use the initial-exec model. Slots
//! are mapped and never unmapped, because hooks keep their addresses after this library is gone;
//! the slot of a thread that has ended is given to another one.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::arch::{nr, syscall};
use heapledger_core::context::{ScopeStack, ScopeStackCell};
use heapledger_core::sys;

/// The number of slots in a chunk.
const SLOTS: usize = 31;
/// The number of slots that are checked for an ended thread, before memory is mapped.
const PROBES_MAX: usize = 4;

/// A chunk of slots. All zeroes is a valid chunk of which no slot has been taken.
#[repr(C)]
struct Chunk {
    /// The previous chunk; null for the first.
    next: AtomicPtr<Chunk>,
    /// The number of slots that have been taken. If it exceeds `SLOTS`, the chunk is full.
    taken: AtomicUsize,
    slots: [Slot; SLOTS],
}

#[repr(C)]
struct Slot {
    /// The process number in the upper half, the thread number in the lower half.
    owner: AtomicU64,
    stack: ScopeStackCell,
}

/// The newest chunk; null before the first.
static CHUNKS: AtomicPtr<Chunk> = AtomicPtr::new(ptr::null_mut());
/// The slot at which the next search for an ended thread begins.
static CURSOR: AtomicUsize = AtomicUsize::new(0);

/// Returns a stack of no scopes for the calling thread, its own until it ends. Lock-free: a signal
/// handler may interrupt it and call it.
pub(crate) fn take() -> *mut ScopeStack {
    let (process, thread) = (sys::process_id(), sys::thread_id());
    let owner = u64::from(process) << 32 | u64::from(thread);
    loop {
        let newest = CHUNKS.load(Ordering::Acquire);
        // SAFETY: null, or a chunk that `add_chunk` has published; chunks are never unmapped.
        let fresh = unsafe { newest.as_ref() }.and_then(|chunk| {
            let is_full = chunk.taken.load(Ordering::Relaxed) >= SLOTS;
            let index = if is_full { SLOTS } else { chunk.taken.fetch_add(1, Ordering::Relaxed) };
            chunk.slots.get(index)
        });
        if let Some(slot) = fresh {
            slot.owner.store(owner, Ordering::Release);
            return slot.stack.get();
        }
        if let Some(slot) = take_over(owner, newest) {
            return slot;
        }
        if !add_chunk(newest) {
            // No memory to be mapped: some from the allocator, which stays the thread's.
            return Box::leak(Box::new(ScopeStackCell::new())).get();
        }
    }
}

/// Gives the slot of an ended thread to `owner`, if one of the next few is.
fn take_over(owner: u64, newest: *const Chunk) -> Option<*mut ScopeStack> {
    let chunk = |at: *const Chunk| {
        // SAFETY: `as_ref` requires null or a live chunk that is only shared. `at` is `newest`, or
        // the link of a chunk, which `add_chunk` sets before it publishes that; chunks are never
        // unmapped.
        unsafe { at.as_ref() }
    };
    let chunks = || std::iter::successors(chunk(newest), |one| chunk(one.next.load(Ordering::Acquire)));
    let count = chunks().count() * SLOTS;
    (0..PROBES_MAX).find_map(|_| {
        let at = CURSOR.fetch_add(1, Ordering::Relaxed) % count.max(1);
        let slot = chunks().nth(at / SLOTS)?.slots.get(at % SLOTS)?;
        let before = slot.owner.load(Ordering::Acquire);
        if !has_ended(before, owner) {
            return None;
        }
        slot.owner.compare_exchange(before, owner, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let stack = slot.stack.get();
        // SAFETY: the slot is this thread's since the exchange: the thread that had it is gone.
        unsafe { (&raw mut (*stack).depth).write(0) };
        // SAFETY: `write` requires an aligned field that nobody else uses. The chunk is never
        // unmapped, and the slot is this thread's since the exchange, as for `depth` above.
        unsafe { (&raw mut (*stack).ignore).write(0) };
        Some(stack)
    })
}

/// True if a slot's owner is a thread of this process that is gone. In a forked child, the forking
/// thread goes on under another number: slots of other processes are nobody's to take.
fn has_ended(owner: u64, own: u64) -> bool {
    const ESRCH: isize = 3;
    if owner == 0 || owner >> 32 != own >> 32 {
        return false;
    }
    let (process, thread) = ((owner >> 32) as usize, owner as u32 as usize);
    // SAFETY: signal 0 asks only whether the thread is there.
    unsafe { syscall(nr::TGKILL, [process, thread, 0, 0, 0, 0]) == -ESRCH }
}

/// Maps a chunk, if `newest` still is the newest. Returns false if there is no memory.
fn add_chunk(newest: *mut Chunk) -> bool {
    let Ok(memory) = sys::map_private(size_of::<Chunk>()) else { return false };
    let chunk = memory.cast::<Chunk>();
    // SAFETY: just mapped, aligned to a page, zeroed, and nobody else's yet.
    unsafe { (*chunk).next.store(newest, Ordering::Relaxed) };
    if CHUNKS.compare_exchange(newest, chunk, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: mapped above with this length, and published to nobody.
        unsafe { sys::unmap(memory, size_of::<Chunk>()) };
    }
    true
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn threads_that_live_have_slots_of_their_own_and_ended_ones_leave_theirs() {
        const THREADS: usize = 100;
        let all_have_one = Barrier::new(THREADS);
        let slots: HashSet<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        let stack = take();
                        all_have_one.wait();
                        stack.addr()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(slots.len(), THREADS);
        // One after the other: a thread that has been joined may still be in the kernel for a
        // moment.
        let later: HashSet<usize> = (0..20 * THREADS)
            .map(|_| {
                let stack = thread::spawn(|| {
                    let stack = take();
                    // SAFETY: the fields may be read and written: `take` has just returned the
                    // stack to this thread, and only this thread uses it until it ends.
                    unsafe {
                        assert_eq!(((*stack).depth, (*stack).ignore), (0, 0));
                        (*stack).depth = 3;
                        (*stack).ignore = 1;
                    }
                    stack.addr()
                });
                stack.join().unwrap()
            })
            .collect();
        assert!(later.len() <= 2 * THREADS, "{} slots for threads that come one by one", later.len());
    }
}
