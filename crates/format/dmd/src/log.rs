//! What a log holds.

use crate::dump_stats::DumpStats;

/// What a log is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Live blocks.
    Live,
    /// Live blocks, and who has reported them.
    DarkMatter,
    /// Live blocks and those that have been freed.
    Cumulative,
    /// Live blocks one by one, with their addresses and contents.
    Scan,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 4] = [Mode::Live, Mode::DarkMatter, Mode::Cumulative, Mode::Scan];

    /// What it is called in files and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Live => "live",
            Mode::DarkMatter => "dark-matter",
            Mode::Cumulative => "cumulative",
            Mode::Scan => "scan",
        }
    }

    /// The mode of this name.
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
    /// What it is of.
    pub mode: Mode,
    /// The environment variable by which the program was told to make it; `None`: it was undefined.
    pub variable: Option<String>,
    /// Blocks that have everything but their sizes in common, in the order of their first ones.
    pub groups: Vec<Group>,
    /// Stacks, innermost frame first.
    pub traces: Vec<Vec<FrameId>>,
    /// Frames as they are shown, without a number: `function (file:line)`, `function[library +0xOFFSET]`, or
    /// `???[library +0xOFFSET]`. Offsets are those of return addresses in the file of the library.
    pub frames: Vec<String>,
    /// The library that each frame is in, where its text has said so before it was
    /// [resolved](crate::FrameTexts).
    pub libraries: Vec<Option<NameId>>,
    /// What types, contexts, reporters and libraries are called.
    pub names: Vec<String>,
    /// The blocks one by one, of a log with their contents ([`Mode::Scan`]).
    pub scanned: Scanned,
    /// What is known besides.
    pub about: About,
}

impl Log {
    pub(crate) fn empty(mode: Mode) -> Log {
        let (groups, traces, frames, libraries, names) = <(Vec<_>, Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
        let (scanned, about) = (Scanned::default(), About::default());
        Log { mode, variable: None, groups, traces, frames, libraries, names, scanned, about }
    }

    /// The text of a frame.
    pub fn frame(&self, frame: FrameId) -> &str {
        &self.frames[frame.0 as usize]
    }

    /// The frames of a stack, innermost first.
    pub fn trace(&self, trace: TraceId) -> &[FrameId] {
        &self.traces[trace.0 as usize]
    }

    /// What a type, a context, a reporter or a library is called.
    pub fn name(&self, name: NameId) -> &str {
        &self.names[name.0 as usize]
    }
}

/// Blocks that are shown as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Where they were allocated; `None`: that was not recorded.
    pub alloc: Option<TraceId>,
    /// Who has reported them: the first two reports.
    pub reports: [Option<Report>; 2],
    /// What they are.
    pub type_name: Option<NameId>,
    /// In which context they were allocated: names of scopes, the outermost first, separated by `/`.
    pub context: Option<NameId>,
    /// How many there are of each size.
    pub sizes: Vec<Size>,
}

/// Blocks one by one, with what is in them.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// In the order of the log.
    pub blocks: Vec<ScannedBlock>,
    /// The words of all of them.
    pub words: Vec<u64>,
}

/// A block with what is in it.
#[derive(Clone, Debug)]
pub struct ScannedBlock {
    /// Its address.
    pub address: u64,
    /// What was asked for, in bytes.
    pub requested: u64,
    /// What may be used beyond it, in bytes.
    pub slop: u64,
    /// The [group](Log::groups) in which it is counted.
    pub group: u32,
    /// Its contents in [`Scanned::words`]: what was requested, without a last part of a word.
    pub words: std::ops::Range<usize>,
}

impl Scanned {
    pub(crate) fn push(&mut self, block: &crate::Block, group: u32, address: u64, contents: &[u64]) {
        let from = self.words.len();
        self.words.extend_from_slice(contents);
        let words = from..self.words.len();
        self.blocks.push(ScannedBlock { address, requested: block.requested, slop: block.slop, group, words });
    }

    /// What is in a block.
    pub fn contents(&self, block: &ScannedBlock) -> &[u64] {
        &self.words[block.words.clone()]
    }
}

