//! The functions that the malloc entry points call: before a free happens, and after an allocation
//! has succeeded.
//!
//! Every function here may be called at any moment, in any thread, nested in itself by a signal. It
//! either writes an event or counts that it could not; it never fails, allocates or panics.
//!
//! Some losses are not counted. In a thread without a ring, and in a signal handler that
//! interrupted the recorder, these are changes of context, annotations (their function returns
//! false), and the announcements of forks and execs. If the recorder stands still, they are the
//! names and ends of threads. Before the program has been introduced to the collector, nothing is
//! counted.

use core::sync::atomic::{Ordering, compiler_fence};
use core::{mem, ptr};

use heapledger_core::arch;
use heapledger_core::context::{Name, ScopeStack};
use heapledger_core::hooks::Caller;
use heapledger_core::program::Obstacle;
use heapledger_core::sample::Rate;
use heapledger_core::stamp::{self, Place, Stamp};
use heapledger_core::{Api, NodeKind, StackId, sandbox, sys};
use heapledger_thread::{self as thread, Current, GATE_UNATTACHED};
use heapledger_unwind::Sink;
use heapledger_unwind::arch::FrameRegisters;
use heapledger_unwind::context;
use heapledger_unwind::modules::Module;
use heapledger_unwind::nodes::NODE_LENGTH;
use heapledger_unwind::walk::IncompleteStacks;
use heapledger_wire::event::{
    self, COMPACT_SIZE_END, Extended, Packed, ReallocOutcome, WORDS_MAX, Words, is_compact_address, units,
};
use heapledger_wire::publish::{Producer, WriteError};
use heapledger_wire::ring::MEASURED_ONE_IN;
use heapledger_wire::session::mode;

use crate::block::{EventWriter, INSPECT_ALL, ThreadBlock};
use crate::process::{self, Process};
use crate::{addresses, verify};

pub mod marks;
pub mod pools;
pub mod sample;

/// # Safety
///
/// See [`malloc`].
#[inline(always)]
unsafe fn frame_registers(caller: Caller) -> FrameRegisters {
    // SAFETY: `read` requires a readable, aligned word: by *live caller*, which this function's
    // `# Safety` requires, `slot` is that of the return address, on this thread's stack.
    let return_address = unsafe { ptr::with_exposed_provenance::<u64>(caller.slot as usize).read() };
    FrameRegisters { slot: caller.slot, return_address, rbp: caller.rbp }
}

/// Records that `malloc(size)` returned `address`.
///
/// # Safety
///
/// *Live caller*: `caller` is the live frame of this thread to which the intercepted function has
/// yet to return, and `caller.slot` is the address of the word that holds the return address. All
/// functions here that take a `caller` require this.
#[inline(always)]
pub unsafe fn malloc(address: u64, size: u64, caller: Caller) {
    let is_compact = size < COMPACT_SIZE_END && is_compact_address(address);
    // SAFETY: `record_after` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    if !is_compact || unsafe { !record_after(caller, |stack| event::malloc(0, address, size, stack)) } {
        // SAFETY: `malloc_slow` requires *live caller*; this function's `# Safety` requires the
        // same of `caller`.
        unsafe { malloc_slow(address, size, caller) };
    }
}

/// # Safety
///
/// See [`malloc`].
#[cold]
#[inline(never)]
unsafe fn malloc_slow(address: u64, size: u64, caller: Caller) {
    if size >= COMPACT_SIZE_END || !is_compact_address(address) {
        // SAFETY: `allocation` requires *live caller*; this function's `# Safety` requires the same
        // of `caller`.
        return unsafe { allocation(Api::Malloc, address, size, 0, 0, caller) };
    }
    if is_ignoring() {
        return ignored(address, caller.sp());
    }
    // SAFETY: `record_after_slow` requires *live caller*; this function's `# Safety` requires the
    // same of `caller`.
    if unsafe { !record_after_slow(caller, |stack| event::malloc(0, address, size, stack)) } {
        write_allocation_to_common_ring(Api::Malloc, address, size, 0, 0);
    }
}

/// Records that `calloc(count, each)` returned `address`.
///
/// # Safety
///
/// See [`malloc`].
#[inline(always)]
pub unsafe fn calloc(address: u64, count: u64, each: u64, caller: Caller) {
    // The call succeeded, so the product does not overflow.
    let size = count.wrapping_mul(each);
    let (Ok(count_small), Ok(each_small)) = (u32::try_from(count), u32::try_from(each)) else {
        // SAFETY: `allocation` requires *live caller*; this function's `# Safety` requires the same
        // of `caller`.
        return unsafe { allocation(Api::Calloc, address, size, 0, count, caller) };
    };
    if size >= COMPACT_SIZE_END || !is_compact_address(address) {
        // SAFETY: `allocation` requires *live caller*; this function's `# Safety` requires the same
        // of `caller`.
        return unsafe { allocation(Api::Calloc, address, size, 0, count, caller) };
    }
    // SAFETY: `record_after` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    if unsafe { !record_after(caller, |stack| event::calloc(0, address, count_small, each_small, stack)) } {
        // SAFETY: `calloc_slow` requires *live caller*; this function's `# Safety` requires the
        // same of `caller`.
        unsafe { calloc_slow(address, count_small, each_small, caller) };
    }
}

