//! The state that children inherit: kept from the parent's fork event until the child introduces
//! itself.

use std::collections::VecDeque;
use std::time::Duration;

use heapledger_ledger::Ledger;
use heapledger_recording::{ImageId, Time};

use crate::mapped::Mapped;
use crate::tree::Tree;

/// The maximum number of copies that wait for their children.
const POINTS_MAX: usize = 64;
/// The maximum memory of these copies together, in bytes.
const BYTES_MAX: u64 = 1 << 30;
/// The time for which a copy is kept: a fork may have failed.
pub(crate) const CHILD_TIMEOUT: Duration = Duration::from_secs(10);

/// The time in which a child begins on an idle machine.
const CHILD_START_TIME: Duration = Duration::from_millis(100);

/// Returns the time to wait for a forked child that has not introduced itself when the command has
/// ended. The more threads share a processor, the later the child gets one.
pub(crate) fn child_start_timeout() -> Duration {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let sharing = runnable(&load).unwrap_or(1) / processors as u32;
    CHILD_TIMEOUT.min(CHILD_START_TIME * sharing.max(1))
}

/// Returns the number of threads that run or wait for a processor: the fourth field of
/// `/proc/loadavg`, before its slash (proc_loadavg(5)).
fn runnable(load: &str) -> Option<u32> {
    load.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// A parent at the moment of a fork.
#[derive(Debug)]
pub(crate) struct ForkPoint {
    pub(crate) image: ImageId,
    /// The number of the fork event.
    pub(crate) sequence: u32,
    pub(crate) time: Time,
    /// The ledger, already converted to the child's.
    pub(crate) ledger: Ledger,
    /// The tree, still the parent's.
    pub(crate) tree: Tree,
    /// The mappings, if they are recorded.
    pub(crate) mappings: Option<Mapped>,
}

/// The forks whose children have not come yet, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Forks(VecDeque<ForkPoint>);

impl Forks {
    pub(crate) fn add(&mut self, point: ForkPoint) {
        self.expire(point.time);
        self.0.push_back(point);
        // The newest is kept, whatever its size.
        while self.0.len() > POINTS_MAX || (self.0.len() > 1 && self.bytes() > BYTES_MAX) {
            self.0.pop_front();
        }
    }

    /// Removes and returns the parent's state at a fork, if it is still there. Each fork can be
    /// claimed only once.
    pub(crate) fn claim(&mut self, image: ImageId, sequence: u32) -> Option<ForkPoint> {
        let at = self.0.iter().position(|point| point.image == image && point.sequence == sequence)?;
        self.0.remove(at)
    }

    /// Drops the forks whose children did not come in time.
    pub(crate) fn expire(&mut self, now: Time) {
        while self.0.front().is_some_and(|point| point.time.0.saturating_add(CHILD_TIMEOUT.as_nanos() as u64) < now.0) {
            self.0.pop_front();
        }
    }

    /// Returns the time of the latest fork whose child has not come.
    pub(crate) fn newest(&self) -> Option<Time> {
        self.0.back().map(|point| point.time)
    }

    fn bytes(&self) -> u64 {
        let of_mappings = |point: &ForkPoint| point.mappings.as_ref().map_or(0, Mapped::bytes_in_memory);
        self.0.iter().map(|point| point.ledger.bytes_mapped().0 + of_mappings(point)).sum()
    }
}

#[cfg(test)]
mod tests;
