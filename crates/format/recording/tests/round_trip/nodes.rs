//! The nodes of stack trees, also across forks.

use heapledger_core::StackId;
use heapledger_recording::*;
use proptest::prelude::*;

use crate::{FOOTER, file};

proptest! {
    #[test]
    fn node_chunks(nodes in prop::collection::btree_map(1..=StackId::MAX.0, (0u8..14, any::<u32>(), any::<u64>(), any::<prop::sample::Index>()), 1..60), cut in 1usize..60) {
        let ids: Vec<u32> = nodes.keys().copied().collect();
        let mut nodes: Vec<Node> = nodes.iter().enumerate().map(|(at, (&id, &(kind, module, offset, parent)))| {
            let kind = match kind { 0 => NodeKind::Epoch, 1 => NodeKind::Truncated, 2 => NodeKind::Foreign, 3 => NodeKind::Other(200),
                4 => NodeKind::Scope, 5 => NodeKind::Value, 6 => NodeKind::Context, 7 => NodeKind::Heap, 8 => NodeKind::Stamp, _ => NodeKind::Frame };
            let parent = if at == 0 { StackId::ROOT } else { StackId(ids[parent.index(at)]) };
            Node { id: StackId(id), parent, kind, module: ModuleId(module), offset, is_unproven: offset % 3 == 0 }
        }).collect();
        // Ids come in any order.
        nodes.reverse();
        let mut encoder = NodesEncoder::new(ImageId(0));
        let mut compressor = Compressor::new();
        let mut chunks = Vec::new();
        for part in nodes.chunks(cut) {
            part.iter().for_each(|node| encoder.push(node).unwrap());
            chunks.extend(encoder.finish(&mut compressor));
        }
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        nodes.reverse();
        let table = recording.nodes(ImageId(0));
        prop_assert_eq!(table.nodes(), &nodes[..]);
        prop_assert_eq!(table.damage(), []);
        let tree = recording.stack_tree(ImageId(0), &mut NodeCache::default());
        for node in &nodes {
            prop_assert_eq!(table.get(node.id), Some(node));
            let mut frames = tree.frames(node.id).copied();
            let mut at = node.id;
            while let Some(&node) = table.get(at) {
                at = node.parent;
                if node.kind != NodeKind::Epoch {
                    prop_assert_eq!(frames.next(), Some(node));
                }
            }
            prop_assert_eq!(frames.next(), None);
        }
    }
}

/// A child sees the scopes of its parent, and its own under the same ids as later ones of the
/// parent.
#[test]
fn contexts_lead_to_their_scopes_across_forks() {
    let node = |id: u32, parent: u32, kind, offset| {
        let (id, parent) = (StackId(id), StackId(parent));
        Node { id, parent, kind, module: ModuleId::UNKNOWN, offset, is_unproven: false }
    };
    let mut compressor = Compressor::new();
    let mut chunk = |image: u32, nodes: &[Node]| {
        let mut encoder = NodesEncoder::new(ImageId(image));
        nodes.iter().for_each(|node| encoder.push(node).unwrap());
        encoder.finish(&mut compressor).unwrap()
    };
    let (scope, context) = (NodeKind::Scope, NodeKind::Context);
    let parent = [node(1, 0, NodeKind::Frame, 7), node(2, 0, scope, 1), node(3, 1, context, 2), node(4, 0, scope, 8)];
    let child = [
        node(4, 0, scope, 5),
        node(5, 4, NodeKind::Value, 1 << 40),
        node(6, 1, context, 5),
        node(7, 6, NodeKind::Heap, 6),
        node(8, 1, context, 2),
        // Contexts that lead nowhere, to another context, and to themselves.
        node(9, 1, context, 1 << 40),
        node(10, 1, context, 99),
        node(11, 1, context, 11),
    ];
    let starts = [(0, None, 0), (1, Some(ImageId(0)), 4)].map(|(image, parent_image, base)| {
        let (image, fork_node_base) = (ImageId(image), StackId(base));
        Record::ImageStart(ImageStart { image, parent_image, fork_node_base, ..ImageStart::default() })
    });
    let mut chunks = vec![chunk(0, &parent), chunk(1, &child)];
    chunks.extend(encode_records(&starts, &mut Compressor::new()).unwrap());
    let file = file(&chunks, &FOOTER);
    let recording = Recording::open(&file).unwrap();
    let tree = recording.stack_tree(ImageId(1), &mut NodeCache::default());
    let path = |id: u32| tree.path(StackId(id)).filter_map(Node::text).map(|text| text.0).collect::<Vec<_>>();
    assert_eq!((path(6), path(8), path(3)), (vec![0, 5], vec![1], vec![1]));
    assert_eq!([7, 9, 10, 1, 0, 77].map(path), [const { Vec::new() }; 6]);
    // A context that leads to itself has no path of scopes, but the walk ends.
    assert_eq!(tree.path(StackId(11)).count(), 2);
    assert_eq!(tree.get(StackId(7)).and_then(Node::text), Some(TextId(6)));
    let before_fork = recording.stack_tree(ImageId(0), &mut NodeCache::default());
    assert_eq!(before_fork.path(StackId(3)).count(), 1);
}
