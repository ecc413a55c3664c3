//! The file: dumps of several processes, in Chrome's JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Serialize, Serializer};

use super::allocators::Attribute;
use super::cut::Cut;
use super::guid::Guid;
use super::heap::Heap;
use super::kernel::{Region, Totals};
use super::names::{Names, Numbers, Used};
use super::process::{Kind, ProcessDump};
use crate::profile::Purge;

/// The format of heaps. A trace has only one: viewers look at the second only if there is no first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapFormat {
    /// `heaps`: the parts that matter, each with all that is below it. For viewers of all years.
    Entries(Cut),
    /// `heaps_v2`: every stack and type with its own amount. For viewers since the middle of 2017.
    Aggregated,
}

impl Default for HeapFormat {
    fn default() -> HeapFormat {
        HeapFormat::Entries(Cut::default())
    }
}

/// Writes a trace, dump by dump. What is kept of it meanwhile are the names of frames and types,
/// each once.
///
/// The names come last, so that [`Trace::finish`] has to be called.
///
/// ```
/// use heapledger_profile_formats::{Amount, chrome::*};
///
/// let mut dump = ProcessDump::new(4711, "server", 1_000, Level::Detailed);
/// dump.allocator("malloc").set_size(96);
/// let mut heap = Heap::default();
/// heap.add(["main"], Some("Node"), Amount { blocks: 2, bytes: 96 });
/// dump.add_heap("malloc", heap);
///
/// let mut trace = Trace::begin(Vec::new(), HeapFormat::default())?;
/// trace.dump(Guid(1), Kind::Explicit, &dump)?;
/// let file = String::from_utf8(trace.finish()?).unwrap();
/// assert!(file.contains(r#""heaps":{"malloc":{"entries":[{"bt":"","size":"60","count":"2"}"#));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Trace<W> {
    out: W,
    heaps: HeapFormat,
    numbers: Numbers,
    processes: BTreeMap<u32, Process>,
    is_first: bool,
}

/// A process of the trace.
#[derive(Debug, Default)]
struct Process {
    name: String,
    names: Names,
    /// The number of names that are in the file.
    written: Written,
}

/// The numbers of texts, stacks and types.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    texts: usize,
    stacks: usize,
    types: usize,
    has_unknown: bool,
}

