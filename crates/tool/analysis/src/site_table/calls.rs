//! The calls of all stacks as a tree, in columns.

use std::collections::HashMap;

use heapledger_recording::NodeKind;

use crate::events::EventMap;
use crate::functions::{Frame, FunctionId, Location};
use crate::names::Names;
use crate::stacks::{FrameNumber, NodeId, Stacks};

/// The tree of calls of all stacks of a table, with inlined functions and allocators. Call 0 is the
/// root. They are numbered breadth-first: callers in the order of the calls inside of them, and
/// before them.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) parents: Vec<u32>,
    /// The index in `named` of each call.
    names: Vec<u32>,
    /// The functions, each with a location if all stacks agree on it. The first one is the root's.
    pub(super) named: Vec<(Option<FunctionId>, Option<Location>)>,
    /// The call in which the stack of each site ends.
    pub(super) innermost: Vec<u32>,
    /// The same without the allocators at the inner end.
    pub(super) useful: Vec<u32>,
    /// The number of functions that the names had: all ids here are below it.
    pub(super) functions: usize,
    /// The innermost call at each node of the stacks, by the node's number; the root's for nodes
    /// that are not frames.
    pub(super) of_nodes: Vec<u32>,
    /// The places of the functions at each frame, the innermost first, by the frame's number.
    pub(super) frames: Vec<Vec<Place>>,
    /// For each call, the place that the first of its nodes has, and true if another one has
    /// another place.
    pub(super) places: Vec<(Place, bool)>,
    locations: Vec<Location>,
}

/// The place of a function on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of its location, or [`UNKNOWN`].
    location: u32,
    /// True if it was inlined into its caller.
    pub(super) inlined: bool,
}

impl Place {
    const NOWHERE: Place = Place { location: UNKNOWN, inlined: false };

    /// Keeps what two places have in common.
    pub(super) fn agree(&mut self, other: Place) {
        if self.location != other.location {
            self.location = UNKNOWN;
        }
        self.inlined &= other.inlined;
    }
}

pub(super) const ROOT: u32 = 0;

impl Calls {
    pub(super) fn new(names: &mut Names<'_, '_>, stacks: &Stacks, sites: &[NodeId]) -> Calls {
        let mut builder = Builder::default();
        builder.calls.push((ROOT, None, Agreed::None));
        builder.places.push((Place::NOWHERE, false));
        let frames: Vec<Vec<(FunctionId, Place)>> =
            stacks.frames_met().iter().map(|frame| builder.frames(names.frames_at(*frame))).collect();
        let kinds: Vec<NodeKind> = stacks.frames_met().iter().map(|frame| frame.kind).collect();
        let mut of_nodes = vec![ROOT; stacks.length() + 1];
        for (node, parent, FrameNumber(number)) in stacks.numbered_nodes() {
            if !is_of_frame(kinds[number as usize]) {
                continue;
            }
            let call = of_nodes[parent.number()];
            // Frames go from the innermost to the outermost.
            let inner = frames[number as usize].iter().rev();
            of_nodes[node.number()] = inner.fold(call, |call, frame| builder.child(call, *frame));
        }
        let innermost = |site: &NodeId| match of_nodes[stacks.native(*site).number()] {
            ROOT => {
                let frames = names.frames(stacks, NodeId::ROOT);
                let frames = builder.frames(&frames);
                frames.into_iter().rev().fold(ROOT, |call, frame| builder.child(call, frame))
            }
            call => call,
        };
        let innermost: Vec<u32> = sites.iter().map(innermost).collect();
        let is_frame = kinds.iter().map(|kind| is_of_frame(*kind));
        let places = |(frames, is_frame): (Vec<(FunctionId, Place)>, bool)| {
            frames.into_iter().filter(|_| is_frame).map(|(_, place)| place).collect()
        };
        let frames = frames.into_iter().zip(is_frame).map(places).collect();
        Calls { frames, ..builder.finish(names, &innermost, &of_nodes) }
    }

    /// Returns the root alone, in which the stacks of all sites end.
    pub(super) fn of_nothing(sites: usize) -> Calls {
        let ends = vec![ROOT; sites];
        let (parents, names, named) = (vec![ROOT], vec![0], vec![(None, None)]);
        let (of_nodes, places, (frames, locations)) = (vec![ROOT], vec![(Place::NOWHERE, false)], Default::default());
        let (innermost, useful) = (ends.clone(), ends);
        Calls { parents, names, named, innermost, useful, functions: 0, of_nodes, frames, places, locations }
    }

    /// Returns the function of a call; `None` for the root.
    #[inline]
    pub(super) fn function(&self, call: u32) -> Option<FunctionId> {
        self.named[self.names[call as usize] as usize].0
    }

    /// Returns the index in [`Calls::named`] of a call's function.
    #[inline]
    pub(super) fn name(&self, call: u32) -> u32 {
        self.names[call as usize]
    }

    /// Returns the index in [`Calls::named`] of each call's function.
    pub(super) fn names(&self) -> &[u32] {
        &self.names
    }

    /// Returns all calls but the root, each after its parent, with their parents and functions.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, u32, FunctionId)> + '_ {
        let calls = self.parents.iter().zip(0_u32..).skip(1);
        calls.filter_map(|(&parent, call)| Some((call, parent, self.function(call)?)))
    }

    /// Returns the location of a place; `None` if it is not known.
    pub(super) fn location(&self, place: Place) -> Option<&Location> {
        self.locations.get(place.location as usize)
    }

    /// Returns the memory of the tree, in bytes, without its names.
    pub(super) fn memory_bytes(&self) -> usize {
        let of_calls = self.parents.len() + self.names.len() + self.places.len() * 3;
        let numbers = of_calls + self.innermost.len() + self.useful.len() + self.of_nodes.len();
        numbers * size_of::<u32>() + self.named.len() * size_of::<(Option<FunctionId>, Option<Location>)>()
    }

    /// Returns the number of calls, with the root.
    pub(super) fn len(&self) -> usize {
        self.parents.len()
    }
}

