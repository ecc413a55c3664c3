//! Functions for Heapledger's own crates, not part of the public API.

pub use heapledger_annotate::{untracked, untracked_thread};

pub use crate::builtin::Figures;
pub use crate::children::{PendingAnswers, ask_all, descendants_deadline};
pub use crate::collect::program;
pub use crate::fork::{DUMP_LOCK, ForkLock, ForkLockGuard, lock_dumps};
pub use crate::listen::{MAKE_DUMP, MakeDump};
use crate::{Report, ReportOptions};

/// Collects the reports for a memory dump. Call this before the dump begins: collections may wait
/// for dumps.
pub fn reports_for_dump(options: &ReportOptions) -> Vec<Report> {
    crate::collect::for_dump(options)
}
