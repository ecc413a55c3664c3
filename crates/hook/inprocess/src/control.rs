//! Starting and stopping the ledger, and changing how it records, while other threads allocate.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::{fmt, ptr};

use heapledger_core::hooks::{self, dispatch_path, install_observer, remove_observer};
use heapledger_core::lock::Lock;
use heapledger_core::sample::{self, Rate};
use heapledger_core::{Blocks, Bytes, arch, sys};
use heapledger_thread::{self as thread, FreeList};
use heapledger_unwind::{rules, tree};

use crate::block::ThreadBlock;
use crate::observe::OBSERVER;
use crate::{LEDGER, bridge, events, filter, library, overhead};

/// The circumstances of an allocation that are kept with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Stacks {
    /// Nothing: totals only.
    None = 0,
    /// The native stack.
    Native = 1,
    /// The context that the program has declared.
    Pseudo = 2,
    /// Both.
    #[default]
    Mixed = 3,
}

/// The same as [`Stacks`], and whether the native stack is taken for chosen blocks only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts(u32);

impl Parts {
    const SOME_NATIVE: u32 = 4;

    fn new(stacks: Stacks, has_probability: bool) -> Parts {
        let parts = stacks as u32;
        let native = Stacks::Native as u32;
        Parts(if has_probability && parts & native != 0 { parts & !native | Parts::SOME_NATIVE } else { parts })
    }

    #[inline(always)]
    pub(crate) fn has_native(self) -> bool {
        self.0 & Stacks::Native as u32 != 0
    }

    #[inline(always)]
    pub(crate) fn has_some_native(self) -> bool {
        self.0 & Parts::SOME_NATIVE != 0
    }

    #[inline(always)]
    pub(crate) fn has_contexts(self) -> bool {
        self.0 & Stacks::Pseudo as u32 != 0
    }
}

/// The options by which a ledger records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LedgerOptions {
    /// The mean number of allocated bytes from one sample to the next, rounded to a power of two.
    /// `None`: every allocation is recorded.
    pub sample_every: Option<Bytes>,
    /// The circumstances that are kept with a block.
    pub stacks: Stacks,
    /// The most bytes that the ledger's tables may map. Blocks that would take more are not
    /// recorded, but counted.
    pub bytes_max: Bytes,
    /// True if blocks that have been freed are counted too: by size, stamp and site.
    pub keep_freed: bool,
    /// The probability, above 0 and below 1, with which each usable byte has the native stack of
    /// its block taken. `None`: every block has its stack taken.
    ///
    /// All blocks are recorded, with their sizes, contexts and marks: a block of n usable bytes has
    /// a stack with the probability 1 - (1 - p)^n. With [`STACK_PROBABILITY`] that is about a
    /// quarter of a program's blocks, and four fifths of its bytes. No effect on blocks that are
    /// sampled: they all have stacks.
    pub stack_probability: Option<f64>,
}

impl LedgerOptions {
    /// Every block, exactly, in as much memory as it takes.
    pub const EXACT: LedgerOptions = LedgerOptions {
        sample_every: None,
        stacks: Stacks::Mixed,
        bytes_max: Bytes(u64::MAX),
        keep_freed: false,
        stack_probability: None,
    };

    /// A sample of one point in 512 KiB, as in Go and jemalloc, in 64 MiB at most: enough for some
    /// 500,000 sampled blocks.
    pub const SAMPLED: LedgerOptions =
        LedgerOptions { sample_every: Some(Bytes(512 << 10)), bytes_max: Bytes(64 << 20), ..LedgerOptions::EXACT };
}

impl Default for LedgerOptions {
    fn default() -> LedgerOptions {
        LedgerOptions::EXACT
    }
}

