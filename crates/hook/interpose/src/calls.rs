//! Makes the calls of the malloc family, and notifies the observers.
//!
//! The functions here make the call through the hook table ([`dispatch`]), which leads to the next
//! allocator in the program if nothing replaces it, and notify the observers ([`notify`]). `errno`
//! and every result are those of the allocator that handled the call.
//!
//! **Passed frame**: wherever a function takes `sp` and `rbp`, they are the stack pointer and the
//! frame pointer with which the program's call came to a thunk, in another module of this crate.
//! The thunk has changed neither and has jumped. So `caller(sp, rbp)` is the calling frame, of this
//! thread, and is live until the function has returned. Like all arguments, they are passed in
//! registers: so they are not in a structure.

use core::ffi::c_int;
use core::ptr;

use heapledger_arenas::table;
use heapledger_core::Api;
use heapledger_core::hooks::{Arena, Caller, Functions, Pointer, dispatch, notify};
use heapledger_redirect::nesting;

use crate::allocators;
use crate::underlying::set_errno;

const ENOMEM: c_int = 12;

/// The origin of calls, which determines the allocator that they go to.
pub(crate) trait Origin: Copy {
    /// Returns a table that has all functions for which there is a thunk.
    fn functions(self) -> &'static Functions;
    /// True if these are calls of the program.
    fn is_program(self) -> bool;
}

/// Calls of the program, in the namespace that contains this loaded object.
#[derive(Clone, Copy)]
pub(crate) struct Program;

impl Origin for Program {
    #[inline(always)]
    fn functions(self) -> &'static Functions {
        match dispatch::functions() {
            Some(functions) => functions,
            None => crate::functions(),
        }
    }

    #[inline(always)]
    fn is_program(self) -> bool {
        true
    }
}

/// Calls of a namespace, by its number; the program's is 0.
#[derive(Clone, Copy)]
struct Namespace(usize);

impl Origin for Namespace {
    #[inline(always)]
    fn functions(self) -> &'static Functions {
        if self.0 == 0 { Program.functions() } else { allocators::functions(self.0) }
    }

    #[inline(always)]
    fn is_program(self) -> bool {
        self.0 == 0
    }
}

/// Makes a call: `call!(Program, malloc(size))`.
macro_rules! call {
    ($origin:expr, $name:ident($($argument:expr),*)) => {
        // SAFETY: the table is complete by the contract of `Origin`; the function is that of this
        // name, with the program's own arguments.
        unsafe { Origin::functions($origin).$name.unwrap_unchecked()($($argument),*) }
    };
}

pub(crate) use call;

/// Returns the calling frame: on entry to a function the return address is at the stack pointer
/// (System V psABI), and the thunk has passed its stack pointer on entry.
#[inline(always)]
pub(crate) fn caller(sp: u64, rbp: u64) -> Caller {
    Caller { slot: sp, rbp }
}

/// `malloc_usable_size`: observers are not notified.
///
/// A jump, because the compiler would make one function of two equal ones: under this name, which
/// is the program's own in some.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn malloc_usable_size(block: Pointer) -> usize {
    core::arch::naked_asm!("jmp {own}", own = sym own_usable_size)
}

/// The same function by a name that leads here in any program.
///
/// # Safety
///
/// The contract of the C function.
pub(crate) unsafe extern "C" fn own_usable_size(block: Pointer) -> usize {
    call!(Program, malloc_usable_size(block))
}

pub(crate) unsafe extern "C" fn malloc_good_size(size: usize) -> usize {
    call!(Program, malloc_good_size(size))
}

/// Defines a function for the thunk of the program, and one for the thunks of other namespaces,
/// which pass their number: the program's need not test it.
macro_rules! twice {
    ($($from:ident, $of:ident: $with:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            pub(crate) extern "C" fn $from($($argument: $type,)* sp: u64, rbp: u64) -> $result {
                $with(Program, $($argument,)* sp, rbp)
            }

            pub(crate) extern "C" fn $of($($argument: $type,)* sp: u64, rbp: u64, namespace: usize) -> $result {
                $with(Namespace(namespace), $($argument,)* sp, rbp)
            }
        )*
    };
}

