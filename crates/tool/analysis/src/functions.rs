//! The functions of a session, and the frames of stacks that they are in.

use std::sync::Arc;

use heapledger_dmd::CodeClass;
use heapledger_recording::ModuleId;

use crate::pattern::Pattern;
use crate::stacks::StackFrame;

/// A function in a stack: one that was called, or one that the compiler inlined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function.
    pub function: FunctionId,
    /// The position in it, if that is known.
    pub location: Option<Location>,
    /// True if it was inlined into the next frame.
    pub inlined: bool,
}

impl Frame {
    /// Returns a frame of which nothing but its name is known.
    pub(crate) fn named(function: FunctionId) -> Frame {
        Frame { function, location: None, inlined: false }
    }
}

/// A position in a stack, with the functions that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The recorded frame; `None` for a stack that could not be taken.
    pub at: Option<StackFrame>,
    /// The function, and before it those that were inlined there, the innermost first. Never empty.
    pub frames: Vec<Frame>,
}

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The file, as in the debug information.
    pub file: Arc<str>,
    /// The line; 0 if only the file is known.
    pub line: u32,
}

/// A function of the session. Functions with the same short name in one source file of one module
/// are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub(crate) u32);

/// The names of a function, and how it is classified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    /// The name without type arguments and parameters.
    pub short: Arc<str>,
    /// The name with type arguments and parameters; the first of several.
    pub full: Arc<str>,
    /// The module, or [`ModuleId::UNKNOWN`].
    pub module: ModuleId,
    /// True if it only passes on requests for memory.
    pub allocator: bool,
    /// The class of its code: the program's own, a library and so on.
    pub whose: CodeClass,
    /// True if it was found to allocate for its callers.
    pub wrapper: bool,
    /// True if the name is a real name, and not an address.
    pub known: bool,
    /// True if this is not a function, but the name of something else, such as a scope or a line.
    pub is_label: bool,
}

/// A function that has no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// The size of its code.
    pub code_bytes: u64,
    /// The function with a name that it comes after.
    pub after: Option<String>,
    /// The function with a name that it comes before.
    pub before: Option<String>,
}

impl FunctionName {
    /// True if the pattern matches the short or the full name.
    pub fn matches(&self, pattern: &Pattern) -> bool {
        pattern.matches(&self.short) || pattern.matches(&self.full)
    }
}
