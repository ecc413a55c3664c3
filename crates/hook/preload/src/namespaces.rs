//! Namespaces that `dlmopen` makes: the malloc functions of each namespace's C library are
//! redirected to ours while it is made.
//!
//! The dynamic linker maps a new namespace's objects, allocates the list in which their symbols are
//! searched, and binds them. It allocates by the program's `malloc`: ours, which looks for a
//! namespace whose C library has not been redirected. So that library's symbol table is ready
//! before anything is bound by it, the library's own calls too, and before a constructor runs; and
//! libraries that are loaded there later are bound to us as well.

use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use heapledger_core::arch;
use heapledger_interpose::allocators::{NAMESPACES_MAX, set_allocator};
use heapledger_interpose::namespace_stubs;
use heapledger_interpose::namespaces::{REDIRECTED, stub};
use heapledger_interpose::next::{NamespaceLibrary, Objects};
use heapledger_recorder::{process, session};
use heapledger_unwind::modules;

use crate::thread_library::thread_library;
use crate::{libraries, linker, unseen};
use dlmopen::dlmopen_of_namespace;

mod dlmopen;

/// The threads that are about to make a namespace, by their thread pointers; 0 in a free slot.
static LOADERS: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
/// True once more threads than that were making namespaces at a time: from then on any thread may
/// make one, at any call.
static HAS_TOO_MANY_LOADERS: AtomicBool = AtomicBool::new(false);
/// The address at which the dynamic linker is loaded, once it is known.
static LINKER: AtomicUsize = AtomicUsize::new(0);
/// The number of bytes of a path that are kept, including the zero behind it.
const PATH_MAX: usize = 1025;

/// The C library, by its [`id`](NamespaceLibrary::id), of each namespace whose calls are not seen.
static UNSEEN: [AtomicUsize; NAMESPACES_MAX] = [const { AtomicUsize::new(0) }; NAMESPACES_MAX];

/// The functions of a namespace's C library that we call.
const NEXT: [&CStr; 5] = [c"dlmopen", c"dlclose", c"pthread_key_create", c"pthread_key_delete", c"pthread_setspecific"];
/// Their addresses, by the namespace's number.
static ADDRESSES: [[AtomicUsize; NEXT.len()]; NAMESPACES_MAX] =
    [const { [const { AtomicUsize::new(0) }; NEXT.len()] }; NAMESPACES_MAX];

/// Notes that the calling thread is about to make a namespace. Returns false if its calls will not
/// be seen.
///
/// If there are hook libraries, namespaces are not redirected, because a replacement is not called
/// in a namespace: the hook libraries are notified of libraries whose calls they do not see.
fn expect_namespace() -> bool {
    if !session::is_on() || !unseen::is_redirected() || libraries::is_any_loaded() || !modules::can_ask_linker() {
        return false;
    }
    let own = arch::thread_pointer();
    let is_own = |loader: &AtomicUsize| loader.load(Ordering::SeqCst) == own;
    let take = |loader: &AtomicUsize| loader.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    if !LOADERS.iter().any(is_own) && !LOADERS.iter().any(take) {
        HAS_TOO_MANY_LOADERS.store(true, Ordering::SeqCst);
    }
    heapledger_interpose::watch_malloc(Some(search));
    true
}

