//! The thread block: everything the recorder keeps for a thread.

use core::mem::{MaybeUninit, offset_of};

use heapledger_core::sandbox;
use heapledger_thread::{Block, GATE_UNATTACHED, Head, Pool};
use heapledger_unwind::context::Contexts;
use heapledger_unwind::walk::Walker;
use heapledger_wire::event::WORDS_MAX;
use heapledger_wire::publish::{Producer, Unwritten};

use crate::connect::Refusal;
use crate::hook::sample::Sampling;
use crate::process::{self, Process};
use crate::{hook, verify};

/// A thread's state.
#[derive(Debug)]
#[repr(C)]
pub struct ThreadBlock {
    pub(crate) head: Head<ThreadBlock>,
    /// Calls until one is timed.
    pub(crate) until_measured: u64,
    /// When the call began, if it is the one that is timed: in ticks.
    pub(crate) began: u64,
    /// How many defects the walker has counted when there is nothing to do after a capture: [`INSPECT_ALL`] makes
    /// something of each.
    pub(crate) defects_counted: u64,
    pub(crate) outlet: Outlet,
    /// Whether the outlet's producer has been written.
    pub(crate) has_ring: bool,
    /// Whether the ring has been told whose it is now.
    pub(crate) is_announced: bool,
    /// Attempts to obtain a ring.
    attempts: u32,
    /// Memory for the arguments of an exec: a vfork child leaves it behind.
    pub(crate) scratch: *mut u8,
    pub(crate) scratch_length: usize,
    /// In a session that samples.
    pub(crate) sampling: Sampling,
    pub(crate) walker: Walker,
    pub(crate) contexts: Contexts,
    /// What verifying stacks takes; null until then.
    pub(crate) workspace: *mut verify::Workspace,
}

/// Where events go.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Outlet {
    pub(crate) producer: MaybeUninit<Producer>,
    /// A node, module or text could not be announced: the event that refers to it must not be written.
    pub(crate) is_cut: bool,
    /// Where the latest event is that lost a part of its stack, plus one.
    folded_at: u64,
    /// Room for an extended event.
    pub(crate) words: [u64; WORDS_MAX],
}

/// [`ThreadBlock::defects_counted`] of a thread whose every stack is looked at.
pub(crate) const INSPECT_ALL: u64 = u64::MAX;

// SAFETY: integers, null pointers, closed `MaybeUninit`s and a walker, for which zeroes are valid; with neither ring
// nor open gate it is not attached. Nothing in it has a destructor.
unsafe impl Block for ThreadBlock {
    #[inline(always)]
    fn head(&mut self) -> &mut Head<ThreadBlock> {
        &mut self.head
    }

    #[inline(always)]
    fn walker(&mut self) -> &mut Walker {
        &mut self.walker
    }

    fn pool() -> Option<&'static Pool<ThreadBlock>> {
        Process::get().map(Process::blocks)
    }

    fn attach(&mut self, sp: u64) -> bool {
        // Of a sample most threads have nothing to tell for long: they get a ring when they do.
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
                Err(Refusal::Gone) => process::turn_off(),
                Err(Refusal::NotNow) => {}
            }
        }
        self.head.gate = GATE_UNATTACHED;
        false
    }

    fn recover(&mut self) -> bool {
        self.contexts.forget();
        if core::mem::take(&mut self.outlet.is_cut) {
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

impl Outlet {
    /// Notes that the event that is being made loses a part of its stack. True if that is news.
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
    /// Bytes of memory that every block takes, beside what its walker remembers: what is before
    /// that.
    pub(crate) const BYTES_LEAST: u64 = (offset_of!(ThreadBlock, walker) as u64).next_multiple_of(4096);

    /// Obtains a ring where there is none, and says who writes to it from now on.
    #[cold]
    fn obtain_ring(&mut self) -> Result<(), Refusal> {
        let process = Process::get().ok_or(Refusal::NotNow)?;
        // Neither a ring nor the thread's id is to be had.
        if sandbox::is_entered() {
            return Err(Refusal::NotNow);
        }
        if !self.has_ring {
            let ring = process.obtain_ring()?;
            self.outlet.producer.write(Producer::new(ring));
            self.has_ring = true;
            self.until_measured = 1;
        }
        if verify::is_wanted() {
            self.defects_counted = INSPECT_ALL;
        }
        process.report_memory();
        hook::announce_thread(self).map_err(|unwritten| match unwritten {
            Unwritten::Gone => Refusal::Gone,
            Unwritten::NoRoom => Refusal::NotNow,
        })?;
        self.is_announced = true;
        Ok(())
    }

    /// Obtains a ring for a thread that was attached without; where there is none to be had, the gate is opened again.
    #[cold]
    #[inline(never)]
    pub(crate) fn obtain_ring_at_last(&mut self) -> bool {
        self.attempts = self.attempts.wrapping_add(1);
        // As in `attach`.
        if self.has_ring || self.attempts.is_power_of_two() {
            match self.obtain_ring() {
                Ok(()) => return true,
                Err(Refusal::Gone) => process::turn_off(),
                Err(Refusal::NotNow) => {}
            }
        }
        self.head.leave();
        false
    }
}