/// The reason why the ledger did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// The ledger runs already.
    Running,
    /// The system gives no memory.
    OutOfMemory,
    /// The hook table refused the observer.
    Hooks(hooks::HookError),
    /// The system or the processor is not x86-64 Linux.
    Unsupported,
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Running => out.write_str("the ledger was not started: it runs already"),
            StartError::OutOfMemory => out.write_str("the ledger was not started: the system gives no memory"),
            StartError::Hooks(error) => write!(out, "the ledger was not started: {error}"),
            StartError::Unsupported => out.write_str("the ledger was not started: there is one on x86-64 Linux only"),
        }
    }
}

impl core::error::Error for StartError {}

/// The numbers of calls that a ledger could not record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Allocations that were not recorded because the bound left no memory for them.
    pub refused: Blocks,
    /// Calls within signal handlers that interrupted the ledger itself, calls while the process
    /// forked, and blocks of user pools beyond the largest number of pools, or with addresses that
    /// are too large.
    pub nested: Blocks,
    /// Stamps on addresses at which the ledger knew no live block. None are counted if it samples,
    /// since it then knows few blocks.
    pub stamps_unknown: u64,
}

/// The probability of stacks with which the dark matter detector of Firefox works.
pub const STACK_PROBABILITY: f64 = 0.003;

/// The logarithm of the sample's [rate](Rate). 0: every block is recorded.
static RATE: AtomicU8 = AtomicU8::new(0);
/// True if there was a rate since the start: the ledger then does not know all blocks.
static IS_SAMPLE: AtomicBool = AtomicBool::new(false);
static IS_RECORDING: AtomicBool = AtomicBool::new(false);
static PARTS: AtomicU32 = AtomicU32::new(Stacks::Mixed as u32);
/// The probability with which a byte has its block's stack taken, as the bits of an `f64`. 0: all
/// stacks are taken.
static STACK_PROBABILITY_BITS: AtomicU64 = AtomicU64::new(0);
/// The number of times that the ledger was started.
static STARTS: AtomicU32 = AtomicU32::new(0);
static NESTED: AtomicU64 = AtomicU64::new(0);
static STAMPS_UNKNOWN: AtomicU64 = AtomicU64::new(0);

/// Blocks of ended threads, in a page that a forked child finds zeroed; null before the first
/// start.
static FREE_LIST: AtomicPtr<FreeList<ThreadBlock>> = AtomicPtr::new(ptr::null_mut());

/// Held while the ledger is started, stopped or paused, or its rate is changed.
static CONTROL: Lock = Lock::new();
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Starts an empty ledger: every block that is allocated from now on is recorded, as the options
/// say. Blocks that were allocated before are unknown to the ledger.
///
/// # Errors
///
/// See [`StartError`].
pub fn start(options: LedgerOptions) -> Result<(), StartError> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(StartError::Unsupported);
    }
    let _guard = CONTROL.lock();
    if IS_RUNNING.load(Ordering::Relaxed) {
        return Err(StartError::Running);
    }
    prepare()?;
    LEDGER.clear();
    filter::clear();
    overhead::begin();
    NESTED.store(0, Ordering::Relaxed);
    STAMPS_UNKNOWN.store(0, Ordering::Relaxed);
    IS_SAMPLE.store(false, Ordering::Relaxed);
    LEDGER.set_bytes_max(options.bytes_max);
    LEDGER.keep_freed(options.keep_freed);
    set_rate(options.sample_every);
    let probability = options.stack_probability.filter(|p| *p > 0.0 && *p < 1.0).unwrap_or(0.0);
    STACK_PROBABILITY_BITS.store(probability.to_bits(), Ordering::Relaxed);
    STARTS.fetch_add(1, Ordering::Relaxed);
    set_stacks(options.stacks);
    IS_RECORDING.store(true, Ordering::Release);
    // SAFETY: the table is static; its functions keep the contract of `Observer` (`observe`).
    unsafe { install_observer(&raw const OBSERVER) }.map_err(StartError::Hooks)?;
    IS_RUNNING.store(true, Ordering::Release);
    Ok(())
}

/// Stops the ledger: allocations are not recorded, and frees are not seen, any more. What the
/// ledger holds can still be read, until it is started again.
pub fn stop() {
    let _guard = CONTROL.lock();
    IS_RECORDING.store(false, Ordering::Release);
    if IS_RUNNING.swap(false, Ordering::AcqRel) {
        // The observer is installed, since the ledger runs.
        let _ = remove_observer(&raw const OBSERVER);
    }
}

