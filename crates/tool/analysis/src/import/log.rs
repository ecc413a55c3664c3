//! Imports logs of allocator calls, as logalloc and `heapledger log record` write them.

use std::collections::HashMap;
use std::io::Write;

use heapledger_alloc_log::{BlockMap, Fields, Line, LineError, LineParser, Pointer, Request};
use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{
    Annotation, AnnotationsEncoder, Event, EventKind, EventsEncoder, Extras, Footer, FreedBlock, ImageEnd,
    ImageEndReason, ImageId, ImageStart, Live, ModuleId, Node, NodeKind, Record, Sampled, Session, Text, TextId,
    Thread, Time,
};

use crate::rewrite::{Draft, Error};
use crate::statistics_points::{STATISTICS, StatisticsPoint};

/// The time between two lines of a log without times, in nanoseconds: the recording counts lines.
pub const LOG_CALL_NS: u64 = 1000;

/// The most processes of a log: each has an encoder, some KiB.
const PROCESSES_MAX: usize = 16_384;
/// The most arenas of a log, by their labels.
const ARENAS_MAX: usize = 65_536;
/// The most bytes of an arena's label. Written as the field of a line, each may become three, and a
/// line has at most 4,096.
const LABEL_BYTES_MAX: usize = 1024;
/// The events that are kept before those of all processes are written. In tests few, so that short
/// logs have more.
const PENDING_MAX: usize = if cfg!(test) { 64 } else { 1 << 20 };
/// With more processes than this, an encoder gives its memory back after each chunk: up to some MiB
/// that a process which allocates no more would keep.
const ENCODERS_KEPT: usize = if cfg!(test) { 1 } else { 8 };

/// A recording of the calls of a log that is being written.
///
/// Processes, threads, functions, sizes, alignments and results are those of the log; statistics
/// points become annotations, arenas heaps. There are no stacks: each event has the root as its
/// stack, or the heap of its arena. Without times, line *n* is at *n* × [`LOG_CALL_NS`].
///
/// Memory is in proportion to the blocks that are live at once, some 80 bytes each, and to the
/// processes and threads, some KiB each. The encoders of all processes together have the memory of
/// some 2 million events at most.
#[derive(Debug)]
pub struct ImportedLog<'d, W> {
    draft: &'d mut Draft<W>,
    parser: LineParser,
    /// The images of the processes, by their numbers in the log.
    numbers: HashMap<u64, usize>,
    processes: Vec<Process>,
    /// The number in the log of the process of the latest line, and its place among the processes.
    latest: Option<(u64, usize)>,
    /// The labels of arenas; the id of the text is the index plus 1.
    labels: HashMap<Vec<u8>, TextId>,
    pending: usize,
    time: Time,
    facts: LogFacts,
}

/// The contents of a log, and what a recording cannot have of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFacts {
    /// The lines.
    pub lines: u64,
    /// The lines that are calls.
    pub calls: u64,
    /// The points at which statistics were asked for; they are among the calls.
    pub statistics: u64,
    /// True if lines have times.
    pub has_times: bool,
    /// The allocations of blocks that were live: the log lacks their frees. Each counts as freed
    /// then.
    pub frees_missed: u64,
}

