//! The limit on the memory that the tables of a register map.

use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::Bytes;

use crate::mapped::{OutOfMemory, Zeroed};
use crate::register::Register;

/// The limit on mapped memory.
pub(crate) struct Budget {
    mapped: AtomicU64,
    max: AtomicU64,
}

impl Budget {
    pub(crate) const fn new() -> Budget {
        Budget { mapped: AtomicU64::new(0), max: AtomicU64::new(u64::MAX) }
    }

    /// Returns the bytes that are mapped.
    pub(crate) fn bytes_mapped(&self) -> Bytes {
        Bytes(self.mapped.load(Ordering::Relaxed))
    }

    /// Sets the most bytes that may be mapped.
    pub(crate) fn set_bytes_max(&self, bytes: Bytes) {
        self.max.store(bytes.0, Ordering::Relaxed);
    }

    /// Notes that nothing is mapped any more.
    pub(crate) fn clear(&self) {
        self.mapped.store(0, Ordering::Relaxed);
    }

    /// Runs an operation that will map this many bytes, if they are left.
    #[inline(always)]
    pub(crate) fn within<R>(
        &self,
        bytes: usize,
        map: impl FnOnce() -> Result<R, OutOfMemory>,
    ) -> Result<R, OutOfMemory> {
        if bytes == 0 {
            return map();
        }
        self.take(bytes)?;
        map().inspect_err(|_| self.release(bytes))
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.mapped.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Makes room in a table.
    #[cold]
    pub(crate) fn grow<D: Zeroed>(&self, register: &mut Register<D>) -> Result<(), OutOfMemory> {
        self.grow_to(register, 0)
    }

    /// Makes room for `length` entries, at least for more than now.
    #[cold]
    pub(crate) fn grow_to<D: Zeroed>(&self, register: &mut Register<D>, length: usize) -> Result<(), OutOfMemory> {
        self.within(register.bytes_grown(length) - register.bytes_mapped(), || register.grow_to(length))
    }

    /// Takes this many bytes, if they are left.
    fn take(&self, bytes: usize) -> Result<(), OutOfMemory> {
        let bytes = bytes as u64;
        let mapped = self.mapped.fetch_add(bytes, Ordering::Relaxed);
        if mapped.saturating_add(bytes) > self.max.load(Ordering::Relaxed) {
            self.release(bytes as usize);
            return Err(OutOfMemory);
        }
        Ok(())
    }
}