/// True if the ledger runs, paused or not.
pub fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Acquire)
}

/// With `false`, no allocation is recorded from now on, but frees are, so that what is live stays
/// right. With `true` allocations are recorded again. No effect on a ledger that does not run.
pub fn set_recording(is_recording: bool) {
    let _guard = CONTROL.lock();
    IS_RECORDING.store(is_recording && IS_RUNNING.load(Ordering::Relaxed), Ordering::Release);
}

/// Records every allocation from now on, or samples them at another rate. Blocks that are recorded
/// already keep their weights.
pub fn set_sampling(sample_every: Option<Bytes>) {
    let _guard = CONTROL.lock();
    set_rate(sample_every);
}

/// Changes what is kept with blocks that are allocated from now on.
pub fn set_stacks(stacks: Stacks) {
    PARTS.store(Parts::new(stacks, stack_probability().is_some()).0, Ordering::Relaxed);
}

/// Returns the mean distance between sample points; `None` if every block is recorded.
pub fn sampling() -> Option<Bytes> {
    rate().mean()
}

/// Returns what was lost since the start.
pub fn losses() -> Losses {
    Losses {
        refused: Blocks(LEDGER.dropped()),
        nested: Blocks(NESTED.load(Ordering::Relaxed)),
        stamps_unknown: STAMPS_UNKNOWN.load(Ordering::Relaxed),
    }
}

fn set_rate(sample_every: Option<Bytes>) {
    let rate = sample_every.map_or(Rate::EXACT, Rate::nearest);
    if rate != Rate::EXACT {
        IS_SAMPLE.store(true, Ordering::Release);
    }
    RATE.store(rate.logarithm(), Ordering::Release);
    dispatch_path::set_sampling(&OBSERVER, rate.logarithm().into());
}

/// True if the ledger has only some of the blocks that were allocated since the start, because it
/// sampled at the start or later.
#[inline(always)]
pub fn is_sample() -> bool {
    IS_SAMPLE.load(Ordering::Acquire)
}

#[inline(always)]
pub(crate) fn rate() -> Rate {
    Rate::from_logarithm(RATE.load(Ordering::Relaxed).into())
}

#[inline(always)]
pub(crate) fn is_recording() -> bool {
    IS_RECORDING.load(Ordering::Relaxed)
}

#[inline(always)]
pub(crate) fn parts() -> Parts {
    Parts(PARTS.load(Ordering::Relaxed))
}

/// Returns the probability with which each usable byte has its block's stack taken. `None`: every
/// block has its stack taken.
pub fn stack_probability() -> Option<f64> {
    Some(f64::from_bits(STACK_PROBABILITY_BITS.load(Ordering::Relaxed))).filter(|probability| *probability != 0.0)
}

/// Returns the weight of a block that has a stack and this many usable bytes: 1 if all blocks have
/// stacks. For the weight of sampled blocks, see
/// [`LiveBlock::weight`](heapledger_ledger::LiveBlock::weight).
pub fn weight_of_stack(usable: Bytes) -> f64 {
    stack_probability().map_or(1.0, |probability| 1.0 / sample::probability_of_stack(usable.0, probability))
}

/// Returns how often the ledger was started, and the probability of stacks that it has this time.
pub(crate) fn stack_trials() -> (u32, f64) {
    (STARTS.load(Ordering::Relaxed), f64::from_bits(STACK_PROBABILITY_BITS.load(Ordering::Relaxed)))
}

/// Returns the pool of ended threads' blocks. `None` before the first start, and in the thread that
/// forks.
pub(crate) fn free_list() -> Option<&'static FreeList<ThreadBlock>> {
    if is_forking() {
        return None;
    }
    // SAFETY: null, or mapped by `prepare` and never unmapped; zeroes are an empty pool.
    unsafe { FREE_LIST.load(Ordering::Acquire).as_ref() }
}

