//! The library's side of the protocol: a program that is built with replace-malloc asks *this*
//! library for functions. Its own malloc, which its libraries call too, looks into a table that
//! [`replace_init`] is given.
//!
//! The program gets the functions of the malloc interposer, and what was in its table becomes the
//! underlying allocator. So all hooks have the program's calls as they have those of the C
//! library's malloc: observers and replacements, and the checks. Where `record` has redirected the
//! program's entries as well, a call that comes through both is one event, by the mark against
//! nested calls.
//!
//! Another library of the protocol that is preloaded behind this one would have been asked without
//! us. It is asked first, and its functions are the underlying ones. Libraries of `--hook` are
//! replacements in any case.
//!
//! The program's parameters of arenas are passed on unread: their layout differs between versions
//! of Firefox. So the blocks of its arenas are recorded without the arena's label.

use core::ffi::{CStr, c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use heapledger_core::hooks::{Functions, Pointer, dispatch};
use heapledger_interpose::next::{Objects, Scope};
use heapledger_interpose::{GIVEN, refuse_new_arenas};
use heapledger_recorder::{leave, session};

use super::{HOSTED_INIT, Init, Once, Table, bridge};
use crate::libraries;

/// A table that is set once, before the process has a second thread.
struct GivenTable {
    table: Once<Table>,
    is_set: AtomicBool,
}

impl GivenTable {
    const fn empty() -> GivenTable {
        GivenTable {
            table: Once(core::cell::UnsafeCell::new(mem::MaybeUninit::uninit())),
            is_set: AtomicBool::new(false),
        }
    }

    /// # Safety
    ///
    /// Called once, and by no two threads at a time.
    unsafe fn set(&self, table: Table) {
        // SAFETY: `get` reads after the flag is set, and this is the only write, by this function's
        // `# Safety`.
        unsafe { (*self.table.0.get()).write(table) };
        self.is_set.store(true, Ordering::Release);
    }

    #[inline(always)]
    fn get(&self) -> Option<&'static Table> {
        // SAFETY: `set` has written the table before it set the flag, and nobody writes it again.
        // It is part of a static.
        self.is_set.load(Ordering::Acquire).then(|| unsafe { &*self.table.0.get().cast::<Table>() })
    }
}

/// The functions that the program's table had, and those of the library that was asked after us.
static OWN: GivenTable = GivenTable::empty();
static CHAINED: GivenTable = GivenTable::empty();

/// The program's own `malloc` and `free`, 0 if the program does not ask this library; and its
/// `malloc_usable_size`, if it has one.
static ENTRIES: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
const ENTRY_NAMES: [&CStr; 3] = [c"malloc", c"free", c"malloc_usable_size"];

/// The `replace_init` functions of the next two libraries: one may be hosted.
static NEXT: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Returns the allocator of a program that asks this library; `None` for all others. To be called
/// at the start, before the underlying allocator is set.
pub(crate) fn allocator(objects: &Objects<'_>) -> Option<Functions> {
    let first = objects.lookup(Scope::All, c"replace_init");
    if first != replace_init as *const () as usize {
        return None;
    }
    // Also if the program does not become ours: an allocator behind ours asks the next library.
    let mut count = 0;
    objects.definitions(c"replace_init", |definition| {
        if let Some(next) = NEXT.get(count) {
            next.store(definition.address, Ordering::Relaxed);
        }
        count += 1;
    });
    // If the program's malloc came after ours, its calls would come to us anyway.
    let entries = ENTRY_NAMES.map(|name| objects.lookup_before_in_user_of(name, c"replace_init"));
    if entries.iter().take(2).any(|&entry| entry == 0) {
        return None;
    }
    ENTRIES.iter().zip(entries).for_each(|(entry, address)| entry.store(address, Ordering::Relaxed));
    refuse_new_arenas();
    Some(UNDERLYING)
}

/// True if the program's own allocator, which asks this library, is the underlying one.
pub(crate) fn is_underlying() -> bool {
    ENTRIES[0].load(Ordering::Relaxed) != 0
}

/// Makes the program ask now, unless it has. Call while hooks are held, so that no observer is
/// notified of the block that this takes.
pub(crate) fn be_asked() {
    if is_underlying() && OWN.get().is_none() {
        make_it_ask();
    }
}

