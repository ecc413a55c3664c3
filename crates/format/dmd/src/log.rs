//! The contents of a log.

/// The kind of blocks that a log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Live blocks.
    Live,
    /// Live blocks, and the reporters that have reported them.
    DarkMatter,
    /// Live blocks and those that have been freed.
    Cumulative,
    /// Live blocks one by one, with their addresses and contents.
    Scan,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 4] = [Mode::Live, Mode::DarkMatter, Mode::Cumulative, Mode::Scan];

    /// Returns the mode's name in files and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Live => "live",
            Mode::DarkMatter => "dark-matter",
            Mode::Cumulative => "cumulative",
            Mode::Scan => "scan",
        }
    }

    /// Returns the mode with this name.
    pub fn from_name(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The text of a frame, by number: an index of [`Log::frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// A stack, by number: an index of [`Log::traces`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub u32);

/// The name of a type, a context or a reporter, by number: an index of [`Log::names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// Blocks of a heap.
#[derive(Clone, Debug)]
pub struct Log {
    /// The kind of blocks in the log.
    pub mode: Mode,
    /// The value of the environment variable that made the program write the log; `None`: it was
    /// undefined.
    pub variable: Option<String>,
    /// Blocks that differ only in their sizes, in the order of their first blocks.
    pub groups: Vec<Group>,
    /// Stacks, innermost frame first.
    pub traces: Vec<Vec<FrameId>>,
    /// Frames as they are shown, without a number: `function (file:line)`,
    /// `function[library +0xOFFSET]`, or `???[library +0xOFFSET]`. Offsets are those of return
    /// addresses in the file of the library.
    pub frames: Vec<String>,
    /// The library of each frame, if the frame's text named one before it was
    /// [resolved](crate::FrameTexts).
    pub libraries: Vec<Option<NameId>>,
    /// The names of types, contexts, reporters and libraries.
    pub names: Vec<String>,
    /// The blocks one by one, in a log with their contents ([`Mode::Scan`]).
    pub scanned: Scanned,
    /// Further data about the log.
    pub about: About,
}

impl Log {
    pub(crate) fn empty(mode: Mode) -> Log {
        let (groups, traces, frames, libraries, names) = <(Vec<_>, Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
        let (scanned, about) = (Scanned::default(), About::default());
        Log { mode, variable: None, groups, traces, frames, libraries, names, scanned, about }
    }

    /// Returns the text of a frame.
    pub fn frame(&self, frame: FrameId) -> &str {
        &self.frames[frame.0 as usize]
    }

    /// Returns the frames of a stack, innermost first.
    pub fn trace(&self, trace: TraceId) -> &[FrameId] {
        &self.traces[trace.0 as usize]
    }

    /// Returns the name of a type, a context, a reporter or a library.
    pub fn name(&self, name: NameId) -> &str {
        &self.names[name.0 as usize]
    }
}

/// A block, or several blocks that have all of this in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// The requested size, in bytes.
    pub requested: u64,
    /// The slop, in bytes.
    pub slop: u64,
    /// The number of blocks.
    pub count: u64,
    /// The weight of each block: 1, unless it is sampled.
    pub weight: f64,
    /// The variance of each block's weight: 0 if it is not sampled.
    pub variance: f64,
    /// The stack that allocated it; `None`: it was not recorded.
    pub alloc: Option<TraceId>,
    /// The first two reports of it.
    pub reports: [Option<Report>; 2],
    /// Its type.
    pub type_name: Option<NameId>,
    /// The context in which it was allocated.
    pub context: Option<NameId>,
}

/// Blocks that are shown as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The stack that allocated them; `None`: it was not recorded.
    pub alloc: Option<TraceId>,
    /// The first two reports of the blocks.
    pub reports: [Option<Report>; 2],
    /// The type of the blocks.
    pub type_name: Option<NameId>,
    /// The context in which they were allocated: names of scopes, the outermost first, separated by
    /// `/`.
    pub context: Option<NameId>,
    /// The number of blocks of each size.
    pub sizes: Vec<Size>,
}

/// Blocks one by one, with what is in them.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// The blocks, in the order of the log.
    pub blocks: Vec<ScannedBlock>,
    /// The words of all blocks.
    pub words: Vec<u64>,
}

/// A block with what is in it.
#[derive(Clone, Debug)]
pub struct ScannedBlock {
    /// Its address.
    pub address: u64,
    /// The requested size, in bytes.
    pub requested: u64,
    /// The slop, in bytes.
    pub slop: u64,
    /// The [group](Log::groups) in which it is counted.
    pub group: u32,
    /// The range of its contents in [`Scanned::words`]: the requested bytes, without an incomplete
    /// last word.
    pub words: std::ops::Range<usize>,
}

impl Scanned {
    pub(crate) fn push(&mut self, block: &Block, group: u32, address: u64, contents: &[u64]) {
        let from = self.words.len();
        self.words.extend_from_slice(contents);
        let words = from..self.words.len();
        self.blocks.push(ScannedBlock { address, requested: block.requested, slop: block.slop, group, words });
    }

    /// Returns the contents of a block.
    pub fn contents(&self, block: &ScannedBlock) -> &[u64] {
        &self.words[block.words.clone()]
    }
}

/// Blocks of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// The requested size, in bytes.
    pub requested: u64,
    /// The slop, in bytes.
    pub slop: u64,
    /// The number of these blocks in the log.
    pub count: u64,
    /// The requested bytes of all these blocks, less `count` times `requested`. Blocks of one
    /// usable size may have been [read as one](Log::read_merged); 0 otherwise.
    pub rest: i64,
    /// The number of blocks that these count for: [`count`](Size::count), unless they are a sample.
    pub weight: f64,
    /// The variance of [`weight`](Size::weight): 0 if blocks were not sampled.
    pub variance: f64,
}