/// # Safety
///
/// See [`malloc`].
#[cold]
#[inline(never)]
unsafe fn calloc_slow(address: u64, count: u32, each: u32, caller: Caller) {
    if is_ignoring() {
        return ignored(address, caller.sp());
    }
    // SAFETY: `record_after_slow` requires *live caller*; this function's `# Safety` requires the
    // same of `caller`.
    if unsafe { !record_after_slow(caller, |stack| event::calloc(0, address, count, each, stack)) } {
        let size = u64::from(count) * u64::from(each);
        write_allocation_to_common_ring(Api::Calloc, address, size, 0, u64::from(count));
    }
}

/// Records any allocation, with all its arguments.
///
/// # Safety
///
/// See [`malloc`].
#[inline(never)]
pub unsafe fn allocation(api: Api, address: u64, size: u64, alignment: u64, count: u64, caller: Caller) {
    if is_ignoring() {
        return ignored(address, caller.sp());
    }
    if is_paused(Kind::Allocation) {
        return;
    }
    let Some(block) = enter(caller.sp()) else {
        return write_allocation_to_common_ring(api, address, size, alignment, count);
    };
    if block.skips(Kind::Allocation) {
        return;
    }
    block.begin();
    // SAFETY: `capture_slow` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    let stack = unsafe { block.capture_slow(caller) };
    let ticks = block.stamp();
    let event = Extended::Alloc { api, address, size, stack, alignment, count, usable: 0, rate: Rate::EXACT };
    let written = block.write_extended(ticks, &event);
    block.finish(written);
}

/// Records a call that should have returned a block and did not.
///
/// # Safety
///
/// See [`malloc`].
#[cold]
#[inline(never)]
pub unsafe fn failure(api: Api, size: u64, alignment: u64, count: u64, caller: Caller) {
    if is_paused(Kind::Allocation) || is_ignoring() {
        return;
    }
    let Some(block) = enter(caller.sp()) else {
        return write_to_common_ring(&Extended::Failed { api, size, stack: StackId::ROOT, alignment, count });
    };
    if block.skips(Kind::Allocation) {
        return;
    }
    block.begin();
    // SAFETY: `capture_slow` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    let stack = unsafe { block.capture_slow(caller) };
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &Extended::Failed { api, size, stack, alignment, count });
    block.finish(written);
}

/// Records that `free(address)` is about to happen. `sp` is the caller's stack pointer, here and
/// below: the word below it holds the return address, or another value that stays until the
/// function returns.
#[inline(always)]
pub fn free(address: u64, sp: u64) {
    if !is_compact_address(address) || !record_before(sp, event::free(0, address)) {
        free_slow(address, sp);
    }
}

#[cold]
#[inline(never)]
fn free_slow(address: u64, sp: u64) {
    if !is_compact_address(address) {
        free_with(Api::Free, address, 0, 0, sp);
    } else if !record_before_slow(sp, event::free(0, address)) {
        write_to_common_ring(&Extended::Free { api: Api::Free, address, size: 0, alignment: 0 });
    }
}

/// Records any free, with all its arguments, before it happens.
#[inline(never)]
pub fn free_with(api: Api, address: u64, size: u64, alignment: u64, sp: u64) {
    if is_paused(Kind::Free) {
        return;
    }
    let event = Extended::Free { api, address, size, alignment };
    let Some(block) = enter(sp) else {
        return write_to_common_ring(&event);
    };
    if block.skips(Kind::Free) {
        return;
    }
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &event);
    block.finish(written);
}

/// Records that a reallocation of `address` is about to happen.
#[inline(always)]
pub fn reallocation_begins(api: Api, address: u64, sp: u64) {
    if !is_compact_address(address) || !record_before(sp, event::realloc_begin(0, address)) {
        reallocation_begins_slow(api, address, sp);
    }
}

#[cold]
#[inline(never)]
fn reallocation_begins_slow(api: Api, address: u64, sp: u64) {
    if is_paused(Kind::Free) {
        return;
    }
    let event = Extended::ReallocBegin { api, address };
    if !is_compact_address(address) {
        let Some(block) = enter(sp) else { return write_to_common_ring(&event) };
        if block.skips(Kind::Free) {
            return;
        }
        block.begin();
        let ticks = block.stamp();
        let written = block.write_extended(ticks, &event);
        block.finish(written);
    } else if !record_before_slow(sp, event::realloc_begin(0, address)) {
        write_to_common_ring(&event);
    }
}

/// Records the end of the reallocation that this thread began last.
///
/// # Safety
///
/// See [`malloc`].
#[inline(always)]
pub unsafe fn reallocation_ends(
    api: Api,
    outcome: ReallocOutcome,
    address: u64,
    size: u64,
    count: u64,
    caller: Caller,
) {
    let is_compact = is_compact_end(api, outcome, address, size);
    // SAFETY: `record_after` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    if !is_compact || unsafe { !record_after(caller, |stack| event::realloc_end(0, address, size, stack)) } {
        // SAFETY: `reallocation_ends_slow` requires *live caller*; this function's `# Safety`
        // requires the same of `caller`.
        unsafe { reallocation_ends_slow(api, outcome, address, size, count, caller) };
    }
}

/// True if the end of a reallocation fits a compact event.
#[inline(always)]
fn is_compact_end(api: Api, outcome: ReallocOutcome, address: u64, size: u64) -> bool {
    api == Api::Realloc && outcome == ReallocOutcome::Returned && size < COMPACT_SIZE_END && is_compact_address(address)
}

