//! The functions that find the allocator for a call: one set for each position in the chain from
//! which a call may be made.
//!
//! The unsafe functions here make a call of the malloc family, and have the **contract of calls**:
//!
//! - [`set_underlying`](super::set_underlying) has been called.
//! - The arguments are those that the C function of this name allows. In particular, a block is
//!   live and of the malloc family, or null where C allows it, and `out` is valid for writes.
//! - An arena was returned by `create_arena` and not disposed of since. Its parameters are null, or
//!   as the allocator defines them.
//! - A pointer to an answer (statistics, the information about a pointer) is null or valid for
//!   writes; `bins` for as many entries as `statistics_bins` returns.
//!
//! The functions that [`find`] returns have this contract too. They are those of a replacement or
//! of the allocator at the end, which behave as the C functions of their names, by the contracts of
//! [`Replacement`] and of `set_underlying`. A replacement also accepts blocks of others, by its
//! contract.

use core::ffi::{c_int, c_void};
use core::ptr;

use super::underlying_as_given;
use crate::hooks::arena::{BinStatistics, LightStatistics, PointerInfo, Statistics, purge_now};
use crate::hooks::installed::REPLACEMENTS;
use crate::hooks::list::Slot;
use crate::hooks::{Functions, Pointer, REPLACEMENTS_MAX, Replacement};

const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;
const PAGE: usize = 4096;
/// The number of the dummy arena, which is the heap.
const ONLY_ARENA: usize = 1;

/// The table that begins with the uppermost replacement.
pub(super) const TOP: usize = REPLACEMENTS_MAX;
/// The table of the program's own allocator.
pub(super) const UNDERLYING: usize = REPLACEMENTS_MAX + 1;

/// The tables that begin after the replacement in each slot; then [`TOP`] and [`UNDERLYING`].
pub(super) static TABLES: [Functions; REPLACEMENTS_MAX + 2] = [
    table::<0>(),
    table::<1>(),
    table::<2>(),
    table::<3>(),
    table::<4>(),
    table::<5>(),
    table::<6>(),
    table::<7>(),
    table::<TOP>(),
    table::<UNDERLYING>(),
];

const fn table<const TABLE: usize>() -> Functions {
    Functions {
        malloc: Some(entry::malloc::<TABLE>),
        calloc: Some(entry::calloc::<TABLE>),
        realloc: Some(entry::realloc::<TABLE>),
        free: Some(entry::free::<TABLE>),
        memalign: Some(entry::memalign::<TABLE>),
        posix_memalign: Some(entry::posix_memalign::<TABLE>),
        aligned_alloc: Some(entry::aligned_alloc::<TABLE>),
        valloc: Some(entry::valloc::<TABLE>),
        pvalloc: Some(entry::pvalloc::<TABLE>),
        malloc_usable_size: Some(entry::malloc_usable_size::<TABLE>),
        malloc_good_size: Some(entry::malloc_good_size::<TABLE>),
        create_arena: Some(entry::create_arena::<TABLE>),
        dispose_arena: Some(entry::dispose_arena::<TABLE>),
        arena_malloc: Some(entry::arena_malloc::<TABLE>),
        arena_calloc: Some(entry::arena_calloc::<TABLE>),
        arena_realloc: Some(entry::arena_realloc::<TABLE>),
        arena_free: Some(entry::arena_free::<TABLE>),
        arena_memalign: Some(entry::arena_memalign::<TABLE>),
        arena_of: Some(entry::arena_of::<TABLE>),
        statistics: Some(entry::statistics::<TABLE>),
        statistics_bins: Some(entry::statistics_bins::<TABLE>),
        statistics_light: Some(entry::statistics_light::<TABLE>),
        pointer_info: Some(entry::pointer_info::<TABLE>),
        purge_all: Some(entry::purge_all::<TABLE>),
        purge_excess: Some(entry::purge_excess::<TABLE>),
        set_dirty_modifier: Some(entry::set_dirty_modifier::<TABLE>),
        enable_deferred_purge: Some(entry::enable_deferred_purge::<TABLE>),
        purge_now: Some(entry::purge_now::<TABLE>),
        thread_local_arena: Some(entry::thread_local_arena::<TABLE>),
        reset_randomisation: Some(entry::reset_randomisation::<TABLE>),
        ..Functions::EMPTY
    }
}

/// A position in the chain of replacements; `None` is the program's own allocator, at the end.
type Position = Option<&'static Slot<Replacement>>;

