//! Function names from the symbol table.

use object::elf::SHF_EXECINSTR;
use object::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, SectionFlags, SymbolIndex, SymbolKind};

use crate::frame::NameSource;

/// The maximum number of entries examined behind the closest one, for a symbol that encloses it:
/// bounds a lookup in a damaged table.
const STEPS_MAX: usize = 4096;

/// The maximum number of names examined for one address.
const ALIASES_MAX: usize = 32;

/// The maximum distance in bytes of a function from its neighbours: beyond that they are most
/// likely from other source files.
const NEAR: u64 = 16 << 10;

/// The bits of a rank for a symbol's binding: 1 is weak.
const BINDING: u8 = 3;

/// A function in a symbol table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Its linkage name: the best one of its address.
    pub name: &'a [u8],
    /// The certainty that it is the function at the address that was looked up.
    pub source: NameSource,
    /// Its address.
    pub start: u64,
    /// All names of the address, including `name`.
    pub aliases: Vec<&'a [u8]>,
}

/// The functions of one symbol table, by address.
#[derive(Debug)]
pub(crate) struct Symbols<'a> {
    elf: object::File<'a>,
    dynamic: bool,
    entries: Box<[Entry]>,
}

#[derive(Debug)]
struct Entry {
    address: u64,
    end: u64,
    /// The highest `end` up to here: no symbol before reaches further.
    reach: u64,
    index: u32,
    section: u32,
    /// The rank among symbols at one address: the higher, the better.
    rank: u8,
}

impl Entry {
    fn is_weak(&self) -> bool {
        self.rank & BINDING == 1
    }
}

impl<'a> Symbols<'a> {
    /// Reads the functions in `.symtab`, or in `.dynsym`; `None` if there are none.
    pub(crate) fn new(elf: object::File<'a>, dynamic: bool) -> Option<Self> {
        let executable: Vec<bool> = {
            let sections = || elf.sections().map(|section| (section.index().0, section.flags()));
            let count = sections().map(|(index, _)| index + 1).max()?;
            let mut executable = vec![false; count];
            for (index, flags) in sections() {
                executable[index] =
                    matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(SHF_EXECINSTR));
            }
            executable
        };
        let table = if dynamic { elf.dynamic_symbol_table() } else { elf.symbol_table() }?;
        let mut entries: Vec<Entry> = table
            .symbols()
            .filter_map(|symbol| {
                let section = symbol.section_index()?.0;
                if !executable.get(section).copied()? {
                    return None;
                }
                let function = match symbol.kind() {
                    SymbolKind::Text => true,
                    SymbolKind::Unknown => false,
                    _ => return None,
                };
                let (address, size) = (symbol.address(), symbol.size());
                Some(Entry {
                    address,
                    end: address.saturating_add(size),
                    reach: 0,
                    index: u32::try_from(symbol.index().0).ok()?,
                    section: section as u32,
                    rank: rank(function, size, symbol.is_global(), symbol.is_weak()),
                })
            })
            .collect();
        entries.sort_unstable_by_key(|entry| (entry.address, entry.rank, entry.index));
        let mut reach = 0;
        for entry in &mut entries {
            reach = reach.max(entry.end);
            entry.reach = reach;
        }
        (!entries.is_empty()).then_some(Self { elf, dynamic, entries: entries.into() })
    }

    pub(crate) fn is_dynamic(&self) -> bool {
        self.dynamic
    }

    /// Returns the symbol at `address`: the innermost that covers it, or else the closest one
    /// before without a size.
    pub(crate) fn lookup(&self, address: u64) -> Option<Symbol<'a>> {
        let position = self.entries.partition_point(|entry| entry.address <= address);
        let before = &self.entries[..position];
        let mut nearest = None;
        for (step, entry) in before.iter().rev().enumerate() {
            if address < entry.end {
                return self.symbol(position - 1 - step, NameSource::SymbolTable);
            }
            if step == 0 && entry.end == entry.address {
                nearest = Some(position - 1);
            }
            if entry.reach <= address || step == STEPS_MAX {
                break;
            }
        }
        let nearest = nearest.filter(|&at| self.in_section(before[at].section, address))?;
        self.symbol(nearest, NameSource::Nearest)
    }

    /// Returns the names of the closest functions before and after an address that is in none, in
    /// the same section. Functions that every object file may have (templates, inline functions)
    /// are left out, because the linker puts them anywhere.
    pub(crate) fn around(&self, address: u64) -> [Option<&'a [u8]>; 2] {
        let position = self.entries.partition_point(|entry| entry.address <= address);
        let (before, after) = self.entries.split_at(position);
        let is_near = |entry: &&Entry| entry.address.abs_diff(address) <= NEAR;
        let is_neighbour = |entry: &&Entry| !entry.is_weak() && self.in_section(entry.section, address);
        let before = before.iter().rev().take_while(is_near).take(STEPS_MAX).find(is_neighbour);
        let after = after.iter().take_while(is_near).take(STEPS_MAX).find(is_neighbour);
        [before, after].map(|entry| self.name(entry?))
    }

    /// Returns the symbol at `at`, the best one at its address. Among equally good ones, it has the
    /// fewest underscores in front: `malloc` rather than `__libc_malloc`.
    fn symbol(&self, at: usize, source: NameSource) -> Option<Symbol<'a>> {
        let best = &self.entries[at];
        let same = self.entries[..=at].iter().rev().take(ALIASES_MAX);
        let same = same.take_while(|entry| entry.address == best.address);
        let named = same.filter_map(|entry| Some((entry.rank, self.name(entry)?)));
        let aliases: Vec<_> = named.collect();
        let underscores = |name: &[u8]| name.iter().take_while(|&&byte| byte == b'_').count();
        let equal = aliases.iter().filter(|(rank, _)| *rank == best.rank).map(|(_, name)| *name);
        let name = equal.min_by_key(|name| (underscores(name), name.len()))?;
        Some(Symbol { name, source, start: best.address, aliases: aliases.into_iter().map(|(_, name)| name).collect() })
    }

    fn name(&self, entry: &Entry) -> Option<&'a [u8]> {
        let table = if self.dynamic { self.elf.dynamic_symbol_table() } else { self.elf.symbol_table() }?;
        let name = table.symbol_by_index(SymbolIndex(entry.index as usize)).ok()?.name_bytes().ok()?;
        (!name.is_empty() && !name.starts_with(b"$")).then_some(name)
    }

    fn in_section(&self, section: u32, address: u64) -> bool {
        let section = self.elf.section_by_index(object::SectionIndex(section as usize));
        section.is_ok_and(|section| address.wrapping_sub(section.address()) < section.size())
    }
}

fn rank(function: bool, size: u64, global: bool, weak: bool) -> u8 {
    let binding = if global && !weak { 2 } else { u8::from(weak) };
    u8::from(size > 0) << 3 | u8::from(function) << 2 | binding
}

/// Returns a symbol without its version, which those of shared libraries may have:
/// `fopen@@GLIBC_2.2.5`.
pub(crate) fn unversioned(name: &[u8]) -> &[u8] {
    name.split(|&byte| byte == b'@').next().unwrap_or(name)
}
