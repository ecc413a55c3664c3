//! Symbol look-up in the objects that the dynamic linker has loaded, without the dynamic linker:
//! `dlsym` may allocate and lock, and we look up `malloc` inside `malloc`.
//!
//! The order of the link map is the order of the global scope (for the objects loaded at start), so
//! the *next* definition after ours is the one that the program would have had without us. Sources:
//! System V gABI (dynamic section, symbol table), the GNU hash table format.
#![no_std]

mod directory;
mod later;
mod namespaces;
mod redirect;
mod references;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::marker::PhantomData;
use core::ptr;

pub use directory::{Directory, Object};
pub use later::{LinkerEvents, MappedObject};
pub use namespaces::NamespaceLibrary;

/// The public head of `struct link_map` of `<link.h>`.
#[repr(C)]
#[derive(Debug)]
struct LinkMap {
    bias: u64,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
    previous: *const LinkMap,
}

impl LinkMap {
    /// Returns the path that the object was loaded by; empty for the program.
    fn path(&self) -> &[u8] {
        match self.name.is_null() {
            true => &[],
            // SAFETY: `l_name` is a NUL-terminated string that lives as long as the entry.
            false => unsafe { CStr::from_ptr(self.name) }.to_bytes(),
        }
    }

    fn file_name(&self) -> &[u8] {
        self.path().rsplit(|&byte| byte == b'/').next().unwrap_or(&[])
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// `struct r_debug_extended` of `<link.h>`.
#[repr(C)]
struct RDebug {
    /// From version 2 on there is `next`.
    version: i32,
    map: *const LinkMap,
    breakpoint: u64,
    /// `RT_CONSISTENT`, `RT_ADD` or `RT_DELETE`.
    state: i32,
    base: u64,
    /// The structure of the next namespace.
    next: *const RDebug,
}

unsafe extern "C" {
    static _DYNAMIC: Dynamic;
}

/// Returns the dynamic linker's structure for debuggers: glibc's `_r_debug`, or the one that musl's
/// `_dl_debug_addr` points to. Null if there is neither. By weak references: a strong one would
/// keep programs of the other C library from starting.
fn debug() -> *const RDebug {
    let of_glibc = heapledger_core::weak_address!("_r_debug");
    if of_glibc != 0 {
        return ptr::with_exposed_provenance(of_glibc);
    }
    let variable = heapledger_core::weak_address!("_dl_debug_addr");
    // SAFETY: `as_ref` requires null or a live pointer: 0, or the address of musl's variable, which
    // is set before any code of the program runs, and constant since.
    unsafe { ptr::with_exposed_provenance::<*const RDebug>(variable).as_ref() }.map_or(ptr::null(), |debug| *debug)
}

/// The objects to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The objects after this library.
    Next,
    /// All objects, the program first.
    All,
}

/// `dl_iterate_phdr` of the C library.
pub type IterateObjects =
    unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> c_int, *mut c_void) -> c_int;

/// The loaded objects, for a time in which none is loaded or unloaded.
///
/// The list and the objects themselves are removed by `dlclose`, which holds the dynamic linker's
/// lock of the list (`_dl_load_write_lock` in glibc) while it unlinks and unmaps. There are two
/// ways to prevent that: to read the list before the process has a second thread
/// ([`Objects::at_start`]), or while the lock is held ([`Objects::locked`]).
#[derive(Debug)]
pub struct Objects<'kept>(PhantomData<(&'kept (), *mut ())>);

impl Objects<'static> {
    /// Returns the objects of a process that starts. Takes no lock: it is called within the first
    /// call of the allocator.
    ///
    /// # Safety
    ///
    /// While the result is used, no other thread loads or unloads an object: the process has one
    /// thread, or the caller is an initialiser, which the dynamic linker runs with its lock of
    /// loading held. The calling thread does neither.
    pub unsafe fn at_start() -> Objects<'static> {
        Objects(PhantomData)
    }
}