#[cold]
pub(crate) fn count_lost() {
    NESTED.fetch_add(1, Ordering::Relaxed);
}

/// Counts a stamp on an address at which there is no known live block. In a sample most stamps are
/// of that kind, so they are not counted.
#[cold]
pub(crate) fn count_unknown_stamp() {
    if !is_sample() {
        STAMPS_UNKNOWN.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes what the ledger needs before the first call, and then keeps for good.
pub(crate) fn prepare() -> Result<(), StartError> {
    library::list_modules();
    if !FREE_LIST.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    library::find_first_stack();
    if !rules::initialise() || !tree::initialise() {
        return Err(StartError::OutOfMemory);
    }
    let length = size_of::<FreeList<ThreadBlock>>();
    let pool = sys::map_private(length).map_err(|_| StartError::OutOfMemory)?;
    // SAFETY: just mapped; zeroes are an empty pool, as which a child finds it.
    unsafe { sys::wipe_on_fork(pool, length) }.map_err(|_| StartError::OutOfMemory)?;
    // SAFETY: the functions are the C library's, and no thread has a block without a pool.
    unsafe { thread::create_key::<ThreadBlock>(library::LIBRARY) };
    library::watch_forks(before_fork, after_fork_in_parent, after_fork_in_child);
    FREE_LIST.store(pool.cast(), Ordering::Release);
    bridge::offer();
    Ok(())
}

/// The thread pointer of the thread that forks, which its copy in the child has, too. 0: no thread
/// forks. That thread keeps out of the ledger until the fork is over, since it holds all locks, and
/// signal handlers of others may allocate.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// True if that thread has entered its block.
static HAS_ENTERED: AtomicBool = AtomicBool::new(false);

#[inline]
fn is_forking() -> bool {
    FORKING.load(Ordering::Relaxed) == arch::thread_pointer()
}

/// Keeps all threads out of the ledger while the process is copied: locks that they held would stay
/// locked in the child.
extern "C" fn before_fork() {
    core::mem::forget(CONTROL.lock());
    // A word that does not change, for the guard; it is not on the thread's stack, so the guard is
    // never found stale.
    static FRAME: [u64; 2] = [0x6865_6170_6c65_6467, 0];
    HAS_ENTERED.store(thread::enter::<ThreadBlock>(&raw const FRAME[1] as u64).is_some(), Ordering::Relaxed);
    FORKING.store(arch::thread_pointer(), Ordering::Relaxed);
    LEDGER.before_fork();
    events::before_fork();
}

extern "C" fn after_fork_in_parent() {
    end_fork();
    if HAS_ENTERED.load(Ordering::Relaxed)
        && let thread::Current::Block(block) = thread::current::<ThreadBlock>()
    {
        // SAFETY: the dereference requires a live block that nobody else uses. It is this thread's,
        // which is never unmapped. `before_fork` closed its gate, so signal handlers keep out of
        // it, and kept no reference.
        unsafe { (*block.as_ptr()).head.leave() };
    }
    // SAFETY: `Lock::unlock` requires that this thread, or the one that it was copied from by a
    // fork, took the lock and forgot the guard. `before_fork` did both, in this thread, which has
    // forked since.
    unsafe { CONTROL.unlock() };
}

extern "C" fn after_fork_in_child() {
    // SAFETY: `tree::start_child` requires that this process has one thread. By POSIX a forked
    // child has only the copy of the thread that forked, and that thread runs this handler before
    // `fork` returns.
    unsafe { tree::start_child() };
    // Blocks and pool are wiped: this thread's block is found unattached.
    end_fork();
    // SAFETY: `before_fork` took the lock, in the thread that this one is a copy of.
    unsafe { CONTROL.unlock() };
}

fn end_fork() {
    // SAFETY: the calling thread called `before_fork`, or is its copy in the child.
    unsafe {
        events::after_fork();
        LEDGER.after_fork();
    }
    FORKING.store(0, Ordering::Relaxed);
}
