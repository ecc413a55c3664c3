//! Finds wrappers in a recording: small functions of the program's own that allocate for their
//! callers.
//!
//! The rule needs no names, so it also works for stripped programs. `docs/wrappers.md` lists its
//! errors on real programs.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::mem;

use heapledger_dmd::CodeClass;
use heapledger_recording::{ModuleId, Node, NodeKind, Recording};

use crate::functions::FunctionId;
use crate::names::Names;
use crate::stacks::{MergedStacks, NodeId, StackFrame, Stacks};
use crate::wrapper_search::{Evidence, Search, Wrapper};

/// The minimum number of the program's own functions that call a wrapper.
const CALLERS_MIN: usize = 4;
/// The maximum number of places in a wrapper's code that allocate, for example one call of `malloc`
/// and one of `realloc`.
const PLACES_MAX: usize = 2;
/// The maximum size of a wrapper's code, in bytes.
const SIZE_MAX: u64 = 300;
/// The minimum percentage of the stacks with a wrapper on which it is the innermost function of the
/// program's own.
const INNERMOST_MIN: u64 = 95;
/// The maximum percentage of a wrapper's blocks that are temporary: a function that frees its
/// blocks itself does not return them.
const TEMPORARY_MAX: u64 = 90;
/// The number of passes of the search: each finds wrappers of those found before.
const ROUNDS: usize = 3;

/// The index for nodes whose function is not known.
const NOWHERE: u32 = u32::MAX;

/// The stacks of a recording, and the physical functions on them.
struct Code<'s> {
    stacks: &'s Stacks,
    sites: Vec<Evidence>,
    /// The index of the function of each node, by the node's number.
    function_of: Vec<u32>,
    functions: Vec<Physical>,
    /// The innermost own or dependency function at each node, by the node's number, and whether it
    /// is inlined. Filled as far as nodes have been asked for.
    owners: Vec<Option<Option<(FunctionId, bool)>>>,
}

/// A physical function, into which others may be inlined.
struct Physical {
    size: u64,
    /// The number of stacks that it is on.
    stacks: u64,
}

/// A function that may be a wrapper.
#[derive(Default)]
struct Candidate {
    /// The sites that it owns, each with the node of the function on the stack.
    sites: Vec<(usize, NodeId)>,
    /// Its physical functions (several for a template), each with the places at which it allocates.
    bodies: HashMap<u32, HashSet<u64>>,
    blocks: u64,
    temporaries: u64,
}

impl Names<'_, '_> {
    /// Returns the wrappers that are found in the recording, those with the most blocks first.
    pub fn wrappers(&mut self) -> Vec<Wrapper> {
        self.find_wrappers(&Stacks::default());
        let mut wrappers = self.known.found.clone();
        wrappers.sort_by_key(|wrapper| (Reverse((wrapper.blocks, wrapper.stacks)), wrapper.function));
        wrappers
    }

    /// Finds the wrappers if that was not done yet. The result does not depend on the questions
    /// that are asked.
    pub(crate) fn find_wrappers(&mut self, stacks: &Stacks) {
        match mem::replace(&mut self.known.search, Search::Done) {
            Search::Done => {}
            Search::Readable(number, sites) if number == stacks.number() => self.find_wrappers_in(stacks, sites),
            Search::Readable(..) | Search::NotBegun => {
                let (stacks, sites) = read(self.recording());
                self.find_wrappers_in(&stacks, sites);
            }
        }
    }

