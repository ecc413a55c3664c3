//! Allocators and their entry points.

use std::fmt;

use heapledger_wire::entries::EntryKind;

/// The kind of allocator, by its names or its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Family {
    /// jemalloc, under any prefix.
    Jemalloc,
    /// mimalloc.
    Mimalloc,
    /// tcmalloc, of gperftools or of Google.
    Tcmalloc,
    /// rpmalloc.
    Rpmalloc,
    /// snmalloc.
    Snmalloc,
    /// Firefox's mozjemalloc.
    Mozjemalloc,
    /// Chromium's PartitionAlloc.
    PartitionAlloc,
    /// The malloc of glibc, linked in statically.
    Glibc,
    /// The malloc of musl, linked in statically.
    Musl,
    /// Functions of malloc's names, by an allocator that nothing tells.
    Malloc,
    /// C++'s operators alone, in a program that defines its own and never calls malloc.
    Operators,
    /// The functions by which Rust code calls its global allocator, where that has no entries of
    /// its own.
    RustShims,
}

impl Family {
    /// Returns the name that is displayed.
    pub fn name(self) -> &'static str {
        match self {
            Family::Jemalloc => "jemalloc",
            Family::Mimalloc => "mimalloc",
            Family::Tcmalloc => "tcmalloc",
            Family::Rpmalloc => "rpmalloc",
            Family::Snmalloc => "snmalloc",
            Family::Mozjemalloc => "mozjemalloc",
            Family::PartitionAlloc => "PartitionAlloc",
            Family::Glibc => "glibc's malloc",
            Family::Musl => "musl's malloc",
            Family::Malloc => "an allocator of its own",
            Family::Operators => "C++ operators of its own",
            Family::RustShims => "Rust's global allocator",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The source that an entry was found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Evidence {
    /// The dynamic symbols: the entry is exported.
    DynamicSymbols,
    /// The symbol table of the file.
    SymbolTable,
    /// The symbol table of a separate debug file, or of the one that is packed into the file.
    DebugFile,
    /// The code itself, which is that of a known library.
    Signature,
    /// The calls of a Rust program, and the arguments that the code reads.
    Calls,
}

impl Evidence {
    /// Returns the name that is displayed.
    pub fn name(self) -> &'static str {
        match self {
            Evidence::DynamicSymbols => "dynamic symbols",
            Evidence::SymbolTable => "symbol table",
            Evidence::DebugFile => "debug file",
            Evidence::Signature => "signature",
            Evidence::Calls => "calls",
        }
    }
}

/// An entry point of an allocator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The name: of several names at one address, the one that tells most of its kind.
    pub name: String,
    /// The calling shape.
    pub kind: EntryKind,
    /// The address of its first byte, in the module's own addresses.
    pub at: u64,
    /// The bytes of its code; 0 if that is not known.
    pub size: u64,
    /// The source that it was found by.
    pub evidence: Evidence,
    /// True if other modules can call it by its name.
    pub is_exported: bool,
}

/// An allocator: entries that belong to one heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// The kind of allocator.
    pub family: Family,
    /// The beginning that the names of its entries have before malloc's; often empty.
    pub prefix: String,
    /// Its entries by address; one for each address.
    pub entries: Vec<Entry>,
}

impl Allocator {
    /// Returns the entry of a kind, if there is one.
    pub fn entry(&self, kind: EntryKind) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.kind == kind)
    }
}
