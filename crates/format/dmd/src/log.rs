//! What a log holds.

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
    /// What types, contexts and reporters are called.
    pub names: Vec<String>,
    /// What is known besides.
    pub about: About,
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
    /// How many there are of each size, in the order of the first of each.
    pub sizes: Vec<Size>,
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
    /// The files that frames are in.
    pub modules: Vec<Module>,
    /// What reporters did wrong.
    pub defects: Vec<Defect>,
    /// How many they were: more than there are in the list, perhaps.
    pub defects_count: u64,
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
    /// The usable size of the block that this is about; 0: there is none.
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
}
