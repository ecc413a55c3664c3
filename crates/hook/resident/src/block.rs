//! What the ledger keeps for a thread.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use heapledger_core::context::Name;
use heapledger_core::hooks::Caller;
use heapledger_core::sample::{Bernoulli, Poisson, Random, Rate};
use heapledger_core::{NodeKind, StackId, ThreadId, arch, countdown};
use heapledger_ledger::SharedPending;
use heapledger_thread::{self as thread, Block, Current, GATE_UNATTACHED, Head, Pool};
use heapledger_unwind::Sink;
use heapledger_unwind::arch::Position;
use heapledger_unwind::context::Contexts;
use heapledger_unwind::modules::Module;
use heapledger_unwind::tree::{self, Place};
use heapledger_unwind::walk::Walker;

use crate::control::{self, Parts};
use crate::overhead::{self, MEASURED_ONE_IN};

/// Reallocations that one thread can be in at once: by signal handlers.
const PENDING_MAX: usize = 4;

/// The number of threads that are known by none: their block is gone.
pub(crate) const UNKNOWN_THREAD: ThreadId = ThreadId(0);

/// A thread's state.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ThreadBlock {
    pub(crate) head: Head<ThreadBlock>,
    /// What was left of the countdown after the thread's latest event: another value tells of allocations in between.
    left_at_event: u64,
    /// 0: not numbered yet.
    number: u32,
    until_measured: u32,
    pub(crate) sampler: MaybeUninit<Poisson>,
    /// Which blocks have their stacks taken, in the ledger that was started so many times.
    stack_trials: MaybeUninit<Bernoulli>,
    stack_trials_of: u32,
    /// The reallocations that have begun: that of the innermost signal handler last.
    pending: [MaybeUninit<Pending>; PENDING_MAX],
    pending_count: usize,
    contexts: Contexts,
    walker: Walker,
}

/// A reallocation that has begun.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) old: u64,
    pub(crate) pending: SharedPending,
}

static NUMBERS: AtomicU32 = AtomicU32::new(0);

// SAFETY: integers, null pointers, closed `MaybeUninit`s, a walker and contexts, for which zeroes are valid; the gate is
// not open. Nothing in it has a destructor.
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
        control::pool()
    }

    fn attach(&mut self, sp: u64) -> bool {
        self.head.close(sp);
        if self.number == 0 {
            self.number = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
            // Threads differ by where their blocks are, runs by when they are.
            let place = core::ptr::from_mut(self) as u64;
            self.sampler.write(Poisson::new(arch::ticks() ^ place << 20));
            self.until_measured = MEASURED_ONE_IN;
        }
        true
    }

    fn recover(&mut self) -> bool {
        self.contexts.forget();
        true
    }

    fn end(&mut self) {
        self.drop_pending(0);
        crate::LEDGER.end_thread(self.thread());
    }
}

impl ThreadBlock {
    pub(crate) fn thread(&self) -> ThreadId {
        ThreadId(self.number)
    }

    /// Opens the gate after an event that began at this time stamp.
    #[inline(always)]
    pub(crate) fn finish(&mut self, began: u64) {
        self.until_measured = self.until_measured.wrapping_sub(1);
        if self.until_measured == 0 {
            self.until_measured = MEASURED_ONE_IN;
            overhead::add(arch::ticks().saturating_sub(began));
        }
        self.head.leave();
    }

    /// The thread's latest event is what the ledger knows of.
    #[inline(always)]
    pub(crate) fn keep_up(&mut self) {
        self.left_at_event = countdown::left();
    }

    /// Before a free: whether the block was temporary depends on what the thread allocated since.
    #[inline(always)]
    pub(crate) fn tell_of_others(&mut self) {
        if self.left_at_event != countdown::left() {
            self.keep_up();
            crate::LEDGER.tell_of_others(self.thread());
        }
    }

