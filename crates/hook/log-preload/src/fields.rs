//! The fields behind calls, which `log record` asks for by a file beside this library: a name and a
//! number on each line.

use core::ffi::CStr;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use heapledger_core::arch::nr;
use heapledger_core::hooks::{Arena, Hooks, Pointer};
use heapledger_core::sys;

use crate::destination::DIRECTORY;
use crate::line::Line;

/// The name of the file.
const NAME: &str = "log.fields";
/// The bytes of the file that are read.
const LENGTH_MAX: usize = 256;

/// The time at which the log began, in nanoseconds of the monotonic clock; 0 if calls have no
/// times.
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// `malloc_usable_size` as the program calls it, of which no observer is notified: the block may be
/// a replacement's, about which the allocator cannot be asked. Null if calls have no usable sizes.
static USABLE_SIZE: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// True once the constructor of this library has run, and so those of the libraries behind it, with
/// the allocator's: some allocators cannot be asked before (tcmalloc follows a null pointer then).
static IS_INITIALISED: AtomicBool = AtomicBool::new(false);
/// True if calls have the labels of arenas.
static ARENAS: AtomicBool = AtomicBool::new(false);
/// True if calls have any fields.
static ANY: AtomicBool = AtomicBool::new(false);

type UsableSize = unsafe extern "C" fn(Pointer) -> usize;

/// Finds out which fields are asked for, before the program runs.
///
/// # Safety
///
/// `table` is the table that Heapledger gives to hook libraries.
pub(crate) unsafe fn find(table: *const Hooks) {
    let mut bytes = [0_u8; LENGTH_MAX];
    let Ok(fd) = DIRECTORY.open(format_args!("{NAME}"), O_RDONLY_CLOEXEC, 0) else { return };
    // SAFETY: the kernel writes at most that many bytes to the live array.
    let read = unsafe { sys::call(nr::READ, [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0]) };
    sys::close(fd);
    let text = sys::check(read).ok().and_then(|length| core::str::from_utf8(bytes.get(..length)?).ok());
    for (name, value) in text.unwrap_or("").lines().filter_map(|line| line.split_once(' ')) {
        match (name, value.parse::<u64>()) {
            ("time", Ok(began)) => BEGAN.store(began, Ordering::Relaxed),
            ("arena", Ok(_)) => ARENAS.store(true, Ordering::Relaxed),
            ("usable", Ok(_)) => {
                // SAFETY: the table is complete, by this function's `# Safety`, and with it the one
                // that it points to.
                let function = unsafe { (*(*table).program).malloc_usable_size };
                USABLE_SIZE.store(function.map_or(ptr::null_mut(), |function| function as *mut ()), Ordering::Relaxed);
            }
            _ => continue,
        }
        ANY.store(true, Ordering::Relaxed);
    }
}

const O_RDONLY_CLOEXEC: usize = 0o2000000;

extern "C" fn constructor() {
    IS_INITIALISED.store(true, Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// True if calls have any fields.
#[inline(always)]
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Adds the fields of a call.
///
/// # Safety
///
/// `result` is null or a live block of the program's allocator, and `arena` null or an arena that
/// observers are told of.
#[inline(always)]
pub(crate) unsafe fn add(line: &mut Line<'_>, result: Pointer, arena: *const Arena) {
    if any() {
        // SAFETY: the same contract.
        line.apart(|line| unsafe { add_asked(line, result, arena) });
    }
}

/// # Safety
///
/// As for [`add`].
#[cold]
unsafe fn add_asked(line: &mut Line<'_>, result: Pointer, arena: *const Arena) {
    // SAFETY: null, or stored by `find` from an optional function of this type; `None` of it is
    // null.
    let usable = unsafe { mem::transmute::<*mut (), Option<UsableSize>>(USABLE_SIZE.load(Ordering::Relaxed)) };
    if let Some(usable) = usable.filter(|_| !result.is_null() && IS_INITIALISED.load(Ordering::Relaxed)) {
        line.text(b" usable=");
        // SAFETY: `malloc_usable_size` asks for a live block, which `result` is, by this function's
        // contract. It is the program's function, of which no observer is notified: observers may
        // call it.
        line.decimal(unsafe { usable(result) } as u64);
    }
    let began = BEGAN.load(Ordering::Relaxed);
    if began != 0 {
        line.text(b" time=");
        line.decimal(sys::monotonic_nanoseconds().saturating_sub(began));
    }
    if ARENAS.load(Ordering::Relaxed) {
        // SAFETY: null, or an arena that observers are told of, by this function's contract: it
        // stays as it is until they return.
        let Some(arena) = (unsafe { arena.as_ref() }) else { return };
        line.text(b" arena=");
        // SAFETY: the label is never null, and has a terminator: see `Arena`.
        line.label(unsafe { CStr::from_ptr(arena.label) }.to_bytes());
    }
}
