//! Reading a log. A stream is read once, and its stacks and blocks go to a [`Sink`] as they come,
//! because a log has its blocks before their stacks, and those before the texts of their frames.

use std::io::{self, Cursor, Read};

use flate2::read::MultiGzDecoder;

use crate::builder::Groups;
use crate::frames::UnresolvedFrame;
use crate::hash::Map;
use crate::lexer::Lexer;
use crate::log::{Block, Defect, DefectKind, DumpStats, FrameId, Log, Mode, Module, NameId, Report, Sampling, TraceId};
use crate::read_error::ReadError;
use crate::table_keys::{Keys, Numbers, put_at};

type Result<T> = std::result::Result<T, ReadError>;

impl Log {
    /// Reads a file of version 5, plain or gzipped.
    ///
    /// Memory is needed only for distinct data, stacks, and blocks by stack and size, not for the
    /// text. Unknown keys are skipped.
    ///
    /// # Errors
    ///
    /// Fails if the stream fails, or is not such a file.
    pub fn read(mut input: impl Read) -> Result<Log> {
        Log::read_as(&mut input, u64::MAX, Groups::new(false))
    }

    /// Reads a log for an [`Analysis`](crate::Analysis): blocks of the same stacks and usable size
    /// become one. That takes a fraction of the memory, and answers are the same; but such a log
    /// must not be written.
    ///
    /// # Errors
    ///
    /// As [`Log::read`].
    pub fn read_merged(mut input: impl Read) -> Result<Log> {
        Log::read_as(&mut input, u64::MAX, Groups::new(true))
    }

    /// Like [`Log::read`], but fails if the unpacked text has more than about `bytes_max` bytes:
    /// the size is checked every 256 KiB.
    ///
    /// # Errors
    ///
    /// As [`Log::read`], or if the text is larger.
    pub fn read_at_most(mut input: impl Read, bytes_max: u64) -> Result<Log> {
        Log::read_as(&mut input, bytes_max, Groups::new(false))
    }

    fn read_as(input: &mut dyn Read, bytes_max: u64, groups: Groups) -> Result<Log> {
        let mut sink = InMemory { groups, known: Vec::new() };
        let (mut log, names) = read(input, bytes_max, &mut sink)?;
        for (block, group) in log.scanned.blocks.iter_mut().zip(sink.known) {
            block.group = group;
        }
        log.groups = sink.groups.finish();
        for group in &mut log.groups {
            (group.type_name, group.context) = (names.known(group.type_name), names.known(group.context));
            for report in group.reports.iter_mut().flatten() {
                report.reporter = names.known(report.reporter);
            }
        }
        Ok(log)
    }
}

/// The names that a log has. Programs that do not know the table of names drop it and keep the
/// rest.
pub(crate) struct Names(Numbers);

impl Names {
    /// Returns the name, if the log has it.
    pub(crate) fn known(&self, name: Option<NameId>) -> Option<NameId> {
        name.filter(|name| self.0.is_defined(name.0))
    }
}

/// Takes the stacks and blocks of a log as they are read.
pub(crate) trait Sink {
    /// Returns the number of frames of each stack that are wanted.
    fn frames_max(&self) -> usize;

    /// Takes a stack; the last one with the same number counts.
    fn trace(&mut self, log: &mut Log, trace: TraceId, frames: &[FrameId]) -> io::Result<()>;

    /// Takes a block, with its address and contents if they are known.
    fn block(&mut self, log: &mut Log, block: &Block, scanned: Option<(u64, &[u64])>) -> io::Result<()>;
}

/// Adds blocks up in memory.
struct InMemory {
    groups: Groups,
    /// The groups of the blocks whose addresses are known, in their order.
    known: Vec<u32>,
}

impl Sink for InMemory {
    fn frames_max(&self) -> usize {
        usize::MAX
    }

    fn trace(&mut self, log: &mut Log, trace: TraceId, frames: &[FrameId]) -> io::Result<()> {
        put_at(&mut log.traces, trace.0, frames.to_vec());
        Ok(())
    }

    fn block(&mut self, log: &mut Log, block: &Block, scanned: Option<(u64, &[u64])>) -> io::Result<()> {
        let group = self.groups.add(block);
        if let Some((address, contents)) = scanned {
            // Groups get their final numbers when all blocks have been added.
            log.scanned.push(block, 0, address, contents);
            self.known.push(group);
        }
        Ok(())
    }
}

