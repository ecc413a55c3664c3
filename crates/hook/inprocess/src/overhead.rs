//! The cost of the ledger to the program.

use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::Bytes;
use heapledger_core::arch::ticks;
use heapledger_core::sys::monotonic_nanoseconds;
use heapledger_unwind::{rules, tree};

use crate::timing::{self, MEASURED_ONE_IN};
use crate::{LEDGER, events};

static BEGAN_TICKS: AtomicU64 = AtomicU64::new(0);
static BEGAN_NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// The memory that is mapped, by purpose, touched or not, and the time spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// The register of live blocks and the totals.
    pub bytes_ledger: Bytes,
    /// The stack tree, as far as it has been touched.
    pub bytes_stacks: Bytes,
    /// Rules by which stacks are unwound.
    pub bytes_rules: Bytes,
    /// Thread blocks.
    pub bytes_threads: Bytes,
    /// The filter of sampled addresses.
    pub bytes_filter: Bytes,
    /// Events that are kept.
    pub bytes_events: Bytes,
    /// Nanoseconds spent in the hook, all threads together: an estimate from one in 256 recorded
    /// events, without the time in which a thread had no processor. The cost of allocations that
    /// are not sampled is not included.
    pub nanoseconds: u64,
}

impl Overhead {
    /// Returns all bytes that are mapped.
    pub fn bytes(&self) -> Bytes {
        let parts = [self.bytes_ledger, self.bytes_stacks, self.bytes_rules, self.bytes_threads, self.bytes_filter];
        Bytes(parts.iter().map(|bytes| bytes.0).sum::<u64>() + self.bytes_events.0)
    }
}

/// Returns the overhead as of now.
pub fn overhead() -> Overhead {
    let elapsed = (
        ticks().saturating_sub(BEGAN_TICKS.load(Ordering::Relaxed)),
        monotonic_nanoseconds().saturating_sub(BEGAN_NANOSECONDS.load(Ordering::Relaxed)),
    );
    let spent = u128::from(timing::ticks_measured()) * u128::from(MEASURED_ONE_IN);
    let nanoseconds = spent * u128::from(elapsed.1) / u128::from(elapsed.0.max(1));
    Overhead {
        bytes_ledger: LEDGER.bytes_mapped(),
        bytes_stacks: Bytes(tree::bytes()),
        bytes_rules: Bytes(if rules::cache().is_some() { rules::CACHE_LENGTH as u64 } else { 0 }),
        bytes_threads: Bytes(heapledger_thread::bytes_mapped()),
        bytes_filter: Bytes(crate::filter::LENGTH as u64),
        bytes_events: events::bytes_mapped(),
        nanoseconds: u64::try_from(nanoseconds).unwrap_or(u64::MAX),
    }
}

/// Resets the measurement when a ledger begins.
pub(crate) fn begin() {
    BEGAN_TICKS.store(ticks(), Ordering::Relaxed);
    BEGAN_NANOSECONDS.store(monotonic_nanoseconds(), Ordering::Relaxed);
    timing::clear();
}

/// Returns the nanoseconds since the ledger was started last; 0 if it never was.
pub fn age_of_ledger() -> u64 {
    match BEGAN_NANOSECONDS.load(Ordering::Relaxed) {
        0 => 0,
        began => monotonic_nanoseconds().saturating_sub(began),
    }
}

/// Returns the age of a time stamp, in nanoseconds.
pub fn age(stamp: u64) -> u64 {
    let clock = Clock::now();
    clock.nanoseconds(clock.ticks.saturating_sub(stamp))
}

/// The conversion of time stamps to nanoseconds, as of one moment, so that the order of time stamps
/// is kept.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: u64,
    ticks: u64,
    elapsed: u64,
}

impl Clock {
    /// Returns the clock as of now.
    pub fn now() -> Clock {
        let began = BEGAN_TICKS.load(Ordering::Relaxed);
        Clock {
            began,
            ticks: ticks(),
            elapsed: monotonic_nanoseconds().saturating_sub(BEGAN_NANOSECONDS.load(Ordering::Relaxed)),
        }
    }

    /// Returns the moment of a time stamp, as nanoseconds since the ledger was started last.
    pub fn since_start(self, stamp: u64) -> u64 {
        self.nanoseconds(stamp.saturating_sub(self.began))
    }

    fn nanoseconds(self, ticks: u64) -> u64 {
        let all = u128::from(self.ticks.saturating_sub(self.began).max(1));
        u64::try_from(u128::from(ticks) * u128::from(self.elapsed) / all).unwrap_or(u64::MAX)
    }
}
