//! Functions at an address, with their type information.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use super::name::TypeName;
use super::rust::View;
use crate::demangle;
use crate::image::{RawTyped, TypedAnswer};

/// One function at an address, with its type arguments. Strings are shared with all other frames of
/// the module.
#[derive(Debug, Clone, PartialEq)]
pub struct TypedFrame {
    /// The whole name: `<alloc::vec::Vec<u8>>::push`,
    /// `std::vector<int, std::allocator<int> >::push_back(int&&)`. Demangled from the linkage name
    /// if there is one (Rust's legacy mangling leaves out the type arguments), else as in the debug
    /// information, with `scope` in front. Empty if no name is known.
    pub name: Arc<str>,
    /// `DW_AT_name`: `push<u8, alloc::alloc::Global>`; for C++ without scope and arguments.
    pub plain: Option<Arc<str>>,
    /// The enclosing namespaces, classes and functions, joined by `::`. `None` for Rust functions
    /// with a linkage name, which contains the same.
    pub scope: Option<Arc<str>>,
    /// The linkage name, if it is mangled.
    pub linkage: Option<Arc<str>>,
    /// Type parameters and their types: the function's own first, then those of the enclosing
    /// classes, innermost class first.
    pub parameters: Arc<[Parameter]>,
    /// From the unit in the debug information; else from the mangling, and C if there is none.
    pub language: Language,
    /// Source file of this function's own code.
    pub file: Option<Arc<str>>,
    /// Line in `file`, from 1.
    pub line: Option<u32>,
    /// Column in `line`, from 1.
    pub column: Option<u32>,
    /// True if this function was inlined into the next frame.
    pub inlined: bool,
    /// Demangled names of all symbols at the address of the physical function (the last frame),
    /// including its own. There are several if a linker or compiler has merged functions with the
    /// same code.
    pub aliases: Arc<[Arc<str>]>,
    /// Objects that are constructed right after the address, nearest first (C++, last frame only).
    pub constructed: Arc<[Constructed]>,
    /// The symbol name of the function in another module that is called at the address (last frame
    /// only).
    pub called: Option<Arc<str>>,
    /// The variable that receives the result of the call at the address (C and C++, last frame
    /// only).
    pub received: Option<Received>,
    /// The types of blocks in the source text at the line and column, the most certain first; empty
    /// if the source is not available (C and C++).
    pub written: Arc<[Written]>,
    /// The type that the returned pointer points to, if the function returns one; `void` for
    /// `void *` (C and C++).
    pub returns: Option<Pointee>,
    pub(crate) view: Lazy,
}

/// The parsed function, made when a rule first asks for it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lazy(pub(crate) Arc<OnceLock<View>>);

impl PartialEq for Lazy {
    /// Always equal, because it follows from the other fields.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A type parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Parameter {
    /// The name, `T` or `_Tp`.
    pub name: Arc<str>,
    /// The type that it stands for.
    pub type_name: TypeName,
    /// Its size, if the debug information has it.
    pub size: Option<u64>,
    /// True for a parameter of an enclosing class.
    pub of_class: bool,
}

/// A constructor that is inlined or called after an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Constructed {
    /// Its class.
    pub class: TypeName,
    /// Size of the class.
    pub size: Option<u64>,
    /// Bytes from the address to the constructor's code.
    pub distance: u32,
    /// The line that it is called on.
    pub line: Option<u32>,
    /// The column.
    pub column: Option<u32>,
}

/// A variable that receives the result of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Received {
    /// Its name.
    pub variable: Arc<str>,
    /// The type that it points to.
    pub type_name: TypeName,
    /// The size of that type.
    pub size: Option<u64>,
}

/// The type of a block according to the source text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Written {
    /// The type.
    pub type_name: TypeName,
    /// Its size.
    pub size: Option<u64>,
    /// True if there are several: `new X[n]`, `malloc(n * sizeof(X))`.
    pub is_array: bool,
    /// True if there is more behind it: `malloc(sizeof(X) + n)`.
    pub is_more: bool,
    /// True if this is only the type of the variable that receives the result.
    pub is_result: bool,
}

/// The target of a pointer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pointee {
    /// The type.
    pub type_name: TypeName,
    /// Its size.
    pub size: Option<u64>,
}

/// The language of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// Rust.
    Rust,
    /// C++.
    Cxx,
    /// C, and assembly.
    C,
    /// Another language, or unknown.
    Other,
}

impl Language {
    pub(crate) fn of_unit(language: gimli::DwLang) -> Self {
        match language {
            gimli::DW_LANG_Rust => Self::Rust,
            gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20 => Self::Cxx,
            gimli::DW_LANG_C
            | gimli::DW_LANG_C89
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_C17
            | gimli::DW_LANG_Mips_Assembler => Self::C,
            _ => Self::Other,
        }
    }

    fn of_symbol(name: &[u8]) -> Self {
        if name.starts_with(b"_R") || demangle::is_legacy_rust(name) || name.starts_with(b"__rust_") {
            Self::Rust
        } else if demangle::is_mangled(name) {
            Self::Cxx
        } else {
            Self::C
        }
    }
}

