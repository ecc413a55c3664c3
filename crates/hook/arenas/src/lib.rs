//! Arenas: the table of those that a process has, and arenas over any malloc.
//!
//! An arena has a label, an end of its own, and totals of its own. `heapledger_arena_create` and
//! the functions beside it (`include/heapledger/arena.h`) reach one of two implementations:
//!
//! - that of an allocator which defines these functions. The [table] then only keeps the labels,
//!   for observers;
//! - [`over_malloc`]: the blocks come from the program's own `malloc`, and a register says which of
//!   them are in an arena.
//!
//! **A register, not a header in front of each block.** Blocks of an arena may be passed to plain
//! `free` and `realloc`, like all others. With a header, these functions would have to read the
//! memory in front of blocks that have none; and aligned blocks, usable sizes, and blocks that
//! another library frees past us would all be wrong by the header's length. With a register a block
//! is exactly the one that malloc returned. The cost is one look-up per free, in processes that
//! have created an arena; other processes do not come here at all.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod over_malloc;
pub mod parameters;
pub mod table;

mod blocks;
mod forks;
mod labels;