/// # Safety
///
/// See [`malloc`].
#[cold]
#[inline(never)]
unsafe fn reallocation_ends_slow(
    api: Api,
    outcome: ReallocOutcome,
    address: u64,
    size: u64,
    count: u64,
    caller: Caller,
) {
    // The beginning of the reallocation is not recorded either.
    if is_paused(Kind::Free) {
        return;
    }
    let is_ignored = outcome == ReallocOutcome::Returned && is_ignoring();
    let Some(block) = enter(caller.sp()) else {
        if is_ignored {
            write_to_common_ring(&ended_as_free(api));
            return write_to_common_ring(&Extended::Ignored { address });
        }
        let stack = StackId::ROOT;
        return write_to_common_ring(&Extended::ReallocEnd {
            api,
            outcome,
            address,
            size,
            stack,
            count,
            rate: Rate::EXACT,
        });
    };
    if is_ignored {
        block.end_as_free(api);
        return ignored(address, caller.sp());
    }
    if process::page().mode() != 0 && outcome == ReallocOutcome::Returned && !block.accepts(Kind::Allocation) {
        return block.end_as_free(api);
    }
    block.begin();
    // SAFETY: `capture_slow` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    let stack = unsafe { block.capture_slow(caller) };
    let ticks = block.stamp();
    let is_compact = is_compact_end(api, outcome, address, size);
    if is_compact {
        return block.write_and_finish(ticks, &mut event::realloc_end(0, address, size, stack));
    }
    let event = Extended::ReallocEnd { api, outcome, address, size, stack, count, rate: Rate::EXACT };
    let written = block.write_extended(ticks, &event);
    block.finish(written);
}

/// True if the program wants the allocations of this thread ignored.
#[inline]
fn is_ignoring() -> bool {
    // SAFETY: the pointer is null or the calling thread's, by the contract of `thread::bind`.
    unsafe { context::is_ignoring(thread::contexts()) }
}

/// Records an allocation that the program wants ignored, so that the collector recognizes its free.
#[cold]
#[inline(never)]
fn ignored(address: u64, sp: u64) {
    if is_paused(Kind::Allocation) {
        return;
    }
    let event = Extended::Ignored { address };
    let Some(block) = enter(sp) else { return write_to_common_ring(&event) };
    if block.skips(Kind::Allocation) {
        return;
    }
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &event);
    block.finish(written);
}

/// Records that a live block now belongs to the context that the thread is in.
///
/// # Safety
///
/// See [`malloc`].
pub unsafe fn set_context(address: u64, caller: Caller) {
    // While the thread's allocations are ignored or not recorded, it has no context: the block
    // keeps its own.
    if is_paused(Kind::Allocation) || is_ignoring() || (process::samples() && !addresses::may_contain(address)) {
        return;
    }
    let Some(block) = enter(caller.sp()) else { return };
    if block.skips(Kind::Allocation) {
        return;
    }
    block.begin();
    // SAFETY: `capture_slow` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    let stack = unsafe { block.capture_slow(caller) };
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &Extended::Reattributed { address, stack });
    block.finish(written);
}

/// Records what the program declares the live block at, or around, `address` to be. True if the
/// event was written.
///
/// # Safety
///
/// See [`stamp::intern`].
pub unsafe fn stamp(address: u64, type_name: *const u8, length: u32, place: *const Place, sp: u64) -> bool {
    // As in `set_context`.
    if is_paused(Kind::Allocation) || is_ignoring() {
        return false;
    }
    let Some(block) = enter(sp) else {
        count_lost_stamp();
        return false;
    };
    if block.skips(Kind::Allocation) {
        return false;
    }
    // SAFETY: the name and the place are valid, by this function's contract, which is that of
    // `stamp::intern`.
    let stamp = unsafe { stamp::intern(type_name, length, place) };
    let is_announced = stamp.is_announced();
    // Another thread may have announced both the block and the text just now.
    block.begin();
    let ticks = block.stamp();
    let announced = if is_announced { Ok(()) } else { block.writer.announce_stamp(ticks, stamp) };
    let written = announced
        .and_then(|()| block.write_extended(ticks, &Extended::Stamped { address, stamp: ptr::from_ref(stamp) as u64 }));
    let is_written = written.is_ok();
    block.finish(written);
    is_written
}

/// Writes an annotation to the recording: see [`event::code`]. False if it could not be written.
pub fn annotate(code: u16, payload: Words<'_>, sp: u64) -> bool {
    let Some(block) = enter(sp) else { return false };
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &Extended::Annotation { code, payload });
    let is_written = written.is_ok();
    block.finish(written);
    is_written
}

/// Records that a fork is about to happen: the blocks live now are those that the child inherits.
pub fn fork_begins(sp: u64) {
    let Some(block) = enter(sp) else { return };
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &Extended::Fork { sequence: process::next_fork() });
    block.finish(written);
}

/// Records that a process is about to become the program at `path`, or that, since `since`, it has
/// started that program in the process `pid`.
pub fn exec_begins(pid: u32, obstacle: Option<Obstacle>, is_tight: bool, since: u64, path: &[u8], sp: u64) {
    let Some(process) = Process::get().filter(|process| process.is_introduced()) else { return };
    let process = process.id();
    let mut words = [0; EXEC_PATH_WORDS];
    let path = event::pack_truncated(path.iter().copied(), &mut words);
    let reason = obstacle.map_or(0, |obstacle| obstacle as u16);
    let event = Extended::Exec { process, pid, reason, is_tight, since: units(since), path };
    let Some(block) = enter(sp) else { return };
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &event);
    block.finish(written);
}