/// Defines functions for the thunks of a program in which entry points have been redirected: the
/// same calls may have come through one of them already, and may come to one behind.
macro_rules! outermost {
    ($($from:ident: $plain:ident($($argument:ident: $type:ty),*) -> $result:ty, by $name:ident;)*) => {
        $(
            pub(crate) extern "C" fn $from($($argument: $type,)* sp: u64, rbp: u64) -> $result {
                let Some(_outermost) = nesting::begin(sp, rbp) else { return call!(Program, $name($($argument),*)) };
                $plain($($argument,)* sp, rbp)
            }
        )*
    };
}

outermost! {
    malloc_outermost: malloc_from(size: usize) -> Pointer, by malloc;
    calloc_outermost: calloc_from(count: usize, each: usize) -> Pointer, by calloc;
    realloc_outermost: realloc_from(old: Pointer, size: usize) -> Pointer, by realloc;
    free_outermost: free_from(block: Pointer) -> (), by free;
}

twice! {
    malloc_from, malloc_of: malloc_with(size: usize) -> Pointer;
    calloc_from, calloc_of: calloc_with(count: usize, each: usize) -> Pointer;
    realloc_from, realloc_of: realloc_with(old: Pointer, size: usize) -> Pointer;
    free_from, free_of: free_with(block: Pointer) -> ();
}

#[inline(always)]
fn malloc_with(origin: impl Origin, size: usize, sp: u64, rbp: u64) -> Pointer {
    let block = call!(origin, malloc(size));
    if block.is_null() {
        return failed(Api::Malloc, size, 0, 0, sp, rbp);
    }
    // SAFETY: `notify::malloc` requires the live calling frame of this thread. `sp` and `rbp` are a
    // *passed frame*: `malloc_from` and `malloc_of` have them from thunks, or from
    // `entry_points::watched`, which has them from its thunk.
    unsafe { notify::malloc(block, size, caller(sp, rbp)) };
    block
}

#[inline(always)]
fn calloc_with(origin: impl Origin, count: usize, each: usize, sp: u64, rbp: u64) -> Pointer {
    let block = call!(origin, calloc(count, each));
    if block.is_null() {
        return failed(Api::Calloc, count.saturating_mul(each), 0, count, sp, rbp);
    }
    // SAFETY: `notify::calloc` requires the live calling frame of this thread. `sp` and `rbp` are a
    // *passed frame*: `calloc_from` and `calloc_of` have them from thunks, and pass them on.
    unsafe { notify::calloc(block, count, each, caller(sp, rbp)) };
    block
}

#[inline(always)]
fn realloc_with(origin: impl Origin, old: Pointer, size: usize, sp: u64, rbp: u64) -> Pointer {
    if let Some(arena) = arena_of(origin, old) {
        // SAFETY: `reallocate_in` requires a *passed frame*, which `realloc_from` has from its
        // thunk, and a block of the arena.
        return unsafe { reallocate_in(arena, old, size, sp, rbp) };
    }
    let block = reallocate(origin, Api::Realloc, old, size, sp, rbp);
    // SAFETY: `notify::realloc_ends` requires the live calling frame of this thread. `sp` and `rbp`
    // are a *passed frame*: `realloc_from` and `realloc_of` have them from thunks, and pass them
    // on.
    unsafe { notify::realloc_ends(old, block, size, caller(sp, rbp)) };
    block
}

pub(crate) extern "C" fn reallocarray_from(
    old: Pointer,
    count: usize,
    each: usize,
    sp: u64,
    rbp: u64,
    namespace: usize,
) -> Pointer {
    let Some(size) = count.checked_mul(each) else {
        // The next allocator's `reallocarray` might come back through `realloc`: fail here as glibc
        // does.
        match namespace {
            0 => set_errno(ENOMEM),
            // Each C library has an `errno` of its own, which it sets itself: no block is as large
            // as this.
            _ => {
                let _ = call!(Namespace(namespace), malloc(usize::MAX));
            }
        }
        return failed(Api::Reallocarray, usize::MAX, 0, count, sp, rbp);
    };
    let Some(_outermost) = nesting::begin(sp, rbp) else { return call!(Namespace(namespace), realloc(old, size)) };
    if let Some(arena) = arena_of(Namespace(namespace), old) {
        // SAFETY: `reallocate_array_in` requires a *passed frame*, which only the thunks of
        // `reallocarray` lead here with, a block of the arena, and a product that fits.
        return unsafe { reallocate_array_in(arena, old, [count, each], sp, rbp) };
    }
    let block = reallocate(Namespace(namespace), Api::Reallocarray, old, size, sp, rbp);
    // SAFETY: `notify::reallocarray_ends` requires the live calling frame of this thread. `sp` and
    // `rbp` are a *passed frame*: only the thunks of `reallocarray` lead here.
    unsafe { notify::reallocarray_ends(old, block, count, each, caller(sp, rbp)) };
    block
}

