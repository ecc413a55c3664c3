//! The nodes of a stack tree, converted for the recording: an address becomes a module and an
//! offset.
//!
//! Modules are loaded and unloaded, and their addresses are reused. So every node belongs to a
//! *module epoch*, that of the root above it. Its module is the latest one that was announced for
//! its address, but not after its epoch.

use std::cell::RefCell;
use std::rc::Rc;

use heapledger_core::{NodeKind, StackId};
use heapledger_recording::{ImageId, Mapping, ModuleId, Node, Record, Site};

use crate::generated::GeneratedCode;
use crate::modules::Modules;
use crate::nodes::{NewNode, to_node};
use crate::stamps::Stamps;
use crate::texts::Addresses;

/// The most by which a new id may exceed the largest id so far. Programs number their nodes
/// consecutively, if not in order.
const GAP_MAX: usize = 1 << 20;

/// The bit of a node whose stack goes through a frame that was left by its frame pointer.
const UNPROVEN: u32 = 1 << 31;

/// A mapped module, and the epoch since which it is mapped.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    mapping: Mapping,
    epoch: u32,
}

/// An image's stack tree, as far as it is needed to find the modules of its nodes.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The texts of the image, by address.
    pub(crate) texts: Addresses,
    pub(crate) stamps: Stamps,
    pub(crate) generated: GeneratedCode,
    epochs: Rc<Epochs>,
    mapped: Vec<Mapped>,
    /// The index in `mapped` of the module that was found last.
    latest: usize,
    /// True if the stacks of some nodes are not proven.
    has_unproven: bool,
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
    /// The epoch plus one, by id from `base`; 0 if it is not known. With [`UNPROVEN`].
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
        (epochs.own.borrow().get(id.0 as usize - epochs.base)? & !UNPROVEN).checked_sub(1)
    }

    /// True if the stack of this node is not proven.
    fn is_unproven(&self, id: StackId) -> bool {
        let mut epochs = self;
        while (id.0 as usize) < epochs.base {
            let Some(parent) = epochs.parent.as_deref() else { return false };
            epochs = parent;
        }
        epochs.own.borrow().get(id.0 as usize - epochs.base).is_some_and(|own| own & UNPROVEN != 0)
    }

    fn mark_unproven(&self, id: StackId) {
        let mut own = self.own.borrow_mut();
        if let Some(known) = (id.0 as usize).checked_sub(self.base).and_then(|at| own.get_mut(at)) {
            *known |= UNPROVEN;
        }
    }

    fn set(&self, id: StackId, epoch: u32) {
        let mut own = self.own.borrow_mut();
        if let Some(known) = (id.0 as usize).checked_sub(self.base).and_then(|at| own.get_mut(at)) {
            *known = epoch.saturating_add(1).min(UNPROVEN - 1) | *known & UNPROVEN;
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
            generated: self.generated.fork(),
            has_unproven: self.has_unproven,
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
            generated: self.generated.fork(),
            has_unproven: self.has_unproven,
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

    /// Gives a forked child a module of its own for generated code, which the parent may replace
    /// from now on, as the child may. Returns its records.
    pub(crate) fn separate_generated_code(&mut self, image: ImageId, modules: &mut Modules) -> Vec<Record> {
        let Some(parents) = self.generated.module() else { return Vec::new() };
        let module = modules.generated();
        self.generated.set_module(module.module);
        let mut records = vec![Record::Module(module.clone())];
        for mapped in self.mapped.iter_mut().filter(|mapped| mapped.mapping.module == parents) {
            mapped.mapping.module = module.module;
            records.push(Record::Mapping(Mapping { image, ..mapped.mapping }));
        }
        records
    }

    /// Returns the number of allocations at those of the sites whose stacks are not proven.
    pub(crate) fn allocations_unproven(&self, sites: impl Iterator<Item = heapledger_ledger::Site>) -> u64 {
        if !self.has_unproven {
            return 0;
        }
        let is_unproven = |stack| self.epochs.is_unproven(self.stamps.parts(stack).0);
        let of = sites.filter(|site| is_unproven(site.stack)).map(|site| Site::from(site).allocations.0);
        of.fold(0, u64::saturating_add)
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
        if node.kind == NodeKind::UnprovenFrame {
            self.has_unproven = true;
            self.epochs.mark_unproven(node.id);
        }
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
                self.epochs.set(node.id, self.epochs.get(node.parent).unwrap_or(UNPROVEN - 2));
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
        if self.has_unproven && self.epochs.is_unproven(node.parent) {
            self.epochs.mark_unproven(node.id);
        }
        if node.kind != NodeKind::Frame && node.kind != NodeKind::UnprovenFrame {
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

#[cfg(test)]
mod tests;