/// Records that the exec failed: the process stays what it was.
pub fn exec_failed(pid: u32, sp: u64) {
    if !Process::get().is_some_and(Process::is_introduced) {
        return;
    }
    let Some(block) = enter(sp) else { return };
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &Extended::ExecFailed { pid });
    block.finish(written);
}

/// The length of the longest path that an exec is announced with, in words.
const EXEC_PATH_WORDS: usize = 64;

/// Introduces a child to the collector. Called in the child.
pub fn child_begins(sp: u64) {
    if let Some(block) = enter(sp) {
        block.head.leave();
    }
}

/// True if the session is there to take the events of a child.
pub fn session_is_live() -> bool {
    Process::get().is_some_and(Process::is_introduced) && !process::page().is_over()
}

/// True if the recorder is known to stand still.
pub fn session_is_stalled() -> bool {
    Process::get().is_some_and(Process::is_introduced) && process::page().is_stalled()
}

/// Stops recording in this thread until it can obtain a ring again: at the moment it may not do
/// what obtaining a ring takes.
pub fn detach_thread(sp: u64) {
    if let Some(block) = enter(sp) {
        block.head.gate = GATE_UNATTACHED;
    }
}

/// Runs code that calls the C library for the recorder: its allocations are not recorded as the
/// program's.
pub fn untracked_scope(sp: u64, run: impl FnOnce()) {
    let Some(block) = enter(sp) else { return run() };
    block.head.is_untracked = true;
    run();
    block.head.is_untracked = false;
    block.head.leave();
}

/// Returns memory of this thread for the arguments of an exec, or null if there is none. The memory
/// is kept, so that a vfork child leaves nothing behind that its parent does not reuse.
pub fn scratch(length: usize) -> *mut u8 {
    let Current::Block(block) = thread::current::<ThreadBlock>() else {
        return sys::map_private(length).unwrap_or(ptr::null_mut());
    };
    // SAFETY: this thread's block; the two fields are used here only, and not from signal handlers
    // that return.
    let block = unsafe { &mut *block.as_ptr() };
    if block.scratch_length < length {
        let Ok(memory) = sys::map_private(length) else { return ptr::null_mut() };
        let old = mem::replace(&mut block.scratch, memory);
        let old_length = mem::replace(&mut block.scratch_length, length);
        if !old.is_null() {
            // A signal handler that calls `exec` from here on gets the new memory.
            compiler_fence(Ordering::Release);
            // SAFETY: `unmap` requires memory that was mapped with this length, and that nobody
            // uses. It was mapped here, and the block no longer has it.
            unsafe { sys::unmap(old, old_length) };
        }
    }
    block.scratch
}

/// Writes what [`verify`] has found, while an event is being written.
pub(crate) fn write_mismatch(block: &mut ThreadBlock, event: &Extended<'_>) {
    if block.write_extended(arch::ticks(), event) == Err(WriteError::Disconnected) {
        process::turn_off();
    }
}

/// Says which thread writes to the block's ring from now on.
pub(crate) fn announce_thread(block: &mut ThreadBlock) -> Result<(), WriteError> {
    block.begin();
    let written = block
        .write_extended(arch::ticks(), &Extended::ThreadStart { thread: sys::thread_id(), name: sys::thread_name() });
    block.producer().end();
    written
}

/// Says that the block's thread has ended. The thread may have got its name since it started.
pub(crate) fn announce_thread_end(block: &mut ThreadBlock) {
    if !mem::take(&mut block.is_announced) {
        return;
    }
    block.begin();
    // In a sandbox the name cannot be read: the earlier one stays.
    let named = match sandbox::is_entered() {
        true => Ok(()),
        false => block.write_extended(arch::ticks(), &Extended::ThreadName { name: sys::thread_name() }),
    };
    let written = named.and_then(|()| block.write_extended(arch::ticks(), &Extended::ThreadEnd));
    block.producer().end();
    if written == Err(WriteError::Disconnected) {
        process::turn_off();
    }
}

/// Records an event with a stack, after the call that it describes, on the fast path. False if the
/// fast path does not apply; then nothing has been recorded.
///
/// # Safety
///
/// See [`malloc`].
#[inline(always)]
unsafe fn record_after<const N: usize>(caller: Caller, event: impl Fn(StackId) -> [u64; N]) -> bool {
    let Some(block) = enter_fast(caller.sp()) else { return false };
    block.begin();
    // SAFETY: `capture` requires *live caller*; this function's `# Safety` requires the same of
    // `caller`.
    let Some(stack) = (unsafe { block.capture(caller) }) else {
        block.producer().end();
        block.head.leave();
        return false;
    };
    let ticks = block.stamp();
    let words = event(stack);
    if block.producer().write_fast(ticks, words) {
        block.finish_written();
    } else {
        block.write_and_finish(ticks, &mut { words });
    }
    true
}

/// Does what [`record_after`] does in all other cases. False if the thread cannot use a ring.
///
/// # Safety
///
/// See [`malloc`].
unsafe fn record_after_slow<const N: usize>(caller: Caller, event: impl Fn(StackId) -> [u64; N]) -> bool {
    if is_paused(Kind::Allocation) {
        return true;
    }
    let Some(block) = enter(caller.sp()) else { return false };
    if block.skips(Kind::Allocation) {
        return true;
    }
    block.begin();
    // SAFETY: `capture_slow` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    let mut words = event(unsafe { block.capture_slow(caller) });
    let ticks = block.stamp();
    block.write_and_finish(ticks, &mut words);
    true
}

