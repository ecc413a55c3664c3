//! The errors of work on a program from outside.

use std::io;

/// The reason why a library was not placed, or a process not worked on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    /// The library's file cannot be used.
    #[error("the library to be placed is damaged: {reason}")]
    Image {
        /// The reason.
        reason: String,
    },
    /// The process has ended.
    #[error("the process has ended")]
    Gone,
    /// A request to the kernel failed.
    #[error("{what} failed: {source}")]
    Request {
        /// The request.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// A system call that the process was made to make failed.
    #[error("the process cannot {what}: {source}")]
    Call {
        /// The attempt, as the rest of "the process cannot …".
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// Memory of the process cannot be read or written.
    #[error("memory of the process at {address:#x} cannot be {done}: {source}")]
    Memory {
        /// `read` or `written`.
        done: &'static str,
        /// The address.
        address: u64,
        /// The reason.
        source: io::Error,
    },
    /// The process has started another program in its place.
    #[error("the process has started another program in its place")]
    OtherProgram,
    /// Another process debugs or traces it.
    #[error("the process is being traced by process {tracer}")]
    Traced {
        /// The one that traces it.
        tracer: u32,
    },
    /// The kernel does not let this process debug the other one.
    #[error("the process cannot be traced")]
    Denied {
        /// The kernel's answer.
        source: io::Error,
    },
    /// A thread did not stop in time: no processor ran it, or it waits for a device.
    #[error("thread {tid} did not stop within {seconds} s")]
    NotStopped {
        /// The thread.
        tid: u32,
        /// The time for which it was waited for, in seconds.
        seconds: u64,
    },
    /// The process has no mapping of the kernel's code that makes system calls.
    #[error("the process has no vDSO with a system call")]
    NoVdso,
}

impl InjectError {
    /// Returns a function that makes the error of a request.
    pub(crate) fn request(what: &'static str) -> impl FnOnce(io::Error) -> InjectError {
        move |source| match source.raw_os_error() {
            Some(libc::ESRCH) => InjectError::Gone,
            _ => InjectError::Request { what, source },
        }
    }
}

/// The result of work on a program.
pub type Result<T, E = InjectError> = std::result::Result<T, E>;
