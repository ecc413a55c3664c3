//! Reading a log: the stream is gone through once, and blocks are added up as they come.

use std::fmt;
use std::io::{self, Cursor, Read};

use flate2::read::MultiGzDecoder;

use crate::builder::{Block, Groups};
use crate::frames::Unresolved;
use crate::hash::Map;
use crate::lexer::Lexer;
use crate::log::{Defect, DefectKind, FrameId, Log, Mode, Module, NameId, Report, Sampling, TraceId};

/// Why a log cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The stream fails.
    Io(io::Error),
    /// It is not what it should be.
    Malformed {
        /// Where, in bytes from the beginning of the JSON text, which may have been unpacked.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(_) => f.write_str("it cannot be read"),
            ReadError::Malformed { offset, reason } => write!(f, "at byte {offset}: {reason}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReadError::Io(error) => Some(error),
            ReadError::Malformed { .. } => None,
        }
    }
}

type Result<T> = std::result::Result<T, ReadError>;

impl Log {
    /// Reads a file of version 5, plain or gzipped.
    ///
    /// Memory is needed for what differs: stacks, and blocks by stack and size; not for the text. Keys that are not known
    /// are skipped.
    ///
    /// # Errors
    ///
    /// The stream fails, or is no such file.
    pub fn read(input: impl Read) -> Result<Log> {
        Log::read_as(input, u64::MAX, false)
    }

    /// The same, for an [`Analysis`](crate::Analysis): blocks of the same stacks and usable size become one. That takes a
    /// fraction of the memory, and answers are the same; but such a log is not to be written.
    ///
    /// # Errors
    ///
    /// As [`Log::read`].
    pub fn read_merged(input: impl Read) -> Result<Log> {
        Log::read_as(input, u64::MAX, true)
    }

    /// The same as [`Log::read`], of a file whose text has about so many bytes at most when it is unpacked: it is looked
    /// at every 256 KiB.
    ///
    /// # Errors
    ///
    /// As [`Log::read`], or it has more.
    pub fn read_at_most(input: impl Read, bytes_max: u64) -> Result<Log> {
        Log::read_as(input, bytes_max, false)
    }

    fn read_as(mut input: impl Read, bytes_max: u64, is_merging: bool) -> Result<Log> {
        let mut magic = Vec::new();
        (&mut input).take(2).read_to_end(&mut magic).map_err(ReadError::Io)?;
        let is_packed = magic == [0x1f, 0x8b];
        let input = Cursor::new(magic).chain(input);
        if is_packed {
            Reader::new(MultiGzDecoder::new(input), bytes_max, is_merging).read()
        } else {
            Reader::new(input, bytes_max, is_merging).read()
        }
    }
}

/// What a block's members are called.
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

/// How many blocks are added together.
const WAITING: usize = 64;

struct Reader<R> {
    lexer: Lexer<R>,
    log: Log,
    groups: Groups,
    /// Blocks that are added together.
    waiting: Vec<Block>,
    keys: Keys,
    traces: Numbers,
    frames: Numbers,
    names: Numbers,
}

impl<R: Read> Reader<R> {
    fn new(input: R, bytes_max: u64, is_merging: bool) -> Reader<R> {
        let (keys, traces, frames, names) = <(Keys, Numbers, Numbers, Numbers)>::default();
        let lexer = Lexer::new(input, bytes_max);
        let mut groups = Groups::default();
        groups.is_merging = is_merging;
        Reader { lexer, log: Log::empty(Mode::Live), groups, waiting: Vec::new(), keys, traces, frames, names }
    }