/// Records an event before the call that it describes, on the fast path. False if the fast path
/// does not apply; then nothing has been recorded.
#[inline(always)]
fn record_before<const N: usize>(sp: u64, words: [u64; N]) -> bool {
    let Some(block) = enter_fast(sp) else { return false };
    block.begin();
    let ticks = block.stamp();
    let is_written = block.producer().write_fast(ticks, words);
    if is_written {
        block.finish_written();
    } else {
        block.producer().end();
        block.head.leave();
    }
    is_written
}

/// Does what [`record_before`] does in all other cases. False if the thread cannot use a ring.
fn record_before_slow<const N: usize>(sp: u64, mut words: [u64; N]) -> bool {
    if is_paused(Kind::Free) {
        return true;
    }
    let Some(block) = enter(sp) else { return false };
    if block.skips(Kind::Free) {
        return true;
    }
    block.begin();
    let ticks = block.stamp();
    block.write_and_finish(ticks, &mut words);
    true
}

/// Closes the gate of this thread's block if the gate is open and the session is in its usual mode.
#[inline(always)]
fn enter_fast(sp: u64) -> Option<&'static mut ThreadBlock> {
    let block = thread::open::<ThreadBlock>()?;
    if process::page().mode() != 0 {
        return None;
    }
    block.head.close(sp);
    Some(block)
}

/// Closes the gate of this thread's block, which then has a ring. `None` if the event must go to
/// the common ring, or nowhere.
fn enter(sp: u64) -> Option<&'static mut ThreadBlock> {
    let block: &mut ThreadBlock = thread::enter(sp)?;
    if block.is_announced || block.obtain_deferred_ring() {
        return Some(block);
    }
    None
}

impl ThreadBlock {
    /// True if this event is not to be recorded; the block has then been left. In the usual mode
    /// every event is recorded.
    #[inline(always)]
    fn skips(&mut self, kind: Kind) -> bool {
        process::page().mode() != 0 && self.skips_slow(kind)
    }

    #[inline(never)]
    fn skips_slow(&mut self, kind: Kind) -> bool {
        if self.accepts(kind) {
            return false;
        }
        if process::is_on() {
            self.head.leave();
        } else {
            self.head.gate = GATE_UNATTACHED;
        }
        true
    }

    /// True if an event of this kind is recorded in the session's present mode. An event for which
    /// there is no room is counted.
    #[inline(never)]
    fn accepts(&mut self, kind: Kind) -> bool {
        let taken = accepts(self.producer(), kind);
        if taken == Err(WriteError::Disconnected) {
            process::turn_off();
        }
        taken == Ok(true)
    }

    /// Ends a reallocation whose new block is not to be recorded: the old block is gone all the
    /// same.
    #[cold]
    fn end_as_free(&mut self, api: Api) {
        self.begin();
        let ticks = self.stamp();
        let written = self.write_extended(ticks, &ended_as_free(api));
        self.finish(written);
    }

    #[inline(always)]
    pub(crate) fn producer(&mut self) -> &mut Producer {
        // SAFETY: the producer has been written: callers have closed the gate with `enter`, or are
        // attaching and `has_ring` is set.
        unsafe { self.writer.producer.assume_init_mut() }
    }

    /// Marks the ring busy.
    #[inline(always)]
    fn begin(&mut self) {
        self.producer().begin();
        if self.until_measured == 1 {
            self.began = arch::ticks();
        }
    }

    /// Returns the timestamp of an event that has begun: after all earlier loads, if the process
    /// has several threads.
    ///
    /// The timestamp of a free must not precede the moment at which the thread received the
    /// pointer. That of an allocation must not precede the loads by which the allocator found the
    /// block: another thread may have freed the block just now, and out-of-order execution takes a
    /// plain timestamp up to a hundred ticks before earlier loads that miss. While there is one
    /// thread, no other can have freed it.
    ///
    /// Nobody can free a block before it is returned, so an allocation is stamped after its stack
    /// has been captured: most of the loads that the fence then waits for are done.
    #[inline(always)]
    fn stamp(&self) -> u64 {
        if process::has_one_thread() { arch::ticks() } else { arch::ticks_after_loads() }
    }

    /// Ends an event, and opens the gate unless the collector is gone. An event that was not
    /// written because the recorder stands still is counted.
    fn finish(&mut self, written: Result<(), WriteError>) {
        match written {
            Ok(()) => self.finish_written(),
            Err(WriteError::NoSpace) => {
                self.producer().ring().add_dropped();
                self.finish_written();
            }
            Err(WriteError::Disconnected) => {
                self.producer().end();
                self.head.gate = GATE_UNATTACHED;
                process::turn_off();
            }
        }
    }

    /// Succeeds if everything that the next event refers to has been announced. If not, the event
    /// must not be written, and the thread forgets what it has announced.
    fn is_announced_wholly(&mut self) -> Result<(), WriteError> {
        if !mem::take(&mut self.writer.announcement_failed) {
            return Ok(());
        }
        self.walker.forget_announced();
        self.contexts.forget();
        Err(WriteError::NoSpace)
    }

    /// Ends an event that has been written, and opens the gate.
    #[inline(always)]
    fn finish_written(&mut self) {
        self.until_measured = self.until_measured.wrapping_sub(1);
        if self.until_measured == 0 {
            self.measure();
        }
        self.producer().end();
        self.head.leave();
    }

    #[cold]
    #[inline(never)]
    fn measure(&mut self) {
        self.until_measured = MEASURED_ONE_IN;
        let spent = arch::ticks().saturating_sub(self.began);
        self.producer().ring().add_measured(spent);
    }

