//! The errors of reading a process.

use std::io;

/// The result of reading a heap.
pub(crate) type Result<T, E = HeapMapError> = std::result::Result<T, E>;

/// The reasons why the heap of a process cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapMapError {
    /// There is no process with this number, or it has no memory: it has ended and waits for its
    /// parent, or is a thread of the kernel.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The kernel does not let this user read the process.
    #[error("the memory of process {0} may not be read by this user")]
    NotAllowed(u32),
    /// None of the files that the process has mapped has the allocator.
    #[error("process {0} does not use Heapledger's allocator")]
    NoAllocator(u32),
    /// A part of the process's memory cannot be read.
    #[error("the memory at {address:#x} cannot be read")]
    Unreadable {
        /// The address.
        address: u64,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The memory does not have the contents that the allocator writes.
    #[error("the allocator's memory at {address:#x} makes no sense: {reason}")]
    Corrupt {
        /// The address.
        address: u64,
        /// The defect.
        reason: &'static str,
    },
    /// The heap is larger than this version shows.
    #[error("the heap has more than {0} chunks of memory")]
    TooLarge(usize),
}

/// The reasons why the resident memory of a process cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResidentError {
    /// There is no process with this number, or it has no memory: it has ended and waits for its
    /// parent, or is a thread of the kernel.
    #[error("there is no process {0} with memory")]
    NoProcess(u32),
    /// The kernel does not let this user see the process's memory.
    #[error("the memory of process {0} may not be read by this user")]
    NotAllowed(u32),
    /// The kernel does not say what the mappings of processes hold.
    #[error("the kernel does not show `{file}` of the process")]
    NotTold {
        /// The file in `/proc/PID`.
        file: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}
