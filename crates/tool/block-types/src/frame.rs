//! Functions at an address, with their type information.

use std::sync::{Arc, OnceLock};

use crate::language::Language;
use crate::rust::parsed::View;
use crate::type_name::TypeName;

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
