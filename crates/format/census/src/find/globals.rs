//! The global objects of a heap, and the nodes that belong to each.

use std::cmp::Reverse;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::{NotAvailable, name_of};
use crate::graph::{EdgeName, Graph, Name, NodeIndex, NodeSet, Origin};

/// The global object of each node, as far as the snapshot tells it: of objects, functions and
/// contexts, of the descriptions of their shapes, and in Firefox of the DOM nodes that scripts have
/// seen. Strings, code and other data belong to no global object.
///
/// Takes 4 bytes per node.
#[derive(Clone, Debug)]
pub struct Globals {
    /// The index of each node's global object; [`UNKNOWN`], or [`NONE`].
    of: Vec<u32>,
}

/// The value of nodes that were not looked at yet.
const UNKNOWN: u32 = u32::MAX;
/// The value of nodes without a global object.
const NONE: u32 = u32::MAX - 1;

/// A global object, and the nodes that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalTotals {
    /// The global object.
    pub global: NodeIndex,
    /// The number of nodes that belong to it, itself among them.
    pub count: u64,
    /// The sum of their sizes in bytes.
    pub bytes: u64,
}

/// The node that decides about a node's global object.
enum Step {
    /// The global object of this node is that of the other.
    Next(NodeIndex),
    /// This is the global object.
    Global(NodeIndex),
    /// It has none.
    None,
}

impl Globals {
    /// Finds the global object of each node. Takes O(nodes + edges).
    ///
    /// In Firefox, an object has a shape, whose base names the global object. In V8, contexts lead
    /// to the native context of their global object, functions have contexts, and other objects
    /// have a map that names the function that constructed them, or the map before it.
    ///
    /// # Errors
    ///
    /// Fails if the snapshot has no node whose global object it tells.
    pub fn of(graph: &Graph) -> Result<Globals, NotAvailable> {
        let of = match graph.about().origin {
            Origin::Firefox => follow(graph, firefox(graph)),
            Origin::V8 => follow(graph, v8(graph)),
            Origin::Other => return Err(NotAvailable::Globals),
        };
        if of.iter().all(|&global| global == NONE) {
            return Err(NotAvailable::Globals);
        }
        Ok(Globals { of })
    }

    /// Returns the global object of a node. That of a global object is itself, and that of V8's
    /// native contexts and of their proxies of a global object is the global object.
    pub fn global(&self, node: NodeIndex) -> Option<NodeIndex> {
        self.of.get(node.index()).copied().filter(|&global| global < NONE).map(NodeIndex)
    }

    /// Returns the nodes that belong to one of some global objects.
    pub fn nodes_of(&self, globals: &[NodeIndex]) -> NodeSet {
        let mut set = NodeSet::new(self.of.len());
        for (node, global) in (0..).map(NodeIndex).zip(&self.of) {
            if globals.iter().any(|it| it.0 == *global) {
                set.insert(node);
            }
        }
        set
    }

    /// Returns all global objects with their nodes, those with the most bytes first.
    pub fn totals(&self, graph: &Graph) -> Vec<GlobalTotals> {
        let mut totals: HashMap<NodeIndex, GlobalTotals, RandomState> = HashMap::default();
        for node in graph.nodes() {
            let Some(global) = self.global(node) else { continue };
            let found = totals.entry(global).or_insert(GlobalTotals { global, count: 0, bytes: 0 });
            found.count += 1;
            found.bytes += graph.size(node);
        }
        let mut totals: Vec<GlobalTotals> = totals.into_values().collect();
        totals.sort_unstable_by_key(|it| (Reverse(it.bytes), it.global));
        totals
    }
}

