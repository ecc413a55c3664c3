//! What a lookup answers: frames, and the names in them.

use std::fmt;
use std::sync::Arc;

/// One function at an address: the function itself, or one of those that the compiler inlined there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function; where no name is known, `module+0xoffset` of its beginning, or of the address if that is not known
    /// either.
    pub function: Function,
    /// Source file, spelled as in the debug information (usually absolute).
    pub file: Option<Arc<str>>,
    /// Line in `file`, from 1.
    pub line: Option<u32>,
    /// Column in `line`, from 1.
    pub column: Option<u32>,
    /// True if this function was inlined into the next frame.
    pub inlined: bool,
    /// Where the name comes from.
    pub source: NameSource,
}

/// Where the name of a function comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NameSource {
    /// Debug information.
    Debug,
    /// A symbol whose extent covers the address.
    SymbolTable,
    /// The closest symbol before the address, which does not tell its extent: most likely right (assembly code).
    Nearest,
    /// Nothing: the name is `module+0xoffset`.
    None,
}

/// The name of a function, in the spellings that reports need. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function(Arc<Names>);

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Names {
    full: Box<str>,
    /// None: same as `full`.
    short: Option<Box<str>>,
    linkage: Option<Box<str>>,
}

impl Function {
    pub(crate) fn new(full: &str, short: &str, linkage: Option<&str>) -> Self {
        let short = (short != full).then(|| short.into());
        Self(Arc::new(Names { full: full.into(), short, linkage: linkage.map(Into::into) }))
    }

    /// The function of this name, which may be mangled or not.
    pub fn named(name: &str) -> Function {
        crate::demangle::function(name.as_bytes())
    }

    /// The demangled name with type arguments and, in C++, parameters; without a Rust hash suffix.
    pub fn full(&self) -> &str {
        &self.0.full
    }

    /// The name for tables: without hashes, template and type arguments, parameters and compiler suffixes.
    pub fn short(&self) -> &str {
        self.0.short.as_deref().unwrap_or(&self.0.full)
    }

    /// The name as the linker knows it, if it was mangled.
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
