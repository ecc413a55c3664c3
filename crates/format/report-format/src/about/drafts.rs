//! The nodes of trees while they are built.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::Note;
use crate::report::Unit;

/// Nodes, identified by their indices.
#[derive(Default)]
pub(super) struct Drafts<'r> {
    pub(super) nodes: Vec<Draft<'r>>,
    /// Nodes by parent and name. Roots of trees have no parent, and neither do nodes without a
    /// tree.
    by_parent: HashMap<(Parent, &'r str), usize>,
}

/// The parent of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Parent {
    Nothing,
    NothingAlone,
    Node(usize),
}

/// A node while its tree is built.
pub(super) struct Draft<'r> {
    pub(super) name: Cow<'r, str>,
    pub(super) unit: Unit,
    pub(super) amount: Option<i64>,
    pub(super) description: Option<Arc<str>>,
    /// The number of reports of which it is the sum, if there are several.
    pub(super) merged: u32,
    pub(super) presence: Option<Note>,
    pub(super) children: Vec<usize>,
    pub(super) hides_children: bool,
}

impl<'r> Draft<'r> {
    pub(super) fn new(name: impl Into<Cow<'r, str>>, unit: Unit) -> Draft<'r> {
        Draft {
            name: name.into(),
            unit,
            amount: None,
            description: None,
            merged: 0,
            presence: None,
            children: Vec::new(),
            hides_children: false,
        }
    }
}

impl<'r> Drafts<'r> {
    pub(super) fn push(&mut self, draft: Draft<'r>) -> usize {
        self.nodes.push(draft);
        self.nodes.len() - 1
    }

    /// Returns the node with this name there, and true if it is new.
    pub(super) fn find_or_add(&mut self, parent_key: Parent, name: &'r str, unit: Unit) -> (usize, bool) {
        let next = self.nodes.len();
        let at = *self.by_parent.entry((parent_key, name)).or_insert(next);
        if at < next {
            return (at, false);
        }
        if let Parent::Node(parent) = parent_key {
            self.nodes[parent].children.push(at);
        }
        self.nodes.push(Draft::new(name, unit));
        (at, true)
    }
}
