//! The encoding of events in words.
//!
//! The first word of an event has its kind in bits 0..4.
//!
//! ```text
//! Free, ReallocBegin   kind 4 │ step 16 │ address/8 44
//! Malloc, ReallocEnd   kind 4 │ step 16 │ address/8 44     size 38 │ stack 26
//! Calloc               kind 4 │ step 16 │ address/8 44     size 38 │ stack 26     count 32 │ each 32
//! WithUsable           kind 4 │ step 16 │ address/8 44     size 38 │ stack 26     slop 30 │ call 2 │ count 32
//! Node                 kind 4 │ id 26 │ parent 26 │ flags 8     address 64
//! Sync                 kind 4 │ 0     stamp 64
//! Extended             kind 4 │ code 16 │ words 16 │ 0     stamp 64     payload …
//! ```
//!
//! *Step* is the time since the thread's previous stamped event, in units of 16 ticks; if it does
//! not fit, a sync event comes first. Addresses that are not multiples of 8, sizes of 256 GiB and
//! more, and all rare events are encoded as extended events. *WithUsable* is any of the three
//! allocations in a session that records usable sizes; *slop* is the usable size less the requested
//! one. Kinds 8 to 11 are reserved for events of two words, 13 and 14 for three: a reader can skip
//! them.

pub mod code;
mod extended;
mod packed;

use heapledger_core::{Api, NodeKind, StackId};

pub use extended::{Extended, MapCall, MapStep, ReallocOutcome, extended};
pub use packed::{Packed, pack, pack_truncated};

/// A run of words.
pub type Words<'words> = &'words [u64];

/// The smallest size that needs an extended event.
pub const COMPACT_SIZE_END: u64 = 1 << 38;
/// The smallest slop that needs an extended event, in bytes.
pub const COMPACT_SLOP_END: u64 = 1 << 30;
/// The smallest step that needs a sync event.
pub const STEP_END: u64 = 1 << 16;
/// The length of the longest event, in words.
pub const WORDS_MAX: usize = 1 << 10;

const FREE: u64 = 1;
const MALLOC: u64 = 2;
const CALLOC: u64 = 3;
const REALLOC_BEGIN: u64 = 4;
const REALLOC_END: u64 = 5;
const NODE: u64 = 6;
const SYNC: u64 = 7;
const WITH_USABLE: u64 = 12;
const EXTENDED: u64 = 15;

/// Converts ticks to the unit of stamps.
#[inline(always)]
pub const fn units(ticks: u64) -> u64 {
    ticks >> 4
}

/// True if an address fits a compact event.
#[inline(always)]
pub const fn is_compact_address(address: u64) -> bool {
    address & 7 == 0 && address < 1 << 47
}

#[inline(always)]
const fn first(kind: u64, step: u64, address: u64) -> u64 {
    kind | step << 4 | address >> 3 << 20
}

#[inline(always)]
const fn second(size: u64, stack: StackId) -> u64 {
    size | (stack.0 as u64) << 38
}

/// Encodes `free(address)`.
#[inline(always)]
pub const fn free(step: u64, address: u64) -> [u64; 1] {
    [first(FREE, step, address)]
}

/// Encodes `malloc(size)` that returned `address`.
#[inline(always)]
pub const fn malloc(step: u64, address: u64, size: u64, stack: StackId) -> [u64; 2] {
    [first(MALLOC, step, address), second(size, stack)]
}

/// Encodes `calloc(count, each)` that returned `address`.
#[inline(always)]
pub const fn calloc(step: u64, address: u64, count: u32, each: u32, stack: StackId) -> [u64; 3] {
    // At most (2^32 − 1)^2; the caller has checked that the product is below `COMPACT_SIZE_END`.
    let size = count as u64 * each as u64;
    [first(CALLOC, step, address), second(size, stack), count as u64 | (each as u64) << 32]
}