impl<W: Write> Trace<W> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// The errors of `out`.
    pub fn begin(mut out: W, heaps: HeapFormat) -> io::Result<Trace<W>> {
        out.write_all(b"{\"traceEvents\":[")?;
        Ok(Trace { out, heaps, numbers: Numbers::default(), processes: BTreeMap::new(), is_first: true })
    }

    /// Writes the dump of a process. Dumps with the same number belong together, with one for each
    /// of several processes.
    ///
    /// # Errors
    ///
    /// The errors of `out`.
    pub fn dump(&mut self, guid: Guid, kind: Kind, dump: &ProcessDump) -> io::Result<()> {
        let process = self.processes.entry(dump.pid).or_default();
        process.name.clone_from(&dump.process);
        let (mut heaps, mut heaps_v2) = (None, None);
        if dump.heaps().next().is_some() {
            match self.heaps {
                HeapFormat::Entries(cut) => heaps = Some(entries(dump, cut, process, &mut self.numbers)),
                HeapFormat::Aggregated => heaps_v2 = Some(aggregated(dump, process, &mut self.numbers)),
            }
        }
        let mut allocators: BTreeMap<&str, Allocator<'_>> =
            dump.allocators().map(|allocator| (allocator.name.as_str(), Allocator::of(allocator))).collect();
        // A heap is shown beside an allocator with its name, or not at all.
        let sizes: Vec<_> = dump.heaps().map(|(name, heap)| (name, heap.total().bytes)).collect();
        for (name, bytes) in sizes {
            allocators.entry(name).or_insert_with(|| Allocator::placeholder(dump.pid, name, bytes));
        }
        let dumps = Dumps {
            level_of_detail: dump.level.name(),
            process_totals: dump.totals.as_ref().map(process_totals),
            process_mmaps: (!dump.regions.is_empty())
                .then(|| Mmaps { vm_regions: dump.regions.iter().map(VmRegion::of).collect() }),
            allocators,
            allocators_graph: dump
                .edges()
                .map(|edge| GraphEdge {
                    source: edge.source,
                    target: edge.target,
                    importance: edge.importance,
                    kind: "ownership",
                })
                .collect(),
            heaps,
            heaps_v2,
        };
        let event = Event {
            ph: "v",
            cat: "disabled-by-default-memory-infra",
            name: kind.name(),
            id: Some(format!("0x{guid}")),
            pid: dump.pid,
            tid: -1,
            ts: dump.time_us,
            args: MemoryDump { dumps },
        };
        self.event(&event)
    }

    /// Writes a value that changes over time, which is drawn as a graph.
    ///
    /// # Errors
    ///
    /// The errors of `out`.
    pub fn counter(&mut self, pid: u32, time_us: u64, name: &str, value: u64) -> io::Result<()> {
        let args = BTreeMap::from([("value", value)]);
        let (cat, id) = ("heapledger", None);
        self.event(&Event { ph: "C", cat, name, id, pid, tid: i64::from(pid), ts: time_us, args })
    }

    /// Writes a purge: a slice of the process's time.
    ///
    /// # Errors
    ///
    /// The errors of `out`.
    pub fn purge(&mut self, purge: &Purge, start_us: u64, duration_us: u64) -> io::Result<()> {
        #[derive(Serialize)]
        struct Slice<'p> {
            ph: &'static str,
            cat: &'static str,
            name: &'static str,
            pid: u32,
            tid: u32,
            ts: u64,
            dur: u64,
            args: Args<'p>,
        }
        #[derive(Serialize)]
        struct Args<'p> {
            arena: String,
            label: &'p str,
            reason: &'p str,
            pages: u64,
            calls: u64,
            chunks: u64,
        }
        let Purge { pid, arena, ref label, ref reason, pages, calls, chunks, .. } = *purge;
        let args = Args { arena: format!("{arena:#x}"), label, reason, pages, calls, chunks };
        let (ph, cat, name) = ("X", "heapledger", "purge");
        self.event(&Slice { ph, cat, name, pid, tid: pid, ts: start_us, dur: duration_us, args })
    }

    /// Writes the names, and ends the file.
    ///
    /// # Errors
    ///
    /// The errors of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        for (pid, process) in std::mem::take(&mut self.processes) {
            self.metadata(pid, "process_name", "name", &process.name)?;
            if matches!(self.heaps, HeapFormat::Aggregated) {
                continue;
            }
            let frame = |stack: &'_ super::names::NamedStack| StackFrame {
                name: stack.frame.to_string(),
                parent: (stack.outer != 0).then(|| stack.outer.to_string()),
            };
            let frames: BTreeMap<_, _> =
                process.names.stacks.iter().map(|stack| (stack.number, frame(stack))).collect();
            self.metadata(pid, "stackFrames", "stackFrames", &frames)?;
            let types = process.names.named_types.iter().map(|named| (named.number, &*named.name));
            let types: BTreeMap<_, _> = types.chain([(0, super::UNKNOWN_TYPE)]).collect();
            // Without them viewers ignore all heaps.
            self.metadata(pid, "typeNames", "typeNames", &types)?;
        }
        self.out.write_all(b"\n],\"displayTimeUnit\":\"ms\"}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn metadata(&mut self, pid: u32, name: &str, key: &str, value: impl Serialize) -> io::Result<()> {
        let args = BTreeMap::from([(key, value)]);
        self.event(&Event { ph: "M", cat: "__metadata", name, id: None, pid, tid: i64::from(pid), ts: 0, args })
    }

    fn event(&mut self, event: &impl Serialize) -> io::Result<()> {
        self.out.write_all(if std::mem::take(&mut self.is_first) { b"\n" } else { b",\n" })?;
        // The serializer of the other formats, so that what they share is compiled once.
        let out: &mut dyn Write = &mut self.out;
        serde_json::to_writer(out, event).map_err(io::Error::from)
    }
}

