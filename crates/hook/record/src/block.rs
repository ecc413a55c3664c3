//! The thread block: everything the recorder keeps for a thread, in one mapping that a forked child finds zeroed.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use heapledger_core::sys;
use heapledger_unwind::walk::Walker;
use heapledger_wire::event::WORDS_MAX;
use heapledger_wire::publish::Producer;

use crate::process::{self, Process};
use crate::{arch, connect::Refusal};
use crate::{hook, verify};

/// [`ThreadBlock::gate`] of a block that is attached, with its thread outside the recorder.
pub(crate) const GATE_OPEN: u64 = 1;
/// [`ThreadBlock::gate`] of a block without ring: fresh, or found wiped after a fork.
pub(crate) const GATE_UNATTACHED: u64 = 0;

/// The thread's TLS word when its block has been given up.
const WORD_TORN_DOWN: usize = 1;

/// How often the C library runs a thread's key destructors at the most (POSIX: at least 4; glibc and musl: 4).
const DESTRUCTOR_ROUNDS: u32 = 4;

/// A thread's state. Zeroed memory is a valid, unattached block.
#[derive(Debug)]
#[repr(C)]
pub struct ThreadBlock {
    /// [`GATE_OPEN`], [`GATE_UNATTACHED`], or, inside the recorder, the stack pointer at which it was entered: the guard.
    pub(crate) gate: u64,
    /// What the word below the guard held: the return address of the call that is being recorded.
    pub(crate) guard_word: u64,
    /// Calls until one is timed.
    pub(crate) until_measured: u64,
    /// How many defects the walker has counted when there is nothing to do after a capture: [`INSPECT_ALL`] makes
    /// something of each.
    pub(crate) defects_counted: u64,
    pub(crate) outlet: Outlet,
    /// Whether the outlet's producer has been written.
    pub(crate) has_ring: bool,
    /// Set while we call the C library: calls that come back are not the program's.
    pub(crate) is_internal: bool,
    /// Rounds of key destructors that have run.
    rounds: u32,
    /// Attempts to obtain a ring.
    pub(crate) attempts: u32,
    /// Next on the list of free blocks.
    pub(crate) next: *mut ThreadBlock,
    /// Memory for the arguments of an exec: a vfork child leaves it behind.
    pub(crate) scratch: *mut u8,
    pub(crate) scratch_length: usize,
    pub(crate) walker: Walker,
    /// What verifying stacks takes; null until then.
    pub(crate) workspace: *mut verify::Workspace,
}

/// Where events go.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Outlet {
    pub(crate) producer: MaybeUninit<Producer>,
    /// Room for an extended event.
    pub(crate) words: [u64; WORDS_MAX],
}

/// [`ThreadBlock::defects_counted`] of a thread whose every stack is looked at.
pub(crate) const INSPECT_ALL: u64 = u64::MAX;

/// What this thread's TLS word says.
pub(crate) enum Current {
    /// No block yet.
    None,
    /// No block any more.
    TornDown,
    /// The block.
    Block(NonNull<ThreadBlock>),
}

#[inline(always)]
pub(crate) fn current() -> Current {
    match arch::thread_word() {
        0 => Current::None,
        WORD_TORN_DOWN => Current::TornDown,
        word => match NonNull::new(core::ptr::with_exposed_provenance_mut(word)) {
            Some(block) => Current::Block(block),
            None => Current::None,
        },
    }
}

/// Gives this thread a block: one whose thread has ended, or a new one. The gate is closed at `sp`.
#[cold]
pub(crate) fn adopt(process: &Process, sp: u64) -> Option<NonNull<ThreadBlock>> {
    let block = process.take_free().or_else(new_block)?;
    // SAFETY: the block is ours alone now.
    let state = unsafe { &mut *block.as_ptr() };
    state.gate = sp;
    state.rounds = 0;
    state.walker.start_thread();
    arch::set_thread_word(block.as_ptr().expose_provenance());
    // From here on calls of this thread see the closed gate.
    state.is_internal = true;
    process::watch_thread_exit(block.as_ptr());
    state.is_internal = false;
    Some(block)
}

fn new_block() -> Option<NonNull<ThreadBlock>> {
    let length = size_of::<ThreadBlock>();
    let memory = sys::map_private(length).ok()?;
    sys::dont_dump(memory, length);
    process::add_block_bytes(length);
    // SAFETY: just mapped; zeroed, a block is unattached, which is what a child must find.
    unsafe { sys::wipe_on_fork(memory, length) }.ok()?;
    NonNull::new(memory.cast())
}

impl ThreadBlock {
    /// Obtains a ring where there is none, and says who writes to it from now on.
    #[cold]
    pub(crate) fn attach(&mut self, process: &Process) -> Result<(), Refusal> {
        if !self.has_ring {
            let ring = process.obtain_ring()?;
            self.outlet.producer.write(Producer::new(ring));
            self.has_ring = true;
            self.until_measured = 1;
        }
        if verify::is_wanted() {
            verify::prepare();
            self.defects_counted = INSPECT_ALL;
        }
        process.report_memory();
        hook::announce_thread(self).map_err(|_| Refusal::Gone)
    }
}

/// The key's destructor. Runs in every round, the last time gives the block up: destructors of other keys may still
/// allocate and free between the rounds.
pub(crate) unsafe extern "C" fn thread_exits(block: *mut ThreadBlock) {
    let Some(process) = Process::get() else { return };
    let Current::Block(current) = current() else { return };
    if current.as_ptr() != block {
        return;
    }
    // SAFETY: this thread's own block.
    let state = unsafe { &mut *block };
    state.rounds += 1;
    if state.rounds < DESTRUCTOR_ROUNDS {
        state.is_internal = true;
        let gate = core::mem::replace(&mut state.gate, u64::MAX);
        process::watch_thread_exit(block);
        state.gate = gate;
        state.is_internal = false;
        return;
    }
    if state.has_ring && state.gate == GATE_OPEN {
        hook::announce_thread_end(state);
    }
    state.gate = GATE_UNATTACHED;
    arch::set_thread_word(WORD_TORN_DOWN);
    process.give_free(current);
}
