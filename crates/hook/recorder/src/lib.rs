//! The recorder hook: allocator calls become events in this thread's ring.
//!
//! - [`observer`]: the entry in the hook table; [`hook`]: what it calls, before a free and after an
//!   allocation.
//! - [`block`]: a thread's state; [`attach`]: how a thread comes to it. [`process`]: the process's
//!   state; [`session`]: what it knows of its session; [`connect`]: the handshake with the
//!   collector.
//! - [`exit`]: a process that exits.
//! - [`follow`]: a process that is followed into another program.
//! - [`leave`]: how a process leaves a session, so that it can join another one.
//! - `usable`: the sizes of blocks as the allocator gives them.
//! - [`verify`]: captured stacks against glibc's.
//! - [`arch`]: a call on another stack.
//!
//! The crate is told by [`process::start`] which session to join; until then, and when it cannot
//! join, every hook returns at once.
#![no_std]

mod accept;
mod addresses;
mod announce;
pub mod arch;
pub mod attach;
pub mod block;
mod capture;
pub mod cell;
mod common_ring;
pub mod connect;
mod emit;
pub mod exit;
pub mod follow;
pub mod hook;
pub mod leave;
pub mod observer;
pub mod process;
mod rings;
mod sampling;
pub mod session;
mod table;
pub mod threads;
mod turns;
mod usable;
pub mod verify;
