//! `heapledger heap export`: a snapshot in the format of the other browser.

use std::path::Path;

use heapledger_census::convert::{Lost, WrittenFormat};
use serde::Serialize;

use super::snapshot;
use crate::args::{HeapExport, SnapshotFormat};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::count;
use crate::json::document::{Document, Form};
use crate::messages::warn;
use crate::new_file::NewFile;
use crate::output::Output;

/// The answer of `heap export --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapExportJson {
    /// The format of the file: `fxsnapshot` or `heapsnapshot`.
    format: &'static str,
    nodes: usize,
    /// The edges of the snapshot that was read.
    edges: usize,
    /// Everything that the format cannot hold.
    lost: Vec<LostJson>,
}

/// A kind of things that the format cannot hold.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LostJson {
    what: String,
    /// The number of nodes, edges, stacks or moments that it is about.
    count: u64,
}

impl Document for HeapExportJson {
    const SCHEMA: &'static str = "heap-export";
    const ROWS: Option<&'static str> = Some("lost");
}

pub(super) fn run(arguments: &HeapExport, out: &mut Output) -> Result<()> {
    let (format, name) = match arguments.to.or_else(|| of_name(&arguments.output)) {
        Some(SnapshotFormat::FxSnapshot) => (WrittenFormat::Firefox, "fxsnapshot"),
        Some(SnapshotFormat::HeapSnapshot) => (WrittenFormat::V8, "heapsnapshot"),
        None => {
            let what = format!("the name `{}` does not say in which format to write", arguments.output.display());
            return Err(
                Failure::new(Exit::Usage, what).hint("--to fxsnapshot for Firefox, --to heapsnapshot for Chrome")
            );
        }
    };
    if arguments.json && arguments.output == Path::new("-") {
        let what = "the snapshot and the JSON cannot both go to stdout";
        return Err(Failure::new(Exit::Usage, what).hint("-o FILE writes the snapshot to a file"));
    }
    let target = NewFile::create_private(&arguments.output, arguments.force, &[&arguments.file])?;
    let graph = snapshot::read(&arguments.file)?;
    let lost = format.lost(&graph);
    target.write(out.stream(), |out| format.write(&graph, out).map(drop))?;
    if arguments.json {
        let lost = lost.iter().map(|(what, count)| LostJson { what: what.to_string(), count: *count });
        let (nodes, edges) = (graph.node_count(), graph.edge_count());
        return out.document(&HeapExportJson { format: name, nodes, edges, lost: lost.collect() }, Form::Json);
    }
    if !lost.is_empty() {
        let lost: Vec<String> = lost.iter().map(said).collect();
        warn(Code::LostBySnapshot, format_args!("`.{name}` has no place for {}", lost.join("; ")));
    }
    Ok(())
}

/// Returns the format that a file's name ends in.
fn of_name(path: &Path) -> Option<SnapshotFormat> {
    match path.extension()?.to_str()? {
        "fxsnapshot" => Some(SnapshotFormat::FxSnapshot),
        "heapsnapshot" | "heaptimeline" => Some(SnapshotFormat::HeapSnapshot),
        _ => None,
    }
}

fn said((what, number): &(Lost, u64)) -> String {
    match what {
        // There is one at most.
        Lost::Time => what.to_string(),
        _ => format!("{what} ({})", count(*number)),
    }
}