/// Returns the arena of a block; `None` if it is in none. A load, in processes without arenas.
#[inline(always)]
fn arena_of(origin: impl Origin, block: Pointer) -> Option<&'static Arena> {
    if table::is_any() && origin.is_program() && !block.is_null() { arena_around(block) } else { None }
}

#[cold]
fn arena_around(block: Pointer) -> Option<&'static Arena> {
    table::find(call!(Program, arena_of(block)) as u64).and_then(table::Entry::arena)
}

/// Reallocates a block of an arena by the plain function, and notifies the observers.
///
/// # Safety
///
/// `sp` and `rbp` are a *passed frame*; `old` is a block of `arena`.
#[inline(never)]
unsafe fn reallocate_in(arena: &Arena, old: Pointer, size: usize, sp: u64, rbp: u64) -> Pointer {
    let block = reallocate(Program, Api::Realloc, old, size, sp, rbp);
    // SAFETY: `notify::arena_realloc_ends` requires the live calling frame of this thread, and this
    // function's `# Safety` asks for it.
    unsafe { notify::arena_realloc_ends(arena, old, block, size, caller(sp, rbp)) };
    block
}

/// Does the same as [`reallocate_in`] for `reallocarray`: the number of elements, and the bytes of
/// each.
///
/// # Safety
///
/// See [`reallocate_in`]. The product does not overflow.
#[inline(never)]
unsafe fn reallocate_array_in(arena: &Arena, old: Pointer, [count, each]: [usize; 2], sp: u64, rbp: u64) -> Pointer {
    let block = reallocate(Program, Api::Reallocarray, old, count.wrapping_mul(each), sp, rbp);
    // SAFETY: `notify::arena_reallocarray_ends` requires the live calling frame of this thread, and
    // this function's `# Safety` asks for it.
    unsafe { notify::arena_reallocarray_ends(arena, old, block, count, each, caller(sp, rbp)) };
    block
}

#[inline(always)]
fn reallocate(origin: impl Origin, api: Api, old: Pointer, size: usize, sp: u64, rbp: u64) -> Pointer {
    if !old.is_null() {
        // SAFETY: `notify::realloc_begins` requires the live calling frame of this thread. `sp` and
        // `rbp` are a *passed frame*: `realloc_with` and `reallocarray_from` pass on those that
        // they have.
        unsafe { notify::realloc_begins(api, old, caller(sp, rbp)) };
    }
    call!(origin, realloc(old, size))
}

pub(crate) extern "C" fn memalign_from(alignment: usize, size: usize, sp: u64, rbp: u64, namespace: usize) -> Pointer {
    let Some(_outermost) = nesting::begin(sp, rbp) else {
        return call!(Namespace(namespace), memalign(alignment, size));
    };
    aligned(Api::Memalign, call!(Namespace(namespace), memalign(alignment, size)), alignment, size, sp, rbp)
}

pub(crate) extern "C" fn aligned_alloc_from(
    alignment: usize,
    size: usize,
    sp: u64,
    rbp: u64,
    namespace: usize,
) -> Pointer {
    let Some(_outermost) = nesting::begin(sp, rbp) else {
        return call!(Namespace(namespace), aligned_alloc(alignment, size));
    };
    aligned(Api::AlignedAlloc, call!(Namespace(namespace), aligned_alloc(alignment, size)), alignment, size, sp, rbp)
}

