//! How the observed program and the collector talk: the session handshake, rings in shared memory, event encoding.
//!
//! Both sides are built from this crate and carry the same [`VERSION`], so the protocol needs no compatibility: a
//! mismatch is refused in the handshake. What has to last is the recording format, not this.
//!
//! - [`session`]: the session page and the messages of the handshake.
//! - [`ring`]: a single-producer, single-consumer ring of 64-bit words.
//! - [`event`]: events to words and back.
//! - [`publish`]: the producer's side put together: waiting, waking, writing.
//! - [`stall`]: how a thread that waits notices that the recorder stands still.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod event;
pub mod publish;
pub mod ring;
pub mod session;
pub mod stall;

/// The protocol's version, in the handshake and in the session page.
pub const VERSION: u32 = 4;
