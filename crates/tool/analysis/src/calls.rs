//! Sites as a tree of calls.

use std::collections::HashMap;

use crate::amount::{Amount, Metric, order};
use crate::functions::{Frame, FunctionId, Location};
use crate::layers::{Direction, Layer};
use crate::names::Names;
use crate::profile::Profile;

/// A tree of calls: each node is a function, called from (or, bottom-up, calling) that of its
/// parent.
///
/// Allocator functions at the inner end of a stack are left out.
#[derive(Debug)]
pub struct CallTree {
    nodes: Vec<CallNode>,
}

/// A node of a tree of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u32);

impl CallId {
    /// Not a function: the parent of the outermost ones.
    pub const ROOT: CallId = CallId(0);
}

/// A function in a tree of calls.
#[derive(Clone, Debug)]
pub struct CallNode {
    /// The function; `None` for the root.
    pub function: Option<FunctionId>,
    /// The source location in the function, if all stacks agree on it.
    pub location: Option<Location>,
    /// True if it was inlined into its caller in all stacks.
    pub inlined: bool,
    /// The amount of the stacks through this node.
    pub amount: Amount,
    /// The amount of the stacks that end at this node.
    pub own: Amount,
    children: Vec<CallId>,
}

impl CallTree {
    /// Builds the tree of all sites of a profile, with the largest nodes first. Its outer levels
    /// come from the first layer, the next ones from the second, and so on. Scopes and heaps appear
    /// in it like functions.
    pub fn new(
        profile: &Profile,
        names: &mut Names<'_, '_>,
        layers: &[Layer],
        direction: Direction,
        metric: Metric,
    ) -> CallTree {
        let mut tree = CallTree { nodes: vec![CallNode::new(None, None, false)] };
        let mut ids: HashMap<(CallId, FunctionId), CallId> = HashMap::new();
        for site in &profile.sites {
            let frames = names.layers(&profile.stacks, site, layers, direction);
            let mut at = CallId::ROOT;
            tree.node_mut(at).amount += site.amount;
            for frame in frames {
                at = *ids.entry((at, frame.function)).or_insert_with(|| tree.add(at, &frame));
                let node = tree.node_mut(at);
                node.amount += site.amount;
                if node.location != frame.location {
                    node.location = None;
                }
                node.inlined &= frame.inlined;
            }
            tree.node_mut(at).own += site.amount;
        }
        tree.sort(metric);
        tree
    }

    /// Returns the tree of these nodes, the root first, and each one after its parent, whose index
    /// is beside it. Of siblings with equal amounts, the one comes first that does here.
    pub(crate) fn of_nodes(nodes: Vec<(usize, CallNode)>, metric: Metric) -> CallTree {
        let mut tree = CallTree { nodes: Vec::with_capacity(nodes.len()) };
        for (parent, node) in nodes {
            let id = CallId(tree.nodes.len() as u32);
            tree.nodes.push(node);
            if id != CallId::ROOT {
                tree.nodes[parent].children.push(id);
            }
        }
        tree.sort(metric);
        tree
    }

    /// Returns a node.
    pub fn node(&self, id: CallId) -> &CallNode {
        &self.nodes[id.0 as usize]
    }

    /// Returns the children of a node, the largest first.
    pub fn children(&self, id: CallId) -> &[CallId] {
        &self.node(id).children
    }

    fn node_mut(&mut self, id: CallId) -> &mut CallNode {
        &mut self.nodes[id.0 as usize]
    }

    fn add(&mut self, parent: CallId, frame: &Frame) -> CallId {
        let id = CallId(self.nodes.len() as u32);
        self.nodes.push(CallNode::new(Some(frame.function), frame.location.clone(), frame.inlined));
        self.node_mut(parent).children.push(id);
        id
    }

    fn sort(&mut self, metric: Metric) {
        for at in 0..self.nodes.len() {
            let mut children = std::mem::take(&mut self.nodes[at].children);
            children.sort_by(|&a, &b| order(&self.node(b).amount, &self.node(a).amount, metric).then(a.cmp(&b)));
            self.nodes[at].children = children;
        }
    }
}

impl CallNode {
    pub(crate) fn new(function: Option<FunctionId>, location: Option<Location>, inlined: bool) -> CallNode {
        let (amount, own) = Default::default();
        CallNode { function, location, inlined, amount, own, children: Vec::new() }
    }
}
