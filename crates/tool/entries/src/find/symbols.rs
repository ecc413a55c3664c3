//! The functions of a module whose names may be those of entries.

use std::collections::{HashMap, HashSet};

use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, elf};

use super::names::{
    FAMILIES, JEMALLOC_OPERATORS, LENGTH_MAX, LINKED, MALLOC, MALLOC_MARKERS, OPERATORS, SANITIZERS, SHIMS,
    SYSTEM_ALLOCATOR,
};
use crate::allocator::{Evidence, Family};
use crate::error::Result;
use crate::module::Module;

/// The most functions that are kept: those of all known allocators together are a tenth of that.
const FUNCTIONS_MAX: usize = 8192;

/// The most bytes of read-only data that are searched for an allocator's texts: they are near the
/// beginning of it in Chromium, whose data has 70 MB.
const TEXTS_MAX: usize = 64 << 20;

/// Texts that only one allocator has. They name the allocator of a stripped program that defines
/// malloc.
const TEXTS: [(&[u8], Family); 4] = [
    (b"<jemalloc>", Family::Jemalloc),
    (b"mimalloc: ", Family::Mimalloc),
    (b"tcmalloc: ", Family::Tcmalloc),
    (b"partition_alloc/partitions", Family::PartitionAlloc),
];

/// A function that is defined in the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) at: u64,
    pub(super) size: u64,
    pub(super) evidence: Evidence,
    pub(super) is_exported: bool,
}

/// The functions of interest.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    by_name: HashMap<String, Function>,
    /// True if there is a symbol table.
    pub(super) has_table: bool,
    /// True if the module defines a sanitizer's runtime.
    pub(super) is_sanitizer: bool,
    /// True if the allocator notifies the recorder itself.
    pub(super) is_linked: bool,
    /// True if a function of another module is called: the module is linked dynamically.
    pub(super) has_imports: bool,
    /// True if another module's malloc is called.
    pub(super) imports_malloc: bool,
    /// True if the standard library's allocator of Rust is called, or may be.
    pub(super) has_system_allocator: bool,
}

