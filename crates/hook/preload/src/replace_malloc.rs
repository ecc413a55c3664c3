//! Hosts a library that speaks Firefox's replace-malloc protocol: it exports `replace_init`, which
//! is given a table of the allocator's functions and overwrites those that it replaces.
//!
//! The library becomes a replacement in the hook table. The functions that it finds in its table
//! lead to the table below that replacement, so it works over any allocator and with other hooks. A
//! process hosts one such library. The [bridge](bridge) of the library, and a second one that a
//! program brings at run time ([dynamic]), are in modules of their own. So is the other side of the
//! protocol: this library as the one that a program [asks](asking).
//!
//! The layout is that of `malloc_decls.h` in Firefox 140 and later. Two entries differ between
//! versions of Firefox, and are used by few libraries:
//! - the statistics have the layout of Firefox 140, without `real_page_size`;
//! - the parameters of an arena are passed on as the program gave them: they are those of
//!   `heapledger_arena_create`, and a library must not look into them.

pub(crate) mod asking;
mod bridge;
mod dynamic;

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use heapledger_core::fatal::{self, Part::Text};
use heapledger_core::hooks::arena::{BinStatistics, LightStatistics, PointerInfo, Statistics};
use heapledger_core::hooks::{self, Functions, Pointer, Replacement, dispatch};

/// Defines the table of the protocol, in its order.
macro_rules! table {
    ($($name:ident: fn($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        /// `malloc_table_t`.
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub(crate) struct Table {
            $($name: unsafe extern "C" fn($($type),*) -> $result,)*
        }

        /// The tables as the libraries get them: our functions, which lead below [`HOSTED`] and
        /// below [`DYNAMIC`]. There is one of each: the address of a function may differ from one
        /// use of it to the next, and the two are compared.
        static OURS: [Table; 2] =
            [Table { $($name: below::$name::<HOSTED>,)* }, Table { $($name: below::$name::<DYNAMIC>,)* }];

        /// A table whose entries are replaced one by one, while other threads call them.
        struct Entries {
            $($name: AtomicPtr<()>,)*
        }

        impl Entries {
            const fn empty() -> Entries {
                Entries { $($name: AtomicPtr::new(ptr::null_mut()),)* }
            }

            fn store(&self, table: &Table) {
                $(self.$name.store(table.$name as *mut (), Ordering::Release);)*
            }
        }

        /// The functions of the library that a program has brought last. Empty before the first one
        /// is installed.
        static ENTRIES: Entries = Entries::empty();

        /// Functions that call those of [`ENTRIES`], one for each.
        mod current {
            use super::*;

            $(
                /// # Safety
                ///
                /// The contract of the function of this name; a library is stored in [`ENTRIES`].
                pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                    let function = ENTRIES.$name.load(Ordering::Acquire);
                    // SAFETY: by this function's `# Safety` the entry has been stored; only
                    // `Entries::store` does so, with a function of this type. The arguments are
                    // the caller's, who keeps the contract of the function of this name.
                    unsafe {
                        core::mem::transmute::<*mut (), unsafe extern "C" fn($($type),*) -> $result>(function)(
                            $($argument),*
                        )
                    }
                }
            )*
        }

        /// The table of [`current`].
        static CURRENT: Table = Table { $($name: current::$name,)* };
    };
}

/// The library that was loaded with the program.
const HOSTED: usize = 0;
/// The one that the program has brought at run time.
const DYNAMIC: usize = 1;

table! {
    malloc: fn(size: usize) -> Pointer;
    calloc: fn(count: usize, each: usize) -> Pointer;
    realloc: fn(old: Pointer, size: usize) -> Pointer;
    free: fn(block: Pointer) -> ();
    memalign: fn(alignment: usize, size: usize) -> Pointer;
    posix_memalign: fn(out: *mut Pointer, alignment: usize, size: usize) -> c_int;
    aligned_alloc: fn(alignment: usize, size: usize) -> Pointer;
    valloc: fn(size: usize) -> Pointer;
    malloc_usable_size: fn(block: Pointer) -> usize;
    malloc_good_size: fn(size: usize) -> usize;
    jemalloc_stats_internal: fn(stats: *mut Stats, bins: *mut BinStatistics) -> ();
    jemalloc_stats_num_bins: fn() -> usize;
    jemalloc_stats_lite: fn(total: *mut LightStatistics) -> ();
    jemalloc_set_main_thread: fn() -> ();
    jemalloc_purge_freed_pages: fn() -> ();
    jemalloc_free_dirty_pages: fn() -> ();
    moz_set_max_dirty_page_modifier: fn(shift: i32) -> ();
    moz_enable_deferred_purge: fn(is_on: bool) -> bool;
    moz_may_purge_now: fn(is_peek_only: bool, grace: u32, budget: *const c_void) -> c_int;
    jemalloc_free_excess_dirty_pages: fn() -> ();
    jemalloc_reset_small_alloc_randomization: fn(is_on: bool) -> ();
    jemalloc_thread_local_arena: fn(is_on: bool) -> ();
    jemalloc_ptr_info: fn(address: *const c_void, info: *mut PtrInfo) -> ();
    moz_create_arena_with_params: fn(parameters: *const c_void) -> usize;
    moz_dispose_arena: fn(arena: usize) -> ();
    moz_arena_malloc: fn(arena: usize, size: usize) -> Pointer;
    moz_arena_calloc: fn(arena: usize, count: usize, each: usize) -> Pointer;
    moz_arena_realloc: fn(arena: usize, old: Pointer, size: usize) -> Pointer;
    moz_arena_free: fn(arena: usize, block: Pointer) -> ();
    moz_arena_memalign: fn(arena: usize, alignment: usize, size: usize) -> Pointer;
}

/// `jemalloc_stats_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Stats {
    opt_junk: bool,
    opt_randomize_small: bool,
    opt_zero: bool,
    narenas: usize,
    quantum: usize,
    quantum_max: usize,
    quantum_wide: usize,
    quantum_wide_max: usize,
    subpage_max: usize,
    large_max: usize,
    chunksize: usize,
    page_size: usize,
    dirty_max: usize,
    mapped: usize,
    allocated: usize,
    waste: usize,
    pages_dirty: usize,
    pages_fresh: usize,
    pages_madvised: usize,
    bookkeeping: usize,
    bin_unused: usize,
    num_operations: usize,
}

