//! User pools, as a program declares them and hooks know them.
//!
//! The types have C layout: `heapledger.h` declares the same structure.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::context::Name;

/// The largest id of a pool.
pub const ID_MAX: u32 = (1 << 16) - 1;
/// The bound below which the addresses of a pool's blocks are, or other values that name its
/// blocks.
pub const ADDRESS_END: u64 = 1 << 47;

/// A heap of the program's own: an arena, a slab, memory of a device.
///
/// It stays at its address from its first use to [`Pool::close`]. Pools may share a name.
#[derive(Debug)]
#[repr(C)]
pub struct Pool {
    /// The pool's name. Null if not known.
    name: AtomicPtr<Name>,
    /// The pool's number in the process, from 1 to [`ID_MAX`]. 0 if it has none yet.
    id: AtomicU32,
    /// 0.
    reserved: u32,
}

impl Pool {
    /// Returns a pool that has no number yet.
    pub const fn new(name: &'static Name) -> Pool {
        Pool { name: AtomicPtr::new(ptr::from_ref(name).cast_mut()), ..Pool::nameless() }
    }

    /// Returns a pool without name and number, to be [named](Pool::set_name) before its first
    /// block.
    pub const fn nameless() -> Pool {
        Pool { name: AtomicPtr::new(ptr::null_mut()), id: AtomicU32::new(0), reserved: 0 }
    }

    /// Returns the pool's name.
    #[inline]
    pub fn name(&self) -> Option<&'static Name> {
        // SAFETY: null, or static: in Rust by the types above and below, in C by the contract of
        // `heapledger.h`.
        unsafe { self.name.load(Ordering::Relaxed).as_ref() }
    }

    /// Sets the pool's name.
    pub fn set_name(&self, name: &'static Name) {
        self.name.store(ptr::from_ref(name).cast_mut(), Ordering::Relaxed);
    }

    /// Returns the pool's number, a new one if it has none. `None` if all numbers are taken.
    #[inline]
    pub fn id(&self) -> Option<u32> {
        match self.id.load(Ordering::Acquire) {
            0 => self.number(),
            id => Some(id),
        }
    }

    /// Returns the pool's number, if it has one.
    #[inline]
    pub fn known_id(&self) -> Option<u32> {
        Some(self.id.load(Ordering::Acquire)).filter(|&id| id != 0)
    }

    #[cold]
    fn number(&self) -> Option<u32> {
        let id = take_id()?;
        match self.id.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(id),
            Err(other) => {
                give_id(id);
                Some(other)
            }
        }
    }

    /// Releases the pool's number, after a call of `before` with it: another pool may get it.
    pub fn close(&self, before: impl FnOnce(u32)) {
        if let Some(id) = self.known_id() {
            before(id);
            if self.id.swap(0, Ordering::AcqRel) == id {
                give_id(id);
            }
        }
    }
}

/// A bit for each number, set while the number is taken. Static, so that it exists in a forked
/// child, and wherever this runs.
static TAKEN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

fn take_id() -> Option<u32> {
    for (index, word) in TAKEN.iter().enumerate() {
        loop {
            // 0 is not a valid number.
            let taken = word.load(Ordering::Relaxed) | u64::from(index == 0);
            if taken == u64::MAX {
                break;
            }
            let bit = taken.trailing_ones();
            if word.fetch_or(1 << bit, Ordering::AcqRel) & 1 << bit == 0 {
                return Some(index as u32 * 64 + bit);
            }
        }
    }
    None
}

fn give_id(id: u32) {
    if let Some(word) = TAKEN.get(id as usize / 64) {
        word.fetch_and(!(1 << (id % 64)), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