/// Blocks of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// What was asked for, in bytes.
    pub requested: u64,
    /// What may be used beyond it, in bytes.
    pub slop: u64,
    /// How many of them are in the log.
    pub count: u64,
    /// What was asked for all of them, in bytes, beyond `count` times `requested`: blocks of one usable size may have been
    /// [read as one](Log::read_merged). 0 otherwise.
    pub rest: i64,
    /// For how many blocks these stand: [`count`](Size::count), unless they are a sample.
    pub weight: f64,
    /// The variance of [`weight`](Size::weight): 0 for what is no sample.
    pub variance: f64,
}

/// A report of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// Where it was made.
    pub trace: TraceId,
    /// Who made it.
    pub reporter: Option<NameId>,
}

/// What a log says of itself beyond what version 5 of the format has.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The name of the program's file.
    pub program: String,
    /// Its number.
    pub pid: u32,
    /// For how long the program was held up for the log, in nanoseconds: whoever allocated or freed meanwhile waited.
    pub pause_ns: u64,
    /// How blocks were chosen whose stacks were recorded; `None`: all were.
    pub sampling: Option<Sampling>,
    /// The memory that the program needed for the log; `None`: that is not known.
    pub dump: Option<DumpStats>,
    /// The files that frames are in.
    pub modules: Vec<Module>,
    /// What reporters did wrong.
    pub defects: Vec<Defect>,
    /// How many they were: more than there are in the list, perhaps.
    pub defects_count: u64,
}

impl About {
    /// Whether nothing is known: a log of somebody else's.
    pub fn is_nothing(&self) -> bool {
        let About { program, pid, pause_ns, sampling, dump, modules, defects, defects_count } = self;
        let is_nobody = program.is_empty() && *pid == 0 && *pause_ns == 0 && sampling.is_none() && dump.is_none();
        is_nobody && modules.is_empty() && defects.is_empty() && *defects_count == 0
    }
}

/// How blocks were chosen whose stacks were recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The probability with which each usable byte had its block chosen.
    pub probability: f64,
}

/// A file that was mapped to be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// As frames have it.
    pub path: String,
    /// The bytes of its build id; empty: it has none.
    pub build_id: Vec<u8>,
}

/// Something wrong with what a reporter has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// What.
    pub kind: DefectKind,
    /// Whose.
    pub reporter: Option<NameId>,
    /// What it reported.
    pub address: u64,
    /// Where it reported it.
    pub trace: Option<TraceId>,
    /// Where the block was allocated that this is about.
    pub alloc: Option<TraceId>,
    /// What the reporter measured, in bytes; 0: it did not say.
    pub measured: u64,
    /// The usable size of the block that this is about, or of all that the reporter has marked; 0: there is none.
    pub usable: u64,
    /// How often the same was found of this reporter at this place.
    pub count: u64,
}

/// What can be wrong with a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DefectKind {
    /// There is no live block: it has been freed, or was allocated before anybody looked.
    NoBlock,
    /// The address is inside a block, and not where it begins.
    Interior,
    /// It is memory of the program's, but not of its heap: on a stack, static, or mapped.
    NotHeap,
    /// The reporter measured less than there is of the block.
    Partly,
    /// The block was freed while its report counted: before the reports were complete, or with a mark that stays and that
    /// nobody took back.
    FreedWhileReported,
    /// The reporter has reported more bytes of heap than it has marked blocks of: [`measured`](Defect::measured) and
    /// [`usable`](Defect::usable). The rest is computed or counted, and looks unreported here; or it is no heap.
    Unmarked,
}

impl DefectKind {
    /// All of them.
    pub const ALL: [DefectKind; 6] = [
        DefectKind::NoBlock,
        DefectKind::Interior,
        DefectKind::NotHeap,
        DefectKind::Partly,
        DefectKind::FreedWhileReported,
        DefectKind::Unmarked,
    ];

    /// What it is called in files.
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

    /// The defect of this name.
    pub fn from_name(name: &str) -> Option<DefectKind> {
        DefectKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
