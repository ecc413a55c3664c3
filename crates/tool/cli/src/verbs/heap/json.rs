//! Nodes and edges, for JSON.

use heapledger_census::graph::{
    AllocationStack, CoarseType, Detachedness, Edge, EdgeName, FrameIndex, Graph, NodeIndex,
};
use serde::Serialize;

use super::names::kind_name;

/// A node, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NodeJson {
    pub(super) id: u64,
    /// The engine's name for its type.
    #[serde(rename = "type")]
    type_name: String,
    coarse_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    /// V8's text for it: the characters of a string, the name of a function.
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// The name of a DOM node.
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptive_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    script_file: Option<String>,
    /// The size of the node itself, in bytes.
    size: Option<u64>,
    /// `attached` or `detached`, if the snapshot says so of a DOM node.
    #[serde(skip_serializing_if = "Option::is_none")]
    detachedness: Option<&'static str>,
}

impl NodeJson {
    pub(super) fn new(graph: &Graph, node: NodeIndex) -> NodeJson {
        let text = |name| graph.text(name).to_owned();
        NodeJson {
            id: graph.id(node).0,
            type_name: text(graph.type_name(node)),
            coarse_type: match graph.coarse_type(node) {
                CoarseType::Other => "other",
                CoarseType::Object => "object",
                CoarseType::Script => "script",
                CoarseType::String => "string",
                CoarseType::DomNode => "domNode",
            },
            class: graph.class(node).map(text),
            label: graph.label(node).map(text),
            descriptive_name: graph.descriptive_name(node).map(text),
            script_file: graph.script_file(node).map(text),
            size: graph.is_size_known(node).then(|| graph.size(node)),
            detachedness: match graph.detachedness(node) {
                Detachedness::Unknown => None,
                Detachedness::Attached => Some("attached"),
                Detachedness::Detached => Some("detached"),
            },
        }
    }
}

/// The name of an edge, for JSON: a text, or the index of an element.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(crate) enum EdgeNameJson {
    Index(u32),
    Name(String),
}

impl EdgeNameJson {
    pub(super) fn new(graph: &Graph, name: EdgeName) -> EdgeNameJson {
        match name {
            EdgeName::Index(index) => EdgeNameJson::Index(index),
            EdgeName::Name(name) => EdgeNameJson::Name(graph.text(name).to_owned()),
        }
    }
}

/// An edge, and the node at its other end.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EdgeJson {
    /// `null` if the edge has no name.
    name: Option<EdgeNameJson>,
    /// V8's type of the edge; `null` for snapshots of Firefox.
    kind: Option<&'static str>,
    /// False for edges that do not keep their target alive, such as weak ones.
    retains: bool,
    node: NodeJson,
}

impl EdgeJson {
    pub(super) fn new(graph: &Graph, edge: &Edge, other: NodeIndex) -> EdgeJson {
        EdgeJson {
            name: edge.name.map(|name| EdgeNameJson::new(graph, name)),
            kind: kind_name(edge.kind),
            retains: edge.retains,
            node: NodeJson::new(graph, other),
        }
    }
}

/// A frame of the stack that allocated a node.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapFrameJson {
    function: Option<String>,
    source: Option<String>,
    /// From 1; 0 if it is not known.
    line: u32,
    /// From 1; 0 if it is not known.
    column: u32,
}

impl HeapFrameJson {
    fn new(graph: &Graph, frame: FrameIndex) -> HeapFrameJson {
        let frame = graph.frame(frame);
        let text = |name| graph.text(name).to_owned();
        HeapFrameJson {
            function: frame.function.map(text),
            source: frame.source.map(text),
            line: frame.line,
            column: frame.column,
        }
    }

    /// Returns the stack that allocated a node, innermost first; `None` if it was not recorded.
    pub(super) fn stack(graph: &Graph, node: NodeIndex) -> Option<Vec<HeapFrameJson>> {
        Some(match graph.stack(node)? {
            AllocationStack::Empty => Vec::new(),
            AllocationStack::At(innermost) => {
                graph.frames().stack(innermost).map(|frame| HeapFrameJson::new(graph, frame)).collect()
            }
        })
    }
}
