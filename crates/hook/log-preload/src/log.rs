//! The log of this process.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use heapledger_core::{arch, sandbox, sys};

use crate::buffer::{Buffer, File};
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
    file: AtomicPtr<File>,
    /// The texts at the beginning of lines; null if there is no memory for them.
    prefixes: AtomicPtr<Prefixes>,
    /// True if no buffer could be made: it is not tried again.
    has_none: AtomicBool,
    /// Lines that were dropped before there was a buffer.
    dropped: AtomicU64,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
/// The descriptor that lines go to; `BESIDE` if there is a buffer.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(BESIDE);
const BESIDE: i32 = -1;
/// The file that is mapped, also if it was a parent's.
static MAPPED: AtomicPtr<File> = AtomicPtr::new(ptr::null_mut());

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
    let write = |line: &mut Line<'_>, prefixes: Option<&mut Prefixes>, process: u32| {
        prefixes::add(prefixes, line, process, thread);
        call.write(line);
    };
    if state.lock.with(thread, || add(state, write)) != Some(true) {
        count_dropped(state);
    }
}

/// Writes a line that does not have the address of a block, which [`Line`] may store words behind.
pub(crate) fn write_without_block(call: &impl Logged) {
    if let Some(state) = state() {
        write_whole(state, call);
    }
}

/// Writes a line of which the call is made before the lock is taken. Only behind that is it known
/// whose line it is: a signal handler may fork.
#[cold]
#[inline(never)]
fn write_whole(state: &State, call: &impl Logged) {
    let (mut bytes, thread) = ([0; LINE_MAX], arch::thread_pointer());
    let mut text = Line::new(&mut bytes);
    call.write(&mut text);
    let length = text.length();
    let text = bytes.get(..length).unwrap_or(&[]);
    let is_written = state.lock.with(thread, || match DESCRIPTOR.load(Ordering::Relaxed) {
        BESIDE => add(state, |line, prefixes, process| {
            prefixes::add(prefixes, line, process, thread);
            line.bytes(text);
        }),
        fd => {
            write_to_descriptor(fd, process(state), thread, text);
            true
        }
    });
    if is_written != Some(true) {
        count_dropped(state);
    }
}

fn write_to_descriptor(fd: i32, process: u32, thread: usize, text: &[u8]) {
    let mut bytes = [0; LINE_MAX];
    let mut line = Line::new(&mut bytes);
    prefixes::write(&mut line, process, thread);
    line.bytes(text);
    let length = line.length();
    // Nobody could be told of an error.
    Destination::Descriptor(fd).write(bytes.get(..length).unwrap_or(&[]));
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
    unsafe { with_buffer(state, state.file.load(Ordering::Relaxed), empty) };
}

/// Runs a function with the lock. False if this thread holds it already, or waited too long.
fn locked(run: impl FnOnce(&State)) -> bool {
    let Some(state) = state() else { return false };
    state.lock.with(arch::thread_pointer(), || run(state)).is_some()
}

/// Counts a line that was dropped, if this process has no buffer in that of its parent.
fn count_dropped(state: &State) {
    let own = state.file.load(Ordering::Relaxed);
    let file = if own.is_null() { MAPPED.load(Ordering::Relaxed) } else { own };
    // SAFETY: `head` asks for null or a file of `File::create`, which both have.
    match unsafe { File::head(file) } {
        Some(head) => head.count_dropped(1),
        None => drop(state.dropped.fetch_add(1, Ordering::Relaxed)),
    }
}

/// Returns the file of this process, which is made if there is none; null if it cannot be made.
/// Call with the lock.
#[inline(always)]
fn map_buffer(state: &State) -> *mut File {
    let file = state.file.load(Ordering::Relaxed);
    // Without signals: a child that a handler forks within this would take the file for its own.
    if file.is_null() { sys::without_signals(|| make_buffer(state)) } else { file }
}

