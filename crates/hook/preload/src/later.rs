//! Redirects the entry points of allocators inside of libraries that the program opens while it
//! runs: after the dynamic linker has mapped them, and before any of their code runs.
//!
//! The linker calls a function for debuggers then, in whose place we put a jump
//! ([`watch_linker`]). It is in the middle of a `dlopen`, with its lock of loading held, so one
//! thread at a time is here. The recorder says which of the new libraries have an allocator; one
//! without is not asked about again while its file is the same, and the plan of one that is opened
//! again at the same address is kept. Other modules of the process, and libraries in namespaces of
//! `dlmopen`, are not looked at.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::hooks::dispatch_path;
use heapledger_core::sandbox;
use heapledger_core::sys::file_identity;
use heapledger_interpose::next::{LinkerEvents, Objects};
use heapledger_recorder::connect::request_later_entries;
use heapledger_recorder::{process, session};
use heapledger_redirect::{KeptPlans, nesting, thunk_address, watch_linker};
use heapledger_wire::session::MODULES_MAX;

use crate::unseen;

static EVENTS: LinkerEvents = LinkerEvents::new();

static KEPT: KeptPlans = KeptPlans::new();

/// The number of files that are known to have no allocator.
const WITHOUT_MAX: usize = 1024;
/// Their identities, each at one of the places that it gives itself. 0 is none.
static WITHOUT: [AtomicU64; WITHOUT_MAX] = [const { AtomicU64::new(0) }; WITHOUT_MAX];

/// How often a plan is asked for if another thread maps memory where stubs should be.
const ATTEMPTS: usize = 3;

/// Watches the dynamic linker from now on. Returns false if that is not possible: then the
/// allocators of libraries that are opened later are not seen.
///
/// # Safety
///
/// The process has one thread, which runs code of ours on behalf of the dynamic linker: the
/// resolver of an indirect function.
pub(crate) unsafe fn watch() -> bool {
    // SAFETY: `at_start` requires that nobody loads or unloads an object meanwhile: the only thread
    // is here.
    let breakpoint = EVENTS.find(&unsafe { Objects::at_start() });
    // SAFETY: `watch_linker` requires the linker's `r_brk`, which it is if it is not 0, and one
    // thread, which is elsewhere. `linker_event` restores all registers that a function may change.
    breakpoint != 0 && unsafe { watch_linker(breakpoint, (linker_event as *const ()).expose_provenance() as u64) }
}

heapledger_redirect::linker_event!(linker_event calls linker_calls);

/// A new library.
#[derive(Clone, Copy)]
struct Library {
    path: *const c_char,
    /// The identity of its file.
    file: u64,
    bias: u64,
    address: u64,
}

/// New libraries that may have an allocator.
struct Batch {
    libraries: [Option<Library>; MODULES_MAX],
    count: usize,
}

impl Batch {
    const EMPTY: Batch = Batch { libraries: [None; MODULES_MAX], count: 0 };