/// Follows the steps of each node to its global object. Each node is looked at once.
fn follow(graph: &Graph, step: impl Fn(NodeIndex) -> Step) -> Vec<u32> {
    let mut of = vec![UNKNOWN; graph.node_count()];
    let mut way = Vec::new();
    for node in graph.nodes() {
        let mut at = node;
        let global = loop {
            match of[at.index()] {
                UNKNOWN => {}
                known => break known,
            }
            way.push(at);
            // For now, so that a cycle, which only a damaged file has, comes to an end.
            of[at.index()] = NONE;
            match step(at) {
                Step::Next(next) => at = next,
                Step::Global(global) => break global.0,
                Step::None => break NONE,
            }
        };
        for below in way.drain(..) {
            of[below.index()] = global;
        }
        if let Some(slot) = of.get_mut(global as usize) {
            *slot = global;
        }
    }
    of
}

/// Returns the target of a node's first edge of a name that leads to a node of a kind.
fn target(graph: &Graph, node: NodeIndex, name: Option<Name>, is_one: impl Fn(NodeIndex) -> bool) -> Option<NodeIndex> {
    let name = EdgeName::Name(name?);
    graph.edges(node).find(|edge| edge.name == Some(name) && is_one(edge.target)).map(|edge| edge.target)
}

fn firefox(graph: &Graph) -> impl Fn(NodeIndex) -> Step + '_ {
    let [shape, base, global, reflected] =
        ["shape", "base", "baseshape_global", "Reflected Node"].map(|text| name_of(graph, text));
    let [shape_type, base_type] = ["js::Shape", "js::BaseShape"].map(|text| name_of(graph, text));
    let is = move |node, type_name: Option<Name>| Some(graph.type_name(node)) == type_name;
    // An object with a DOM node behind it leads to that node, not the other way round.
    let mut reflectors: HashMap<NodeIndex, NodeIndex, RandomState> = HashMap::default();
    for node in graph.nodes().filter(|_| reflected.is_some()) {
        if let Some(behind) = target(graph, node, reflected, |_| true) {
            reflectors.insert(behind, node);
        }
    }
    move |node| {
        if let Some(global) = target(graph, node, global, |_| is(node, base_type)) {
            return Step::Global(global);
        }
        let next = target(graph, node, base, |it| is(node, shape_type) && is(it, base_type))
            .or_else(|| target(graph, node, shape, |it| is(it, shape_type)))
            .or_else(|| reflectors.get(&node).copied());
        next.map_or(Step::None, Step::Next)
    }
}

fn v8(graph: &Graph) -> impl Fn(NodeIndex) -> Step + '_ {
    let names = ["extension", "context", "previous", "native_context", "constructor", "back_pointer", "map"];
    let [extension, context, previous, native_context, constructor, back_pointer, map] =
        names.map(|text| name_of(graph, text));
    let closure = name_of(graph, "closure");
    let starts = |prefix: &'static str| {
        let names = graph.names().iter().filter(move |(_, text)| text.starts_with(prefix)).map(|(name, _)| name);
        names.collect::<hashbrown::HashSet<Name, RandomState>>()
    };
    let [native_contexts, contexts, maps] = ["system / NativeContext", "system / Context", "system / Map"].map(starts);
    let has = move |labels: &hashbrown::HashSet<Name, RandomState>, node| {
        graph.label(node).is_some_and(|label| labels.contains(&label))
    };
    move |node| {
        if has(&native_contexts, node) {
            return target(graph, node, extension, |_| true).map_or(Step::None, Step::Global);
        }
        let next = if has(&contexts, node) {
            target(graph, node, previous, |_| true)
        } else if Some(graph.type_name(node)) == closure {
            target(graph, node, context, |_| true)
        } else if has(&maps, node) {
            // A map's own map would say it, too, but all maps of older versions share one.
            target(graph, node, native_context, |it| has(&native_contexts, it))
                .or_else(|| target(graph, node, constructor, |it| Some(graph.type_name(it)) == closure))
                .or_else(|| target(graph, node, back_pointer, |it| has(&maps, it)))
                .or_else(|| target(graph, node, map, |it| it != node && has(&maps, it)))
        } else {
            target(graph, node, map, |it| has(&maps, it))
        };
        next.map_or(Step::None, Step::Next)
    }
}
