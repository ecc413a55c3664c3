//! Nodes of stack trees, as programs announce them and as the recording has them.

use heapledger_core::{NodeKind, StackId};
use heapledger_recording::{ModuleId, Node, NodeKind as RecordedKind};

/// A node as announced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewNode {
    pub(crate) id: StackId,
    pub(crate) parent: StackId,
    pub(crate) kind: NodeKind,
    /// The address; for a node with a text, the number of the text.
    pub(crate) address: u64,
}

/// Returns a node as the recording has it.
pub(crate) fn to_node(node: NewNode, module: ModuleId, offset: u64) -> Node {
    let kind = match node.kind {
        NodeKind::Frame | NodeKind::UnprovenFrame => RecordedKind::Frame,
        NodeKind::Epoch => RecordedKind::Epoch,
        NodeKind::Truncated => RecordedKind::Truncated,
        NodeKind::Scope => RecordedKind::Scope,
        NodeKind::Value => RecordedKind::Value,
        NodeKind::Context => RecordedKind::Context,
        NodeKind::Heap => RecordedKind::Heap,
        NodeKind::Stamp => RecordedKind::Stamp,
    };
    let is_unproven = node.kind == NodeKind::UnprovenFrame;
    Node { id: node.id, parent: node.parent, kind, module, offset, is_unproven }
}