#[cold]
fn make_buffer(state: &State) -> *mut File {
    if state.has_none.load(Ordering::Relaxed) {
        return ptr::null_mut();
    }
    let Some(file) = File::create() else {
        state.has_none.store(true, Ordering::Relaxed);
        return ptr::null_mut();
    };
    // SAFETY: `head` asks for a file of `File::create`.
    if let Some(head) = unsafe { File::head(file) } {
        head.count_dropped(state.dropped.swap(0, Ordering::Relaxed));
    }
    // A parent's prefixes stay mapped: a signal handler that forked may have interrupted their use.
    state.prefixes.store(Prefixes::create(), Ordering::Relaxed);
    MAPPED.store(file, Ordering::Relaxed);
    state.file.store(file, Ordering::Relaxed);
    file
}

/// A question: is the file still that of this process, or is this a child that a signal handler has
/// forked meanwhile?
#[derive(Clone, Copy)]
struct IsOwn<'a> {
    state: &'a State,
    file: *mut File,
}

impl IsOwn<'_> {
    #[inline(always)]
    fn ask(self) -> bool {
        self.state.file.load(Ordering::Relaxed) == self.file
    }
}

/// Runs a function on the buffer in a file. False if there is none.
///
/// # Safety
///
/// The file was read from `state`. The calling thread holds the lock, and `run` does not lead to
/// this function.
#[inline(always)]
unsafe fn with_buffer(state: &State, file: *mut File, run: impl FnOnce(&mut Buffer<'_>, IsOwn<'_>)) -> bool {
    // SAFETY: `open` asks for null or a file of `File::create`, which is all that a state has,
    // and for no other `Buffer` meanwhile, which this function's `# Safety` promises.
    let Some(mut buffer) = (unsafe { Buffer::open(file) }) else { return false };
    run(&mut buffer, IsOwn { state, file });
    true
}

/// Adds a line to the buffer; false if there is none. Call with the lock.
#[inline(always)]
fn add(state: &State, write: impl FnOnce(&mut Line<'_>, Option<&mut Prefixes>, u32)) -> bool {
    // Read once: in a child that is forked behind this, it is the parent's, as the line.
    let file = map_buffer(state);
    // Before `Buffer::add` finds that the buffer is still that of this process, so that they are,
    // too, though a handler forks later.
    let prefixes = state.prefixes.load(Ordering::Relaxed);
    let write = |line: &mut Line<'_>, process: u32| {
        // SAFETY: null, or a mapping of `Prefixes::create`, which is as long as they are and stays;
        // any bytes are valid. There is no other reference, since the callers of `add` hold the
        // lock, and what writes a line does not lead to `add`.
        write(line, unsafe { prefixes.as_mut() }, process);
    };
    let add = |buffer: &mut Buffer<'_>, is_own: IsOwn<'_>| {
        let Some(filled) = buffer.room().or_else(|| make_room(buffer, is_own)) else { return };
        buffer.add(filled, write, || is_own.ask());
    };
    // SAFETY: the callers hold the lock, and neither `make_room` nor what writes a line leads to
    // another use.
    unsafe { with_buffer(state, file, add) }
}

#[cold]
#[inline(never)]
fn make_room(buffer: &mut Buffer<'_>, is_own: IsOwn<'_>) -> Option<usize> {
    empty(buffer, is_own);
    sys::without_signals(|| {
        if is_own.ask() && buffer.room().is_none() {
            buffer.lose();
        }
    });
    buffer.room()
}

/// Writes what is in the buffer, if it is that of this process. What cannot be written stays there.
fn empty(buffer: &mut Buffer<'_>, is_own: IsOwn<'_>) {
    if sandbox::is_entered() {
        return;
    }
    // Asked while no signal handler can fork: what is in the buffer of a parent is the parent's.
    sys::without_signals(|| {
        if is_own.ask() && !buffer.content().is_empty() {
            let written = Destination::Beside.write(buffer.content());
            buffer.consume(written);
        }
    });
}