/// True if nodes of this kind are frames of stacks, and not scopes, contexts, heaps or stamps.
fn is_of_frame(kind: NodeKind) -> bool {
    use NodeKind::{Context, Epoch, Heap, Scope, Stamp, Value};
    !matches!(kind, Context | Epoch | Heap | Scope | Stamp | Value)
}

/// The location of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Agreed {
    /// The location with this index, or none at all.
    On(Option<u32>),
    /// Not all stacks have the same one.
    None,
}

#[derive(Default)]
struct Builder {
    calls: Vec<(u32, Option<FunctionId>, Agreed)>,
    ids: EventMap<(u32, FunctionId), u32>,
    places: Vec<(Place, bool)>,
    locations: Vec<Location>,
    location_ids: HashMap<Location, u32>,
}

/// The number of a location that is not known.
const UNKNOWN: u32 = u32::MAX;

impl Builder {
    /// Returns the functions of frames with their places.
    fn frames(&mut self, frames: &[Frame]) -> Vec<(FunctionId, Place)> {
        let mut number = |location: &Location| {
            *self.location_ids.entry(location.clone()).or_insert_with(|| {
                self.locations.push(location.clone());
                self.locations.len() as u32 - 1
            })
        };
        let mut place = |frame: &Frame| {
            let location = frame.location.as_ref().map_or(UNKNOWN, &mut number);
            (frame.function, Place { location, inlined: frame.inlined })
        };
        frames.iter().map(&mut place).collect()
    }

    fn child(&mut self, parent: u32, (function, place): (FunctionId, Place)) -> u32 {
        let location = Some(place.location).filter(|&location| location != UNKNOWN);
        let next = self.calls.len() as u32;
        let call = *self.ids.entry((parent, function)).or_insert(next);
        if call == next {
            self.calls.push((parent, Some(function), Agreed::On(location)));
            self.places.push((place, false));
            return call;
        }
        let (first, is_mixed) = &mut self.places[call as usize];
        *is_mixed |= *first != place;
        if self.calls[call as usize].2 != Agreed::On(location) {
            self.calls[call as usize].2 = Agreed::None;
        }
        call
    }

    fn finish(self, names: &Names<'_, '_>, innermost: &[u32], of_nodes: &[u32]) -> Calls {
        let Builder { calls, ids, places, locations, .. } = self;
        drop(ids);
        let mut named = vec![(None, None)];
        let mut numbers: HashMap<(FunctionId, Option<u32>), u32> = HashMap::new();
        let mut name = |&(_, function, agreed): &(u32, Option<FunctionId>, Agreed)| {
            let Some(function) = function else { return 0 };
            let location = if let Agreed::On(location) = agreed { location } else { None };
            *numbers.entry((function, location)).or_insert_with(|| {
                named.push((Some(function), location.map(|at| locations[at as usize].clone())));
                named.len() as u32 - 1
            })
        };
        let calls_names: Vec<u32> = calls.iter().map(&mut name).collect();
        let is_allocator = |call: u32| calls[call as usize].1.is_some_and(|id| names.function(id).allocator);
        let useful = |&innermost: &u32| {
            let mut call = innermost;
            // The outermost function stays, even if it is an allocator.
            while is_allocator(call) && calls[call as usize].0 != ROOT {
                call = calls[call as usize].0;
            }
            call
        };
        let useful: Vec<u32> = innermost.iter().map(useful).collect();
        let parents: Vec<u32> = calls.iter().map(|(parent, ..)| *parent).collect();
        drop(calls);
        let order = breadth_first(&parents);
        let mut numbers = vec![ROOT; order.len()];
        order.iter().zip(0..).for_each(|(&call, number)| numbers[call as usize] = number);
        let numbers_of = |calls: &[u32]| calls.iter().map(|&call| numbers[call as usize]).collect();
        Calls {
            parents: order.iter().map(|&call| numbers[parents[call as usize] as usize]).collect(),
            names: order.iter().map(|&call| calls_names[call as usize]).collect(),
            named,
            innermost: numbers_of(innermost),
            useful: numbers_of(&useful),
            functions: names.functions_met(),
            of_nodes: numbers_of(of_nodes),
            frames: Vec::new(),
            places: order.iter().map(|&call| places[call as usize]).collect(),
            locations,
        }
    }
}

/// Returns the calls of a tree in breadth-first order, with those of one caller in the order of
/// their numbers.
fn breadth_first(parents: &[u32]) -> Vec<u32> {
    // The end of the list of each caller's calls, once they are all there.
    let mut ends = vec![0_u32; parents.len() + 1];
    parents.iter().skip(1).for_each(|&parent| ends[parent as usize + 1] += 1);
    for call in 1..ends.len() {
        ends[call] += ends[call - 1];
    }
    let mut inside = vec![ROOT; parents.len().saturating_sub(1)];
    for (&parent, call) in parents.iter().zip(0_u32..).skip(1) {
        let end = &mut ends[parent as usize];
        inside[*end as usize] = call;
        *end += 1;
    }
    let mut order = Vec::with_capacity(parents.len());
    order.push(ROOT);
    let mut at = 0;
    while let Some(&call) = order.get(at) {
        let start = if call == 0 { 0 } else { ends[call as usize - 1] };
        order.extend_from_slice(&inside[start as usize..ends[call as usize] as usize]);
        at += 1;
    }
    order
}
