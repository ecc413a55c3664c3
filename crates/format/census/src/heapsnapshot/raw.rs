//! The arrays of a file as they are, before the strings are known that they refer to.

use super::json::Json;
use super::meta::{Row, edge, node};
use crate::graph::NodeIndex;
use crate::read_error::ReadError;

/// Takes an array of rows, and gives the fields of each row to a function.
pub(super) fn rows<const N: usize>(
    json: &mut Json<'_>,
    row: &Row<N>,
    mut take: impl FnMut([u64; N]) -> Result<(), String>,
) -> Result<(), ReadError> {
    json.expect(b'[')?;
    let mut is_first = true;
    loop {
        // Rows are nearly all of a file.
        if let Some((values, length)) = buffered_row(json.input.buffered(), row, is_first) {
            take(values).map_err(|reason| json.input.error(reason))?;
            json.input.consume(length);
            is_first = false;
            continue;
        }
        if !json.has_next(is_first, b']')? {
            return Ok(());
        }
        if row.length == 0 {
            return Err(json.input.error("a row has fields that `meta` does not name"));
        }
        let mut values = [0; N];
        for (at, field) in row.fields.iter().enumerate() {
            if at > 0 {
                json.expect(b',')?;
            }
            let value = json.number()?;
            if let Some(field) = field {
                values[usize::from(*field)] = value;
            }
        }
        take(values).map_err(|reason| json.input.error(reason))?;
        is_first = false;
    }
}

/// Returns the fields of a row that is completely in the buffer, and its length in bytes. Returns
/// nothing if it is not, or if it is not well-formed or has numbers of over 19 digits.
#[inline]
fn buffered_row<const N: usize>(bytes: &[u8], row: &Row<N>, is_first: bool) -> Option<([u64; N], usize)> {
    let mut at = 0;
    let mut values = [0; N];
    let skip_space = |at: &mut usize| {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(*at) {
            *at += 1;
        }
    };
    for (column, field) in row.fields.iter().enumerate() {
        skip_space(&mut at);
        if column > 0 || !is_first {
            if bytes.get(at) != Some(&b',') {
                return None;
            }
            at += 1;
            skip_space(&mut at);
        }
        let start = at;
        let mut value: u64 = 0;
        while let Some(digit @ 0..=9) = bytes.get(at).map(|it| it.wrapping_sub(b'0')) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            at += 1;
        }
        if !(1..=19).contains(&(at - start)) {
            return None;
        }
        if let Some(field) = field {
            values[usize::from(*field)] = value;
        }
        // The number goes on after the buffer, or as a fraction.
        if !matches!(bytes.get(at), Some(b',' | b']' | b' ' | b'\n' | b'\r' | b'\t')) {
            return None;
        }
    }
    (at > 0).then_some((values, at))
}

/// Returns a number as one of 32 bits, or the reason why it is none.
pub(super) fn narrow(value: u64, field: &str) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("`{field}` is {value}, which has more than 32 bits"))
}

/// The array of nodes: a column for each field.
#[derive(Default)]
pub(super) struct RawNodes {
    pub(super) types: Vec<u8>,
    pub(super) names: Vec<u32>,
    pub(super) ids: Vec<u64>,
    pub(super) sizes: Vec<u64>,
    /// The position of the first edge of each node, and the number of edges.
    pub(super) edge_starts: Vec<u64>,
    pub(super) traces: Vec<u32>,
    pub(super) detachedness: Vec<u8>,
}

impl RawNodes {
    pub(super) fn read(json: &mut Json<'_>, row: &Row<7>, types: usize) -> Result<RawNodes, ReadError> {
        let mut nodes = RawNodes::default();
        let mut edges: u64 = 0;
        rows(json, row, |values| {
            let kind = values[node::TYPE];
            if kind >= types as u64 {
                return Err(format!("a node has the type {kind}, and there are {types} types"));
            }
            let detachedness = values[node::DETACHEDNESS];
            if detachedness > 2 {
                return Err(format!("a node has the detachedness {detachedness}"));
            }
            nodes.types.push(kind as u8);
            nodes.names.push(narrow(values[node::NAME], "name")?);
            nodes.ids.push(values[node::ID]);
            nodes.sizes.push(values[node::SELF_SIZE]);
            nodes.edge_starts.push(edges);
            edges = edges.checked_add(values[node::EDGE_COUNT]).ok_or("there are too many edges")?;
            nodes.traces.push(narrow(values[node::TRACE_NODE_ID], "trace_node_id")?);
            nodes.detachedness.push(detachedness as u8);
            Ok(())
        })?;
        nodes.edge_starts.push(edges);
        Ok(nodes)
    }

    pub(super) fn count(&self) -> usize {
        self.types.len()
    }

    /// The positions of a node's edges. All of them exist once the edges have been read.
    pub(super) fn edges(&self, node: usize) -> std::ops::Range<usize> {
        self.edge_starts[node] as usize..self.edge_starts[node + 1] as usize
    }
}

/// The array of edges.
#[derive(Default)]
pub(super) struct RawEdges {
    pub(super) types: Vec<u8>,
    pub(super) names: Vec<u32>,
    pub(super) targets: Vec<NodeIndex>,
}

impl RawEdges {
    /// Takes the edges, after the nodes.
    pub(super) fn read(
        json: &mut Json<'_>,
        row: &Row<3>,
        types: usize,
        nodes: &RawNodes,
        node_length: usize,
    ) -> Result<RawEdges, ReadError> {
        let mut edges = RawEdges::default();
        let (types, node_length) = (types.min(256) as u64, node_length as u64);
        rows(json, row, |values| {
            let kind = values[edge::TYPE];
            if kind >= types {
                return Err(format!("an edge has the type {kind}, and there are {types} types"));
            }
            edges.types.push(kind as u8);
            edges.names.push(narrow(values[edge::NAME_OR_INDEX], "name_or_index")?);
            edges.targets.push(NodeIndex(position(values[edge::TO_NODE], node_length, nodes.count())?));
            Ok(())
        })?;
        let expected = nodes.edge_starts.last().copied().unwrap_or(0);
        if edges.types.len() as u64 != expected {
            let there = edges.types.len();
            return Err(json.input.error(format_args!("there are {there} edges, and the nodes have {expected}")));
        }
        Ok(edges)
    }
}

/// Returns the node whose first number is at a position of the array of nodes.
pub(super) fn position(offset: u64, node_length: u64, nodes: usize) -> Result<u32, String> {
    let (node, rest) = match (u32::try_from(offset), u32::try_from(node_length.max(1))) {
        // Division of 32 bits is several times as fast.
        (Ok(offset), Ok(length)) => (u64::from(offset / length), u64::from(offset % length)),
        _ => (offset / node_length.max(1), offset % node_length.max(1)),
    };
    if rest != 0 || node >= nodes as u64 {
        return Err(format!("no node begins at {offset} of `nodes`"));
    }
    narrow(node, "to_node")
}
