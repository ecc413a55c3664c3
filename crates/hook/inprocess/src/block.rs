//! The thread block: the state that the ledger keeps for a thread.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use heapledger_core::context::Name;
use heapledger_core::hooks::Caller;
use heapledger_core::sample::{Bernoulli, Poisson, Random, Rate};
use heapledger_core::{NodeKind, StackId, ThreadId, arch, countdown};
use heapledger_thread::{self as thread, Block, Current, FreeList, GATE_UNATTACHED, Head};
use heapledger_unwind::Sink;
use heapledger_unwind::arch::FrameRegisters;
use heapledger_unwind::context::Contexts;
use heapledger_unwind::modules::Module;
use heapledger_unwind::nodes::NodeRef;
use heapledger_unwind::tree;
use heapledger_unwind::walk::Walker;

use crate::mode::{self, Parts};
use crate::pending::{self, Pending};
use crate::timing::{self, MEASURED_ONE_IN};

/// The number of reallocations that one thread can be in at once, because of signal handlers.
const PENDING_MAX: usize = 4;

/// The number of all threads whose block is gone.
pub(crate) const UNKNOWN_THREAD: ThreadId = ThreadId(0);

/// A thread's state.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ThreadBlock {
    pub(crate) head: Head<ThreadBlock>,
    /// The bytes left of the countdown after the thread's latest event. Another value now means
    /// that there were allocations in between.
    until_sample_at_event: u64,
    /// The thread's number; 0 until it has one.
    number: u32,
    until_measured: u32,
    pub(crate) sampler: MaybeUninit<Poisson>,
    /// The trials that choose the blocks whose stacks are taken.
    stack_trials: MaybeUninit<Bernoulli>,
    stack_trials_of: u32,
    /// The reallocations that have begun, that of the innermost signal handler last.
    pending: [MaybeUninit<Pending>; PENDING_MAX],
    pending_count: usize,
    contexts: Contexts,
    walker: Walker,
}

static NUMBERS: AtomicU32 = AtomicU32::new(0);

