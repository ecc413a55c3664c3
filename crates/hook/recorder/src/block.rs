//! The thread block: everything the recorder keeps for a thread.

use core::mem::{self, MaybeUninit, offset_of};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::{Api, arch};
use heapledger_thread::{self as thread, Current, GATE_OPEN, GATE_UNATTACHED, Head};
use heapledger_unwind::context::Contexts;
use heapledger_unwind::walk::Walker;
use heapledger_wire::event::{self, Extended, WORDS_MAX};
use heapledger_wire::publish::{Producer, WriteError};
use heapledger_wire::ring::MEASURED_ONE_IN;
use heapledger_wire::session::SessionPage;

use crate::accept::{Kind, accepts, ended_as_free};
use crate::emit::{synchronise, write_extended};
use crate::sampling::Sampling;
use crate::verify::workspace::Workspace;
use crate::{connect, session, threads};

/// A thread's state.
#[derive(Debug)]
#[repr(C)]
pub struct ThreadBlock {
    pub(crate) head: Head<ThreadBlock>,
    /// The session page while the block's ring belongs to a session, else [`NO_SESSION`]; null in a
    /// block that was never attached. Set to [`NO_SESSION`] by other threads: see
    /// [`leave`](crate::leave).
    page: AtomicPtr<SessionPage>,
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
    pub(crate) attempts: u32,
    /// Memory for the arguments of an exec: a vfork child leaves it behind.
    pub(crate) scratch: *mut u8,
    pub(crate) scratch_length: usize,
    /// The sampling state, used in a session that samples.
    pub(crate) sampling: Sampling,
    pub(crate) walker: Walker,
    pub(crate) contexts: Contexts,
    /// Memory for verifying stacks; null until the first is verified.
    pub(crate) workspace: *mut Workspace,
}

/// Writes a thread's events to its ring.
///
/// # Ring invariant
///
/// `producer` is written before `has_ring` is set, and stays written until `ThreadBlock::reset`
/// takes the ring away, or a forked child finds the block zeroed: `has_ring` is false then. It is
/// used only
///
/// - after a look at `has_ring`;
/// - in a block that `attach::enter` has lent, which has been announced, and so has a ring;
/// - in a block that `attach::enter_fast` has lent. Its gate was open, which takes a ring unless
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

/// The page of a block that belongs to no session.
static NO_SESSION: SessionPage = SessionPage::none();

