//! Replays the allocator calls of a program against other allocators.
//!
//! A [`Work`] is written from a log ([`LogReader`]) or from a recording ([`recorded`]): a file of
//! operations, which the player, a library of `crates/hook/replay-player`, carries out in a process
//! with the allocator that is tried ([`Player::run`]). A [`Run`] has the figures. Each process has
//! a work of its own; [`Run::total`] adds their figures up.
//!
//! Memory: some 40 bytes for each block that is live at once, and 64 KiB for each thread of the
//! work. A work is a file in the directory for temporary files, of 16 bytes for each call, and for
//! each of those before its process was forked.
#![forbid(unsafe_code)]

mod figures;
mod log;
mod played;
mod process;
mod recorded;
mod run;
#[cfg(test)]
mod tests;
mod total;
mod work;

pub use figures::{OwnBin, OwnStatistics, PointBlocks, RequestBucket, Run, Sample, SizeClass};
pub use log::LogReader;
pub use process::{Act, ActKind, recorded};
pub use recorded::{Effect, EventPlace, RecordedCall, RecordedError, recorded_calls};
pub use run::{Allocator, Options, Player, RunError};
pub use work::{ArenaNumber, Call, Point, Threads, Work, WorkError, WorkWriter};
