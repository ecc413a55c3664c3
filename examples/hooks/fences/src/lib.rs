//! A hook library: a write past the end of a block, or a use after free, ends the program at once.
//!
//! Blocks of 256 to 512 bytes get pages of their own. A block ends at the end of its page (except
//! for rounding up to 16 bytes), and the next page is inaccessible. When the block is freed, its
//! own page becomes inaccessible, until all other pages have been used. All other sizes go to the
//! allocator below.
//!
//! ```console
//! $ cargo build --release --manifest-path examples/hooks/fences/Cargo.toml
//! $ heapledger run --hook examples/hooks/fences/target/release/libfences.so -- ./server
//! $ FENCES=count.txt heapledger run --hook examples/hooks/fences/target/release/libfences.so -- ls
//! ```
//!
//! With `FENCES`, each process that exits appends the number of blocks that it handled to that
//! file.

use std::ffi::c_int;
use std::io::Write;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use heapledger::hooks::{self, Functions, Hooks, Pointer, Replacement};

const PAGE: usize = 4096;
/// The requested sizes that are handled here.
const SERVED: std::ops::RangeInclusive<usize> = 256..=512;
/// The number of places, each a page and the inaccessible one behind it. Each takes two of a
/// process's 65,530 mappings.
const PLACES: usize = 16 << 10;

/// The version of the hook table that this library is made for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_hook_version: u32 = hooks::VERSION;

/// Installs the hook.
///
/// # Safety
///
/// Called by Heapledger, with its tables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_hook_init(_real: *const Functions, hooks: *const Hooks) -> c_int {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks unused addresses, so no existing mapping is
    // affected.
    let region = unsafe { libc::mmap(ptr::null_mut(), PLACES * 2 * PAGE, libc::PROT_NONE, flags, -1, 0) };
    if region == libc::MAP_FAILED {
        return 1;
    }
    REGION.store(region.cast(), Ordering::Release);
    // SAFETY: the table is static, and its functions keep the contract of `Replacement`.
    unsafe { ((*hooks).install_replacement)(&raw const REPLACEMENT) }
}

static REPLACEMENT: Replacement = Replacement {
    name: c"fences".as_ptr(),
    owns: Some(owns),
    functions: Functions {
        malloc: Some(malloc),
        realloc: Some(realloc),
        free: Some(free),
        malloc_usable_size: Some(usable_size),
        ..Functions::EMPTY
    },
    ..Replacement::new(BELOW.as_ptr().cast())
};

/// The allocator below this one.
static BELOW: AtomicPtr<Functions> = AtomicPtr::new(ptr::null_mut());
static REGION: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// The size of the block in each place; 0 if the place is free.
static SIZES: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
/// The place at which the next search begins. Guarded by the lock.
static NEXT: AtomicUsize = AtomicUsize::new(0);
static LOCK: Mutex<()> = Mutex::new(());
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

fn below() -> &'static Functions {
    // SAFETY: the pointer is set before the first call, to a table that stays to the end of the
    // process.
    unsafe { &*BELOW.load(Ordering::Acquire) }
}

fn below_malloc(size: usize) -> Pointer {
    // SAFETY: `malloc` takes any size, by the contract of the C function. The table below holds the
    // C functions of these names, which may be called in any thread.
    below().malloc.map_or(ptr::null_mut(), |malloc| unsafe { malloc(size) })
}

/// Takes the place that has been free for longest; `None` if another thread is searching, or too
/// many places in turn are taken.
fn take(size: usize) -> Option<usize> {
    /// The number of places that a search examines before it gives up.
    const TRIES: usize = 64;
    // Nothing is allocated, and nothing panics, while the lock is held.
    let _guard = LOCK.try_lock().ok()?;
    let first = NEXT.load(Ordering::Relaxed);
    let place = (first..first + TRIES).map(|at| at % PLACES).find(|&at| SIZES[at].load(Ordering::Acquire) == 0)?;
    NEXT.store((place + 1) % PLACES, Ordering::Relaxed);
    SIZES[place].store(size, Ordering::Release);
    Some(place)
}

fn page_of(place: usize) -> *mut u8 {
    REGION.load(Ordering::Relaxed).wrapping_add(place * 2 * PAGE)
}

/// Returns the place of a block, or `None` if the block is not from this library.
fn place_of(block: Pointer) -> Option<usize> {
    let offset = (block as usize).wrapping_sub(REGION.load(Ordering::Relaxed) as usize);
    (offset < PLACES * 2 * PAGE).then_some(offset / (2 * PAGE))
}

unsafe extern "C" fn owns(block: Pointer) -> c_int {
    c_int::from(place_of(block).is_some())
}

unsafe extern "C" fn malloc(size: usize) -> Pointer {
    let Some(place) = SERVED.contains(&size).then(|| take(size)).flatten() else { return below_malloc(size) };
    let page = page_of(place);
    if !protect(page, PAGE, true) {
        SIZES[place].store(0, Ordering::Release);
        return below_malloc(size);
    }
    ALLOCATED.fetch_add(1, Ordering::Relaxed);
    page.wrapping_add(PAGE - size.next_multiple_of(16)).cast()
}

unsafe extern "C" fn free(block: Pointer) {
    let Some(place) = place_of(block) else { return };
    FREED.fetch_add(1, Ordering::Relaxed);
    protect(page_of(place), PAGE, false);
    SIZES[place].store(0, Ordering::Release);
}

/// # Safety
///
/// The contract of `Replacement`: `old` is null, or a live block of this library.
unsafe extern "C" fn realloc(old: Pointer, size: usize) -> Pointer {
    // SAFETY: `free` and `usable_size` require a block of this library, which `old` is by this
    // function's `# Safety`, if not null. The copy is of no more bytes than either block has; both
    // are live, so they do not overlap.
    unsafe {
        if old.is_null() {
            return malloc(size);
        }
        let new = malloc(size.max(1));
        if !new.is_null() {
            ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast(), usable_size(old).min(size));
            free(old);
        }
        new
    }
}

unsafe extern "C" fn usable_size(block: Pointer) -> usize {
    place_of(block).map_or(0, |place| SIZES[place].load(Ordering::Acquire))
}

/// Makes memory of the region accessible, or not.
fn protect(start: *mut u8, length: usize, is_accessible: bool) -> bool {
    let protection = if is_accessible { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    // SAFETY: the region belongs to this library, and a free place is not used. The thread's errno
    // is kept.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let is_done = libc::mprotect(start.cast(), length, protection) == 0;
        *errno = before;
        is_done
    }
}

/// Runs when the process exits.
extern "C" fn report() {
    let Some(path) = std::env::var_os("FENCES") else { return };
    let (allocated, freed) = (ALLOCATED.load(Ordering::Relaxed), FREED.load(Ordering::Relaxed));
    if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) {
        // A failed write cannot be reported to anybody.
        let _ = writeln!(file, "process {}: allocated {allocated} freed {freed}", std::process::id());
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static REPORT: extern "C" fn() = report;