/// Looks for a namespace that has been made, at a call of `malloc` that returns to this address.
fn search(caller: u64) {
    let own = arch::thread_pointer();
    let loader = LOADERS.iter().find(|loader| loader.load(Ordering::Relaxed) == own);
    if loader.is_none() && !HAS_TOO_MANY_LOADERS.load(Ordering::Relaxed) {
        return;
    }
    let start = modules::find(caller).map_or(0, |module| module.start() as usize);
    if loader.is_none() && start != LINKER.load(Ordering::Relaxed) {
        return;
    }
    let mut unseen = [0_u8; PATH_MAX];
    let find = |objects: &Objects<'_>| {
        let linker = objects.linker_start();
        LINKER.store(linker, Ordering::Relaxed);
        let is_linker = linker == start;
        // A call from elsewhere means that the linker has returned, or runs constructors.
        let mut is_over = !is_linker;
        objects.namespace_libraries(|library| {
            let known = UNSEEN.get(library.namespace);
            let is_known = known.is_some_and(|known| known.load(Ordering::Relaxed) == library.id());
            // A library that is being mapped is left to the thread that maps it. That is this one
            // if the linker calls: it holds the linker's lock.
            if is_known || is_redirected(&library) || library.is_being_mapped && !is_linker {
                return;
            }
            is_over |= library.is_being_mapped;
            if !library.is_being_mapped || !redirect(&library) {
                if let Some(known) = known {
                    known.store(library.id(), Ordering::Relaxed);
                }
                // The path goes away with the library, which another thread may close.
                let path = library.path().to_bytes();
                for (to, from) in unseen.iter_mut().take(PATH_MAX - 1).zip(path.iter().chain(&[0])) {
                    *to = *from;
                }
            }
        });
        is_over
    };
    // SAFETY: the C library's function of this name, by which it was looked up.
    let is_over = linker::iterate_objects().and_then(|iterate| unsafe { Objects::locked(iterate, find) });
    if let Some(loader) = loader
        && is_over != Some(false)
    {
        loader.store(0, Ordering::SeqCst);
        if !is_expected() {
            heapledger_interpose::watch_malloc(None);
            // Another thread may have begun meanwhile.
            if is_expected() {
                heapledger_interpose::watch_malloc(Some(search));
            }
        }
    }
    if let Ok(path) = CStr::from_bytes_until_nul(&unseen)
        && !path.is_empty()
    {
        unseen::record_unseen_namespace(path.as_ptr());
    }
}

fn is_expected() -> bool {
    HAS_TOO_MANY_LOADERS.load(Ordering::SeqCst) || LOADERS.iter().any(|loader| loader.load(Ordering::SeqCst) != 0)
}

/// True if a namespace's calls are seen.
fn is_recorded(namespace: isize) -> bool {
    let search = |objects: &Objects<'_>| {
        let mut found = false;
        objects.namespace_libraries(|library| {
            found |= library.namespace as isize == namespace && is_redirected(&library);
        });
        found
    };
    // SAFETY: the C library's function of this name, by which it was looked up.
    linker::iterate_objects().and_then(|iterate| unsafe { Objects::locked(iterate, search) }).unwrap_or(false)
}

fn is_redirected(library: &NamespaceLibrary<'_>) -> bool {
    REDIRECTED.first().is_some_and(|&(name, function)| library.function(name) == stub(function, library.namespace))
}

fn redirect(library: &NamespaceLibrary<'_>) -> bool {
    let namespace = library.namespace;
    let Some(addresses) = ADDRESSES.get(namespace) else { return false };
    for (slot, name) in addresses.iter().zip(NEXT) {
        slot.store(library.function(name), Ordering::Release);
    }
    // Blocks of another allocator come to the observers from now on.
    session::stop_usable();
    // SAFETY: the library has not been redirected, so no call of the namespace has come here; the
    // addresses are its own.
    if !unsafe { set_allocator(namespace, |name| library.function(name), first_call) } {
        return false;
    }
    let own = [(c"dlmopen", dlmopen_of_namespace as *const ()), (c"dlclose", dlclose_of_namespace as *const ())];
    let functions = REDIRECTED.into_iter().chain(own);
    library.redirect(functions.map(|(name, function)| (name, stub(function, namespace))))
}

/// Handles the first call of a namespace: its C library has been relocated.
fn first_call(namespace: usize) {
    let address = |name: &CStr| NEXT.iter().position(|next| *next == name).map_or(0, |index| next(namespace, index));
    if let Some(library) = thread_library(address) {
        // SAFETY: `process::share_key` requires functions of that library, and that both are glibc:
        // only glibc has namespaces, and its dynamic linker works with glibc's C library only.
        // `address` looks the functions up there.
        unsafe { process::share_key(library) };
    }
}

/// Returns the address of one of `NEXT`.
fn next(namespace: usize, index: usize) -> usize {
    let slot = ADDRESSES.get(namespace).and_then(|addresses| addresses.get(index));
    slot.map_or(0, |slot| slot.load(Ordering::Acquire))
}

/// Returns the address of a namespace's `dlmopen`.
fn next_dlmopen(namespace: usize) -> usize {
    next(namespace, 0)
}

/// The `dlclose` for the C library of another namespace.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(naked)]
unsafe extern "C" fn dlclose_of_namespace() {
    naked_asm!(namespace_stubs!(), "movzx esi, al", "jmp {close}", close = sym close)
}

extern "C" fn close(handle: *mut c_void, namespace: usize) -> c_int {
    linker::close(handle, next(namespace, 1))
}