impl Objects<'_> {
    /// Calls `visit` with the objects, while the dynamic linker's lock of the list is held. May be
    /// called at any time, in any thread.
    ///
    /// The lock is recursive: within a `dlopen` or `dlclose` of this thread, for instance in an
    /// initialiser that allocates, the thread holds it already. Another thread waits for that
    /// `dlopen` to link or unlink, which needs nothing from the waiting thread: the linker calls no
    /// code of the program while it holds this lock (initialisers run under another one). `visit`
    /// must not wait for a thread that may load, unload or fork.
    ///
    /// # Safety
    ///
    /// `iterate` is the C library's `dl_iterate_phdr`.
    pub unsafe fn locked<R>(iterate: IterateObjects, visit: impl FnOnce(&Objects<'_>) -> R) -> Option<R> {
        struct Call<F, R> {
            visit: Option<F>,
            result: Option<R>,
        }

        unsafe extern "C" fn once<F: FnOnce(&Objects<'_>) -> R, R>(
            _: *mut c_void,
            _: usize,
            call: *mut c_void,
        ) -> c_int {
            // SAFETY: the structure below, to which nothing else refers until `iterate` returns.
            let call = unsafe { &mut *call.cast::<Call<F, R>>() };
            if let Some(visit) = call.visit.take() {
                call.result = Some(visit(&Objects(PhantomData)));
            }
            1
        }

        fn callback<F: FnOnce(&Objects<'_>) -> R, R>(
            _: &Call<F, R>,
        ) -> unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> c_int {
            once::<F, R>
        }

        let mut call = Call { visit: Some(visit), result: None };
        let callback = callback(&call);
        // SAFETY: the caller's contract; the callback has the type that the function expects, and
        // is passed the structure that it expects.
        unsafe { iterate(callback, (&raw mut call).cast()) };
        call.result
    }

    /// Returns the address of a symbol, 0 if nobody defines it.
    pub fn lookup(&self, scope: Scope, name: &CStr) -> usize {
        self.find(scope, name).map_or(0, |(address, _)| address)
    }

    /// Returns the address of the next definition of a symbol in an object that does not define
    /// `malloc`; 0 if there is none. Of C++'s operators this is the C++ library's definition, which
    /// calls the malloc functions, even if an allocator before it defines operators of its own.
    pub fn lookup_outside_allocators(&self, name: &CStr) -> usize {
        let mut found = self.defining(Scope::Next, name).filter(|(object, ..)| !is_allocator(object));
        found.next().map_or(0, |(_, symbols, symbol)| symbols.address(symbol))
    }

    /// Returns the address of a symbol of the loaded library that has this file name, even if other
    /// objects define the same name; 0 if there is none.
    pub fn lookup_in(&self, file: &[u8], name: &CStr) -> usize {
        self.lookup_where(|object| object.file_name() == file, name)
    }

    /// Returns the address of a symbol of the library that was loaded by this path; 0 if there is
    /// none.
    pub fn lookup_at(&self, path: &[u8], name: &CStr) -> usize {
        self.lookup_where(|object| object.path() == path, name)
    }

    /// True if a loaded object calls functions that allocate, free or look at blocks, and are none
    /// of the malloc functions: C++ operators that an allocator defines (jemalloc, tcmalloc), or
    /// functions with names of an allocator's own (`mallocx`, `mi_malloc`). Observers of the malloc
    /// functions do not see these calls.
    ///
    /// An allocator that merely has such functions does no harm: in redis, which is written in C,
    /// jemalloc gets calls of the malloc functions alone.
    pub fn has_unseen_calls(&self) -> bool {
        self.has_unseen_calls_except(|_| false)
    }

    /// As [`has_unseen_calls`](Objects::has_unseen_calls), but calls of the functions for which
    /// `is_seen` returns true do not count: the caller sees them in another way.
    pub fn has_unseen_calls_except(&self, is_seen: impl Fn(&CStr) -> bool) -> bool {
        // Resolvers of indirect functions are not called, because an object may have been loaded
        // but not relocated yet.
        let object = |name| self.defining(Scope::Next, name).next().map(|(object, ..)| object);
        let has_operators = [c"_Znwm", c"_ZdlPv"].into_iter().filter_map(object).any(is_allocator);
        let has_others = [c"mallocx", c"tc_malloc", c"mi_malloc"].into_iter().any(|name| object(name).is_some());
        if !has_operators && !has_others {
            return false;
        }
        let is_unseen = |name: &CStr| is_function_of_allocator(name) || (has_operators && is_operator(name));
        self.iter().any(|object| references::refers_to(object, |name| is_unseen(name) && !is_seen(name)))
    }

    /// Returns the address of the first definition of `definition`, if it is in an object before
    /// this library that needs a symbol `reference` from another object, or tests if there is one.
    /// 0 otherwise.
    pub fn lookup_before_in_user_of(&self, definition: &CStr, reference: &CStr) -> usize {
        let Some((object, symbols, symbol)) = self.defining(Scope::All, definition).next() else { return 0 };
        let is_own = ptr::eq(object.dynamic, &raw const _DYNAMIC);
        if is_own || !references::refers_to(object, |name| name == reference) {
            return 0;
        }
        symbols.address(symbol)
    }

    /// Calls `visit` with every definition of a symbol in the objects after this library, in the
    /// order of the link map.
    pub fn definitions(&self, name: &CStr, mut visit: impl FnMut(Definition)) {
        for (object, symbols, symbol) in self.defining(Scope::Next, name) {
            // Before glibc 2.34, some of its functions were in the threads library.
            let is_of_c_library = [&b"libc.so.6"[..], b"libpthread.so.0"].contains(&object.file_name());
            let address = symbols.address(symbol);
            visit(Definition { address, object: object.bias as usize, is_of_c_library });
        }
    }

    /// Redirects the next definitions of these names to this library's own: see `redirect.rs`.
    /// Returns false, and changes nothing, if another library before or behind this one defines
    /// them too. `allocator` is the file name of an allocator that may come between this library
    /// and the definitions.
    pub fn redirect(&self, names: &[&CStr], allocator: &[u8]) -> bool {
        redirect::redirect(self, names, allocator)
    }

    /// Returns the path by which this library was loaded; empty if it is not in the list.
    pub fn own_path(&self) -> &[u8] {
        self.own().map_or(&[], LinkMap::path)
    }

    /// Returns the lowest address above `address` at which an object is loaded.
    pub fn next_object(&self, address: usize) -> usize {
        let biases = self.iter().map(|object| object.bias as usize);
        biases.filter(|&bias| bias > address).min().unwrap_or(usize::MAX)
    }

    /// Returns a symbol's address, and the object that defines it.
    fn find(&self, scope: Scope, name: &CStr) -> Option<(usize, &LinkMap)> {
        let (object, symbols, symbol) = self.defining(scope, name).next()?;
        Some((symbols.address(symbol), object))
    }

    fn lookup_where(&self, is_wanted: impl Fn(&LinkMap) -> bool, name: &CStr) -> usize {
        let found = self.iter().find(|object| is_wanted(object)).and_then(Symbols::of);
        found.and_then(|symbols| symbols.find(name)).unwrap_or(0)
    }

    /// True if the C library is musl, by the name of its dynamic linker.
    pub fn is_musl(&self) -> bool {
        self.iter().any(|object| object.file_name().starts_with(b"ld-musl-"))
    }

    /// Returns this library.
    fn own(&self) -> Option<&LinkMap> {
        self.iter().find(|object| ptr::eq(object.dynamic, &raw const _DYNAMIC))
    }

    /// Returns the symbols of the objects in a scope that define a name, in the order of the link
    /// map.
    fn defining(&self, scope: Scope, name: &CStr) -> impl Iterator<Item = (&LinkMap, Symbols, *const Symbol)> {
        let mut is_searching = scope == Scope::All;
        self.iter().filter_map(move |object| {
            if !is_searching {
                is_searching = ptr::eq(object.dynamic, &raw const _DYNAMIC);
                return None;
            }
            let symbols = Symbols::of(object)?;
            let symbol = symbols.find_symbol(name)?;
            Some((object, symbols, symbol))
        })
    }

    fn iter(&self) -> impl Iterator<Item = &LinkMap> {
        // SAFETY: `as_ref` requires null or a live pointer: the structure is the dynamic linker's
        // own, and points to the head of its list before any of our code runs.
        self.iter_from(unsafe { debug().as_ref() }.map_or(ptr::null(), |debug| debug.map))
    }

    /// Returns the objects of the list that begins with this one, which is null or the first of a
    /// namespace.
    fn iter_from(&self, mut map: *const LinkMap) -> impl Iterator<Item = &LinkMap> {
        core::iter::from_fn(move || {
            // SAFETY: null or an entry of the list, which stays as long as `self`: nobody unlinks
            // one meanwhile, by the contract of `at_start` or because `locked` holds the lock under
            // which that is done.
            let object = unsafe { map.as_ref() }?;
            map = object.next;
            Some(object)
        })
    }
}

