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
        let (value, length) = number(bytes.get(at..)?)?;
        at += length;
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

/// Returns the number at the beginning of bytes, and its length: 1 to 19 digits.
///
/// Numbers of up to seven digits, which are nearly all, are taken at once: a loop over the digits
/// would be mispredicted by the processor at the end of most numbers.
#[inline]
fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    if let Some(eight) = bytes.first_chunk() {
        // Digits become 0 to 9. Bit 7 is then set in the first byte that is none; what is carried
        // changes only bytes after it.
        let digits = u64::from_le_bytes(*eight) ^ (ONES * 0x30);
        let others = (digits.wrapping_add(ONES * 0x76) | digits) & (ONES * 0x80);
        let length = others.trailing_zeros() / 8;
        if (1..8).contains(&length) {
            // As eight digits, the first of which are 0; neighbors are added up in pairs.
            let digits = digits << (64 - 8 * length);
            let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
            let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
            return Some(((fours * 10_000 + (fours >> 32)) & 0xffff_ffff, length as usize));
        }
    }
    let mut value: u64 = 0;
    let mut length = 0;
    while let Some(digit @ 0..=9) = bytes.get(length).map(|it| it.wrapping_sub(b'0')) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        length += 1;
    }
    (1..=19).contains(&length).then_some((value, length))
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

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_taken_whatever_follows() {
        for digits in 1..=19 {
            for first in ["1", "9", "0"] {
                let text = format!("{first}{}", &"0918273645546372819"[..digits - 1]);
                let expected = Some((text.parse().unwrap(), digits));
                for after in ["", ",", "]", "\n,1,2,3,4", "/2345678", ":2345678", "\u{ff}\u{ff}\u{ff}\u{ff}", " "] {
                    assert_eq!(number(format!("{text}{after}").as_bytes()), expected, "{text}{after}");
                }
            }
        }
        for text in ["", ",", "-1", "a2345678", "12345678901234567890,"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
