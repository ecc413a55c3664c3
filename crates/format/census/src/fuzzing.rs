//! The bodies of the fuzz targets, shared with property tests.

use crate::compare::assert_same;
use crate::convert::WrittenFormat;
use crate::graph::{EdgeKind, EdgeName, Graph, Origin};
use crate::{fxsnapshot, heapsnapshot, read};

/// Reads the data as the unpacked messages of Firefox's format. Panics if that does, or if what is
/// written differs from what was read.
pub fn fxsnapshot(data: &[u8]) {
    if let Ok(graph) = fxsnapshot::read_unpacked(data) {
        rewrite(&graph);
    }
    let _ = read::detect(data);
}

/// Reads the data as V8's format. Panics if that does, or if what is written differs from what was
/// read.
pub fn heapsnapshot(data: &[u8]) {
    if let Ok(graph) = heapsnapshot::read(data) {
        rewrite(&graph);
    }
    let _ = read::detect(data);
}

/// Writes a graph in both formats, and reads it again.
fn rewrite(graph: &Graph) {
    let firefox = fxsnapshot::write(graph, Vec::new()).expect("memory takes everything");
    assert_eq!(read::detect(&firefox), Some(read::Format::Firefox));
    let firefox = read::read(firefox.as_slice()).expect("what was written can be read");
    let v8 = heapsnapshot::write(graph, Vec::new()).expect("memory takes everything");
    assert_eq!(read::detect(&v8), Some(read::Format::V8));
    let v8 = read::read(v8.as_slice()).expect("what was written can be read");
    let total = |graph: &Graph| graph.nodes().map(|it| graph.size(it)).sum::<u64>();
    for again in [&firefox, &v8] {
        assert_eq!((again.node_count(), total(again)), (graph.node_count(), total(graph)));
    }
    let is_kept = |format: WrittenFormat| format.lost(graph).is_empty();
    match graph.about().origin {
        Origin::Firefox if is_kept(WrittenFormat::Firefox) => assert_same(graph, &firefox),
        Origin::V8 if is_kept(WrittenFormat::V8) && !has_odd_edges(graph) => assert_same(graph, &v8),
        _ => {}
    }
}

/// True if an edge is of a type that is not V8's.
fn has_odd_edges(graph: &Graph) -> bool {
    let mut edges = graph.nodes().flat_map(|it| graph.edges(it));
    edges.any(|it| it.kind == EdgeKind::Plain || !matches!(it.name, Some(EdgeName::Name(_) | EdgeName::Index(_))))
}
