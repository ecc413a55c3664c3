//! All that is live, at one moment.

use core::fmt;

use heapledger_core::sys;
use heapledger_ledger::{OutOfMemory, Snapshot};

use crate::LEDGER;
use crate::block::query;

/// Why there is no snapshot.
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

/// A copy of the ledger, for which all events waited while it was made. No signal handler runs in this thread meanwhile:
/// it might allocate, and would wait for itself.
///
/// # Errors
///
/// See [`SnapshotError`].
pub fn snapshot() -> Result<Snapshot, SnapshotError> {
    query(|| sys::without_signals(|| LEDGER.snapshot(sys::monotonic_nanoseconds)))
        .ok_or(SnapshotError::Interrupted)?
        .map_err(|OutOfMemory| SnapshotError::OutOfMemory)
}