    /// Captures the stack, within the context that the thread is in. `None` if the program wants
    /// the allocation ignored. Call in the usual mode only.
    ///
    /// # Safety
    ///
    /// See [`malloc`].
    #[inline(always)]
    unsafe fn capture(&mut self, caller: Caller) -> Option<StackId> {
        // SAFETY: `walk` requires *live caller*; this function's `# Safety` requires the same of
        // `caller`.
        let id = unsafe { self.walk(caller) };
        let contexts = thread::contexts();
        if contexts.is_null() {
            return Some(id);
        }
        // SAFETY: `context::is_ignoring` requires null or the calling thread's own stack. This one
        // was given to `thread::bind` in this thread, and its contract says so.
        if unsafe { context::is_ignoring(contexts) } {
            return None;
        }
        Some(self.within_context(contexts, id))
    }

    /// Does the same in any mode, for an allocation that is not to be ignored.
    ///
    /// # Safety
    ///
    /// See [`malloc`].
    unsafe fn capture_slow(&mut self, caller: Caller) -> StackId {
        let takes_stacks = process::page().mode() & mode::NO_STACKS == 0;
        // SAFETY: `walk` requires *live caller*; this function's `# Safety` requires the same of
        // `caller`.
        let id = if takes_stacks { unsafe { self.walk(caller) } } else { StackId::ROOT };
        let contexts = thread::contexts();
        if contexts.is_null() { id } else { self.within_context(contexts, id) }
    }

    /// Returns the stack within the context that the thread is in.
    #[inline(never)]
    fn within_context(&mut self, contexts: *const ScopeStack, id: StackId) -> StackId {
        if process::page().is_without_contexts() {
            return id;
        }
        // SAFETY: not null, hence this thread's, by the contract of `thread::bind`; the names on it
        // are static, by the contract of `heapledger_core::context`.
        unsafe { self.contexts.leaf(contexts, id, &mut self.writer) }
    }

    /// # Safety
    ///
    /// See [`malloc`].
    #[inline(always)]
    unsafe fn walk(&mut self, caller: Caller) -> StackId {
        // SAFETY: `frame_registers` requires *live caller*, and `Walker::capture` a live frame of
        // this thread, which is the same; this function's `# Safety` requires it of `caller`. The
        // walker is this thread's.
        let id = unsafe { self.walker.capture(frame_registers(caller), &mut self.writer) };
        if self.walker.incomplete.count() != self.incomplete_counted {
            self.inspect(id);
        }
        id
    }

    /// Handles an incomplete capture, and every capture if stacks are verified.
    #[cold]
    #[inline(never)]
    fn inspect(&mut self, id: StackId) {
        let IncompleteStacks { truncated, lost } = mem::take(&mut self.walker.incomplete);
        if truncated + lost > 0 {
            count_incomplete(truncated, lost);
        }
        let position = self.producer().position();
        if self.incomplete_counted == INSPECT_ALL && !self.writer.is_folded(position) {
            // The word below the guard is the return address of the call.
            verify::check(self, self.head.guard_word, id);
        }
    }

    /// Writes a compact event that was made with the step 0, and ends it. If the step to it is too
    /// large, a sync event is written first.
    #[cold]
    #[inline(never)]
    fn write_and_finish(&mut self, ticks: u64, words: &mut [u64]) {
        let is_whole = self.is_announced_wholly();
        let producer = self.producer();
        let written = is_whole.and_then(|()| synchronise(producer, ticks)).and_then(|(before, step)| {
            if let Some(first) = words.first_mut() {
                *first |= event::with_step([0], step)[0];
            }
            // The step of an event that was not written is taken back.
            producer.write(process::page(), process::is_gone, words).inspect_err(|_| producer.last = before)
        });
        self.finish(written);
    }

    fn write_extended(&mut self, ticks: u64, event: &Extended<'_>) -> Result<(), WriteError> {
        self.is_announced_wholly()?;
        self.writer.write_extended(ticks, event)
    }
}

/// The kind of an event, for [`ThreadBlock::accepts`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Allocation,
    Free,
}

/// True if events of this kind are not recorded at the moment. Asked first if the session is not in
/// its usual mode, so that a program that is not recorded yet spends next to nothing on it.
fn is_paused(kind: Kind) -> bool {
    let Some(page) = process::known_page() else { return false };
    page.mode() & if kind == Kind::Allocation { mode::PAUSED } else { mode::IDLE } != 0
}

/// True if an event of this kind is to be written to this ring. Otherwise it has been counted, if
/// it ought to be.
///
/// While events are dropped, and while the recorder stands still, allocations leave a quarter of
/// the ring free, so that frees of recorded blocks still fit. Frees leave an eighth free, for
/// events that later ones need and that are never dropped: nodes (a deep stack has 16 KiB of them),
/// modules, threads, forks, and the ends of what has begun.
fn accepts(producer: &mut Producer, kind: Kind) -> Result<bool, WriteError> {
    if is_paused(kind) {
        return Ok(false);
    }
    let free_eighths_min = if kind == Kind::Allocation { 2 } else { 1 };
    if process::page().mode() & (mode::DROPS | mode::STALLED) == 0 || producer.has_free(free_eighths_min) {
        return Ok(true);
    }
    producer.drop_event(process::page(), process::is_gone).map(|()| false)
}

const fn ended_as_free(api: Api) -> Extended<'static> {
    let (outcome, stack) = (ReallocOutcome::Freed, StackId::ROOT);
    Extended::ReallocEnd { api, outcome, address: 0, size: 0, stack, count: 0, rate: Rate::EXACT }
}

