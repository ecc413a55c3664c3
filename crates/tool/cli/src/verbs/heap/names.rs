//! Nodes and edges as people read them.

use heapledger_census::graph::{AllocationStack, CoarseType, Edge, EdgeKind, EdgeName, FrameIndex, Graph, NodeIndex};

/// The most characters shown of a string.
const TEXT_MAX: usize = 60;

/// Returns a node for people, with its id: `Session @4711`.
pub(super) fn node(graph: &Graph, node: NodeIndex) -> String {
    format!("{} @{}", what(graph, node), graph.id(node).0)
}

/// Returns the properties of a node that say most about it.
fn what(graph: &Graph, node: NodeIndex) -> String {
    if node == graph.root() {
        return "(root)".to_owned();
    }
    let text = |name| graph.text(name);
    let (class, label) = (graph.class(node).map(text), graph.label(node).map(text).filter(|label| !label.is_empty()));
    if let (CoarseType::String, Some(label)) = (graph.coarse_type(node), label) {
        // V8 has no characters of strings that are parts or concatenations of others.
        let has_characters = !["(sliced string)", "(concatenated string)"].contains(&label);
        return if has_characters { format!("\"{}\"", cut(label)) } else { label.to_owned() };
    }
    if let Some(name) = graph.descriptive_name(node) {
        return cut(text(name));
    }
    match (class, label) {
        (Some(class), Some(label)) if class != label => format!("{class} {}", cut(label)),
        (Some(class), _) => class.to_owned(),
        // V8's groups of roots, such as `(Handle scope)`.
        (None, Some(label)) if label.starts_with('(') => cut(label),
        (None, Some(label)) => format!("{} {}", text(graph.type_name(node)), cut(label)),
        (None, None) => text(graph.type_name(node)).to_owned(),
    }
}

/// Returns the beginning of a text that is long. Ends of lines in it are escaped when printed.
pub(super) fn cut(text: &str) -> String {
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(TEXT_MAX).collect();
    if characters.next().is_some() { format!("{start}…") } else { start }
}

/// Returns the name of an edge as a program would write it: `.log`, `[3]`, or the kind alone.
pub(super) fn edge(graph: &Graph, edge: &Edge) -> String {
    match (edge.name, edge.kind) {
        (Some(EdgeName::Index(index)), EdgeKind::Hidden) => format!("(hidden {index})"),
        (Some(EdgeName::Index(index)), _) => format!("[{index}]"),
        (Some(EdgeName::Name(name)), kind) => {
            let name = cut(graph.text(name));
            match kind_note(kind) {
                Some(note) => format!("{name} ({note})"),
                None => format!(".{name}"),
            }
        }
        (None, _) => "(unnamed edge)".to_owned(),
    }
}

/// Returns the kind of an edge if it is not that of a property.
fn kind_note(kind: EdgeKind) -> Option<&'static str> {
    match kind {
        EdgeKind::Plain | EdgeKind::Property | EdgeKind::Element => None,
        kind => kind_name(kind),
    }
}

/// Returns the name of a kind of edges; none if the snapshot has no kinds.
pub(super) fn kind_name(kind: EdgeKind) -> Option<&'static str> {
    Some(match kind {
        EdgeKind::Plain => return None,
        EdgeKind::Context => "context",
        EdgeKind::Element => "element",
        EdgeKind::Property => "property",
        EdgeKind::Internal | EdgeKind::WeakMapTable => "internal",
        EdgeKind::Hidden => "hidden",
        EdgeKind::Shortcut => "shortcut",
        EdgeKind::Weak => "weak",
    })
}

/// Returns the frames of the stack that allocated a node, innermost first.
pub(super) fn frames(graph: &Graph, node: NodeIndex) -> Vec<String> {
    match graph.stack(node) {
        Some(AllocationStack::At(innermost)) => {
            graph.frames().stack(innermost).map(|frame| self::frame(graph, frame)).collect()
        }
        Some(AllocationStack::Empty) => vec!["(no function was running)".to_owned()],
        None => Vec::new(),
    }
}

fn frame(graph: &Graph, frame: FrameIndex) -> String {
    let frame = graph.frame(frame);
    let function = frame.function.map_or("(anonymous)", |name| graph.text(name));
    let source = frame.source.map_or("", |name| graph.text(name));
    format!("{function}  {source}:{}:{}", frame.line, frame.column)
}
