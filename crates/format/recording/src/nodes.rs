//! The stack tree of an image.

use std::collections::HashMap;
use std::sync::Arc;

use heapledger_core::StackId;

use crate::error::Error;
use crate::frame::{Compressor, EncodedChunk};
use crate::ids::{ImageId, ModuleId};

/// A node of a stack tree: one frame, under the frame that called it.
///
/// Ids need not come in order, and several ids may stand for equal (parent, module, offset): whoever shows stacks
/// merges them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id; never [`StackId::ROOT`].
    pub id: StackId,
    /// The caller; [`StackId::ROOT`] for an outermost frame.
    pub parent: StackId,
    /// What it stands for.
    pub kind: NodeKind,
    /// The module of the frame's code, or [`ModuleId::UNKNOWN`].
    pub module: ModuleId,
    /// What to look up: an address inside the call, in the module's own ELF addresses; absolute if the module is not
    /// known. Of an epoch: its number.
    pub offset: u64,
}

/// What a node stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NodeKind {
    /// A frame.
    #[default]
    Frame,
    /// Not a frame: a root under which the stacks of one set of loaded modules grow.
    Epoch,
    /// Not a frame: stands for outer frames that were cut off.
    Truncated,
    /// Not a frame: a root for stacks that were not the thread's own (a signal stack, a fiber).
    Foreign,
    /// Something that a newer version added.
    Other(u8),
}

/// Gathers nodes of one image into chunks. Reused from chunk to chunk.
#[derive(Debug)]
pub struct NodesEncoder {
    _private: (),
}

impl NodesEncoder {
    /// An encoder for one image.
    pub fn new(image: ImageId) -> NodesEncoder {
        let _ = image;
        todo!()
    }

    /// Adds a node. Fails, and adds nothing, if the chunk is full or the id is the root's.
    pub fn push(&mut self, node: &Node) -> Result<(), Error> {
        let _ = node;
        todo!()
    }

    /// Whether the chunk must be finished before the next node.
    pub fn is_full(&self) -> bool {
        todo!()
    }

    /// The chunk of the nodes pushed so far. `None` if there are none.
    pub fn finish(&mut self, compressor: &mut Compressor) -> Option<EncodedChunk> {
        let _ = compressor;
        todo!()
    }
}

/// The nodes that one image added, by id. Free of cycles.
#[derive(Debug)]
pub struct NodeTable {
    _private: (),
}

impl NodeTable {
    /// The nodes in ascending order of ids.
    pub fn nodes(&self) -> &[Node] {
        todo!()
    }

    /// The node with this id, if this image added it.
    pub fn get(&self, id: StackId) -> Option<&Node> {
        let _ = id;
        todo!()
    }
}

/// Node tables already unpacked; see [`Recording::stack_tree`](crate::Recording::stack_tree).
#[derive(Debug, Default)]
pub struct NodeCache {
    #[expect(dead_code, reason = "bodies follow")]
    tables: HashMap<ImageId, Arc<NodeTable>>,
}

/// All stacks of an image, those from before a fork included.
#[derive(Clone, Debug)]
pub struct StackTree {
    _private: (),
}

impl StackTree {
    /// The node with this id. `None` for the root, and for an id that the recording does not explain.
    pub fn get(&self, id: StackId) -> Option<&Node> {
        let _ = id;
        todo!()
    }

    /// The nodes of a stack from the innermost to the outermost, epochs left out. Ends early where a parent is missing.
    pub fn frames(&self, id: StackId) -> Frames<'_> {
        let _ = id;
        todo!()
    }
}

/// The frames of a stack, from the innermost to the outermost.
#[derive(Clone, Debug)]
pub struct Frames<'t> {
    _private: &'t (),
}

impl<'t> Iterator for Frames<'t> {
    type Item = &'t Node;

    fn next(&mut self) -> Option<&'t Node> {
        todo!()
    }
}