/// Encodes that a `realloc` of `address` has begun.
#[inline(always)]
pub const fn realloc_begin(step: u64, address: u64) -> [u64; 1] {
    [first(REALLOC_BEGIN, step, address)]
}

/// Encodes that the `realloc` which this thread began last returned `address`.
#[inline(always)]
pub const fn realloc_end(step: u64, address: u64, size: u64, stack: StackId) -> [u64; 2] {
    [first(REALLOC_END, step, address), second(size, stack)]
}

/// Encodes an allocation with its usable size. `count` is the first argument of `calloc`; other
/// calls have none. `slop` is below [`COMPACT_SLOP_END`].
#[inline(always)]
pub const fn with_usable(call: UsableCall, address: u64, size: u64, stack: StackId, count: u32, slop: u64) -> [u64; 3] {
    [first(WITH_USABLE, 0, address), second(size, stack), slop | (call as u64) << 30 | (count as u64) << 32]
}

/// Sets the step of a compact event that was made with step 0.
#[inline(always)]
pub const fn with_step<const N: usize>(mut words: [u64; N], step: u64) -> [u64; N] {
    if let Some(first) = words.first_mut() {
        *first |= step << 4;
    }
    words
}

/// Encodes a node of the stack tree. `address` is the one to look up: the return address less one
/// for callers.
#[inline(always)]
pub const fn node(id: StackId, parent: StackId, kind: NodeKind, address: u64) -> [u64; 2] {
    [NODE | (id.0 as u64) << 4 | (parent.0 as u64) << 30 | (kind as u64) << 56, address]
}

/// Encodes the stamp that following steps count from.
#[inline(always)]
pub const fn sync(stamp: u64) -> [u64; 2] {
    [SYNC, stamp]
}

/// A decoded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'words> {
    /// `free`.
    Free {
        /// The block.
        address: u64,
    },
    /// `malloc`.
    Malloc {
        /// The address that it returned.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// The stack that called.
        stack: StackId,
    },
    /// `calloc`.
    Calloc {
        /// The address that it returned.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// The stack that called.
        stack: StackId,
        /// Its first argument.
        count: u32,
        /// Its second argument.
        each: u32,
    },
    /// `realloc` has begun.
    ReallocBegin {
        /// The block.
        address: u64,
    },
    /// `realloc` has returned a block.
    ReallocEnd {
        /// The address that it returned.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// The stack that called.
        stack: StackId,
    },
    /// One of the three above that return a block, in a session that records usable sizes.
    WithUsable {
        /// The call.
        call: UsableCall,
        /// The address that it returned.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// The stack that called.
        stack: StackId,
        /// The first argument of `calloc`; 0 for other calls.
        count: u32,
        /// The usable size: at least `size`.
        usable: u64,
    },
    /// A node of the stack tree; it has no stamp.
    Node {
        /// The node's id.
        id: StackId,
        /// The node of the calling frame.
        parent: StackId,
        /// The kind of the node; a number that this version does not know becomes a frame.
        kind: NodeKind,
        /// The address to look up.
        address: u64,
    },
    /// An event that only sets the clock, or a kind that this version does not know.
    Nothing,
    /// Any other event, to be decoded by [`Extended::parse`]; not decoded here, so that frequent
    /// events stay small.
    Extended {
        /// The event's code; see [`code`].
        code: u16,
        /// The words after the stamp.
        payload: Words<'words>,
    },
}

/// The call of an [`Event::WithUsable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum UsableCall {
    /// `malloc`.
    Malloc = 0,
    /// `calloc`.
    Calloc = 1,
    /// The end of a `realloc` that returned a block.
    ReallocEnd = 2,
}

impl UsableCall {
    /// Returns the entry point.
    pub const fn api(self) -> Api {
        match self {
            UsableCall::Malloc => Api::Malloc,
            UsableCall::Calloc => Api::Calloc,
            UsableCall::ReallocEnd => Api::Realloc,
        }
    }
}

/// Decodes events from a run of words, keeping the clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decoder {
    /// The stamp of the last event, in units.
    pub stamp: u64,
}

