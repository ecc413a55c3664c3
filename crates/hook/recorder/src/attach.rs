//! How a thread comes to its block and to a ring, and leaves both.

use core::mem;

use heapledger_core::{arch, sandbox, sys};
use heapledger_thread::{self as thread, Block, FreeList, GATE_UNATTACHED, Head};
use heapledger_unwind::tree;
use heapledger_unwind::walk::Walker;
use heapledger_wire::event::Extended;
use heapledger_wire::publish::{Producer, WriteError};

use crate::block::{INSPECT_ALL, ThreadBlock};
use crate::connect::Refusal;
use crate::process::Process;
use crate::{session, verify};

/// Closes the gate of this thread's block if the gate is open and the session is in its usual mode.
/// `sp` is the stack pointer of the caller of an entry point: see [`thread::open_in_call`].
#[inline(always)]
pub(crate) fn enter_fast(sp: u64) -> Option<&'static mut ThreadBlock> {
    let block = thread::open_in_call::<ThreadBlock>(sp)?;
    // First, so that nobody takes the ring away once the page has been read: see `leave`.
    block.head.close(sp);
    if block.page().mode() != 0 {
        block.head.leave();
        return None;
    }
    Some(block)
}

/// Does the same as [`enter`] during a call of an entry point, whose caller has this stack pointer:
/// see [`thread::open_in_call`].
#[inline(always)]
pub(crate) fn enter_in_call(sp: u64) -> Option<&'static mut ThreadBlock> {
    if let Some(block) = thread::open_in_call::<ThreadBlock>(sp) {
        block.head.close(sp);
        if block.is_joined() && block.is_announced {
            return Some(block);
        }
        block.head.leave();
    }
    enter(sp)
}

/// Closes the gate of this thread's block, which then has a ring. `None` if the event must go to
/// the common ring, or nowhere.
pub(crate) fn enter(sp: u64) -> Option<&'static mut ThreadBlock> {
    let block: &mut ThreadBlock = thread::enter(sp)?;
    if block.is_joined() {
        if block.is_announced {
            return Some(block);
        }
    } else if !session::is_on() {
        block.head.leave();
        return None;
    }
    block.obtain_deferred_ring().then_some(block)
}

/// Stops recording in this thread until it can obtain a ring again: at the moment it may not do
/// what obtaining a ring takes.
pub fn detach_thread(sp: u64) {
    if let Some(block) = enter(sp) {
        block.head.gate = GATE_UNATTACHED;
    }
}

/// The number of threads that can begin in a sandbox and be recorded with stacks. Each takes a
/// ring, and a few kilobytes in the program once it is used.
const SPARE_BLOCKS: usize = 12;
/// The number of nodes of stacks that there is room for in a sandbox, beyond those before.
const SPARE_NODES: u32 = 1 << 17;

/// Prepares the process for a sandbox, in which no system call is made: it gets rings for threads
/// that begin there, and room for new stacks. To be called before it is entered.
pub fn prepare_for_sandbox(sp: u64) {
    // There may be a second filter.
    if sandbox::is_entered() {
        return;
    }
    // The thread itself needs a ring, which introduces the process.
    let Some(block) = enter(sp) else { return };
    tree::prepare(SPARE_NODES);
    if let Some(process) = Process::get().filter(|process| process.is_introduced()) {
        thread::add_spare::<ThreadBlock>(SPARE_BLOCKS, |block| block.take_ring(process).is_ok());
    }
    block.head.leave();
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

// SAFETY: integers, null pointers, closed `MaybeUninit`s and a walker, for which zeroes are valid;
// with neither ring nor open gate it is not attached. Nothing in it has a destructor.
unsafe impl Block for ThreadBlock {
    #[inline(always)]
    fn head(&mut self) -> &mut Head<ThreadBlock> {
        &mut self.head
    }

    #[inline(always)]
    fn walker(&mut self) -> &mut Walker {
        &mut self.walker
    }

    fn free_list() -> Option<&'static FreeList<ThreadBlock>> {
        Process::known().map(Process::blocks)
    }

    fn is_on() -> bool {
        session::is_on()
    }

    fn attach(&mut self, sp: u64) -> bool {
        // First, because a signal handler may jump out of all that follows: then the gate is
        // opened, and the block must have a page.
        self.leave_session();
        // If the session samples, most threads record nothing for long: they get a ring when they
        // have an event.
        if session::samples() && Process::get().is_some_and(Process::is_introduced) && !sandbox::is_entered() {
            self.head.close(sp);
            return true;
        }
        self.attempts = self.attempts.wrapping_add(1);
        // A thread that gets no ring asks again after twice as many calls.
        if self.has_ring || self.attempts.is_power_of_two() {
            self.head.close(sp);
            match self.obtain_ring() {
                Ok(()) => return true,
                Err(Refusal::Permanent) => session::turn_off(),
                Err(Refusal::Temporary) => {}
            }
        }
        self.head.gate = GATE_UNATTACHED;
        false
    }

    fn recover(&mut self) -> bool {
        self.contexts.forget();
        if mem::take(&mut self.writer.announcement_failed) {
            self.walker.forget_announced();
        }
        self.sampling.reallocated = 0;
        if self.has_ring {
            self.producer().end();
        }
        self.has_ring
    }

    fn end(&mut self) {
        self.end_of_thread(true);
    }

    fn end_elsewhere(&mut self) {
        self.end_of_thread(false);
    }
}

