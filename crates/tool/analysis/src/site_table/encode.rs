//! The bytes in which the page of the viewer gets a tree of calls.

use serde::Serialize;

use super::call_columns::{CallColumns, ColumnName};
use crate::amount::Metric;
use crate::names::Names;

/// The first bytes, with the version of the format.
const MAGIC: &[u8; 8] = b"HLCOLS01";
/// The alignment of all arrays, in bytes, so that a page can use them in place.
const ALIGNMENT: usize = 8;

#[derive(Serialize)]
struct Head<'n> {
    unit: &'static str,
    metrics: Vec<&'static str>,
    total: &'n [u64],
    nodes: usize,
    cut: CutHead,
    names: Vec<NameHead<'n>>,
}

#[derive(Serialize)]
struct CutHead {
    nodes: u64,
    bytes: u64,
    figures: Vec<u64>,
}

#[derive(Default, Serialize)]
struct NameHead<'n> {
    function: &'n str,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'n str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    /// True for the calls that were cut.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    smaller: bool,
}

impl CallColumns {
    /// Returns the columns as bytes, little-endian:
    ///
    /// 1. `HLCOLS01`.
    /// 2. The length of the following JSON, in 4 bytes.
    /// 3. JSON: `unit` (`"bytes"`), `metrics` (`"bytes"`, `"blocks"`, `"temporaries"`, `"slop"`),
    ///    `total` (a figure for each metric), `nodes` (the number of rows), `cut` (`nodes`, `bytes`
    ///    and the `figures` for all metrics) and `names`. A name has a `function` and, if they are
    ///    known, the file name of its `module`, its source `file` and a `line`; the name of calls
    ///    that were cut has `"smaller":true`.
    /// 4. The depth and the index of the name of each row, as arrays of 4-byte numbers.
    /// 5. For each metric, an array with the own figure of each row, as 8-byte floating-point
    ///    numbers: exact below 2^53.
    ///
    /// Zeroes follow the JSON and each array, up to a multiple of 8 bytes from the beginning.
    /// `names` must be those that the table was loaded with.
    pub fn encode(&self, names: &Names<'_, '_>) -> Vec<u8> {
        let bytes = self.metrics.iter().position(|&metric| metric == Metric::Bytes);
        let head = Head {
            unit: "bytes",
            metrics: self.metrics.iter().map(|&metric| metric_name(metric)).collect(),
            total: &self.total,
            nodes: self.depths.len(),
            cut: CutHead {
                nodes: self.cut.nodes,
                bytes: bytes.and_then(|at| self.cut.figures.get(at)).copied().unwrap_or_default(),
                figures: self.cut.figures.clone(),
            },
            names: self.names.iter().map(|name| name_head(name, names)).collect(),
        };
        // Writing to memory fails for maps with keys that are not strings only.
        let json = serde_json::to_vec(&head).unwrap_or_default();
        let rows = self.depths.len() * (2 * size_of::<u32>() + self.own.len() * size_of::<f64>());
        let mut all = Vec::with_capacity(MAGIC.len() + 4 + json.len() + rows + 4 * ALIGNMENT);
        all.extend_from_slice(MAGIC);
        all.extend_from_slice(&(json.len() as u32).to_le_bytes());
        all.extend_from_slice(&json);
        align(&mut all);
        for column in [&self.depths, &self.names_of] {
            column.iter().for_each(|number| all.extend_from_slice(&number.to_le_bytes()));
            align(&mut all);
        }
        for column in &self.own {
            column.iter().for_each(|&figure| all.extend_from_slice(&(figure as f64).to_le_bytes()));
        }
        all
    }
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Bytes => "bytes",
        Metric::Blocks => "blocks",
        Metric::Temporaries => "temporaries",
        Metric::Slop => "slop",
    }
}

fn name_head<'n>(name: &'n ColumnName, names: &'n Names<'_, '_>) -> NameHead<'n> {
    let (function, location) = match name {
        ColumnName::Root => return NameHead { function: "(all)", ..NameHead::default() },
        ColumnName::Smaller => return NameHead { function: "(smaller)", smaller: true, ..NameHead::default() },
        ColumnName::Function(function, location) => (names.function(*function), location),
    };
    let path = names.module_path(function.module);
    let file = path.rsplit('/').next().filter(|file| !file.is_empty());
    NameHead {
        function: &function.short,
        module: file.map(str::to_owned),
        file: location.as_ref().map(|at| &*at.file),
        line: location.as_ref().map(|at| at.line).filter(|&line| line > 0),
        smaller: false,
    }
}
