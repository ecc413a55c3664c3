//! The size classes of tcmalloc of gperftools, which it computes when it starts
//! (`SizeMap::Init` in `common.cc`), with its default options.

use std::sync::OnceLock;

/// The size of tcmalloc's pages.
const PAGE: u64 = 8 << 10;
/// The largest size with a class.
const SMALL_MAX: u64 = 256 << 10;
/// The number of blocks that go between caches at once, at most.
const TRANSFER_MAX: u64 = 32;

/// Returns the usable size of a block of this size.
pub(super) fn usable(size: u64) -> u64 {
    static CLASSES: OnceLock<Vec<u64>> = OnceLock::new();
    if size > SMALL_MAX {
        return super::up(size, PAGE);
    }
    let classes = CLASSES.get_or_init(classes);
    let at = classes.partition_point(|class| *class < size);
    classes.get(at).copied().unwrap_or(size)
}

/// Returns the classes in ascending order.
fn classes() -> Vec<u64> {
    let mut classes: Vec<u64> = Vec::new();
    let (mut size, mut bytes_before) = (8, 0);
    while size <= SMALL_MAX {
        let bytes = span_bytes(size);
        match classes.last_mut() {
            // A class is dropped if the spans of the next one hold as many blocks.
            Some(last) if bytes == bytes_before && bytes / size == bytes / *last => *last = size,
            _ => classes.push(size),
        }
        bytes_before = bytes;
        size += step(size);
    }
    classes
}

/// Returns the distance from a size to the next candidate for a class.
fn step(size: u64) -> u64 {
    match size {
        0..16 => 8,
        16..128 => 16,
        _ => ((1 << size.ilog2()) / 8).min(PAGE),
    }
}

/// Returns the bytes of the spans from which blocks of a size are cut: so many that at most an
/// eighth is left over, and that enough blocks for a quarter of a transfer are in one.
fn span_bytes(size: u64) -> u64 {
    let blocks_least = ((64 << 10) / size).clamp(2, TRANSFER_MAX) / 4;
    let mut bytes = 0;
    loop {
        bytes += PAGE;
        while bytes % size > bytes / 8 {
            bytes += PAGE;
        }
        if bytes / size >= blocks_least {
            return bytes;
        }
    }
}
