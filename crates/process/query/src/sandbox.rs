//! Entering a sandbox, in which a system call of Heapledger could kill the program.

use heapledger_core::sandbox;

/// Runs `enter`, which puts the process in a sandbox (`seccomp` with a filter), and returns its
/// result.
///
/// In a sandbox the kernel may answer a system call by killing the process, and there is no way to
/// ask which calls are allowed. So the ledger makes no system calls from before `enter` on, unless
/// `enter` fails: it uses the memory that it has, and counts the events without room in
/// [`Losses`](crate::Losses). Heapledger's threads that listen, serve or send make the system calls
/// that sockets need: stop these threads before, or allow these calls.
///
/// In strict mode a thread may not even read the time stamp counter: [stop](crate::Ledger::stop)
/// the ledger before. C programs need not call anything: libheapledger sees `prctl` and `syscall`.
///
/// # Errors
///
/// The errors of `enter`.
///
/// ```
/// # fn load_filter() -> std::io::Result<()> { Err(std::io::ErrorKind::Unsupported.into()) }
/// if let Err(error) = heapledger_query::enter_sandbox(load_filter) {
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
