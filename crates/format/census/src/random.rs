//! Graphs for tests: small random ones, and large ones like those of real heaps.

use proptest::prelude::*;

use crate::graph::{
    AllocationStack, CoarseType, EdgeData, EdgeKind, EdgeName, Frame, FrameIndex, Graph, GraphBuilder, Name, NodeData,
    NodeId, NodeIndex, Origin,
};

/// A small generator of random numbers (xorshift), which is the same on every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number that is less than `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Builds a graph from lists of targets, by the indexes of the nodes. Node `i` has the id `i + 1`
/// and, of at most 63 nodes, the size `2^i`, so that each sum says which nodes it is of.
pub(crate) fn graph_of(edges: &[Vec<(u32, EdgeKind)>]) -> Graph {
    graph_from(Origin::Other, edges)
}

/// Builds a graph as [`graph_of`] does, as if a program had made its snapshot.
pub(crate) fn graph_from(origin: Origin, edges: &[Vec<(u32, EdgeKind)>]) -> Graph {
    let mut builder = GraphBuilder::new();
    builder.about.origin = origin;
    let name = builder.intern("T").unwrap();
    for (index, targets) in edges.iter().enumerate() {
        let size = if edges.len() < 64 { 1 << index } else { 1 };
        builder.add_node(NodeData::new(NodeId(index as u64 + 1), name, Some(size))).unwrap();
        for &(target, kind) in targets {
            builder.add_edge(NodeIndex(target), EdgeData { name: None, kind }).unwrap();
        }
    }
    builder.finish().unwrap()
}

/// Builds a graph whose edges all retain.
pub(crate) fn plain_graph(edges: &[&[u32]]) -> Graph {
    let edges: Vec<Vec<_>> =
        edges.iter().map(|it| it.iter().map(|&target| (target, EdgeKind::Plain)).collect()).collect();
    graph_of(&edges)
}

/// Returns a strategy for lists of edges of at most 40 nodes, one in five of which does not retain.
pub(crate) fn edge_lists() -> impl Strategy<Value = Vec<Vec<(u32, EdgeKind)>>> {
    (1_u32..40).prop_flat_map(|count| {
        let kind = prop_oneof![8 => Just(EdgeKind::Plain), 1 => Just(EdgeKind::Weak), 1 => Just(EdgeKind::Shortcut)];
        let edges = prop::collection::vec((0..count, kind), 0..5);
        prop::collection::vec(edges, count as usize)
    })
}

/// A choice of properties for a node: the names of `NAMES`, and frames.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    id: u64,
    type_name: usize,
    coarse_type: usize,
    class: Option<usize>,
    descriptive_name: Option<usize>,
    script_file: Option<usize>,
    stack: Option<usize>,
    size: Option<u64>,
}

/// The names in random graphs: some look like indexes of arrays or like fixed keys of results.
const NAMES: [&str; 8] = ["a", "Array", "10", "9", "other", "noFilename", "01", "é\n"];

fn properties() -> impl Strategy<Value = Properties> {
    let name = || prop::option::of(0..NAMES.len());
    let ids = 1_u64..1_000_000;
    let size = prop::option::of(0_u64..100);
    (ids, 0..NAMES.len(), 0_usize..5, name(), name(), name(), prop::option::of(0_usize..6), size).prop_map(
        |(id, type_name, coarse_type, class, descriptive_name, script_file, stack, size)| Properties {
            id,
            type_name,
            coarse_type,
            class,
            descriptive_name,
            script_file,
            stack,
            size,
        },
    )
}

/// Returns a strategy for graphs of at most 40 nodes with all kinds of properties.
pub(crate) fn graphs() -> impl Strategy<Value = Graph> {
    edge_lists().prop_flat_map(|edges| {
        let all = prop::collection::vec(properties(), edges.len());
        all.prop_map(move |all| build(&edges, &all))
    })
}

fn build(edges: &[Vec<(u32, EdgeKind)>], all: &[Properties]) -> Graph {
    let mut builder = GraphBuilder::new();
    let names = NAMES.map(|text| builder.intern(text).unwrap());
    // Two chains of frames, the second of which has a frame that is equal to one of the first.
    let frames = [(None, 0), (Some(0), 1), (Some(1), 2), (None, 0), (Some(3), 3)];
    for (at, (parent, function)) in frames.into_iter().enumerate() {
        builder.add_frame(frame(at as u64, parent, names[function])).unwrap();
    }
    let mut ids = std::collections::HashSet::new();
    for (edges, it) in edges.iter().zip(all) {
        let mut id = it.id;
        while !ids.insert(id) {
            id += 1;
        }
        let stack = it.stack.map(|at| match at {
            0 => AllocationStack::Empty,
            _ => AllocationStack::At(FrameIndex(at as u32 - 1)),
        });
        let data = NodeData {
            coarse_type: CoarseType::ALL[it.coarse_type],
            class: it.class.map(|at| names[at]),
            descriptive_name: it.descriptive_name.map(|at| names[at]),
            script_file: it.script_file.map(|at| names[at]),
            stack,
            ..NodeData::new(NodeId(id), names[it.type_name], it.size)
        };
        builder.add_node(data).unwrap();
        for (at, &(target, kind)) in edges.iter().enumerate() {
            let name = if at % 2 == 0 { EdgeName::Index(at as u32) } else { EdgeName::Name(names[at]) };
            builder.add_edge(NodeIndex(target), EdgeData { name: Some(name), kind }).unwrap();
        }
    }
    builder.finish().unwrap()
}

pub(crate) fn frame(id: u64, parent: Option<u32>, function: Name) -> Frame {
    Frame {
        id,
        parent: parent.map(FrameIndex),
        source: Some(function),
        line: 1,
        column: 2,
        function: Some(function),
        is_system: false,
        is_self_hosted: false,
    }
}

/// Builds a large graph that resembles a heap: each node but the root is an element of an object
/// that was made shortly before it (or, one in 30, long before it), and has 2.3 more edges on the
/// average, most of them to neighbors and to a few nodes that everything shares.
pub(crate) fn heap(count: u32, seed: u64) -> Graph {
    let mut random = Random::new(seed);
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); count as usize];
    for node in 1..count {
        let reach = if random.below(30) == 0 { u64::from(node) } else { u64::from(node).min(40) };
        let parent = node - 1 - random.below(reach) as u32;
        children[parent as usize].push(node);
    }
    let mut builder = GraphBuilder::new();
    let names: Vec<Name> = (0..300).map(|it| builder.intern(&format!("Class{it}")).unwrap()).collect();
    for node in 0..count {
        let class = names[(random.below(300) * random.below(300) / 300) as usize];
        let coarse_type = CoarseType::ALL[random.below(5) as usize];
        let data = NodeData {
            coarse_type,
            class: (coarse_type == CoarseType::Object).then_some(class),
            ..NodeData::new(NodeId(u64::from(node) + 1), class, Some(16 + 8 * random.below(10)))
        };
        builder.add_node(data).unwrap();
        for &child in &children[node as usize] {
            builder.add_edge(NodeIndex(child), EdgeData::default()).unwrap();
        }
        for _ in 0..random.below(6).saturating_sub(node as u64 % 2) {
            let target = match random.below(10) {
                0..5 => (u64::from(node) + random.below(60)).saturating_sub(30),
                5..9 => random.below(u64::from(count).min(500)),
                _ => random.below(u64::from(count)),
            };
            let target = (target as u32).min(count - 1);
            builder.add_edge(NodeIndex(target), EdgeData::default()).unwrap();
        }
    }
    builder.finish().unwrap()
}