/// Returns the heaps of a dump, after the cut.
fn entries(dump: &ProcessDump, cut: Cut, process: &mut Process, numbers: &mut Numbers) -> BTreeMap<String, Entries> {
    let mut all = BTreeMap::new();
    for (allocator, heap) in dump.heaps() {
        let kept = heap.entries(cut);
        let mut used = Used::none_of(heap);
        kept.iter().for_each(|entry| used.add(heap, entry.stack, entry.of_type.unwrap_or(0)));
        let in_trace = process.names.of_heap(heap, numbers, &used);
        let mut entries: Vec<_> = kept
            .into_iter()
            .map(|entry| {
                let of_type = entry.of_type.map(|of_type| in_trace.types[of_type as usize]);
                ((in_trace.stacks[entry.stack as usize], of_type), entry.amount)
            })
            .collect();
        entries.sort_by_key(|(key, _)| *key);
        let entries = entries.into_iter().map(|((stack, of_type), amount)| HeapEntry {
            bt: if stack == 0 { String::new() } else { stack.to_string() },
            of_type: of_type.map(|of_type| of_type.to_string()),
            size: Hex(amount.bytes),
            count: Hex(amount.blocks),
        });
        all.insert(allocator.to_owned(), Entries { entries: entries.collect() });
    }
    all
}

/// Returns the heaps of a dump, and the names that are new.
fn aggregated(dump: &ProcessDump, process: &mut Process, numbers: &mut Numbers) -> HeapsV2 {
    let mut allocators = BTreeMap::new();
    for (allocator, heap) in dump.heaps() {
        let columns = Columns::of(heap, &mut process.names, numbers);
        allocators.insert(allocator.to_owned(), columns);
    }
    let unknown = process.names.unknown(numbers);
    let (names, written) = (&process.names, &mut process.written);
    let mut types: Vec<MapType> = Vec::new();
    if !std::mem::replace(&mut written.has_unknown, true) {
        types.push(MapType { id: 0, name_sid: unknown });
    }
    types.extend(
        names.named_types[written.types..].iter().map(|named| MapType { id: named.number, name_sid: named.text }),
    );
    let strings = names.texts_in_order[written.texts..].iter();
    let strings = strings.map(|(id, string)| MapString { id: *id, string: string.to_string() }).collect();
    let nodes = names.stacks[written.stacks..].iter();
    let nodes = nodes
        .map(|stack| MapNode {
            id: stack.number,
            name_sid: stack.text,
            parent: (stack.outer != 0).then_some(stack.outer),
        })
        .collect();
    (written.texts, written.stacks, written.types) =
        (names.texts_in_order.len(), names.stacks.len(), names.named_types.len());
    HeapsV2 { version: 1, allocators, maps: Maps { strings, nodes, types } }
}

/// A number in hexadecimal, without prefix.
#[derive(Clone, Copy, Debug)]
struct Hex(u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:x}", self.0))
    }
}

#[derive(Serialize)]
struct Event<'a, A> {
    ph: &'a str,
    cat: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    pid: u32,
    tid: i64,
    ts: u64,
    args: A,
}

#[derive(Serialize)]
struct MemoryDump<'a> {
    dumps: Dumps<'a>,
}

#[derive(Serialize)]
struct Dumps<'a> {
    level_of_detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_totals: Option<BTreeMap<&'a str, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_mmaps: Option<Mmaps<'a>>,
    allocators: BTreeMap<&'a str, Allocator<'a>>,
    allocators_graph: Vec<GraphEdge<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heaps: Option<BTreeMap<String, Entries>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heaps_v2: Option<HeapsV2>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Bytes(Hex),
    Is(bool),
}

/// Returns the totals under the names that viewers know.
fn process_totals(totals: &Totals) -> BTreeMap<&'static str, Value> {
    let mut values = BTreeMap::from([("resident_set_bytes", Value::Bytes(Hex(totals.resident)))]);
    if let Some(most) = totals.resident_max {
        values.insert("peak_resident_set_bytes", Value::Bytes(Hex(most)));
        values.insert("is_peak_rss_resetable", Value::Is(totals.is_resident_max_resettable));
    }
    if let Some(bytes) = totals.private_footprint {
        values.insert("private_footprint_bytes", Value::Bytes(Hex(bytes)));
    }
    values
}

#[derive(Serialize)]
struct Mmaps<'a> {
    vm_regions: Vec<VmRegion<'a>>,
}

#[derive(Serialize)]
struct VmRegion<'a> {
    sa: Hex,
    sz: Hex,
    pf: u8,
    mf: &'a str,
    bs: ByteStats,
}

#[derive(Serialize)]
struct ByteStats {
    pss: Hex,
    pd: Hex,
    pc: Hex,
    sd: Hex,
    sc: Hex,
    sw: Hex,
}

