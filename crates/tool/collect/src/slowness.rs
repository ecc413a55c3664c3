//! Tells a recorder that is slow from one that is stalled.
//!
//! Programs stop waiting for the recorder if its heartbeat stands still. On a busy machine the
//! collector may need seconds for an iteration, because it rarely gets a processor. A thread beats
//! for it as long as the collector could run: while it waits for a disk, or is stopped, nobody
//! beats.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use heapledger_wire::session::SessionPage;

use crate::shared::Page;

/// The maximum time between two polls.
const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// The processor time that the collector may take for an iteration. With more it does not count as
/// slow: something is wrong.
const PROCESSOR_TIME_MAX: Duration = Duration::from_secs(20);

/// The thread that beats for a slow collector, until this is dropped.
#[derive(Debug)]
pub(crate) struct SlownessWatch {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SlownessWatch {
    /// Watches the calling thread, which is the collector's.
    pub(crate) fn start(page: Arc<Page>, stall_timeout: Duration) -> SlownessWatch {
        let path = format!("/proc/self/task/{}/stat", rustix::thread::gettid().as_raw_nonzero());
        let is_over = Arc::new(AtomicBool::new(false));
        let interval = (stall_timeout / 4).min(INTERVAL_MAX);
        let is_over_too = Arc::clone(&is_over);
        let watch = move || {
            let mut beats = Beats::default();
            while !is_over_too.load(Ordering::Acquire) {
                thread::park_timeout(interval);
                if let Some(status) = fs::read_to_string(&path).ok().as_deref().and_then(Status::parse) {
                    beats.look(&page, status);
                }
            }
        };
        // Without the thread, a slow collector counts as a stalled one.
        let thread = thread::Builder::new().name("slowness".into()).spawn(watch).ok();
        SlownessWatch { is_over, thread }
    }
}

impl Drop for SlownessWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Status {
    /// True if it runs or waits for a processor.
    is_runnable: bool,
    /// The processor time that it has used.
    used: Duration,
}

impl Status {
    /// Parses the text of a file `stat`: see proc_pid_stat(5).
    fn parse(stat: &str) -> Option<Status> {
        // The name of the thread, in parentheses, may have any characters in it.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let is_runnable = fields.next()? == "R";
        let [user, system] = [fields.nth(10)?, fields.next()?].map(|ticks| ticks.parse::<u64>().ok());
        let ticks = user?.saturating_add(system?);
        let milliseconds = ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second();
        Some(Status { is_runnable, used: Duration::from_millis(milliseconds) })
    }
}

/// The beats made for the collector since its own latest one.
#[derive(Debug, Default)]
struct Beats {
    /// The heartbeat after the latest look.
    pulse: u32,
    /// The collector's processor time at its own latest beat, as far as it was seen.
    used: Duration,
}

impl Beats {
    fn look(&mut self, page: &SessionPage, status: Status) {
        let pulse = page.pulse();
        if pulse != self.pulse {
            (self.pulse, self.used) = (pulse, status.used);
        } else if status.is_runnable && status.used.saturating_sub(self.used) <= PROCESSOR_TIME_MAX {
            page.beat();
            self.pulse = pulse.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_thread() {
        let stat = "7 (a) R b) R 1 7 7 0 -1 4194304 2 0 0 0 30 12 0 0 20 0 3 0 99";
        let status = Status::parse(stat).unwrap();
        let ticks = rustix::param::clock_ticks_per_second();
        assert_eq!(status, Status { is_runnable: true, used: Duration::from_millis(42_000 / ticks) });
        assert!(!Status::parse(&stat.replace(") R 1", ") D 1")).unwrap().is_runnable);
        assert_eq!((Status::parse(""), Status::parse("7 (a) R 1 2")), (None, None));
        let own = fs::read_to_string("/proc/thread-self/stat").unwrap();
        assert!(Status::parse(&own).unwrap().is_runnable);
    }

    #[test]
    fn beats_are_made_for_a_collector_that_could_run() {
        let page = crate::session::page(0, Default::default(), None).unwrap();
        let mut beats = Beats::default();
        let runnable = |seconds| Status { is_runnable: true, used: Duration::from_secs(seconds) };
        let mut beats_at = |status| {
            let before = page.pulse();
            beats.look(&page, status);
            page.pulse() != before
        };
        assert!(beats_at(runnable(1)) && beats_at(runnable(2)));
        assert!(!beats_at(Status { is_runnable: false, ..runnable(2) }));
        assert!(beats_at(runnable(20)) && !beats_at(runnable(21)));
        page.beat();
        // Its own beat is enough, and it may take as much again.
        assert!(!beats_at(runnable(30)) && beats_at(runnable(50)) && !beats_at(runnable(51)));
    }
}
