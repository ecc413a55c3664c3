//! The entry points of allocators inside programs: their calling shapes.
//!
//! `heapledger-entries` finds the entry points and decides which can be redirected. The code inside
//! the program reads the arguments of a call by the [`Layout`] of its kind, so it needs to know no
//! allocator by name.

mod kind;

pub use kind::EntryKind;

use heapledger_core::Api;

/// The place of an integer argument of a call: 0 is `rdi`, 5 is `r9` (System V's calling
/// convention).
pub type Argument = u8;

/// The number of integer arguments that are passed in registers. A thunk passes all of them to the
/// original, unchanged, whichever the layout names.
pub const ARGUMENTS_MAX: Argument = 6;

/// The effect of an entry point on blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It returns a new block, or null.
    Allocate,
    /// It writes the address of a new block to where an argument points, and returns 0 if it did.
    AllocateOut,
    /// It returns a new block with a text, whose length and end are the block's size, or null.
    AllocateText,
    /// It moves or resizes a block, and returns its new address, or null if it failed: then the old
    /// block stays, unless [`Layout::frees_on_failure`].
    Reallocate,
    /// It resizes a block where it is, and returns the block, or null if that is not possible.
    Expand,
    /// It resizes a block where it is, and returns the usable size that the block has afterwards
    /// (`xallocx`).
    ResizeInPlace,
    /// It frees a block; null is allowed, and no event.
    Free,
    /// It returns the usable size of a block: no event. Never patched.
    UsableSize,
}

/// The meaning of an entry point's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The effect of a call.
    pub effect: Effect,
    /// The entry point of malloc's own that the call counts as.
    pub api: Api,
    /// The block that is freed, resized or asked about.
    pub block: Option<Argument>,
    /// The number of bytes, or of bytes of an element if there is a `count`.
    pub size: Option<Argument>,
    /// The number of elements.
    pub count: Option<Argument>,
    /// The alignment in bytes, or flags that contain it: see `alignment_in_flags`.
    pub alignment: Option<Argument>,
    /// The place to which the address of the new block is written.
    pub out: Option<Argument>,
    /// True if `alignment` is jemalloc's `flags`, whose lowest six bits are the logarithm of the
    /// alignment; 0 there asks for none.
    pub alignment_in_flags: bool,
    /// True if a failure is thrown as a C++ exception. An exception must not pass a frame of ours:
    /// the nothrow sibling ([`EntryKind::nothrow`]) is called instead and, if it returns null, the
    /// original by a tail jump.
    pub throws: bool,
    /// True if the old block is freed although the call failed (`reallocf`).
    pub frees_on_failure: bool,
}

impl Layout {
    /// Returns the bytes that a call requests; `None` if the entry requests none, or their number
    /// overflows, which makes every allocator fail.
    pub fn requested(&self, arguments: &[u64; ARGUMENTS_MAX as usize]) -> Option<u64> {
        let size = self.get(self.size, arguments)?;
        match self.count {
            Some(_) => size.checked_mul(self.get(self.count, arguments)?),
            None => Some(size),
        }
    }

    /// Returns the alignment in bytes that a call requests; `None` if it requests none.
    pub fn requested_alignment(&self, arguments: &[u64; ARGUMENTS_MAX as usize]) -> Option<u64> {
        let value = self.get(self.alignment, arguments)?;
        if !self.alignment_in_flags {
            return Some(value);
        }
        let logarithm = value & 63;
        (logarithm != 0).then(|| 1 << logarithm)
    }

    /// Returns the address in the argument that names the old block.
    pub fn block_of(&self, arguments: &[u64; ARGUMENTS_MAX as usize]) -> Option<u64> {
        self.get(self.block, arguments)
    }

    fn get(&self, argument: Option<Argument>, arguments: &[u64; ARGUMENTS_MAX as usize]) -> Option<u64> {
        arguments.get(usize::from(argument?)).copied()
    }
}

#[cfg(test)]
mod tests;
