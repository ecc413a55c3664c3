//! Strings by their representation, and code by its form.

use std::cmp::Reverse;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use super::name_of;
use crate::graph::{CoarseType, EdgeName, Graph, Name, NodeIndex, Origin};

/// A representation of strings, or a form of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A string that has its own characters.
    Flat,
    /// A string that consists of two others: a rope, or concatenated string.
    Concatenated,
    /// A string that is a part of another: a dependent, or sliced string.
    Part,
    /// The source text of scripts.
    Source,
    /// The code that the interpreter runs, with its constants and tables. In Firefox, also the
    /// descriptions of scripts, which contain it.
    Bytecode,
    /// The code of compilers.
    MachineCode,
    /// The records of the types and objects that code has met.
    InlineCaches,
    /// Everything else that belongs to scripts: descriptions of scopes and functions.
    Descriptions,
}

/// The nodes of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindTotals {
    /// The kind.
    pub kind: Kind,
    /// The number of nodes.
    pub count: u64,
    /// The sum of their sizes in bytes.
    pub bytes: u64,
    /// The largest of them.
    pub largest: NodeIndex,
}

/// Returns the strings and the code of a graph by kind, those with the most bytes first.
///
/// The figures are of nodes alone. V8 names every node of code; in Firefox, compressed sources are
/// behind `ScriptSource` objects, and bytecode is a part of the script that it belongs to. Atoms,
/// which Firefox's tabs share, are in its snapshots only as strings like others.
pub fn kinds(graph: &Graph) -> Vec<KindTotals> {
    let kind_of = Kinds::new(graph);
    let mut totals: HashMap<Kind, KindTotals, RandomState> = HashMap::default();
    for node in graph.nodes() {
        let Some(kind) = kind_of.kind(node) else { continue };
        let found = totals.entry(kind).or_insert(KindTotals { kind, count: 0, bytes: 0, largest: node });
        found.count += 1;
        found.bytes += graph.size(node);
        if graph.size(node) > graph.size(found.largest) {
            found.largest = node;
        }
    }
    let mut totals: Vec<KindTotals> = totals.into_values().collect();
    totals.sort_unstable_by_key(|it| (Reverse(it.bytes), it.kind));
    totals
}

struct Kinds<'g> {
    graph: &'g Graph,
    /// The kinds of V8's types of strings, of Firefox's types of code, and of V8's labels of code.
    by_name: HashMap<Name, Kind, RandomState>,
    /// The names of edges from a string to its pieces.
    piece_edges: Vec<EdgeName>,
    /// The name of edges from a string to the one that it is a part of.
    base_edge: Option<EdgeName>,
    /// Strings that are sources, and code that is a cache, by the edges that lead there.
    by_holder: HashSet<NodeIndex, RandomState>,
    source_class: Option<Name>,
}

impl Kinds<'_> {
    fn new(graph: &Graph) -> Kinds<'_> {
        let is_v8 = graph.about().origin == Origin::V8;
        let mut by_name: HashMap<Name, Kind, RandomState> = HashMap::default();
        let fixed: &[(&str, Kind)] = if is_v8 {
            &[("concatenated string", Kind::Concatenated), ("sliced string", Kind::Part)]
        } else {
            &[("js::BaseScript", Kind::Bytecode), ("js::jit::JitCode", Kind::MachineCode)]
        };
        by_name.extend(fixed.iter().filter_map(|&(text, kind)| Some((name_of(graph, text)?, kind))));
        if is_v8 {
            by_name.extend(graph.names().iter().filter_map(|(name, text)| Some((name, of_v8_label(text)?))));
        }
        let holding = name_of(graph, if is_v8 { "source" } else { "baseline-ic-stub-code" });
        let holders = graph.nodes().filter(|&node| holding.is_some() && graph.coarse_type(node) == CoarseType::Script);
        let held = holders.flat_map(|node| graph.edges(node));
        let by_holder = held.filter(|edge| edge.name == holding.map(EdgeName::Name)).map(|edge| edge.target).collect();
        let edge = |text| name_of(graph, text).map(EdgeName::Name);
        Kinds {
            graph,
            by_name,
            piece_edges: ["left child", "right child"].into_iter().filter_map(edge).collect(),
            base_edge: edge("base"),
            by_holder,
            source_class: name_of(graph, "ScriptSource").filter(|_| !is_v8),
        }
    }

    fn kind(&self, node: NodeIndex) -> Option<Kind> {
        let graph = self.graph;
        let by_type = || self.by_name.get(&graph.type_name(node)).copied();
        match graph.coarse_type(node) {
            CoarseType::String => Some(match by_type() {
                Some(kind) => kind,
                None if self.by_holder.contains(&node) => Kind::Source,
                None => self.by_edges(node),
            }),
            CoarseType::Script if self.by_holder.contains(&node) => Some(Kind::InlineCaches),
            CoarseType::Script => {
                let by_label = || self.by_name.get(&graph.label(node)?).copied();
                Some(by_type().or_else(by_label).unwrap_or(Kind::Descriptions))
            }
            _ => (self.source_class.is_some() && graph.class(node) == self.source_class).then_some(Kind::Source),
        }
    }

    /// Returns the kind of a string in Firefox, whose types do not tell it.
    fn by_edges(&self, node: NodeIndex) -> Kind {
        let names = || self.graph.edges(node).filter_map(|edge| edge.name);
        if names().any(|name| self.piece_edges.contains(&name)) {
            Kind::Concatenated
        } else if self.base_edge.is_some() && names().any(|name| Some(name) == self.base_edge) {
            Kind::Part
        } else {
            Kind::Flat
        }
    }
}

/// Returns the form of V8's code with a label, or `None` if the label does not tell it.
fn of_v8_label(label: &str) -> Option<Kind> {
    if let Some(class) = label.strip_prefix("system / ") {
        let class = class.split(" / ").next().unwrap_or(class);
        return match class {
            "InstructionStream" => Some(Kind::MachineCode),
            _ if class.starts_with("Bytecode") => Some(Kind::Bytecode),
            _ if class.starts_with("Feedback") || class.starts_with("ClosureFeedback") => Some(Kind::InlineCaches),
            _ if class.ends_with("Handler") => Some(Kind::InlineCaches),
            _ if class.starts_with("Code") => Some(Kind::MachineCode),
            _ => None,
        };
    }
    let inner = label.strip_prefix('(')?.strip_suffix(')')?;
    let is_any = |texts: &[&str]| texts.iter().any(|text| inner.contains(text));
    if is_any(&["constant pool", "position table", "handler table"]) {
        Some(Kind::Bytecode)
    } else if is_any(&["builtin", "code for ", " code", "relocation info", "deopt", "instruction stream"]) {
        Some(Kind::MachineCode)
    } else {
        None
    }
}
