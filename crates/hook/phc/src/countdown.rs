//! The allocations until the next one that is sampled.
//!
//! All threads share one delay, from which each takes a stretch of at most 256 allocations at a
//! time into a word of its own. So an unsampled allocation is one decrement of that word, in the
//! code of [`arch`](crate::arch). The stretch that reaches the end of the delay is *due*: the
//! allocation after it is sampled. These numbers are those of Mozilla's PHC.
//!
//! An allocator that knows at its refills how many blocks it hands out does not need that
//! decrement: it calls [`count`] there.

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use heapledger_core::block_sampler::Counted;
use heapledger_core::sample::Random;
use heapledger_core::{arch as processor, sys};

use crate::arch::{set_word, word};
use crate::options::PhcOptions;

/// The allocations that are left of the thread's stretch; below 0 when it has ended.
const LEFT: usize = 0;
/// Bit 0: the thread has taken a stretch before. Bit 1: an allocation is sampled when the present
/// stretch ends.
const STATE: usize = 8;
/// The depth of [`disable_thread`].
const DISABLED: usize = 16;

const HAS_STARTED: usize = 1;
const IS_DUE: usize = 2;

/// The largest stretch that a thread takes.
const STRETCH_MAX: i64 = 256;
/// The allocations after which a thread in which the checker is disabled looks again.
const BACK_OFF: usize = 64;
/// The same for a checker that is disabled in the process.
const BACK_OFF_PROCESS: usize = 64 << 10;
/// The allocations beyond the end of the delay after which another thread samples: the thread whose
/// stretch is due may not allocate any more.
const OVERDUE: i64 = -16 * STRETCH_MAX;
/// The share of the normal delay after which another stack is tried, if an adaptive checker has
/// rejected one.
pub(crate) const RETRY_SHARE: u64 = 16;

/// The allocations that are left of the present delay.
static DELAY: AtomicI64 = AtomicI64::new(0);
/// The allocations up to now: the checker's clock.
static NOW: AtomicU64 = AtomicU64::new(0);
static NORMAL: AtomicU64 = AtomicU64::new(1);
static REUSE: AtomicU64 = AtomicU64::new(2);
static SEED: AtomicU64 = AtomicU64::new(0);

/// The states of the checker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PhcState {
    /// No block is sampled. Blocks that were sampled before are still freed as such, and leave the
    /// reserve when they are reallocated.
    #[default]
    OnlyFree = 0,
    /// Blocks are sampled.
    Enabled = 1,
}

static PROCESS: AtomicU8 = AtomicU8::new(PhcState::OnlyFree as u8);

/// True if the allocator counts, by [`count`].
static COUNTS_AT_REFILLS: AtomicBool = AtomicBool::new(false);

/// True if blocks that are due may be rejected: by their sites, or because the checker is adaptive.
static REJECTS: AtomicBool = AtomicBool::new(false);

/// Declares that the allocator counts, by [`count`].
pub(crate) fn set_counts_at_refills() {
    COUNTS_AT_REFILLS.store(true, Ordering::Relaxed);
}

/// Declares whether blocks that are due may be rejected.
pub(crate) fn set_rejects(rejects: bool) {
    REJECTS.store(rejects, Ordering::Relaxed);
}

/// Sets the state of the checker. Threads see it at the end of their present stretches.
pub fn set_state(state: PhcState) {
    PROCESS.store(state as u8, Ordering::Release);
}

/// Returns the state of the checker.
pub fn state() -> PhcState {
    if PROCESS.load(Ordering::Acquire) == PhcState::Enabled as u8 { PhcState::Enabled } else { PhcState::OnlyFree }
}

/// Sets the delays, as [`PhcOptions`] has them, and begins the first one.
pub(crate) fn set_delays(options: &PhcOptions) {
    let normal = if options.delay_normal == 1 { 1 } else { rounded(options.delay_normal) };
    NORMAL.store(normal, Ordering::Relaxed);
    REUSE.store(rounded(options.delay_reuse), Ordering::Relaxed);
    reseed();
    let first = if options.delay_first <= 1 { 1 } else { draw(rounded(options.delay_first)) };
    DELAY.store(first as i64, Ordering::Relaxed);
}

/// Draws other random numbers from now on: a forked child must not sample what its parent does.
pub(crate) fn reseed() {
    SEED.fetch_add(processor::ticks() ^ u64::from(sys::process_id()) << 40, Ordering::Relaxed);
}

/// Rounds a delay up to a power of two within its bounds.
const fn rounded(delay: u64) -> u64 {
    const MAX: u64 = 1 << 31;
    if delay >= MAX {
        MAX
    } else if delay <= 2 {
        2
    } else {
        delay.next_power_of_two()
    }
}

/// Returns a random number.
pub(crate) fn random() -> u64 {
    let seed = SEED.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    Random::new(seed).word()
}

/// Draws a number from 1 to twice the mean, a power of two.
fn draw(mean: u64) -> u64 {
    (random() & (2 * mean - 1)) + 1
}

/// Returns the clock: the allocations up to now, give or take the stretches of threads.
pub(crate) fn now() -> u64 {
    NOW.load(Ordering::Relaxed)
}

