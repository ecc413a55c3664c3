//! Stack capture inside `malloc`: exact, read-only, without allocation.
//!
//! A stack is found by unwinding from the caller with rules taken from `.eh_frame` ([`arch`]), each computed once and
//! kept in a process-wide cache ([`rules`]). A thread remembers its previous stack ([`walk`]): as soon as a frame
//! equals a remembered one, and the saved words that led outwards from there are still in memory, the rest is the same
//! and is taken over. Frames are interned in a tree shared by all threads ([`tree`]); a remembered frame carries its
//! node, so only new frames are looked up. The scopes that the program says it is in are nodes there too ([`context`]).
//!
//! What the capture cannot do, it does not guess: a frame without a usable rule ends the stack.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod arch;
pub mod bounds;
pub mod context;
pub mod modules;
pub mod nodes;
mod row;
pub mod rules;
pub mod tree;
pub mod walk;

use heapledger_core::context::Name;
use heapledger_core::{NodeKind, StackId};

/// Bytes of a page of memory.
const PAGE: u64 = 4096;

/// Where new nodes and modules are announced. An announcement must be on its way to the reader when the call returns, or
/// the call returns false: then it is as if the node or module had not been seen.
pub trait Sink {
    /// A node has been made. Where its kind has a text ([`NodeKind::has_text`]), [`Sink::text`] came before.
    #[must_use]
    fn node(&mut self, id: StackId, parent: StackId, kind: NodeKind, address: u64) -> bool;
    /// A node that is about to be announced refers to this name by its address. May be told of more than once. Of no
    /// interest to who can read the program's memory.
    fn text(&mut self, name: &'static Name) {
        let _ = name;
    }
    /// A node was not made, because the tree has come to its [limit](tree::limit), or there is no
    /// memory: the stack or context loses its inner part. May be told more than once of one.
    fn folded(&mut self) {}
    /// A module has been seen for the first time in this epoch.
    #[must_use]
    fn module(&mut self, module: &modules::Module<'_>) -> bool;
}
