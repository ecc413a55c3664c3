//! The allocator functions that memray distinguishes.

/// The effect of a function on the live blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A block is allocated.
    Allocates,
    /// A block is freed.
    Frees,
    /// A range of addresses is mapped.
    Maps,
    /// A range of addresses is unmapped; it may cover parts of several mappings.
    Unmaps,
}

/// The heap that a block belongs to. Blocks of Python's own allocator lie within ranges that it
/// maps or allocates, so they are counted twice in all heaps together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Heap {
    Malloc,
    Mmap,
    Pymalloc,
}

impl Heap {
    /// Returns its name in a recording; `malloc` has none.
    pub(super) fn label(self) -> Option<&'static str> {
        match self {
            Heap::Malloc => None,
            Heap::Mmap => Some("mmap"),
            Heap::Pymalloc => Some("pymalloc"),
        }
    }
}

/// Returns the function with a number, for files of version 12 and later.
pub(super) fn numbered(number: u8) -> Option<(Effect, Heap)> {
    Some(match number {
        1 => (Effect::Frees, Heap::Pymalloc),
        2..=4 => (Effect::Allocates, Heap::Pymalloc),
        5 => (Effect::Frees, Heap::Malloc),
        6..=13 => (Effect::Allocates, Heap::Malloc),
        14 => (Effect::Maps, Heap::Mmap),
        15 => (Effect::Unmaps, Heap::Mmap),
        _ => return None,
    })
}

/// Returns the function with a number, for files before version 12.
pub(super) fn numbered_before_12(number: u8) -> Option<(Effect, Heap)> {
    Some(match number {
        1 | 3..=9 => (Effect::Allocates, Heap::Malloc),
        2 => (Effect::Frees, Heap::Malloc),
        10 => (Effect::Maps, Heap::Mmap),
        11 => (Effect::Unmaps, Heap::Mmap),
        12..=14 => (Effect::Allocates, Heap::Pymalloc),
        15 => (Effect::Frees, Heap::Pymalloc),
        _ => return None,
    })
}
