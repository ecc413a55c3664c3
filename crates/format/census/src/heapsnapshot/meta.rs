//! The description of the arrays at the beginning of a file.

use serde::Deserialize;

use crate::graph::EdgeKind;

/// The maximum number of types of nodes, whose numbers take a byte.
pub(super) const NODE_TYPES_MAX: usize = 256;

/// The member `snapshot` of the file.
#[derive(Default, Deserialize)]
pub(super) struct Header {
    meta: Meta,
    /// The position of the root's first number in `nodes`.
    #[serde(default)]
    pub(super) root_index: u64,
}

/// The names of fields and types. What a version of V8 does not have is empty.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    node_fields: Vec<String>,
    node_types: Vec<Types>,
    edge_fields: Vec<String>,
    edge_types: Vec<Types>,
    trace_function_info_fields: Vec<String>,
    trace_node_fields: Vec<String>,
    sample_fields: Vec<String>,
    location_fields: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Types {
    /// The names of an enumeration.
    Names(Vec<String>),
    /// Something else: `number`, `string`, `node`.
    Other(#[expect(dead_code, reason = "its type says that it is no enumeration")] String),
}

/// The position of each field that has a meaning in a row of numbers, and the length of the row.
#[derive(Clone, Debug)]
pub(super) struct Row<const N: usize> {
    pub(super) length: usize,
    /// For each number of the row, the field that it is: its position in the list of names that
    /// [`row`] was given.
    pub(super) fields: Vec<Option<u8>>,
    /// True for fields that the row has.
    pub(super) has: [bool; N],
}

fn row<const N: usize>(names: &[String], known: [&str; N]) -> Row<N> {
    let mut row = Row { length: names.len(), fields: Vec::new(), has: [false; N] };
    for name in names {
        let field = known.iter().position(|it| it == name).filter(|&it| !row.has[it]);
        if let Some(field) = field {
            row.has[field] = true;
        }
        row.fields.push(field.map(|it| it as u8));
    }
    row
}

/// The fields of a node, in the order of [`Layout::node`].
pub(super) mod node {
    pub(in super::super) const TYPE: usize = 0;
    pub(in super::super) const NAME: usize = 1;
    pub(in super::super) const ID: usize = 2;
    pub(in super::super) const SELF_SIZE: usize = 3;
    pub(in super::super) const EDGE_COUNT: usize = 4;
    pub(in super::super) const TRACE_NODE_ID: usize = 5;
    pub(in super::super) const DETACHEDNESS: usize = 6;
}

/// The fields of an edge, in the order of [`Layout::edge`].
pub(super) mod edge {
    pub(in super::super) const TYPE: usize = 0;
    pub(in super::super) const NAME_OR_INDEX: usize = 1;
    pub(in super::super) const TO_NODE: usize = 2;
}

/// The fields of a stack, in the order of [`Layout::trace`].
pub(super) mod trace {
    pub(in super::super) const ID: usize = 0;
    pub(in super::super) const FUNCTION: usize = 1;
    pub(in super::super) const COUNT: usize = 2;
    pub(in super::super) const SIZE: usize = 3;
    pub(in super::super) const CHILDREN: usize = 4;
}

/// The meaning of the numbers in the arrays.
pub(super) struct Layout {
    pub(super) node: Row<7>,
    pub(super) edge: Row<3>,
    /// Function id, name, script name, script id, line, column.
    pub(super) function: Row<6>,
    /// Id, function, count, size, children.
    pub(super) trace: Row<5>,
    /// Time, last id.
    pub(super) sample: Row<2>,
    /// Node, script id, line, column.
    pub(super) location: Row<4>,
    pub(super) node_types: Vec<String>,
    /// The kinds of edges, and whether the edges have an index instead of a name.
    pub(super) edge_types: Vec<(EdgeKind, bool)>,
}

impl Header {
    /// Returns the layout, or the reason why it is none.
    pub(super) fn layout(self) -> Result<Layout, String> {
        let meta = self.meta;
        let node_known = ["type", "name", "id", "self_size", "edge_count", "trace_node_id", "detachedness"];
        let edge_known = ["type", "name_or_index", "to_node"];
        let function_known = ["function_id", "name", "script_name", "script_id", "line", "column"];
        let node_types = types(&meta.node_fields, meta.node_types).ok_or("`node_types` does not name the types")?;
        let edge_types = types(&meta.edge_fields, meta.edge_types).ok_or("`edge_types` does not name the types")?;
        if node_types.len() > NODE_TYPES_MAX {
            return Err(format!("there are {} types of nodes", node_types.len()));
        }
        let layout = Layout {
            node: row(&meta.node_fields, node_known),
            edge: row(&meta.edge_fields, edge_known),
            function: row(&meta.trace_function_info_fields, function_known),
            trace: row(&meta.trace_node_fields, ["id", "function_info_index", "count", "size", "children"]),
            sample: row(&meta.sample_fields, ["timestamp_us", "last_assigned_id"]),
            location: row(&meta.location_fields, ["object_index", "script_id", "line", "column"]),
            node_types,
            edge_types: edge_types.iter().map(|it| edge_type(it)).collect(),
        };
        // Fields that came later, or are there only with stacks, may be missing.
        for (field, name) in node_known.iter().enumerate().take(node::TRACE_NODE_ID) {
            if !layout.node.has[field] {
                return Err(format!("`node_fields` has no `{name}`"));
            }
        }
        for (field, name) in edge_known.iter().enumerate() {
            if !layout.edge.has[field] {
                return Err(format!("`edge_fields` has no `{name}`"));
            }
        }
        if layout.trace.length > 0 && layout.trace.fields.last() != Some(&Some(trace::CHILDREN as u8)) {
            return Err("`trace_node_fields` does not end with `children`".to_owned());
        }
        Ok(layout)
    }
}

/// Returns the names of types, which are in the place of the field `type`.
fn types(fields: &[String], types: Vec<Types>) -> Option<Vec<String>> {
    let at = fields.iter().position(|it| it == "type")?;
    match types.into_iter().nth(at)? {
        Types::Names(names) => Some(names),
        Types::Other(_) => None,
    }
}

fn edge_type(name: &str) -> (EdgeKind, bool) {
    match name {
        "context" => (EdgeKind::Context, false),
        "element" => (EdgeKind::Element, true),
        "property" => (EdgeKind::Property, false),
        "internal" => (EdgeKind::Internal, false),
        "hidden" => (EdgeKind::Hidden, true),
        "shortcut" => (EdgeKind::Shortcut, false),
        "weak" => (EdgeKind::Weak, false),
        _ => (EdgeKind::Plain, false),
    }
}