/// The reason why a line cannot be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogLineError {
    /// It is no call.
    #[error(transparent)]
    Line(#[from] LineError),
    /// A recording cannot have it.
    #[error("{0}")]
    Unwritable(&'static str),
    /// The recording cannot be written.
    #[error(transparent)]
    Write(#[from] Error),
}

/// The state of a process so far.
#[derive(Debug)]
struct Process {
    image: ImageId,
    pid: u32,
    encoder: EventsEncoder,
    /// The resolution of the times of the encoder; 0 before the first line.
    tick_ns: u32,
    annotations: Option<AnnotationsEncoder>,
    /// The serial and the size of each live block.
    live: BlockMap<(Serial, u64)>,
    live_sum: Live,
    threads: HashMap<u64, ThreadId>,
    /// The thread of the latest line, with its number in the log.
    latest: Option<(u64, ThreadId)>,
    starts: Vec<Time>,
    /// The heap nodes of the arenas, by the texts of their labels.
    arenas: HashMap<TextId, StackId>,
    first: Time,
    last: Time,
    /// The rows since the latest allocation.
    rows_since: u64,
}

impl<'d, W: Write> ImportedLog<'d, W> {
    /// Begins a recording in which nothing has happened yet.
    pub fn new(draft: &'d mut Draft<W>) -> ImportedLog<'d, W> {
        ImportedLog {
            draft,
            parser: LineParser::default(),
            numbers: HashMap::new(),
            processes: Vec::new(),
            latest: None,
            labels: HashMap::new(),
            pending: 0,
            time: Time(0),
            facts: LogFacts::default(),
        }
    }

    /// Adds the next line, without its end. Blank lines are nothing. After an error in the line
    /// itself, the next one can be added.
    ///
    /// # Errors
    ///
    /// Fails if the line is no call, if a recording cannot have it, or if writing fails.
    pub fn add(&mut self, line: &[u8]) -> Result<(), LogLineError> {
        self.facts.lines += 1;
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let (line, fields) = self.parser.parse_with_fields(line)?;
        let label = fields.arena_label().filter(|label| !label.is_empty());
        if label.as_ref().is_some_and(|label| label.len() > LABEL_BYTES_MAX) {
            return Err(LogLineError::Unwritable("the label of an arena has more than 1,024 bytes"));
        }
        let at = self.process(line.process)?;
        let stack = match label {
            Some(label) => self.arena(at, &label)?,
            None => StackId::ROOT,
        };
        self.facts.has_times |= fields.time_ns.is_some();
        let time = fields.time_ns.unwrap_or(if self.facts.has_times { 0 } else { self.facts.lines * LOG_CALL_NS });
        let process = &mut self.processes[at];
        if process.threads.is_empty() {
            process.first = Time(time);
        }
        let tick_ns = if self.facts.has_times { 1 } else { LOG_CALL_NS as u32 };
        if process.tick_ns != tick_ns {
            // Only now is it known whether the log has times; its first lines may have none.
            self.pending -= process.encoder.len();
            flush(self.draft, &mut process.encoder)?;
            process.tick_ns = tick_ns;
            process.renew_encoder();
        }
        process.last = process.last.max(Time(time));
        self.time = self.time.max(process.last);
        self.facts.calls += 1;
        if matches!(line.request, Request::Free { block } if block.is_null()) {
            // Does nothing, and is no event.
            return Ok(());
        }
        let thread = process.thread(line.thread);
        if line.request == Request::JemallocStats {
            self.facts.statistics += 1;
            process.statistics(thread).map_err(Error::from)?;
            let encoder = process.annotations.as_mut().filter(|encoder| encoder.is_full());
            return match encoder {
                Some(encoder) => Ok(self.draft.put(|compressor| Ok(encoder.finish(compressor)))?),
                None => Ok(()),
            };
        }
        let before = process.encoder.len();
        self.facts.frees_missed += u64::from(process.call(&line, &fields, thread, stack).map_err(Error::from)?);
        self.pending += process.encoder.len() - before;
        // A call is two rows at most.
        if process.encoder.is_full() || process.encoder.len() + 2 > heapledger_recording::CHUNK_ROWS_MAX {
            self.pending -= process.encoder.len();
            flush(self.draft, &mut process.encoder)?;
            if self.numbers.len() > ENCODERS_KEPT {
                process.renew_encoder();
            }
        }
        if self.pending >= PENDING_MAX {
            self.pending = 0;
            for process in &mut self.processes {
                flush(self.draft, &mut process.encoder)?;
                process.renew_encoder();
            }
        }
        Ok(())
    }

    /// Returns what the log has had so far.
    pub fn facts(&self) -> LogFacts {
        self.facts
    }

    /// Adds processes, threads and arenas. The recording must then be
    /// [counted](Draft::count_and_finish), with the footer that is returned.
    ///
    /// # Errors
    ///
    /// Fails if writing the recording fails.
    pub fn finish(mut self, source: &str) -> Result<(Footer, LogFacts), Error> {
        let mut records = vec![Record::Session(Session {
            tool_version: env!("CARGO_PKG_VERSION").into(),
            options: format!("imported from {source}"),
            ..Session::default()
        })];
        let mut all_nodes = Vec::new();
        for process in &mut self.processes {
            flush(self.draft, &mut process.encoder)?;
            if let Some(encoder) = &mut process.annotations {
                self.draft.put(|compressor| Ok(encoder.finish(compressor)))?;
            }
            let image = process.image;
            records.push(Record::ImageStart(ImageStart {
                image,
                pid: process.pid,
                time: process.first,
                executable: format!("process {}", process.pid).into_bytes(),
                ..ImageStart::default()
            }));
            records.extend(process.threads.iter().map(|(&number, &thread)| {
                // The value of `pthread_self` is an address: it is the name, since no kernel's id
                // is so large.
                let tid = u32::try_from(number).unwrap_or(0);
                let name = if tid == 0 { number.to_string().into_bytes() } else { Vec::new() };
                let start = process.starts[thread.0 as usize];
                Record::Thread(Thread { image, thread, tid, name, start, end: None })
            }));
            let end = ImageEnd { image, time: process.last, reason: ImageEndReason::Unknown, exit: None };
            records.push(Record::ImageEnd(end));
            let node = |(&text, &id): (&TextId, &StackId)| Node {
                id,
                parent: StackId::ROOT,
                kind: NodeKind::Heap,
                module: ModuleId::UNKNOWN,
                offset: text.0.into(),
                is_unproven: false,
            };
            let mut nodes: Vec<Node> = process.arenas.iter().map(node).collect();
            nodes.sort_unstable_by_key(|node| node.id);
            all_nodes.push((image, nodes));
        }
        let text = |(bytes, text)| Record::Text(Text { text, bytes, ..Text::default() });
        records.extend(self.labels.into_iter().map(text));
        self.draft.records(&records)?;
        for (image, nodes) in all_nodes {
            self.draft.nodes(image, nodes)?;
        }
        Ok((Footer { time: self.time, complete: true, ..Footer::default() }, self.facts))
    }

    /// Returns the place of a process among the processes.
    fn process(&mut self, number: u64) -> Result<usize, LogLineError> {
        if let Some((_, at)) = self.latest.filter(|(latest, _)| *latest == number) {
            return Ok(at);
        }
        let at = match self.numbers.get(&number) {
            Some(&at) => at,
            None => {
                let at = self.processes.len();
                if at == PROCESSES_MAX {
                    return Err(LogLineError::Unwritable("the log has more than 16,384 processes"));
                }
                let pid = u32::try_from(number)
                    .map_err(|_| LogLineError::Unwritable("no process has a number of more than 32 bits"))?;
                self.processes.push(Process::new(ImageId(at as u32 + 1), pid));
                self.numbers.insert(number, at);
                at
            }
        };
        self.latest = Some((number, at));
        Ok(at)
    }

    /// Returns the node of an arena in a process.
    fn arena(&mut self, process: usize, label: &[u8]) -> Result<StackId, LogLineError> {
        let text = match self.labels.get(label) {
            Some(&text) => text,
            None if self.labels.len() == ARENAS_MAX => {
                return Err(LogLineError::Unwritable("the log has more than 65,536 labels of arenas"));
            }
            None => {
                let text = TextId(self.labels.len() as u32 + 1);
                self.labels.insert(label.to_vec(), text);
                text
            }
        };
        let arenas = &mut self.processes[process].arenas;
        let next = StackId(arenas.len() as u32 + 1);
        Ok(*arenas.entry(text).or_insert(next))
    }
}

impl Process {
    fn new(image: ImageId, pid: u32) -> Process {
        Process {
            image,
            pid,
            encoder: EventsEncoder::new(image),
            tick_ns: 0,
            annotations: None,
            live: BlockMap::default(),
            live_sum: Live::default(),
            threads: HashMap::new(),
            latest: None,
            starts: Vec::new(),
            arenas: HashMap::new(),
            first: Time(0),
            last: Time(0),
            rows_since: 0,
        }
    }

    /// Replaces the encoder, which must have no events, by one that goes on with the next. An
    /// encoder that is used again keeps the memory of its largest chunk.
    fn renew_encoder(&mut self) {
        let encoder = EventsEncoder::new(self.image).with_tick_ns(self.tick_ns);
        self.encoder = encoder.starting_at(self.encoder.next_serial(), self.live_sum);
    }

    fn thread(&mut self, number: u64) -> ThreadId {
        if let Some((_, thread)) = self.latest.filter(|(latest, _)| *latest == number) {
            return thread;
        }
        let next = ThreadId(self.starts.len() as u32);
        let thread = *self.threads.entry(number).or_insert(next);
        if thread == next {
            self.starts.push(self.last);
        }
        self.latest = Some((number, thread));
        thread
    }

    /// Adds a point at which statistics were asked for.
    fn statistics(&mut self, thread: ThreadId) -> Result<(), heapledger_recording::RecordingError> {
        let point = StatisticsPoint { serial: self.encoder.next_serial(), rows: self.rows_since };
        let (image, time) = (self.image, self.last);
        let encoder = self.annotations.get_or_insert_with(|| AnnotationsEncoder::new(image));
        encoder.push(&Annotation { image, thread, time, code: STATISTICS, payload: point.to_payload() })
    }

    /// Adds a call. Returns true if its block was live already, whose free the log lacks.
    fn call(
        &mut self,
        line: &Line,
        fields: &Fields<'_>,
        thread: ThreadId,
        stack: StackId,
    ) -> Result<bool, heapledger_recording::RecordingError> {
        let mut extras = Extras { usable: fields.usable.map(Bytes), ..Extras::NONE };
        let api = match line.request {
            Request::Malloc { .. } => Api::Malloc,
            Request::Calloc { count, .. } => {
                extras.count = Some(count);
                Api::Calloc
            }
            Request::Realloc { .. } => Api::Realloc,
            Request::Memalign { alignment, .. } => {
                extras.alignment = Some(alignment);
                Api::Memalign
            }
            Request::PosixMemalign { alignment, .. } => {
                extras.alignment = Some(alignment);
                Api::PosixMemalign
            }
            Request::AlignedAlloc { alignment, .. } => {
                extras.alignment = Some(alignment);
                Api::AlignedAlloc
            }
            Request::Valloc { .. } => Api::Valloc,
            Request::Free { .. } | Request::JemallocStats => Api::Free,
        };
        let size = line.request.size().unwrap_or(0);
        let result = line.result.filter(|result| !result.is_null());
        let old = match line.request {
            Request::Realloc { block, .. } | Request::Free { block } => Some(block),
            _ => None,
        };
        let kind = match (old, result) {
            // `realloc(block, 0)` has freed it.
            (Some(block), None) if size == 0 && !block.is_null() => EventKind::Free { block: self.free(block) },
            // The log does not say that a call succeeded, or it failed: the block lives on.
            (_, None) => {
                extras.usable = None;
                EventKind::Failed { size: Bytes(size), stack }
            }
            (Some(block), Some(_)) => {
                let old = self.free(block);
                EventKind::Realloc { old, serial: self.encoder.next_serial(), size: Bytes(size), stack }
            }
            (None, Some(_)) => EventKind::Alloc { serial: self.encoder.next_serial(), size: Bytes(size), stack },
        };
        let mut missed = false;
        if let EventKind::Alloc { .. } | EventKind::Realloc { .. } = kind
            && let Some(block) = result
        {
            if self.live.get(block.key()).is_some() {
                // It has been freed in the meantime.
                missed = true;
                let block = self.free(block);
                self.push(Api::Free, thread, EventKind::Free { block }, &Extras::NONE)?;
            }
            self.live.insert(block.key(), (self.encoder.next_serial(), size));
            self.live_sum.bytes.0 = self.live_sum.bytes.0.saturating_add(size);
            self.live_sum.blocks = Blocks(self.live_sum.blocks.0 + 1);
        }
        self.push(api, thread, kind, &extras)?;
        Ok(missed)
    }

    fn push(
        &mut self,
        api: Api,
        thread: ThreadId,
        kind: EventKind,
        extras: &Extras,
    ) -> Result<(), heapledger_recording::RecordingError> {
        let event = Event { time: self.last, thread, call: api.into(), kind, sampled: Sampled::NOT };
        self.encoder.push(&event, extras, self.live_sum)?;
        let allocates = matches!(kind, EventKind::Alloc { .. } | EventKind::Realloc { .. });
        self.rows_since = if allocates { 0 } else { self.rows_since + 1 };
        Ok(())
    }

    /// Removes a block.
    fn free(&mut self, block: Pointer) -> FreedBlock {
        match self.live.remove(block.key()) {
            Some((serial, size)) => {
                self.live_sum.bytes.0 = self.live_sum.bytes.0.saturating_sub(size);
                self.live_sum.blocks.0 -= 1;
                FreedBlock::Known(serial)
            }
            None if block.is_null() => FreedBlock::None,
            None => FreedBlock::Unknown,
        }
    }
}

fn flush<W: Write>(draft: &mut Draft<W>, encoder: &mut EventsEncoder) -> Result<(), Error> {
    draft.put(|compressor| Ok(encoder.finish(compressor)))
}
