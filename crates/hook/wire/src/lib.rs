//! The communication between the observed program and the collector: the session handshake, rings
//! in shared memory, event encoding.
//!
//! Both sides are built from this crate and carry the same [`VERSION`], so the protocol needs no
//! compatibility: a mismatch is refused in the handshake. The recording format has to last, this
//! protocol does not.
//!
//! - [`armed`]: how a running program is asked to join a session.
//! - [`session`]: the session page and the messages of the handshake.
//! - [`ring`]: a single-producer, single-consumer ring of 64-bit words.
//! - [`entries`]: the calling shapes of the entry points of allocators inside programs.
//! - [`event`]: the encoding of events in words.
//! - [`linker`]: the dynamic linker's function for debuggers.
//! - [`module_table`]: the modules of a program whose C library cannot be asked about them.
//! - [`publish`]: the producer's side of a ring: waiting, waking, writing.
//! - [`stall`]: how a waiting thread detects that the recorder is stalled.
//! - [`placed`]: what a library that is placed into a program is given.
//! - [`redirection`]: the plan by which entry points of allocators are redirected.
//! - [`replay`]: the work of a replay, and its result.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod armed;
pub mod entries;
pub mod event;
pub mod linker;
pub mod module_table;
pub mod placed;
pub mod publish;
pub mod redirection;
pub mod replay;
pub mod ring;
pub mod session;
pub mod stall;

/// The protocol's version, in the handshake and in the session page.
pub const VERSION: u32 = 10;
