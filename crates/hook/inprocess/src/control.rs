//! Starting and stopping the ledger, and changing how it records, while other threads allocate.

use core::fmt;
use core::sync::atomic::Ordering;

use heapledger_core::hooks::{self, dispatch_path, install_observer, remove_observer};
use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, sys};
use heapledger_thread::{self as thread, FreeList};
use heapledger_unwind::{rules, tree};

use crate::block::{FREE_LIST, ThreadBlock};
use crate::mode::{CONTROL, IS_RECORDING, IS_RUNNING, IS_SAMPLE, RATE, STACK_PROBABILITY_BITS, STARTS};
use crate::observe::OBSERVER;
use crate::{LEDGER, bridge, filter, fork, library, losses, overhead};

pub use crate::losses::{Losses, losses};
pub use crate::mode::{
    STACK_PROBABILITY, Stacks, is_running, is_sample, sampling, set_stacks, stack_probability, weight_of_stack,
};

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
    losses::clear();
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
    if let Err(error) = unsafe { install_observer(&raw const OBSERVER) } {
        IS_RECORDING.store(false, Ordering::Release);
        return Err(StartError::Hooks(error));
    }
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

fn set_rate(sample_every: Option<Bytes>) {
    let rate = sample_every.map_or(Rate::EXACT, Rate::nearest);
    if rate != Rate::EXACT {
        IS_SAMPLE.store(true, Ordering::Release);
    }
    RATE.store(rate.logarithm(), Ordering::Release);
    dispatch_path::set_sampling(&OBSERVER, rate.logarithm().into());
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
    library::watch_forks(fork::before_fork, fork::after_fork_in_parent, fork::after_fork_in_child);
    FREE_LIST.store(pool.cast(), Ordering::Release);
    bridge::offer();
    Ok(())
}
