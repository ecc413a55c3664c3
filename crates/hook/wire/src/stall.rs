//! How a thread detects that the recorder is stalled: stopped, or waiting for a disk.
//!
//! The recorder has a heartbeat in the session page. A waiting thread polls it, and adds up the
//! time in which it did not change. Only time in which the thread itself ran counts: each poll adds
//! at most twice the length of a wait. So if both were stopped (a stopped process group, a frozen
//! control group, a suspended machine), that does not count as a stall.

use core::sync::atomic::Ordering;

use heapledger_core::{sandbox, sys};

use crate::session::SessionPage;

/// The time that a thread waits between two polls, in milliseconds.
pub const LOOK_MILLISECONDS: u32 = 20;
/// The maximum time that one poll adds, in nanoseconds.
const LOOK_NANOSECONDS_MAX: u64 = 2 * LOOK_MILLISECONDS as u64 * 1_000_000;
/// The time after which a thread stops waiting in a sandbox, where it can only spin.
const SPIN_NANOSECONDS_MAX: u64 = 1_000_000_000;

/// The time for which a heartbeat has not changed.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    beat: u32,
    looked_at: u64,
    still: u64,
}

impl Watch {
    /// Returns a watch over a heartbeat that is at `beat`.
    pub fn new(beat: u32) -> Watch {
        Watch { beat, looked_at: sys::monotonic_nanoseconds(), still: 0 }
    }

    /// Polls the heartbeat after a wait. Returns for how many nanoseconds it has not changed.
    pub fn look(&mut self, beat: u32) -> u64 {
        if sandbox::is_entered() {
            return self.look_after(beat, sys::SPIN_NANOSECONDS);
        }
        let now = sys::monotonic_nanoseconds();
        let passed = now.saturating_sub(self.looked_at);
        self.looked_at = now;
        self.look_after(beat, passed)
    }

    fn look_after(&mut self, beat: u32, passed: u64) -> u64 {
        if beat == self.beat {
            self.still += passed.min(LOOK_NANOSECONDS_MAX);
        } else {
            (self.beat, self.still) = (beat, 0);
        }
        self.still
    }

    /// Polls a heartbeat of a session after a wait. True if threads no longer wait for it, which
    /// the session page then says too.
    pub fn has_stalled(&mut self, session: &SessionPage, beat: u32) -> bool {
        if session.is_stalled() {
            return true;
        }
        let still = self.look(beat);
        let limit = match session.stall_milliseconds.load(Ordering::Relaxed) {
            _ if sandbox::is_entered() => SPIN_NANOSECONDS_MAX,
            0 => return false,
            milliseconds => u64::from(milliseconds) * 1_000_000,
        };
        let has_stalled = still >= limit;
        if has_stalled {
            session.stall();
        }
        has_stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_without_a_beat_counts_and_of_each_look_so_much() {
        let mut watch = Watch::new(7);
        assert_eq!(watch.look_after(7, 20_000_000), 20_000_000);
        assert_eq!(watch.look_after(7, 5_000), 20_005_000);
        // An hour in which the thread was stopped too.
        assert_eq!(watch.look_after(7, 3_600_000_000_000), 20_005_000 + LOOK_NANOSECONDS_MAX);
        assert_eq!(watch.look_after(8, 20_000_000), 0);
        assert_eq!(watch.look_after(8, 1), 1);
    }
}
