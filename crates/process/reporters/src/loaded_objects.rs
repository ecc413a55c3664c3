//! The parts of this process that hold reporters: how they are found, and kept from being unloaded
//! meanwhile.
//!
//! A loaded object with this crate in it has an ELF note, which the loader maps and describes in
//! the program headers, whether the object is an executable, linked statically or not, or a library
//! that was loaded a moment ago. The note has the distance to the object's registry. So nothing
//! has to be told when a library comes or goes.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::Arc;

use heapledger_core::weak_address;
use heapledger_query::elf;

use crate::abi::{Entry, Registry, VERSION};
use crate::registry;

std::arch::global_asm!(
    ".pushsection .data.rel.ro.heapledger,\"aw\",%progbits",
    ".balign 8",
    ".Lheapledger_registry:",
    ".long {size}",
    ".long {version}",
    ".quad {visit}",
    ".popsection",
    // Linkers keep notes, and what they refer to, though nobody refers to them.
    ".pushsection .note.heapledger,\"a\",%note",
    ".balign 4",
    ".long 11",
    ".long 8",
    ".long {kind}",
    ".asciz \"Heapledger\"",
    ".balign 4",
    ".quad .Lheapledger_registry - .",
    ".popsection",
    size = const size_of::<Registry>(),
    version = const VERSION,
    kind = const NOTE_KIND,
    visit = sym registry::visit,
);

static NOTE_NAME: &[u8] = b"Heapledger\0";
/// A note that leads to a registry.
const NOTE_KIND: u32 = 1;

/// A reporter of some loaded object, to be run.
#[derive(Debug)]
pub(crate) struct Reporter {
    entry: Entry,
    pub(crate) path: String,
    /// After the entry is released: its code is there.
    object: Arc<PinnedObject>,
}

// SAFETY: reporters are shared between threads by their registry's contract; an entry's functions
// may be called in any.
unsafe impl Send for Reporter {}
// SAFETY: through `&Reporter` the entry's functions may be called, in any thread by the contract of
// `Entry`, and the `Arc` of an object cloned, which is `Sync`. Nothing is written.
unsafe impl Sync for Reporter {}

impl Reporter {
    /// Has it report.
    ///
    /// # Safety
    ///
    /// The sink is *held* ([`Sink`](crate::abi::Sink)) until this returns.
    pub(crate) unsafe fn run(&self, sink: &crate::abi::Sink) {
        // SAFETY: the entry is not released, and its code is kept; the sink is the caller's
        // contract.
        unsafe { (self.entry.run)(self.entry.reporter, sink) };
    }

    /// It did not return in time: its code has to stay for good.
    pub(crate) fn keep_loaded(&self) {
        mem::forget(Arc::clone(&self.object));
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // SAFETY: it was given to us, and this is the only time; the object is still there.
        unsafe { (self.entry.release)(self.entry.reporter) };
    }
}

/// A module that is not unloaded while this lives.
#[derive(Debug)]
pub(crate) struct PinnedObject {
    bias: usize,
    /// Null for what is never unloaded.
    handle: *mut c_void,
}

// SAFETY: a handle of the dynamic linker belongs to the process: any thread may use or close it.
unsafe impl Send for PinnedObject {}
// SAFETY: through `&PinnedObject` the two numbers can be read, and nothing writes them.
unsafe impl Sync for PinnedObject {}

impl Drop for PinnedObject {
    fn drop(&mut self) {
        if let (false, Some(close)) = (self.handle.is_null(), linker().map(|linker| linker.close)) {
            // SAFETY: `dlclose` requires a handle that `dlopen` has returned and that is not closed
            // yet. `pin` has put it here, for this value alone, and `drop` runs once. Reporters
            // release their entries before they drop this, so nobody uses the module's code by way
            // of it any more.
            unsafe { close(self.handle) };
        }
    }
}

/// All reporters of this process: those of the executable first, then in the order in which
/// objects were loaded.
///
/// To be called where nobody is waited for who might load a library: it takes the dynamic linker's
/// lock.
pub(crate) fn reporters() -> Vec<Reporter> {
    let objects: Vec<Arc<PinnedObject>> = loaded_objects().iter().filter_map(LoadedObject::pin).map(Arc::new).collect();
    let mut found = Vec::new();
    // Again, since a module may have gone before it was pinned.
    for object in loaded_objects() {
        let Some(pinned) = objects.iter().find(|pinned| pinned.bias == object.bias) else { continue };
        for &registry in &object.registries {
            let mut each = Visit { object: pinned, found: &mut found };
            // SAFETY: the note is that of a pinned module, so the registry is there, and of `size`
            // bytes.
            unsafe {
                if (*registry).version == VERSION && (*registry).size as usize >= size_of::<Registry>() {
                    ((*registry).visit)((&raw mut each).cast(), visit_one);
                }
            }
        }
    }
    found
}

/// The object that this code is in, kept from being unloaded.
pub(crate) fn pin_own() -> Option<PinnedObject> {
    loaded_objects().iter().find(|object| object.is_own).and_then(LoadedObject::pin)
}

