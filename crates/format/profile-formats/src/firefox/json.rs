//! The file: tables as columns.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::json;

use super::{Row, command};
use crate::profile::{Frame, Location, Point, Process, Profile, Purge};

/// The version of the format: readers upgrade older files.
const VERSION: u32 = 61;
/// The version of Gecko's own format that a file of this version would be converted from.
const GECKO_VERSION: u32 = 31;
/// The name and the type of markers of purges, as Firefox's own profiles have them.
const PURGE: &str = "PurgeArena";
/// The type of resources: libraries.
const LIBRARY: u32 = 1;

pub(super) fn write(
    profile: &Profile,
    processes: &[Process],
    tables: &Tables,
    rows: &[Vec<Row>],
    out: &mut dyn Write,
) -> io::Result<()> {
    let libs: Vec<_> = profile.modules.iter().map(|module| lib(&module.path, &module.build_id)).collect();
    let threads = processes.iter().zip(rows).map(|(process, rows)| {
        let times = (milliseconds(process.start_ns), process.end_ns.map(milliseconds));
        Thread {
            name: &process.name,
            is_main_thread: true,
            process_name: &process.name,
            process_type: "default",
            process_startup_time: times.0,
            process_shutdown_time: times.1,
            register_time: times.0,
            unregister_time: times.1,
            paused_ranges: [],
            pid: process.pid.to_string(),
            tid: process.pid,
            samples: json!({ "stack": [], "time": [], "weight": null, "weightType": "samples", "length": 0 }),
            markers: markers(profile, process.pid, tables),
            native_allocations: Allocations {
                time: Column(rows, |row| milliseconds(row.time_ns)),
                weight: Column(rows, |row| row.bytes),
                weight_type: "bytes",
                stack: Stacks { rows, samples: &tables.samples },
                memory_address: Column(rows, |row| row.address),
                thread_id: Column(rows, |row| row.thread),
                length: rows.len(),
            },
        }
    });
    let threads = threads.collect();
    let counters = processes.iter().enumerate().filter(|(_, process)| !process.timeline.is_empty());
    let counters = counters.map(|(at, process)| counter(&process.pid.to_string(), at, &process.timeline)).collect();
    let file = File {
        meta: json!({
            "interval": 1,
            "startTime": profile.start_unix_ns as f64 / 1e6,
            "processType": 0,
            "product": command(profile),
            "arguments": command(profile),
            "importedFrom": "Heapledger",
            "extra": [{
                "label": "Recording",
                "entries": profile.comments.iter().map(|comment| json!({ "label": "", "format": "string", "value": comment })).collect::<Vec<_>>(),
            }],
            "stackwalk": 1,
            "version": GECKO_VERSION,
            "preprocessedProfileVersion": VERSION,
            "symbolicated": true,
            "symbolicationNotSupported": true,
            "usesOnlyOneStackType": true,
            "sourceCodeIsNotOnSearchfox": true,
            "keepProfileThreadOrder": true,
            "categories": [{ "name": "Other", "color": "grey", "subcategories": ["Other"] }],
            "markerSchema": if profile.purges.is_empty() { json!([]) } else { json!([purge_schema()]) },
        }),
        libs,
        shared: tables,
        threads,
        counters,
    };
    serde_json::to_writer(out, &file)?;
    Ok(())
}

/// Returns the markers of a process: its purges, as intervals.
fn markers(profile: &Profile, pid: u32, tables: &Tables) -> serde_json::Value {
    const INTERVAL: u32 = 1;
    let purges: Vec<&Purge> = profile.purges.iter().filter(|purge| purge.pid == pid).collect();
    let data = |purge: &&Purge| {
        json!({
            "type": PURGE,
            "arena": format!("{:#x}", purge.arena),
            "label": purge.label,
            "caller": purge.reason,
            "pages": purge.pages,
            "syscalls": purge.calls,
            "chunks": purge.chunks,
        })
    };
    let name = tables.purge_name.unwrap_or(0);
    json!({
        "data": purges.iter().map(data).collect::<Vec<_>>(),
        "name": vec![name; purges.len()],
        "startTime": purges.iter().map(|purge| milliseconds(purge.start_ns)).collect::<Vec<_>>(),
        "endTime": purges.iter().map(|purge| milliseconds(purge.end_ns)).collect::<Vec<_>>(),
        "phase": vec![INTERVAL; purges.len()],
        "category": vec![0; purges.len()],
        "length": purges.len(),
    })
}

