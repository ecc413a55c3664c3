//! The one state machine: block register, per-site totals, peaks and temporaries.
//!
//! Lives in the hook zone: no `std`, no allocator, no panics on a reachable path; memory comes
//! straight from the kernel.
//!
//! - [`Ledger`]: one process image, used through `&mut`. The collector drives one from the events
//!   of its rings, keyed by address; the analysis the same one from a recording, keyed by serial.
//! - [`Session`]: the totals over all images; given to every event of a [`Ledger`] by `&mut`.
//! - [`SharedLedger`]: the process that it is in, for all its threads at once, with more known
//!   about each block.
//! - [`Register`]: the live blocks, by address or serial; [`SharedRegister`]: the same for all
//!   threads.
//! - [`Snapshot`]: the blocks of a [`SharedLedger`] at one moment.
//! - [`Enumerate`]: providers that can say which blocks are live, with a register or without.
//! - [`mapped`]: the storage that all of it is in.
//!
//! Both ledgers have the same accounting, and a test gives both the same events.
//!
//! # What is counted
//!
//! - `allocations` are calls that returned a block. A successful `realloc` is one free and one
//!   allocation, and is also counted in `reallocations`. A request for zero bytes that returns a
//!   block is an allocation of 0 bytes. `realloc(NULL, n)` is an allocation and not in
//!   `reallocations`.
//! - Failed calls are counted in `failed` and nowhere else.
//! - Bytes are requested bytes.
//! - A block is *temporary* if the thread that allocated it frees it as its very next allocator
//!   event. An allocator event is a call that returned or released a block: failed calls and
//!   `free(NULL)` are none. A `realloc` that directly follows the allocation of its block makes
//!   that block temporary; a block that a `realloc` returned can be temporary too.
//! - Frees of blocks inherited from the parent at a fork are counted in `frees_inherited`, frees of
//!   addresses at which nothing is known to be live in `frees_unknown`; neither is in `frees`, so
//!   `allocations − frees = blocks_live`. Inherited blocks are in no live total but their own,
//!   `blocks_inherited` and `bytes_inherited`.
//! - A block of a user pool counts like any other, under a key of its own ([`Key::in_pool`]). The
//!   block that its memory is cut from counts as freed when it becomes backing memory, and is never
//!   temporary; later calls of the allocator for that block are not events. A reset of a pool is a
//!   free of each of its blocks, the latest first.
//! - An address cannot be live twice: if a block is still live at the address of a new one, it
//!   counts as freed first, in `frees_missing` as well. It is not temporary.
//! - `bytes_live_max`, the peak, and `blocks_live_max` are maxima over all time, independent of
//!   each other. The peak is the first moment at which the maximum was reached. In a reallocation
//!   the free comes before the allocation, so that a peak never counts both blocks.
//! - The session's live totals are the sums over the images that have not ended. When an image ends
//!   its live blocks leave the session, but stay in the image's own totals.
//! - A block that was [sampled](heapledger_core::sample) counts in all of these with its
//!   [weight](Block::weight), which makes them estimates; their variances are summed up beside
//!   them ([`Variance`]).
#![no_std]

pub mod mapped;

mod accounting;
mod arch;
mod bars;
mod budget;
mod contents;
mod defects;
mod details;
mod enumerate;
mod freed;
mod ledger;
mod live;
mod locked;
mod marks;
mod pools;
mod register;
mod shards;
mod shared;
mod sites;
mod snapshot;
mod wide;

pub use accounting::Freed;
pub use bars::{bar_of_blocks, bar_of_bytes};
pub use contents::Read;
pub use defects::{Defect, DefectKind};
pub use details::LiveBlock;
pub use enumerate::Enumerate;
pub use freed::FreedBlocks;
pub use heapledger_core::totals::{Counts, Live, Site, SiteVariances, Time, Variance, Variances};
pub use ledger::{Allocated, Ledger, Pending};
pub use live::Session;
pub use locked::{Guard, Locked};
pub use mapped::OutOfMemory;
pub use marks::{Held, Mark, Marked, Marks, Reported};
pub use register::{Block, Key, Register, SERIAL_MAX, Sampled};
pub use shards::{LiveBlocks, Resolution, SHARDS, SharedRegister};
pub use shared::{Allocation, SharedLedger, SharedPending, Sites};
pub use snapshot::Snapshot;
