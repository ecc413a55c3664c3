//! The data that is exported and imported: stacks with their amounts.

use std::borrow::Cow;

/// The memory of a program by stack. Indices point into the lists beside them; a writer leaves
/// out items whose index is out of bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The command line of the program.
    pub command: String,
    /// The process id; 0: not known.
    pub pid: u32,
    /// The time at which observation began: nanoseconds since the UNIX epoch; 0: not known.
    pub start_unix_ns: u64,
    /// The time for which the program was observed.
    pub duration_ns: u64,
    /// The time of the peak, from the beginning.
    pub peak_ns: u64,
    /// A description, for people, of the moment to which [live](Amounts::live) amounts apply.
    pub moment: String,
    /// The figure of interest: the only one in formats that have a place for one, and the first
    /// that others show.
    pub shown: Figure,
    /// The moment to which live amounts apply, from the beginning; 0: not known.
    pub moment_ns: u64,
    /// Lines for people about what was recorded, and which part of it is here.
    pub comments: Vec<String>,
    /// The mean distance of sample points in bytes, if blocks were sampled. Amounts are then
    /// estimates: each sampled block counts with its weight.
    pub sampling_bytes: Option<u64>,
    /// The amounts that are known; the others are 0.
    pub known: Known,
    /// Executables and libraries; the first is the program.
    pub modules: Vec<Module>,
    /// Distinct places in stacks.
    pub locations: Vec<Location>,
    /// Distinct stacks, with their amounts.
    pub samples: Vec<Sample>,
    /// The live blocks and bytes over time, in order; empty: not known.
    pub timeline: Vec<Point>,
    /// The live amounts of each sample at further moments, in order.
    pub snapshots: Vec<Snapshot>,
    /// The processes that [events](Event) belong to; empty: only the profile's own process.
    pub processes: Vec<Process>,
    /// The names of threads in events.
    pub threads: Vec<Thread>,
    /// The moments at which the allocator gave memory back to the system, in order.
    pub purges: Vec<Purge>,
    /// True if the file that was read ends before the program did.
    pub is_cut: bool,
}

/// One of the figures of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Figure {
    /// The live bytes at the moment of the profile.
    #[default]
    LiveBytes,
    /// The live blocks at that moment.
    LiveBlocks,
    /// The bytes of all allocations.
    AllocatedBytes,
    /// The number of all allocations.
    Allocations,
    /// The number of temporary allocations.
    Temporaries,
}

impl Figure {
    /// Returns this figure of a sample.
    pub fn of(self, amounts: &Amounts) -> u64 {
        match self {
            Figure::LiveBytes => amounts.live.bytes,
            Figure::LiveBlocks => amounts.live.blocks,
            Figure::AllocatedBytes => amounts.allocated.bytes,
            Figure::Allocations => amounts.allocated.blocks,
            Figure::Temporaries => amounts.temporaries,
        }
    }

    /// True if the figure is a number of bytes.
    pub fn is_bytes(self) -> bool {
        matches!(self, Figure::LiveBytes | Figure::AllocatedBytes)
    }

    /// Returns what is counted, in words for people.
    pub fn counted(self) -> &'static str {
        match self {
            Figure::LiveBytes | Figure::AllocatedBytes => "bytes",
            Figure::LiveBlocks => "blocks",
            Figure::Allocations => "allocations",
            Figure::Temporaries => "temporary allocations",
        }
    }

    /// Returns the amounts to which the figure belongs.
    pub(crate) fn amounts(self) -> Known {
        match self {
            Figure::LiveBytes | Figure::LiveBlocks => Known { live: true, ..Known::NONE },
            Figure::AllocatedBytes | Figure::Allocations => Known { allocated: true, ..Known::NONE },
            Figure::Temporaries => Known { temporaries: true, ..Known::NONE },
        }
    }
}

/// The amounts of a profile that are known.
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
    /// No amounts.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// Its build id, in hexadecimal; empty if it has none.
    pub build_id: String,
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// The offset in the file of the first address.
    pub file_offset: u64,
    /// The number to subtract (wrapping) from an address to get the module's own address, if known;
    /// otherwise the file's headers tell it.
    pub bias: Option<u64>,
}