/// `replace_init` of the protocol: gives the program the functions of this library, if there are
/// hooks or may be later. Otherwise it is as if this library were not there.
///
/// The bridge is the one of another library of the protocol, if there is one.
///
/// # Safety
///
/// `table` is the program's table, with all functions of its allocator, and `bridge` null or valid
/// for a write. The program calls this once, at its first allocation.
#[unsafe(no_mangle)]
unsafe extern "C" fn replace_init(table: *mut Table, bridge: *mut *mut c_void) {
    // SAFETY: `as_mut` requires null or a table that nobody else uses meanwhile: the program's,
    // which it uses after this call.
    let Some(table) = (unsafe { table.as_mut() }).filter(|_| OWN.get().is_none()) else { return };
    // SAFETY: `set` requires one call: the program makes one of this function.
    unsafe { OWN.set(*table) };
    heapledger_interpose::initialise();
    // SAFETY: `ask_next` requires what this function does of the bridge, and the same one call.
    unsafe { ask_next(table, bridge) };
    let is_wanted = session::is_on() || libraries::is_any_loaded() || leave::is_armed();
    if !is_underlying() || !is_wanted {
        return;
    }
    macro_rules! give {
        ($($entry:ident = $ours:ident;)*) => {
            $(if let Some(function) = GIVEN.$ours {
                table.$entry = function;
            })*
        };
    }
    give! {
        malloc = malloc;
        calloc = calloc;
        realloc = realloc;
        free = free;
        memalign = memalign;
        posix_memalign = posix_memalign;
        aligned_alloc = aligned_alloc;
        valloc = valloc;
        malloc_usable_size = malloc_usable_size;
        malloc_good_size = malloc_good_size;
        moz_arena_malloc = arena_malloc;
        moz_arena_calloc = arena_calloc;
        moz_arena_realloc = arena_realloc;
        moz_arena_free = arena_free;
        moz_arena_memalign = arena_memalign;
    }
    // If these stayed as they are, the program would take this for a library without arenas.
    table.moz_create_arena_with_params = create_arena;
    table.moz_dispose_arena = dispose_arena;
}

/// Asks the library that the program would have asked without us, unless `--hook` has made it a
/// hook.
///
/// # Safety
///
/// `bridge` is null or valid for a write. Called once, before the program has a second thread.
unsafe fn ask_next(table: &mut Table, bridge: *mut *mut c_void) {
    let hosted = HOSTED_INIT.load(Ordering::Relaxed);
    let next = NEXT.iter().map(|next| next.load(Ordering::Relaxed)).find(|&next| next != 0 && next != hosted);
    if let Some(next) = next {
        // SAFETY: by defining the name, the library declares that the function is of this type.
        let init = unsafe { mem::transmute::<usize, Init>(next) };
        let own = *table;
        // SAFETY: the function gets what the program has given us, as it would have without us.
        unsafe { init(table, bridge) };
        // As the protocol has it. The program does not do that, since we replace all of these.
        if table.memalign as usize != own.memalign as usize {
            macro_rules! derive {
                ($($name:ident),*) => {
                    $(if table.$name as usize == own.$name as usize {
                        table.$name = derived::$name;
                    })*
                };
            }
            derive!(posix_memalign, aligned_alloc, valloc);
        }
        // SAFETY: `set` is called once, by this function's `# Safety`.
        unsafe { CHAINED.set(*table) };
        return;
    }
    let last = bridge::last();
    if !bridge.is_null() && !last.is_null() {
        // SAFETY: not null, so valid for a write by this function's `# Safety`.
        unsafe { bridge.write(last) };
    }
}

/// Functions that are derived from `memalign` of the library that was asked after us.
mod derived {
    use super::*;

    const EINVAL: c_int = 22;
    const PAGE: usize = 4096;

    /// # Safety
    ///
    /// The contract of POSIX.
    pub(super) unsafe extern "C" fn posix_memalign(out: *mut Pointer, alignment: usize, size: usize) -> c_int {
        if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
            return EINVAL;
        }
        // SAFETY: the function of this name of the table below; the alignment is a power of two.
        let block = unsafe { below::memalign(alignment, size) };
        if block.is_null() {
            return ENOMEM;
        }
        // SAFETY: `out` can be written to, by this function's `# Safety`.
        unsafe { out.write(block) };
        0
    }

    /// # Safety
    ///
    /// The contract of C.
    pub(super) unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> Pointer {
        // SAFETY: the function of the table below has the contract of this one.
        unsafe { below::memalign(alignment, size) }
    }

    /// # Safety
    ///
    /// The contract of the C function.
    pub(super) unsafe extern "C" fn valloc(size: usize) -> Pointer {
        // SAFETY: the function of the table below; the alignment is a power of two.
        unsafe { below::memalign(PAGE, size) }
    }
}

