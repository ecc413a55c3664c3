//! Arenas in the hook table: observers that know of them and observers that do not, tables of
//! earlier versions, and the allocator to which calls about arenas go.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::AtomicPtr;

use heapledger_core::Api;
use heapledger_core::context::Name;
use heapledger_core::hooks::notify::{self, ArenaCall};
use heapledger_core::hooks::{
    self, Arena, Caller, Functions, HookError, Hooks, Observer, Pointer, Purge, Replacement, dispatch, dispatch_path,
};

const CALLER: Caller = Caller { slot: 0, rbp: 0 };

thread_local! {
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn log_call(text: String) {
    CALLS.with_borrow_mut(|calls| calls.push(text));
}

fn address(number: usize) -> Pointer {
    ptr::without_provenance_mut(number)
}

// An observer without functions for arenas, whose table also ends before them.
static PLAIN: Observer = {
    unsafe extern "C" fn malloc(block: Pointer, size: usize, _: Caller) {
        log_call(format!("plain malloc {} {size}", block.addr()));
    }
    unsafe extern "C" fn free(_: Pointer, _: Caller) {}
    unsafe extern "C" fn calloc(block: Pointer, count: usize, each: usize, _: Caller) {
        log_call(format!("plain calloc {} {count} {each}", block.addr()));
    }
    unsafe extern "C" fn realloc_ends(old: Pointer, block: Pointer, size: usize, _: Caller) {
        log_call(format!("plain realloc {} {} {size}", old.addr(), block.addr()));
    }
    let size = offset_of!(Observer, arena_allocated) as u32;
    Observer { size, order: -1, calloc: Some(calloc), realloc_ends: Some(realloc_ends), ..Observer::new(malloc, free) }
};

static ARENAS: Observer = {
    unsafe extern "C" fn malloc(_: Pointer, _: usize, _: Caller) {
        log_call("arenas malloc".to_owned());
    }
    unsafe extern "C" fn free(_: Pointer, _: Caller) {}
    unsafe extern "C" fn allocated(
        arena: *const Arena,
        api: u32,
        block: Pointer,
        size: usize,
        alignment: usize,
        count: usize,
        _: Caller,
    ) {
        // SAFETY: observers are given live arenas.
        let arena = unsafe { &*arena };
        log_call(format!("arena {} {api} {} {size} {alignment} {count}", arena.id, block.addr()));
    }
    unsafe extern "C" fn realloc_ends(arena: *const Arena, old: Pointer, block: Pointer, size: usize, _: Caller) {
        // SAFETY: observers are given live arenas.
        log_call(format!("arena {} realloc {} {} {size}", unsafe { (*arena).id }, old.addr(), block.addr()));
    }
    unsafe extern "C" fn created(arena: *const Arena, _: Caller) {
        // SAFETY: observers are given live arenas, whose labels end with a terminator.
        let label = unsafe { std::ffi::CStr::from_ptr((*arena).label) };
        log_call(format!("created {}", label.to_str().unwrap()));
    }
    unsafe extern "C" fn disposed(arena: *const Arena, _: Caller) {
        // SAFETY: observers are given live arenas.
        log_call(format!("disposed {}", unsafe { (*arena).id }));
    }
    unsafe extern "C" fn purged(purge: *const Purge) {
        // SAFETY: observers are given complete structures.
        log_call(format!("purged {}", unsafe { (*purge).pages }));
    }
    Observer {
        order: 1,
        arena_allocated: Some(allocated),
        arena_realloc_ends: Some(realloc_ends),
        arena_created: Some(created),
        arena_disposed: Some(disposed),
        purged: Some(purged),
        ..Observer::new(malloc, free)
    }
};

static NAME: Name = Name::new("images");

fn arena() -> Arena {
    Arena { size: size_of::<Arena>() as u32, flags: 0, id: 9, label: c"images".as_ptr(), name: &NAME }
}

fn purge() -> Purge {
    Purge {
        size: size_of::<Purge>() as u32,
        flags: 0,
        arena: 9,
        label: ptr::null(),
        caller: ptr::null(),
        pages: 5,
        calls: 1,
        chunks: 1,
        start_ns: 0,
        end_ns: 1,
    }
}

/// Both observers are told of each call, each by the functions that it has; the same through the
/// table by which other code notifies.
fn observers_are_told() {
    // SAFETY: static tables, whose functions keep the contract.
    unsafe {
        hooks::install_observer(&raw const PLAIN).unwrap();
        hooks::install_observer(&raw const ARENAS).unwrap();
    }
    let (one, two) = (address(16), address(32));
    let made = |api, size, alignment, count| ArenaCall { api, size, alignment, count };
    let arena = arena();
    // SAFETY: the observers here only note what they are told.
    unsafe {
        notify::arena_created(&arena, CALLER);
        notify::arena_allocated(&arena, made(Api::Malloc, 5, 0, 0), one, CALLER);
        notify::arena_allocated(&arena, made(Api::Calloc, 12, 0, 3), one, CALLER);
        notify::arena_allocated(&arena, made(Api::Memalign, 5, 64, 0), one, CALLER);
        notify::arena_realloc_ends(&arena, one, two, 7, CALLER);
        notify::arena_reallocarray_ends(&arena, one, two, 3, 4, CALLER);
        notify::arena_disposed(&arena, CALLER);
        notify::purged(&purge());
    }
    let expected = [
        "created images",
        "plain malloc 16 5",
        "arena 9 1 16 5 0 0",
        "plain calloc 16 3 4",
        "arena 9 2 16 12 0 3",
        "plain malloc 16 5",
        "arena 9 5 16 5 64 0",
        "plain realloc 16 32 7",
        "arena 9 realloc 16 32 7",
        "plain realloc 16 32 12",
        "arena 9 realloc 16 32 12",
        "disposed 9",
        "purged 5",
    ];
    assert_eq!(CALLS.take(), expected);

    static HOOKS: Hooks = Hooks::new(&Functions::EMPTY);
    // SAFETY: the table of notifications is complete; its functions ask for the same.
    unsafe {
        let tell = &*HOOKS.tell;
        tell.arena_created.unwrap()(&raw const arena, CALLER);
        tell.arena_allocated.unwrap()(&raw const arena, 1, one, 5, 0, 0, CALLER);
        tell.arena_allocated.unwrap()(ptr::null(), 1, one, 5, 0, 0, CALLER);
        tell.arena_allocated.unwrap()(&raw const arena, 999, one, 5, 0, 0, CALLER);
        // As C declares it: the block is told of, without its arena.
        let of_c = Arena { size: offset_of!(Arena, name) as u32, ..self::arena() };
        tell.arena_created.unwrap()(&raw const of_c, CALLER);
        tell.arena_allocated.unwrap()(&raw const of_c, 1, one, 6, 0, 0, CALLER);
        tell.arena_realloc_ends.unwrap()(&raw const of_c, one, two, 8, CALLER);
        tell.purged.unwrap()(&raw const *Box::new(purge()));
        let short = Purge { size: 8, ..purge() };
        tell.purged.unwrap()(&raw const short);
    }
    let calls = CALLS.take();
    assert_eq!(calls[..3], ["created images", "plain malloc 16 5", "arena 9 1 16 5 0 0"]);
    assert_eq!(calls[3..6], ["plain malloc 16 6", "arenas malloc", "plain realloc 16 32 8"]);
    assert_eq!(calls[6..], ["arenas malloc", "purged 5"], "a reallocation, for an observer without");
}

/// An allocator with arenas and purges, of which each function notes its call.
mod allocator {
    use super::*;

    pub(super) unsafe extern "C" fn malloc(size: usize) -> Pointer {
        log_call(format!("malloc {size}"));
        address(64)
    }
    pub(super) unsafe extern "C" fn calloc(_: usize, _: usize) -> Pointer {
        address(64)
    }
    pub(super) unsafe extern "C" fn realloc(_: Pointer, _: usize) -> Pointer {
        address(64)
    }
    pub(super) unsafe extern "C" fn free(_: Pointer) {}
    pub(super) unsafe extern "C" fn create_arena(_: *const c_void) -> usize {
        77
    }
    pub(super) unsafe extern "C" fn arena_malloc(arena: usize, size: usize) -> Pointer {
        log_call(format!("arena_malloc {arena} {size}"));
        address(80)
    }
    pub(super) unsafe extern "C" fn arena_of(_: Pointer) -> usize {
        77
    }
    pub(super) unsafe extern "C" fn purge_all() -> usize {
        4096
    }
}

static BELOW: AtomicPtr<Functions> = AtomicPtr::new(ptr::null_mut());
static DUMMY: Replacement = Replacement {
    functions: Functions { malloc: Some(allocator::malloc), ..Functions::EMPTY },
    ..Replacement::new(BELOW.as_ptr().cast())
};

/// A layer that owns some blocks.
static LAYER: Replacement = Replacement {
    owns: Some(layer::owns),
    functions: Functions {
        malloc: Some(layer::malloc),
        realloc: Some(allocator::realloc),
        free: Some(layer::free),
        malloc_usable_size: Some(layer::usable_size),
        ..Functions::EMPTY
    },
    ..Replacement::new(BELOW.as_ptr().cast())
};

mod layer {
    use super::*;

    pub(super) unsafe extern "C" fn owns(block: Pointer) -> c_int {
        c_int::from(block == address(96))
    }
    pub(super) unsafe extern "C" fn malloc(size: usize) -> Pointer {
        log_call(format!("layer malloc {size}"));
        address(96)
    }
    pub(super) unsafe extern "C" fn free(_: Pointer) {
        log_call("layer free".to_owned());
    }
    pub(super) unsafe extern "C" fn usable_size(_: Pointer) -> usize {
        16
    }
}

/// Calls about arenas go to the allocator that has them, also past a layer that owns blocks. A
/// replacement of malloc without arenas makes them dummies, but leaves the functions of the
/// allocator as a whole.
fn calls_go_to_the_allocator() {
    let functions = Functions {
        malloc: Some(allocator::malloc),
        calloc: Some(allocator::calloc),
        realloc: Some(allocator::realloc),
        free: Some(allocator::free),
        create_arena: Some(allocator::create_arena),
        arena_malloc: Some(allocator::arena_malloc),
        arena_of: Some(allocator::arena_of),
        purge_all: Some(allocator::purge_all),
        ..Functions::EMPTY
    };
    // SAFETY: once, with functions of one allocator.
    unsafe { dispatch::set_underlying(functions) };
    let now = || dispatch::functions().unwrap();
    // SAFETY: the functions here accept any arguments.
    unsafe {
        assert_eq!(now().create_arena.unwrap()(ptr::null()), 77);
        now().arena_malloc.unwrap()(77, 5);
        assert_eq!(CALLS.take(), ["arena_malloc 77 5"]);
        assert_eq!((now().arena_of.unwrap()(address(80)), now().purge_all.unwrap()()), (77, 4096));
        assert_eq!(now().purge_excess.unwrap()(), 0);

        hooks::install_replacement(&raw const DUMMY).unwrap();
        assert_eq!(now().create_arena.unwrap()(ptr::null()), 1);
        now().arena_malloc.unwrap()(1, 5);
        assert_eq!(CALLS.take(), ["malloc 5"]);
        assert_eq!(now().purge_all.unwrap()(), 4096);
        hooks::remove_replacement(&raw const DUMMY).unwrap();
        assert_eq!(now().create_arena.unwrap()(ptr::null()), 77);

        hooks::install_replacement(&raw const LAYER).unwrap();
        assert_eq!(now().create_arena.unwrap()(ptr::null()), 77);
        now().arena_malloc.unwrap()(77, 5);
        assert_eq!(CALLS.take(), ["arena_malloc 77 5"]);
        let own = now().malloc.unwrap()(6);
        now().arena_free.unwrap()(77, own);
        assert_eq!(CALLS.take(), ["layer malloc 6", "layer free"]);
        // One replacement counts calls: a second one does not change what entry points read.
        assert_eq!(dispatch_path::set_counted(&LAYER, -8, 96, 16), Ok(()));
        assert_eq!(dispatch_path::set_counted(&DUMMY, -16, 5, 5), Err(HookError::Full));
        let word = dispatch_path::COUNTED.word.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(word, -8);
        hooks::remove_replacement(&raw const LAYER).unwrap();
    }
}

#[test]
fn arenas_in_the_hook_table() {
    observers_are_told();
    calls_go_to_the_allocator();
}
