//! Memory that is read from outside.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::error::{HeapMapError, Result};

/// The memory of a process, or an imitation. Several threads may read it at once.
pub(crate) trait Memory: Sync {
    /// Fills a buffer with the memory at an address.
    ///
    /// # Errors
    ///
    /// Fails if a part of it is not there.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<()>;
}

impl Memory for File {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_exact_at(buffer, address).map_err(|source| HeapMapError::Unreadable { address, source })
    }
}

/// The memory of a running process, for reading much of it.
///
/// The memory is read by `process_vm_readv`, which copies once and takes the kernel's locks once
/// for many pages. `/proc/PID/mem` copies twice, page by page; it is used for what the call
/// refuses: memory that the process itself may not read, and all memory if a filter of system calls
/// forbids it.
#[derive(Debug)]
pub(crate) struct ProcessMemory {
    process: libc::pid_t,
    file: File,
}

impl ProcessMemory {
    /// Opens the memory of a process, which takes the rights of a debugger.
    pub(crate) fn open(process: u32) -> io::Result<ProcessMemory> {
        let file = File::open(format!("/proc/{process}/mem"))?;
        // No process has a number above this type's.
        let process = libc::pid_t::try_from(process).map_err(|_| io::ErrorKind::NotFound)?;
        Ok(ProcessMemory { process, file })
    }

    /// Copies memory up to the first page that the call does not read, and returns the number of
    /// bytes: 0 if there are none or if the call is refused.
    fn copy(&self, address: u64, buffer: &mut [u8]) -> usize {
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let remote = libc::iovec { iov_base: address as usize as *mut c_void, iov_len: buffer.len() };
        // SAFETY: `process_vm_readv` requires that the local ranges may be written to: the only one
        // is the buffer, which is borrowed for the call. The kernel checks the remote range and
        // only reads it. Each count is 1, for one structure.
        let count = unsafe { libc::process_vm_readv(self.process, &raw const local, 1, &raw const remote, 1, 0) };
        usize::try_from(count).unwrap_or(0).min(buffer.len())
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        let copied = self.copy(address, buffer);
        match buffer.get_mut(copied..) {
            Some(rest) if !rest.is_empty() => self.file.read(address + copied as u64, rest),
            _ => Ok(()),
        }
    }
}
/// Returns `N` bytes at an offset. `None` if they are not all there.
pub(crate) fn bytes<const N: usize>(from: &[u8], offset: usize) -> Option<[u8; N]> {
    from.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

/// Returns the number of 8 bytes at an offset.
pub(crate) fn word(from: &[u8], offset: usize) -> Option<u64> {
    bytes(from, offset).map(u64::from_le_bytes)
}

/// Returns the number of 8 bytes at an address.
pub(crate) fn word_at(memory: &dyn Memory, address: u64) -> Result<u64> {
    let mut buffer = [0; 8];
    memory.read(address, &mut buffer)?;
    Ok(u64::from_le_bytes(buffer))
}
