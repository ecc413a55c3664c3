//! Building trees from reports, one process at a time.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::arrange::{Arranger, by_name};
use super::drafts::{Draft, Drafts, Parent};
use super::{AboutOptions, DEPTH_MAX, Filter, Node, Note, Page, Section, number};
use crate::report::{HeapCount, Kind, MAIN_PROCESS, UNCLASSIFIED, Unit};

/// A report, or the change of one.
pub(super) struct Entry<'r> {
    pub(super) process: &'r str,
    pub(super) path: &'r str,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    pub(super) amount: i64,
    pub(super) description: &'r Arc<str>,
    /// The number of reports of which it is the sum.
    pub(super) merged: u32,
    pub(super) presence: Option<Note>,
}

/// The trees of all processes.
pub(super) struct Forest<'r, 'o> {
    options: &'o AboutOptions,
    is_difference: bool,
    processes: Vec<Process<'r>>,
    by_name: HashMap<&'r str, usize>,
}

/// The nodes of one process.
struct Process<'r> {
    name: &'r str,
    resident: i64,
    resident_unique: i64,
    drafts: Drafts<'r>,
    /// The trees, in the order in which they came.
    trees: Vec<usize>,
    degenerates: Vec<usize>,
    heap: HeapCount,
}

impl<'r, 'o> Forest<'r, 'o> {
    pub(super) fn new(options: &'o AboutOptions, is_difference: bool) -> Forest<'r, 'o> {
        Forest { options, is_difference, processes: Vec::new(), by_name: HashMap::new() }
    }

    pub(super) fn add(&mut self, entry: &Entry<'r>) {
        let at = *self.by_name.entry(entry.process).or_insert(self.processes.len());
        if at == self.processes.len() {
            self.processes.push(Process::new(entry.process));
        }
        let process = &mut self.processes[at];
        // These are read regardless of what is shown: processes are ordered by them. The last of
        // several reports counts; those that Firefox makes of a difference all have 0 but the
        // first.
        let last = if entry.merged > 1 { 0 } else { entry.amount };
        match entry.path {
            "resident" => process.resident = last,
            "resident-unique" => process.resident_unique = last,
            _ => {}
        }
        if self.options.filter.as_ref().is_none_or(|filter| filter.matches(entry.path)) {
            process.add(entry);
        }
    }

    pub(super) fn finish(mut self, has_usable_size: bool) -> Page {
        let total: i64 = self.processes.iter().map(Process::memory).fold(0, i64::saturating_add);
        self.processes.sort_by(|a, b| match (a.is_main(), b.is_main()) {
            // Several stay in the order in which they came.
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => {
                let by_name = || a.name.encode_utf16().cmp(b.name.encode_utf16());
                b.size().cmp(&a.size()).then_with(by_name)
            }
        });
        let (options, is_difference) = (self.options, self.is_difference);
        let shown = self.processes.into_iter().filter(|process| !process.drafts.nodes.is_empty());
        Page {
            total_resident: number::amount(total, Unit::Bytes, options.verbose),
            sections: shown.map(|process| process.finish(options, is_difference, has_usable_size)).collect(),
        }
    }
}

