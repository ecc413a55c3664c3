//! One stack tree for the whole session.

use std::collections::HashMap;

use heapledger_core::StackId;
use heapledger_recording::{ModuleId, Node, NodeKind, StackTree};

/// A node of the merged tree: like a [`StackId`], but the same in all images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// The empty stack: that of blocks whose stack could not be taken.
    pub const ROOT: NodeId = NodeId(0);
}

/// One frame of the merged tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// What it stands for.
    pub kind: NodeKind,
    /// The module, or [`ModuleId::UNKNOWN`].
    pub module: ModuleId,
    /// What to look up in the module.
    pub offset: u64,
}

/// The stacks of all images. Equal stacks are one, in whichever image and however often the recorder named them.
#[derive(Debug, Default)]
pub struct Stacks {
    /// Node `n` is at `n - 1`; a parent's number is always lower.
    nodes: Vec<(NodeId, StackFrame)>,
    ids: HashMap<(NodeId, StackFrame), NodeId>,
}

impl Stacks {
    /// The frames of a stack from the innermost to the outermost.
    pub fn frames(&self, node: NodeId) -> impl Iterator<Item = StackFrame> + '_ {
        let entry = |node: NodeId| Some(self.nodes[node.0.checked_sub(1)? as usize]);
        let mut next = entry(node);
        std::iter::from_fn(move || {
            let (parent, frame) = next?;
            next = entry(parent);
            Some(frame)
        })
    }

    fn child(&mut self, parent: NodeId, frame: StackFrame) -> NodeId {
        *self.ids.entry((parent, frame)).or_insert_with(|| {
            self.nodes.push((parent, frame));
            NodeId(self.nodes.len() as u32)
        })
    }
}

/// Takes the stacks of one image over.
#[derive(Debug)]
pub(crate) struct Merger<'s> {
    stacks: &'s mut Stacks,
    tree: StackTree,
    known: HashMap<StackId, NodeId>,
    path: Vec<Node>,
}

impl<'s> Merger<'s> {
    pub(crate) fn new(stacks: &'s mut Stacks, tree: StackTree) -> Merger<'s> {
        Merger { stacks, tree, known: HashMap::new(), path: Vec::new() }
    }

    /// The merged node of a stack of the image.
    pub(crate) fn node(&mut self, stack: StackId) -> NodeId {
        self.path.clear();
        let mut node = NodeId::ROOT;
        for frame in self.tree.frames(stack) {
            if let Some(&known) = self.known.get(&frame.id) {
                node = known;
                break;
            }
            self.path.push(*frame);
        }
        for frame in self.path.drain(..).rev() {
            // Equal stacks of different epochs are equal: a module's name and offset say all.
            if frame.kind == NodeKind::Epoch {
                continue;
            }
            node = self.stacks.child(node, StackFrame { kind: frame.kind, module: frame.module, offset: frame.offset });
            self.known.insert(frame.id, node);
        }
        node
    }
}
