//! How the ledger records at present, as its hooks read it. [`control`](crate::control) changes it.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use heapledger_core::Bytes;
use heapledger_core::lock::Lock;
use heapledger_core::sample::{self, Rate};

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

/// The probability of stacks with which the dark matter detector of Firefox works.
pub const STACK_PROBABILITY: f64 = 0.003;

/// The logarithm of the sample's [rate](Rate). 0: every block is recorded.
pub(crate) static RATE: AtomicU8 = AtomicU8::new(0);
/// True if there was a rate since the start: the ledger then does not know all blocks.
pub(crate) static IS_SAMPLE: AtomicBool = AtomicBool::new(false);
pub(crate) static IS_RECORDING: AtomicBool = AtomicBool::new(false);
static PARTS: AtomicU32 = AtomicU32::new(Stacks::Mixed as u32);
/// The probability with which a byte has its block's stack taken, as the bits of an `f64`. 0: all
/// stacks are taken.
pub(crate) static STACK_PROBABILITY_BITS: AtomicU64 = AtomicU64::new(0);
/// The number of times that the ledger was started.
pub(crate) static STARTS: AtomicU32 = AtomicU32::new(0);
/// Held while the ledger is started, stopped or paused, or its rate is changed.
pub(crate) static CONTROL: Lock = Lock::new();
pub(crate) static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// True if the ledger runs, paused or not.
pub fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Acquire)
}

/// Changes what is kept with blocks that are allocated from now on.
pub fn set_stacks(stacks: Stacks) {
    PARTS.store(Parts::new(stacks, stack_probability().is_some()).0, Ordering::Relaxed);
}

/// Returns the mean distance between sample points; `None` if every block is recorded.
pub fn sampling() -> Option<Bytes> {
    rate().mean()
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
