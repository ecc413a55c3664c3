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
pub const POLL_MILLISECONDS: u32 = 20;
/// The maximum time that one poll adds, in nanoseconds.
const POLL_NANOSECONDS_MAX: u64 = 2 * POLL_MILLISECONDS as u64 * 1_000_000;
/// The time after which a thread stops waiting in a sandbox, where it can only spin.
const SPIN_NANOSECONDS_MAX: u64 = 1_000_000_000;

/// The time for which a heartbeat has not changed.
#[derive(Clone, Copy, Debug)]
pub struct Watchdog {
    beat: u32,
    polled_at: u64,
    unchanged_for: u64,
}

impl Watchdog {
    /// Returns a watchdog over a heartbeat that is at `beat`.
    pub fn new(beat: u32) -> Watchdog {
        Watchdog { beat, polled_at: sys::monotonic_nanoseconds(), unchanged_for: 0 }
    }

    /// Polls the heartbeat after a wait. Returns for how many nanoseconds it has not changed.
    pub fn poll(&mut self, beat: u32) -> u64 {
        if sandbox::is_entered() {
            return self.poll_after(beat, sys::SPIN_NANOSECONDS);
        }
        let now = sys::monotonic_nanoseconds();
        let passed = now.saturating_sub(self.polled_at);
        self.polled_at = now;
        self.poll_after(beat, passed)
    }

    fn poll_after(&mut self, beat: u32, passed: u64) -> u64 {
        if beat == self.beat {
            self.unchanged_for += passed.min(POLL_NANOSECONDS_MAX);
        } else {
            (self.beat, self.unchanged_for) = (beat, 0);
        }
        self.unchanged_for
    }

    /// Polls a heartbeat of a session after a wait. True if threads no longer wait for it, which
    /// the session page then says too.
    pub fn has_stalled(&mut self, session: &SessionPage, beat: u32) -> bool {
        if session.is_stalled() {
            return true;
        }
        let unchanged_for = self.poll(beat);
        let limit = match session.stall_milliseconds.load(Ordering::Relaxed) {
            _ if sandbox::is_entered() => SPIN_NANOSECONDS_MAX,
            0 => return false,
            milliseconds => u64::from(milliseconds) * 1_000_000,
        };
        let has_stalled = unchanged_for >= limit;
        if has_stalled {
            session.stall();
        }
        has_stalled
    }
}

#[cfg(test)]
mod tests;