    /// Whether the stack is taken of a block of which so many bytes may be used.
    #[inline(never)]
    fn is_stack_chosen(&mut self, usable: u64) -> bool {
        let (starts, probability) = control::stack_trials();
        if self.stack_trials_of != starts {
            self.stack_trials_of = starts;
            // The first thread's trials are those of the seed; each other one has its own.
            let [first, second] = Bernoulli::SEED;
            let other = u64::from(self.number.wrapping_sub(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let random = Random::from_state([first ^ other, second]);
            self.stack_trials.write(Bernoulli::new(random, probability));
        }
        // SAFETY: written above, since `starts` is not 0.
        unsafe { self.stack_trials.assume_init_mut() }.is_chosen(usable)
    }

    /// The stack of a call, within the context that the thread is in, as the ledger's mode wants it. `None`: the program
    /// wants the allocation ignored.
    ///
    /// # Safety
    ///
    /// `caller` is a live frame of this thread, to which the function that was called has yet to return.
    #[inline(always)]
    pub(crate) unsafe fn capture(&mut self, caller: Caller) -> Option<StackId> {
        let parts = control::parts();
        // SAFETY: passed on.
        unsafe { self.capture_parts(parts, parts.has_native() || parts.has_some_native(), caller) }
    }

    /// The same for a new block, of which so many bytes may be used: where not every block has its stack taken, and this one
    /// is not chosen, the native part is empty.
    ///
    /// # Safety
    ///
    /// As [`ThreadBlock::capture`].
    #[inline(always)]
    pub(crate) unsafe fn capture_for(&mut self, caller: Caller, usable: impl FnOnce() -> u64) -> Option<StackId> {
        let parts = control::parts();
        let has_native = parts.has_native() || parts.has_some_native() && self.is_stack_chosen(usable());
        // SAFETY: passed on.
        unsafe { self.capture_parts(parts, has_native, caller) }
    }

    /// # Safety
    ///
    /// As [`ThreadBlock::capture`].
    #[inline(always)]
    unsafe fn capture_parts(&mut self, parts: Parts, has_native: bool, caller: Caller) -> Option<StackId> {
        let mut id = StackId::ROOT;
        if has_native {
            // SAFETY: by the caller's contract the word is of this thread's stack, and the walker is this thread's.
            id = unsafe {
                let word = core::ptr::with_exposed_provenance::<u64>(caller.slot as usize);
                let position = Position { slot: caller.slot, return_address: word.read(), rbp: caller.rbp };
                self.walker.capture(position, &mut Nodes)
            };
        }
        let contexts = thread::contexts();
        if contexts.is_null() {
            return Some(id);
        }
        // SAFETY: not null, hence this thread's, by the contract of `thread::bind`; what is on it is static, by that of
        // `heapledger_core::context`.
        unsafe {
            if heapledger_unwind::context::is_ignoring(contexts) {
                return None;
            }
            Some(if parts.has_contexts() { self.contexts.leaf(contexts, id, &mut Nodes) } else { id })
        }
    }

    /// A reallocation has begun.
    pub(crate) fn push_pending(&mut self, pending: Pending) {
        if self.pending_count == PENDING_MAX {
            self.drop_pending(PENDING_MAX - 1);
        }
        if let Some(place) = self.pending.get_mut(self.pending_count) {
            place.write(pending);
            self.pending_count += 1;
        }
    }

    /// The reallocation of this block that began last; those that began later have been left by a jump.
    pub(crate) fn take_pending(&mut self, old: u64) -> Option<Pending> {
        let begun = self.pending.get(..self.pending_count)?;
        // SAFETY: written by `push_pending`, since below the count.
        let at = begun.iter().rposition(|place| unsafe { place.assume_init_ref() }.old == old)?;
        self.drop_pending(at + 1);
        self.pending_count = at;
        // SAFETY: as above; the count says that it is no longer there.
        self.pending.get(at).map(|place| unsafe { place.assume_init_read() })
    }

    /// Reallocations from this one on do not end: what became of their blocks is not known, so they are gone.
    fn drop_pending(&mut self, from: usize) {
        while self.pending_count > from {
            self.pending_count -= 1;
            if let Some(place) = self.pending.get(self.pending_count) {
                // SAFETY: as in `take_pending`.
                crate::observe::release(unsafe { place.assume_init_read() }.pending, ThreadId(self.number));
            }
        }
    }
}

/// At which rate a block of this size is in the sample, if it is, where this is the ledger's rate. A thread gets its block when it has something to
/// tell.
#[inline(always)]
pub(crate) fn sampled(size: u64, rate: Rate, sp: u64) -> Option<Rate> {
    if rate == Rate::EXACT { Some(rate) } else { draw(size, rate, sp) }
}

#[inline(never)]
fn draw(size: u64, rate: Rate, sp: u64) -> Option<Rate> {
    let logarithm = rate.logarithm().into();
    let entered = match thread::current::<ThreadBlock>() {
        Current::None => None,
        _ => thread::enter::<ThreadBlock>(sp),
    };
    let Some(state) = entered else { return countdown::draw_outside(size, logarithm) };
    // SAFETY: written by `attach`, without which the gate is never closed or open.
    let sampler = unsafe { state.sampler.assume_init_mut() };
    let drawn = countdown::draw(size, logarithm, |mean| sampler.distance(mean));
    state.head.leave();
    drawn
}

/// Announces nothing: who reads stacks back does so in the process.
pub(crate) struct Nodes;

impl Sink for Nodes {
    fn node(&mut self, _: StackId, _: StackId, _: NodeKind, _: u64) -> bool {
        true
    }

    fn module(&mut self, _: &Module<'_>) -> bool {
        // Who looks an address up asks the dynamic linker.
        true
    }
}

/// Asks the ledger something: in here calls of this thread, from signal handlers, keep away from it. `None`: this is such
/// a handler, and the ledger was interrupted.
pub fn query<R>(ask: impl FnOnce() -> R) -> Option<R> {
    with_frame(|sp| match thread::enter::<ThreadBlock>(sp) {
        Some(block) => {
            let result = ask();
            block.head.leave();
            Some(result)
        }
        None if may_wait() => Some(ask()),
        None => None,
    })
}

/// This thread's number.
pub(crate) fn thread_number() -> ThreadId {
    match thread::current::<ThreadBlock>() {
        // SAFETY: this thread's block; the field is plain and may be read at any moment.
        Current::Block(block) => ThreadId(unsafe { (*block.as_ptr()).number }),
        _ => UNKNOWN_THREAD,
    }
}

/// Whether the thread, which cannot enter its block, holds nothing of the ledger's.
pub(crate) fn may_wait() -> bool {
    match thread::current::<ThreadBlock>() {
        // SAFETY: this thread's block; the field is plain and may be read at any moment.
        Current::Block(block) => unsafe { (*block.as_ptr()).head.gate == GATE_UNATTACHED },
        _ => true,
    }
}

/// Runs something with an address of its frame, below which there is a word that does not change meanwhile: what a guard
/// asks for.
#[inline(never)]
fn with_frame<R>(run: impl FnOnce(u64) -> R) -> R {
    let words = core::hint::black_box([0x6865_6170_6c65_6467_u64, 0]);
    let result = run(&raw const words[1] as u64);
    core::hint::black_box(&words);
    result
}

impl ThreadBlock {
    /// A stack that allocates in a heap of the user's.
    pub(crate) fn in_heap(&mut self, stack: StackId, name: &'static Name) -> StackId {
        let heap = core::ptr::from_ref(name).expose_provenance() as u64;
        tree::child(Place::of(stack), NodeKind::Heap, heap, &mut Nodes).id()
    }

    /// The site of a block, within the context that this thread is in now.
    pub(crate) fn in_present_context(&mut self, stack: StackId) -> StackId {
        let contexts = thread::contexts();
        if contexts.is_null() {
            return stack;
        }
        // SAFETY: as in `capture`.
        unsafe { self.contexts.leaf(contexts, stack, &mut Nodes) }
    }
}