impl Symbols {
    pub(super) fn read(module: &Module) -> Result<Symbols> {
        let wanted = wanted();
        let mut symbols = Symbols::default();
        // The first that names a function counts: exported ones, then those of the file itself.
        let own = module.data();
        symbols.add(module, own, elf::SHT_DYNSYM, Evidence::DynamicSymbols, &wanted)?;
        symbols.has_table |= symbols.add(module, own, elf::SHT_SYMTAB, Evidence::SymbolTable, &wanted)?;
        for file in module.debug_files() {
            symbols.has_table |= symbols.add(module, file, elf::SHT_SYMTAB, Evidence::DebugFile, &wanted)?;
        }
        Ok(symbols)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Function> {
        self.by_name.get(name)
    }

    pub(super) fn functions(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Returns the function whose mangled name ends with this: the first by name.
    pub(super) fn shim(&self, end: &str) -> Option<(&str, &Function)> {
        let is_it = |name: &&String| name.len() > LENGTH_MIN_OF_SHIMS && name.ends_with(end);
        let name = self.by_name.keys().filter(is_it).min()?;
        Some((name, &self.by_name[name]))
    }

    /// Adds the functions of interest of one table. Returns false if there is none.
    fn add(
        &mut self,
        module: &Module,
        file: &[u8],
        table: elf::SectionType,
        evidence: Evidence,
        wanted: &HashSet<&str>,
    ) -> Result<bool> {
        let unreadable = |error: object::Error| module.unreadable(error);
        let header = elf::FileHeader64::<Endianness>::parse(file).map_err(unreadable)?;
        let endian = header.endian().map_err(unreadable)?;
        let sections = header.sections(endian, file).map_err(unreadable)?;
        let symbols = sections.symbols(endian, file, table).map_err(unreadable)?;
        let strings = sections.section(symbols.string_section()).and_then(|section| section.data(endian, file));
        let strings: &[u8] = strings.unwrap_or_default();
        for symbol in symbols.iter() {
            // The first symbol of each table has no name.
            self.has_imports |= symbol.is_undefined(endian) && symbol.st_name(endian) != 0;
            // Damaged names of symbols that nobody asks for do no harm.
            let Some(name) = name_at(strings, symbol.st_name(endian)) else { continue };
            let Some(name) = of_interest(name, wanted) else { continue };
            if symbol.is_undefined(endian) {
                self.is_linked |= LINKED.contains(&name);
                self.imports_malloc |= name == "malloc";
                self.has_system_allocator |= SYSTEM_ALLOCATOR.contains(&name);
                continue;
            }
            self.is_sanitizer |= SANITIZERS.contains(&name);
            self.is_linked |= LINKED.contains(&name);
            let at = symbol.st_value(endian);
            if symbol.st_type() != elf::STT_FUNC || module.code_at(at).is_none() || self.by_name.len() >= FUNCTIONS_MAX
            {
                continue;
            }
            let is_exported = evidence == Evidence::DynamicSymbols;
            let function = Function { at, size: symbol.st_size(endian), evidence, is_exported };
            self.by_name.entry(name.to_owned()).or_insert(function);
        }
        let is_there = sections.iter().any(|section| section.sh_type(endian) == table) && !symbols.is_empty();
        Ok(is_there)
    }
}

/// Shims are known by the end of their mangled names, which are longer than this.
const LENGTH_MIN_OF_SHIMS: usize = 20;

/// The longest name of any symbol that is read: mangled names of shims are shorter.
const NAME_MAX: usize = 256;

/// Returns a name in a string table, if it has at most [`NAME_MAX`] bytes. The work for a symbol is
/// bounded so, also in a damaged table.
fn name_at(strings: &[u8], at: u32) -> Option<&[u8]> {
    let rest = strings.get(at as usize..)?;
    let rest = &rest[..rest.len().min(NAME_MAX)];
    Some(&rest[..memchr::memchr(0, rest)?])
}

/// Returns the names of interest, without prefixes.
fn wanted() -> HashSet<&'static str> {
    let families = FAMILIES
        .iter()
        .flat_map(|names| names.entries.iter().map(|&(name, _)| name).chain(names.markers.iter().copied()));
    let plain = MALLOC.iter().chain(OPERATORS).map(|&(name, _)| name);
    let markers = MALLOC_MARKERS.iter().map(|&(name, _)| name).chain([JEMALLOC_OPERATORS]);
    families.chain(plain).chain(markers).chain(SANITIZERS).chain(LINKED).chain(SYSTEM_ALLOCATOR).collect()
}

/// Returns a name, without its version, if it may be that of an entry: under a prefix, or as the
/// end of a mangled name.
fn of_interest<'n>(name: &'n [u8], wanted: &HashSet<&str>) -> Option<&'n str> {
    let name = name.split(|&byte| byte == b'@').next()?;
    if name.len() > LENGTH_MAX {
        let is_shim = name.starts_with(b"_R") && SHIMS.iter().any(|(end, _)| name.ends_with(end.as_bytes()));
        return is_shim.then(|| std::str::from_utf8(name).ok()).flatten();
    }
    let name = std::str::from_utf8(name).ok()?;
    if wanted.contains(name) {
        return Some(name);
    }
    if name.starts_with("_R") {
        return SHIMS.iter().any(|(end, _)| name.ends_with(end)).then_some(name);
    }
    let mut ends = name.match_indices('_').map(|(at, _)| &name[at + 1..]);
    ends.any(|end| wanted.contains(end)).then_some(name)
}

/// Returns the allocator whose texts are in the read-only data.
pub(super) fn named_in_text(module: &Module) -> Option<Family> {
    let file = module.data();
    let header = elf::FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, file).ok()?;
    let is_data = |section: &&elf::SectionHeader64<Endianness>| {
        let flags = section.sh_flags(endian);
        let is_read_only = flags.contains(elf::SHF_ALLOC) && !flags.contains(elf::SHF_EXECINSTR);
        is_read_only && !flags.contains(elf::SHF_WRITE) && section.sh_type(endian) == elf::SHT_PROGBITS
    };
    let data = sections.iter().filter(is_data).filter_map(|section| section.data(endian, file).ok());
    let mut left = TEXTS_MAX;
    for bytes in data {
        let bytes = &bytes[..bytes.len().min(left)];
        left -= bytes.len();
        if let Some(&(_, family)) = TEXTS.iter().find(|(text, _)| memchr::memmem::find(bytes, text).is_some()) {
            return Some(family);
        }
    }
    None
}