/// A place in a stack: an address, and the functions that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location {
    /// Index of its module, if that is known.
    pub module: Option<usize>,
    /// The address, inside the call; 0 if this is not a place in a program.
    pub address: u64,
    /// The functions: inlined ones first, the innermost of them at the very front.
    pub frames: Vec<Frame>,
}

/// A function at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name without type arguments and parameters.
    pub function: String,
    /// Its name with type arguments and parameters.
    pub full_name: String,
    /// True if `function` is a name, not an address.
    pub known: bool,
    /// The source file; empty if not known.
    pub file: String,
    /// The line; 0 if not known.
    pub line: u32,
}

/// A stack and its amounts. Stacks that are equal but for their labels are different samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Indices of its locations, the innermost first.
    pub locations: Vec<usize>,
    /// Further names and values. Ours are `type`, `context`, `task`, `heap` and `owner`.
    pub labels: Vec<(Cow<'static, str>, String)>,
    /// Its amounts.
    pub amounts: Amounts,
}

/// The amounts of a stack at several moments, and of everything that it ever allocated. Bytes are
/// requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// All allocations.
    pub allocated: Amount,
    /// The number of these that were freed before the same thread allocated again.
    pub temporaries: u64,
    /// The blocks live at the moment of the profile.
    pub live: Amount,
    /// The blocks live at the program's peak.
    pub peak: Amount,
    /// The blocks live at the end.
    pub end: Amount,
    /// The most bytes of this stack that were ever live, and the number of blocks then.
    pub most: Amount,
    /// The sum of its blocks' lifetimes; blocks that are live at the end count until then.
    pub lifetimes_ns: u64,
}

/// Blocks, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of blocks.
    pub blocks: u64,
    /// The bytes of all of them.
    pub bytes: u64,
}

impl Amount {
    /// Adds another amount.
    pub fn add(&mut self, other: Amount) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// The live blocks and bytes at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The time, from the beginning.
    pub time_ns: u64,
    /// The live blocks and bytes.
    pub live: Amount,
}

/// The live blocks and bytes at a moment, by stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The time, from the beginning.
    pub time_ns: u64,
    /// The live amount of each of [`Profile::samples`], in their order.
    pub live: Vec<Amount>,
}

/// A process, for formats that tell processes apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// The time at which it began, from the beginning.
    pub start_ns: u64,
    /// The time at which it ended; `None` if it did not.
    pub end_ns: Option<u64>,
    /// Its live blocks and bytes over time, in order; empty: not known.
    pub timeline: Vec<Point>,
}

/// A purge: the allocator gave unused memory back to the system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purge {
    /// The process id.
    pub pid: u32,
    /// The time at which it began, from the beginning.
    pub start_ns: u64,
    /// The time at which it ended, from the beginning.
    pub end_ns: u64,
    /// The arena's number; 0 for the allocator as a whole.
    pub arena: u64,
    /// The arena's label; empty if it has none.
    pub label: String,
    /// The reason, in a word; empty if it is not known.
    pub reason: String,
    /// The number of pages.
    pub pages: u64,
    /// The number of system calls.
    pub calls: u64,
    /// The number of chunks that the pages were in.
    pub chunks: u64,
}

/// The name of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its number in [events](Event::thread).
    pub number: u32,
    /// The name, as the program set it.
    pub name: String,
}

/// An allocation or a free, for formats that have them one by one. A reallocation is a free and an
/// allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time, from the beginning.
    pub time_ns: u64,
    /// The process: an index of [`Profile::processes`].
    pub process: usize,
    /// The kernel's id of the thread; 0: not known.
    pub thread: u32,
    /// The address of the block, or another number that no other block of the process has at the
    /// time.
    pub address: u64,
    /// The kind: an allocation or a free.
    pub kind: EventKind,
}

/// An allocation or a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The block is allocated.
    Allocated {
        /// The requested bytes.
        bytes: u64,
        /// The allocating stack: an index of [`Profile::samples`].
        sample: usize,
    },
    /// The block is freed.
    Freed {
        /// The bytes requested when it was allocated.
        bytes: u64,
        /// The stack that allocated it.
        sample: usize,
    },
}
