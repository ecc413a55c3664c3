//! Keeps the allocations of a dump out of the accounting of the program in which it is made.
//!
//! A provider is the program's own code, and its allocations count. The dump into which it writes
//! belongs to Heapledger: its texts and tables do not count. The owner of a ledger in the process
//! sets the untracked scope in which they are allocated; without a ledger there is none.

use std::sync::OnceLock;

/// Calls its argument once, in a scope whose allocations are not counted.
type Scope = fn(&mut dyn FnMut());

static SCOPE: OnceLock<Scope> = OnceLock::new();

/// Sets the scope, for the whole process and for good.
#[doc(hidden)]
pub fn set_scope(scope: Scope) {
    let _ = SCOPE.set(scope);
}

/// Runs code of Heapledger's that a provider calls.
pub(super) fn scope<R>(run: impl FnOnce() -> R) -> R {
    let Some(scope) = SCOPE.get() else { return run() };
    let (mut run, mut result) = (Some(run), None);
    scope(&mut || result = run.take().map(|run| run()));
    result.expect("a scope calls what it is given")
}