/// Returns the form in which an event is to be written in the session's present mode, if it is.
#[cold]
fn apply_mode<'event>(
    producer: &mut Producer,
    event: Extended<'event>,
) -> Result<Option<Extended<'event>>, WriteError> {
    let kind = match event {
        Extended::Alloc { .. } | Extended::Failed { .. } | Extended::Ignored { .. } => Kind::Allocation,
        Extended::Free { .. } | Extended::ReallocBegin { .. } => Kind::Free,
        Extended::ReallocEnd { api, outcome: ReallocOutcome::Returned, .. } => {
            return Ok(Some(if accepts(producer, Kind::Allocation)? { event } else { ended_as_free(api) }));
        }
        _ => return Ok(Some(event)),
    };
    Ok(accepts(producer, kind)?.then_some(event))
}

/// Returns the time before an event at `ticks`, and the step to it. If the step is too large, a
/// sync event is written first, and the step is 0.
fn synchronise(producer: &mut Producer, ticks: u64) -> Result<(u64, u64), WriteError> {
    let before = producer.last;
    if let Some(step) = producer.step(ticks) {
        return Ok((before, step));
    }
    let now = units(ticks);
    producer.write(process::page(), process::is_gone, &event::sync(now))?;
    producer.last = now;
    Ok((now, 0))
}

fn write_extended(
    producer: &mut Producer,
    ticks: u64,
    event: &Extended<'_>,
    words: &mut [u64],
) -> Result<(), WriteError> {
    let before = producer.last;
    producer.last = producer.last.max(units(ticks));
    match event::extended(producer.last, event, words) {
        Some(words) => producer.write(process::page(), process::is_gone, words).inspect_err(|_| producer.last = before),
        // Longer than an event may be: annotations are bounded by the bridge, paths by
        // `EventWriter::module`.
        None => Ok(()),
    }
}

impl EventWriter {
    fn producer(&mut self) -> &mut Producer {
        // SAFETY: *ring invariant* (`EventWriter`): an event writer writes only while its block is
        // entered, so the producer has been written.
        unsafe { self.producer.assume_init_mut() }
    }

    /// Notes whether an announcement was written. If not, no event may refer to it.
    fn announced(&mut self, written: Result<(), WriteError>) {
        match written {
            Ok(()) => {}
            Err(WriteError::NoSpace) => self.announcement_failed = true,
            Err(WriteError::Disconnected) => process::turn_off(),
        }
    }

    /// Announces a stamp's text.
    #[cold]
    #[inline(never)]
    fn announce_stamp(&mut self, ticks: u64, stamp: &'static Stamp) -> Result<(), WriteError> {
        // As in `module`.
        let (words, packed) = self.words.split_at_mut(WORDS_MAX / 2);
        let text = event::pack_truncated(stamp.text(), packed);
        let event = Extended::Text { address: ptr::from_ref(stamp) as u64, flags: 0, category: 0, text };
        // SAFETY: *ring invariant* (`EventWriter`): the block is entered, so the producer has been
        // written. Not through `producer()`, since `words` is a part of this writer.
        write_extended(unsafe { self.producer.assume_init_mut() }, ticks, &event, words)?;
        stamp.mark_announced();
        Ok(())
    }

    fn write_extended(&mut self, ticks: u64, event: &Extended<'_>) -> Result<(), WriteError> {
        // SAFETY: *ring invariant* (`EventWriter`): the block is entered, so the producer has been
        // written. Not through `producer()`, since `words` is borrowed too.
        write_extended(unsafe { self.producer.assume_init_mut() }, ticks, event, &mut self.words)
    }
}

/// The number of nodes after which the tree takes another page.
const NODES_PER_PAGE: u64 = 4096 / NODE_LENGTH;

/// Announces nodes and modules in the thread's ring.
impl Sink for EventWriter {
    #[inline(never)]
    fn node(&mut self, id: StackId, parent: StackId, kind: NodeKind, address: u64) -> bool {
        if self.announcement_failed {
            return false;
        }
        let (producer, words) = (self.producer(), event::node(id, parent, kind, address));
        if !producer.write_unstamped_fast(words) {
            let written = producer.write(process::page(), process::is_gone, &words);
            self.announced(written);
        }
        if u64::from(id.0) % NODES_PER_PAGE == 0
            && let Some(process) = Process::get()
        {
            process.report_memory();
        }
        !self.announcement_failed
    }

