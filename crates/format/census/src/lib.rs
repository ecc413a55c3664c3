//! The census of a heap: who is in it, who holds it, and what would be freed.
//!
//! A [`Graph`](graph::Graph) holds the nodes of a heap and the named edges between them. A
//! [`Source`](graph::Source) fills it: the snapshot of a browser or of a JavaScript engine.
//! [`read`](read::read) reads snapshots of Firefox ([`fxsnapshot`]) and V8 ([`heapsnapshot`]) by
//! their contents; both modules write graphs, too, and [`convert`] says what is lost by it.
//!
//! Readers take memory in proportion to the unpacked file. Of a compressed file, they unpack at
//! most 8 GiB. They never panic, and report the [offset](ReadError) of an error.
//!
//! Questions to a graph:
//!
//! - [`Census`](result::Census): the nodes in groups ([`breakdown`]), counted ([`count`]); the
//!   difference of two ([`diff`]); both as a tree of rows ([`tree`]).
//! - [`Dominators`](dominators::Dominators): who retains how much.
//! - [`ShortestPaths`](paths::ShortestPaths): why a node is alive.
//! - [`find`]: duplicates, kept strings, closures, detached DOM, unreachable nodes.
#![forbid(unsafe_code)]

pub mod breakdown;
mod compare;
pub mod convert;
pub mod count;
pub mod diff;
pub mod dominators;
pub mod find;
#[doc(hidden)]
pub mod fuzzing;
pub mod fxsnapshot;
pub mod graph;
pub mod heapsnapshot;
mod input;
pub mod paths;
#[cfg(test)]
mod random;
pub mod read;
mod read_error;
pub mod result;
pub mod sites;
pub mod tree;
mod unpack;

pub use read_error::ReadError;