/// The error for words that are not an event: the ring is corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl Decoder {
    /// Returns the next event and its number of words; `None` if `words` ends before the event
    /// does. Afterwards [`Decoder::stamp`] is the event's stamp.
    #[inline(always)]
    pub fn next<'words>(&mut self, words: Words<'words>) -> Result<Option<(Event<'words>, usize)>, Corrupt> {
        let Some(&first) = words.first() else { return Ok(None) };
        let kind = first & 15;
        let length = match kind {
            FREE | REALLOC_BEGIN => 1,
            MALLOC | REALLOC_END | NODE | SYNC | 8..=11 => 2,
            CALLOC | 12..=14 => 3,
            EXTENDED => (first >> 20 & 0xffff) as usize,
            _ => return Err(Corrupt),
        };
        if length > WORDS_MAX || (kind == EXTENDED && length < 2) {
            return Err(Corrupt);
        }
        let Some(words) = words.get(..length) else { return Ok(None) };
        let word = |index: usize| words.get(index).copied().unwrap_or(0);
        let event = match kind {
            NODE => {
                let kind = NodeKind::from_number((first >> 56) as u8).unwrap_or(NodeKind::Frame);
                let id = |shift: u32| StackId((first >> shift) as u32 & StackId::MAX.0);
                Event::Node { id: id(4), parent: id(30), kind, address: word(1) }
            }
            SYNC => {
                self.stamp = word(1);
                Event::Nothing
            }
            8..=11 | 13 | 14 => Event::Nothing,
            EXTENDED => {
                self.stamp = word(1);
                Event::Extended { code: (first >> 4) as u16, payload: words.get(2..).unwrap_or(&[]) }
            }
            _ => {
                self.stamp = self.stamp.wrapping_add(first >> 4 & 0xffff);
                let address = first >> 20 << 3;
                let (size, stack) = (word(1) & (COMPACT_SIZE_END - 1), StackId((word(1) >> 38) as u32));
                match kind {
                    FREE => Event::Free { address },
                    MALLOC => Event::Malloc { address, size, stack },
                    CALLOC => {
                        Event::Calloc { address, size, stack, count: word(2) as u32, each: (word(2) >> 32) as u32 }
                    }
                    WITH_USABLE => {
                        let call = match word(2) >> 30 & 3 {
                            0 => UsableCall::Malloc,
                            1 => UsableCall::Calloc,
                            2 => UsableCall::ReallocEnd,
                            _ => return Err(Corrupt),
                        };
                        let (count, usable) = ((word(2) >> 32) as u32, size + (word(2) & (COMPACT_SLOP_END - 1)));
                        Event::WithUsable { call, address, size, stack, count, usable }
                    }
                    REALLOC_BEGIN => Event::ReallocBegin { address },
                    _ => Event::ReallocEnd { address, size, stack },
                }
            }
        };
        Ok(Some((event, length)))
    }
}

/// Returns the stack in the second word of a compact event about an allocation.
#[inline(always)]
pub const fn stack_ahead(second: u64) -> StackId {
    StackId((second >> 38) as u32)
}

/// Decodes from an event's first word alone, to look ahead of a [`Decoder`], the number of words of
/// the event, at least 1, and the address of the block if it is a compact event about one.
#[inline(always)]
pub const fn look_ahead(first: u64) -> (usize, Option<u64>) {
    let address = first >> 20 << 3;
    match first & 15 {
        FREE | REALLOC_BEGIN => (1, Some(address)),
        MALLOC | REALLOC_END => (2, Some(address)),
        CALLOC | WITH_USABLE => (3, Some(address)),
        NODE | SYNC | 8..=11 => (2, None),
        13 | 14 => (3, None),
        EXTENDED => {
            let length = (first >> 20 & 0xffff) as usize;
            (if length == 0 { 1 } else { length }, None)
        }
        _ => (1, None),
    }
}
