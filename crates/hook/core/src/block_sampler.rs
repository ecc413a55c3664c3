//! The seam between an allocator and a sampler of blocks, such as the heap checker.
//!
//! An allocator that finds blocks in lists knows how many it hands out whenever it fills a list. So
//! the sampler needs nothing on the allocator's fast path: the allocator asks it, at each refill,
//! how many allocations come before the one that is to be sampled, and fills lists with no more
//! blocks than that.
//!
//! Blocks of the sampler come back to the allocator's own functions. It recognises them as
//! addresses that are not its own, where it would otherwise end the program. To find that out, it
//! may read the [`metadata_page`] of the address, which the sampler therefore makes readable, and
//! keeps zero.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::hooks::Pointer;

/// The unit in which the allocator maps memory, in bytes; a multiple of [`LAYOUT_PERIOD`] has the
/// same metadata pages relative to it as any other.
const CHUNK: usize = 4 << 20;
/// The alignment in bytes of a range of addresses from which its metadata pages follow.
pub const LAYOUT_PERIOD: usize = 64 << 20;
const PAGE: usize = 4096;

/// Returns the page that the allocator may read to learn about an address: one of the first sixteen
/// pages of the address's 4 MiB.
pub const fn metadata_page(address: usize) -> usize {
    (address & !(CHUNK - 1)) + ((address >> 10) & 0xF000)
}

const _: () = assert!(metadata_page(LAYOUT_PERIOD - 1) == LAYOUT_PERIOD - CHUNK + 15 * PAGE);

/// Some allocations, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Counted {
    /// The number of allocations that are not to be sampled.
    pub allocations: u32,
    /// 1 if the allocation after these is to be sampled, which is counted, too; else 0.
    pub ends_with_sample: u32,
}

/// The memory of a sampler at one moment, in bytes unless another unit is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SamplerUsage {
    /// The number of the sampler's blocks that are live.
    pub blocks: usize,
    /// These blocks.
    pub allocated: usize,
    /// The rest of their pages.
    pub fragmentation: usize,
    /// The sampler's own tables.
    pub metadata: usize,
}

/// The functions of a sampler. They may be called in any thread, and never while the allocator
/// holds a lock.
#[derive(Debug)]
#[repr(C)]
pub struct BlockSampler {
    /// Counts the next allocations of this thread, as many as the sampler likes. They are counted
    /// even if the thread never makes them.
    pub count: unsafe extern "C" fn() -> Counted,
    /// Allocates a block of a size, aligned to a power of two. Null if the allocator has to
    /// allocate it.
    pub allocate: unsafe extern "C" fn(size: usize, alignment: usize) -> Pointer,
    /// Frees a block of the sampler.
    pub free: unsafe extern "C" fn(block: Pointer),
    /// Reallocates a block of the sampler. The size is not 0.
    pub reallocate: unsafe extern "C" fn(block: Pointer, size: usize) -> Pointer,
    /// Returns the usable size of a block of the sampler.
    pub usable_size: unsafe extern "C" fn(block: Pointer) -> usize,
    /// Returns 1 if an address is in the sampler's range, else 0.
    pub owns: unsafe extern "C" fn(address: usize) -> u32,
    /// Returns the memory of the sampler, which the allocator's statistics include.
    pub usage: unsafe extern "C" fn() -> SamplerUsage,
}

static SAMPLER: AtomicPtr<BlockSampler> = AtomicPtr::new(ptr::null_mut());
/// A `fn()`, or null.
static RESTART: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Returns the sampler of this loaded object's allocator.
#[inline(always)]
pub fn get() -> Option<&'static BlockSampler> {
    // SAFETY: null, or a static that was passed to `set`.
    unsafe { SAMPLER.load(Ordering::Acquire).as_ref() }
}

/// Sets the sampler of this loaded object's allocator, for good. The next allocation of this thread
/// is the first one that is counted; other threads use up the blocks that they have in their lists.
/// False if there is a sampler already.
///
/// # Safety
///
/// Its functions do as [`BlockSampler`] says, with blocks that nobody else has.
pub unsafe fn set(sampler: &'static BlockSampler) -> bool {
    let sampler = ptr::from_ref(sampler).cast_mut();
    let is_set = SAMPLER.compare_exchange(ptr::null_mut(), sampler, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let restart = RESTART.load(Ordering::Acquire);
    if is_set && !restart.is_null() {
        // SAFETY: `transmute` demands a `fn()`: `set_supported` made the pointer from one.
        unsafe { core::mem::transmute::<*mut (), fn()>(restart)() };
    }
    is_set
}

/// Declares that the program's allocator in this loaded object asks the sampler. `restart` makes
/// the blocks in the lists of this thread uncounted.
pub fn set_supported(restart: fn()) {
    RESTART.store(restart as *mut (), Ordering::Release);
}

/// True if the program's allocator in this loaded object asks the sampler.
pub fn is_supported() -> bool {
    !RESTART.load(Ordering::Acquire).is_null()
}