/// Passes the program's parameters through the hook table, without a look at them.
unsafe extern "C" fn create_arena(parameters: *const c_void) -> usize {
    let create = dispatch::functions().and_then(|functions| functions.create_arena);
    // SAFETY: a function of a complete table; the parameters are the program's, for its allocator.
    create.map_or(0, |create| unsafe { create(parameters) })
}

unsafe extern "C" fn dispose_arena(arena: usize) {
    if let Some(dispose) = dispatch::functions().and_then(|functions| functions.dispose_arena) {
        // SAFETY: a function of a complete table; the arena is one that `create_arena` returned.
        unsafe { dispose(arena) };
    }
}

/// Makes the program ask, by a call of one of its own functions: by one that concerns no block, if
/// that does it, so that another library of the protocol sees no call more than without us.
#[cold]
fn make_it_ask() {
    let [malloc, free, usable_size] =
        [&ENTRIES[0], &ENTRIES[1], &ENTRIES[2]].map(|entry| entry.load(Ordering::Relaxed));
    if usable_size != 0 {
        // SAFETY: the program's function of this name, whose type this is. Null is no block.
        unsafe { mem::transmute::<usize, unsafe extern "C" fn(Pointer) -> usize>(usable_size)(NONE) };
    }
    if malloc == 0 || free == 0 || OWN.get().is_some() {
        return;
    }
    // SAFETY: the program's functions of these names, whose types these are. The block is freed
    // once.
    unsafe {
        let malloc = mem::transmute::<usize, unsafe extern "C" fn(usize) -> Pointer>(malloc);
        let free = mem::transmute::<usize, unsafe extern "C" fn(Pointer)>(free);
        free(malloc(1));
    }
}

/// Returns the functions below this library, once the program has asked.
#[inline(always)]
fn given() -> Option<&'static Table> {
    CHAINED.get().or_else(|| OWN.get())
}

/// Defines functions of the underlying allocator: those in the program's table.
macro_rules! below {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $otherwise:expr;)*) => {
        mod below {
            use super::*;

            $(
                /// # Safety
                ///
                /// The contract of the function of the protocol.
                pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                    if given().is_none() {
                        make_it_ask();
                    }
                    // SAFETY: the program's function of this entry; the arguments are the caller's,
                    // who keeps the contract of the function.
                    given().map_or($otherwise, |table| unsafe { (table.$name)($($argument),*) })
                }
            )*
        }
    };
}

const NONE: Pointer = ptr::null_mut();
const ENOMEM: c_int = 12;

below! {
    malloc(size: usize) -> Pointer = NONE;
    calloc(count: usize, each: usize) -> Pointer = NONE;
    realloc(old: Pointer, size: usize) -> Pointer = NONE;
    free(block: Pointer) -> () = ();
    memalign(alignment: usize, size: usize) -> Pointer = NONE;
    posix_memalign(out: *mut Pointer, alignment: usize, size: usize) -> c_int = ENOMEM;
    aligned_alloc(alignment: usize, size: usize) -> Pointer = NONE;
    valloc(size: usize) -> Pointer = NONE;
    malloc_usable_size(block: Pointer) -> usize = 0;
    malloc_good_size(size: usize) -> usize = size;
    moz_create_arena_with_params(parameters: *const c_void) -> usize = 0;
    moz_dispose_arena(arena: usize) -> () = ();
    moz_arena_malloc(arena: usize, size: usize) -> Pointer = NONE;
    moz_arena_calloc(arena: usize, count: usize, each: usize) -> Pointer = NONE;
    moz_arena_realloc(arena: usize, old: Pointer, size: usize) -> Pointer = NONE;
    moz_arena_free(arena: usize, block: Pointer) -> () = ();
    moz_arena_memalign(arena: usize, alignment: usize, size: usize) -> Pointer = NONE;
}

/// The program's allocator as the underlying one.
const UNDERLYING: Functions = Functions {
    malloc: Some(below::malloc),
    calloc: Some(below::calloc),
    realloc: Some(below::realloc),
    free: Some(below::free),
    memalign: Some(below::memalign),
    posix_memalign: Some(below::posix_memalign),
    aligned_alloc: Some(below::aligned_alloc),
    valloc: Some(below::valloc),
    malloc_usable_size: Some(below::malloc_usable_size),
    malloc_good_size: Some(below::malloc_good_size),
    create_arena: Some(below::moz_create_arena_with_params),
    dispose_arena: Some(below::moz_dispose_arena),
    arena_malloc: Some(below::moz_arena_malloc),
    arena_calloc: Some(below::moz_arena_calloc),
    arena_realloc: Some(below::moz_arena_realloc),
    arena_free: Some(below::moz_arena_free),
    arena_memalign: Some(below::moz_arena_memalign),
    ..Functions::EMPTY
};