/// Returns the description of the markers, by which the profiler shows them.
fn purge_schema() -> serde_json::Value {
    let field = |key: &str, label: &str, format: &str| json!({ "key": key, "label": label, "format": format });
    json!({
        "name": PURGE,
        "display": ["marker-chart", "marker-table", "timeline-memory"],
        "tooltipLabel": "Purge of {marker.data.label}",
        "tableLabel": "{marker.data.label}: {marker.data.pages} pages, {marker.data.caller}",
        "fields": [
            field("arena", "Arena", "string"),
            field("label", "Label", "string"),
            field("caller", "Caller", "string"),
            field("pages", "Pages", "integer"),
            field("syscalls", "System calls", "integer"),
            field("chunks", "Chunks", "integer"),
        ],
    })
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn lib(path: &str, build_id: &str) -> serde_json::Value {
    let name = path.rsplit('/').next().unwrap_or_default();
    json!({
        "arch": "",
        "name": name,
        "path": path,
        "debugName": name,
        "debugPath": path,
        "breakpadId": breakpad_id(build_id),
        "codeId": if build_id.is_empty() { None } else { Some(build_id) },
    })
}

/// Returns the first 16 bytes of a build id as a GUID, which has its first three parts in the other
/// byte order, and an age of 0.
fn breakpad_id(build_id: &str) -> String {
    let mut bytes: Vec<&str> =
        build_id.as_bytes().chunks(2).filter_map(|byte| str::from_utf8(byte).ok()).take(16).collect();
    bytes.resize(16, "00");
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let guid: String = order.map(|at| bytes[at]).concat();
    format!("{}0", guid.to_uppercase())
}

/// Returns the live bytes over time, as changes.
fn counter(pid: &str, thread: usize, timeline: &[Point]) -> serde_json::Value {
    let mut before = 0;
    let changes: Vec<i64> = timeline
        .iter()
        .map(|point| {
            let now = i64::try_from(point.live.bytes).unwrap_or(i64::MAX);
            now - std::mem::replace(&mut before, now)
        })
        .collect();
    let times: Vec<f64> = timeline.iter().map(|point| milliseconds(point.time_ns)).collect();
    json!({
        "name": "malloc",
        "category": "Memory",
        "description": "Live bytes",
        "pid": pid,
        "mainThreadIndex": thread,
        "samples": { "time": times, "count": changes, "length": timeline.len() },
    })
}

#[derive(Serialize)]
struct File<'p> {
    meta: serde_json::Value,
    libs: Vec<serde_json::Value>,
    shared: &'p Tables,
    threads: Vec<Thread<'p>>,
    counters: Vec<serde_json::Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Thread<'p> {
    name: &'p str,
    is_main_thread: bool,
    process_name: &'p str,
    process_type: &'static str,
    process_startup_time: f64,
    process_shutdown_time: Option<f64>,
    register_time: f64,
    unregister_time: Option<f64>,
    paused_ranges: [(); 0],
    pid: String,
    tid: u32,
    samples: serde_json::Value,
    markers: serde_json::Value,
    native_allocations: Allocations<'p>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Allocations<'p> {
    time: Column<'p, f64>,
    weight: Column<'p, i64>,
    weight_type: &'static str,
    stack: Stacks<'p>,
    memory_address: Column<'p, u64>,
    thread_id: Column<'p, u32>,
    length: usize,
}

/// One field of each row.
struct Column<'p, T>(&'p [Row], fn(&Row) -> T);

impl<T: Serialize> Serialize for Column<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(self.1))
    }
}

/// The stack that allocated in each row; the stacks of frees are not known.
struct Stacks<'p> {
    rows: &'p [Row],
    samples: &'p [Option<usize>],
}

impl Serialize for Stacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stack = |row: &Row| self.samples.get(row.sample).copied().flatten().filter(|_| row.bytes >= 0);
        serializer.collect_seq(self.rows.iter().map(stack))
    }
}

/// Stacks and their parts, for all threads.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tables {
    string_array: Vec<String>,
    sources: Sources,
    stack_table: StackTable,
    frame_table: FrameTable,
    func_table: FuncTable,
    resource_table: ResourceTable,
    native_symbols: NativeSymbols,
    /// The stack of each sample, if it has any.
    #[serde(skip)]
    samples: Vec<Option<usize>>,
    /// The index of the name of purges, if there are any.
    #[serde(skip)]
    purge_name: Option<usize>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sources {
    length: usize,
    id: Vec<Option<String>>,
    filename: Vec<usize>,
    start_line: Vec<u32>,
    start_column: Vec<u32>,
    #[serde(rename = "sourceMapURL")]
    source_map_url: Vec<Option<usize>>,
}

