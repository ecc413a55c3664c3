//! Memory shared with the observed programs: memfds, reserved and mapped.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use heapledger_core::sys;
use heapledger_wire::ring::Ring;
use heapledger_wire::session::{PAGE_LENGTH, SessionPage};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

/// A memfd with its pages reserved, that can neither shrink nor grow: touching a mapping of it never fails.
fn reserved_memory(length: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag; some later ones are set up to insist on it.
    let fd = rustix::fs::memfd_create(c"heapledger", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(c"heapledger", flags))?;
    rustix::fs::ftruncate(&fd, length as u64)?;
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, length as u64)?;
    // A program that shrank the file would kill whoever touches the mapping after that: us.
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// A shared mapping; unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping is memory that belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives out nothing but the address.
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
        // SAFETY: mapped by `map_shared` in `new` with this length. Whoever hands out references or rings made from
        // the mapping keeps it alive as long (`Page` borrows from itself; `SharedRing` lends its ring by reference,
        // and see there).
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
        // SAFETY: the mapping is page-aligned, `PAGE_LENGTH` long, and lives as long as `self`. A `SessionPage` is
        // made of atomics only, for which any content is valid, whatever other processes write.
        unsafe { self.mapping.start.cast::<SessionPage>().as_ref() }
    }
}

/// A ring and its mapping.
#[derive(Debug)]
pub(crate) struct SharedRing {
    ring: Ring,
    // Goes after `ring`, which is a view of it and is lent out by reference only.
    mapping: Mapping,
    /// The memfd, where it is kept to be sent again.
    fd: Option<OwnedFd>,
}

impl SharedRing {
    /// A new ring of `capacity` bytes, a power of two of at least 512, and the memfd to send to its producer.
    pub(crate) fn new(capacity: usize) -> io::Result<(SharedRing, OwnedFd)> {
        let length = Ring::mapping_length(capacity);
        let fd = reserved_memory(length)?;
        let mapping = Mapping::new(fd.as_fd(), length)?;
        // SAFETY: the mapping is readable and writable and lives as long as the `SharedRing`. The view is `Copy`, so
        // this is what keeps the contract: no copy of it leaves this module, `ring` lends it by reference. It is
        // used through `Ring`'s own methods, which are atomics only.
        let ring = unsafe { Ring::new(mapping.start, length) }.ok_or(io::ErrorKind::InvalidInput)?;
        Ok((SharedRing { ring, mapping, fd: None }, fd))
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Bytes of the mapping.
    pub(crate) fn length(&self) -> usize {
        self.mapping.length
    }
}

/// Rings whose process is gone, for the next ones: most of what a ring costs is clearing its pages.
///
/// A producer that is still there would write into another's ring. So only rings come here that nobody else can have
/// mapped, except who means to do harm: those of images that ended and never forked.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<SharedRing>>);

/// The most rings in the pool.
const POOL_MAX: usize = 32;

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Vec<SharedRing>> {
        // A vector is whole between any two calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ring of this capacity from the pool, or else a new one. It can come back.
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
        // Without a descriptor for the copy it is used once.
        let fd = match ring.fd.as_ref().map(OwnedFd::try_clone) {
            Some(Ok(fd)) => fd,
            _ => ring.fd.take().ok_or(io::ErrorKind::NotFound)?,
        };
        Ok((ring, fd))
    }

    /// Takes a ring back that nobody uses any more.
    pub(crate) fn give(&self, ring: SharedRing) {
        let mut pool = self.lock();
        if ring.fd.is_some() && pool.len() < POOL_MAX {
            ring.ring.reset();
            pool.push(ring);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_used_again() {
        let pool = Pool::default();
        let (ring, _) = pool.take(64 << 10).unwrap();
        ring.ring().publish(5);
        let address = ring.ring().mapping();
        pool.give(ring);
        let (other, _) = pool.take(32 << 10).unwrap();
        assert_ne!(other.ring().mapping(), address);
        let (again, fd) = pool.take(64 << 10).unwrap();
        assert_eq!((again.ring().mapping(), again.ring().head()), (address, 0));
        assert_eq!(rustix::fs::fstat(&fd).unwrap().st_size as usize, again.length());
        // One that was made for a thread of many has no descriptor, and is let go.
        pool.give(SharedRing::new(64 << 10).unwrap().0);
        assert!(pool.lock().is_empty());
    }
}