    #[cold]
    #[inline(never)]
    fn folded(&mut self) {
        let position = self.producer().position();
        if self.note_folded(position)
            && let Some(counters) = Process::get().and_then(Process::counters)
        {
            counters.stacks_folded.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn text(&mut self, name: &'static Name) {
        let bytes = name.bytes();
        // As in `module`.
        let (words, packed) = self.words.split_at_mut(WORDS_MAX / 2);
        let Some(count) = event::pack(bytes, packed) else { return };
        // SAFETY: `as_ref` requires null or a live `Category`: by the contract of `Name`,
        // everything that it refers to is static. The only field that changes is atomic.
        let category = unsafe { name.category.as_ref() };
        let event = Extended::Text {
            address: ptr::from_ref(name) as u64,
            flags: name.flags,
            category: category.map_or(0, |category| ptr::from_ref(&category.name) as u64),
            text: Packed { words: packed.get(..count).unwrap_or(&[]), length: bytes.len() },
        };
        // SAFETY: *ring invariant* (`EventWriter`): the block is entered, so the producer has been
        // written. Not through `producer()`, since `words` is a part of this writer.
        let producer = unsafe { self.producer.assume_init_mut() };
        let written = write_extended(producer, arch::ticks(), &event, words);
        self.announced(written);
    }

    #[cold]
    #[inline(never)]
    fn module(&mut self, module: &Module<'_>) -> bool {
        if self.announcement_failed {
            return false;
        }
        // The upper half of the buffer holds the packed bytes while the event is put together in
        // the lower.
        let (words, packed) = self.words.split_at_mut(WORDS_MAX / 2 + 16);
        let (build_words, path_words) = packed.split_at_mut(8);
        let build_id = module.build_id.get(..module.build_id.len().min(64)).unwrap_or(&[]);
        let path = module.path.get(..module.path.len().min(3_800)).unwrap_or(&[]);
        let (Some(build_count), Some(path_count)) = (event::pack(build_id, build_words), event::pack(path, path_words))
        else {
            return true;
        };
        let event = Extended::Module {
            start: module.start,
            end: module.end,
            bias: module.bias,
            epoch: module.epoch,
            build_id: Packed { words: build_words.get(..build_count).unwrap_or(&[]), length: build_id.len() },
            path: Packed { words: path_words.get(..path_count).unwrap_or(&[]), length: path.len() },
        };
        // SAFETY: *ring invariant* (`EventWriter`): the block is entered, so the producer has been
        // written. Not through `producer()`, since `words` is a part of this writer.
        let producer = unsafe { self.producer.assume_init_mut() };
        let written = write_extended(producer, arch::ticks(), &event, words);
        self.announced(written);
        !self.announcement_failed
    }
}

#[cold]
fn write_allocation_to_common_ring(api: Api, address: u64, size: u64, alignment: u64, count: u64) {
    let stack = StackId::ROOT;
    write_to_common_ring(&Extended::Alloc {
        api,
        address,
        size,
        stack,
        alignment,
        count,
        usable: 0,
        rate: Rate::EXACT,
    });
}

/// Writes an event of a thread that cannot use a ring of its own to the common ring, without its
/// stack.
#[cold]
#[inline(never)]
fn write_to_common_ring(event: &Extended<'_>) {
    let Some(process) = Process::get() else { return };
    let is_nested = match thread::current::<ThreadBlock>() {
        Current::Block(block) => {
            // SAFETY: this thread's block; the two fields are plain and may be read at any moment.
            let (gate, is_untracked) = unsafe { ((*block.as_ptr()).head.gate, (*block.as_ptr()).head.is_untracked) };
            if is_untracked {
                return;
            }
            gate != GATE_UNATTACHED
        }
        _ => false,
    };
    // In a sandbox the kernel cannot be asked which thread this is.
    if sandbox::is_entered() {
        return count_lost(process, is_nested);
    }
    let written = process.with_common(!is_nested, |producer| {
        let mut words = [0_u64; 16];
        let Some(event) = apply_mode(producer, *event)? else { return Ok(false) };
        producer.begin();
        // Under the lock and after `begin`: a stamp taken before could be behind the collector by
        // now.
        let ticks = arch::ticks_after_loads();
        let behalf = Extended::OnBehalf { thread: sys::thread_id() };
        let written = write_extended(producer, ticks, &behalf, &mut words)
            .and_then(|()| write_extended(producer, ticks, &event, &mut words));
        producer.end();
        written.map(|()| lacks_stack(&event))
    });
    match written {
        Some(Ok(false)) => {}
        Some(Ok(true)) => count_missing_stack(process),
        Some(Err(WriteError::Disconnected)) => process::turn_off(),
        Some(Err(WriteError::NoSpace)) => count_lost(process, is_nested),
        None => count_lost(process, is_nested),
    }
}

/// True if the event of a thread without a ring would have a stack if the thread had one.
fn lacks_stack(event: &Extended<'_>) -> bool {
    use ReallocOutcome::Freed;
    let has_stack = match event {
        Extended::Alloc { .. } | Extended::Failed { .. } => true,
        Extended::ReallocEnd { outcome, .. } => *outcome != Freed,
        _ => false,
    };
    has_stack && process::page().mode() & mode::NO_STACKS == 0
}

/// Counts a stamp from a thread that cannot use a ring of its own: without its text it would say
/// nothing.
#[cold]
fn count_lost_stamp() {
    let is_nested = match thread::current::<ThreadBlock>() {
        // SAFETY: the block is this thread's, and is never unmapped. `gate` is an integer that only
        // this thread writes, so it may be read at any moment.
        Current::Block(block) => unsafe { (*block.as_ptr()).head.gate != GATE_UNATTACHED },
        _ => false,
    };
    if let Some(process) = Process::get() {
        count_lost(process, is_nested);
    }
}

#[cold]
fn count_lost(process: &Process, is_nested: bool) {
    if let Some(counters) = process.counters() {
        let counter = if is_nested { &counters.lost_nested } else { &counters.lost_no_ring };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cold]
fn count_missing_stack(process: &Process) {
    if let Some(counters) = process.counters() {
        counters.stacks_missing.fetch_add(1, Ordering::Relaxed);
    }
}

#[cold]
fn count_incomplete(truncated: u64, lost: u64) {
    if let Some(counters) = Process::get().and_then(Process::counters) {
        counters.stacks_truncated.fetch_add(truncated, Ordering::Relaxed);
        counters.stacks_dropped.fetch_add(lost, Ordering::Relaxed);
    }
}
