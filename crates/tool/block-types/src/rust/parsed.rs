//! A parsed Rust function: its module, the type of which it is a method, its arguments.

use std::sync::{Arc, OnceLock};

use super::name::Type;

/// A parsed function.
#[derive(Debug)]
pub(crate) struct View {
    /// The module that defines it, `alloc::vec::spec_from_iter`: from its source file, else from
    /// its name.
    pub(crate) module: String,
    /// True if it is part of std or of a library of containers: it allocates for its caller.
    pub(crate) library: bool,
    /// Made when they are first asked for.
    pub(super) details: OnceLock<Details>,
}

/// The parts that are needed for some functions only.
#[derive(Debug)]
pub(crate) struct Details {
    /// `Self` with its arguments, if the name has them.
    pub(crate) own: Option<Type>,
    /// Its own name: `push`.
    pub(crate) function: String,
    /// All type arguments, those of the enclosing type first.
    pub(crate) arguments: Vec<Argument>,
    /// True if there may be other instances with the same code that differ in types only.
    pub(crate) generic: bool,
}

/// A type argument.
#[derive(Debug, Clone)]
pub(crate) struct Argument {
    /// `T`, if the debug information has it.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) of: Type,
    pub(crate) size: Option<u64>,
}

impl View {
    /// True if the function is defined in this module, or in one below.
    pub(crate) fn is_in(&self, module: &str) -> bool {
        self.module.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    }
}

impl Details {
    /// Returns the argument of this name, or, if names are not known, the one at this position, not
    /// counting allocators.
    pub(crate) fn argument(&self, name: &str, position: usize) -> Option<&Argument> {
        let named = self.arguments.iter().any(|argument| argument.name.is_some());
        if named {
            return self.arguments.iter().find(|argument| argument.name.as_deref() == Some(name));
        }
        self.arguments.iter().filter(|argument| !is_allocator(&argument.of)).nth(position)
    }

    /// Returns the size of a type, if it is an argument.
    pub(crate) fn size_of(&self, wanted: &Type) -> Option<u64> {
        self.arguments.iter().find(|argument| argument.of == *wanted).and_then(|argument| argument.size)
    }
}

/// True for the types of allocators.
pub(crate) fn is_allocator(of: &Type) -> bool {
    matches!(
        &*of.path(),
        "alloc::alloc::Global"
            | "std::alloc::System"
            | "hashbrown::raw::alloc::inner::Global"
            | "allocator_api2::stable::alloc::global::Global"
    )
}
