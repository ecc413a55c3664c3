//! Makes the stack tree of an image, and the records about the image.

use std::collections::{HashMap, HashSet};

use heapledger_core::StackId;
use heapledger_profile_formats::{self as profiles, Profile};
use heapledger_recording::{
    ImageEnd, ImageEndReason, ImageId, ImageStart, Mapping, ModuleId, Node, NodeKind, Record, Session, StampText, Time,
};

use crate::import::places::{Common, Places};

/// The stack tree of an image that is being built.
#[derive(Debug)]
pub(super) struct Tree<'p> {
    profile: &'p Profile,
    places: &'p Places,
    pub(super) nodes: Vec<Node>,
    ids: HashMap<(StackId, NodeKind, ModuleId, u64), StackId>,
    /// The number of ids, from 1 on, that are reserved for the innermost nodes of samples.
    leaves: u32,
    /// The indices of the profile's modules that stacks go through.
    used: HashSet<usize>,
}

impl<'p> Tree<'p> {
    /// Returns an empty tree. The first ids are reserved for the innermost nodes of `leaves`
    /// samples.
    pub(super) fn new(profile: &'p Profile, places: &'p Places, leaves: u32) -> Tree<'p> {
        let (nodes, ids, used) = <(Vec<_>, HashMap<_, _>, HashSet<_>)>::default();
        Tree { profile, places, nodes, ids, leaves, used }
    }

    /// Returns the stack of a sample, with the context, the heap and the type in its labels.
    pub(super) fn stack(&mut self, sample: &profiles::Sample, common: &mut Common) -> StackId {
        let mut stack = StackId::ROOT;
        for &at in sample.locations.iter().rev() {
            let Some(&(module, offset)) = self.places.locations.get(at) else { continue };
            self.used.extend(self.profile.locations[at].module);
            stack = self.node(stack, NodeKind::Frame, module, offset);
        }
        let label = |name: &str| sample.labels.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        if let Some(context) = label("context") {
            let mut scope = StackId::ROOT;
            for name in context.split('/') {
                let text = common.text(name.as_bytes().to_vec());
                scope = self.node(scope, NodeKind::Scope, ModuleId::UNKNOWN, text.0.into());
            }
            stack = self.node(stack, NodeKind::Context, ModuleId::UNKNOWN, scope.0.into());
        }
        if let Some(heap) = label("heap") {
            let text = common.text(heap.as_bytes().to_vec());
            stack = self.node(stack, NodeKind::Heap, ModuleId::UNKNOWN, text.0.into());
        }
        if let Some(type_name) = label("type") {
            let stamp = StampText { type_name: type_name.replace('\n', " ").into(), ..StampText::default() };
            let text = common.text(stamp.to_bytes());
            stack = self.node(stack, NodeKind::Stamp, ModuleId::UNKNOWN, text.0.into());
        }
        stack
    }

    /// Adds the stack of a sample once more, as a node with the id that events use for it.
    pub(super) fn add_leaf(&mut self, at: usize, common: &mut Common) {
        let Some(sample) = self.profile.samples.get(at) else { return };
        let stack = self.stack(sample, common);
        let id = leaf(at);
        let innermost = stack.0.checked_sub(self.leaves + 1).and_then(|at| self.nodes.get(at as usize));
        let (parent, module) = (StackId::ROOT, ModuleId::UNKNOWN);
        // A stack without frames is the root, which cannot be in the tree twice.
        let none = Node { id, parent, kind: NodeKind::Truncated, module, offset: 0, is_unproven: false };
        let node = Node { id, ..innermost.copied().unwrap_or(none) };
        self.nodes.push(node);
    }

    /// Returns the mappings of the modules that stacks go through.
    pub(super) fn mappings(&self, image: ImageId) -> Vec<Record> {
        let mut used: Vec<usize> = self.used.iter().copied().collect();
        used.sort_unstable();
        let modules = used.into_iter().filter_map(|at| self.profile.modules.get(at).zip(self.places.modules.get(at)));
        let mapping = |(module, &(id, bias)): (&profiles::Module, &(ModuleId, u64))| Mapping {
            image,
            module: id,
            start: module.start,
            end: module.end,
            bias,
            ..Mapping::default()
        };
        modules.filter(|(module, _)| module.start < module.end).map(mapping).map(Record::Mapping).collect()
    }

    fn node(&mut self, parent: StackId, kind: NodeKind, module: ModuleId, offset: u64) -> StackId {
        let (nodes, leaves) = (&mut self.nodes, self.leaves);
        *self.ids.entry((parent, kind, module, offset)).or_insert_with(|| {
            // Leaves take positions in `nodes` too, but have ids of their own.
            let id = StackId(leaves + nodes.len() as u32 + 1);
            nodes.push(Node { id, parent, kind, module, offset, is_unproven: false });
            id
        })
    }
}

/// Returns the id of a sample's stack, which is known before the stack is in the tree.
pub(super) fn leaf(sample: usize) -> StackId {
    StackId(sample as u32 + 1)
}

/// Returns the record of the session. The first of its processes stands for all.
pub(super) fn session(profile: &Profile, source: &str, totals_only: bool) -> Record {
    Record::Session(Session {
        tool_version: env!("CARGO_PKG_VERSION").into(),
        start_unix_ns: profile.start_unix_ns,
        command: words(&profile.command),
        options: format!("imported from {source}"),
        totals_only,
        ..Session::default()
    })
}

/// Returns the record of a process's beginning.
pub(super) fn image_start(image: ImageId, pid: u32, command: &str, profile: &Profile) -> Record {
    let executable = profile.modules.first().filter(|_| command == profile.command).map_or(command, |it| &it.path);
    Record::ImageStart(ImageStart {
        image,
        pid,
        executable: executable.as_bytes().to_vec(),
        argv: words(command),
        ..ImageStart::default()
    })
}

/// Returns the record of its end.
pub(super) fn image_end(image: ImageId, time: Time) -> Record {
    Record::ImageEnd(ImageEnd { image, time, reason: ImageEndReason::Unknown, exit: None })
}

fn words(command: &str) -> Vec<Vec<u8>> {
    if command.is_empty() { Vec::new() } else { vec![command.as_bytes().to_vec()] }
}
