//! Works on a program from outside: places a library into it and patches its code, by ptrace(2).
//!
//! - [`Image`]: a shared library as a file, and its segments relocated to an address in a process.
//! - [`Tracee`]: a stopped thread of a process: its registers, its memory, system calls that it is
//!   made to make.
//! - [`trace_me`], [`ExecStop`]: a program between execve(2) and its first instruction.
//!
//! - [`Follower`]: a process that is about to execute a program.
//!
//! A thread that is traced can be worked on only by the thread that traces it: the types here stay
//! with the thread that made them.

mod environment;
mod error;
mod follow;
mod image;
mod launch;
mod module;
mod remote;

pub use error::{InjectError, Result};
pub use follow::{Followed, Follower};
pub use image::{Image, Loaded, Segment};
pub use launch::{ExecStop, trace_me};
pub use remote::{Registers, Tracee};
