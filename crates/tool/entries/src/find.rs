//! Finds allocators by the names of functions.

mod names;
mod signatures;
mod stripped;
mod symbols;

use std::collections::BTreeMap;

use heapledger_wire::entries::{Effect, EntryKind};

use self::names::{FAMILIES, JEMALLOC_OPERATORS, MALLOC, MALLOC_MARKERS, Names, OPERATORS, SHIMS};
use self::symbols::{Function, Symbols};
use crate::allocator::{Allocator, Entry, Family};
use crate::error::Result;
use crate::module::Module;

/// The allocators of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The allocators, in the order of their lowest addresses.
    pub allocators: Vec<Allocator>,
    /// True if the file has a symbol table, or a debug file with one: all allocators that are known
    /// by name are found then. Otherwise only exported entries are, and signatures.
    pub has_names: bool,
}

/// Finds the allocators in a module. Most programs and libraries have none.
///
/// A function is an entry if its name is one of a known allocator, under any prefix that is empty
/// or ends with `_`. A set of them is an allocator only if at least one allocates and one frees,
/// and the name of one is that allocator's alone: `xmalloc` and `g_malloc` are not. Functions of
/// malloc's own names are an allocator without more evidence. Rust's shims are entries only if
/// there is no other allocator and none of the system's is called.
///
/// In a statically linked program without names, the code of known C libraries' malloc is looked
/// for: a function is found if its code occurs once. In a stripped Rust program, jemalloc and
/// mimalloc are found by the calls of their functions.
///
/// The cost is that of reading all symbols once, or all code for signatures, or of decoding all
/// code of a Rust program that has an allocator's texts.
///
/// # Errors
///
/// Fails if a symbol table is damaged.
pub fn find(module: &Module) -> Result<Found> {
    let symbols = Symbols::read(module)?;
    let mut found = Found { allocators: vec![], has_names: symbols.has_table };
    if symbols.is_sanitizer || symbols.is_linked {
        return Ok(found);
    }
    let mut allocators: Vec<Allocator> = FAMILIES.iter().flat_map(|names| by_prefix(names, &symbols)).collect();
    if let Some(malloc) = plain_malloc(module, &symbols) {
        join(&mut allocators, malloc);
    }
    if let Some(owner) = owner_of_operators(&allocators) {
        let operators = entries(OPERATORS, "", &symbols);
        if are_own(&operators, &allocators[owner], module, &symbols) {
            allocators[owner].entries.extend(operators);
        }
    }
    if allocators.is_empty() {
        allocators.extend(operators(&symbols).or_else(|| shims(&symbols)));
    }
    if allocators.is_empty() && !symbols.has_table && !symbols.has_imports {
        allocators.extend(signatures::find(module).filter(is_coherent));
    }
    if allocators.is_empty() && !symbols.has_table {
        allocators.extend(stripped::find(module).filter(is_coherent));
    }
    for allocator in &mut allocators {
        one_for_each_address(&mut allocator.entries);
    }
    allocators.sort_by_key(|allocator| allocator.entries.first().map(|entry| entry.at));
    found.allocators = allocators;
    Ok(found)
}

/// Returns the allocators of one family: one for each prefix.
fn by_prefix(names: &Names, symbols: &Symbols) -> Vec<Allocator> {
    let mut markers: BTreeMap<&str, usize> = BTreeMap::new();
    for function in symbols.functions() {
        for marker in names.markers {
            if let Some(prefix) = prefix_of(function, marker) {
                *markers.entry(prefix).or_default() += 1;
            }
        }
    }
    let with_enough = markers.into_iter().filter(|&(_, count)| count >= names.markers_min);
    let allocator = |(prefix, _): (&str, usize)| Allocator {
        family: names.family,
        prefix: prefix.to_owned(),
        entries: entries(names.entries, prefix, symbols),
    };
    with_enough.map(allocator).filter(is_coherent).collect()
}

/// Returns the part of a name before `marker`, if a prefix may be so.
fn prefix_of<'n>(name: &'n str, marker: &str) -> Option<&'n str> {
    name.strip_suffix(marker).filter(|prefix| prefix.is_empty() || prefix.ends_with('_'))
}

/// Returns the functions with these names under a prefix.
fn entries(names: &[(&str, EntryKind)], prefix: &str, symbols: &Symbols) -> Vec<Entry> {
    let entry = |&(name, kind): &(&str, EntryKind)| {
        let name = format!("{prefix}{name}");
        let function = *symbols.get(&name)?;
        Some(new_entry(name, kind, function))
    };
    names.iter().filter_map(entry).collect()
}

fn new_entry(name: String, kind: EntryKind, function: Function) -> Entry {
    let Function { at, size, evidence, is_exported } = function;
    Entry { name, kind, at, size, evidence, is_exported }
}

/// True if blocks can be had from an allocator, and given back.
fn is_coherent(allocator: &Allocator) -> bool {
    let has = |wanted: &[Effect]| allocator.entries.iter().any(|entry| wanted.contains(&entry.kind.layout().effect));
    has(&[Effect::Allocate, Effect::AllocateOut]) && has(&[Effect::Free])
}

