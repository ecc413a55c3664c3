//! Whether providers keep account of their blocks.

use std::sync::atomic::{AtomicBool, Ordering};

use heapledger_report::between::untracked;

use crate::{malloc, registry};

static IS_PROFILING: AtomicBool = AtomicBool::new(false);

/// Has all providers keep account of their blocks from now on, those that are registered later too; or not any more. For
/// the heap of `malloc` it starts the [ledger](heapledger_inspect::Ledger), exact, if it does not run yet: for a sampled one, start it before.
///
/// To be called as early as possible: of what was allocated before, nothing is known. `HEAPLEDGER_HEAP_PROFILING=1` in the
/// environment is earlier.
pub fn set_heap_profiling(is_enabled: bool) {
    note(is_enabled);
    untracked::scope(|| {
        malloc::set_heap_profiling(is_enabled);
        registry::entries().iter().for_each(|entry| entry.tell());
    });
}

/// Whether they do.
pub fn is_heap_profiling() -> bool {
    IS_PROFILING.load(Ordering::Acquire)
}

/// Providers are told when somebody looks at them.
pub(crate) fn note(is_enabled: bool) {
    IS_PROFILING.store(is_enabled, Ordering::Release);
}
