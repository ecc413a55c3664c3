//! A call tree as columns: the bytes that the page reads without parsing each node.
//!
//! ```text
//! 8 bytes      "HLCOLS01"
//! 4 bytes      length of the JSON, little-endian
//! ...          JSON: unit, metrics, total, nodes, cut, names
//! ...          zeroes up to a multiple of 8
//! 4 × nodes    depth of each node, in preorder; then zeroes up to a multiple of 8
//! 4 × nodes    index of its name; then zeroes up to a multiple of 8
//! 8 × nodes    own amount as a 64-bit float, for each metric
//! ```
//!
//! The root is node 0, with depth 0 and name 0.

use std::fmt;

use serde::Serialize;

/// The first bytes: the format and its version.
const MAGIC: &[u8; 8] = b"HLCOLS01";

/// The largest amount that a float of 64 bits has exactly.
const EXACT_MAX: u64 = 1 << 53;

/// A call tree in preorder. Node 0 is the root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnTree {
    /// The unit of the first metric, by which siblings are ordered: `bytes`, or `blocks`.
    pub unit: &'static str,
    /// The distance of each node from the root.
    pub depth: Vec<u32>,
    /// The index in `names` of each node.
    pub name: Vec<u32>,
    /// The frames. The first one is the root's.
    pub names: Vec<ColumnFrame>,
    /// The amounts, one column for each metric.
    pub metrics: Vec<MetricColumn>,
    /// The number of nodes that were left out, and their amount in the unit.
    pub cut: (u64, u64),
}

/// One metric of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricColumn {
    /// The name of the metric.
    pub name: &'static str,
    /// The amount of the whole tree.
    pub total: u64,
    /// The amount of each node alone, without its children.
    pub own: Vec<u64>,
}

/// A frame: a function, with its place in the source if that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct ColumnFrame {
    /// The name of the function.
    pub function: String,
    /// The file name of its module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in the source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// The reason why a tree cannot be sent: the page could not read it.
#[derive(Debug)]
pub(crate) enum ColumnError {
    /// The columns have different lengths.
    Lengths,
    /// An amount is above 2^53.
    Inexact,
    /// The JSON takes 4 GiB or more, or cannot be written.
    Names,
}

impl fmt::Display for ColumnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ColumnError::Lengths => "its columns have different lengths",
            ColumnError::Inexact => "an amount is above 2^53",
            ColumnError::Names => "its names take more than 4 GiB",
        })
    }
}

#[derive(Serialize)]
struct Head<'t> {
    unit: &'static str,
    metrics: Vec<&'static str>,
    total: Vec<u64>,
    nodes: usize,
    cut: Cut,
    names: &'t [ColumnFrame],
}

#[derive(Serialize)]
struct Cut {
    nodes: u64,
    bytes: u64,
}

impl ColumnTree {
    /// Returns the bytes of the tree.
    ///
    /// # Errors
    ///
    /// See [`ColumnError`].
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, ColumnError> {
        let nodes = self.depth.len();
        if self.name.len() != nodes || self.metrics.iter().any(|metric| metric.own.len() != nodes) {
            return Err(ColumnError::Lengths);
        }
        if self.metrics.iter().any(|metric| metric.total > EXACT_MAX) {
            return Err(ColumnError::Inexact);
        }
        let head = Head {
            unit: self.unit,
            metrics: self.metrics.iter().map(|metric| metric.name).collect(),
            total: self.metrics.iter().map(|metric| metric.total).collect(),
            nodes,
            cut: Cut { nodes: self.cut.0, bytes: self.cut.1 },
            names: &self.names,
        };
        let head = serde_json::to_vec(&head).map_err(|_| ColumnError::Names)?;
        let length = u32::try_from(head.len()).map_err(|_| ColumnError::Names)?;
        let mut bytes = Vec::with_capacity(24 + head.len() + nodes * (8 + 8 * self.metrics.len()) + 16);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&head);
        pad(&mut bytes);
        for column in [&self.depth, &self.name] {
            column.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
            pad(&mut bytes);
        }
        for metric in &self.metrics {
            metric.own.iter().for_each(|&own| bytes.extend_from_slice(&(own as f64).to_le_bytes()));
        }
        Ok(bytes)
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

#[cfg(test)]
mod tests;
