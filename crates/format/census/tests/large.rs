//! The heap of a very large program: 100 million nodes and 400 million edges are counted and
//! dominated within 16 GiB, and the time grows with their number.
//!
//! `cargo test --release -p heapledger-census --test large -- --ignored --nocapture` prints the
//! times of a processor. `HEAPLEDGER_NODES` sets another number of nodes, in millions; with 8,
//! `benches/heaps --growth` runs it.

use std::fs;
use std::time::Duration;

use heapledger_census::breakdown::Breakdown;
use heapledger_census::dominators::Dominators;
use heapledger_census::graph::{
    BuildError, CoarseType, EdgeData, Graph, GraphBuilder, NodeData, NodeId, NodeIndex, Source,
};
use heapledger_census::result::{Census, CensusValue};
use heapledger_census::{heapsnapshot, read};

/// The maximum resident memory of the process, in KiB.
const RESIDENT_KIB_MAX: u64 = 16 << 20;
/// The maximum factor by which a node of the largest graph may take longer than one of a graph of
/// an eighth of its size, whose nodes are in the caches more often.
const SLOWER_MAX: f64 = 3.0;
const CLASSES: u32 = 300;
/// The maximum number of nodes of a graph that is written to a file in memory, to be read again.
const READ_NODES_MAX: u32 = 8_000_000;

/// A heap whose nodes are made one after the other, without a list of them: a tree in which each
/// node has two children, and three more edges from each node, most of them to nodes near by.
struct Generated {
    nodes: u32,
}

impl Source for Generated {
    type Error = BuildError;

    fn fill(&mut self, builder: &mut GraphBuilder) -> Result<(), BuildError> {
        let count = self.nodes;
        builder.reserve(count as usize, count as usize * 4);
        let classes: Result<Vec<_>, _> = (0..CLASSES).map(|it| builder.intern(&format!("Class{it}"))).collect();
        let classes = classes?;
        let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut next = move |limit: u32| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (((random >> 32) * u64::from(limit)) >> 32) as u32
        };
        for node in 0..count {
            let class = classes[(next(CLASSES).min(next(CLASSES))) as usize];
            let data = NodeData {
                coarse_type: CoarseType::Object,
                class: Some(class),
                ..NodeData::new(NodeId(u64::from(node) + 1), class, Some(16))
            };
            builder.add_node(data)?;
            let children = [2 * u64::from(node) + 1, 2 * u64::from(node) + 2];
            for child in children.into_iter().filter(|&child| child < u64::from(count)) {
                builder.add_edge(NodeIndex(child as u32), EdgeData::default())?;
            }
            for _ in 0..3 {
                let target = if next(20) == 0 { next(count) } else { (node + next(2000)).saturating_sub(1000) };
                builder.add_edge(NodeIndex(target.min(count - 1)), EdgeData::default())?;
            }
        }
        Ok(())
    }
}

/// Returns the processor time of the process so far.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // User and system time, in hundredths of a second.
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Returns the most memory in KiB that was resident so far.
fn resident_kib_max() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = processor_time();
    let done = work();
    (done, processor_time() - before)
}

/// Counts and dominates a graph of so many nodes, and reads it from a file of V8, if it is not too
/// large. Returns the time for counts and dominators.
fn measured(nodes: u32) -> Duration {
    let (graph, building) = timed(|| -> Graph {
        let mut builder = GraphBuilder::new();
        Generated { nodes }.fill(&mut builder).unwrap();
        builder.finish().unwrap()
    });
    let breakdown = Breakdown::from_json(r#"{"by": "objectClass"}"#).unwrap();
    let (census, counting) = timed(|| Census::take(&graph, &breakdown).unwrap());
    let CensusValue::Groups { groups, .. } = &census.value else { panic!("objects are in classes") };
    assert_eq!(groups.len(), CLASSES as usize);
    // An edge may lead to the root, which counts then.
    assert!([nodes, nodes - 1].map(u64::from).contains(&census.count), "{}", census.count);
    let (dominators, dominating) = timed(|| Dominators::of(&graph));
    assert_eq!(dominators.count(), nodes as usize);
    assert_eq!(dominators.retained(graph.root()), Some(16 * u64::from(nodes)));
    let mebibytes = resident_kib_max() >> 10;
    let reading = (nodes <= READ_NODES_MAX).then(|| {
        let file = heapsnapshot::write(&graph, Vec::new()).unwrap();
        let (again, reading) = timed(|| read::read(file.as_slice()).unwrap());
        assert_eq!(again.edge_count(), graph.edge_count());
        reading
    });
    println!(
        "{nodes} nodes, {} edges: built in {building:.1?}, counted in {counting:.2?}, dominated in {dominating:.2?}, \
         read in {reading:.2?}; at most {mebibytes} MiB so far",
        graph.edge_count(),
    );
    counting + dominating
}

/// The time per node stays about the same, and the memory within its bound.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_hundred_million_nodes_fit() {
    let millions = std::env::var("HEAPLEDGER_NODES").map_or(100, |it| it.parse().unwrap());
    let nodes: u32 = millions * 1_000_000;
    let parts = [nodes / 8, nodes / 4, nodes / 2, nodes];
    let per_node = parts.map(|nodes| measured(nodes).as_secs_f64() / f64::from(nodes));
    println!("ns per node: {:.0?}", per_node.map(|seconds| seconds * 1e9));
    assert!(resident_kib_max() <= RESIDENT_KIB_MAX, "{} KiB", resident_kib_max());
    assert!(per_node[3] <= SLOWER_MAX * per_node[0], "{per_node:?}");
}
