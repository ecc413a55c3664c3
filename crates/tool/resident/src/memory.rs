//! Memory that is read from outside.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::{HeapMapError, Result};

/// The memory of a process, or an imitation.
pub trait Memory {
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
