//! The nodes of a stack tree, converted for the recording: an address becomes a module and an
//! offset.
//!
//! Modules are loaded and unloaded, and their addresses are reused. So every node belongs to a
//! *module epoch*, that of the root above it. Its module is the latest one that was announced for
//! its address, but not after its epoch.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use heapledger_core::{NodeKind, StackId};
use heapledger_recording as recording;
use recording::{ImageId, Mapping, Module, ModuleId, Node};

use crate::stamps::Stamps;
use crate::texts::Addresses;

/// The most by which a new id may exceed the largest id so far. Programs number their nodes
/// consecutively, if not in order.
const GAP_MAX: usize = 1 << 20;

/// The modules of a session, by path and build id.
#[derive(Debug, Default)]
pub(crate) struct Modules(HashMap<(Vec<u8>, Vec<u8>), ModuleId>);

impl Modules {
    /// Returns all known modules.
    pub(crate) fn all(&self) -> impl Iterator<Item = Module> {
        let module = |((path, build_id), &module): (&(Vec<u8>, Vec<u8>), &ModuleId)| Module {
            module,
            path: path.clone(),
            build_id: build_id.clone(),
        };
        self.0.iter().map(module)
    }

    /// Returns the id of a module, with its record if it is new.
    pub(crate) fn id(&mut self, path: &[u8], build_id: &[u8]) -> (ModuleId, Option<Module>) {
        let next = ModuleId(self.0.len() as u32 + 1);
        let id = *self.0.entry((path.to_vec(), build_id.to_vec())).or_insert(next);
        let new = (id == next).then(|| Module { module: id, path: path.to_vec(), build_id: build_id.to_vec() });
        (id, new)
    }
}

/// A mapped module, and the epoch since which it is mapped.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    mapping: Mapping,
    epoch: u32,
}

/// A node as announced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewNode {
    pub(crate) id: StackId,
    pub(crate) parent: StackId,
    pub(crate) kind: NodeKind,
    /// The address; for a node with a text, the number of the text.
    pub(crate) address: u64,
}

/// An image's stack tree, as far as it is needed to find the modules of its nodes.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The texts of the image, by address.
    pub(crate) texts: Addresses,
    pub(crate) stamps: Stamps,
    epochs: Rc<Epochs>,
    mapped: Vec<Mapped>,
    /// The index in `mapped` of the module that was found last.
    latest: usize,
    /// The nodes whose module or parent is not known yet, with the number of times that they were
    /// looked up in vain.
    open: Vec<(NewNode, u32)>,
}

/// The epoch of each node. Nodes from before a fork are in the parent's.
#[derive(Debug, Default)]
struct Epochs {
    parent: Option<Rc<Epochs>>,
    /// The first id that is this image's own.
    base: usize,
    /// The epoch plus one, by id from `base`; 0 if it is not known.
    own: RefCell<Vec<u32>>,
    /// The nodes of this image's own, if they are kept.
    kept: RefCell<Vec<Node>>,
}

impl Drop for Epochs {
    /// Drops a chain of forks, here and in [`Epochs::get`] without recursion: it is as long as the
    /// program makes it.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut epochs) = next.and_then(Rc::into_inner) {
            next = epochs.parent.take();
        }
    }
}

impl Epochs {
    fn get(&self, id: StackId) -> Option<u32> {
        let mut epochs = self;
        while (id.0 as usize) < epochs.base {
            epochs = epochs.parent.as_deref()?;
        }
        if id == StackId::ROOT {
            return Some(0);
        }
        epochs.own.borrow().get(id.0 as usize - epochs.base)?.checked_sub(1)
    }

    fn set(&self, id: StackId, epoch: u32) {
        let mut own = self.own.borrow_mut();
        if let Some(known) = (id.0 as usize).checked_sub(self.base).and_then(|at| own.get_mut(at)) {
            *known = epoch.saturating_add(1);
        }
    }
}

/// An id of a node that no image can have reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Implausible;

impl Tree {
    /// Returns the tree for a child that is forked now; its own ids begin with `base`.
    pub(crate) fn fork(&self, base: StackId) -> Tree {
        let (own, kept) = (RefCell::default(), RefCell::default());
        let epochs = Epochs { parent: Some(Rc::clone(&self.epochs)), base: base.0 as usize, own, kept };
        Tree {
            epochs: Rc::new(epochs),
            mapped: self.mapped.clone(),
            latest: self.latest,
            open: Vec::new(),
            texts: self.texts.clone(),
            stamps: self.stamps.fork(),
        }
    }

    /// Returns the current tree, to be forked later.
    pub(crate) fn snapshot(&self) -> Tree {
        Tree {
            epochs: Rc::clone(&self.epochs),
            mapped: self.mapped.clone(),
            latest: self.latest,
            open: Vec::new(),
            texts: self.texts.clone(),
            stamps: self.stamps.fork(),
        }
    }

    /// Keeps a node for [`Tree::kept`].
    pub(crate) fn keep(&self, node: Node) {
        self.epochs.kept.borrow_mut().push(node);
    }