impl ThreadBlock {
    /// Returns the page of the session to which the block's ring belongs. Call only if the gate has
    /// been open: then the block has been attached.
    #[inline(always)]
    pub(crate) fn page(&self) -> &'static SessionPage {
        // SAFETY: the block has been attached, so the pointer is not null: it is that of
        // `NO_SESSION`, or of the session page, which stays mapped. Its fields are atomic.
        unsafe { &*self.page.load(Ordering::Relaxed) }
    }

    /// True if the block has a ring of the session, which its thread may use as long as the gate is
    /// closed.
    pub(crate) fn is_joined(&self) -> bool {
        let page = self.page.load(Ordering::Relaxed);
        !page.is_null() && !ptr::eq(page, &NO_SESSION)
    }

    /// Makes the block's ring one of a session.
    pub(crate) fn join_session(&self, page: &'static SessionPage) {
        self.page.store(ptr::from_ref(page).cast_mut(), Ordering::Relaxed);
    }

    /// Makes the block belong to no session. Called by any thread.
    pub(crate) fn leave_session(&self) {
        self.page.store(ptr::from_ref(&NO_SESSION).cast_mut(), Ordering::SeqCst);
    }

    /// Takes the ring away, and forgets all that was announced there.
    ///
    /// # Safety
    ///
    /// The block belongs to no session, and its thread is not inside the hook: until the process
    /// has joined another session, it touches nothing but the head, the page, the source of
    /// distances in `sampling`, and the bounds of the stack in `walker`, which stay.
    pub(crate) unsafe fn reset(&mut self) {
        if mem::take(&mut self.has_ring) {
            // SAFETY: *ring invariant*: `has_ring` was set. `unmap_ring` requires that nobody uses
            // the ring: by this function's `# Safety` its only producer is gone.
            unsafe { connect::unmap_ring(*self.writer.producer.assume_init_ref().ring()) };
        }
        self.is_announced = false;
        self.attempts = 0;
        self.incomplete_counted = 0;
        self.writer.announcement_failed = false;
        self.sampling.reallocated = 0;
        self.walker.forget_announced();
        self.contexts.forget();
    }

    /// The bytes of memory that every thread block takes: those before the walker, whose memory is
    /// counted separately.
    pub(crate) const BYTES_LEAST: u64 = (offset_of!(ThreadBlock, walker) as u64).next_multiple_of(4096);

    /// True if this event is not to be recorded; the block has then been left. In the usual mode
    /// every event is recorded.
    #[inline(always)]
    pub(crate) fn skips(&mut self, kind: Kind) -> bool {
        session::page().mode() != 0 && self.skips_slow(kind)
    }

    #[inline(never)]
    fn skips_slow(&mut self, kind: Kind) -> bool {
        if self.accepts(kind) {
            return false;
        }
        if session::is_on() {
            self.head.leave();
        } else {
            self.head.gate = GATE_UNATTACHED;
        }
        true
    }

    /// True if an event of this kind is recorded in the session's present mode. An event for which
    /// there is no room is counted.
    #[inline(never)]
    pub(crate) fn accepts(&mut self, kind: Kind) -> bool {
        let taken = accepts(self.producer(), kind);
        if taken == Err(WriteError::Disconnected) {
            session::turn_off();
        }
        taken == Ok(true)
    }

    /// Ends a reallocation whose new block is not to be recorded: the old block is gone all the
    /// same.
    #[cold]
    pub(crate) fn end_as_free(&mut self, api: Api) {
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
    pub(crate) fn begin(&mut self) {
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
    pub(crate) fn stamp(&self) -> u64 {
        if threads::has_one_thread() { arch::ticks() } else { arch::ticks_after_loads() }
    }

    /// Ends an event, and opens the gate unless the collector is gone. An event that was not
    /// written because the recorder stands still is counted.
    pub(crate) fn finish(&mut self, written: Result<(), WriteError>) {
        match written {
            Ok(()) => self.finish_written(),
            Err(WriteError::NoSpace) => {
                self.producer().ring().add_lost_full();
                self.finish_written();
            }
            Err(WriteError::Disconnected) => {
                self.producer().end();
                self.head.gate = GATE_UNATTACHED;
                session::turn_off();
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
    pub(crate) fn finish_written(&mut self) {
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

    /// Writes a compact event that was made with the step 0, and ends it. If the step to it is too
    /// large, a sync event is written first.
    #[cold]
    #[inline(never)]
    pub(crate) fn write_and_finish(&mut self, ticks: u64, words: &mut [u64]) {
        let is_whole = self.is_announced_wholly();
        let producer = self.producer();
        let written = is_whole.and_then(|()| synchronise(producer, ticks)).and_then(|(before, step)| {
            if let Some(first) = words.first_mut() {
                *first |= event::with_step([0], step)[0];
            }
            // The step of an event that was not written is taken back.
            producer.write(session::page(), session::is_gone, words).inspect_err(|_| producer.last = before)
        });
        self.finish(written);
    }

    pub(crate) fn write_extended(&mut self, ticks: u64, event: &Extended<'_>) -> Result<(), WriteError> {
        self.is_announced_wholly()?;
        self.writer.write_extended(ticks, event)
    }
}

impl EventWriter {
    /// Notes that the event that is being made loses a part of its stack. True if this was not
    /// noted yet.
    pub(crate) fn note_folded(&mut self, position: u64) -> bool {
        let at = position.wrapping_add(1);
        mem::replace(&mut self.folded_at, at) != at
    }

    /// True if the event that is being made has lost a part of its stack.
    pub(crate) fn is_folded(&self, position: u64) -> bool {
        self.folded_at == position.wrapping_add(1)
    }

    fn write_extended(&mut self, ticks: u64, event: &Extended<'_>) -> Result<(), WriteError> {
        // SAFETY: *ring invariant* (`EventWriter`): the block is entered, so the producer has been
        // written. Not through `producer()`, since `words` is borrowed too.
        write_extended(unsafe { self.producer.assume_init_mut() }, ticks, event, &mut self.words)
    }
}

/// This thread's block, as it is at any moment.
pub(crate) struct BlockState {
    /// True unless the block is fresh, or was found wiped after a fork.
    pub(crate) is_attached: bool,
    /// True while the thread is inside the hook.
    pub(crate) is_closed: bool,
    /// True while the C library is called: calls that come back are not the program's.
    pub(crate) is_untracked: bool,
}

/// True if a thread is inside the hook with this block.
///
/// # Safety
///
/// `block` is a block that stays mapped.
pub(crate) unsafe fn is_inside(block: NonNull<ThreadBlock>) -> bool {
    // SAFETY: the block stays mapped by this function's `# Safety`; its thread writes the field
    // whole, and any value that was there will do.
    let gate = unsafe { (&raw const (*block.as_ptr()).head.gate).read_volatile() };
    gate != GATE_UNATTACHED && gate != GATE_OPEN
}

/// Makes a block of any thread belong to no session.
///
/// # Safety
///
/// `block` is a block that stays mapped.
pub(crate) unsafe fn leave_session(block: NonNull<ThreadBlock>) {
    // SAFETY: the block stays mapped by this function's `# Safety`; the field is atomic, and no
    // reference to another one is made.
    let page = unsafe { &(*block.as_ptr()).page };
    page.store(ptr::from_ref(&NO_SESSION).cast_mut(), Ordering::SeqCst);
}

/// Returns the state of this thread's block, without entering it; `None` if the thread has none.
pub(crate) fn state() -> Option<BlockState> {
    let Current::Block(block) = thread::current::<ThreadBlock>() else { return None };
    // SAFETY: this thread's block, which is never unmapped; the two fields are plain and may be
    // read at any moment.
    let (gate, is_untracked) = unsafe { ((*block.as_ptr()).head.gate, (*block.as_ptr()).head.is_untracked) };
    let is_attached = gate != GATE_UNATTACHED;
    Some(BlockState { is_attached, is_closed: is_attached && gate != GATE_OPEN, is_untracked })
}
