//! The answers of a lookup: frames, and the names in them.

use std::fmt;
use std::sync::Arc;

/// One function at an address: the function itself, or one of those that the compiler inlined
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SymbolFrame {
    /// The function; if no name is known, `module+0xoffset` of its beginning, or of the address if
    /// that is unknown, too.
    pub function: Function,
    /// Source file, spelled as in the debug information (usually absolute).
    pub file: Option<Arc<str>>,
    /// Line in `file`, from 1.
    pub line: Option<u32>,
    /// Column in `line`, from 1.
    pub column: Option<u32>,
    /// True if this function was inlined into the next frame.
    pub inlined: bool,
    /// The source of the name.
    pub source: NameSource,
}

/// The source of a function's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NameSource {
    /// Debug information.
    Debug,
    /// A symbol whose extent covers the address.
    SymbolTable,
    /// The closest symbol before the address, which has no size: most likely right (assembly code).
    Nearest,
    /// No source: the name is `module+0xoffset`.
    None,
}

/// The name of a function, in the spellings that reports need. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function(Arc<Names>);

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Names {
    full: Box<str>,
    /// `None` if it is the same as `full`.
    short: Option<Box<str>>,
    linkage: Option<Box<str>>,
}

impl Function {
    pub(crate) fn new(full: &str, short: &str, linkage: Option<&str>) -> Self {
        let short = (short != full).then(|| short.into());
        Self(Arc::new(Names { full: full.into(), short, linkage: linkage.map(Into::into) }))
    }

    /// Returns the demangled name with type arguments and, in C++, parameters; without a Rust hash
    /// suffix.
    pub fn full(&self) -> &str {
        &self.0.full
    }

    /// Returns the name for tables: without hashes, template and type arguments, parameters and
    /// compiler suffixes.
    pub fn short(&self) -> &str {
        self.0.short.as_deref().unwrap_or(&self.0.full)
    }

    /// Returns the linkage name, if it was mangled.
    pub fn linkage(&self) -> Option<&str> {
        self.0.linkage.as_deref()
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.full())
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.full(), f)
    }
}
