//! The recorder hook: allocator calls become events in this thread's ring.
//!
//! - [`observer`]: the entry in the hook table; [`hook`]: what it calls, before a free and after an
//!   allocation.
//! - [`block`]: a thread's state; [`process`]: the process's; [`connect`]: the handshake with the
//!   collector.
//! - [`verify`]: captured stacks against glibc's.
//! - [`arch`]: a call on another stack.
//!
//! The crate is told by [`process::start`] which session to join; until then, and when it cannot
//! join, every hook returns at once.
#![no_std]

mod addresses;
pub mod arch;
pub mod block;
pub mod connect;
pub mod hook;
pub mod observer;
pub mod process;
pub mod verify;
