//! The switch for the providers' accounting of their blocks.

use std::sync::atomic::{AtomicBool, Ordering};

use heapledger_reporters::internal::untracked;

use crate::{malloc, registry};

static IS_PROFILING: AtomicBool = AtomicBool::new(false);

/// Turns the providers' accounting of their blocks on or off, also for providers that are
/// registered later. For the heap of `malloc` it starts the [ledger](heapledger_query::Ledger),
/// exact, if it does not run yet: for a sampled one, start it before.
///
/// Call it as early as possible, since earlier allocations are not known.
/// `HEAPLEDGER_HEAP_PROFILING=1` in the environment takes effect before that.
pub fn set_heap_profiling(is_enabled: bool) {
    set_is_profiling(is_enabled);
    untracked::scope(|| {
        malloc::set_heap_profiling(is_enabled);
        registry::entries().iter().for_each(|entry| entry.notify_profiling(is_heap_profiling()));
    });
}

/// True if providers keep account of their blocks.
pub fn is_heap_profiling() -> bool {
    IS_PROFILING.load(Ordering::Acquire)
}

/// Providers are told when somebody looks at them.
pub(crate) fn set_is_profiling(is_enabled: bool) {
    IS_PROFILING.store(is_enabled, Ordering::Release);
}