#[derive(Debug, Default, Serialize)]
struct StackTable {
    length: usize,
    frame: Vec<usize>,
    prefix: Vec<Option<usize>>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FrameTable {
    length: usize,
    address: Vec<i64>,
    inline_depth: Vec<usize>,
    category: Vec<Option<u32>>,
    subcategory: Vec<Option<u32>>,
    func: Vec<usize>,
    native_symbol: Vec<Option<usize>>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<Option<u32>>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FuncTable {
    length: usize,
    name: Vec<usize>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    /// -1: none.
    resource: Vec<i64>,
    source: Vec<Option<usize>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
}

#[derive(Debug, Default, Serialize)]
struct ResourceTable {
    length: usize,
    lib: Vec<Option<usize>>,
    name: Vec<usize>,
    host: Vec<Option<usize>>,
    #[serde(rename = "type")]
    kind: Vec<u32>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NativeSymbols {
    length: usize,
    lib_index: Vec<usize>,
    address: Vec<u64>,
    name: Vec<usize>,
    function_size: Vec<Option<u64>>,
}

impl Tables {
    pub(super) fn new(profile: &Profile) -> Tables {
        let mut builder = Builder::default();
        for module in &profile.modules {
            let name = builder.string(module.path.rsplit('/').next().unwrap_or_default());
            let resources = &mut builder.tables.resource_table;
            resources.lib.push(Some(resources.length));
            resources.name.push(name);
            resources.host.push(None);
            resources.kind.push(LIBRARY);
            resources.length += 1;
        }
        for sample in &profile.samples {
            let mut stack = None;
            for &at in sample.locations.iter().rev() {
                let Some(location) = profile.locations.get(at) else { continue };
                for inlined in (0..location.frames.len().max(1)).rev() {
                    stack = Some(builder.stack(profile, stack, (at, inlined), location));
                }
            }
            builder.tables.samples.push(stack);
        }
        if !profile.purges.is_empty() {
            builder.tables.purge_name = Some(builder.string(PURGE));
        }
        builder.tables
    }
}

/// The tables, and the indices of what is in them already.
#[derive(Default)]
struct Builder {
    tables: Tables,
    strings: HashMap<String, usize>,
    sources: HashMap<usize, usize>,
    stacks: HashMap<(Option<usize>, usize), usize>,
    /// By location, and index of the function in it.
    frames: HashMap<(usize, usize), usize>,
    functions: HashMap<(usize, Option<usize>, Option<usize>), usize>,
}

impl Builder {
    fn stack(&mut self, profile: &Profile, outside: Option<usize>, at: (usize, usize), location: &Location) -> usize {
        let frame = self.frame(profile, at, location);
        let table = &mut self.tables.stack_table;
        *self.stacks.entry((outside, frame)).or_insert_with(|| {
            table.frame.push(frame);
            table.prefix.push(outside);
            table.length += 1;
            table.length - 1
        })
    }

    fn frame(&mut self, profile: &Profile, at: (usize, usize), location: &Location) -> usize {
        if let Some(&known) = self.frames.get(&at) {
            return known;
        }
        let frame = location.frames.get(at.1);
        let func = self.function(profile, location, frame);
        let module = location.module.and_then(|module| profile.modules.get(module));
        // Relative to the library: addresses in it are file offsets.
        let address = module.map_or(location.address, |module| {
            location.address.saturating_sub(module.start).saturating_add(module.file_offset)
        });
        let table = &mut self.tables.frame_table;
        table.address.push(if location.address == 0 { -1 } else { i64::try_from(address).unwrap_or(-1) });
        table.inline_depth.push(location.frames.len().saturating_sub(at.1 + 1));
        table.category.push(Some(0));
        table.subcategory.push(Some(0));
        table.func.push(func);
        table.native_symbol.push(None);
        table.inner_window_id.push(None);
        table.line.push(frame.map(|frame| frame.line).filter(|&line| line > 0));
        table.column.push(None);
        table.length += 1;
        self.frames.insert(at, table.length - 1);
        table.length - 1
    }

    fn function(&mut self, profile: &Profile, location: &Location, frame: Option<&Frame>) -> usize {
        let name = match frame {
            Some(frame) if !frame.full_name.is_empty() => self.string(&frame.full_name),
            _ => self.string(&format!("{:#x}", location.address)),
        };
        let file = frame.map_or("", |frame| &frame.file);
        let source = (!file.is_empty()).then(|| self.source(file));
        let resource = location.module.filter(|&module| module < profile.modules.len());
        let table = &mut self.tables.func_table;
        *self.functions.entry((name, source, resource)).or_insert_with(|| {
            table.name.push(name);
            table.is_js.push(false);
            table.relevant_for_js.push(false);
            table.resource.push(resource.map_or(-1, |at| at as i64));
            table.source.push(source);
            table.line_number.push(None);
            table.column_number.push(None);
            table.length += 1;
            table.length - 1
        })
    }

    fn source(&mut self, file: &str) -> usize {
        let name = self.string(file);
        let table = &mut self.tables.sources;
        *self.sources.entry(name).or_insert_with(|| {
            table.id.push(None);
            table.filename.push(name);
            table.start_line.push(1);
            table.start_column.push(1);
            table.source_map_url.push(None);
            table.length += 1;
            table.length - 1
        })
    }

    fn string(&mut self, text: &str) -> usize {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        self.tables.string_array.push(text.to_owned());
        self.strings.insert(text.to_owned(), self.tables.string_array.len() - 1);
        self.tables.string_array.len() - 1
    }
}
