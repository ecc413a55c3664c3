//! A copy of all that is live, at one moment.

use core::fmt;

use heapledger_core::{Bytes, sys};
use heapledger_ledger::{OutOfMemory, Read, Snapshot};

use crate::LEDGER;
use crate::block::query;

/// The reason why there is no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The system gives no memory for the copy.
    OutOfMemory,
    /// This is a signal handler that interrupted the ledger.
    Interrupted,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            SnapshotError::OutOfMemory => "no snapshot of the ledger: the system gives no memory for it",
            SnapshotError::Interrupted => {
                "no snapshot of the ledger: asked for in a signal handler that interrupted it"
            }
        })
    }
}

impl core::error::Error for SnapshotError {}

/// Copies the ledger, with at most `contents_max` bytes of the contents of its blocks. All events
/// wait while the copy is made. No signal handler runs in this thread meanwhile: it might allocate,
/// and would wait for itself.
///
/// # Errors
///
/// See [`SnapshotError`].
pub fn snapshot(contents_max: Option<Bytes>) -> Result<Snapshot, SnapshotError> {
    let contents = contents_max.map(|bytes_max| (bytes_max, sys::read_own_pieces as Read));
    query(|| sys::without_signals(|| LEDGER.snapshot(sys::monotonic_nanoseconds, contents)))
        .ok_or(SnapshotError::Interrupted)?
        .map_err(|OutOfMemory| SnapshotError::OutOfMemory)
}
