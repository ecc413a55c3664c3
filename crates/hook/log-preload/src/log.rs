//! The log of this process.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use heapledger_core::{arch, sandbox, sys};

use crate::buffer::Buffer;
use crate::destination::{self, Destination};
use crate::fields;
use crate::line::{LINE_MAX, Line};
use crate::owned_lock::OwnedLock;
use crate::prefixes::{self, Prefixes};

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

/// Returns the id of this process; 0 if it is unknown, in a sandbox.
fn process(state: &State) -> u32 {
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

/// A call that is logged.
pub(crate) trait Logged {
    /// Writes what is behind the process and the thread, with the end of the line.
    fn write(&self, line: &mut Line<'_>);
}

/// Writes a line. One that is written while a signal interrupts another in the same thread is
/// dropped.
#[inline(always)]
pub(crate) fn write(call: impl Logged) {
    let Some(state) = state() else { return };
    // Fields ask the program's allocator, and the clock: not within the lock.
    if DESCRIPTOR.load(Ordering::Relaxed) != BESIDE || fields::any() {
        return write_whole(state, &call);
    }
    let thread = arch::thread_pointer();
    let write = |line: &mut Line<'_>, prefixes: &mut Prefixes, process: u32| {
        prefixes.add(line, process, thread);
        call.write(line);
    };
    if state.lock.with(thread, || add(state, write)) != Some(true) {
        count_dropped(state);
    }
}

/// Writes a line that is made before the lock is taken.
#[cold]
#[inline(never)]
fn write_whole(state: &State, call: &impl Logged) {
    let (mut bytes, thread) = ([0; LINE_MAX], arch::thread_pointer());
    let mut line = Line::new(&mut bytes);
    prefixes::write(&mut line, process(state), thread);
    call.write(&mut line);
    let length = line.length();
    let is_written = state.lock.with(thread, || match DESCRIPTOR.load(Ordering::Relaxed) {
        BESIDE => add(state, |line, _, _| line.add(bytes, length)),
        fd => {
            // Nobody could be told of an error.
            Destination::Descriptor(fd).write(bytes.get(..length).unwrap_or(&[]));
            true
        }
    });
    if is_written != Some(true) {
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
    state.lock.with(arch::thread_pointer(), || run(state)).is_some()
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
#[inline(always)]
fn map_buffer(state: &State) -> bool {
    !state.buffer.load(Ordering::Relaxed).is_null() || make_buffer(state)
}

#[cold]
fn make_buffer(state: &State) -> bool {
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
#[inline(always)]
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

/// Adds a line to the buffer; false if there is none. Call with the lock.
#[inline(always)]
fn add(state: &State, write: impl FnOnce(&mut Line<'_>, &mut Prefixes, u32)) -> bool {
    let add = |buffer: &mut Buffer| {
        let own = ptr::from_mut(buffer);
        if !buffer.has_room() {
            make_room(buffer);
        }
        buffer.add(write, || state.buffer.load(Ordering::Relaxed) == own);
    };
    // SAFETY: the callers hold the lock, and neither `make_room` nor what writes a line leads to
    // another use.
    map_buffer(state) && unsafe { with_buffer(state, add) }
}

#[cold]
fn make_room(buffer: &mut Buffer) {
    empty(buffer);
    if !buffer.has_room() {
        buffer.lose();
    }
}

/// Writes what is in the buffer. What cannot be written stays there.
fn empty(buffer: &mut Buffer) {
    if !buffer.content().is_empty() && !sandbox::is_entered() {
        let written = Destination::Beside.write(buffer.content());
        buffer.consume(written);
    }
}