struct Visit<'a> {
    object: &'a Arc<PinnedObject>,
    found: &'a mut Vec<Reporter>,
}

/// # Safety
///
/// `context` is a [`Visit`] that nobody else uses during the call, and `entry` one of the entries
/// that a [`Registry`] gives.
unsafe extern "C" fn visit_one(context: *mut c_void, entry: *const Entry) {
    // SAFETY: `reporters` passes it, and the registry gives an entry of at least the size that it
    // says.
    let (visit, entry) = unsafe {
        if (*entry).version != VERSION || ((*entry).size as usize) < size_of::<Entry>() {
            return;
        }
        (&mut *context.cast::<Visit<'_>>(), *entry)
    };
    // SAFETY: `to_string` requires that the text stays during the call. The entry is not released:
    // *until released* (`Entry`). `Reporter::drop` releases it later.
    let path = unsafe { entry.path.to_string() };
    visit.found.push(Reporter { entry, path, object: Arc::clone(visit.object) });
}

/// A module with notes of ours.
struct LoadedObject {
    name: CString,
    bias: usize,
    /// The executable, which is never unloaded.
    is_executable: bool,
    /// This code is in it.
    is_own: bool,
    registries: Vec<*const Registry>,
}

impl LoadedObject {
    fn pin(&self) -> Option<PinnedObject> {
        if self.is_executable {
            return Some(PinnedObject { bias: self.bias, handle: ptr::null_mut() });
        }
        let linker = linker()?;
        // SAFETY: the functions of these names. With `RTLD_NOLOAD` nothing is loaded that is not
        // there: no foreign code runs.
        unsafe {
            let handle = (linker.open)(self.name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                return None;
            }
            let object = PinnedObject { bias: self.bias, handle };
            let mut map: *const LinkMap = ptr::null();
            let is_known = (linker.info)(handle, RTLD_DI_LINKMAP, (&raw mut map).cast()) == 0;
            // Another of that name may have been loaded meanwhile, or be in another namespace.
            (is_known && (*map).bias == self.bias).then_some(object)
        }
    }
}

/// `struct link_map` of `<link.h>`, as far as it is needed.
#[repr(C)]
struct LinkMap {
    bias: usize,
}

const RTLD_DI_LINKMAP: c_int = 2;

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
type Info = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;

/// The dynamic linker's functions; `None` in static programs, where nothing is loaded or unloaded.
struct Linker {
    open: Open,
    close: Close,
    info: Info,
}

fn linker() -> Option<Linker> {
    let (open, close, info) = (weak_address!("dlopen"), weak_address!("dlclose"), weak_address!("dlinfo"));
    if open == 0 || close == 0 || info == 0 {
        return None;
    }
    // SAFETY: the C library's functions of these names have these types.
    unsafe {
        Some(Linker {
            open: mem::transmute::<usize, Open>(open),
            close: mem::transmute::<usize, Close>(close),
            info: mem::transmute::<usize, Info>(info),
        })
    }
}

fn loaded_objects() -> Vec<LoadedObject> {
    let (mut loaded_objects, mut is_first) = (Vec::new(), true);
    elf::each(|info, headers| {
        let is_executable = mem::replace(&mut is_first, false);
        let registries = registries_of(info, headers);
        if !registries.is_empty() {
            // SAFETY: the C library's name of the module, which ends with NUL and stays during the
            // call.
            let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
            let bias = info.dlpi_addr as usize;
            let here = (&raw const NOTE_NAME).addr() as u64;
            let is_own = elf::is_loaded(headers, here.wrapping_sub(info.dlpi_addr), 1);
            loaded_objects.push(LoadedObject { name: name.to_owned(), bias, is_executable, is_own, registries });
        }
    });
    loaded_objects
}

fn registries_of(info: &libc::dl_phdr_info, headers: &[libc::Elf64_Phdr]) -> Vec<*const Registry> {
    let mut found = Vec::new();
    // SAFETY: the C library describes a module that stays mapped during the call that this is part
    // of.
    for (start, notes, alignment) in unsafe { elf::notes(info.dlpi_addr, headers) } {
        for range in elf::contents(notes, alignment, NOTE_NAME, NOTE_KIND) {
            let offset = range.start;
            let Some(Ok(distance)) = notes.get(range).map(<[u8; 8]>::try_from) else { continue };
            let address = (start + offset).wrapping_add_signed(i64::from_le_bytes(distance) as isize);
            let own_address = (address as u64).wrapping_sub(info.dlpi_addr);
            let is_table = elf::is_loaded(headers, own_address, size_of::<Registry>() as u64);
            if is_table && address.is_multiple_of(align_of::<Registry>()) {
                found.push(ptr::with_exposed_provenance(address));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_object_is_found() {
        assert_eq!(loaded_objects().iter().filter(|object| object.is_executable).count(), 1);
        assert!(pin_own().is_some());
    }
}