/// Reads a log, plain or gzipped, of at most about `bytes_max` bytes. Stacks and blocks go to the
/// sink; each block's stack and each stack's frames exist.
pub(crate) fn read(input: &mut dyn Read, bytes_max: u64, sink: &mut dyn Sink) -> Result<(Log, Names)> {
    let mut magic = Vec::new();
    input.take(2).read_to_end(&mut magic).map_err(ReadError::Io)?;
    let is_packed = magic == PACKED;
    let mut input = Cursor::new(magic).chain(input);
    if is_packed {
        Reader::new(&mut MultiGzDecoder::new(input), bytes_max, sink).read()
    } else {
        Reader::new(&mut input, bytes_max, sink).read()
    }
}

/// The first bytes of a gzipped file.
const PACKED: [u8; 2] = [0x1f, 0x8b];

/// The parts of a file.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Version,
    Invocation,
    Frames,
    Names,
    Modules,
    Traces,
    Blocks,
    About,
}

impl Part {
    const ALL: [Part; 8] = [
        Part::Version,
        Part::Invocation,
        Part::Frames,
        Part::Names,
        Part::Modules,
        Part::Traces,
        Part::Blocks,
        Part::About,
    ];
    /// The parts without which a file is not a log.
    const NEEDED: [Part; 5] = [Part::Version, Part::Invocation, Part::Blocks, Part::Traces, Part::Frames];

    fn key(self) -> &'static str {
        match self {
            Part::Version => "version",
            Part::Invocation => "invocation",
            Part::Frames => "frameTable",
            Part::Names => "nameTable",
            Part::Modules => "moduleTable",
            Part::Traces => "traceTable",
            Part::Blocks => "blockList",
            Part::About => "heapledger",
        }
    }
}

/// The members of a block.
#[derive(Clone, Copy)]
enum Member {
    Requested,
    Slop,
    Count,
    Alloc,
    Reports,
    Address,
    Contents,
    Reporters,
    Type,
    Context,
    Weight,
    Variance,
    Sampled,
    Other,
}

struct Reader<'i> {
    lexer: Lexer<'i>,
    log: Log,
    sink: &'i mut dyn Sink,
    keys: Keys,
    traces: Numbers,
    frames: Numbers,
    names: Numbers,
    /// The modules of frames, as pairs of a frame's and a module's number.
    modules: Vec<(u32, NameId)>,
}

