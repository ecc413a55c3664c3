//! Allocators that a program has, by the names of its files and functions.

use std::collections::BTreeSet;

use object::{Object, ObjectSymbol, ReadCache};

use super::Allocator;
use crate::process::{Elf, open_file};
use crate::smaps::SystemMapping;

/// The most symbols of a file that are looked at.
const SYMBOLS_MAX: usize = 1 << 21;
/// Parts of the names of files, and the names of functions, by which allocators are known.
const FILES: [(&str, Allocator); 5] = [
    ("libjemalloc", Allocator::Jemalloc),
    ("libmimalloc", Allocator::Mimalloc),
    ("libtcmalloc", Allocator::Tcmalloc),
    ("ld-musl", Allocator::Musl),
    ("linux-musl/libc.so", Allocator::Musl),
];
const FUNCTIONS: [(&[u8], Allocator); 7] = [
    (b"mallocx", Allocator::Jemalloc),
    (b"je_mallocx", Allocator::Jemalloc),
    (b"_rjem_mallocx", Allocator::Jemalloc),
    (b"_rjem_malloc", Allocator::Jemalloc),
    (b"mi_malloc", Allocator::Mimalloc),
    (b"tc_malloc", Allocator::Tcmalloc),
    (b"__malloc_alloc_meta", Allocator::Musl),
];

/// Returns the allocators that the files of a process have.
pub(crate) fn find(process: u32, mappings: &[SystemMapping]) -> BTreeSet<Allocator> {
    let files: BTreeSet<&str> = mappings
        .iter()
        .filter(|mapping| mapping.inode != 0 && !mapping.is_shared && mapping.name.starts_with('/'))
        .map(|mapping| mapping.name.strip_suffix(" (deleted)").unwrap_or(&mapping.name))
        .collect();
    let mut found = BTreeSet::new();
    for file in files {
        let by_name: Vec<Allocator> =
            FILES.iter().filter(|(part, _)| file.contains(part)).map(|(_, allocator)| *allocator).collect();
        match by_name.is_empty() {
            true => found.extend(by_functions(process, file)),
            false => found.extend(by_name),
        }
    }
    found
}

/// Returns the allocators whose functions a file has.
fn by_functions(process: u32, file: &str) -> BTreeSet<Allocator> {
    // The path is the process's own view of it, which may be in a container.
    let Some(opened) = open_file(&format!("/proc/{process}/root{file}")) else { return BTreeSet::new() };
    let cache = ReadCache::new(opened);
    let Ok(elf) = Elf::parse(&cache) else { return BTreeSet::new() };
    let symbols = elf.dynamic_symbols().chain(elf.symbols()).take(SYMBOLS_MAX).filter(|symbol| symbol.is_definition());
    let known = symbols.filter_map(|symbol| {
        let name = symbol.name_bytes().ok()?;
        FUNCTIONS.iter().find(|(function, _)| *function == name).map(|(_, allocator)| *allocator)
    });
    known.collect()
}
