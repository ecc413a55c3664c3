//! Memory shared with the observed programs: memfds, reserved and mapped.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use heapledger_core::sys;
use heapledger_wire::ring::Ring;
use heapledger_wire::session::{PAGE_LENGTH, SessionPage};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

/// Returns a memfd with reserved pages that can neither shrink nor grow, so that touching a mapping
/// of it never fails.
fn reserved_memory(length: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag; some later ones are configured to require it.
    let fd = rustix::fs::memfd_create(c"heapledger", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(c"heapledger", flags))?;
    rustix::fs::ftruncate(&fd, length as u64)?;
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, length as u64)?;
    // If a program shrank the file, the next process to touch the mapping, such as this one, would
    // be killed.
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// A shared mapping; unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping is plain shared memory, which is not tied to a thread; it can be unmapped by
// any thread.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives access to nothing but the address and the length.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, length: usize) -> io::Result<Mapping> {
        let start = sys::map_shared(fd.as_raw_fd(), length).map_err(|error| io::Error::from_raw_os_error(error.0))?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped by `map_shared` in `new` with this length. References and
        // rings made from the mapping do not outlive it: `Page` borrows from itself, and
        // `SharedRing` lends its ring by reference only (see there).
        unsafe { sys::unmap(self.start.as_ptr(), self.length) };
    }
}

/// The session page.
#[derive(Debug)]
pub(crate) struct Page {
    fd: OwnedFd,
    mapping: Mapping,
}

impl Page {
    pub(crate) fn new() -> io::Result<Page> {
        let fd = reserved_memory(PAGE_LENGTH)?;
        let mapping = Mapping::new(fd.as_fd(), PAGE_LENGTH)?;
        Ok(Page { fd, mapping })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::ops::Deref for Page {
    type Target = SessionPage;

    fn deref(&self) -> &SessionPage {
        const { assert!(size_of::<SessionPage>() <= PAGE_LENGTH) };
        // SAFETY: the mapping is page-aligned, `PAGE_LENGTH` long, and lives as long as `self`. A
        // `SessionPage` is made of atomics only, for which any content is valid, whatever other
        // processes write.
        unsafe { self.mapping.start.cast::<SessionPage>().as_ref() }
    }
}

/// A ring and its mapping.
#[derive(Debug)]
pub(crate) struct SharedRing {
    ring: Ring,
    // Dropped after `ring`, which is a view of it and is lent out by reference only.
    mapping: Mapping,
    /// The memfd, if it is kept to be sent again.
    fd: Option<OwnedFd>,
}

impl SharedRing {
    /// Returns a new ring of `capacity` bytes, a power of two of at least 512, and the memfd to
    /// send to its producer.
    pub(crate) fn new(capacity: usize) -> io::Result<(SharedRing, OwnedFd)> {
        let length = Ring::mapping_length(capacity);
        let fd = reserved_memory(length)?;
        let mapping = Mapping::new(fd.as_fd(), length)?;
        // SAFETY: the mapping is readable and writable and lives as long as the `SharedRing`. The
        // view is `Copy`, so the contract holds because no copy of it leaves this module: `ring`
        // lends it by reference. It is used through `Ring`'s own methods, which use only atomics.
        let ring = unsafe { Ring::new(mapping.start, length) }.ok_or(io::ErrorKind::InvalidInput)?;
        Ok((SharedRing { ring, mapping, fd: None }, fd))
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the length of the mapping in bytes.
    pub(crate) fn length(&self) -> usize {
        self.mapping.length
    }
}

/// Rings of processes that have ended, to be reused: most of the cost of a ring is clearing its
/// pages.
///
/// A producer that still exists would write into another's ring. So only rings are pooled that no
/// other process can have mapped, unless it is malicious: the rings of images that ended and never
/// forked.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<SharedRing>>);

/// The maximum number of rings in the pool.
const POOL_MAX: usize = 32;

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Vec<SharedRing>> {
        // The vector is consistent between any two calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a ring of this capacity from the pool, or else a new one, which can be pooled later.
    pub(crate) fn take(&self, capacity: usize) -> io::Result<(SharedRing, OwnedFd)> {
        let length = Ring::mapping_length(capacity);
        let pooled = {
            let mut pool = self.lock();
            let at = pool.iter().position(|ring| ring.length() == length);
            at.map(|at| pool.swap_remove(at))
        };
        let mut ring = match pooled {
            Some(ring) => ring,
            None => {
                let (mut ring, fd) = SharedRing::new(capacity)?;
                ring.fd = Some(fd);
                ring
            }
        };
        // If the descriptor cannot be duplicated, the ring is used only once.
        let fd = match ring.fd.as_ref().map(OwnedFd::try_clone) {
            Some(Ok(fd)) => fd,
            _ => ring.fd.take().ok_or(io::ErrorKind::NotFound)?,
        };
        Ok((ring, fd))
    }

    /// Puts a ring into the pool that is not used any more.
    pub(crate) fn give(&self, ring: SharedRing) {
        let mut pool = self.lock();
        if ring.fd.is_some() && pool.len() < POOL_MAX {
            ring.ring.reset();
            pool.push(ring);
        }
    }
}

#[cfg(test)]
mod tests;
