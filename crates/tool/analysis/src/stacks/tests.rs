//! Contexts, heaps and frames that are not where they belong.

use heapledger_core::StackId;
use heapledger_recording::NodeKind::{self, Context, Frame, Heap, Scope, Value};
use heapledger_recording::{
    Compressor, Footer, ImageId, ImageStart, ModuleId, Node, NodesEncoder, Record, Recording, RecordingWriter, Site,
    SitesEncoder, Text, TextId, encode_records,
};
use heapledger_symbols::{Symbolizer, SymbolizerOptions};

use super::MergedStacks;
use crate::names::Names;

/// Nodes: the number, the parent, the kind and the offset of each.
const NODES: [(u32, u32, NodeKind, u64); 27] = [
    (1, 0, Frame, 100),
    (2, 1, Frame, 101),
    // a > b{v}; a value under a value; one under the root; one with an unknown text.
    (10, 0, Scope, 1),
    (11, 10, Scope, 2),
    (12, 11, Value, 3),
    (13, 12, Value, 1),
    (14, 0, Value, 3),
    (15, 0, Scope, 77),
    // The same again, with a frame in between and under other numbers.
    (16, 0, Scope, 4),
    (17, 16, Frame, 9),
    (18, 17, Scope, 2),
    (19, 18, Value, 3),
    // Nodes that are where they belong, and nodes that are not.
    (20, 2, Context, 12),
    (21, 2, Context, 13),
    (22, 2, Context, 19),
    (23, 2, Context, 14),
    (24, 2, Context, 999),
    (25, 2, Context, 25),
    (26, 20, Heap, 2),
    (27, 26, Heap, 3),
    (28, 26, Context, 10),
    (29, 26, Frame, 102),
    (30, 12, Frame, 103),
    (31, 0, Context, 15),
    (32, 20, Context, 10),
    (33, 2, Context, u64::MAX),
    (34, 2, Heap, u64::MAX),
];

/// Nodes of contexts and heaps that are not where they belong are ignored.
#[test]
fn what_is_not_where_it_belongs_is_left_out() {
    let bytes = recording();
    let recording = Recording::open(&bytes).unwrap();
    let names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));

    let mut merged = MergedStacks::new(&recording);
    let mut properties = |id: u32| {
        let stack = merged.node(ImageId(0), StackId(id));
        let frames: Vec<u64> = merged.stacks.frames(stack).map(|frame| frame.offset).collect();
        let heap = merged.stacks.heap(stack).map(|heap| names.text(heap)).unwrap_or_default();
        (frames, names.context(&merged.stacks, merged.stacks.context(stack)), heap)
    };
    let stack = || vec![101, 100];
    let mut expect = |id: u32, frames: Vec<u64>, context: &str, heap: &str| {
        assert_eq!(properties(id), (frames, context.to_owned(), heap.to_owned()), "{id}");
    };
    for id in [20, 21, 22] {
        expect(id, stack(), "a > b{v}", "");
    }
    for id in [23, 24, 25, 33] {
        expect(id, stack(), "(no context)", "");
    }
    expect(26, stack(), "a > b{v}", "b");
    expect(27, stack(), "a > b{v}", "v");
    expect(28, stack(), "a", "");
    expect(29, vec![102, 101, 100], "(no context)", "");
    expect(30, vec![103], "(no context)", "");
    expect(31, vec![], "?", "");
    expect(32, stack(), "a", "");
    expect(34, stack(), "(no context)", "?");
    // Equal stacks have the same node.
    let node = |merged: &mut MergedStacks<'_, '_>, id| merged.node(ImageId(0), StackId(id));
    assert_eq!(node(&mut merged, 20), node(&mut merged, 22));
    assert_ne!(node(&mut merged, 20), node(&mut merged, 2));
    assert_eq!(node(&mut merged, 24), node(&mut merged, 2));
}

/// Returns a recording with these nodes, each of which is the stack of a site.
fn recording() -> Vec<u8> {
    let compressor = &mut Compressor::new();
    let texts = ["a", "b", "v", "a"];
    let mut records = vec![Record::ImageStart(ImageStart::default())];
    records.extend(
        (1..)
            .zip(texts)
            .map(|(text, bytes)| Record::Text(Text { text: TextId(text), bytes: bytes.into(), ..Text::default() })),
    );
    let mut encoder = NodesEncoder::new(ImageId(0));
    for (id, parent, kind, offset) in NODES {
        let (id, parent, module) = (StackId(id), StackId(parent), ModuleId::UNKNOWN);
        encoder.push(&Node { id, parent, kind, module, offset, is_unproven: false }).unwrap();
    }
    let mut writer = RecordingWriter::new();
    let sites: Vec<Site> = (0..40).map(|id| Site { stack: StackId(id), ..Site::default() }).collect();
    let mut chunks = encode_records(&records, compressor).unwrap();
    chunks.extend(encoder.finish(compressor));
    chunks.extend(SitesEncoder::encode(ImageId(0), &sites, compressor).unwrap());
    chunks.iter().for_each(|chunk| writer.push(chunk));
    writer.finish(&Footer::default(), compressor);
    writer.pending().to_vec()
}