/// Returns the functions of malloc's own names, if the module defines malloc and free.
fn plain_malloc(module: &Module, symbols: &Symbols) -> Option<Allocator> {
    let entries = entries(MALLOC, "", symbols);
    let defines = |kind: EntryKind| entries.iter().any(|entry| entry.kind == kind);
    if !defines(EntryKind::Malloc) || !defines(EntryKind::Free) {
        return None;
    }
    let by_function = MALLOC_MARKERS.iter().find(|(name, _)| symbols.get(name).is_some());
    let family = by_function.map(|&(_, family)| family).or_else(|| symbols::named_in_text(module));
    Some(Allocator { family: family.unwrap_or(Family::Malloc), prefix: String::new(), entries })
}

/// Adds malloc's functions to the allocator that they belong to: one that has an entry at the same
/// address, or one whose family is the same, or the only one if nothing else says whose they are.
fn join(allocators: &mut Vec<Allocator>, malloc: Allocator) {
    let shares = |allocator: &Allocator| {
        let is_at = |entry: &Entry| malloc.entries.iter().any(|other| other.at == entry.at);
        allocator.entries.iter().any(is_at)
    };
    let is_same = |allocator: &Allocator| allocator.family == malloc.family;
    let is_unknown = malloc.family == Family::Malloc && allocators.len() == 1 && allocators[0].prefix.is_empty();
    let owner = allocators.iter().position(shares).or_else(|| allocators.iter().position(is_same));
    match owner.or(is_unknown.then_some(0)) {
        Some(owner) => allocators[owner].entries.extend(malloc.entries),
        None => allocators.push(malloc),
    }
}

/// Returns the allocator to which C++'s operators belong, if the module defines them. Those of a
/// statically linked C++ library call malloc, and need no patch where malloc is the C library's.
fn owner_of_operators(allocators: &[Allocator]) -> Option<usize> {
    let has_malloc = |allocator: &Allocator| {
        let is_malloc = |entry: &Entry| entry.name == "malloc" || OPERATOR_ALIASES.contains(&entry.name.as_str());
        !matches!(allocator.family, Family::Glibc | Family::Musl) && allocator.entries.iter().any(is_malloc)
    };
    allocators.iter().position(has_malloc)
}

/// True if C++'s operators are the allocator's own. Those of a program may do anything: its nothrow
/// `operator new` may call the one that throws, and be `noexcept`. They call malloc, which is an
/// entry by itself.
fn are_own(operators: &[Entry], allocator: &Allocator, module: &Module, symbols: &Symbols) -> bool {
    let is_alias = |operator: &Entry| allocator.entries.iter().any(|entry| entry.at == operator.at);
    match allocator.family {
        // Theirs end the program instead of throwing.
        Family::Mozjemalloc | Family::PartitionAlloc => true,
        Family::Jemalloc => !module.is_program() || symbols.get(JEMALLOC_OPERATORS).is_some(),
        // Operators of tcmalloc and mimalloc are aliases of functions with names of their own. In a
        // stripped program `operator delete` still is one of `free`.
        Family::Mimalloc | Family::Tcmalloc => operators
            .iter()
            .any(|operator| matches!(operator.kind, EntryKind::New | EntryKind::Delete) && is_alias(operator)),
        _ => operators.iter().any(|operator| operator.kind == EntryKind::New && is_alias(operator)),
    }
}

/// The names that allocators give to their operators, of which C++'s are aliases.
const OPERATOR_ALIASES: [&str; 3] = ["tc_new", "TCMallocInternalNew", "mi_new"];

/// Returns C++'s operators, if the module defines them and never calls malloc.
fn operators(symbols: &Symbols) -> Option<Allocator> {
    let entries = entries(OPERATORS, "", symbols);
    let allocator = Allocator { family: Family::Operators, prefix: String::new(), entries };
    (!symbols.imports_malloc && is_coherent(&allocator)).then_some(allocator)
}

/// Returns Rust's shims, if all of those are there that every program calls.
fn shims(symbols: &Symbols) -> Option<Allocator> {
    if symbols.has_system_allocator {
        return None;
    }
    let shim = |&(end, kind): &(&str, EntryKind)| {
        let (name, function) = symbols.shim(end)?;
        Some(new_entry(name.to_owned(), kind, *function))
    };
    let entries: Vec<Entry> = SHIMS.iter().filter_map(shim).collect();
    let allocator = Allocator { family: Family::RustShims, prefix: String::new(), entries };
    (allocator.entries.len() >= SHIMS.len() - 1 && is_coherent(&allocator)).then_some(allocator)
}

/// Sorts entries by address, and keeps one for each: the kind that asks least of the caller, under
/// the name that a user knows best.
fn one_for_each_address(entries: &mut Vec<Entry>) {
    let rank = |entry: &Entry| (entry.kind.layout().throws, entry.kind, entry.name.starts_with('_'), entry.name.len());
    entries.sort_by(|a, b| (a.at, rank(a)).cmp(&(b.at, rank(b))).then_with(|| b.name.cmp(&a.name)));
    entries.dedup_by(|later, first| {
        let is_same = later.at == first.at;
        first.is_exported |= is_same && later.is_exported;
        is_same
    });
}

#[cfg(test)]
mod tests;