impl VmRegion<'_> {
    fn of(region: &Region) -> VmRegion<'_> {
        VmRegion {
            sa: Hex(region.start),
            sz: Hex(region.bytes),
            pf: region.protection,
            mf: &region.file,
            bs: ByteStats {
                pss: Hex(region.bytes_proportional),
                pd: Hex(region.bytes_private_dirty),
                pc: Hex(region.bytes_private_clean),
                sd: Hex(region.bytes_shared_dirty),
                sc: Hex(region.bytes_shared_clean),
                sw: Hex(region.bytes_swapped),
            },
        }
    }
}

#[derive(Serialize)]
struct Allocator<'a> {
    #[serde(serialize_with = "as_text")]
    guid: Guid,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u32>,
    /// Viewers warn if there are none.
    attrs: BTreeMap<&'a str, Attr<'a>>,
}

#[derive(Serialize)]
struct Attr<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    units: &'a str,
    value: std::borrow::Cow<'a, str>,
}

impl<'a> Allocator<'a> {
    fn of(dump: &'a super::AllocatorDump) -> Allocator<'a> {
        let attr = |attribute: &'a Attribute| match attribute {
            Attribute::Scalar { units, value } => Attr { kind: "scalar", units, value: format!("{value:x}").into() },
            Attribute::Text(text) => Attr { kind: "string", units: "", value: text.as_str().into() },
        };
        Allocator {
            guid: dump.guid,
            flags: (dump.flags != 0).then_some(dump.flags),
            attrs: dump.attributes.iter().map(|(name, attribute)| (name.as_str(), attr(attribute))).collect(),
        }
    }

    /// Returns an allocator dump for a heap without one.
    fn placeholder(pid: u32, name: &str, bytes: u64) -> Allocator<'a> {
        let size = Attr { kind: "scalar", units: "bytes", value: format!("{bytes:x}").into() };
        Allocator { guid: Guid::of_name(pid, name), flags: None, attrs: BTreeMap::from([("size", size)]) }
    }
}

#[derive(Serialize)]
struct GraphEdge<'a> {
    #[serde(serialize_with = "as_text")]
    source: Guid,
    #[serde(serialize_with = "as_text")]
    target: Guid,
    importance: i32,
    #[serde(rename = "type")]
    kind: &'a str,
}

fn as_text<S: Serializer>(guid: &Guid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(guid)
}

#[derive(Serialize)]
struct StackFrame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
}

#[derive(Serialize)]
struct Entries {
    entries: Vec<HeapEntry>,
}

#[derive(Serialize)]
struct HeapEntry {
    bt: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    of_type: Option<String>,
    size: Hex,
    count: Hex,
}

#[derive(Serialize)]
struct HeapsV2 {
    version: u32,
    allocators: BTreeMap<String, Columns>,
    maps: Maps,
}

/// The own amounts of stacks and types: one pair of a stack and a type at each index.
#[derive(Serialize)]
struct Columns {
    nodes: Vec<u64>,
    types: Vec<u64>,
    counts: Vec<u64>,
    sizes: Vec<u64>,
}

impl Columns {
    fn of(heap: &Heap, names: &mut Names, numbers: &mut Numbers) -> Columns {
        let mut used = Used::none_of(heap);
        heap.cells().iter().for_each(|cell| used.add(heap, cell.stack, cell.of_type));
        let in_trace = names.of_heap(heap, numbers, &used);
        let cells = heap.cells();
        // There is no stack 0 here: blocks without a frame get a stack.
        let nowhere = if cells.iter().any(|cell| cell.stack == 0) { names.nowhere(numbers) } else { 0 };
        let stack = |number: u32| if number == 0 { nowhere } else { in_trace.stacks[number as usize] };
        Columns {
            nodes: cells.iter().map(|cell| stack(cell.stack)).collect(),
            types: cells.iter().map(|cell| in_trace.types[cell.of_type as usize]).collect(),
            counts: cells.iter().map(|cell| cell.blocks).collect(),
            sizes: cells.iter().map(|cell| cell.bytes).collect(),
        }
    }
}

#[derive(Serialize)]
struct Maps {
    strings: Vec<MapString>,
    nodes: Vec<MapNode>,
    types: Vec<MapType>,
}

#[derive(Serialize)]
struct MapString {
    id: u64,
    string: String,
}

#[derive(Serialize)]
struct MapNode {
    id: u64,
    name_sid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u64>,
}

#[derive(Serialize)]
struct MapType {
    id: u64,
    name_sid: u64,
}