/// True if the object defines `malloc`.
fn is_allocator(object: &LinkMap) -> bool {
    Symbols::of(object).is_some_and(|symbols| symbols.find_symbol(c"malloc").is_some())
}

/// True if the name is that of a function of jemalloc, tcmalloc or mimalloc that allocates, frees
/// or looks at a block, and is none of the malloc functions.
fn is_function_of_allocator(name: &CStr) -> bool {
    const JEMALLOC: [&[u8]; 6] = [b"mallocx", b"rallocx", b"xallocx", b"sallocx", b"dallocx", b"sdallocx"];
    let name = name.to_bytes();
    JEMALLOC.contains(&name) || name.starts_with(b"tc_") || name.starts_with(b"mi_")
}

/// True if the name is that of an operator `new` or `delete`.
fn is_operator(name: &CStr) -> bool {
    [&b"_Znw"[..], b"_Zna", b"_Zdl", b"_Zda"].iter().any(|start| name.to_bytes().starts_with(start))
}

/// A definition of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The symbol's address.
    pub address: usize,
    /// The address at which the object that defines it is loaded.
    pub object: usize,
    /// True if that object is the C library's own.
    pub is_of_c_library: bool,
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
            // glibc relocates these entries in place, except in read-only sections (the vdso's).
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
            strings: ptr::with_exposed_provenance(strings as usize),
            symbols: ptr::with_exposed_provenance(symbols as usize),
            versions: ptr::with_exposed_provenance(versions as usize),
            hash: ptr::with_exposed_provenance(hash as usize),
        })
    }

    /// Returns the address of the symbol's default version.
    fn find(&self, name: &CStr) -> Option<usize> {
        self.find_symbol(name).map(|symbol| self.address(symbol))
    }

    fn find_symbol(&self, name: &CStr) -> Option<*const Symbol> {
        self.versions_of(name).find_map(|(symbol, is_default)| is_default.then_some(symbol))
    }

    /// Returns the symbol's versions, each with true if it is the default one. GNU hash table:
    /// bucket count, first hashed symbol, bloom words, bloom shift; bloom filter; buckets; chains,
    /// whose last entry has bit 0 set.
    fn versions_of(&self, name: &CStr) -> impl Iterator<Item = (*const Symbol, bool)> {
        let wanted = gnu_hash(name.to_bytes());
        let word = |index: usize| {
            // SAFETY: the dynamic linker has mapped the table, and every index below comes from the
            // table itself.
            unsafe { self.hash.add(index).read() }
        };
        let (buckets, first, bloom) = (word(0), word(1), word(2));
        let buckets_at = 4 + bloom as usize * 2;
        let chains_at = buckets_at + buckets as usize;
        let mut next = match buckets {
            0 => None,
            _ => Some(word(buckets_at + (wanted % buckets) as usize)).filter(|&index| index >= first),
        };
        core::iter::from_fn(move || {
            while let Some(index) = next {
                let hash = word(chains_at + (index - first) as usize);
                next = (hash & 1 == 0).then_some(index + 1);
                if hash | 1 == wanted | 1
                    && let Some(version) = self.match_symbol(index as usize, name)
                {
                    return Some(version);
                }
            }
            None
        })
    }

    fn match_symbol(&self, index: usize, name: &CStr) -> Option<(*const Symbol, bool)> {
        const HIDDEN_VERSION: u16 = 0x8000;
        // SAFETY: the index comes from the hash table, so the symbol exists.
        let at = unsafe { self.symbols.add(index) };
        // SAFETY: the index comes from the hash table, so the symbol exists and is mapped.
        let symbol = unsafe { &*at };
        // SAFETY: a symbol's name is an offset into the string table, whose strings end with NUL.
        let own = unsafe { CStr::from_ptr(self.strings.add(symbol.name as usize).cast()) };
        if own != name || symbol.section == 0 {
            return None;
        }
        // SAFETY: if there is a version table it has an entry per symbol.
        let is_hidden = !self.versions.is_null() && unsafe { self.versions.add(index).read() } & HIDDEN_VERSION != 0;
        Some((at, !is_hidden))
    }

    /// Returns the name of the symbol with this index, which is from the object's relocations, if
    /// the object does not define it.
    fn undefined(&self, index: usize) -> Option<&CStr> {
        // SAFETY: the index is in a relocation of the object, so the symbol exists and is mapped.
        let symbol = unsafe { &*self.symbols.add(index) };
        // SAFETY: a symbol's name is an offset into the string table, whose strings end with NUL.
        let name = unsafe { CStr::from_ptr(self.strings.add(symbol.name as usize).cast()) };
        (symbol.section == 0).then_some(name)
    }

    fn address(&self, symbol: *const Symbol) -> usize {
        const STT_GNU_IFUNC: u8 = 10;
        // SAFETY: `versions_of` returned it: an entry of this table, which is mapped as long as the
        // object.
        let symbol = unsafe { &*symbol };
        let address = self.bias.wrapping_add(symbol.value) as usize;
        if symbol.info & 15 == STT_GNU_IFUNC {
            // SAFETY: an indirect function's value is its resolver, which returns the address to
            // use.
            let resolver = unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(address) };
            return resolver();
        }
        address
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}
