//! The stack tree of the whole session.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::StackId;
use heapledger_recording::{Damage, ImageId, ModuleId, Node, NodeCache, NodeKind, Recording, StackTree, TextId};

use crate::events::EventMap;
use crate::texts::Texts;

/// A node of the merged tree: like a [`StackId`], but the same in all images. As a stack, it stands
/// for the frames, the context that the stack was in, the heap that it allocates from, and the
/// stamp of its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// Returns the number of the node. The numbers of a tree begin at 1 and have no gaps.
    pub(crate) fn number(self) -> usize {
        self.0 as usize
    }

    /// The empty stack, which blocks have if their stack could not be taken.
    pub const ROOT: NodeId = NodeId(0);
}

/// A context: the named scopes of the program that a thread was in. The same in all images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(NodeId);

impl ContextId {
    /// The context outside of all scopes.
    pub const NONE: ContextId = ContextId(NodeId::ROOT);
}

/// A named scope of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// Its name.
    pub name: TextId,
    /// Its value, if it has one.
    pub value: Option<TextId>,
}

/// One frame of the merged tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// The kind of the node.
    pub kind: NodeKind,
    /// The module, or [`ModuleId::UNKNOWN`].
    pub module: ModuleId,
    /// The offset in the module, or another value, depending on the kind.
    pub offset: u64,
}

/// The stacks of all images. Equal stacks are one node, in whatever images and however often the
/// recorder named them.
///
/// Besides frames, the tree has the scopes and values of contexts (under the root). The innermost
/// nodes of a stack are its context (whose offset is its innermost scope or value in this tree),
/// then its heap (whose offset is the name), and then its stamp (whose offset is the text).
///
/// A node takes 8 bytes, and 15 to 30 more while nodes are added.
#[derive(Debug, Default)]
pub struct Stacks {
    /// Node `n` is at index `n - 1`: its parent, whose number is always lower, and its frame.
    nodes: Vec<(NodeId, FrameNumber)>,
    /// The frames of the nodes. Many nodes have the same one.
    frames: Vec<StackFrame>,
    frame_numbers: EventMap<StackFrame, FrameNumber>,
    /// The nodes by parent and frame. Empty if it was [dropped](Stacks::without_index).
    ids: EventMap<(NodeId, FrameNumber), NodeId>,
    number: StacksNumber,
}

/// The index of a frame in [`Stacks::frames_met`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrameNumber(pub(crate) u32);

/// A number that no other stacks of this process have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StacksNumber(u64);

