//! Tells a recorder that is slow from one that is stalled.
//!
//! Programs stop waiting for the recorder if its heartbeat stands still. On a busy machine the
//! collector may need seconds for an iteration, because it rarely gets a processor. A thread beats
//! for it as long as the collector could run: while it waits for a disk, or is stopped, nobody
//! beats.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use heapledger_wire::session::SessionPage;

use crate::process::Stat;
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
                if let Some(collector) = Stat::read(&path) {
                    beats.poll(&page, collector.state == 'R', collector.used);
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

/// The beats made for the collector since its own latest one.
#[derive(Debug, Default)]
struct Beats {
    /// The heartbeat after the latest poll.
    heartbeat: u32,
    /// The collector's processor time at its own latest beat, as far as it was seen.
    used: Duration,
}

impl Beats {
    /// Beats if the collector has not, but could run. `used` is its processor time.
    fn poll(&mut self, page: &SessionPage, is_runnable: bool, used: Duration) {
        let heartbeat = page.heartbeat();
        if heartbeat != self.heartbeat {
            (self.heartbeat, self.used) = (heartbeat, used);
        } else if is_runnable && used.saturating_sub(self.used) <= PROCESSOR_TIME_MAX {
            page.beat();
            self.heartbeat = heartbeat.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests;
