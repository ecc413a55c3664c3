//! Works on a program from outside: places a library into it and patches its code, by ptrace(2).
//!
//! - [`Image`]: a shared library as a file, and its segments relocated to an address in a process.
//! - [`Tracee`]: a stopped thread of a process, and its memory.
//! - [`trace_me`], [`ExecStop`]: a program between execve(2) and its first instruction.
//! - [`Threads`]: all threads of a process that runs, stopped for a moment, without a trace in the
//!   program.
//! - [`Caller`]: system calls that a stopped thread is made to make.
//! - [`Memory`]: the memory of a process; [`Mapping`]: a line of its list of mappings.
//! - [`Follower`]: a process that is about to execute a program; [`ChildFollower`]: a thread whose
//!   child is.
//!
//! A thread that is traced can be worked on only by the thread that traces it: the types here stay
//! with the thread that made them. For a process that runs, use a thread of its own: its end lets
//! every thread go that is still traced.

mod calls;
mod environment;
mod error;
mod follow;
mod image;
mod launch;
mod maps;
mod memory;
mod module;
mod ptrace;
mod reaping;
mod remote;
mod scan;
mod threads;

pub use calls::Caller;
pub use error::{InjectError, Result};
pub use follow::{ChildFollower, Followed, Follower};
pub use image::{Bounds, Image, Loaded, Segment, bounds, exported_symbol};
pub use launch::{ExecStop, trace_me};
pub use maps::Mapping;
pub use memory::Memory;
pub use remote::Tracee;
pub use scan::Place;
pub use threads::Threads;