impl Default for StacksNumber {
    fn default() -> StacksNumber {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        StacksNumber(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Stacks {
    /// Returns the frames of a stack from the innermost to the outermost.
    pub fn frames(&self, node: NodeId) -> impl Iterator<Item = StackFrame> + '_ {
        self.path(self.native(node))
    }

    /// Returns the frames of a stack with their nodes, from the innermost to the outermost.
    pub(crate) fn steps(&self, node: NodeId) -> impl Iterator<Item = (NodeId, StackFrame)> + '_ {
        let mut next = self.native(node);
        std::iter::from_fn(move || {
            let (parent, frame) = self.entry(next)?;
            Some((std::mem::replace(&mut next, parent), frame))
        })
    }

    /// Returns the context of a stack.
    pub fn context(&self, node: NodeId) -> ContextId {
        match self.entry(self.unstamped_main(node)) {
            Some((_, frame)) if frame.kind == NodeKind::Context => ContextId(NodeId(frame.offset as u32)),
            _ => ContextId::NONE,
        }
    }

    /// Returns the name of the heap that a stack allocates from; `None` for the allocator's own
    /// heap.
    pub fn heap(&self, node: NodeId) -> Option<TextId> {
        let (_, frame) = self.entry(self.without(node, NodeKind::Stamp))?;
        (frame.kind == NodeKind::Heap).then(|| text(frame))
    }

    /// Returns the stamp of the blocks of a stack, a
    /// [`StampText`](heapledger_recording::StampText); `None` if they have none.
    pub fn stamp(&self, node: NodeId) -> Option<TextId> {
        let (_, frame) = self.entry(node)?;
        (frame.kind == NodeKind::Stamp).then(|| text(frame))
    }

    /// Returns the scopes of a context, the outermost first.
    pub fn scopes(&self, context: ContextId) -> Vec<Scope> {
        let mut scopes = Vec::new();
        let mut value = None;
        for frame in self.path(context.0) {
            match frame.kind {
                NodeKind::Value => value = Some(text(frame)),
                _ => scopes.push(Scope { name: text(frame), value: value.take() }),
            }
        }
        scopes.reverse();
        scopes
    }

    pub(crate) fn number(&self) -> StacksNumber {
        self.number
    }

    /// Returns the number of nodes, which is also the highest number of a node.
    pub(crate) fn length(&self) -> usize {
        self.nodes.len()
    }

    /// Returns all nodes of frames with their parents, each parent before its children.
    pub(crate) fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, NodeId, StackFrame)> + '_ {
        let nodes = self.numbered_nodes().map(|(id, parent, number)| (id, parent, self.frame(number)));
        nodes.filter(|(_, _, frame)| frame.kind == NodeKind::Frame)
    }

    /// Returns all nodes, of whatever kind, with their parents and their frames, each parent before
    /// its children.
    pub(crate) fn numbered_nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, NodeId, FrameNumber)> + '_ {
        self.nodes.iter().enumerate().map(|(at, &(parent, number))| (NodeId(at as u32 + 1), parent, number))
    }

    /// Returns the parent and the frame of a node; `None` for the root.
    #[inline]
    pub(crate) fn numbered_node(&self, node: NodeId) -> Option<(NodeId, FrameNumber)> {
        self.nodes.get(node.0.checked_sub(1)? as usize).copied()
    }

    /// Returns the frames that the nodes have, each once.
    pub(crate) fn frames_met(&self) -> &[StackFrame] {
        &self.frames
    }

    fn frame(&self, number: FrameNumber) -> StackFrame {
        self.frames[number.0 as usize]
    }

    /// Adds all nodes to a checksum.
    pub(crate) fn hash_into(&self, hasher: &mut crc32fast::Hasher) {
        for frame in &self.frames {
            let StackFrame { kind, module, offset } = frame;
            hasher.update(format!("{kind:?} {} {offset} ", module.0).as_bytes());
        }
        let mut bytes = Vec::with_capacity(8 << 12);
        for nodes in self.nodes.chunks(1 << 12) {
            bytes.clear();
            for (parent, frame) in nodes {
                bytes.extend_from_slice(&parent.0.to_le_bytes());
                bytes.extend_from_slice(&frame.0.to_le_bytes());
            }
            hasher.update(&bytes);
        }
    }

    /// Returns stacks with the same nodes, to which others can be added.
    pub(crate) fn copy(&self) -> Stacks {
        let (nodes, frames, frame_numbers) = (self.nodes.clone(), self.frames.clone(), self.frame_numbers.clone());
        Stacks { nodes, frames, frame_numbers, ..Stacks::default() }
    }

    /// Returns the same stacks without the index that is needed to add nodes, which takes more
    /// memory than the nodes do. It is made again if nodes are added.
    pub(crate) fn without_index(mut self) -> Stacks {
        self.ids = EventMap::default();
        self.nodes.shrink_to_fit();
        self
    }

    fn entry(&self, node: NodeId) -> Option<(NodeId, StackFrame)> {
        let (parent, number) = self.nodes[node.0.checked_sub(1)? as usize];
        Some((parent, self.frame(number)))
    }

    /// Returns a node and its ancestors.
    fn path(&self, node: NodeId) -> impl Iterator<Item = StackFrame> + '_ {
        let mut next = self.entry(node);
        std::iter::from_fn(move || {
            let (parent, frame) = next?;
            next = self.entry(parent);
            Some(frame)
        })
    }

    /// Returns the parent of a node of this kind, and any other node itself.
    fn without(&self, node: NodeId, kind: NodeKind) -> NodeId {
        match self.entry(node) {
            Some((parent, frame)) if frame.kind == kind => parent,
            _ => node,
        }
    }

    /// Returns the stack without its stamp, heap and context.
    pub(crate) fn native(&self, node: NodeId) -> NodeId {
        self.without(self.unstamped_main(node), NodeKind::Context)
    }

    /// Returns the stack without its stamp and heap.
    fn unstamped_main(&self, node: NodeId) -> NodeId {
        self.without(self.without(node, NodeKind::Stamp), NodeKind::Heap)
    }

    fn child(&mut self, parent: NodeId, frame: StackFrame) -> NodeId {
        if self.ids.is_empty() && !self.nodes.is_empty() {
            self.ids = self.numbered_nodes().map(|(id, parent, number)| ((parent, number), id)).collect();
        }
        let number = *self.frame_numbers.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            FrameNumber(self.frames.len() as u32 - 1)
        });
        *self.ids.entry((parent, number)).or_insert_with(|| {
            self.nodes.push((parent, number));
            NodeId(self.nodes.len() as u32)
        })
    }
}

