//! The thread block: everything the recorder keeps for a thread.

use core::mem::{MaybeUninit, offset_of};

use heapledger_core::sandbox;
use heapledger_thread::{Block, FreeList, GATE_UNATTACHED, Head};
use heapledger_unwind::context::Contexts;
use heapledger_unwind::walk::Walker;
use heapledger_wire::event::WORDS_MAX;
use heapledger_wire::publish::{Producer, WriteError};

use crate::connect::Refusal;
use crate::hook::sample::Sampling;
use crate::process::{self, Process};
use crate::{hook, verify};

/// A thread's state.
#[derive(Debug)]
#[repr(C)]
pub struct ThreadBlock {
    pub(crate) head: Head<ThreadBlock>,
    /// The number of calls until one is timed.
    pub(crate) until_measured: u64,
    /// The time at which the call began, in ticks, if it is the one that is timed.
    pub(crate) began: u64,
    /// The walker's count of incomplete stacks at which nothing is to be done after a capture: 0,
    /// or [`INSPECT_ALL`], so that every capture is inspected.
    pub(crate) incomplete_counted: u64,
    pub(crate) writer: EventWriter,
    /// True if the writer's producer has been written.
    pub(crate) has_ring: bool,
    /// True if the ring has been told which thread writes to it now.
    pub(crate) is_announced: bool,
    /// The number of attempts to obtain a ring.
    attempts: u32,
    /// Memory for the arguments of an exec: a vfork child leaves it behind.
    pub(crate) scratch: *mut u8,
    pub(crate) scratch_length: usize,
    /// The sampling state, used in a session that samples.
    pub(crate) sampling: Sampling,
    pub(crate) walker: Walker,
    pub(crate) contexts: Contexts,
    /// Memory for verifying stacks; null until the first is verified.
    pub(crate) workspace: *mut verify::Workspace,
}

/// Writes a thread's events to its ring.
///
/// # Ring invariant
///
/// `producer` is written before `has_ring` is set, and stays written until a forked child finds the
/// block zeroed. It is used only
///
/// - after a look at `has_ring`;
/// - in a block that `hook::enter` has lent, which has been announced, and so has a ring;
/// - in a block that `hook::enter_fast` has lent. Its gate was open, which takes a ring unless
///   the session samples; the exact observer, from which alone these calls come, is not installed
///   then.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct EventWriter {
    pub(crate) producer: MaybeUninit<Producer>,
    /// True if a node, module or text could not be announced: the event that refers to it must not
    /// be written.
    pub(crate) announcement_failed: bool,
    /// The position of the latest event that lost a part of its stack, plus one.
    folded_at: u64,
    /// Room for an extended event.
    pub(crate) words: [u64; WORDS_MAX],
}

/// [`ThreadBlock::incomplete_counted`] of a thread whose every stack is inspected.
pub(crate) const INSPECT_ALL: u64 = u64::MAX;

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
        Process::get().map(Process::blocks)
    }

    fn attach(&mut self, sp: u64) -> bool {
        // If the session samples, most threads record nothing for long: they get a ring when they
        // have an event.
        if process::samples() && Process::get().is_some_and(Process::is_introduced) && !sandbox::is_entered() {
            self.head.close(sp);
            return true;
        }
        self.attempts = self.attempts.wrapping_add(1);
        // A thread that gets no ring asks again after twice as many calls.
        if self.has_ring || self.attempts.is_power_of_two() {
            self.head.close(sp);
            match self.obtain_ring() {
                Ok(()) => return true,
                Err(Refusal::Permanent) => process::turn_off(),
                Err(Refusal::Temporary) => {}
            }
        }
        self.head.gate = GATE_UNATTACHED;
        false
    }

    fn recover(&mut self) -> bool {
        self.contexts.forget();
        if core::mem::take(&mut self.writer.announcement_failed) {
            self.walker.forget_announced();
        }
        self.sampling.reallocated = 0;
        if self.has_ring {
            self.producer().end();
        }
        self.has_ring
    }

    fn end(&mut self) {
        hook::announce_thread_end(self);
    }
}

impl EventWriter {
    /// Notes that the event that is being made loses a part of its stack. True if this was not
    /// noted yet.
    pub(crate) fn note_folded(&mut self, position: u64) -> bool {
        let at = position.wrapping_add(1);
        core::mem::replace(&mut self.folded_at, at) != at
    }

    /// True if the event that is being made has lost a part of its stack.
    pub(crate) fn is_folded(&self, position: u64) -> bool {
        self.folded_at == position.wrapping_add(1)
    }
}

impl ThreadBlock {
    /// The bytes of memory that every thread block takes: those before the walker, whose memory is
    /// counted separately.
    pub(crate) const BYTES_LEAST: u64 = (offset_of!(ThreadBlock, walker) as u64).next_multiple_of(4096);

    /// Obtains a ring if the thread has none, and says which thread writes to it from now on.
    #[cold]
    fn obtain_ring(&mut self) -> Result<(), Refusal> {
        let process = Process::get().ok_or(Refusal::Temporary)?;
        // In a sandbox neither a ring nor the thread's id can be obtained.
        if sandbox::is_entered() {
            return Err(Refusal::Temporary);
        }
        if !self.has_ring {
            let ring = process.obtain_ring()?;
            self.writer.producer.write(Producer::new(ring));
            self.has_ring = true;
            self.until_measured = 1;
        }
        if verify::is_wanted() {
            self.incomplete_counted = INSPECT_ALL;
        }
        process.report_memory();
        hook::announce_thread(self).map_err(|error| match error {
            WriteError::Disconnected => Refusal::Permanent,
            WriteError::NoSpace => Refusal::Temporary,
        })?;
        self.is_announced = true;
        Ok(())
    }

    /// Obtains a ring for a thread that was attached without one. If none can be had, opens the
    /// gate again.
    #[cold]
    #[inline(never)]
    pub(crate) fn obtain_deferred_ring(&mut self) -> bool {
        self.attempts = self.attempts.wrapping_add(1);
        // As in `attach`.
        if self.has_ring || self.attempts.is_power_of_two() {
            match self.obtain_ring() {
                Ok(()) => return true,
                Err(Refusal::Permanent) => process::turn_off(),
                Err(Refusal::Temporary) => {}
            }
        }
        self.head.leave();
        false
    }
}