/// Returns the position at which the search begins for calls through a table.
fn start<const TABLE: usize>() -> Position {
    if TABLE == UNDERLYING { None } else { REPLACEMENTS.after(TABLE) }
}

/// Returns the first result of `select`, and its position, searching from a position on: among the
/// replacements that handle the call, and then the allocator at the end.
fn find<R>(
    position: Position,
    handles: impl Fn(&'static Slot<Replacement>) -> bool,
    select: impl Fn(&'static Functions) -> Option<R>,
) -> Option<(R, Position)> {
    find_in_layers(position, handles, |functions, _| select(functions))
}

/// Does what [`find`] does. `select` also gets true if the functions are those of a replacement
/// with `owns`: a layer over another allocator, to which most of the blocks belong.
fn find_in_layers<R>(
    mut position: Position,
    handles: impl Fn(&'static Slot<Replacement>) -> bool,
    select: impl Fn(&'static Functions, bool) -> Option<R>,
) -> Option<(R, Position)> {
    while let Some(slot) = position {
        let replacement = slot.value();
        if handles(slot)
            && let Some(selected) = select(&replacement.functions, replacement.owns.is_some())
        {
            return Some((selected, position));
        }
        position = slot.next();
    }
    select(underlying_as_given(), false).map(|selected| (selected, None))
}

/// True if a replacement handles calls that allocate a block.
fn allocates(slot: &'static Slot<Replacement>) -> bool {
    slot.is_active()
}

/// Returns a test for whether a replacement handles calls about a block. Nobody owns null.
fn handles_block(block: Pointer) -> impl Fn(&'static Slot<Replacement>) -> bool {
    move |slot| match slot.value().owns {
        // SAFETY: by the contract of `Replacement`, `owns` may be called with any block that is not
        // null.
        Some(owns) => !block.is_null() && unsafe { owns(block) != 0 },
        None => slot.is_active(),
    }
}

/// Defines a function that calls the first function of this name in the chain.
macro_rules! first {
    ($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty, among $handles:expr, or $otherwise:expr) => {
        /// # Safety
        ///
        /// The [contract of calls](self).
        $(#[$attribute])*
        unsafe fn $name(position: Position, $($argument: $type),*) -> $result {
            match find(position, $handles, |functions| functions.$name) {
                // SAFETY: the function found has the contract of calls, and so has this one. It
                // gets the same arguments.
                Some((function, _)) => unsafe { function($($argument),*) },
                None => $otherwise,
            }
        }
    };
}

first!(malloc(size: usize) -> Pointer, among allocates, or ptr::null_mut());
first!(calloc(count: usize, each: usize) -> Pointer, among allocates, or ptr::null_mut());
first!(free(block: Pointer) -> (), among handles_block(block), or ());
first!(memalign(alignment: usize, size: usize) -> Pointer, among allocates, or ptr::null_mut());
first!(malloc_usable_size(block: Pointer) -> usize, among handles_block(block), or 0);
first!(malloc_good_size(size: usize) -> usize, among allocates, or underlying_good_size(size));

/// The largest size for which a block is allocated to find out its usable size. The C library maps
/// blocks of 128 KiB and more separately, and the free of such a block raises that threshold.
const PROBE_BYTES_MAX: usize = 64 << 10;

/// Returns the usable size of a new block of the program's own allocator, which has no
/// `malloc_good_size`; or `size`.
fn underlying_good_size(size: usize) -> usize {
    let Functions { malloc: Some(malloc), malloc_usable_size: Some(usable_size), free: Some(free), .. } =
        *underlying_as_given()
    else {
        return size;
    };
    if size > PROBE_BYTES_MAX {
        return size;
    }
    // SAFETY: by the contract of `set_underlying` these are functions of one allocator; the block
    // is live until it is freed here.
    unsafe {
        let block = malloc(size);
        if block.is_null() {
            return size;
        }
        let usable = usable_size(block);
        free(block);
        usable.max(size)
    }
}

/// # Safety
///
/// The [contract of calls](self).
unsafe fn realloc(position: Position, old: Pointer, size: usize) -> Pointer {
    // SAFETY: the function found and `realloc_null` have the contract of calls, and so has this
    // one. They get the same arguments.
    unsafe {
        if old.is_null() {
            return realloc_null(position, size);
        }
        match find(position, handles_block(old), |functions| functions.realloc) {
            Some((function, _)) => function(old, size),
            None => ptr::null_mut(),
        }
    }
}

/// Allocates a block for `realloc(NULL, size)`. A replacement with `owns` has been promised
/// `realloc` for its own blocks only, so it gets the call as `malloc`; one without gets it
/// unchanged.
///
/// # Safety
///
/// The [contract of calls](self).
unsafe fn realloc_null(mut position: Position, size: usize) -> Pointer {
    while let Some(slot) = position {
        let Replacement { owns, functions: Functions { malloc, realloc, .. }, .. } = *slot.value();
        match (owns, malloc, realloc) {
            _ if !slot.is_active() => {}
            // SAFETY: `malloc` of a replacement has the contract of calls; C allows any size.
            (Some(_), Some(malloc), _) => return unsafe { malloc(size) },
            // SAFETY: `realloc` of a replacement has the contract of calls; C allows it for null.
            (None, _, Some(realloc)) => return unsafe { realloc(ptr::null_mut(), size) },
            _ => {}
        }
        position = slot.next();
    }
    // SAFETY: `realloc` of the program's own allocator has the contract of calls; C allows it for
    // null.
    underlying_as_given().realloc.map_or(ptr::null_mut(), |realloc| unsafe { realloc(ptr::null_mut(), size) })
}

/// The two ways to handle a call: a function of that name, or one that it is derived from.
enum Implementation<Given, Derived> {
    Given(Given),
    Derived(Derived),
}

/// A function, or else `memalign`, from which it is derived.
type OrMemalign<Given> = Implementation<Given, unsafe extern "C" fn(usize, usize) -> Pointer>;

fn or_memalign<Given>(given: Option<Given>, functions: &Functions) -> Option<OrMemalign<Given>> {
    given.map(Implementation::Given).or_else(|| functions.memalign.map(Implementation::Derived))
}

/// # Safety
///
/// The [contract of calls](self).
unsafe fn posix_memalign(position: Position, out: *mut Pointer, alignment: usize, size: usize) -> c_int {
    // SAFETY: the function found has the contract of calls, and so has this one. `posix_memalign`
    // gets the same arguments, `memalign` an alignment that was checked. `out` is valid for writes.
    unsafe {
        match find(position, allocates, |functions| or_memalign(functions.posix_memalign, functions)) {
            Some((Implementation::Given(function), _)) => function(out, alignment, size),
            Some((Implementation::Derived(memalign), _)) => {
                if !alignment.is_power_of_two() || alignment < size_of::<Pointer>() {
                    return EINVAL;
                }
                let block = memalign(alignment, size);
                if block.is_null() {
                    return ENOMEM;
                }
                out.write(block);
                0
            }
            None => ENOMEM,
        }
    }
}

/// # Safety
///
/// The [contract of calls](self).
unsafe fn aligned_alloc(position: Position, alignment: usize, size: usize) -> Pointer {
    // SAFETY: the function found has the contract of calls, and so has this one. It gets the same
    // arguments: `memalign` allows all alignments that `aligned_alloc` does.
    unsafe {
        match find(position, allocates, |functions| or_memalign(functions.aligned_alloc, functions)) {
            Some((Implementation::Given(function) | Implementation::Derived(function), _)) => function(alignment, size),
            None => ptr::null_mut(),
        }
    }
}

/// # Safety
///
/// The [contract of calls](self).
unsafe fn valloc(position: Position, size: usize) -> Pointer {
    // SAFETY: the function found has the contract of calls, and so has this one. `valloc` gets the
    // same size; `memalign` gets it with the size of a page, which is a power of two.
    unsafe {
        match find(position, allocates, |functions| or_memalign(functions.valloc, functions)) {
            Some((Implementation::Given(function), _)) => function(size),
            Some((Implementation::Derived(memalign), _)) => memalign(PAGE, size),
            None => ptr::null_mut(),
        }
    }
}

/// # Safety
///
/// The [contract of calls](self).
unsafe fn pvalloc(position: Position, size: usize) -> Pointer {
    // SAFETY: the function found has the contract of calls, and so has this one. `pvalloc` gets the
    // same size; `memalign` gets it rounded up, with the size of a page, which is a power of two.
    unsafe {
        match find(position, allocates, |functions| or_memalign(functions.pvalloc, functions)) {
            Some((Implementation::Given(function), _)) => function(size),
            // A size that cannot be rounded up cannot be allocated either.
            Some((Implementation::Derived(memalign), _)) => {
                memalign(PAGE, size.checked_next_multiple_of(PAGE).unwrap_or(size))
            }
            None => ptr::null_mut(),
        }
    }
}

/// Returns an arena function; or says to use the plain functions, if a table has only those and may
/// have dummies.
fn or_plain<Given>(given: Option<Given>, functions: &Functions, dummies: bool) -> Option<Implementation<Given, ()>> {
    let is_derived = dummies && functions.malloc.is_some() && !functions.has_arenas();
    given.map(Implementation::Given).or_else(|| is_derived.then_some(Implementation::Derived(())))
}

/// Defines an arena function: calls the first in the chain, or, over a table without arenas, a
/// dummy. A layer with `owns` has no dummies, so that the arenas of the allocator below it stay in
/// use; but a block that it owns is freed and reallocated by its plain functions.
macro_rules! arena {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty, among $handles:expr,
     over $position:ident $plain:expr, or $otherwise:expr) => {
        arena!($name($($argument: $type),*) -> $result, calls $name, among $handles, dummies |owns| !owns,
            over $position $plain, or $otherwise);
    };
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty, calls $function:ident, among $handles:expr,
     dummies $dummies:expr, over $position:ident $plain:expr, or $otherwise:expr) => {
        /// # Safety
        ///
        /// The [contract of calls](self).
        #[inline(never)]
        unsafe fn $name($position: Position, $($argument: $type),*) -> $result {
            let dummies: fn(bool) -> bool = $dummies;
            let select = |functions: &'static Functions, owns| or_plain(functions.$function, functions, dummies(owns));
            match find_in_layers($position, $handles, select) {
                // SAFETY: the function found has the contract of calls, and so has this one. It
                // gets the same arguments. Nothing here ensures that the arena is of the same
                // allocator, if replacements came or went since it was created.
                Some((Implementation::Given(function), _)) => unsafe { function($($argument),*) },
                // SAFETY: the plain function has the contract of calls, and so has this one. It
                // gets the same arguments, without the arena.
                Some((Implementation::Derived(()), $position)) => unsafe { $plain },
                None => $otherwise,
            }
        }
    };
}

arena!(arena_malloc(_arena: usize, size: usize) -> Pointer, among allocates, over position malloc(position, size), or ptr::null_mut());
arena!(arena_calloc(_arena: usize, count: usize, each: usize) -> Pointer, among allocates, over position calloc(position, count, each),
    or ptr::null_mut());
arena!(arena_realloc_block(_arena: usize, old: Pointer, size: usize) -> Pointer, calls arena_realloc, among handles_block(old),
    dummies |_| true, over position realloc(position, old, size), or ptr::null_mut());
arena!(arena_free(_arena: usize, block: Pointer) -> (), calls arena_free, among handles_block(block),
    dummies |_| true, over position free(position, block), or ());
arena!(arena_memalign(_arena: usize, alignment: usize, size: usize) -> Pointer, among allocates,
    over position memalign(position, alignment, size), or ptr::null_mut());

/// Reallocates; for null, calls `arena_malloc`, as `realloc` does with `malloc`.
///
/// # Safety
///
/// The [contract of calls](self).
#[inline(never)]
unsafe fn arena_realloc(position: Position, arena: usize, old: Pointer, size: usize) -> Pointer {
    // SAFETY: both functions have the contract of calls, and so has this one. They get the same
    // arguments.
    unsafe {
        match old.is_null() {
            true => arena_malloc(position, arena, size),
            false => arena_realloc_block(position, arena, old, size),
        }
    }
}

/// # Safety
///
/// The [contract of calls](self).
#[inline(never)]
unsafe fn create_arena(position: Position, parameters: *const c_void) -> usize {
    let select = |functions: &'static Functions, owns: bool| or_plain(functions.create_arena, functions, !owns);
    match find_in_layers(position, allocates, select) {
        // SAFETY: the function found has the contract of calls, and so has this one. It gets the
        // same parameters.
        Some((Implementation::Given(function), _)) => unsafe { function(parameters) },
        Some((Implementation::Derived(()), _)) => ONLY_ARENA,
        None => 0,
    }
}

/// # Safety
///
/// The [contract of calls](self).
#[inline(never)]
unsafe fn dispose_arena(position: Position, arena: usize) {
    let select = |functions: &'static Functions, owns: bool| or_plain(functions.dispose_arena, functions, !owns);
    if let Some((Implementation::Given(function), _)) = find_in_layers(position, allocates, select) {
        // SAFETY: the function found has the contract of calls, and so has this one. It gets the
        // same arena; nothing here ensures that this allocator created it (see `arena`).
        unsafe { function(arena) }
    }
}

// The functions of the allocator as a whole: those of the first that has them. Nothing is derived.
// They are rare, so there is one of each, not one for each table.

first!(#[inline(never)] arena_of(block: Pointer) -> usize, among handles_block(block), or 0);
first!(#[inline(never)] statistics_bins() -> usize, among allocates, or 0);
first!(#[inline(never)] purge_all() -> usize, among allocates, or 0);
first!(#[inline(never)] purge_excess() -> usize, among allocates, or 0);
first!(#[inline(never)] set_dirty_modifier(shift: i32) -> (), among allocates, or ());
first!(#[inline(never)] enable_deferred_purge(is_on: bool) -> bool, among allocates, or false);
first!(#[inline(never)] purge_now(is_peek_only: bool, reuse_grace_milliseconds: u32, budget: usize) -> c_int,
    among allocates, or purge_now::DONE);
first!(#[inline(never)] thread_local_arena(is_on: bool) -> (), among allocates, or ());
first!(#[inline(never)] reset_randomisation(is_on: bool) -> (), among allocates, or ());
/// Defines a function that lets the first of this name in the chain write an answer. If there is
/// none, it writes that nothing is known.
macro_rules! answer {
    ($name:ident($($argument:ident: $type:ty),*), into $answer:ident) => {
        // SAFETY: `unknown` asks for null or an answer that is valid for a write, as the contract
        // of calls does.
        first!(#[inline(never)] $name($($argument: $type),*) -> (), among allocates, or unsafe { unknown($answer) });
    };
}

answer!(statistics(total: *mut Statistics, bins: *mut BinStatistics), into total);
answer!(statistics_light(total: *mut LightStatistics), into total);
answer!(pointer_info(address: *const c_void, info: *mut PointerInfo), into info);

/// Says that nothing is known.
///
/// # Safety
///
/// `answer` is null or valid for a write.
unsafe fn unknown<Answer: Default>(answer: *mut Answer) {
    if !answer.is_null() {
        // SAFETY: not null, and by this function's `# Safety` valid for a write.
        unsafe { answer.write(Answer::default()) };
    }
}

/// The functions of the tables.
mod entry {
    use super::*;

    macro_rules! entries {
        ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
            $(/// # Safety
            ///
            /// The arguments are as the [contract of calls](super) says.
            pub(super) unsafe extern "C" fn $name<const TABLE: usize>($($argument: $type),*) -> $result {
                // SAFETY: the contract of calls, of whose clauses this function asks for those
                // about arguments. `set_underlying` has been called: nobody is given a table of
                // these functions before.
                unsafe { super::$name(start::<TABLE>(), $($argument),*) }
            })*
        };
    }

    entries! {
        malloc(size: usize) -> Pointer;
        calloc(count: usize, each: usize) -> Pointer;
        realloc(old: Pointer, size: usize) -> Pointer;
        free(block: Pointer) -> ();
        memalign(alignment: usize, size: usize) -> Pointer;
        posix_memalign(out: *mut Pointer, alignment: usize, size: usize) -> c_int;
        aligned_alloc(alignment: usize, size: usize) -> Pointer;
        valloc(size: usize) -> Pointer;
        pvalloc(size: usize) -> Pointer;
        malloc_usable_size(block: Pointer) -> usize;
        malloc_good_size(size: usize) -> usize;
        create_arena(parameters: *const c_void) -> usize;
        dispose_arena(arena: usize) -> ();
        arena_malloc(arena: usize, size: usize) -> Pointer;
        arena_calloc(arena: usize, count: usize, each: usize) -> Pointer;
        arena_realloc(arena: usize, old: Pointer, size: usize) -> Pointer;
        arena_free(arena: usize, block: Pointer) -> ();
        arena_memalign(arena: usize, alignment: usize, size: usize) -> Pointer;
        arena_of(block: Pointer) -> usize;
        statistics(total: *mut Statistics, bins: *mut BinStatistics) -> ();
        statistics_bins() -> usize;
        statistics_light(total: *mut LightStatistics) -> ();
        pointer_info(address: *const c_void, info: *mut PointerInfo) -> ();
        purge_all() -> usize;
        purge_excess() -> usize;
        set_dirty_modifier(shift: i32) -> ();
        enable_deferred_purge(is_on: bool) -> bool;
        purge_now(is_peek_only: bool, reuse_grace_milliseconds: u32, budget: usize) -> c_int;
        thread_local_arena(is_on: bool) -> ();
        reset_randomisation(is_on: bool) -> ();
    }
}
