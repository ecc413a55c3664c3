//! Logs of allocator calls, in the lines of Mozilla's logalloc.
//!
//! A [`Line`] is one call: `<pid> <tid> <function>(<arguments>)=<result>`. [`Fields`] may follow it
//! in our own logs: its time, the usable size, the arena. [`LineParser`] parses line after line.
//!
//! [`Munge`] makes a raw log one that `logalloc-replay` takes: processes, threads and blocks are
//! numbered from 1. [`Requests`] counts the requested sizes in three classes, as
//! `logalloc_stats.py` does; [`Survey`] finds out what is in a log. All three read a log once, line
//! by line, which [`for_each_line`] cuts.
//!
//! The format and the rules are those of `memory/replace/logalloc` in Firefox's source.
//!
//! Memory is bounded by the numbers of processes, threads and live blocks of the log; lines have at
//! most [`LINE_MAX`] bytes. Nothing panics, whatever the log.
#![forbid(unsafe_code)]

mod blocks;
mod fields;
#[doc(hidden)]
pub mod fuzzing;
mod line;
mod lines;
mod munge;
mod requests;
mod survey;
#[cfg(test)]
mod tests;
mod text;

pub use blocks::BlockMap;
pub use fields::Fields;
pub use line::{Function, Line, LineError, LineParser, Pointer, Request};
pub use lines::{LINE_MAX, for_each_line};
pub use munge::{Munge, MungeError};
pub use requests::{Requests, SizeClass};
pub use survey::{ArenaCalls, FunctionCalls, Survey, Usable};