// SAFETY: integers, null pointers, closed `MaybeUninit`s, a walker and contexts, for which zeroes
// are valid; the gate is not open. Nothing in it has a destructor.
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
        free_list()
    }

    fn attach(&mut self, sp: u64) -> bool {
        self.head.close(sp);
        if self.number == 0 {
            self.number = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
            // The seeds of threads differ by the addresses of their blocks, those of runs by the
            // time.
            let address = core::ptr::from_mut(self) as u64;
            self.sampler.write(Poisson::new(arch::ticks() ^ address << 20));
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

    /// Opens the gate after an event that began at this time stamp, and times one in
    /// [`MEASURED_ONE_IN`].
    #[inline(always)]
    pub(crate) fn finish(&mut self, began: u64) {
        self.until_measured = self.until_measured.wrapping_sub(1);
        if self.until_measured == 0 {
            self.until_measured = MEASURED_ONE_IN;
            timing::add(arch::ticks().saturating_sub(began));
        }
        self.head.leave();
    }

    /// Notes that the ledger knows of the thread's allocations so far.
    #[inline(always)]
    pub(crate) fn remember_countdown(&mut self) {
        self.until_sample_at_event = countdown::bytes_until_sample();
    }

    /// Says, before a free, that the thread has made unsampled allocations since its latest event:
    /// whether the freed block was temporary depends on it.
    #[inline(always)]
    pub(crate) fn record_unsampled_allocations(&mut self) {
        if self.until_sample_at_event != countdown::bytes_until_sample() {
            self.remember_countdown();
            crate::LEDGER.record_unsampled_allocations(self.thread());
        }
    }

    /// True if the stack is taken for a block with this many usable bytes.
    #[inline(never)]
    fn is_stack_chosen(&mut self, usable: u64) -> bool {
        let (starts, probability) = mode::stack_trials();
        if self.stack_trials_of != starts {
            self.stack_trials_of = starts;
            // The first thread's trials are those of the seed; every other thread has its own.
            let [first, second] = Bernoulli::SEED;
            let other = u64::from(self.number.wrapping_sub(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let random = Random::from_state([first ^ other, second]);
            self.stack_trials.write(Bernoulli::new(random, probability));
        }
        // SAFETY: `assume_init_mut` requires an initialised value. `stack_trials` is written above,
        // unless `starts` is the number at the last time, or still 0. If nothing has been written,
        // the field is zeroes of the mapping, which are a valid `Bernoulli`: integers and an `f64`.
        unsafe { self.stack_trials.assume_init_mut() }.is_chosen(usable)
    }

    /// Captures the stack of a call, within the context that the thread is in, as the ledger's mode
    /// wants it. `None` if the program wants the allocation ignored.
    ///
    /// # Safety
    ///
    /// `caller` is the live frame of this thread to which the intercepted function has yet to
    /// return.
    #[inline(always)]
    pub(crate) unsafe fn capture(&mut self, caller: Caller) -> Option<StackId> {
        let parts = mode::parts();
        // SAFETY: `capture_parts` requires the live frame of this thread to which the intercepted
        // function has yet to return. This function's `# Safety` requires the same of `caller`.
        unsafe { self.capture_parts(parts, parts.has_native() || parts.has_some_native(), caller) }
    }

    /// Does the same for a new block with `usable` usable bytes. If not every block has its stack
    /// taken, and this one is not chosen, the native part is empty.
    ///
    /// # Safety
    ///
    /// See [`ThreadBlock::capture`].
    #[inline(always)]
    pub(crate) unsafe fn capture_for(&mut self, caller: Caller, usable: impl FnOnce() -> u64) -> Option<StackId> {
        let parts = mode::parts();
        let has_native = parts.has_native() || parts.has_some_native() && self.is_stack_chosen(usable());
        // SAFETY: `capture_parts` requires the live frame of this thread to which the intercepted
        // function has yet to return. This function's `# Safety` requires the same of `caller`.
        unsafe { self.capture_parts(parts, has_native, caller) }
    }

    /// # Safety
    ///
    /// See [`ThreadBlock::capture`].
    #[inline(always)]
    unsafe fn capture_parts(&mut self, parts: Parts, has_native: bool, caller: Caller) -> Option<StackId> {
        let mut id = StackId::ROOT;
        if has_native {
            // SAFETY: `read` requires a readable, aligned word, and `Walker::capture` a live frame
            // of this thread. By this function's `# Safety`, `caller.slot` is the word of this
            // thread's stack that holds the return address. The walker is this thread's.
            id = unsafe {
                let word = core::ptr::with_exposed_provenance::<u64>(caller.slot as usize);
                let position = FrameRegisters { slot: caller.slot, return_address: word.read(), rbp: caller.rbp };
                self.walker.capture(position, &mut Nodes)
            };
        }
        let contexts = thread::contexts();
        if contexts.is_null() {
            return Some(id);
        }
        // SAFETY: not null, hence this thread's, by the contract of `thread::bind`; the names on it
        // are static, by the contract of `heapledger_core::context`.
        unsafe {
            if heapledger_unwind::context::is_ignoring(contexts) {
                return None;
            }
            Some(if parts.has_contexts() { self.contexts.leaf(contexts, id, &mut Nodes) } else { id })
        }
    }

    /// Returns the stack extended by a heap of the program's; with `None` the stack itself.
    pub(crate) fn in_heap(&mut self, stack: StackId, name: Option<&'static Name>) -> StackId {
        let Some(name) = name else { return stack };
        let heap = core::ptr::from_ref(name).expose_provenance() as u64;
        tree::child(NodeRef::of(stack), NodeKind::Heap, heap, &mut Nodes).id()
    }

    /// Returns the site of a block, within the context that this thread is in now.
    pub(crate) fn in_present_context(&mut self, stack: StackId) -> StackId {
        let contexts = thread::contexts();
        if contexts.is_null() {
            return stack;
        }
        // SAFETY: `Contexts::leaf` requires this thread's own stack of scopes, with names and
        // values that are static. The stack is not null, hence this thread's, by the contract of
        // `thread::bind`. The rest is the contract of `heapledger_core::context`.
        unsafe { self.contexts.leaf(contexts, stack, &mut Nodes) }
    }

    /// Notes that a reallocation has begun.
    pub(crate) fn push_pending(&mut self, pending: Pending) {
        if self.pending_count == PENDING_MAX {
            self.drop_pending(PENDING_MAX - 1);
        }
        if let Some(slot) = self.pending.get_mut(self.pending_count) {
            slot.write(pending);
            self.pending_count += 1;
        }
    }

    /// Takes the reallocation of this block that began last. Reallocations that began later have
    /// been left by a jump.
    pub(crate) fn take_pending(&mut self, old: u64) -> Option<Pending> {
        let begun = self.pending.get(..self.pending_count)?;
        // SAFETY: `assume_init_ref` requires an initialised value. `push_pending` writes each place
        // before the count includes it, and `begun` ends at the count.
        let at = begun.iter().rposition(|slot| unsafe { slot.assume_init_ref() }.old == old)?;
        self.drop_pending(at + 1);
        self.pending_count = at;
        // SAFETY: written by `push_pending`; the count says that it is no longer there.
        self.pending.get(at).map(|slot| unsafe { slot.assume_init_read() })
    }

    /// Drops the reallocations from this one on, which do not end: nothing is known about their
    /// blocks, so they count as freed.
    fn drop_pending(&mut self, from: usize) {
        while self.pending_count > from {
            self.pending_count -= 1;
            if let Some(slot) = self.pending.get(self.pending_count) {
                // SAFETY: `assume_init_read` requires an initialised value that is not used again.
                // `push_pending` wrote this place, which the count included until the line before,
                // and no longer does.
                pending::release(unsafe { slot.assume_init_read() }.pending, ThreadId(self.number));
            }
        }
    }
}

/// Blocks of ended threads, in a page that a forked child finds zeroed; null before the first
/// start.
pub(crate) static FREE_LIST: AtomicPtr<FreeList<ThreadBlock>> = AtomicPtr::new(ptr::null_mut());

/// The thread pointer of the thread that forks, which its copy in the child has, too. 0: no thread
/// forks. That thread keeps out of the ledger until the fork is over, since it holds all locks, and
/// signal handlers of others may allocate.
pub(crate) static FORKING: AtomicUsize = AtomicUsize::new(0);

/// Returns the pool of ended threads' blocks. `None` before the first start, and in the thread that
/// forks.
pub(crate) fn free_list() -> Option<&'static FreeList<ThreadBlock>> {
    if is_forking() {
        return None;
    }
    // SAFETY: null, or mapped by `control::prepare` and never unmapped; zeroes are an empty pool.
    unsafe { FREE_LIST.load(Ordering::Acquire).as_ref() }
}

#[inline]
fn is_forking() -> bool {
    FORKING.load(Ordering::Relaxed) == arch::thread_pointer()
}

/// Returns the rate at which a block of this size is in the sample, if it is, given the ledger's
/// rate. A thread gets its thread block when it has something to record.
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
    let Some(state) = entered else { return countdown::draw_with_shared_seed(size, logarithm) };
    // SAFETY: written by `attach`, without which the gate is never closed or open.
    let sampler = unsafe { state.sampler.assume_init_mut() };
    let drawn = countdown::draw(size, logarithm, |mean| sampler.distance(mean));
    state.head.leave();
    drawn
}

/// Announces nothing: stacks are read back in the process itself.
pub(crate) struct Nodes;

impl Sink for Nodes {
    fn node(&mut self, _: StackId, _: StackId, _: NodeKind, _: u64) -> bool {
        true
    }

    fn module(&mut self, _: &Module<'_>) -> bool {
        // Addresses are looked up by asking the dynamic linker.
        true
    }
}

/// Runs a query on the ledger, while calls of this thread from signal handlers keep out of the
/// ledger. `None` in a handler that interrupted the ledger.
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

/// This thread's block, as it is at any moment.
pub(crate) struct BlockState {
    number: u32,
    gate: u64,
    /// True while the C library is called: calls that come back are not the program's.
    pub(crate) is_untracked: bool,
}

/// Returns the state of this thread's block, without entering it; `None` if the thread has none.
#[inline(always)]
pub(crate) fn state() -> Option<BlockState> {
    let Current::Block(block) = thread::current::<ThreadBlock>() else { return None };
    let block = block.as_ptr();
    // SAFETY: this thread's block; the fields are plain and may be read at any moment.
    unsafe {
        Some(BlockState { number: (*block).number, gate: (*block).head.gate, is_untracked: (*block).head.is_untracked })
    }
}

/// Returns this thread's number.
pub(crate) fn thread_number() -> ThreadId {
    state().map_or(UNKNOWN_THREAD, |block| ThreadId(block.number))
}

/// True if the thread, which cannot enter its block, holds no lock of the ledger.
pub(crate) fn may_wait() -> bool {
    state().is_none_or(|block| block.gate == GATE_UNATTACHED)
}

/// Runs a function with an address in its frame, below which there is a word that does not change
/// meanwhile, as a guard requires.
#[inline(never)]
fn with_frame<R>(run: impl FnOnce(u64) -> R) -> R {
    let words = core::hint::black_box([0x6865_6170_6c65_6467_u64, 0]);
    let result = run(&raw const words[1] as u64);
    core::hint::black_box(&words);
    result
}
