//! Stack capture inside `malloc`: exact, read-only, without allocation.
//!
//! A stack is found by unwinding from the caller with rules taken from `.eh_frame` ([`arch`]), each
//! computed once and kept in a process-wide cache ([`rules`]). A thread remembers its previous
//! stack ([`walk`]): as soon as a frame equals a remembered one, and the saved words that led
//! outwards from there are still in memory, the rest is the same and is reused. Frames are interned
//! in a tree shared by all threads ([`tree`]); a remembered frame carries its node, so only new
//! frames are looked up. The scopes that the program declares are nodes there too ([`context`]).
//!
//! The dynamic linker is asked for modules ([`modules`]). If it cannot tell, the tool supplies a
//! table of them ([`supplied`]), which may have rules that the tool has generated from their code.
//! A frame in a module without a usable rule ends the stack. Code that belongs to no module has
//! rules of its own (`generated`); the nodes of frames whose callers these do not prove say so.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod arch;
pub mod bounds;
pub mod context;
mod eh_frame;
mod generated;
pub mod modules;
pub mod nodes;
mod row;
pub mod rules;
pub mod supplied;
pub mod tree;
pub mod walk;

pub use generated::executable_range;

use heapledger_core::context::Name;
use heapledger_core::{NodeKind, StackId};

/// The size of a page in bytes.
const PAGE: u64 = 4096;

/// Receives announcements of new nodes and modules. When a call returns true, the announcement is
/// on its way to the reader; when it returns false, the node or module counts as not seen.
pub trait Sink {
    /// Announces a new node. If its kind has a text ([`NodeKind::has_text`]), [`Sink::text`] was
    /// called before.
    #[must_use]
    fn node(&mut self, id: StackId, parent: StackId, kind: NodeKind, address: u64) -> bool;
    /// Announces a name that the next announced node refers to by its address. May be called more
    /// than once for a name. A reader that can read the program's memory does not need it.
    fn text(&mut self, name: &'static Name) {
        let _ = name;
    }
    /// Reports that a node was not made, because the tree has reached its [limit](tree::limit), or
    /// there is no memory: the stack or context loses its inner part. May be called more than once
    /// for a node.
    fn folded(&mut self) {}
    /// Announces a module that is seen for the first time in this epoch.
    #[must_use]
    fn module(&mut self, module: &modules::Module<'_>) -> bool;
    /// Asks the tool for a table of the modules, because an address is in code of a file that
    /// belongs to no known module. True if a table has been [supplied](supplied::supply).
    fn supply_modules(&mut self, address: u64) -> bool {
        let _ = address;
        false
    }
}