    fn find_wrappers_in(&mut self, stacks: &Stacks, sites: Vec<Evidence>) {
        let mut code = Code::new(self, stacks, sites);
        let mut candidates: HashMap<FunctionId, Candidate> = HashMap::new();
        let mut open: Vec<usize> = (0..code.sites.len()).collect();
        for _ in 0..ROUNDS {
            for site in open.drain(..) {
                code.add_to_owner(self, site, &mut candidates);
            }
            let is_wrapper = |function: &FunctionId, candidate: &mut Candidate| {
                code.allocates_always(candidate) && code.has_callers(self, *function, candidate)
            };
            let found: Vec<(FunctionId, Candidate)> = candidates.extract_if(is_wrapper).collect();
            for (function, candidate) in found {
                if self.set_wrapper(function) {
                    let code_bytes = candidate.bodies.keys().map(|&body| code.functions[body as usize].size).max();
                    let (stacks, blocks) = (candidate.sites.len(), candidate.blocks);
                    self.known.found.push(Wrapper {
                        function,
                        code_bytes: code_bytes.unwrap_or_default(),
                        stacks,
                        blocks,
                    });
                }
                open.extend(candidate.sites.into_iter().map(|(site, _)| site));
            }
            if open.is_empty() {
                break;
            }
        }
    }
}