/// `jemalloc_ptr_info_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct PtrInfo {
    tag: u32,
    address: usize,
    size: usize,
}

/// `replace_init(malloc_table_t*, ReplaceMallocBridge**)`.
type Init = unsafe extern "C" fn(*mut Table, *mut *mut c_void);

/// The tables below the libraries' replacements; null until these are installed.
static BELOW: [AtomicPtr<Functions>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

/// A value that is written once, before anything that reads it can be called.
struct Once<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: `Sync` demands that shared use makes no data race. `host` alone writes the values, in the
// first thread, before the functions that read them are installed.
unsafe impl<T> Sync for Once<T> {}

/// The table of the library that was loaded with the program.
static HOSTED_TABLE: Once<Table> = Once(UnsafeCell::new(MaybeUninit::uninit()));
/// The library as a replacement.
static REPLACEMENT: Once<Replacement> = Once(UnsafeCell::new(MaybeUninit::uninit()));

/// The `replace_init` of the library that [`host`] is called with; 0 if there is none.
static HOSTED_INIT: AtomicUsize = AtomicUsize::new(0);

/// Says which library is [hosted](host), by its `replace_init`.
pub(crate) fn set_hosted(init: usize) {
    HOSTED_INIT.store(init, Ordering::Relaxed);
}

/// Asks a library for its functions, and installs those that it replaces. If it replaces none, it
/// is not installed.
///
/// # Safety
///
/// `init` is the address of a `replace_init`. Called once, in the first thread, before any hook is
/// entered.
pub(crate) unsafe fn host(init: usize) {
    // SAFETY: by exporting the name, the library declares that the function is of this type.
    let init = unsafe { core::mem::transmute::<usize, Init>(init) };
    // SAFETY: `init` is a `replace_init`.
    let table = unsafe { bridge::ask(init, OURS[HOSTED]) };
    let Some(functions) = replaced::<HOSTED>(&table) else { return };
    let replacement = Replacement {
        name: c"replace-malloc".as_ptr(),
        functions,
        // The variable holds a pointer to a table.
        ..Replacement::new(BELOW[HOSTED].as_ptr().cast())
    };
    // SAFETY: written here alone, by the contract of this function; nobody reads them before the
    // installation below. `install_replacement` requires a table whose functions keep the contract
    // of `Replacement`: those of the library do, as far as the protocol demands it, and the
    // adapters below call nothing else.
    unsafe {
        (*HOSTED_TABLE.0.get()).write(table);
        let replacement = (*REPLACEMENT.0.get()).write(replacement);
        if hooks::install_replacement(replacement).is_err() {
            // A program without an allocator whose blocks can be freed by their address.
            fatal::print(&[Text("the library of --hook was not installed: this allocator cannot be replaced")]);
            return;
        }
        // This thread is the process's first.
        (table.jemalloc_set_main_thread)();
    }
}

/// Returns the functions that a library has replaced; `None` if it has replaced none.
fn replaced<const SLOT: usize>(table: &Table) -> Option<Functions> {
    let mut is_any = false;
    /// The function of the library, if it is not ours; or an adapter that calls it.
    macro_rules! own {
        ($name:ident) => {
            own!($name, table.$name)
        };
        ($name:ident, $function:expr) => {{
            let is_own = table.$name as usize != OURS[SLOT].$name as usize;
            is_any |= is_own;
            if is_own { Some($function as _) } else { None }
        }};
    }
    let mut functions = Functions {
        malloc: own!(malloc),
        calloc: own!(calloc),
        realloc: own!(realloc),
        free: own!(free),
        memalign: own!(memalign),
        posix_memalign: own!(posix_memalign),
        aligned_alloc: own!(aligned_alloc),
        valloc: own!(valloc),
        malloc_usable_size: own!(malloc_usable_size),
        malloc_good_size: own!(malloc_good_size),
        create_arena: own!(moz_create_arena_with_params),
        dispose_arena: own!(moz_dispose_arena),
        arena_malloc: own!(moz_arena_malloc),
        arena_calloc: own!(moz_arena_calloc),
        arena_realloc: own!(moz_arena_realloc),
        arena_free: own!(moz_arena_free),
        arena_memalign: own!(moz_arena_memalign),
        statistics: own!(jemalloc_stats_internal, hosted::statistics::<SLOT> as unsafe extern "C" fn(_, _)),
        statistics_bins: own!(jemalloc_stats_num_bins),
        statistics_light: own!(jemalloc_stats_lite),
        pointer_info: own!(jemalloc_ptr_info, hosted::pointer_info::<SLOT> as unsafe extern "C" fn(_, _)),
        purge_all: own!(jemalloc_free_dirty_pages, hosted::purge_all::<SLOT> as unsafe extern "C" fn() -> _)
            .or(own!(jemalloc_purge_freed_pages, hosted::purge_all::<SLOT> as unsafe extern "C" fn() -> _)),
        purge_excess: own!(
            jemalloc_free_excess_dirty_pages,
            hosted::purge_excess::<SLOT> as unsafe extern "C" fn() -> _
        ),
        purge_now: own!(moz_may_purge_now, hosted::purge_now::<SLOT> as unsafe extern "C" fn(_, _, _) -> _),
        set_dirty_modifier: own!(moz_set_max_dirty_page_modifier),
        enable_deferred_purge: own!(moz_enable_deferred_purge),
        thread_local_arena: own!(jemalloc_thread_local_arena),
        reset_randomisation: own!(jemalloc_reset_small_alloc_randomization),
        ..Functions::EMPTY
    };
    // As the protocol has it: arenas of a library that replaces malloc, but not the creation of
    // arenas, are dummies over its plain functions. The hook table does that for tables without
    // arena functions.
    if functions.malloc.is_some() && functions.create_arena.is_none() {
        functions = Functions {
            dispose_arena: None,
            arena_malloc: None,
            arena_calloc: None,
            arena_realloc: None,
            arena_free: None,
            arena_memalign: None,
            ..functions
        };
    }
    is_any.then_some(functions)
}

/// The functions that the library finds in its table.
mod below {
    use super::*;

    /// Calls a function of the table below. While a library is asked for its functions for the
    /// first time, that is the program's own allocator, or the table of the library that was there
    /// before.
    macro_rules! below {
        ($name:ident($($argument:expr),*)) => {{
            let table = BELOW[SLOT].load(Ordering::Acquire).cast_const();
            let table = if !table.is_null() {
                table
            } else if SLOT == DYNAMIC && let Some(table) = dispatch::functions() {
                ptr::from_ref(table)
            } else {
                dispatch::underlying_table()
            };
            // SAFETY: both tables are static and complete once there is an allocator, and the
            // library is asked after that. The arguments are the library's, which keeps the
            // contract of the function of this name.
            unsafe { (*table).$name.unwrap_unchecked()($($argument),*) }
        }};
    }

    /// Defines functions of the protocol's table by functions of ours.
    macro_rules! plain {
        ($($name:ident = $ours:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
            $(pub(super) unsafe extern "C" fn $name<const SLOT: usize>($($argument: $type),*) -> $result {
                below!($ours($($argument),*))
            })*
        };
    }

    plain! {
        malloc = malloc(size: usize) -> Pointer;
        calloc = calloc(count: usize, each: usize) -> Pointer;
        realloc = realloc(old: Pointer, size: usize) -> Pointer;
        memalign = memalign(alignment: usize, size: usize) -> Pointer;
        posix_memalign = posix_memalign(out: *mut Pointer, alignment: usize, size: usize) -> c_int;
        aligned_alloc = aligned_alloc(alignment: usize, size: usize) -> Pointer;
        valloc = valloc(size: usize) -> Pointer;
        malloc_usable_size = malloc_usable_size(block: Pointer) -> usize;
        malloc_good_size = malloc_good_size(size: usize) -> usize;
        jemalloc_stats_num_bins = statistics_bins() -> usize;
        jemalloc_stats_lite = statistics_light(total: *mut LightStatistics) -> ();
        moz_set_max_dirty_page_modifier = set_dirty_modifier(shift: i32) -> ();
        moz_enable_deferred_purge = enable_deferred_purge(is_on: bool) -> bool;
        jemalloc_reset_small_alloc_randomization = reset_randomisation(is_on: bool) -> ();
        jemalloc_thread_local_arena = thread_local_arena(is_on: bool) -> ();
        moz_create_arena_with_params = create_arena(parameters: *const c_void) -> usize;
        moz_dispose_arena = dispose_arena(arena: usize) -> ();
        moz_arena_malloc = arena_malloc(arena: usize, size: usize) -> Pointer;
        moz_arena_calloc = arena_calloc(arena: usize, count: usize, each: usize) -> Pointer;
        moz_arena_realloc = arena_realloc(arena: usize, old: Pointer, size: usize) -> Pointer;
        moz_arena_memalign = arena_memalign(arena: usize, alignment: usize, size: usize) -> Pointer;
    }

    pub(super) unsafe extern "C" fn free<const SLOT: usize>(block: Pointer) {
        // The protocol passes null on; the hook table does not.
        if !block.is_null() {
            below!(free(block));
        }
    }

    pub(super) unsafe extern "C" fn moz_arena_free<const SLOT: usize>(arena: usize, block: Pointer) {
        if !block.is_null() {
            below!(arena_free(arena, block));
        }
    }

    /// Threads are not told apart here.
    pub(super) unsafe extern "C" fn jemalloc_set_main_thread<const SLOT: usize>() {}

    /// No memory is kept that only this would give back.
    pub(super) unsafe extern "C" fn jemalloc_purge_freed_pages<const SLOT: usize>() {}

    pub(super) unsafe extern "C" fn jemalloc_free_dirty_pages<const SLOT: usize>() {
        below!(purge_all());
    }

    pub(super) unsafe extern "C" fn jemalloc_free_excess_dirty_pages<const SLOT: usize>() {
        below!(purge_excess());
    }

    /// The budget is a function object of C++, which is not called: all is purged that may be.
    pub(super) unsafe extern "C" fn moz_may_purge_now<const SLOT: usize>(
        is_peek_only: bool,
        grace: u32,
        _: *const c_void,
    ) -> c_int {
        below!(purge_now(is_peek_only, grace, usize::MAX))
    }

    /// # Safety
    ///
    /// `stats` is valid for a write, `bins` null or for as many as there are bins.
    pub(super) unsafe extern "C" fn jemalloc_stats_internal<const SLOT: usize>(
        stats: *mut Stats,
        bins: *mut BinStatistics,
    ) {
        let mut total = Statistics::default();
        below!(statistics(&raw mut total, bins));
        let stats_read = Stats {
            narenas: total.arenas as usize,
            chunksize: total.chunk_bytes as usize,
            page_size: if total.page_bytes == 0 { 4096 } else { total.page_bytes as usize },
            dirty_max: total.dirty_max as usize,
            mapped: total.mapped as usize,
            allocated: total.allocated as usize,
            waste: total.waste as usize,
            pages_dirty: total.dirty as usize,
            pages_fresh: total.fresh as usize,
            pages_madvised: total.madvised as usize,
            bookkeeping: total.bookkeeping as usize,
            bin_unused: total.bin_unused as usize,
            num_operations: total.operations as usize,
            ..Stats::default()
        };
        if !stats.is_null() {
            // SAFETY: not null, and by this function's `# Safety` valid for a write.
            unsafe { stats.write(stats_read) };
        }
    }

    /// # Safety
    ///
    /// `info` is valid for a write.
    pub(super) unsafe extern "C" fn jemalloc_ptr_info<const SLOT: usize>(address: *const c_void, info: *mut PtrInfo) {
        let mut found = PointerInfo::default();
        below!(pointer_info(address, &raw mut found));
        if !info.is_null() {
            let PointerInfo { kind: tag, address, bytes, .. } = found;
            // SAFETY: not null, and by this function's `# Safety` valid for a write.
            unsafe { info.write(PtrInfo { tag, address: address as usize, size: bytes as usize }) };
        }
    }
}

/// Functions of ours that call the library's, where the two differ.
mod hosted {
    use super::*;

    /// Returns the table of the library in this slot.
    fn table<const SLOT: usize>() -> &'static Table {
        if SLOT == DYNAMIC {
            return &CURRENT;
        }
        // SAFETY: `host` writes it before it installs these functions, and nobody writes it again.
        unsafe { (*HOSTED_TABLE.0.get()).assume_init_ref() }
    }

    /// Returns from a function with the result of the same one of the table below, if the library
    /// that was brought last has left out an entry of the protocol: the types of the protocol have
    /// no room for all of ours.
    macro_rules! pass_left_out {
        ($($entry:ident)&&*, $name:ident($($argument:expr),*)) => {
            if SLOT == DYNAMIC
                $(&& ENTRIES.$entry.load(Ordering::Acquire) as usize == OURS[DYNAMIC].$entry as usize)*
            {
                let below = BELOW[DYNAMIC].load(Ordering::Acquire).cast_const();
                // SAFETY: the replacement in this slot, by which alone this function is called, is
                // given a complete table that stays before its first call. The arguments are the
                // caller's, for the function of the same contract.
                return unsafe { (*below).$name.unwrap_unchecked()($($argument),*) };
            }
        };
    }

    pub(super) unsafe extern "C" fn purge_all<const SLOT: usize>() -> usize {
        pass_left_out!(jemalloc_free_dirty_pages && jemalloc_purge_freed_pages, purge_all());
        // SAFETY: a function without arguments, which may be called at any time.
        unsafe { (table::<SLOT>().jemalloc_free_dirty_pages)() };
        // SAFETY: the same.
        unsafe { (table::<SLOT>().jemalloc_purge_freed_pages)() };
        // The protocol does not tell the number of bytes.
        0
    }

    pub(super) unsafe extern "C" fn purge_excess<const SLOT: usize>() -> usize {
        pass_left_out!(jemalloc_free_excess_dirty_pages, purge_excess());
        // SAFETY: a function without arguments, which may be called at any time.
        unsafe { (table::<SLOT>().jemalloc_free_excess_dirty_pages)() };
        0
    }

    /// The protocol's budget is a `Maybe<std::function<bool()>>`, which is asked before each step
    /// whether to go on. It is passed as none: the library purges all that may be.
    pub(super) unsafe extern "C" fn purge_now<const SLOT: usize>(
        is_peek_only: bool,
        grace: u32,
        budget: usize,
    ) -> c_int {
        pass_left_out!(moz_may_purge_now, purge_now(is_peek_only, grace, budget));
        // 32 bytes of the function object, and the flag that says if there is one.
        let none = [0_u64; 8];
        // SAFETY: a function that may be called at any time, with a value of the type above: it is
        // none where its flag is 0, and the flag is in these bytes.
        unsafe { (table::<SLOT>().moz_may_purge_now)(is_peek_only, grace, none.as_ptr().cast()) }
    }

    /// # Safety
    ///
    /// `total` is null or valid for a write, `bins` null or for as many as there are bins.
    pub(super) unsafe extern "C" fn statistics<const SLOT: usize>(total: *mut Statistics, bins: *mut BinStatistics) {
        pass_left_out!(jemalloc_stats_internal, statistics(total, bins));
        let mut stats = Stats::default();
        // SAFETY: `stats` is a variable of ours, and `bins` as this function's `# Safety` says,
        // which is what the protocol asks for.
        unsafe { (table::<SLOT>().jemalloc_stats_internal)(&raw mut stats, bins) };
        if !total.is_null() {
            let read = Statistics {
                arenas: stats.narenas as u64,
                mapped: stats.mapped as u64,
                allocated: stats.allocated as u64,
                waste: stats.waste as u64,
                dirty: stats.pages_dirty as u64,
                fresh: stats.pages_fresh as u64,
                madvised: stats.pages_madvised as u64,
                bookkeeping: stats.bookkeeping as u64,
                bin_unused: stats.bin_unused as u64,
                operations: stats.num_operations as u64,
                chunk_bytes: stats.chunksize as u64,
                page_bytes: stats.page_size as u64,
                dirty_max: stats.dirty_max as u64,
            };
            // SAFETY: not null, and by this function's `# Safety` valid for a write.
            unsafe { total.write(read) };
        }
    }

    /// # Safety
    ///
    /// `info` is null or valid for a write.
    pub(super) unsafe extern "C" fn pointer_info<const SLOT: usize>(address: *const c_void, info: *mut PointerInfo) {
        pass_left_out!(jemalloc_ptr_info, pointer_info(address, info));
        let mut found = PtrInfo::default();
        // SAFETY: `found` is a variable of ours; any address may be asked about.
        unsafe { (table::<SLOT>().jemalloc_ptr_info)(address, &raw mut found) };
        if !info.is_null() {
            let PtrInfo { tag: kind, address, size } = found;
            let (address, bytes) = (address as u64, size as u64);
            // SAFETY: not null, and by this function's `# Safety` valid for a write.
            unsafe { info.write(PointerInfo { kind, address, bytes, ..PointerInfo::default() }) };
        }
    }
}
