use serde_json::{Value, json};

use super::*;

/// Reads the bytes as the page does: from the layout in the contract alone.
fn read(bytes: &[u8]) -> (Value, Vec<u32>, Vec<u32>, Vec<Vec<f64>>) {
    assert_eq!(&bytes[..8], b"HLCOLS01");
    let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
    let head: Value = serde_json::from_slice(&bytes[12..12 + length]).unwrap();
    let nodes = head["nodes"].as_u64().unwrap() as usize;
    let mut at = (12 + length).next_multiple_of(8);
    let words = |at: &mut usize| {
        let values = bytes[*at..*at + 4 * nodes].chunks(4);
        *at = (*at + 4 * nodes).next_multiple_of(8);
        values.map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<_>>()
    };
    let (depth, name) = (words(&mut at), words(&mut at));
    let metrics = head["metrics"].as_array().unwrap().iter().map(|_| {
        let values = bytes[at..at + 8 * nodes].chunks(8);
        at += 8 * nodes;
        values.map(|value| f64::from_le_bytes(value.try_into().unwrap())).collect()
    });
    let metrics = metrics.collect();
    assert_eq!(at, bytes.len());
    (head, depth, name, metrics)
}

fn tree(nodes: usize) -> ColumnTree {
    let own = |factor: u64| (0..nodes as u64).map(|node| node * factor).collect::<Vec<_>>();
    let metric = |name, factor| MetricColumn { name, total: own(factor).iter().sum(), own: own(factor) };
    let name = |function: &str| ColumnFrame { function: function.into(), ..ColumnFrame::default() };
    ColumnTree {
        unit: "bytes",
        depth: (0..nodes as u32).collect(),
        name: (0..nodes as u32).map(|node| node % 2).collect(),
        names: vec![name(""), ColumnFrame { module: Some("m".into()), line: Some(7), ..name("</script>\u{1}") }],
        metrics: vec![metric("bytes", 1000), metric("blocks", 1)],
        cut: (2, 30),
    }
}

#[test]
fn the_page_reads_what_was_written() {
    // With each padding of the columns.
    for nodes in 0..4 {
        let tree = tree(nodes);
        let (head, depth, name, metrics) = read(&tree.to_bytes().unwrap());
        assert_eq!((&depth, &name), (&tree.depth, &tree.name));
        let own = tree.metrics.iter().map(|metric| metric.own.iter().map(|&own| own as f64).collect::<Vec<_>>());
        assert_eq!(metrics, own.collect::<Vec<_>>());
        assert_eq!(head["cut"], json!({"nodes": 2, "bytes": 30}));
        assert_eq!(head["metrics"], json!(["bytes", "blocks"]));
        assert_eq!(head["total"], json!(tree.metrics.iter().map(|metric| metric.total).collect::<Vec<_>>()));
        let names = json!([{"function": ""}, {"function": "</script>\u{1}", "module": "m", "line": 7}]);
        assert_eq!((&head["unit"], &head["names"]), (&json!("bytes"), &names));
    }
}

#[test]
fn a_tree_that_cannot_be_read_is_not_sent() {
    let mut short = tree(3);
    short.name.pop();
    assert!(matches!(short.to_bytes(), Err(ColumnError::Lengths)));
    let mut large = tree(3);
    large.metrics[0].total = EXACT_MAX + 1;
    assert!(matches!(large.to_bytes(), Err(ColumnError::Inexact)));
}
