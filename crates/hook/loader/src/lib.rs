//! Symbol look-up in the objects that the dynamic linker has loaded, without the dynamic linker: `dlsym` may allocate
//! and lock, and we look up `malloc` inside `malloc`.
//!
//! The order of the link map is the order of the global scope (for the objects loaded at start), so the *next*
//! definition after ours is the one that the program would have had without us. Sources: System V gABI (dynamic
//! section, symbol table), the GNU hash table format.
#![no_std]

use core::ffi::{CStr, c_char};

/// The public head of `struct link_map` of `<link.h>`.
#[repr(C)]
struct LinkMap {
    bias: u64,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
    previous: *const LinkMap,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// `struct r_debug` of `<link.h>`.
#[repr(C)]
struct RDebug {
    version: i32,
    map: *const LinkMap,
}

unsafe extern "C" {
    static _r_debug: RDebug;
    static _DYNAMIC: Dynamic;
}

/// Where to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The objects after this library.
    Next,
    /// All objects, the program first.
    All,
}

/// The address of a symbol, 0 when nobody defines it.
pub fn lookup(scope: Scope, name: &CStr) -> usize {
    find(scope, name).map_or(0, |(address, _)| address)
}

/// Whether the allocator after this library has other ways to a block than the malloc family, or from one: C++'s operators
/// of its own (jemalloc, tcmalloc), or functions of other names. Whoever watches the family does not see these.
pub fn has_allocator_other_ways() -> bool {
    let object = |name| find(Scope::Next, name).map(|(_, object)| object);
    let malloc = object(c"malloc");
    let has_operators = malloc.is_some() && [c"_Znwm", c"_ZdlPv"].iter().any(|name| object(name) == malloc);
    has_operators || [c"mallocx", c"tc_malloc", c"mi_malloc"].iter().any(|name| object(name).is_some())
}

/// A symbol's address, and the object that defines it.
fn find(scope: Scope, name: &CStr) -> Option<(usize, *const LinkMap)> {
    // SAFETY: the dynamic linker's own list, complete before any of our code runs.
    let mut map = unsafe { _r_debug.map };
    let mut is_searching = scope == Scope::All;
    // SAFETY: entries of the list are live; this runs when the program starts, before any object can be unloaded.
    while let Some(object) = unsafe { map.as_ref() } {
        if is_searching {
            let found = Symbols::of(object).and_then(|symbols| symbols.find(name));
            if let Some(address) = found {
                return Some((address, map));
            }
        } else if core::ptr::eq(object.dynamic, &raw const _DYNAMIC) {
            is_searching = true;
        }
        map = object.next;
    }
    None
}

/// The address of a symbol of the loaded library that has this file name, whatever other objects define by that name; 0
/// when there is none.
pub fn lookup_in(file: &[u8], name: &CStr) -> usize {
    lookup_where(|path| path.rsplit(|&byte| byte == b'/').next() == Some(file), name)
}

/// The same of the library that was loaded by this path.
pub fn lookup_at(path: &[u8], name: &CStr) -> usize {
    lookup_where(|own| own == path, name)
}

fn lookup_where(is_wanted: impl Fn(&[u8]) -> bool, name: &CStr) -> usize {
    // SAFETY: as in `lookup`.
    let mut map = unsafe { _r_debug.map };
    // SAFETY: as in `lookup`.
    while let Some(object) = unsafe { map.as_ref() } {
        let path = match object.name.is_null() {
            true => &[],
            // SAFETY: `l_name` is a NUL-terminated string that lives as long as the entry.
            false => unsafe { CStr::from_ptr(object.name) }.to_bytes(),
        };
        if is_wanted(path) {
            return Symbols::of(object).and_then(|symbols| symbols.find(name)).unwrap_or(0);
        }
        map = object.next;
    }
    0
}

/// An object's dynamic symbols.
struct Symbols {
    bias: u64,
    strings: *const u8,
    symbols: *const Symbol,
    versions: *const u16,
    hash: *const u32,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

impl Symbols {
    fn of(object: &LinkMap) -> Option<Symbols> {
        const DT_STRTAB: i64 = 5;
        const DT_SYMTAB: i64 = 6;
        const DT_GNU_HASH: i64 = 0x6fff_fef5;
        const DT_VERSYM: i64 = 0x6fff_fff0;
        let (mut strings, mut symbols, mut hash, mut versions) = (0, 0, 0, 0);
        let mut entry = object.dynamic;
        // SAFETY: an object's dynamic section is an array that ends with a null tag.
        while let Some(&Dynamic { tag, value }) = unsafe { entry.as_ref() } {
            // glibc relocates these entries in place, but for read-only sections (the vdso's).
            let address = if value >= object.bias { value } else { value.wrapping_add(object.bias) };
            match tag {
                0 => break,
                DT_STRTAB => strings = address,
                DT_SYMTAB => symbols = address,
                DT_GNU_HASH => hash = address,
                DT_VERSYM => versions = address,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        if strings == 0 || symbols == 0 || hash == 0 {
            return None;
        }
        Some(Symbols {
            bias: object.bias,
            strings: core::ptr::with_exposed_provenance(strings as usize),
            symbols: core::ptr::with_exposed_provenance(symbols as usize),
            versions: core::ptr::with_exposed_provenance(versions as usize),
            hash: core::ptr::with_exposed_provenance(hash as usize),
        })
    }

    /// The symbol's default version. GNU hash table: bucket count, first hashed symbol, bloom words, bloom shift; bloom
    /// filter; buckets; chains, whose last entry has bit 0 set.
    fn find(&self, name: &CStr) -> Option<usize> {
        let wanted = gnu_hash(name.to_bytes());
        let word = |index: usize| {
            // SAFETY: the dynamic linker has mapped the table, and every index below comes from the table itself.
            unsafe { self.hash.add(index).read() }
        };
        let (buckets, first, bloom) = (word(0), word(1), word(2));
        if buckets == 0 {
            return None;
        }
        let buckets_at = 4 + bloom as usize * 2;
        let chains_at = buckets_at + buckets as usize;
        let mut index = word(buckets_at + (wanted % buckets) as usize);
        if index < first {
            return None;
        }
        loop {
            let hash = word(chains_at + (index - first) as usize);
            if hash | 1 == wanted | 1
                && let Some(address) = self.match_symbol(index as usize, name)
            {
                return Some(address);
            }
            if hash & 1 != 0 {
                return None;
            }
            index += 1;
        }
    }

    fn match_symbol(&self, index: usize, name: &CStr) -> Option<usize> {
        const HIDDEN_VERSION: u16 = 0x8000;
        const STT_GNU_IFUNC: u8 = 10;
        // SAFETY: the index comes from the hash table, so the symbol exists.
        let symbol = unsafe { &*self.symbols.add(index) };
        // SAFETY: a symbol's name is an offset into the string table, whose strings end with NUL.
        let own = unsafe { CStr::from_ptr(self.strings.add(symbol.name as usize).cast()) };
        if own != name || symbol.section == 0 {
            return None;
        }
        // SAFETY: where there is a version table it has an entry per symbol.
        if !self.versions.is_null() && unsafe { self.versions.add(index).read() } & HIDDEN_VERSION != 0 {
            return None;
        }
        let address = self.bias.wrapping_add(symbol.value) as usize;
        if symbol.info & 15 == STT_GNU_IFUNC {
            // SAFETY: an indirect function's value is its resolver, which returns the address to use.
            let resolver = unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(address) };
            return Some(resolver());
        }
        Some(address)
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}