/// Draws the allocations for which a freed slot is kept out of reuse: from more than half of the
/// delay to the whole.
pub(crate) fn reuse_delay() -> u64 {
    let half = REUSE.load(Ordering::Relaxed) / 2;
    half + 1 + random() % half.max(1)
}

/// Takes a stretch of at most `length_max` from the delay. Returns its length, and true if it is
/// due.
fn take_stretch(length_max: i64) -> (usize, bool) {
    let normal = NORMAL.load(Ordering::Relaxed);
    let (length, is_due) = if normal == 1 && DELAY.load(Ordering::Relaxed) <= 1 {
        (1, true)
    } else {
        let left = DELAY.fetch_sub(length_max, Ordering::Relaxed);
        if left > length_max {
            (length_max, false)
        } else if left > 0 {
            (left, true)
        } else if left > OVERDUE {
            (length_max, false)
        } else {
            (1, true)
        }
    };
    NOW.fetch_add(length as u64, Ordering::Relaxed);
    (length as usize, is_due)
}

/// Draws the delay until the next sample.
fn begin_delay(normal: u64) {
    DELAY.store(if normal == 1 { 1 } else { draw(normal) as i64 }, Ordering::Relaxed);
}

fn begin_stretch() {
    let (length, is_due) = take_stretch(STRETCH_MAX);
    set_word::<LEFT>(length - 1);
    set_word::<STATE>(HAS_STARTED | if is_due { IS_DUE } else { 0 });
}

/// Handles the allocation at which the thread's word has fallen below 0. True if it is to be
/// sampled.
pub(crate) fn is_sampled() -> bool {
    if state() != PhcState::Enabled {
        set_word::<LEFT>(BACK_OFF_PROCESS - 1);
        return false;
    }
    if word::<DISABLED>() != 0 {
        set_word::<LEFT>(BACK_OFF - 1);
        return false;
    }
    let mut state = word::<STATE>();
    if state & HAS_STARTED == 0 {
        // The thread's first allocation belongs to its first stretch.
        begin_stretch();
        let left = word::<LEFT>();
        if left != 0 {
            set_word::<LEFT>(left - 1);
            return false;
        }
        state = word::<STATE>();
    }
    let is_due = state & IS_DUE != 0;
    if is_due {
        begin_delay(NORMAL.load(Ordering::Relaxed));
    }
    begin_stretch();
    is_due
}

/// Returns the mean of the delay after a rejected block.
fn retry_delay(normal: u64) -> u64 {
    (normal / RETRY_SHARE).max(1)
}

/// Begins the normal delay, because a block was accepted, unless that has begun already.
pub(crate) fn note_accepted() {
    if COUNTS_AT_REFILLS.load(Ordering::Relaxed) && REJECTS.load(Ordering::Relaxed) {
        begin_delay(NORMAL.load(Ordering::Relaxed));
    }
}

/// Begins a shorter delay, because the allocation that was due was not sampled after all. The
/// stretch that has begun with the normal delay is not counted.
pub(crate) fn retry_soon() {
    let normal = NORMAL.load(Ordering::Relaxed);
    if COUNTS_AT_REFILLS.load(Ordering::Relaxed) {
        // The allocator has no stretch of the normal delay yet, unless it is another thread's.
        begin_delay(retry_delay(normal));
    } else if normal > 1 {
        NOW.fetch_sub(word::<LEFT>() as u64 + 1, Ordering::Relaxed);
        DELAY.store(draw(retry_delay(normal)) as i64, Ordering::Relaxed);
        begin_stretch();
    }
}

/// Counts a stretch of allocations for an allocator that counts at its refills. The thread must not
/// use the replacement's functions, which count by themselves.
pub(crate) extern "C" fn count() -> Counted {
    /// The share of the normal delay that a stretch may have: the allocator asks less often than
    /// the replacement, because it counts many allocations at once.
    const SHARE: i64 = 16;
    const LONGEST: i64 = 16 * STRETCH_MAX;
    if state() != PhcState::Enabled {
        return Counted { allocations: BACK_OFF_PROCESS as u32, ends_with_sample: 0 };
    }
    if word::<DISABLED>() != 0 {
        return Counted { allocations: BACK_OFF as u32, ends_with_sample: 0 };
    }
    let normal = NORMAL.load(Ordering::Relaxed);
    let (length, is_due) = take_stretch((normal as i64 / SHARE).clamp(STRETCH_MAX, LONGEST));
    if is_due {
        // The block may be rejected, and the allocator hands blocks of other classes out before
        // that is known: these are candidates, too, until one is accepted.
        begin_delay(if REJECTS.load(Ordering::Relaxed) { retry_delay(normal) } else { normal });
    }
    Counted { allocations: length as u32 - u32::from(is_due), ends_with_sample: u32::from(is_due) }
}

/// Keeps blocks of this thread out of the sample, until [`enable_thread`] has been called as often.
pub fn disable_thread() {
    set_word::<DISABLED>(word::<DISABLED>().saturating_add(1));
}

/// Takes one [`disable_thread`] back.
pub fn enable_thread() {
    set_word::<DISABLED>(word::<DISABLED>().saturating_sub(1));
}

/// True if blocks of this thread may be sampled.
pub(crate) fn is_thread_enabled() -> bool {
    word::<DISABLED>() == 0
}

#[cfg(all(test, not(miri)))]
mod tests;
