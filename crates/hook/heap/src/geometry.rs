//! The sizes in which memory is divided.
//!
//! mozjemalloc's chunks are of 1 MiB. With 4 MiB, the peaks and times of programs are the same, and
//! there are fewer system calls: docs/allocator.md has the figures, also those of other classes.

/// The unit in which memory is counted and made blocks, in bytes, and the size of a chunk's header.
/// The system's pages may be [larger](crate::page).
pub(crate) const PAGE: usize = 4096;

/// The unit in which chunks are divided, in bytes.
pub(crate) const SLICE: usize = heapledger_core::size_classes::SLICE;
/// The logarithm of [`SLICE`].
pub(crate) const SLICE_SHIFT: usize = SLICE.trailing_zeros() as usize;

/// The size of a chunk, and its alignment, in bytes.
pub(crate) const CHUNK: usize = 4 << 20;
/// The logarithm of [`CHUNK`].
pub(crate) const CHUNK_SHIFT: usize = 22;
/// The number of slices of a chunk that runs may use: all but the first.
pub(crate) const SLICES: usize = CHUNK / SLICE - 1;