/// Returns the text of a scope, a value, a heap or a stamp.
fn text(frame: StackFrame) -> TextId {
    TextId(frame.offset as u32)
}

/// Merges the stacks of one image into the tree.
#[derive(Debug)]
struct Merger {
    tree: StackTree,
    known: HashMap<StackId, NodeId>,
    /// The merged scopes and values of contexts.
    known_paths: HashMap<StackId, NodeId>,
}

impl Merger {
    /// Returns the merged node for a stack of the image. Nodes that are not where they belong are
    /// skipped, as FORMAT.md says.
    fn node(&mut self, stacks: &mut Stacks, texts: &Texts, stack: StackId) -> NodeId {
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
            let Node { kind, module, .. } = frame;
            let (parent, offset) = match kind {
                // Equal stacks of different epochs are equal: the module and the offset are enough.
                NodeKind::Epoch | NodeKind::Scope | NodeKind::Value => continue,
                NodeKind::Context => (stacks.native(node), self.context(stacks, texts, frame.id).0.0.into()),
                NodeKind::Heap => (stacks.unstamped_main(node), texts.merged(&frame).0.into()),
                NodeKind::Stamp => (stacks.without(node, NodeKind::Stamp), texts.merged(&frame).0.into()),
                _ => (stacks.native(node), frame.offset),
            };
            let is_none = kind == NodeKind::Context && offset == 0;
            node = if is_none { parent } else { stacks.child(parent, StackFrame { kind, module, offset }) };
            self.known.insert(frame.id, node);
        }
        node
    }

    /// Returns the merged context for a context node of the image.
    fn context(&mut self, stacks: &mut Stacks, texts: &Texts, context: StackId) -> ContextId {
        let mut path: Vec<Node> = Vec::new();
        let mut node = NodeId::ROOT;
        for step in self.tree.path(context) {
            if let Some(&known) = self.known_paths.get(&step.id) {
                node = known;
                break;
            }
            path.push(*step);
        }
        for step in path.into_iter().rev() {
            let above = stacks.entry(node).map(|(_, frame)| frame.kind);
            if step.kind == NodeKind::Scope || (step.kind == NodeKind::Value && above == Some(NodeKind::Scope)) {
                let (kind, offset) = (step.kind, texts.merged(&step).0.into());
                node = stacks.child(node, StackFrame { kind, module: ModuleId::UNKNOWN, offset });
            }
            self.known_paths.insert(step.id, node);
        }
        ContextId(node)
    }
}

/// The stacks of all images that were asked about, merged when they are met.
#[derive(Debug)]
pub(crate) struct MergedStacks<'r, 'a> {
    recording: &'r Recording<'a>,
    cache: NodeCache,
    mergers: HashMap<ImageId, Merger>,
    texts: Texts,
    pub(crate) stacks: Stacks,
    /// The nodes that could not be read.
    pub(crate) damage: Vec<Damage>,
}

impl<'r, 'a> MergedStacks<'r, 'a> {
    pub(crate) fn new(recording: &'r Recording<'a>) -> MergedStacks<'r, 'a> {
        MergedStacks::with_stacks(Stacks::default(), recording)
    }

    /// Continues with stacks of the same recording that were merged before: equal stacks get the
    /// same nodes.
    pub(crate) fn with_stacks(stacks: Stacks, recording: &'r Recording<'a>) -> MergedStacks<'r, 'a> {
        let (cache, mergers, texts) = (NodeCache::default(), HashMap::new(), Texts::new(recording));
        MergedStacks { recording, cache, mergers, texts, stacks, damage: Vec::new() }
    }

    /// Returns the merged node for a stack of an image.
    pub(crate) fn node(&mut self, image: ImageId, stack: StackId) -> NodeId {
        let merger = self.mergers.entry(image).or_insert_with(|| {
            let tree = self.recording.stack_tree(image, &mut self.cache);
            self.damage.extend(tree.damage().copied());
            Merger { tree, known: HashMap::new(), known_paths: HashMap::new() }
        });
        merger.node(&mut self.stacks, &self.texts, stack)
    }

    /// Drops the state of an image that will not be asked about again.
    pub(crate) fn forget(&mut self, image: ImageId) {
        self.mergers.remove(&image);
    }
}