    fn read(mut self) -> Result<Log> {
        let mut found = [false; 5];
        self.lexer.expect(b'{')?;
        let mut first = true;
        while let Some(key) = self.lexer.key(&mut first)? {
            let part = match self.lexer.bytes(key) {
                b"version" => 0,
                b"invocation" => 1,
                b"blockList" => 2,
                b"traceTable" => 3,
                b"frameTable" => 4,
                b"nameTable" => 5,
                b"heapledger" => 6,
                _ => {
                    self.lexer.skip()?;
                    continue;
                }
            };
            if found.get(part) == Some(&true) {
                return Err(self.lexer.wrong("the same part twice"));
            }
            if let Some(found) = found.get_mut(part) {
                *found = true;
            }
            match part {
                0 => self.version()?,
                1 => self.invocation()?,
                2 => self.blocks()?,
                3 => self.trace_table()?,
                4 => self.frame_table()?,
                5 => self.name_table()?,
                _ => self.about()?,
            }
        }
        self.lexer.finish()?;
        for (part, name) in ["version", "invocation", "blockList", "traceTable", "frameTable"].iter().enumerate() {
            if !found[part] {
                return Err(self.lexer.wrong(format!("it has no `{name}`")));
            }
        }
        self.whole()
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
        let mut first = true;
        let mut contents = Vec::new();
        while self.lexer.item(&mut first, b']')? {
            self.block(&mut contents)?;
        }
        self.add_waiting();
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
        match address {
            Some(address) => {
                self.add_waiting();
                let group = self.groups.add(&block);
                self.log.scanned.push(&block, group, address, contents);
            }
            None => {
                self.waiting.push(block);
                if self.waiting.len() == WAITING {
                    self.add_waiting();
                }
            }
        }
        Ok(())
    }

    fn add_waiting(&mut self) {
        self.groups.add_all(&self.waiting);
        self.waiting.clear();
    }

