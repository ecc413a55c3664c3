//! What is exported: sites, with the names of their frames.

/// The sites of a recording. Indices point into the lists beside them; an encoder leaves out what an index that is out of
/// bounds points to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// When the recording began: nanoseconds since the UNIX epoch.
    pub start_unix_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// What was recorded, and what of it is here: lines for people.
    pub comments: Vec<String>,
    /// Executables and libraries; the first is the program.
    pub modules: Vec<Module>,
    /// Distinct places in stacks.
    pub locations: Vec<Location>,
    /// Distinct stacks, with what they hold.
    pub samples: Vec<Sample>,
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
}

/// A place in a stack: an address, and the functions that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Indices of its locations, the innermost first.
    pub locations: Vec<usize>,
    /// What else is known of it: names and values.
    pub labels: Vec<(&'static str, String)>,
    /// What it holds.
    pub amounts: Amounts,
}

/// What a stack holds, and what it ever allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Allocations in all.
    pub blocks_allocated: u64,
    /// Requested bytes of these.
    pub bytes_allocated: u64,
    /// Blocks live at the moment of the profile.
    pub blocks_live: u64,
    /// Requested bytes of these.
    pub bytes_live: u64,
}
