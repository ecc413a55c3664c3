//! The log of this process.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use heapledger_core::{sandbox, sys};

use crate::buffer::Buffer;
use crate::destination::{self, Destination};
use crate::line::Line;
use crate::owned_lock::OwnedLock;

/// The state of the process, on a page that the kernel zeroes in a forked child. So a child begins
/// with a free lock and without a buffer, however it was made; a child that shares its parent's
/// memory (vfork) goes on with the parent's.
#[repr(C)]
struct State {
    lock: OwnedLock,
    /// The id of the process; 0 until it has been asked for.
    process: AtomicU32,
    buffer: AtomicPtr<Buffer>,
    /// True if no buffer could be made: it is not tried again.
    has_none: AtomicBool,
    /// Lines that were dropped while another was written.
    dropped: AtomicUsize,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
/// The descriptor that lines go to; `BESIDE` if there is a buffer.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(BESIDE);
const BESIDE: i32 = -1;
/// The buffer that is mapped, also if it was a parent's.
static MAPPED: AtomicPtr<Buffer> = AtomicPtr::new(ptr::null_mut());

/// Finds out where lines go. True if they go anywhere.
pub(crate) fn begin() -> bool {
    let Some(destination) = destination::find() else { return false };
    let Ok(page) = sys::map_private(size_of::<State>().next_multiple_of(4096)) else { return false };
    // SAFETY: `wipe_on_fork` requires a mapping of `map_private`, which `page` is, and users that
    // cope with zeroes: zeroes are a valid `State`, that of a process that has logged nothing.
    if unsafe { sys::wipe_on_fork(page, size_of::<State>().next_multiple_of(4096)) }.is_err() {
        return false;
    }
    if let Destination::Descriptor(fd) = destination {
        DESCRIPTOR.store(fd, Ordering::Relaxed);
    }
    STATE.store(page.cast(), Ordering::Release);
    true
}

fn state() -> Option<&'static State> {
    // SAFETY: null, or the page that `begin` has mapped, which is never unmapped. It is zeroed, or
    // has been written as a `State`: both are valid. All its fields are atomic.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// Returns the id of this process.
pub(crate) fn process() -> u32 {
    let Some(state) = state() else { return 0 };
    match state.process.load(Ordering::Relaxed) {
        // In a sandbox the kernel cannot be asked.
        0 if sandbox::is_entered() => 0,
        0 => {
            let process = sys::process_id();
            state.process.store(process, Ordering::Relaxed);
            process
        }
        process => process,
    }
}

/// Writes a line. One that is written while a signal interrupts another in the same thread is
/// dropped.
pub(crate) fn write(line: &Line) {
    let is_written = locked(|state| match DESCRIPTOR.load(Ordering::Relaxed) {
        BESIDE => {
            let is_mapped = map_buffer(state);
            // SAFETY: this thread holds the lock, and `add` does not lead to another use.
            if !is_mapped || !unsafe { with_buffer(state, |buffer| add(state, buffer, line)) } {
                count_dropped(state);
            }
        }
        // Nobody could be told of an error.
        fd => drop(Destination::Descriptor(fd).write(line.bytes())),
    });
    if !is_written && let Some(state) = state() {
        count_dropped(state);
    }
}

/// Writes what is in the buffer. What cannot be written stays there, and is found by the command.
pub(crate) fn flush() {
    locked(flush_with);
}

/// Makes the last system calls before the program enters a sandbox.
pub(crate) fn enter_sandbox() {
    let is_done = locked(|state| {
        // Lines that are written in the sandbox go there, or are counted there.
        if DESCRIPTOR.load(Ordering::Relaxed) == BESIDE {
            map_buffer(state);
        }
        flush_with(state);
        // Within the lock: no other thread is in the middle of a system call of ours.
        sandbox::enter();
    });
    if !is_done {
        sandbox::enter();
    }
}

fn flush_with(state: &State) {
    // SAFETY: the callers hold the lock, and `empty` does not lead to another use.
    unsafe { with_buffer(state, empty) };
}

/// Runs a function with the lock. False if this thread holds it already, or waited too long.
fn locked(run: impl FnOnce(&State)) -> bool {
    let Some(state) = state() else { return false };
    let is_locked = state.lock.lock();
    if is_locked {
        run(state);
        state.lock.unlock();
    }
    is_locked
}

/// Counts a line that was dropped: for the buffer, which the thread that holds the lock may be
/// using, or in that of the parent.
fn count_dropped(state: &State) {
    if !state.buffer.load(Ordering::Relaxed).is_null() {
        state.dropped.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: null, or a mapping of `Buffer::create`, which stays. This process has no buffer, so
    // it is that of its parent, which no other code of this process uses.
    match unsafe { MAPPED.load(Ordering::Relaxed).as_ref() } {
        Some(parents) => parents.count_dropped(1),
        None => drop(state.dropped.fetch_add(1, Ordering::Relaxed)),
    }
}

/// Makes the buffer of this process, if there is none. False if it cannot be made. Call with the
/// lock.
fn map_buffer(state: &State) -> bool {
    if !state.buffer.load(Ordering::Relaxed).is_null() {
        return true;
    }
    if state.has_none.load(Ordering::Relaxed) {
        return false;
    }
    let Some(buffer) = Buffer::create() else {
        state.has_none.store(true, Ordering::Relaxed);
        return false;
    };
    // The mapping of a parent stays: a signal handler that forked may have interrupted its use.
    MAPPED.store(buffer, Ordering::Relaxed);
    state.buffer.store(buffer, Ordering::Relaxed);
    true
}

/// Runs a function on the buffer of this process; false if there is none.
///
/// # Safety
///
/// The calling thread holds the lock, and `run` does not lead to this function.
unsafe fn with_buffer(state: &State, run: impl FnOnce(&mut Buffer)) -> bool {
    // SAFETY: null, or a mapping of `Buffer::create`, which is as long as a `Buffer` and stays
    // mapped in this process; any bytes are a valid `Buffer`. By this function's `# Safety` no
    // other reference to it exists while `run` runs.
    let Some(buffer) = (unsafe { state.buffer.load(Ordering::Relaxed).as_mut() }) else { return false };
    // Two atomic operations that almost no line needs.
    if state.dropped.load(Ordering::Relaxed) != 0 {
        buffer.count_dropped(state.dropped.swap(0, Ordering::Relaxed) as u64);
    }
    run(buffer);
    true
}

fn add(state: &State, buffer: &mut Buffer, line: &Line) {
    let own = ptr::from_mut(buffer);
    let is_own = || state.buffer.load(Ordering::Relaxed) == own;
    if !buffer.add(line.bytes(), is_own) {
        empty(buffer);
        if !buffer.add(line.bytes(), is_own) {
            buffer.lose();
            buffer.add(line.bytes(), is_own);
        }
    }
}

/// Writes what is in the buffer. What cannot be written stays there.
fn empty(buffer: &mut Buffer) {
    if !buffer.content().is_empty() && !sandbox::is_entered() {
        let written = Destination::Beside.write(buffer.content());
        buffer.consume(written);
    }
}