    /// A list of which the first two count.
    fn two<T: Copy>(&mut self, mut read: impl FnMut(&mut Self) -> Result<Option<T>>) -> Result<[Option<T>; 2]> {
        self.lexer.expect(b'[')?;
        let (mut first, mut both, mut count) = (true, [None; 2], 0);
        while self.lexer.item(&mut first, b']')? {
            let item = read(self)?;
            if let Some(place) = both.get_mut(count) {
                *place = item;
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

    /// A string with a hexadecimal number.
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
        let span = self.lexer.string()?;
        let key = self.keys.key(self.lexer.bytes(span));
        Ok(TraceId(self.traces.number(key)))
    }

    fn trace_key_or_null(&mut self) -> Result<Option<TraceId>> {
        if self.lexer.null()? { Ok(None) } else { self.trace_key().map(Some) }
    }

    fn name_key_or_null(&mut self) -> Result<Option<NameId>> {
        if self.lexer.null()? {
            return Ok(None);
        }
        let span = self.lexer.string()?;
        let key = self.keys.key(self.lexer.bytes(span));
        Ok(Some(NameId(self.names.number(key))))
    }

    fn trace_table(&mut self) -> Result<()> {
        self.lexer.expect(b'{')?;
        let mut first = true;
        while let Some(key) = self.lexer.key(&mut first)? {
            let key = self.keys.key(self.lexer.bytes(key));
            let trace = self.traces.number(key);
            let mut frames = Vec::new();
            self.lexer.expect(b'[')?;
            let mut first = true;
            while self.lexer.item(&mut first, b']')? {
                let span = self.lexer.string()?;
                let key = self.keys.key(self.lexer.bytes(span));
                frames.push(FrameId(self.frames.number(key)));
            }
            frames.shrink_to_fit();
            place(&mut self.log.traces, trace, frames);
            self.traces.define(trace);
        }
        Ok(())
    }

    fn frame_table(&mut self) -> Result<()> {
        self.texts(|reader, key, text| {
            let frame = reader.frames.number(key);
            // The number is the same of all: the stack it is in gives it another.
            let text = text.strip_prefix("#00: ").unwrap_or(&text).to_owned();
            place(&mut reader.log.frames, frame, text);
            reader.frames.define(frame);
        })
    }

    fn name_table(&mut self) -> Result<()> {
        self.texts(|reader, key, text| {
            let name = reader.names.number(key);
            place(&mut reader.log.names, name, text);
            reader.names.define(name);
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

    /// What blocks refer to must be there.
    fn whole(mut self) -> Result<Log> {
        let mut groups = std::mem::take(&mut self.groups).finish();
        // Programs that do not know names drop their table and keep the rest.
        let names = &self.names;
        let known = |name: Option<NameId>| name.filter(|name| names.is_defined(name.0));
        for group in &mut groups {
            (group.type_name, group.context) = (known(group.type_name), known(group.context));
            for report in group.reports.iter_mut().flatten() {
                report.reporter = known(report.reporter);
            }
        }
        for defect in &mut self.log.about.defects {
            defect.reporter = known(defect.reporter);
        }
        let reports = groups.iter().flat_map(|group| group.reports.iter().flatten());
        let traces = groups.iter().filter_map(|group| group.alloc).chain(reports.map(|report| report.trace));
        let defects = self.log.about.defects.iter();
        let traces = traces.chain(defects.flat_map(|defect| [defect.trace, defect.alloc]).flatten());
        for trace in traces {
            if !self.traces.is_defined(trace.0) {
                return Err(self.lexer.wrong("a block's stack is not in `traceTable`"));
            }
        }
        if self.log.traces.iter().flatten().any(|frame| !self.frames.is_defined(frame.0)) {
            return Err(self.lexer.wrong("a stack's frame is not in `frameTable`"));
        }
        // Numbers were given to all that was named, also to what nobody has defined or uses.
        let Reader { mut log, .. } = self;
        log.groups = groups;
        let mut numbers: Map<String, NameId> =
            log.names.iter().enumerate().map(|(at, name)| (name.clone(), NameId(at as u32))).collect();
        for frame in &log.frames {
            let library = Unresolved::parse(frame).map(|place| {
                *numbers.entry(place.path.to_owned()).or_insert_with_key(|path| {
                    log.names.push(path.clone());
                    NameId(log.names.len() as u32 - 1)
                })
            });
            log.libraries.push(library);
        }
        Ok(log)
    }
}

/// Puts an item where its number says.
fn place<T: Default>(list: &mut Vec<T>, number: u32, item: T) {
    let at = number as usize;
    if list.len() <= at {
        list.resize_with(at + 1, T::default);
    }
    list[at] = item;
}

/// The numbers of keys, from 0, in the order in which they come first.
#[derive(Default)]
struct Numbers {
    /// Of keys that are small, one more than the number; 0: it has none yet.
    small: Vec<u32>,
    others: Map<u64, u32>,
    count: u32,
    is_defined: Vec<bool>,
}

/// Keys below are looked up in a list. They are counted from 0 by who writes logs.
const SMALL_END: u64 = 1 << 24;

impl Numbers {
    #[inline]
    fn number(&mut self, key: u64) -> u32 {
        match self.small.get(key as usize) {
            Some(&number) if number > 0 => number - 1,
            _ => self.other(key),
        }
    }

    #[inline(never)]
    fn other(&mut self, key: u64) -> u32 {
        if key >= SMALL_END {
            let next = self.count;
            let number = *self.others.entry(key).or_insert(next);
            self.count += u32::from(number == next);
            return number;
        }
        let at = key as usize;
        if self.small.len() <= at {
            let length = (at + 1).next_power_of_two();
            self.small.resize(length, 0);
        }
        self.count += 1;
        self.small[at] = self.count;
        self.count - 1
    }

    fn define(&mut self, number: u32) {
        place(&mut self.is_defined, number, true);
    }

    fn is_defined(&self, number: u32) -> bool {
        self.is_defined.get(number as usize).copied().unwrap_or(false)
    }
}

/// Keys as numbers: the usual ones are short and of 32 digits.
#[derive(Default)]
struct Keys {
    others: Map<Vec<u8>, u64>,
}

impl Keys {
    #[inline]
    fn key(&mut self, text: &[u8]) -> u64 {
        // A digit that is zero in front would make another key of the same value.
        if text.len() <= 12 && (text.len() == 1 || text.first() != Some(&b'A')) {
            let mut key = 0;
            for &byte in text {
                let digit = match byte {
                    b'A'..=b'Z' => byte - b'A',
                    b'a'..=b'f' => byte - b'a' + 26,
                    _ => return self.other(text),
                };
                key = key << 5 | u64::from(digit);
            }
            if !text.is_empty() {
                return key;
            }
        }
        self.other(text)
    }

    #[cold]
    fn other(&mut self, text: &[u8]) -> u64 {
        let next = 1 << 63 | self.others.len() as u64;
        *self.others.entry(text.to_owned()).or_insert(next)
    }
}
