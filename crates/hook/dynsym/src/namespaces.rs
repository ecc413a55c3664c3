//! The namespaces that `dlmopen` makes, each with a C library of its own.
//!
//! glibc lists the objects of each namespace for debuggers (`struct r_debug_extended`, since 2.35).
//! The namespaces are listed in the order of their numbers: one that has become empty stays in the
//! list, and its number is used again.

use core::ffi::CStr;

use crate::{LinkMap, Objects, RDebug, Symbol, Symbols, redirect};

/// The maximum number of namespaces in glibc, the program's own included.
pub(crate) const NAMESPACES_MAX: usize = 16;
/// The maximum number of functions that are redirected at once.
const TARGETS_MAX: usize = 32;

/// The C library of a namespace.
#[derive(Debug)]
pub struct NamespaceLibrary<'objects> {
    /// The namespace's number, from 1.
    pub namespace: usize,
    /// True while objects are mapped into the namespace: the thread that maps them holds the
    /// dynamic linker's lock of loading, and has not bound them yet.
    pub is_being_mapped: bool,
    object: &'objects LinkMap,
    first: &'objects LinkMap,
}

impl NamespaceLibrary<'_> {
    /// Returns a number that no other library loaded at the same time has.
    pub fn id(&self) -> usize {
        self.object.dynamic as usize
    }

    /// Returns the path of the object that the namespace was made for, or of its C library.
    pub fn path(&self) -> &CStr {
        let name = if self.first.name.is_null() { self.object.name } else { self.first.name };
        // SAFETY: `l_name` is a NUL-terminated string that lives as long as the entry; the C
        // library has one, by which it was found.
        unsafe { CStr::from_ptr(name) }
    }

    /// Returns the address of a function that the library defines; 0 if it does not. Calls no code
    /// of the library, which may not have been relocated yet.
    pub fn function(&self, name: &CStr) -> usize {
        let symbol = Symbols::of(self.object).and_then(|symbols| symbols.find_symbol(name));
        symbol.filter(|&symbol| is_function(symbol)).map_or(0, |symbol| {
            // SAFETY: `find_symbol` returned it: an entry of a table that is mapped as long as the
            // object.
            self.object.bias.wrapping_add(unsafe { (*symbol).value }) as usize
        })
    }

    /// Makes the dynamic linker find these functions where the library defines functions of their
    /// names, in any version; names that it does not define are left out. Returns false, and leaves
    /// everything as it is, if that is not possible.
    ///
    /// Existing bindings stay as they are. So this must be called after the library has been
    /// mapped, and before it and the libraries that need it are relocated.
    pub fn redirect(&self, functions: impl Iterator<Item = (&'static CStr, usize)>) -> bool {
        let mut targets: [Option<(*const Symbol, usize)>; TARGETS_MAX] = [None; TARGETS_MAX];
        let Some(symbols) = Symbols::of(self.object) else { return false };
        let versions = functions.flat_map(|(name, function)| {
            let versions = symbols.versions_of(name).filter(|&(symbol, _)| is_function(symbol));
            versions.map(move |(symbol, _)| (symbol, function))
        });
        for (at, version) in versions.enumerate() {
            let Some(target) = targets.get_mut(at) else { return false };
            *target = Some(version);
        }
        redirect::write(self.object, targets.iter().flatten().copied())
    }
}

/// True if a symbol is that of a function, and not of a resolver of one.
fn is_function(symbol: *const Symbol) -> bool {
    const STT_FUNC: u8 = 2;
    // SAFETY: an entry of a table that is mapped as long as its object, where it has just been
    // found.
    unsafe { (*symbol).info & 15 == STT_FUNC }
}

impl Objects<'_> {
    /// Returns the address at which the dynamic linker is loaded; 0 if it is not known.
    pub fn linker_start(&self) -> usize {
        self.linker().map_or(0, |object| object.bias as usize)
    }

    /// Returns the dynamic linker itself.
    pub(crate) fn linker(&self) -> Option<&LinkMap> {
        self.iter().find(|object| object.file_name() == b"ld-linux-x86-64.so.2")
    }

    /// Calls `visit` with the C library of each namespace except the program's own. glibc before
    /// 2.35 lists none.
    pub fn namespace_libraries(&self, mut visit: impl FnMut(NamespaceLibrary<'_>)) {
        let Some(linker) = self.linker() else { return };
        const RT_ADD: i32 = 1;
        // The program may have a copy of the symbol of its own, which does not list namespaces.
        let own = Symbols::of(linker).and_then(|symbols| symbols.find(c"_r_debug")).unwrap_or(0);
        let debug = core::ptr::with_exposed_provenance::<RDebug>(own);
        // SAFETY: the dynamic linker's own variable, which it changes when it makes the first
        // namespace.
        if debug.is_null() || unsafe { (&raw const (*debug).version).read_volatile() } < 2 {
            return;
        }
        // SAFETY: the dynamic linker's own variable; it has a pointer to the next structure if its
        // version says so.
        let mut namespace = unsafe { (&raw const (*debug).next).read_volatile() };
        for number in 1..NAMESPACES_MAX {
            // SAFETY: null, or one of the dynamic linker's structures, which it never removes from
            // their list.
            let Some(found) = (unsafe { namespace.as_ref() }) else { return };
            let library = self.iter_from(found.map).find(|object| object.file_name() == b"libc.so.6");
            if let (Some(object), Some(first)) = (library, self.iter_from(found.map).next()) {
                // SAFETY: a field of the structure, which the thread that maps objects changes.
                let is_being_mapped = unsafe { (&raw const found.state).read_volatile() } == RT_ADD;
                visit(NamespaceLibrary { namespace: number, is_being_mapped, object, first });
            }
            namespace = found.next;
        }
    }
}