    /// Calls `take` for all kept nodes that stacks of this image may have: its own, and those that
    /// the images it was forked from had before the fork.
    pub(crate) fn kept(&self, mut take: impl FnMut(Node)) {
        let (mut epochs, mut end) = (Some(&self.epochs), usize::MAX);
        while let Some(these) = epochs {
            these.kept.borrow().iter().filter(|node| (node.id.0 as usize) < end).for_each(|node| take(*node));
            end = end.min(these.base);
            epochs = these.parent.as_ref();
        }
    }

    /// Returns the known mappings, in the address space of this image.
    pub(crate) fn mappings(&self, image: ImageId) -> impl Iterator<Item = Mapping> {
        self.mapped.iter().map(move |mapped| Mapping { image, ..mapped.mapping })
    }

    /// True if there are nodes for [`Tree::resolve`].
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Adds the mapping of a module.
    pub(crate) fn map(&mut self, mapping: Mapping, epoch: u32) {
        self.mapped.push(Mapped { mapping, epoch });
    }

    /// Adds a node. Returns it if it can be resolved at once; otherwise [`Tree::resolve`] does it.
    ///
    /// Only a module of the same epoch resolves it at once. An older module may have been unloaded:
    /// the announcement of its successor may still be in another thread's ring.
    pub(crate) fn add(&mut self, node: NewNode) -> Result<Option<Node>, Implausible> {
        self.reserve(node.id)?;
        let resolved = self.look_up(node, false);
        if resolved.is_none() {
            self.open.push((node, 0));
        }
        Ok(resolved)
    }

    /// Calls `take` for the nodes that can be resolved by now. A node that cannot be resolved by
    /// the second call gets a module of an older epoch, or else its absolute address.
    pub(crate) fn resolve(&mut self, is_last: bool, mut take: impl FnMut(Node)) {
        let mut open = std::mem::take(&mut self.open);
        open.retain_mut(|(node, tries)| {
            *tries += 1;
            let is_last = is_last || *tries > 1;
            if let Some(node) = self.look_up(*node, is_last) {
                take(node);
            } else if is_last {
                // Its children must not be given up as well.
                self.epochs.set(node.id, self.epochs.get(node.parent).unwrap_or(u32::MAX - 1));
                take(to_node(*node, ModuleId::UNKNOWN, node.address));
            } else {
                return true;
            }
            false
        });
        self.open = open;
    }

    /// Makes room for a node's epoch.
    fn reserve(&self, id: StackId) -> Result<(), Implausible> {
        let mut own = self.epochs.own.borrow_mut();
        let at = (id.0 as usize).checked_sub(self.epochs.base).ok_or(Implausible)?;
        if id == StackId::ROOT || id >= StackId::PROGRAM_END || at > own.len() + GAP_MAX {
            return Err(Implausible);
        }
        if at >= own.len() {
            own.resize(at + 1, 0);
        }
        Ok(())
    }

    #[inline]
    fn look_up(&mut self, node: NewNode, any_epoch: bool) -> Option<Node> {
        if node.kind == NodeKind::Epoch {
            self.epochs.set(node.id, node.address as u32);
            return Some(to_node(node, ModuleId::UNKNOWN, node.address));
        }
        let epoch = self.epochs.get(node.parent)?;
        self.epochs.set(node.id, epoch);
        if node.kind != NodeKind::Frame {
            return Some(to_node(node, ModuleId::UNKNOWN, node.address));
        }
        let mapping = self.find(node.address, epoch, any_epoch)?;
        Some(to_node(node, mapping.module, node.address.wrapping_sub(mapping.bias)))
    }

    /// Returns the module at an address in an epoch, or in any earlier one if `any_epoch`.
    fn find(&mut self, address: u64, epoch: u32, any_epoch: bool) -> Option<Mapping> {
        let contains = |mapped: &Mapped| mapped.mapping.start <= address && address < mapped.mapping.end;
        if let Some(latest) = self.mapped.get(self.latest)
            && latest.epoch == epoch
            && contains(latest)
        {
            return Some(latest.mapping);
        }
        let candidates = self.mapped.iter().enumerate().filter(|(_, mapped)| mapped.epoch <= epoch && contains(mapped));
        let (at, found) = candidates.max_by_key(|(at, mapped)| (mapped.epoch, *at))?;
        self.latest = at;
        (any_epoch || found.epoch == epoch).then_some(found.mapping)
    }
}