impl TypedFrame {
    /// True if the source text of the function can tell the types of blocks.
    pub(crate) fn has_source(&self) -> bool {
        matches!(self.language, Language::C | Language::Cxx)
    }

    /// Returns the type that the returned pointer points to, if there is one.
    pub(crate) fn result(&self) -> Option<&Pointee> {
        self.returns.as_ref().filter(|returned| returned.type_name.full() != "void")
    }

    /// True if the function returns `void *`: then its caller tells what it allocates.
    pub(crate) fn is_wrapper(&self) -> bool {
        self.returns.as_ref().is_some_and(|returned| returned.type_name.full() == "void")
    }

    /// True if this function only hands out memory, and does not tell for what.
    pub(crate) fn is_allocator(&self) -> bool {
        const PREFIXES: [&str; 10] = [
            "operator new",
            "alloc::alloc::",
            "<alloc::alloc::Global",
            "__rustc::__r",
            "__rust_",
            "__rdl_",
            "__rg_",
            "std::alloc::",
            "std::sys::alloc::",
            "<std::alloc::System",
        ];
        const NAMES: [&str; 12] = [
            "malloc",
            "calloc",
            "realloc",
            "memalign",
            "aligned_alloc",
            "posix_memalign",
            "valloc",
            "pvalloc",
            "reallocarray",
            "__libc_malloc",
            "__libc_calloc",
            "__libc_realloc",
        ];
        let name = &*self.name;
        NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// Makes frames from answers. Keeps all strings that it has given out.
#[derive(Debug, Default)]
pub(crate) struct Rendering {
    strings: HashSet<Arc<str>>,
    demangled: HashMap<Box<[u8]>, Arc<str>>,
    /// Keyed by the name, the plain name and the source file.
    views: HashMap<[usize; 3], Lazy>,
}

impl Rendering {
    /// Returns the frames of an answer; never empty.
    pub(crate) fn frames(&mut self, answer: TypedAnswer) -> Arc<[TypedFrame]> {
        let aliases: Arc<[Arc<str>]> = answer.aliases.iter().map(|name| self.demangled(name)).collect();
        let called = answer.called.as_deref().map(|name| self.string(&String::from_utf8_lossy(name)));
        let mut raw = answer.frames;
        if raw.is_empty() {
            raw.push(RawTyped::default());
        }
        let last = raw.len() - 1;
        let frames = raw.into_iter().enumerate().map(|(at, frame)| {
            let mut frame = self.frame(frame, answer.symbol.as_deref().filter(|_| at == last));
            frame.inlined = at < last;
            frame.aliases = if at == last { aliases.clone() } else { Arc::default() };
            if at == last {
                frame.constructed = answer.constructed.clone();
                frame.received = answer.received.clone();
                frame.called = called.clone();
            }
            frame
        });
        frames.collect()
    }

    /// Makes a frame. `symbol` is the physical function's, if this is that function.
    fn frame(&mut self, frame: RawTyped, symbol: Option<&[u8]>) -> TypedFrame {
        let facts = frame.facts.unwrap_or_default();
        // Line tables have no linkage names, but the symbol table has that of the physical
        // function.
        let linkage = facts.linkage.as_deref().or(symbol).filter(|name| demangle::is_mangled(name));
        let scope = facts.scope.as_deref().map(|scope| self.string(scope));
        let plain = facts.name.as_deref().map(|plain| self.string(plain));
        let name = match (linkage, &plain, &scope) {
            (Some(linkage), ..) => self.demangled(linkage),
            (None, Some(plain), Some(scope)) if !scope.is_empty() => self.string(&format!("{scope}::{plain}")),
            (None, Some(plain), _) => plain.clone(),
            (None, None, _) => self.demangled(symbol.unwrap_or_default()),
        };
        let linkage = linkage.map(|name| self.string(&String::from_utf8_lossy(name)));
        let file = frame.file.map(|file| self.string(&file));
        let address = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.as_ptr().addr());
        let view = [name.as_ptr().addr(), address(&plain), address(&file)];
        let view = self.views.entry(view).or_default().clone();
        TypedFrame {
            name,
            plain,
            scope,
            linkage,
            parameters: facts.parameters.clone(),
            language: frame.language.or_else(|| symbol.map(Language::of_symbol)).unwrap_or(Language::Other),
            file,
            line: frame.line,
            column: frame.column,
            inlined: false,
            aliases: Arc::default(),
            constructed: Arc::default(),
            called: None,
            received: None,
            written: if frame.written.is_empty() { Arc::default() } else { frame.written.into() },
            returns: frame.returns,
            view,
        }
    }

    fn demangled(&mut self, name: &[u8]) -> Arc<str> {
        if let Some(demangled) = self.demangled.get(name) {
            return demangled.clone();
        }
        let demangled = self.string(demangle::function(name).full());
        self.demangled.insert(name.into(), demangled.clone());
        demangled
    }

    fn string(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.strings.insert(text.clone());
        text
    }
}
