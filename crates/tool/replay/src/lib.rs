//! Replays the allocator calls of a program against other allocators.
//!
//! A [`Work`] is written from a log ([`LogReader`]) or from a recording ([`recorded`]): a file of
//! operations, which the player, a library of `crates/hook/replay-player`, carries out in a process
//! with the allocator that is tried ([`Player::run`]). A [`Run`] has the figures.
//!
//! Memory: some 40 bytes for each block that is live at once, and 64 KiB for each thread of the
//! work. The work is a file in the directory for temporary files, of 16 bytes for each call.
#![forbid(unsafe_code)]

mod log;
mod recorded;
mod run;
#[cfg(test)]
mod tests;
mod work;

pub use log::{LogReader, Skipped};
pub use recorded::{Effect, RecordedCall, RecordedError, recorded, recorded_calls};
pub use run::{Allocator, Options, Player, Run, RunError, Sample, SizeClass};
pub use work::{Call, Point, Threads, Work, WorkError, WorkWriter};