/// A report of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// The stack that made the report.
    pub trace: TraceId,
    /// The reporter that made it.
    pub reporter: Option<NameId>,
}

/// Data about a log beyond version 5 of the format.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The name of the program's file.
    pub program: String,
    /// The process id.
    pub pid: u32,
    /// The time for which the program was held up for the log, in nanoseconds: threads that
    /// allocated or freed meanwhile waited.
    pub pause_ns: u64,
    /// The sampling of the blocks whose stacks were recorded; `None`: all were recorded.
    pub sampling: Option<Sampling>,
    /// The memory that the program needed for the log; `None`: not known.
    pub dump: Option<DumpStats>,
    /// The loaded objects that frames are in.
    pub modules: Vec<Module>,
    /// The defects of reporters.
    pub defects: Vec<Defect>,
    /// The number of defects, which may be more than there are in the list.
    pub defects_count: u64,
}

impl About {
    /// True if nothing is known, as for a log of another tool.
    pub fn is_nothing(&self) -> bool {
        let About { program, pid, pause_ns, sampling, dump, modules, defects, defects_count } = self;
        let is_nobody = program.is_empty() && *pid == 0 && *pause_ns == 0 && sampling.is_none() && dump.is_none();
        is_nobody && modules.is_empty() && defects.is_empty() && *defects_count == 0
    }
}

/// The sampling of the blocks whose stacks were recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The probability with which each usable byte had its block chosen.
    pub probability: f64,
}

/// The memory of the program that made a log, by purpose, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpStats {
    /// The register of live blocks, and the totals.
    pub register: u64,
    /// The stacks that have allocated.
    pub stacks: u64,
    /// Rules by which stacks are unwound.
    pub rules: u64,
    /// The state of the ledger for each thread.
    pub threads: u64,
    /// Sampled events that are kept, and the filter of sampled addresses.
    pub events: u64,
    /// The copy of the register that the log is made from. It is freed afterwards.
    pub copy: u64,
}

impl DumpStats {
    /// The names of the JSON object's members.
    const NAMES: [&str; 6] = ["registerBytes", "stacksBytes", "rulesBytes", "threadsBytes", "eventsBytes", "copyBytes"];

    /// Returns the members of the JSON object.
    pub(crate) fn members(mut self) -> impl Iterator<Item = (&'static str, u64)> {
        let amounts = self.amounts().map(|bytes| *bytes);
        DumpStats::NAMES.into_iter().zip(amounts)
    }

    /// Returns the member of this name.
    pub(crate) fn member(&mut self, name: &str) -> Option<&mut u64> {
        let at = DumpStats::NAMES.iter().position(|other| *other == name)?;
        self.amounts().into_iter().nth(at)
    }

    fn amounts(&mut self) -> [&mut u64; 6] {
        let DumpStats { register, stacks, rules, threads, events, copy } = self;
        [register, stacks, rules, threads, events, copy]
    }
}

/// A file that was mapped to be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The path, as frames name it.
    pub path: String,
    /// The bytes of its build id; empty if it has none.
    pub build_id: Vec<u8>,
}

/// Something wrong with a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The kind of defect.
    pub kind: DefectKind,
    /// The reporter that made the report.
    pub reporter: Option<NameId>,
    /// The address that was reported.
    pub address: u64,
    /// The stack that reported it.
    pub trace: Option<TraceId>,
    /// The stack that allocated the block in question.
    pub alloc: Option<TraceId>,
    /// The number of bytes that the reporter measured; 0: it did not say.
    pub measured: u64,
    /// The usable size of the block in question, or of all blocks that the reporter has marked; 0:
    /// there is no such block.
    pub usable: u64,
    /// The number of times that the same defect was found for this reporter and stack.
    pub count: u64,
}

/// The ways in which a report can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DefectKind {
    /// There is no live block at the address: it was freed, or was allocated before observation
    /// began.
    NoBlock,
    /// The address is inside a block, not at its start.
    Interior,
    /// The memory belongs to the program, but not to its heap: it is on a stack, static, or mapped.
    NotHeap,
    /// The reporter measured less than the whole block.
    Partly,
    /// The block was freed while its report counted: before the reports were complete, or with a
    /// permanent mark that was not taken back.
    FreedWhileReported,
    /// The reporter has reported more bytes of heap than the blocks hold that it has marked:
    /// [`measured`](Defect::measured) against [`usable`](Defect::usable). The rest was computed or
    /// counted and looks unreported here, or is not heap.
    Unmarked,
}

impl DefectKind {
    /// All kinds.
    pub const ALL: [DefectKind; 6] = [
        DefectKind::NoBlock,
        DefectKind::Interior,
        DefectKind::NotHeap,
        DefectKind::Partly,
        DefectKind::FreedWhileReported,
        DefectKind::Unmarked,
    ];

    /// Returns the kind's name in files.
    pub fn name(self) -> &'static str {
        match self {
            DefectKind::NoBlock => "no-block",
            DefectKind::Interior => "interior",
            DefectKind::NotHeap => "not-heap",
            DefectKind::Partly => "partly",
            DefectKind::FreedWhileReported => "freed-while-reported",
            DefectKind::Unmarked => "unmarked",
        }
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<DefectKind> {
        DefectKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
