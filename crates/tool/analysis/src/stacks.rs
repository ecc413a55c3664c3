//! One stack tree for the whole session.

use std::collections::HashMap;

use heapledger_core::StackId;
use heapledger_recording::{Damage, ImageId, ModuleId, Node, NodeCache, NodeKind, Recording, StackTree};

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
struct Merger {
    tree: StackTree,
    known: HashMap<StackId, NodeId>,
}

impl Merger {
    /// The merged node of a stack of the image.
    fn node(&mut self, stacks: &mut Stacks, stack: StackId) -> NodeId {
        let mut path: Vec<Node> = Vec::new();
        let mut node = NodeId::ROOT;
        for frame in self.tree.frames(stack) {
            if let Some(&known) = self.known.get(&frame.id) {
                node = known;
                break;
            }
            path.push(*frame);
        }
        for frame in path.into_iter().rev() {
            // Equal stacks of different epochs are equal: a module's name and offset say all.
            if frame.kind == NodeKind::Epoch {
                continue;
            }
            node = stacks.child(node, StackFrame { kind: frame.kind, module: frame.module, offset: frame.offset });
            self.known.insert(frame.id, node);
        }
        node
    }
}

/// The stacks of all images that were asked about, merged as they are met.
#[derive(Debug)]
pub(crate) struct MergedStacks<'r, 'a> {
    recording: &'r Recording<'a>,
    cache: NodeCache,
    mergers: HashMap<ImageId, Merger>,
    pub(crate) stacks: Stacks,
    /// Nodes that could not be read.
    pub(crate) damage: Vec<Damage>,
}

impl<'r, 'a> MergedStacks<'r, 'a> {
    pub(crate) fn new(recording: &'r Recording<'a>) -> MergedStacks<'r, 'a> {
        let (cache, mergers) = (NodeCache::default(), HashMap::new());
        MergedStacks { recording, cache, mergers, stacks: Stacks::default(), damage: Vec::new() }
    }

    /// The merged node of a stack of an image.
    pub(crate) fn node(&mut self, image: ImageId, stack: StackId) -> NodeId {
        let merger = self.mergers.entry(image).or_insert_with(|| {
            let tree = self.recording.stack_tree(image, &mut self.cache);
            self.damage.extend(tree.damage().copied());
            Merger { tree, known: HashMap::new() }
        });
        merger.node(&mut self.stacks, stack)
    }

    /// Nothing more of this image will be asked.
    pub(crate) fn forget(&mut self, image: ImageId) {
        self.mergers.remove(&image);
    }
}
