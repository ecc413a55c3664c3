//! Processes that are about to exit, and wait for a resident snapshot.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A process that is about to exit, and waits until its resident memory has been read: until this
/// is dropped, which closes the connection.
#[derive(Debug)]
pub(crate) struct Exiting {
    pub(crate) pid: u32,
    /// The stamp of the exit: events before it count.
    pub(crate) stamp: u64,
    #[expect(dead_code, reason = "it is closed at the end of the wait")]
    pub(crate) connection: OwnedFd,
    pub(crate) since: Instant,
    /// The time after which the process waits no longer.
    pub(crate) wait: Duration,
}

impl Exiting {
    /// True if the process waits no longer.
    pub(crate) fn is_late(&self) -> bool {
        self.since.elapsed() >= self.wait
    }
}
