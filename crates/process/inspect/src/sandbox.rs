//! A program that puts itself in a sandbox, in which a system call of ours could kill it.

use heapledger_core::sandbox;

/// Runs `enter`, which puts the process in a sandbox (`seccomp` with a filter), and returns its result.
///
/// The kernel may answer a system call by killing the process, and cannot be asked which ones. So from before `enter` on
/// the ledger makes none, unless `enter` fails: it goes on in the memory that it has, and counts in
/// [`Losses`](crate::Losses) what it has no room for. Threads of Heapledger's that listen, serve or send make the calls
/// that sockets take: stop them before, or allow these calls.
///
/// In strict mode a thread may not even read the time stamp counter: [stop](crate::Ledger::stop) the ledger before. In C
/// nothing is to be called: libheapledger sees `prctl` and `syscall`.
///
/// # Errors
///
/// Those of `enter`.
///
/// ```
/// # fn load_filter() -> std::io::Result<()> { Err(std::io::ErrorKind::Unsupported.into()) }
/// if let Err(error) = heapledger_inspect::enter_sandbox(load_filter) {
///     eprintln!("no sandbox: {error}");
/// }
/// ```
pub fn enter_sandbox<T, E>(enter: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    sandbox::enter();
    let result = enter();
    if result.is_err() {
        sandbox::refused();
    }
    result
}