impl<'s> Code<'s> {
    fn new(names: &Names<'_, '_>, stacks: &'s Stacks, sites: Vec<Evidence>) -> Code<'s> {
        let length = stacks.length() + 1;
        let (function_of, owners) = (vec![NOWHERE; length], vec![None; length]);
        let mut code = Code { stacks, sites, function_of, functions: Vec::new(), owners };
        code.find_functions(names);
        code.count_stacks();
        code
    }

    fn find_functions(&mut self, names: &Names<'_, '_>) {
        let mut places: Vec<(ModuleId, u64, NodeId)> =
            self.stacks.nodes().map(|(id, _, frame)| (frame.module, frame.offset, id)).collect();
        places.sort_unstable();
        for places in places.chunk_by(|a, b| a.0 == b.0) {
            let mut offsets: Vec<u64> = places.iter().map(|(_, offset, _)| *offset).collect();
            offsets.dedup();
            let extents = names.extents(places[0].0, &offsets);
            let (mut at, mut latest) = (0, None);
            for (_, offset, id) in places {
                at += usize::from(offsets[at] != *offset);
                let Some(extent) = extents[at] else { continue };
                if latest.replace(extent) != Some(extent) {
                    self.functions.push(Physical { size: extent.size, stacks: 0 });
                }
                self.function_of[id.number()] = self.functions.len() as u32 - 1;
            }
        }
    }

    /// Counts the stacks that each function is on. A recursive function is counted as often as it
    /// is on a stack.
    fn count_stacks(&mut self) {
        let mut stacks = vec![0_u64; self.function_of.len()];
        for site in &self.sites {
            stacks[self.stacks.native(site.stack).number()] = 1;
        }
        for (id, parent, _) in self.stacks.nodes().rev() {
            let under = stacks[id.number()];
            stacks[parent.number()] += under;
            if let Some(function) = self.functions.get_mut(self.function_of[id.number()] as usize) {
                function.stacks += under;
            }
        }
    }

    /// Adds a site to the function that owns it, if the function is small enough for a wrapper.
    fn add_to_owner(
        &mut self,
        names: &mut Names<'_, '_>,
        site: usize,
        candidates: &mut HashMap<FunctionId, Candidate>,
    ) {
        let Evidence { stack, blocks, temporaries } = self.sites[site];
        let Some((function, node, place)) = self.owner(names, stack) else { return };
        let body = self.function_of[node.number()];
        if self.functions.get(body as usize).is_none_or(|body| body.size > SIZE_MAX) {
            return;
        }
        let candidate = candidates.entry(function).or_default();
        candidate.sites.push((site, node));
        candidate.bodies.entry(body).or_default().insert(place.offset);
        candidate.blocks += blocks;
        candidate.temporaries += temporaries;
    }

    /// Returns the innermost function of the program's own on a stack, or else of a dependency.
    /// `None` if it is inlined, because its code is then part of its callers.
    fn owner(&mut self, names: &mut Names<'_, '_>, stack: NodeId) -> Option<(FunctionId, NodeId, StackFrame)> {
        let mut dependency = None;
        for (node, place) in self.stacks.steps(stack) {
            let Some((function, is_inlined)) = self.owner_at(names, node, place) else { continue };
            let found = (!is_inlined).then_some((function, node, place));
            if names.function(function).whose == CodeClass::Own {
                return found;
            }
            dependency.get_or_insert(found);
        }
        dependency.flatten()
    }

    /// Returns the innermost function at a node that is the program's own or a dependency's, and
    /// whether it is inlined.
    fn owner_at(&mut self, names: &mut Names<'_, '_>, node: NodeId, place: StackFrame) -> Option<(FunctionId, bool)> {
        let is_owner =
            |names: &Names<'_, '_>, id| matches!(names.function(id).whose, CodeClass::Own | CodeClass::Dependency);
        let known = &mut self.owners[node.number()];
        match *known {
            Some(None) => return None,
            Some(Some((function, is_inlined))) if is_owner(names, function) => return Some((function, is_inlined)),
            _ => {}
        }
        let frames: Vec<(FunctionId, bool)> =
            names.frames_at(place).iter().map(|frame| (frame.function, frame.inlined)).collect();
        let owner = frames.into_iter().find(|(function, _)| is_owner(names, *function));
        *known = Some(owner);
        owner
    }

    fn allocates_always(&self, candidate: &Candidate) -> bool {
        let stacks: u64 = candidate.bodies.keys().map(|&body| self.functions[body as usize].stacks).sum();
        let mut innermost: Vec<NodeId> =
            candidate.sites.iter().map(|&(site, _)| self.stacks.native(self.sites[site].stack)).collect();
        innermost.sort_unstable();
        innermost.dedup();
        innermost.len() as u64 * 100 >= stacks * INNERMOST_MIN
            && candidate.bodies.values().all(|places| places.len() <= PLACES_MAX)
            && candidate.temporaries * 100 <= candidate.blocks * TEMPORARY_MAX
    }

    /// True if enough functions of the program's own call it; they become the owners if it is a
    /// wrapper.
    fn has_callers(&mut self, names: &mut Names<'_, '_>, function: FunctionId, candidate: &Candidate) -> bool {
        let whose = names.function(function).whose;
        let (mut callers, mut asked) = (HashSet::new(), HashSet::new());
        for &(_, node) in &candidate.sites {
            let stacks = self.stacks;
            // Sites with the same caller add nothing new.
            if !stacks.steps(node).nth(1).is_some_and(|(caller, _)| asked.insert(caller)) {
                continue;
            }
            callers.extend(stacks.steps(node).skip(1).find_map(|(node, place)| {
                let (caller, _) = self.owner_at(names, node, place)?;
                (caller != function && names.function(caller).whose <= whose).then_some(caller)
            }));
            if callers.len() >= CALLERS_MIN {
                return true;
            }
        }
        false
    }
}

/// Reads the stacks that allocate. If a recording has no totals, all stacks that are not a part of
/// another one are taken.
fn read(recording: &Recording<'_>) -> (Stacks, Vec<Evidence>) {
    let mut merged = MergedStacks::new(recording);
    let mut sites = Vec::new();
    for image in recording.images().iter().map(|image| image.image) {
        let totals = recording.sites(image).rows;
        for site in &totals {
            let stack = merged.node(image, site.stack);
            sites.push(Evidence { stack, blocks: site.allocations.0, temporaries: site.temporaries.0 });
        }
        if totals.is_empty() {
            let nodes = recording.nodes(image);
            let parents: HashSet<_> = nodes.nodes().iter().map(|node| node.parent).collect();
            let is_leaf = |node: &&Node| node.kind == NodeKind::Frame && !parents.contains(&node.id);
            for leaf in nodes.nodes().iter().filter(is_leaf) {
                // The lifetimes of its blocks are not known.
                sites.push(Evidence { stack: merged.node(image, leaf.id), blocks: 0, temporaries: 0 });
            }
        }
        merged.forget(image);
    }
    (merged.stacks, sites)
}
