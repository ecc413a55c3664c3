//! Strings that exist several times, and strings that only parts of them keep alive.

use std::cmp::Reverse;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::{NotAvailable, name_of};
use crate::dominators::Dominators;
use crate::graph::{CoarseType, EdgeName, Graph, Name, NodeIndex, Origin};

/// The number of UTF-16 units at which V8 cuts the texts of strings in its snapshots.
pub const STRING_UNITS_MAX: usize = 1024;

/// Equal strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateString {
    /// Their characters.
    pub text: Name,
    /// True if the snapshot has only their beginning. Such strings count as equal if their sizes
    /// are, too, so that they may differ in fact.
    pub is_cut: bool,
    /// The number of them.
    pub count: u64,
    /// The sum of their sizes in bytes.
    pub bytes: u64,
    /// The bytes that all but the largest take.
    pub wasted: u64,
    /// The first of them.
    pub example: NodeIndex,
}

/// Returns the strings that exist at least twice, those that waste the most first.
///
/// Strings that consist of others, or are parts of others, have no characters of their own, and do
/// not count.
///
/// # Errors
///
/// Fails if the source does not have the characters of strings, as in Firefox's snapshots.
pub fn duplicate_strings(graph: &Graph) -> Result<Vec<DuplicateString>, NotAvailable> {
    if graph.about().origin == Origin::Firefox {
        return Err(NotAvailable::StringContents);
    }
    let composed = ["concatenated string", "sliced string"].map(|text| name_of(graph, text));
    let mut known: HashMap<(Name, Option<u64>), (DuplicateString, u64), RandomState> = HashMap::default();
    for node in graph.nodes().filter(|&node| graph.coarse_type(node) == CoarseType::String) {
        let Some(text) = graph.label(node) else { continue };
        if composed.contains(&Some(graph.type_name(node))) {
            continue;
        }
        let size = graph.size(node);
        let is_cut = is_cut(graph.text(text));
        let new = DuplicateString { text, is_cut, count: 0, bytes: 0, wasted: 0, example: node };
        let (found, largest) = known.entry((text, is_cut.then_some(size))).or_insert((new, 0));
        found.count += 1;
        found.bytes += size;
        *largest = size.max(*largest);
    }
    let several = known.into_values().filter(|(found, _)| found.count > 1);
    let mut all: Vec<_> =
        several.map(|(found, largest)| DuplicateString { wasted: found.bytes - largest, ..found }).collect();
    all.sort_unstable_by_key(|it| (Reverse(it.wasted), it.example));
    Ok(all)
}

fn is_cut(text: &str) -> bool {
    // A character takes at least one byte and at most as many units.
    text.len() >= STRING_UNITS_MAX && text.encode_utf16().nth(STRING_UNITS_MAX - 1).is_some()
}

/// A string of which only parts are used: it is alive because of strings that refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptString {
    /// The string that is kept.
    pub kept: NodeIndex,
    /// Its size in bytes.
    pub bytes: u64,
    /// The number of strings that are parts of it.
    pub parts: u64,
    /// The sum of their sizes in bytes, without the characters, which they share with it.
    pub part_bytes: u64,
    /// The first of them.
    pub example: NodeIndex,
}

/// Returns the strings that nothing but parts of them retains, the largest first.
///
/// Parts are V8's sliced strings and SpiderMonkey's dependent strings. Strings that are smaller
/// than their parts together are left out, since the parts would not be smaller without them.
pub fn kept_strings(graph: &Graph) -> Vec<KeptString> {
    // V8 calls the edge from a sliced string `parent`, SpiderMonkey `base`.
    let part_edges = ["parent", "base"].map(|text| name_of(graph, text).map(EdgeName::Name));
    let is_string = |node| graph.coarse_type(node) == CoarseType::String;
    let mut is_held_otherwise = vec![false; graph.node_count()];
    // With the last part that was counted, since a part may have several edges to its string.
    let mut kept: HashMap<NodeIndex, (KeptString, Option<NodeIndex>), RandomState> = HashMap::default();
    for from in graph.nodes() {
        let from_string = is_string(from);
        for position in graph.edge_range(from).filter(|&it| graph.retains(it)) {
            let edge = graph.edge(position);
            let target = edge.target;
            if !is_string(target) || target == from {
                continue;
            }
            if !(from_string && edge.name.is_some() && part_edges.contains(&edge.name)) {
                is_held_otherwise[target.index()] = true;
                continue;
            }
            let bytes = graph.size(target);
            let new = KeptString { kept: target, bytes, parts: 0, part_bytes: 0, example: from };
            let (found, last) = kept.entry(target).or_insert((new, None));
            if last.replace(from) != Some(from) {
                found.parts += 1;
                found.part_bytes = found.part_bytes.saturating_add(graph.size(from));
            }
        }
    }
    let kept = kept.into_values().map(|(found, _)| found);
    let mut all: Vec<KeptString> =
        kept.filter(|it| !is_held_otherwise[it.kept.index()] && it.bytes > it.part_bytes).collect();
    all.sort_unstable_by_key(|it| (Reverse(it.bytes), it.kept));
    all
}

/// A concatenation whose characters were never copied together: it keeps its pieces alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concatenation {
    /// The string.
    pub node: NodeIndex,
    /// Its own size in bytes, without characters.
    pub bytes: u64,
    /// Its retained size in bytes, which includes the pieces that nothing else holds.
    pub retained: u64,
}

/// Returns the concatenations that retain others and are not themselves pieces of one, those that
/// retain the most first.
///
/// These are V8's concatenated strings, also known as cons strings, and SpiderMonkey's ropes.
pub fn concatenations(graph: &Graph, dominators: &Dominators) -> Vec<Concatenation> {
    let piece_edges = ["first", "second", "left child", "right child"].map(|text| name_of(graph, text));
    let is_string = |node| graph.coarse_type(node) == CoarseType::String;
    let mut has_pieces = vec![false; graph.node_count()];
    let mut is_piece = vec![false; graph.node_count()];
    for from in graph.nodes().filter(|&node| is_string(node)) {
        for edge in graph.edges(from).filter(|edge| is_string(edge.target)) {
            let Some(EdgeName::Name(name)) = edge.name else { continue };
            if piece_edges.contains(&Some(name)) {
                has_pieces[from.index()] = true;
                is_piece[edge.target.index()] = true;
            }
        }
    }
    let mut all: Vec<Concatenation> = graph
        .nodes()
        .filter(|node| has_pieces[node.index()] && !is_piece[node.index()])
        .filter_map(|node| Some(Concatenation { node, bytes: graph.size(node), retained: dominators.retained(node)? }))
        .filter(|it| it.retained > it.bytes)
        .collect();
    all.sort_by_key(|it| (Reverse(it.retained), it.node));
    all
}