pub(crate) extern "C" fn valloc_from(size: usize, sp: u64, rbp: u64, namespace: usize) -> Pointer {
    let Some(_outermost) = nesting::begin(sp, rbp) else { return call!(Namespace(namespace), valloc(size)) };
    aligned(Api::Valloc, call!(Namespace(namespace), valloc(size)), 0, size, sp, rbp)
}

pub(crate) extern "C" fn pvalloc_from(size: usize, sp: u64, rbp: u64, namespace: usize) -> Pointer {
    let Some(_outermost) = nesting::begin(sp, rbp) else { return call!(Namespace(namespace), pvalloc(size)) };
    aligned(Api::Pvalloc, call!(Namespace(namespace), pvalloc(size)), 0, size, sp, rbp)
}

pub(crate) extern "C" fn posix_memalign_from(
    out: *mut Pointer,
    alignment: usize,
    size: usize,
    sp: u64,
    rbp: u64,
    namespace: usize,
) -> c_int {
    let Some(_outermost) = nesting::begin(sp, rbp) else {
        return call!(Namespace(namespace), posix_memalign(out, alignment, size));
    };
    let error = call!(Namespace(namespace), posix_memalign(out, alignment, size));
    if error == 0 {
        // SAFETY: the call succeeded, so it has written the block's address to `out`.
        aligned(Api::PosixMemalign, unsafe { out.read() }, alignment, size, sp, rbp);
    } else {
        failed(Api::PosixMemalign, size, alignment, 0, sp, rbp);
    }
    error
}

fn aligned(api: Api, block: Pointer, alignment: usize, size: usize, sp: u64, rbp: u64) -> Pointer {
    if block.is_null() {
        return failed(api, size, alignment, 0, sp, rbp);
    }
    // SAFETY: `notify::aligned` requires the live calling frame of this thread. `sp` and `rbp` are
    // a *passed frame*: the callers, all named `…_from`, pass on those that they have from thunks.
    unsafe { notify::aligned(api, block, alignment, size, caller(sp, rbp)) };
    block
}

#[inline(always)]
fn free_with(origin: impl Origin, block: Pointer, sp: u64, rbp: u64) {
    if !block.is_null() {
        // SAFETY: `notify::free` requires the live calling frame of this thread. `sp` and `rbp` are
        // a *passed frame*: `free_from` and `free_of` have them from thunks, and pass them on.
        unsafe { notify::free(block, caller(sp, rbp)) };
        call!(origin, free(block));
    }
}

pub(crate) extern "C" fn cfree_from(block: Pointer, sp: u64, rbp: u64, namespace: usize) {
    release(Namespace(namespace), Api::Cfree, block, 0, 0, sp, rbp);
}

pub(crate) extern "C" fn free_sized_from(block: Pointer, size: usize, sp: u64, rbp: u64, namespace: usize) {
    release(Namespace(namespace), Api::FreeSized, block, size, 0, sp, rbp);
}

pub(crate) extern "C" fn free_aligned_sized_from(
    block: Pointer,
    alignment: usize,
    size: usize,
    sp: u64,
    rbp: u64,
    namespace: usize,
) {
    release(Namespace(namespace), Api::FreeAlignedSized, block, size, alignment, sp, rbp);
}

fn release(origin: Namespace, api: Api, block: Pointer, size: usize, alignment: usize, sp: u64, rbp: u64) {
    let Some(_outermost) = nesting::begin(sp, rbp) else { return call!(origin, free(block)) };
    if !block.is_null() {
        // SAFETY: `notify::free_sized` requires the live calling frame of this thread. `sp` and
        // `rbp` are a *passed frame*: the callers, all named `…_from`, pass on those that they have
        // from thunks.
        unsafe { notify::free_sized(api, block, size, alignment, caller(sp, rbp)) };
        call!(origin, free(block));
    }
}

/// Notifies that a call returned no block. Returns null, for convenience.
#[cold]
#[inline(never)]
pub(crate) fn failed(api: Api, size: usize, alignment: usize, count: usize, sp: u64, rbp: u64) -> Pointer {
    // SAFETY: `notify::failed` requires the live calling frame of this thread. `sp` and `rbp` are a
    // *passed frame*: every caller passes on those that it has.
    unsafe { notify::failed(api, size, alignment, count, caller(sp, rbp)) };
    ptr::null_mut()
}