impl<'i> Reader<'i> {
    fn new(input: &'i mut dyn Read, bytes_max: u64, sink: &'i mut dyn Sink) -> Reader<'i> {
        let (keys, traces, frames, names) = <(Keys, Numbers, Numbers, Numbers)>::default();
        let (lexer, log, modules) = (Lexer::new(input, bytes_max), Log::empty(Mode::Live), Vec::new());
        Reader { lexer, log, sink, keys, traces, frames, names, modules }
    }

    fn read(mut self) -> Result<(Log, Names)> {
        self.parts()?;
        self.whole()
    }

    fn part(&mut self, part: Part) -> Result<()> {
        match part {
            Part::Version => self.version(),
            Part::Invocation => self.invocation(),
            Part::Frames => self.frame_table(),
            Part::Names => self.name_table(),
            Part::Modules => self.module_table(),
            Part::Traces => self.trace_table(),
            Part::Blocks => self.blocks(),
            Part::About => self.about(),
        }
    }

    /// Reads the parts of the file.
    fn parts(&mut self) -> Result<()> {
        let mut found: Vec<Part> = Vec::new();
        self.lexer.expect(b'{')?;
        let mut first = true;
        while let Some(key) = self.lexer.key(&mut first)? {
            let key = self.lexer.bytes(key);
            let Some(part) = Part::ALL.into_iter().find(|part| part.key().as_bytes() == key) else {
                self.lexer.skip()?;
                continue;
            };
            if found.contains(&part) {
                return Err(self.lexer.wrong("the same part twice"));
            }
            found.push(part);
            self.part(part)?;
        }
        self.lexer.finish()?;
        match Part::NEEDED.iter().find(|part| !found.contains(part)) {
            Some(part) => Err(self.lexer.wrong(format!("it has no `{}`", part.key()))),
            None => Ok(()),
        }
    }

    fn version(&mut self) -> Result<()> {
        match self.lexer.integer()? {
            5 => Ok(()),
            other => Err(self.lexer.wrong(format!("it is of version {other}, not 5"))),
        }
    }

    fn invocation(&mut self) -> Result<()> {
        self.lexer.expect(b'{')?;
        let (mut first, mut has_mode) = (true, false);
        while let Some(key) = self.lexer.key(&mut first)? {
            match self.lexer.bytes(key) {
                b"dmdEnvVar" => {
                    self.log.variable = if self.lexer.null()? { None } else { Some(self.lexer.text()?) };
                }
                b"mode" => {
                    let mode = self.lexer.text()?;
                    let Some(mode) = Mode::from_name(&mode) else {
                        return Err(self.lexer.wrong(format!("there is no mode `{mode}`")));
                    };
                    (self.log.mode, has_mode) = (mode, true);
                }
                _ => self.lexer.skip()?,
            }
        }
        if has_mode { Ok(()) } else { Err(self.lexer.wrong("the invocation has no `mode`")) }
    }

    fn blocks(&mut self) -> Result<()> {
        self.lexer.expect(b'[')?;
        let (mut first, mut contents) = (true, Vec::new());
        while self.lexer.item(&mut first, b']')? {
            self.block(&mut contents)?;
        }
        Ok(())
    }

    fn block(&mut self, contents: &mut Vec<u64>) -> Result<()> {
        let (mut requested, mut slop, mut count, mut address) = (None, 0, 1, None);
        let (mut alloc, mut traces, mut reporters) = (None, [None; 2], [None; 2]);
        let (mut type_name, mut context) = (None, None);
        let (mut weight, mut variance, mut sampled) = (None, 0.0, None);
        contents.clear();
        self.lexer.expect(b'{')?;
        let mut first = true;
        while let Some(key) = self.lexer.key(&mut first)? {
            let member = match self.lexer.bytes(key) {
                b"req" => Member::Requested,
                b"slop" => Member::Slop,
                b"num" => Member::Count,
                b"alloc" => Member::Alloc,
                b"reps" => Member::Reports,
                b"addr" => Member::Address,
                b"contents" => Member::Contents,
                b"by" => Member::Reporters,
                b"type" => Member::Type,
                b"context" => Member::Context,
                b"weight" => Member::Weight,
                b"variance" => Member::Variance,
                b"sampled" => Member::Sampled,
                _ => Member::Other,
            };
            match member {
                Member::Requested => requested = Some(self.lexer.integer()?),
                Member::Slop => slop = self.lexer.integer()?,
                Member::Count => count = self.lexer.integer()?,
                Member::Alloc => alloc = Some(self.trace_key()?),
                Member::Reports => traces = self.two(|reader| Ok(Some(reader.trace_key()?)))?,
                Member::Reporters => reporters = self.two(Reader::name_key_or_null)?,
                Member::Address => address = Some(self.word()?),
                Member::Contents => self.words(contents)?,
                Member::Type => type_name = self.name_key_or_null()?,
                Member::Context => context = self.name_key_or_null()?,
                Member::Weight => weight = Some(self.lexer.number()?.max(0.0)),
                Member::Variance => variance = self.lexer.number()?.max(0.0),
                Member::Sampled => sampled = Some(self.lexer.integer()?),
                Member::Other => self.lexer.skip()?,
            }
        }
        let Some(requested) = requested else { return Err(self.lexer.wrong("a block without `req`")) };
        if requested.checked_add(slop).is_none() {
            return Err(self.lexer.wrong("a block of more than 64 bits' worth of bytes"));
        }
        let report = |at: usize| traces[at].map(|trace| Report { trace, reporter: reporters[at] });
        let count = sampled.unwrap_or(count);
        let each = |total: f64| if count == 0 { total } else { total / count as f64 };
        let block = Block {
            requested,
            slop,
            count,
            weight: weight.map_or(1.0, each),
            variance: each(variance),
            alloc,
            reports: [report(0), report(1)],
            type_name,
            context,
        };
        let scanned = address.map(|address| (address, contents.as_slice()));
        self.sink.block(&mut self.log, &block, scanned).map_err(ReadError::Io)
    }

    /// Reads a list of which the first two items count.
    fn two<T: Copy>(&mut self, mut read: impl FnMut(&mut Self) -> Result<Option<T>>) -> Result<[Option<T>; 2]> {
        self.lexer.expect(b'[')?;
        let (mut first, mut both, mut count) = (true, [None; 2], 0);
        while self.lexer.item(&mut first, b']')? {
            let item = read(self)?;
            if let Some(slot) = both.get_mut(count) {
                *slot = item;
            }
            count += 1;
        }
        Ok(both)
    }

    fn words(&mut self, words: &mut Vec<u64>) -> Result<()> {
        self.lexer.expect(b'[')?;
        let mut first = true;
        while self.lexer.item(&mut first, b']')? {
            let word = self.word()?;
            words.push(word);
        }
        Ok(())
    }

    /// Reads a string with a hexadecimal number.
    fn word(&mut self) -> Result<u64> {
        let span = self.lexer.string()?;
        let digits = self.lexer.bytes(span);
        let mut value: u64 = 0;
        for &byte in digits {
            match char::from(byte).to_digit(16) {
                Some(digit) if value >> 60 == 0 => value = value << 4 | u64::from(digit),
                _ => return Err(self.lexer.wrong("not a hexadecimal number of 64 bits")),
            }
        }
        if digits.is_empty() { Err(self.lexer.wrong("a number without digits")) } else { Ok(value) }
    }

    fn trace_key(&mut self) -> Result<TraceId> {
        let key = self.item_key()?;
        Ok(TraceId(self.traces.number(key)))
    }

    fn trace_key_or_null(&mut self) -> Result<Option<TraceId>> {
        if self.lexer.null()? { Ok(None) } else { self.trace_key().map(Some) }
    }

    fn name_key_or_null(&mut self) -> Result<Option<NameId>> {
        if self.lexer.null()? {
            return Ok(None);
        }
        let key = self.item_key()?;
        Ok(Some(NameId(self.names.number(key))))
    }

    fn trace_table(&mut self) -> Result<()> {
        self.lexer.expect(b'{')?;
        let frames_max = self.sink.frames_max();
        let (mut first, mut frames) = (true, Vec::new());
        while let Some(key) = self.lexer.key(&mut first)? {
            let key = self.keys.key(self.lexer.bytes(key));
            frames.clear();
            self.lexer.expect(b'[')?;
            let mut first = true;
            while self.lexer.item(&mut first, b']')? {
                let key = self.item_key()?;
                if frames.len() < frames_max {
                    frames.push(FrameId(self.frames.number(key)));
                }
            }
            let trace = self.traces.number(key);
            self.sink.trace(&mut self.log, TraceId(trace), &frames).map_err(ReadError::Io)?;
            self.traces.define(trace);
        }
        Ok(())
    }

    /// Reads a string that is the key of an item.
    #[inline]
    fn item_key(&mut self) -> Result<u64> {
        if let Some(key) = self.lexer.short_key() {
            return Ok(key);
        }
        let span = self.lexer.string()?;
        Ok(self.keys.key(self.lexer.bytes(span)))
    }

    fn frame_table(&mut self) -> Result<()> {
        self.texts(|reader, key, text| {
            let frame = reader.frames.number(key);
            put_at(&mut reader.log.frames, frame, without_number(&text).to_owned());
            reader.frames.define(frame);
        })
    }

    fn name_table(&mut self) -> Result<()> {
        self.texts(|reader, key, text| {
            let name = reader.names.number(key);
            put_at(&mut reader.log.names, name, text);
            reader.names.define(name);
        })
    }

    fn module_table(&mut self) -> Result<()> {
        self.texts(|reader, key, name| {
            let frame = reader.frames.number(key);
            let name = reader.names.number(reader.keys.key(name.as_bytes()));
            reader.modules.push((frame, NameId(name)));
        })
    }

    fn texts(&mut self, mut define: impl FnMut(&mut Self, u64, String)) -> Result<()> {
        self.lexer.expect(b'{')?;
        let mut first = true;
        while let Some(key) = self.lexer.key(&mut first)? {
            let key = self.keys.key(self.lexer.bytes(key));
            let text = self.lexer.text()?;
            define(self, key, text);
        }
        Ok(())
    }

    fn about(&mut self) -> Result<()> {
        self.members(|reader, key| {
            let about = &mut reader.log.about;
            match key {
                "program" => about.program = reader.lexer.text()?,
                "pid" => about.pid = u32::try_from(reader.lexer.integer()?).unwrap_or(0),
                "pauseNs" => about.pause_ns = reader.lexer.integer()?,
                "defectsCount" => about.defects_count = reader.lexer.integer()?,
                "sampling" => reader.sampling()?,
                "dump" => reader.dump()?,
                "modules" => reader.list(Reader::module)?,
                "defects" => reader.list(Reader::defect)?,
                _ => reader.lexer.skip()?,
            }
            Ok(())
        })
    }

    fn sampling(&mut self) -> Result<()> {
        if self.lexer.null()? {
            return Ok(());
        }
        self.members(|reader, key| {
            if key != "probability" {
                return reader.lexer.skip();
            }
            let probability = reader.lexer.number()?;
            if !(probability > 0.0 && probability <= 1.0) {
                return Err(reader.lexer.wrong("a probability is more than 0 and at most 1"));
            }
            reader.log.about.sampling = Some(Sampling { probability });
            Ok(())
        })
    }

    fn dump(&mut self) -> Result<()> {
        let mut dump = DumpStats::default();
        self.members(|reader, key| match dump.member(key) {
            Some(bytes) => {
                *bytes = reader.lexer.integer()?;
                Ok(())
            }
            None => reader.lexer.skip(),
        })?;
        self.log.about.dump = Some(dump);
        Ok(())
    }

    fn module(&mut self) -> Result<()> {
        let mut module = Module { path: String::new(), build_id: Vec::new() };
        self.members(|reader, key| {
            match key {
                "path" => module.path = reader.lexer.text()?,
                "buildId" => {
                    let text = reader.lexer.text()?;
                    let digits: Option<Vec<u8>> = text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
                    let bytes = digits.as_deref().map(<[u8]>::as_chunks::<2>).filter(|(_, rest)| rest.is_empty());
                    let Some((pairs, _)) = bytes else { return Err(reader.lexer.wrong("not the bytes of a build id")) };
                    module.build_id = pairs.iter().map(|[high, low]| high << 4 | low).collect();
                }
                _ => reader.lexer.skip()?,
            }
            Ok(())
        })?;
        self.log.about.modules.push(module);
        Ok(())
    }

    fn defect(&mut self) -> Result<()> {
        let (kind, reporter, trace, alloc) = (DefectKind::NoBlock, None, None, None);
        let mut defect = Defect { kind, reporter, address: 0, trace, alloc, measured: 0, usable: 0, count: 1 };
        self.members(|reader, key| {
            match key {
                "kind" => {
                    let name = reader.lexer.text()?;
                    let kind = DefectKind::from_name(&name);
                    defect.kind = kind.ok_or_else(|| reader.lexer.wrong(format!("there is no defect `{name}`")))?;
                }
                "by" => defect.reporter = reader.name_key_or_null()?,
                "addr" => defect.address = reader.word()?,
                "rep" => defect.trace = reader.trace_key_or_null()?,
                "alloc" => defect.alloc = reader.trace_key_or_null()?,
                "measured" => defect.measured = reader.lexer.integer()?,
                "usable" => defect.usable = reader.lexer.integer()?,
                "num" => defect.count = reader.lexer.integer()?,
                _ => reader.lexer.skip()?,
            }
            Ok(())
        })?;
        self.log.about.defects.push(defect);
        Ok(())
    }

    fn list(&mut self, mut read: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.lexer.expect(b'[')?;
        let mut first = true;
        while self.lexer.item(&mut first, b']')? {
            read(self)?;
        }
        Ok(())
    }

    fn members(&mut self, mut read: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        self.lexer.expect(b'{')?;
        let mut first = true;
        while let Some(key) = self.lexer.key(&mut first)? {
            let key = String::from_utf8_lossy(self.lexer.bytes(key)).into_owned();
            read(self, &key)?;
        }
        Ok(())
    }

    /// Checks that everything that blocks refer to exists, and returns the log.
    fn whole(self) -> Result<(Log, Names)> {
        let Reader { lexer, mut log, traces, frames, names, modules, .. } = self;
        if !traces.are_all_defined() {
            return Err(lexer.wrong("a block's stack is not in `traceTable`"));
        }
        if !frames.are_all_defined() {
            return Err(lexer.wrong("a frame of a stack or of `moduleTable` is not in `frameTable`"));
        }
        let names = Names(names);
        for defect in &mut log.about.defects {
            defect.reporter = names.known(defect.reporter);
        }
        // Numbers were given to everything that was named, including what was never defined or
        // used.
        let mut numbers: Map<String, NameId> =
            log.names.iter().enumerate().map(|(at, name)| (name.clone(), NameId(at as u32))).collect();
        for frame in &log.frames {
            let library = UnresolvedFrame::parse(frame).map(|unresolved| {
                *numbers.entry(unresolved.path.to_owned()).or_insert_with_key(|path| {
                    log.names.push(path.clone());
                    NameId(log.names.len() as u32 - 1)
                })
            });
            log.libraries.push(library);
        }
        for (frame, name) in modules {
            let library = &mut log.libraries[frame as usize];
            *library = library.or(names.known(Some(name)));
        }
        Ok((log, names))
    }
}

/// Returns a frame without its number: the first three characters, whatever they are, because
/// Mozilla's script puts another number in their place. The detector writes `#00: ` before each
/// frame; logs edited by hand have others.
fn without_number(text: &str) -> &str {
    let rest = text.char_indices().nth(3).map_or("", |(at, _)| &text[at..]);
    rest.strip_prefix(": ").unwrap_or(rest)
}
