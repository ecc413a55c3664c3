//! The document of a replay, as it was saved: `heapledger replay --json -o FILE`.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use heapledger_analysis::ReplayedAllocator;
use heapledger_core::Bytes;
use heapledger_recording::Recording;
use serde::Deserialize;

use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::text::{quoted, shown};

/// The longest file that is read, in bytes. A process with five allocators has 2 MiB.
const LENGTH_MAX: u64 = 4 << 30;

/// The parts of the document that are used.
#[derive(Debug, Deserialize)]
struct Saved {
    schema: String,
    process: Option<u64>,
    #[serde(default)]
    processes: Vec<SavedProcess>,
    rows: Vec<SavedRow>,
}

#[derive(Debug, Deserialize)]
struct SavedProcess {
    process: u64,
}

#[derive(Debug, Deserialize)]
struct SavedRow {
    allocator: String,
    cpu_ns: u64,
    bytes_resident_max: u64,
    failed: u64,
}

/// Reads a replay of the processes of a recording. Returns its allocators, without those that left
/// requests unanswered.
pub(crate) fn read(path: &Path, recording: &Recording<'_>) -> Result<Vec<ReplayedAllocator>> {
    let file = File::open(path).map_err(|error| {
        Failure::caused(Exit::Unreadable, format_args!("cannot read `{}`", shown(path)), error)
            .hint("make the file first: heapledger replay FILE.hl --json -o RESULT.json")
    })?;
    let refuse = |why: String| {
        let word = quoted(&path.to_string_lossy());
        Failure::new(Exit::Unreadable, format_args!("`{}` is not a replay of this recording: {why}", shown(path)))
            .code(Code::OtherReplay)
            .hint(format_args!("replay the recording again: heapledger replay FILE.hl --json --force -o {word}"))
    };
    let saved: Saved = serde_json::from_reader(BufReader::new(file.take(LENGTH_MAX)))
        .map_err(|error| refuse(format!("it is not the JSON of `heapledger replay` ({error})")))?;
    if saved.schema != "heapledger/replay" {
        return Err(refuse(format!("its schema is `{}`", saved.schema.escape_debug())));
    }
    let processes = saved.process.into_iter().chain(saved.processes.iter().map(|process| process.process));
    let is_there = |process: &u64| recording.images().iter().any(|start| u64::from(start.pid) == *process);
    for process in processes {
        if !is_there(&process) {
            return Err(refuse(format!("the recording has no process {process}")));
        }
    }
    let answered = saved.rows.into_iter().filter(|row| row.failed == 0);
    let allocator = |row: SavedRow| ReplayedAllocator {
        name: row.allocator,
        resident_max: Bytes(row.bytes_resident_max),
        cpu_ns: row.cpu_ns,
    };
    Ok(answered.map(allocator).collect())
}