impl<'r> Process<'r> {
    fn new(name: &'r str) -> Process<'r> {
        Process {
            name,
            resident: 0,
            resident_unique: 0,
            drafts: Drafts::default(),
            trees: Vec::new(),
            degenerates: Vec::new(),
            heap: HeapCount::default(),
        }
    }

    fn is_main(&self) -> bool {
        self.name.starts_with(MAIN_PROCESS)
    }

    /// Returns the amount that the process adds to the total: the main process is taken to hold
    /// what all share.
    fn memory(&self) -> i64 {
        if self.is_main() || self.resident_unique == 0 { self.resident } else { self.resident_unique }
    }

    /// Returns the sort key of the process. Processes of unknown size come last.
    fn size(&self) -> i64 {
        if self.resident == 0 { -1 } else { self.resident }
    }

    fn add(&mut self, entry: &Entry<'r>) {
        let is_degenerate = !entry.path.contains('/');
        let mut names = entry.path.splitn(DEPTH_MAX, '/');
        let root = names.next().unwrap_or_default();
        let parent_key = if is_degenerate { Parent::NothingAlone } else { Parent::Nothing };
        let (mut at, is_new) = self.drafts.find_or_add(parent_key, root, entry.unit);
        if is_new {
            if is_degenerate { self.degenerates.push(at) } else { self.trees.push(at) }
        }
        for name in names {
            (at, _) = self.drafts.find_or_add(Parent::Node(at), name, entry.unit);
        }
        self.heap.add(entry.path, entry.kind, entry.amount);

        let leaf = &mut self.drafts.nodes[at];
        match leaf.amount {
            // As in Firefox, a sum that is 0 so far counts as no amount.
            None | Some(0) => {
                leaf.amount = Some(entry.amount);
                leaf.description = Some(entry.description.clone());
                leaf.presence = entry.presence.or(leaf.presence);
                if entry.merged > 1 {
                    leaf.merged = entry.merged;
                }
            }
            Some(amount) => {
                leaf.amount = Some(amount.saturating_add(entry.amount));
                leaf.merged = if leaf.merged > 0 { leaf.merged + 1 } else { 2 };
            }
        }
    }

    fn finish(mut self, options: &AboutOptions, is_difference: bool, has_usable_size: bool) -> Section {
        let arranger = Arranger::new(options, is_difference);
        let mut section = Section {
            process: self.name.into(),
            warnings: Vec::new(),
            invalid: Vec::new(),
            left_out: Vec::new(),
            explicit: None,
            others: Vec::new(),
            degenerates: Vec::new(),
        };
        for root in std::mem::take(&mut self.trees) {
            arranger.sum_up(&mut self.drafts, root, &mut section.left_out);
            let is_explicit = self.drafts.nodes[root].name == "explicit";
            if is_explicit {
                self.drafts.nodes[root].description = Some(EXPLICIT.into());
                self.add_unclassified(root);
            }
            arranger.sort(&mut self.drafts, root);
            let tree = arranger.node(&self.drafts, root, true);
            if is_explicit { section.explicit = Some(tree) } else { section.others.push(tree) }
        }
        section.others.sort_by(|a, b| by_name(&arranger, a, b));
        section.degenerates = self.degenerates.iter().map(|&root| arranger.node(&self.drafts, root, false)).collect();
        section.degenerates.sort_by(|a, b| by_name(&arranger, a, b));

        if section.explicit.is_some() {
            let mut invalid = Vec::new();
            section.trees().for_each(|tree| tree.collect_invalid(&mut invalid));
            section.invalid = invalid;
            if options.filter.as_ref().is_none_or(Filter::is_none) {
                section.warnings.extend(inaccuracy(self.heap.is_known(), has_usable_size).map(str::to_owned));
            }
        }
        section
    }

    fn add_unclassified(&mut self, explicit: usize) {
        let Some(amount) = self.heap.unclassified() else { return };
        let mut draft = Draft::new("heap-unclassified", Unit::Bytes);
        draft.amount = Some(amount);
        draft.description = Some(UNCLASSIFIED.into());
        let at = self.drafts.push(draft);
        let root = &mut self.drafts.nodes[explicit];
        root.children.push(at);
        root.amount = Some(root.amount.unwrap_or(0).saturating_add(amount));
    }
}

/// The description of `explicit`.
const EXPLICIT: &str = "Memory that the program has asked for: all of the heap, and what else of its mappings is \
    reported. Not in it: code and static data.";

/// Returns the warning of about:memory, in its words.
fn inaccuracy(knows_heap_allocated: bool, has_usable_size: bool) -> Option<&'static str> {
    match (knows_heap_allocated, has_usable_size) {
        (true, true) => None,
        (false, false) => Some(
            "WARNING: the 'heap-allocated' memory reporter and the moz_malloc_usable_size() function do not work for \
             this platform and/or configuration. This means that 'heap-unclassified' is not shown and the \
             'explicit' tree shows much less memory than it should.",
        ),
        (false, true) => Some(
            "WARNING: the 'heap-allocated' memory reporter does not work for this platform and/or configuration. \
             This means that 'heap-unclassified' is not shown and the 'explicit' tree shows less memory than it should.",
        ),
        (true, false) => Some(
            "WARNING: the moz_malloc_usable_size() function does not work for this platform and/or configuration. \
             This means that much of the heap-allocated memory is not measured by individual memory reporters and so \
             will fall under 'heap-unclassified'.",
        ),
    }
}

impl Node {
    /// Collects the paths of invalid nodes, from this node on.
    fn collect_invalid(&self, invalid: &mut Vec<String>) {
        if self.is_invalid {
            invalid.push(self.path.replace('\\', "/"));
        }
        for child in &self.children {
            child.collect_invalid(invalid);
        }
    }
}