impl ThreadBlock {
    /// Says that the block's thread has ended. `is_own` says that it is the calling thread.
    fn end_of_thread(&mut self, is_own: bool) {
        // As in `enter`: the session may be over, and somebody about to take the ring away.
        let words = core::hint::black_box([0x6865_6170_6c65_6467_u64, 0]);
        self.head.close((&raw const words[1]).addr() as u64);
        if self.is_joined() && session::is_on() {
            announce_thread_end(self, is_own);
        }
        core::hint::black_box(&words);
    }

    /// Obtains a ring if the thread has none, and says which thread writes to it from now on.
    #[cold]
    fn obtain_ring(&mut self) -> Result<(), Refusal> {
        let process = Process::get().ok_or(Refusal::Temporary)?;
        // In a sandbox no ring can be obtained, and the thread's id may be unknown.
        if sandbox::is_entered() && (!self.has_ring || sys::thread_id() == 0) {
            return Err(Refusal::Temporary);
        }
        self.take_ring(process)?;
        if verify::is_wanted() {
            self.incomplete_counted = INSPECT_ALL;
        }
        process.report_memory();
        announce_thread(self).map_err(|error| match error {
            WriteError::Disconnected => Refusal::Permanent,
            WriteError::NoSpace => Refusal::Temporary,
        })?;
        self.is_announced = true;
        self.join_session(session::page());
        Ok(())
    }

    /// Obtains a ring if the block has none.
    fn take_ring(&mut self, process: &Process) -> Result<(), Refusal> {
        if !self.has_ring {
            let ring = process.obtain_ring()?;
            self.writer.producer.write(Producer::new(ring));
            self.has_ring = true;
            self.until_measured = 1;
        }
        Ok(())
    }

    /// Obtains a ring for a thread that was attached without one. If none can be had, opens the
    /// gate again.
    #[cold]
    #[inline(never)]
    fn obtain_deferred_ring(&mut self) -> bool {
        self.attempts = self.attempts.wrapping_add(1);
        // As in `attach`.
        if self.has_ring || self.attempts.is_power_of_two() {
            match self.obtain_ring() {
                Ok(()) => return true,
                Err(Refusal::Permanent) => session::turn_off(),
                Err(Refusal::Temporary) => {}
            }
        }
        self.head.leave();
        false
    }
}

/// Says which thread writes to the block's ring from now on.
fn announce_thread(block: &mut ThreadBlock) -> Result<(), WriteError> {
    block.begin();
    let written = block
        .write_extended(arch::ticks(), &Extended::ThreadStart { thread: sys::thread_id(), name: sys::thread_name() });
    block.producer().end();
    written
}

/// Says that the block's thread has ended. The thread may have got its name since it started; if it
/// is not the calling one, its name is not known any more.
fn announce_thread_end(block: &mut ThreadBlock, is_own: bool) {
    if !mem::take(&mut block.is_announced) {
        return;
    }
    block.begin();
    // In a sandbox the name cannot be read: the earlier one stays.
    let named = match sandbox::is_entered() || !is_own {
        true => Ok(()),
        false => block.write_extended(arch::ticks(), &Extended::ThreadName { name: sys::thread_name() }),
    };
    let written = named.and_then(|()| block.write_extended(arch::ticks(), &Extended::ThreadEnd));
    block.producer().end();
    if written == Err(WriteError::Disconnected) {
        session::turn_off();
    }
}
