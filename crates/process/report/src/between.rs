//! For Heapledger's own crates: no part of what is offered.

pub use heapledger_context::{quiet, untracked};

pub use crate::builtin::Figures;
pub use crate::children::{Asked, ask_all, deadline_of_others};
pub use crate::collect::program;
pub use crate::fork::{DUMPING, Mine, Turn, dumps};
pub use crate::listen::{MAKE_DUMP, MakeDump};
use crate::{Options, Report};

/// Collects the reports for a memory dump. Call this before the dump begins: collections may wait
/// for dumps.
pub fn reports_for_dump(options: &Options) -> Vec<Report> {
    crate::collect::for_dump(options)
}