pub(crate) fn to_node(node: NewNode, module: ModuleId, offset: u64) -> Node {
    let kind = match node.kind {
        NodeKind::Frame => recording::NodeKind::Frame,
        NodeKind::Epoch => recording::NodeKind::Epoch,
        NodeKind::Truncated => recording::NodeKind::Truncated,
        NodeKind::Scope => recording::NodeKind::Scope,
        NodeKind::Value => recording::NodeKind::Value,
        NodeKind::Context => recording::NodeKind::Context,
        NodeKind::Heap => recording::NodeKind::Heap,
        NodeKind::Stamp => recording::NodeKind::Stamp,
    };
    Node { id: node.id, parent: node.parent, kind, module, offset }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(module: u32, start: u64) -> Mapping {
        Mapping { module: ModuleId(module), start, end: start + 0x1000, bias: start - 0x10, ..Mapping::default() }
    }

    fn node(id: u32, parent: u32, address: u64) -> NewNode {
        NewNode { id: StackId(id), parent: StackId(parent), kind: NodeKind::Frame, address }
    }

    fn epoch(id: u32, number: u64) -> NewNode {
        NewNode { kind: NodeKind::Epoch, ..node(id, 0, number) }
    }

    fn module_of(tree: &mut Tree, new: NewNode) -> Option<(u32, u64)> {
        tree.add(new).unwrap().map(|node| (node.module.0, node.offset))
    }

    #[test]
    fn the_epoch_decides_whose_address_it_is() {
        let mut tree = Tree::default();
        tree.map(mapping(1, 0x5000), 0);
        tree.map(mapping(2, 0x9000), 0);
        assert!(module_of(&mut tree, epoch(1, 0)).is_some());
        assert_eq!(module_of(&mut tree, node(2, 1, 0x5004)), Some((1, 0x14)));
        // In epoch 3 the first module was replaced by another one; the second is still there.
        tree.map(mapping(3, 0x5000), 3);
        assert!(module_of(&mut tree, epoch(3, 3)).is_some());
        assert_eq!(module_of(&mut tree, node(4, 3, 0x5004)), Some((3, 0x14)));
        // A late node of the first epoch is resolved correctly.
        assert_eq!(module_of(&mut tree, node(5, 2, 0x5004)), Some((1, 0x14)));
        // It is not known at once whether the second module is still there.
        assert_eq!(module_of(&mut tree, node(6, 4, 0x9fff)), None);
        assert_eq!(module_of(&mut tree, node(7, 4, 0x9000)), None);
        let mut resolved = Vec::new();
        tree.resolve(false, |node| resolved.push((node.id.0, node.module.0, node.offset)));
        tree.map(mapping(4, 0x8f80), 3);
        tree.resolve(false, |node| resolved.push((node.id.0, node.module.0, node.offset)));
        assert_eq!(resolved, [(6, 2, 0x100f), (7, 4, 0x90)]);
    }

    #[test]
    fn what_is_not_known_yet_waits() {
        let mut tree = Tree::default();
        assert_eq!(module_of(&mut tree, node(2, 1, 0x5004)), None);
        assert_eq!(module_of(&mut tree, node(3, 2, 0x7777_0000)), None);
        assert!(module_of(&mut tree, epoch(1, 0)).is_some());
        tree.map(mapping(1, 0x5000), 0);
        let mut resolved = Vec::new();
        tree.resolve(false, |node| resolved.push((node.id.0, node.module.0, node.offset)));
        assert_eq!(resolved, [(2, 1, 0x14)]);
        tree.resolve(false, |node| resolved.push((node.id.0, node.module.0, node.offset)));
        assert_eq!(resolved, [(2, 1, 0x14), (3, 0, 0x7777_0000)]);
        assert!(tree.open.is_empty());
    }

    #[test]
    fn a_child_goes_on_with_its_parents_tree() {
        let mut tree = Tree::default();
        tree.map(mapping(1, 0x5000), 2);
        tree.add(epoch(1, 2)).unwrap();
        tree.add(node(2, 1, 0x5000)).unwrap();
        let mut child = tree.fork(StackId(3));
        let mut grandchild = child.fork(StackId(3));
        assert_eq!(module_of(&mut tree, node(3, 2, 0x5001)), Some((1, 0x11)));
        assert_eq!(module_of(&mut child, node(3, 2, 0x5002)), Some((1, 0x12)));
        assert_eq!(module_of(&mut grandchild, node(4, 2, 0x5003)), Some((1, 0x13)));
    }

    #[test]
    fn long_chains_of_forks_end_well() {
        let mut tree = Tree::default();
        tree.add(epoch(1, 7)).unwrap();
        for _ in 0..200_000 {
            tree = tree.fork(StackId(2));
        }
        assert_eq!(tree.epochs.get(StackId(1)), Some(7));
    }

    #[test]
    fn implausible_ids_are_refused() {
        let mut tree = Tree::default().fork(StackId(10));
        assert!(tree.add(node(9, 0, 0)).is_err());
        assert!(tree.add(node(StackId::MAX.0, 0, 0)).is_err());
        assert!(Tree::default().add(node(0, 0, 0)).is_err());
    }

    #[test]
    fn modules_are_numbered_once() {
        let mut modules = Modules::default();
        assert_eq!(modules.id(b"/a", b"1").0, ModuleId(1));
        assert_eq!(modules.id(b"/a", b"2").1.unwrap().module, ModuleId(2));
        assert_eq!(modules.id(b"/a", b"1"), (ModuleId(1), None));
    }
}
