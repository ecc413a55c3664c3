//! Adaptive sampling: a stack that was sampled often is sampled less, so that others are sampled
//! more.
//!
//! Candidates come more often than samples would ([`RETRY_SHARE`](crate::countdown::RETRY_SHARE)).
//! A candidate whose stack was sampled n times is sampled with the probability 1/(n + 1). So a
//! stack of which there are many candidates is sampled in proportion to the square root of their
//! number, and one that is new is sampled at once.

use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use heapledger_core::StackId;

use crate::countdown;

/// The number of counters. Stacks that share one are sampled less, never more.
const COUNTERS: usize = 4096;
static SAMPLED: [AtomicU16; COUNTERS] = [const { AtomicU16::new(0) }; COUNTERS];
static IS_ON: AtomicBool = AtomicBool::new(false);

pub(crate) fn set(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
}

/// True if a block with this stack, which is due, is to be sampled.
pub(crate) fn accepts(stack: StackId) -> bool {
    !IS_ON.load(Ordering::Relaxed) || accepts_among(&SAMPLED, stack.0, countdown::random())
}

/// Decides the same with given counters and a random number.
fn accepts_among(counters: &[AtomicU16; COUNTERS], stack: u32, random: u64) -> bool {
    let index = stack.wrapping_mul(0x9e37_79b1) >> 20;
    let Some(counter) = counters.get(index as usize % COUNTERS) else { return true };
    let times = counter.load(Ordering::Relaxed);
    let is_accepted = random.is_multiple_of(u64::from(times) + 1);
    if is_accepted {
        counter.store(times.saturating_add(1), Ordering::Relaxed);
    }
    is_accepted
}

#[cfg(test)]
mod tests;
