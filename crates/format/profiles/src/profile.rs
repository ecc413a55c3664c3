//! What is exported and imported: stacks, with what they hold.

use std::borrow::Cow;

/// Where the memory of a program went. Indices point into the lists beside them; a writer leaves out what an index that is out
/// of bounds points to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The command line of the program.
    pub command: String,
    /// Its number; 0: not known.
    pub pid: u32,
    /// When it began to be observed: nanoseconds since the UNIX epoch; 0: not known.
    pub start_unix_ns: u64,
    /// For how long.
    pub duration_ns: u64,
    /// When the most was live, from the beginning.
    pub peak_ns: u64,
    /// When what is [live](Amounts::live) was: words for people.
    pub moment: String,
    /// What is of interest: the only figure of formats that have a place for one, and the first that others show.
    pub shown: Figure,
    /// The same moment, from the beginning; 0: not known.
    pub moment_ns: u64,
    /// What was recorded, and what of it is here: lines for people.
    pub comments: Vec<String>,
    /// The mean distance of sample points in bytes, if blocks were sampled. Amounts are estimates then: what the sampled blocks
    /// stand for.
    pub sampling_bytes: Option<u64>,
    /// Which amounts are known; the others are 0.
    pub known: Known,
    /// Executables and libraries; the first is the program.
    pub modules: Vec<Module>,
    /// Distinct places in stacks.
    pub locations: Vec<Location>,
    /// Distinct stacks, with what they hold.
    pub samples: Vec<Sample>,
    /// What was live over time, in order; empty: that is not known.
    pub timeline: Vec<Point>,
    /// What each sample held at further moments, in order.
    pub snapshots: Vec<Snapshot>,
    /// The processes that [events](Event) are of; empty: one, that of the profile.
    pub processes: Vec<Process>,
}

/// One of the figures of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Figure {
    /// The bytes of what was live at the moment of the profile.
    #[default]
    LiveBytes,
    /// How many blocks these were.
    LiveBlocks,
    /// The bytes of all allocations.
    AllocatedBytes,
    /// How many these were.
    Allocations,
    /// How many of them were temporary.
    Temporaries,
}

impl Figure {
    /// This figure of a sample.
    pub fn of(self, amounts: &Amounts) -> u64 {
        match self {
            Figure::LiveBytes => amounts.live.bytes,
            Figure::LiveBlocks => amounts.live.blocks,
            Figure::AllocatedBytes => amounts.allocated.bytes,
            Figure::Allocations => amounts.allocated.blocks,
            Figure::Temporaries => amounts.temporaries,
        }
    }

    /// Whether that is a number of bytes.
    pub fn is_bytes(self) -> bool {
        matches!(self, Figure::LiveBytes | Figure::AllocatedBytes)
    }

    /// What is counted, in words for people.
    pub fn counted(self) -> &'static str {
        match self {
            Figure::LiveBytes | Figure::AllocatedBytes => "bytes",
            Figure::LiveBlocks => "blocks",
            Figure::Allocations => "allocations",
            Figure::Temporaries => "temporary allocations",
        }
    }

    /// Which amounts it is one of.
    pub(crate) fn amounts(self) -> Known {
        match self {
            Figure::LiveBytes | Figure::LiveBlocks => Known { live: true, ..Known::NONE },
            Figure::AllocatedBytes | Figure::Allocations => Known { allocated: true, ..Known::NONE },
            Figure::Temporaries => Known { temporaries: true, ..Known::NONE },
        }
    }
}

/// Which amounts of a profile are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// [`Amounts::allocated`].
    pub allocated: bool,
    /// [`Amounts::temporaries`].
    pub temporaries: bool,
    /// [`Amounts::live`].
    pub live: bool,
    /// [`Amounts::peak`].
    pub peak: bool,
    /// [`Amounts::end`].
    pub end: bool,
    /// [`Amounts::most`].
    pub most: bool,
    /// [`Amounts::lifetimes_ns`].
    pub lifetimes: bool,
}

impl Known {
    /// None of them.
    pub const NONE: Known = Known {
        allocated: false,
        temporaries: false,
        live: false,
        peak: false,
        end: false,
        most: false,
        lifetimes: false,
    };
}

/// An executable or a library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// Its build id, in hexadecimal; empty if it has none.
    pub build_id: String,
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// What is at the first address: an offset in the file.
    pub file_offset: u64,
    /// What to subtract (wrapping) from an address to have the module's own, if that is known; else its file's headers tell.
    pub bias: Option<u64>,
}

/// A place in a stack: an address, and the functions that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location {
    /// Index of its module, if that is known.
    pub module: Option<usize>,
    /// The address, inside the call; 0 for what is no place in a program.
    pub address: u64,
    /// The functions: inlined ones first, the innermost of them at the very front.
    pub frames: Vec<Frame>,
}

/// A function at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name without type arguments and parameters.
    pub function: String,
    /// Its name with them.
    pub full_name: String,
    /// Whether that is a name, rather than an address.
    pub known: bool,
    /// The source file; empty if not known.
    pub file: String,
    /// The line; 0 if not known.
    pub line: u32,
}

/// A stack and what it holds. Stacks that are equal but for their labels are different samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Indices of its locations, the innermost first.
    pub locations: Vec<usize>,
    /// The rest that is known of it: names and values. Ours are `type`, `context`, `task`, `heap`
    /// and `owner`.
    pub labels: Vec<(Cow<'static, str>, String)>,
    /// What it holds.
    pub amounts: Amounts,
}

/// What a stack holds at several moments, and what it ever allocated. Bytes are those that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// All allocations.
    pub allocated: Amount,
    /// How many of these were freed before the same thread allocated again.
    pub temporaries: u64,
    /// What was live at the moment of the profile.
    pub live: Amount,
    /// What was live at the program's peak.
    pub peak: Amount,
    /// What was live at the end.
    pub end: Amount,
    /// The most bytes that were ever live of this stack, and how many blocks they were.
    pub most: Amount,
    /// For how long its blocks lived, added up; those that are live at the end until then.
    pub lifetimes_ns: u64,
}

/// Blocks, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub blocks: u64,
    /// The bytes of all of them.
    pub bytes: u64,
}

impl Amount {
    /// Adds another one.
    pub fn add(&mut self, other: Amount) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What was live at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// When, from the beginning.
    pub time_ns: u64,
    /// What was live.
    pub live: Amount,
}

/// What was live at a moment, by stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// When, from the beginning.
    pub time_ns: u64,
    /// What each of [`Profile::samples`] held, in their order.
    pub live: Vec<Amount>,
}

/// A process, of formats that tell them apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// What it is called.
    pub name: String,
    /// When it began, from the beginning.
    pub start_ns: u64,
    /// When it ended; `None` if it did not.
    pub end_ns: Option<u64>,
    /// What was live in it over time, in order; empty: that is not known.
    pub timeline: Vec<Point>,
}

/// An allocation or a free, of formats that have them one by one. A reallocation is a free and an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, from the beginning.
    pub time_ns: u64,
    /// Whose: an index of [`Profile::processes`].
    pub process: usize,
    /// The kernel's number of the thread; 0: not known.
    pub thread: u32,
    /// The address of the block, or another number that no other block of the process has at the time.
    pub address: u64,
    /// Which of the two.
    pub kind: EventKind,
}

/// What happens to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It is allocated.
    Allocated {
        /// What was asked for.
        bytes: u64,
        /// Whose stack allocates: an index of [`Profile::samples`].
        sample: usize,
    },
    /// It is freed.
    Freed {
        /// What it was when it was allocated.
        bytes: u64,
        /// Whose stack allocated it.
        sample: usize,
    },
}
