//! Size classes of Heapledger's allocator: the block sizes that its runs hold. They are here
//! because usable sizes are also computed outside of the allocator.
//!
//! The classes are 16 bytes apart up to 128 bytes, then there are eight in each doubling up to
//! 8 KiB and four in each doubling up to 64 KiB. So a request above 128 bytes wastes at most an
//! eighth of its block, and a sixteenth on average. Larger classes are whole slices, up to
//! [`LARGE_MAX`]; a block of those is a run of its own.

/// The unit in which chunks are divided, in bytes.
pub const SLICE: usize = 64 << 10;
/// The logarithm of [`SLICE`].
const SLICE_SHIFT: usize = 16;

/// The largest block that lies in a chunk, in bytes. A larger one is a mapping of its own.
pub const LARGE_MAX: usize = 1 << 20;
/// The largest block of which several may share a run, in bytes.
pub const SMALL_MAX: usize = SLICE;
/// The largest request that a heap's direct table answers, in bytes.
pub const DIRECT_MAX: usize = 512;

/// The number of classes that end at 128 bytes.
const LINEAR: usize = 8;
/// The number of classes up to 8 KiB.
const FINE: usize = LINEAR + 6 * 8;
/// The number of classes up to [`SMALL_MAX`].
pub const SMALL_CLASSES: usize = FINE + 3 * 4;
/// The number of all classes.
pub const CLASSES: usize = SMALL_CLASSES + LARGE_MAX / SLICE - 1;

/// The block size of each class, in bytes.
static SIZES: [u32; CLASSES] = sizes();

/// The class of each request of up to [`SMALL_MAX`] bytes that is above [`DIRECT_MAX`], by the last
/// byte's offset over 64. A load takes less time than the position of the highest bit, for which
/// processors without `lzcnt`, as the compiler assumes them, have a slow instruction.
static CLASS_OF: [u8; SMALL_MAX / 64] = class_table();

const fn class_table() -> [u8; SMALL_MAX / 64] {
    let mut table = [0; SMALL_MAX / 64];
    let mut entry = 0;
    while entry < table.len() {
        table[entry] = computed_class_of((entry + 1) * 64) as u8;
        entry += 1;
    }
    table
}

const fn sizes() -> [u32; CLASSES] {
    let mut sizes = [0; CLASSES];
    let (mut class, mut size, mut step) = (0, 0, 16);
    while class < CLASSES {
        size += step;
        sizes[class] = size;
        class += 1;
        if class >= SMALL_CLASSES {
            step = SLICE as u32;
        } else if class >= FINE {
            if (class - FINE).is_multiple_of(4) {
                step = size / 4;
            }
        } else if class >= LINEAR && (class - LINEAR).is_multiple_of(8) {
            step = size / 8;
        }
    }
    sizes
}

/// Returns the class of the smallest blocks that hold `size` bytes, which is at most
/// [`LARGE_MAX`].
#[inline(always)]
pub fn class_of(size: usize) -> usize {
    debug_assert!(size <= LARGE_MAX);
    if size <= DIRECT_MAX { computed_class_of(size) } else { class_above_direct(size) }
}

/// Does as [`class_of`] for a size above [`DIRECT_MAX`].
#[inline(always)]
pub fn class_above_direct(size: usize) -> usize {
    let last = size - 1;
    if size <= SMALL_MAX { usize::from(CLASS_OF[last / 64]) } else { SMALL_CLASSES - 1 + (last >> SLICE_SHIFT) }
}

#[inline(always)]
const fn computed_class_of(size: usize) -> usize {
    if size <= 128 {
        return size.saturating_sub(1) >> 4;
    }
    let last = size - 1;
    // The number of the highest bit of the last byte's offset: the doubling that the size is in.
    let doubling = last.ilog2() as usize;
    if size <= 8 << 10 {
        // Three bits below the highest one number the eight classes of a doubling.
        (LINEAR + (doubling - 7) * 8) + ((last >> (doubling - 3)) & 7)
    } else if size <= SMALL_MAX {
        (FINE + (doubling - 13) * 4) + ((last >> (doubling - 2)) & 3)
    } else {
        SMALL_CLASSES - 1 + (last >> SLICE_SHIFT)
    }
}

/// Returns the size of a class's blocks, in bytes.
#[inline(always)]
pub fn bytes_of(class: usize) -> usize {
    SIZES[class] as usize
}

/// Returns the number of blocks in a run of a class.
pub fn capacity_of(class: usize) -> usize {
    (SLICE / bytes_of(class)).max(1)
}

/// Returns the number of slices that a run of a class takes.
pub fn slices_of(class: usize) -> usize {
    bytes_of(class).div_ceil(SLICE)
}

/// Returns the usable size of a block of `size` bytes, with pages of `page` bytes, a power of two.
/// `None` if no block can have that size.
#[inline]
pub fn good_size(size: usize, page: usize) -> Option<usize> {
    if size <= LARGE_MAX {
        return Some(bytes_of(class_of(size)));
    }
    size.checked_next_multiple_of(page).filter(|&size| size <= isize::MAX as usize)
}

/// Returns the smallest class whose blocks hold `size` bytes and are aligned to `alignment`, a
/// power of two up to [`SLICE`]. `None` if the blocks would be larger than [`LARGE_MAX`].
pub fn aligned_class_of(size: usize, alignment: usize) -> Option<usize> {
    // Runs begin at a slice, so blocks are aligned as their size is.
    let size = size.max(1).checked_next_multiple_of(alignment).filter(|&size| size <= LARGE_MAX)?;
    (class_of(size)..CLASSES).find(|&class| bytes_of(class).is_multiple_of(alignment))
}

#[cfg(test)]
mod tests;