    fn push(&mut self, library: Library) {
        if let Some(slot) = self.libraries.get_mut(self.count) {
            *slot = Some(library);
            self.count += 1;
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Library> {
        self.libraries.iter().flatten()
    }
}

/// Handles a call of the dynamic linker.
extern "C" fn linker_calls() {
    let mut batch = Batch::EMPTY;
    // SAFETY: the linker calls, by `linker_event`, whenever it would have called `r_brk`.
    unsafe {
        EVENTS.mapped(|object| {
            // The events of a process that records nothing are of no use, and one in a sandbox must
            // not ask. In a vfork child, the parent's memory would be changed.
            if !session::is_on() || sandbox::is_entered() || process::is_in_vfork_child() {
                return;
            }
            let Some(file) = file_identity(object.path) else { return };
            if is_without(file) {
                return;
            }
            batch.push(Library { path: object.path.as_ptr(), file, bias: object.bias, address: object.address });
            if batch.count == MODULES_MAX {
                redirect(&batch);
                batch = Batch::EMPTY;
            }
        });
    }
    if batch.count != 0 {
        redirect(&batch);
    }
}

/// Redirects the entries of libraries that have just been mapped; names those of which not all
/// could be.
fn redirect(batch: &Batch) {
    // SAFETY: `install_again` requires libraries that have just been mapped, and one user of the
    // table: the linker calls in the middle of a `dlopen`, with its lock of loading held. The key
    // says which files they are and where.
    let kept = unsafe { KEPT.install_again(key(batch.iter())) };
    let is_redirected = kept.unwrap_or_else(|| (0..ATTEMPTS).find_map(|_| ask(batch)).unwrap_or(false));
    if nesting::is_active() {
        // Calls of the interposer have to be marked from now on.
        dispatch_path::update();
    }
    if !is_redirected {
        for library in batch.iter().filter(|library| !is_without(library.file)) {
            // SAFETY: the linker's text, which stays as long as the library.
            unseen::record_later(unsafe { CStr::from_ptr(library.path) });
        }
    }
}

/// Asks the recorder for a plan, and installs it. True if all entries are redirected, false if the
/// recorder did not answer, or some were missed. `None` if all were missed: it may help to ask
/// again, for stubs at another address.
fn ask(batch: &Batch) -> Option<bool> {
    let mut addresses = [0; MODULES_MAX];
    for (to, library) in addresses.iter_mut().zip(batch.iter()) {
        *to = library.address;
    }
    let mut installed = None;
    let answer = request_later_entries(thunk_address(), &addresses, |with_allocator, fd, length| {
        let has_allocator = |index: usize| with_allocator >> index & 1 != 0;
        let with_allocator = || batch.iter().enumerate().filter(|(index, _)| has_allocator(*index));
        let key = key(with_allocator().map(|(_, library)| library));
        let mut files = [(0, 0); MODULES_MAX];
        for (to, (_, library)) in files.iter_mut().zip(with_allocator()) {
            *to = (library.file, library.bias);
        }
        // SAFETY: `install` requires a plan for this process, which the recorder has made while
        // this thread waited; code that no thread is in or can get to: the libraries have just been
        // mapped, and nobody else knows of them yet; and one user of the table, which has the
        // linker's lock.
        let count = unsafe { KEPT.install(key, &files, fd, length, &is_loaded) };
        installed = Some(count);
        count
    });
    let Some(answer) = answer else { return Some(false) };
    for (_, library) in batch.iter().enumerate().filter(|(index, _)| answer.with_allocator >> index & 1 == 0) {
        note_without(library.file);
    }
    if installed == Some(0) { None } else { Some(answer.missed == 0) }
}

/// True if a file is mapped as a module at a distance from its own addresses, or may be. Called in
/// a call of the dynamic linker.
fn is_loaded((file, bias): (u64, u64)) -> bool {
    // One whose file is gone may be any.
    let is_it = |path: &CStr| file_identity(path).is_none_or(|found| found == file);
    // SAFETY: `has_object` requires what `linker_calls` is given.
    unsafe { EVENTS.has_object(bias, is_it) }
}

/// True if a file is known to have no allocator.
fn is_without(file: u64) -> bool {
    places(file).any(|place| place.load(Ordering::Relaxed) == file)
}

/// Notes that a file has no allocator. If all of its places are taken, the file in the last one is
/// forgotten.
fn note_without(file: u64) {
    let is_free = |place: &&AtomicU64| [0, file].contains(&place.load(Ordering::Relaxed));
    if let Some(place) = places(file).find(is_free).or(places(file).last()) {
        place.store(file, Ordering::Relaxed);
    }
}

/// Returns the places for a file that is known to have no allocator.
fn places(file: u64) -> impl Iterator<Item = &'static AtomicU64> {
    const PLACES: usize = 8;
    (0..PLACES).filter_map(move |step| WITHOUT.get((file as usize).wrapping_add(step) % WITHOUT_MAX))
}

/// Returns the key of these files at these addresses; not 0.
fn key<'l>(libraries: impl Iterator<Item = &'l Library>) -> u64 {
    let words = libraries.flat_map(|library| [library.file, library.bias]);
    // FNV-1a, by words.
    let hash = words.fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
        (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(31)
    });
    hash | 1
}
