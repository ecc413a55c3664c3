//! Firefox's heap snapshots (`.fxsnapshot`), as `ChromeUtils.saveHeapSnapshot`, the memory panel of
//! its tools and `takeHeapSnapshot` write them.
//!
//! The file is a gzip stream of messages in the encoding of Protocol Buffers, each after its length
//! in bytes as a varint: one `Metadata`, then a `Node` for each node, the root first. The messages
//! are defined in `devtools/shared/heapsnapshot/CoreDump.proto` of Firefox:
//!
//! - `Metadata`: time 1, in microseconds since 1970.
//! - `Node`: id 1, type name 2 or 3, size 4, edges 5, allocation stack 6, class 7 or 8, coarse type
//!   9, script file 10 or 11, descriptive name 12 or 13.
//! - `Edge`: referent 1, name 2 or 3.
//! - `StackFrame`: data 1, or the id of a frame that has been seen 2. Its data: id 1, parent 2,
//!   line 3, column 4, source 5 or 6, function 7 or 8, is system 9, is self-hosted 10.
//!
//! Where there are two numbers, the first is a text, and the second refers to one that came before,
//! by its position among all texts of its width. There are two widths, with positions of their own:
//! UTF-16 in little-endian order for type names, names of edges, sources, functions and descriptive
//! names; single bytes for classes and script files. Texts are counted in this order, whatever the
//! order in the file: type name, names of edges, stack, class, script file, descriptive name; in a
//! frame: source, function, parent.

mod read;
mod wire;
mod write;

pub use read::read;
pub(crate) use read::{detects, read_unpacked};
pub use write::write;

/// The maximum number of frames in a stack that Firefox reads.
pub(crate) const FIREFOX_FRAMES_MAX: usize = 60;

#[cfg(test)]
mod tests;
