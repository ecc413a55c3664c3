//! Keyed free lists, for the option `keyed`: the links in freed blocks cannot be read, and forged
//! ones are noticed.
//!
//! A free block begins with the address of the next one in its list. A program that writes to a
//! block after its free, or a little beyond the block before it, changes that address, and the
//! allocator would hand out memory that the program, or an attacker, has chosen. With keys, the
//! address is XORed with a number that depends on the block and on a secret, and the second word of
//! the block has a check that depends on the plain link, the block and the secret. Each link is
//! checked before it is followed; a wrong one ends the program. A block whose two words are right
//! is in a list already, so the same check notices each double free at once.
//!
//! The secret of a run is made from one of the process, which the kernel gives, and the address of
//! the run's metadata: a link of one run does not fit in another. The mixing function is fast, not
//! cryptographic: who sees many pairs of addresses and links may be able to compute it back.
//!
//! The common path knows nothing of keys. With the option it never finds a block, as with those
//! that fill memory: see `options`. Everything off the common path follows links by a [`Key`],
//! which is plain without the option.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::arch::{nr, syscall};

use crate::block::Block;
use crate::fatal;

/// The secret of the process. 0: links are plain.
static SECRET: AtomicU64 = AtomicU64::new(0);

/// Makes links keyed. Before the first allocation.
pub(crate) fn start() {
    let mut secret = 0_u64;
    // SAFETY: the kernel writes 8 bytes to `secret`, or none; then the address of this thread's
    // stack has to do, which is random as well.
    unsafe { syscall(nr::GETRANDOM, [(&raw mut secret).expose_provenance(), size_of::<u64>(), 0, 0, 0, 0]) };
    let stack = (&raw const secret).addr() as u64;
    SECRET.store(mix(secret ^ stack, 0xa076_1d64_78bd_642f) | 1, Ordering::Relaxed);
}

/// True if links are keyed.
#[inline(always)]
pub(crate) fn are_on() -> bool {
    SECRET.load(Ordering::Relaxed) != 0
}

/// Returns the two halves of a product, XORed: the mixing function of wyhash (Wang Yi, 2019, public
/// domain).
fn mix(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product >> 64) as u64 ^ product as u64
}

/// The way in which the links of a run are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(u64);

/// A free block with a keyed link.
#[repr(C)]
struct Keyed {
    link: AtomicU64,
    check: AtomicU64,
}

impl Key {
    /// Returns the key of a run, from the address of its metadata.
    #[inline(always)]
    pub(crate) fn of(run: usize) -> Key {
        match SECRET.load(Ordering::Relaxed) {
            0 => Key(0),
            secret => Key::with(secret, run),
        }
    }

    #[cold]
    fn with(secret: u64, run: usize) -> Key {
        Key(mix(secret, run as u64 ^ 0xe703_7ed1_a0b4_28db) | 1)
    }

    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.0 == 0
    }

    /// Returns the next block of a list. Aborts the program if the link is not one that
    /// [`Key::set_next`] has written.
    ///
    /// # Safety
    ///
    /// The block is in a free list, and nobody writes to it meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn next(self, block: *mut Block) -> *mut Block {
        if self.is_plain() {
            // SAFETY: `Block::next` demands what this function's `# Safety` does.
            return unsafe { Block::next(block) };
        }
        // SAFETY: `keyed_next` demands what this function's `# Safety` does.
        unsafe { self.keyed_next(block) }
    }

    /// Makes `next` follow the block.
    ///
    /// # Safety
    ///
    /// The caller owns the block, which is of at least 16 bytes and aligned to 16.
    #[inline(always)]
    pub(crate) unsafe fn set_next(self, block: *mut Block, next: *mut Block) {
        // SAFETY: both functions demand what this function's `# Safety` does.
        unsafe { if self.is_plain() { Block::set_next(block, next) } else { self.set_keyed_next(block, next) } }
    }

    /// Returns the first word of a block as a link, without a check. See [`Block::peek_next`].
    ///
    /// # Safety
    ///
    /// The block lies in a run, whose chunk stays mapped meanwhile.
    pub(crate) unsafe fn peek_next(self, block: *const Block) -> *mut Block {
        // SAFETY: `peek_next` demands what this function's `# Safety` does.
        let word = unsafe { Block::peek_next(block) };
        if self.is_plain() { word } else { ptr::without_provenance_mut(word.addr() ^ self.mask(block.addr()) as usize) }
    }

    /// True if a block begins with a link: it is in a list. Always false if links are plain.
    ///
    /// # Safety
    ///
    /// The block is of at least 16 bytes and aligned to 16, and nobody writes to it meanwhile.
    pub(crate) unsafe fn is_linked(self, block: *mut Block) -> bool {
        // SAFETY: `read` demands what this function's `# Safety` does.
        !self.is_plain() && unsafe { self.read(block) }.is_some()
    }

    /// Overwrites the link of a block that is handed out, so that it is not one that is in a list.
    ///
    /// # Safety
    ///
    /// The caller owns the block, which is of at least 16 bytes and aligned to 16.
    pub(crate) unsafe fn clear(block: *mut Block) {
        // SAFETY: two words of the caller's, aligned, by this function's `# Safety`; `Keyed` has
        // atomics only, of which any content is valid.
        let keyed = unsafe { &*block.cast::<Keyed>() };
        keyed.link.store(0, Ordering::Relaxed);
        keyed.check.store(0, Ordering::Relaxed);
    }

    #[cold]
    unsafe fn keyed_next(self, block: *mut Block) -> *mut Block {
        // SAFETY: `read` demands a block of 16 bytes, as each is, that nobody writes to: the
        // contract of `next`.
        match unsafe { self.read(block) } {
            Some(next) => ptr::with_exposed_provenance_mut(next as usize),
            None => fatal::abort("a free block was overwritten, or freed twice", block.cast()),
        }
    }

    #[cold]
    unsafe fn set_keyed_next(self, block: *mut Block, next: *mut Block) {
        let (at, next) = (block.addr(), next.expose_provenance() as u64);
        // SAFETY: two words of the caller's, aligned, by the contract of `set_next`; see `clear`.
        let keyed = unsafe { &*block.cast::<Keyed>() };
        keyed.link.store(next ^ self.mask(at), Ordering::Relaxed);
        keyed.check.store(self.check(at, next), Ordering::Relaxed);
    }

    /// Returns the address of the next block. `None` if the words of the block are not a link.
    ///
    /// # Safety
    ///
    /// As for [`Key::is_linked`].
    unsafe fn read(self, block: *mut Block) -> Option<u64> {
        // SAFETY: two words, aligned, to which nobody writes: this function's `# Safety`; see
        // `clear`.
        let keyed = unsafe { &*block.cast::<Keyed>() };
        let next = keyed.link.load(Ordering::Relaxed) ^ self.mask(block.addr());
        (keyed.check.load(Ordering::Relaxed) == self.check(block.addr(), next)).then_some(next)
    }

    fn mask(self, at: usize) -> u64 {
        mix(self.0 ^ at as u64, 0x8ebc_6af0_9c88_c6e3)
    }

    fn check(self, at: usize, next: u64) -> u64 {
        mix(next ^ self.0, self.0.rotate_left(32) ^ at as u64)
    }
}
