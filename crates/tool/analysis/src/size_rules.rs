//! The usable sizes of common allocators, computed from requested sizes.
//!
//! Each rule is a function of the size that `malloc` or `calloc` was asked for, on x86-64 with
//! pages of 4 KiB. The tests compare the rules with the allocators themselves. What a rule cannot
//! know:
//!
//! - glibc gives a block up to 16 bytes more if the rest of a free piece would be too small to
//!   keep, and maps a block of its own if it has more bytes than a threshold. The threshold changes
//!   as the program runs, so the rule takes blocks of 128 KiB and more, the first threshold, as
//!   mapped.
//! - A reallocation may keep a block that is larger than the new size needs.
//! - A block that was asked for with an alignment may be larger.

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::{Bytes, size_classes};

mod tcmalloc;

/// The size of a page in bytes.
const PAGE: usize = 4096;

/// A rule for the usable sizes of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SizeRule {
    /// The rule of the GNU C library.
    Glibc,
    /// jemalloc, from version 4 on.
    Jemalloc,
    /// tcmalloc of gperftools 2.8 to 2.16.
    Tcmalloc,
    /// mimalloc before version 2.2. Checked with 2.0.9.
    Mimalloc20,
    /// mimalloc from version 2.2 on, except 3.2 and later. Checked with 2.2.4, 2.3.2 and 3.1.5.
    Mimalloc22,
    /// mimalloc from version 3.2 on. Checked with 3.3.2.
    Mimalloc32,
    /// Heapledger's own allocator.
    Heapledger,
}

impl SizeRule {
    /// Returns the rule for an allocator; `None` if there is none.
    pub fn of(kind: AllocatorKind, version: AllocatorVersion) -> Option<SizeRule> {
        let (major, minor, _) = version.numbers();
        match kind {
            AllocatorKind::Unknown | AllocatorKind::Other => None,
            AllocatorKind::Glibc => Some(SizeRule::Glibc),
            AllocatorKind::Jemalloc => Some(SizeRule::Jemalloc),
            AllocatorKind::Tcmalloc => Some(SizeRule::Tcmalloc),
            AllocatorKind::Mimalloc => Some(match (major, minor) {
                (3, 2..) | (4.., _) => SizeRule::Mimalloc32,
                (2, 2..) | (3, _) => SizeRule::Mimalloc22,
                _ => SizeRule::Mimalloc20,
            }),
            AllocatorKind::Heapledger => Some(SizeRule::Heapledger),
        }
    }

    /// Returns the usable size of a block of this requested size: at least that. Takes constant
    /// time.
    pub fn usable(self, size: Bytes) -> Bytes {
        Bytes(match self {
            SizeRule::Glibc => glibc(size.0),
            SizeRule::Jemalloc => quarters(size.0),
            SizeRule::Tcmalloc => tcmalloc::usable(size.0),
            SizeRule::Mimalloc20 if size.0 <= 128 << 10 => quarters(size.0),
            SizeRule::Mimalloc20 => {
                let pages = large_pages(size.0);
                up(pages, if pages > 512 << 10 { 512 << 10 } else { 64 << 10 })
            }
            SizeRule::Mimalloc22 if size.0 <= 64 << 10 => quarters(size.0),
            SizeRule::Mimalloc32 if size.0 <= 512 << 10 => quarters(size.0),
            SizeRule::Mimalloc22 | SizeRule::Mimalloc32 => large_pages(size.0),
            SizeRule::Heapledger => {
                let good = usize::try_from(size.0).ok().and_then(|size| size_classes::good_size(size, PAGE));
                good.map_or(size.0, |good| good as u64)
            }
        })
    }
}

/// Rounds up to a multiple of a power of two; a size that has none is left as it is.
fn up(size: u64, multiple: u64) -> u64 {
    size.checked_next_multiple_of(multiple).unwrap_or(size)
}

/// Returns glibc's usable size. A block in the heap has a word before it, and its last word is the
/// next block's first: so sizes are 8 less than a multiple of 16, and at least 24 (`request2size`
/// in `malloc.c`). A mapped block has two words before it, and ends with a page (`sysmalloc_mmap`).
fn glibc(size: u64) -> u64 {
    const MMAP_THRESHOLD: u64 = 128 << 10;
    let chunk = up(size.saturating_add(8), 16).max(32);
    if chunk < MMAP_THRESHOLD {
        chunk - 8
    } else {
        up(chunk.saturating_add(8), PAGE as u64).saturating_sub(16).max(size)
    }
}

/// Returns the smallest class that holds a size: 8 bytes, multiples of 16 up to 128, and four in
/// each doubling. jemalloc has these classes for all sizes, mimalloc for small and medium ones.
fn quarters(size: u64) -> u64 {
    match size {
        0..=8 => 8,
        9..=128 => up(size, 16),
        _ => up(size, 1 << ((size - 1).ilog2() - 2)),
    }
}

/// Returns the size to which mimalloc rounds blocks that have pages of their own
/// (`_mi_os_good_alloc_size` in `os.c`).
fn large_pages(size: u64) -> u64 {
    let multiple: u64 = match size >> 10 {
        0..512 => 4 << 10,
        512..2048 => 64 << 10,
        2048..8192 => 256 << 10,
        8192..32_768 => 1 << 20,
        _ => 4 << 20,
    };
    up(size, multiple)
}

#[cfg(test)]
mod tests;
