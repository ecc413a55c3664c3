//! An armed program: it has this library and no session, and joins one when it is asked to.
//!
//! The recorder finds the [cell](CELL) by an ELF note, writes a session's address into it
//! and sets a word that the entry points look at. The next call of a malloc function comes here.

use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use heapledger_core::hooks::dispatch_path;
use heapledger_core::sandbox;
use heapledger_interpose::on_request;
use heapledger_recorder::cell::CELL;
use heapledger_recorder::connect::Address;
use heapledger_recorder::{leave, process, session};
use heapledger_wire::armed::{ADDRESS_LENGTH_MAX, NOTE_TYPE};

use crate::additions;
use crate::join::Library;

// An ELF note: the lengths of name and content, the type, the name, and the distance from the
// content to the cell.
global_asm!(
    ".pushsection .note.heapledger.armed, \"a\", @note",
    ".p2align 2",
    ".long 11",
    ".long 8",
    ".long {kind}",
    ".asciz \"Heapledger\"",
    ".p2align 2",
    "2: .quad {cell} - 2b",
    ".popsection",
    kind = const NOTE_TYPE,
    cell = sym CELL,
);

struct LibraryCell(UnsafeCell<MaybeUninit<Library>>);
// SAFETY: written once by `prepare`, before a request is handled, and only read since.
unsafe impl Sync for LibraryCell {}
static LIBRARY: LibraryCell = LibraryCell(UnsafeCell::new(MaybeUninit::uninit()));

/// Makes the process one that joins a session when it is asked to. Call once, at the start.
pub(crate) fn prepare(library: Library) {
    // SAFETY: no other reference to the cell exists: this is called once, and `requested` is called
    // by entry points that are in use only after `arm`.
    unsafe { (*LIBRARY.0.get()).write(library) };
    process::keep_id();
    on_request(requested);
    leave::arm();
}

/// True once the constructors of the allocator's library have run.
static HAVE_CONSTRUCTORS_RUN: AtomicBool = AtomicBool::new(false);

/// Notes that the constructors of the allocator's library have run. The caller looks for a session
/// afterwards, which may have been joined before.
pub(crate) fn note_constructors() {
    HAVE_CONSTRUCTORS_RUN.store(true, Ordering::SeqCst);
}

/// Takes a request, and joins the session. Other threads go on without it meanwhile.
#[cold]
fn requested() {
    if sandbox::is_entered() || process::is_in_vfork_child() {
        return;
    }
    let Some(_guard) = leave::begin_to_join() else { return };
    if dispatch_path::REQUESTED.swap(0, Ordering::Acquire) == 0 {
        return;
    }
    let mut bytes = [0; ADDRESS_LENGTH_MAX];
    let length = (CELL.address_length.load(Ordering::Relaxed) as usize).min(bytes.len());
    bytes.iter_mut().zip(&CELL.address).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
    CELL.taken.fetch_add(1, Ordering::Release);
    let bytes = bytes.get(..length).unwrap_or(&[]);
    let Some(address) = Address::parse(bytes) else { return };
    additions::keep_session(bytes);
    // SAFETY: `prepare` has written it, before it made calls come here.
    let library = unsafe { (*LIBRARY.0.get()).assume_init() };
    // SAFETY: `join` requires that the process belongs to no session, and that no other thread
    // joins one: `begin_to_join` has found the former, and its guard is held.
    unsafe { library.join(address, true) };
    if HAVE_CONSTRUCTORS_RUN.load(Ordering::SeqCst) {
        session::start_usable();
    }
}
