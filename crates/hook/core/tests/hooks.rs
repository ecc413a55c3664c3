//! The hook table of this process: the notification of observers, the choice of the allocator for a
//! call, and the derivation of missing functions.
//!
//! There is one table in a process, and hooks keep their slots: so one test goes through all of it.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::hooks::{
    self, Caller, Functions, HookError, OBSERVERS_MAX, Observer, Pointer, REPLACEMENTS_MAX, Replacement, dispatch,
    dispatch_path, notify,
};
use heapledger_core::{Api, countdown, filter};

unsafe extern "C" {
    fn malloc(size: usize) -> Pointer;
    fn calloc(count: usize, each: usize) -> Pointer;
    fn realloc(old: Pointer, size: usize) -> Pointer;
    fn free(block: Pointer);
    fn memalign(alignment: usize, size: usize) -> Pointer;
    fn malloc_usable_size(block: Pointer) -> usize;
}

const CALLER: Caller = Caller { slot: 0, rbp: 0 };

thread_local! {
    /// The calls that hooks have noted.
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn log_call(text: String) {
    CALLS.with_borrow_mut(|logged_calls| logged_calls.push(text));
}

/// Returns the calls that were noted since the last time.
fn logged_calls() -> Vec<String> {
    CALLS.take()
}

fn address(number: usize) -> Pointer {
    ptr::without_provenance_mut(number)
}

// --------------------------------------------------------------------------------------- observers

/// Defines an observer with the minimum of functions.
macro_rules! least {
    ($name:ident, $order:literal) => {
        static $name: Observer = {
            unsafe extern "C" fn malloc(block: Pointer, size: usize, _: Caller) {
                log_call(format!("{} malloc {} {size}", stringify!($name), block.addr()));
            }
            unsafe extern "C" fn free(block: Pointer, _: Caller) {
                log_call(format!("{} free {}", stringify!($name), block.addr()));
            }
            Observer { order: $order, ..Observer::new(malloc, free) }
        };
    };
}

least!(FIRST, -3);
least!(LAST, 3);

static FULL: Observer = Observer {
    calloc: Some(full::calloc),
    aligned: Some(full::aligned),
    free_sized: Some(full::free_sized),
    realloc_begins: Some(full::realloc_begins),
    realloc_ends: Some(full::realloc_ends),
    failed: Some(full::failed),
    ..Observer::new(full::malloc, full::free)
};

mod full {
    use super::*;

    pub(super) unsafe extern "C" fn malloc(block: Pointer, size: usize, _: Caller) {
        log_call(format!("FULL malloc {} {size}", block.addr()));
    }
    pub(super) unsafe extern "C" fn free(block: Pointer, _: Caller) {
        log_call(format!("FULL free {}", block.addr()));
    }
    pub(super) unsafe extern "C" fn calloc(block: Pointer, count: usize, each: usize, _: Caller) {
        log_call(format!("FULL calloc {} {count} {each}", block.addr()));
    }
    pub(super) unsafe extern "C" fn aligned(api: u32, block: Pointer, alignment: usize, size: usize, _: Caller) {
        log_call(format!("FULL {api} {} {alignment} {size}", block.addr()));
    }
    pub(super) unsafe extern "C" fn free_sized(api: u32, block: Pointer, size: usize, alignment: usize, _: Caller) {
        log_call(format!("FULL {api} {} {size} {alignment}", block.addr()));
    }
    pub(super) unsafe extern "C" fn realloc_begins(api: u32, old: Pointer, _: Caller) {
        log_call(format!("FULL {api} of {}", old.addr()));
    }
    pub(super) unsafe extern "C" fn realloc_ends(old: Pointer, block: Pointer, size: usize, _: Caller) {
        log_call(format!("FULL realloc {} {} {size}", old.addr(), block.addr()));
    }
    pub(super) unsafe extern "C" fn failed(api: u32, size: usize, alignment: usize, count: usize, _: Caller) {
        log_call(format!("FULL failed {api} {size} {alignment} {count}"));
    }
}

/// Notifies the observers of every kind of call.
fn notify_all() {
    let (one, two, none) = (address(16), address(32), ptr::null_mut());
    // SAFETY: the contract of notification asks for a live frame and live blocks, for observers
    // that read them. All observers here only note the addresses, and no call fails to reallocate a
    // block, whose usable size would be asked for.
    unsafe {
        notify::malloc(one, 5, CALLER);
        notify::calloc(one, 3, 4, CALLER);
        notify::aligned(Api::Memalign, one, 64, 5, CALLER);
        notify::free(one, CALLER);
        notify::free_sized(Api::FreeSized, one, 5, 0, CALLER);
        notify::realloc_begins(Api::Realloc, one, CALLER);
        notify::realloc_ends(one, two, 7, CALLER);
        notify::reallocarray_ends(none, two, 3, 4, CALLER);
        notify::realloc_ends(none, none, 7, CALLER);
        notify::realloc_ends(one, none, 0, CALLER);
        notify::failed(Api::Calloc, 12, 0, 3, CALLER);
    }
}

/// Notifies the observers of one free.
fn notify_free() {
    // SAFETY: as in `notify_all`: the contract of notification asks for a live frame and a live
    // block, for observers that read them, and all observers here only note the addresses.
    unsafe { notify::free(address(16), CALLER) };
}

fn install_observer(observer: *const Observer) -> Result<(), HookError> {
    // SAFETY: null, or a table whose functions keep the contract of `Observer`.
    unsafe { hooks::install_observer(observer) }
}

fn observers() {
    notify_all();
    assert_eq!(logged_calls(), [""; 0], "nobody is there");
    assert_eq!(install_observer(&raw const LAST), Ok(()));
    notify_all();
    let least = [
        "LAST malloc 16 5",
        "LAST malloc 16 12",
        "LAST malloc 16 5",
        "LAST free 16",
        "LAST free 16",
        "LAST free 16",
        "LAST malloc 32 7",
        "LAST malloc 32 12",
    ];
    assert_eq!(logged_calls(), least);

    assert_eq!(install_observer(&raw const FULL), Ok(()));
    assert_eq!(install_observer(&raw const FIRST), Ok(()));
    assert_eq!(install_observer(&raw const FULL), Err(HookError::AlreadyInstalled));
    notify_all();
    let calls = logged_calls();
    let of = |name: &str| calls.iter().filter(|line| line.starts_with(name)).cloned().collect::<Vec<_>>();
    assert_eq!(of("LAST"), least);
    assert_eq!(of("FIRST"), least.map(|line| line.replace("LAST", "FIRST")));
    let full = [
        "FULL malloc 16 5",
        "FULL calloc 16 3 4",
        "FULL 5 16 64 5",
        "FULL free 16",
        "FULL 18 16 5 0",
        "FULL 3 of 16",
        "FULL realloc 16 32 7",
        "FULL realloc 0 32 12",
        "FULL realloc 0 0 7",
        "FULL realloc 16 0 0",
        "FULL failed 2 12 0 3",
    ];
    assert_eq!(of("FULL"), full);

    hooks::hold();
    notify_all();
    assert_eq!(logged_calls(), [""; 0], "held");
    hooks::release();
    assert_eq!(hooks::remove_observer(&raw const FULL), Ok(()));
    assert_eq!(hooks::remove_observer(&raw const FULL), Err(HookError::NotInstalled));
    notify_free();
    assert_eq!(logged_calls(), ["FIRST free 16", "LAST free 16"]);
    assert_eq!(install_observer(&raw const FULL), Ok(()));
    notify_free();
    assert_eq!(logged_calls(), ["FIRST free 16", "FULL free 16", "LAST free 16"], "it comes back to its place");
    for observer in [&raw const FIRST, &raw const FULL, &raw const LAST] {
        assert_eq!(hooks::remove_observer(observer), Ok(()));
    }
}

fn malformed_observers() {
    let malformed = [
        Observer { version: 2, ..FULL },
        Observer { size: offset_of!(Observer, free) as u32, ..FULL },
        Observer { size: size_of::<Observer>() as u32 - 1, ..FULL },
        Observer { reserved: 1, ..FULL },
        Observer { free: None, ..FULL },
        Observer { malloc: None, ..FULL },
    ];
    for table in &malformed {
        assert_eq!(install_observer(table), Err(HookError::Malformed), "{table:?}");
    }
    assert_eq!(install_observer(ptr::null()), Err(HookError::Malformed));
    // A table that ends early leaves out the later functions.
    let short = &*Box::leak(Box::new(Observer { size: offset_of!(Observer, calloc) as u32, ..FULL }));
    assert_eq!(install_observer(short), Ok(()));
    // SAFETY: as in `notify_all`: the contract of notification asks for a live frame and a live
    // block, for observers that read them, and all observers here only note the addresses.
    unsafe { notify::calloc(address(16), 3, 4, CALLER) };
    assert_eq!(logged_calls(), ["FULL malloc 16 12"]);
    assert_eq!(hooks::remove_observer(short), Ok(()));

    // Four observers were installed before.
    let others: Vec<*const Observer> = (0..OBSERVERS_MAX).map(|_| &raw const *Box::leak(Box::new(FULL))).collect();
    let (fitting, others) = others.split_at(OBSERVERS_MAX - 4);
    assert!(fitting.iter().all(|&observer| install_observer(observer).is_ok()));
    assert!(others.iter().all(|&observer| install_observer(observer) == Err(HookError::Full)));
    assert!(fitting.iter().all(|&observer| hooks::remove_observer(observer).is_ok()));
    notify_all();
    assert_eq!(logged_calls(), [""; 0]);
}

// ------------------------------------------------------------------------------------ replacements

/// Defines a layer that notes its calls, and passes them on.
macro_rules! layer {
    ($module:ident, $order:literal, { $($function:ident),* }) => {
        mod $module {
            use super::*;

            static BELOW: AtomicPtr<Functions> = AtomicPtr::new(ptr::null_mut());

            fn below() -> &'static Functions {
                // SAFETY: only the layer's functions come here, which are called once the layer is
                // installed. `install_replacement` has then stored the address of a table that is
                // static and does not change.
                unsafe { &*BELOW.load(Ordering::Relaxed) }
            }

            pub(super) static TABLE: Replacement = Replacement {
                order: $order,
                functions: Functions { $($function: Some($function),)* ..Functions::EMPTY },
                ..Replacement::new(BELOW.as_ptr().cast())
            };

            $(layer!(@ $module $function);)*
        }
    };
    (@ $module:ident malloc) => {
        unsafe extern "C" fn malloc(size: usize) -> Pointer {
            log_call(format!("{} malloc {size}", stringify!($module)));
            // SAFETY: the next table has all functions, which behave as those of C. `malloc` may be
            // called with any size.
            unsafe { below().malloc.unwrap()(size) }
        }
    };
    (@ $module:ident free) => {
        unsafe extern "C" fn free(block: Pointer) {
            log_call(format!("{} free", stringify!($module)));
            // SAFETY: the next table has all functions, which behave as those of C. The block is
            // live, as our caller's call of `free` says.
            unsafe { below().free.unwrap()(block) }
        }
    };
    (@ $module:ident memalign) => {
        unsafe extern "C" fn memalign(alignment: usize, size: usize) -> Pointer {
            log_call(format!("{} memalign {alignment} {size}", stringify!($module)));
            // SAFETY: the next table has all functions, which behave as those of C. The arguments
            // are those of our caller's call of `memalign`.
            unsafe { below().memalign.unwrap()(alignment, size) }
        }
    };
}

layer!(upper, 1, { malloc });
layer!(middle, 2, { free, memalign });
layer!(lower, 3, { malloc, free });

/// An allocator of one block, which it handles even after it was removed.
mod owner {
    use super::*;

    #[repr(align(16))]
    struct Block(#[allow(dead_code, reason = "memory")] [u8; 64]);
    static BLOCK: Block = Block([0; 64]);
    static BELOW: AtomicPtr<Functions> = AtomicPtr::new(ptr::null_mut());

    pub(super) static TABLE: Replacement = Replacement {
        order: 2,
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

    fn block() -> Pointer {
        (&raw const BLOCK).cast_mut().cast()
    }

    unsafe extern "C" fn owns(asked: Pointer) -> c_int {
        c_int::from(asked == block())
    }
    unsafe extern "C" fn malloc(_: usize) -> Pointer {
        log_call("owner malloc".to_owned());
        block()
    }
    unsafe extern "C" fn realloc(old: Pointer, _: usize) -> Pointer {
        log_call(format!("owner realloc {}", old == block()));
        block()
    }
    unsafe extern "C" fn free(asked: Pointer) {
        log_call(format!("owner free {}", asked == block()));
    }
    unsafe extern "C" fn usable_size(_: Pointer) -> usize {
        64
    }
}

/// Makes a call as the program would: `program!(malloc(5))`.
macro_rules! program {
    ($name:ident($($argument:expr),*)) => {{
        let function = dispatch::functions().unwrap().$name.unwrap();
        // SAFETY: the arguments are those of the C function of this name.
        unsafe { function($($argument),*) }
    }};
}

fn install(replacement: *const Replacement) -> Result<(), HookError> {
    // SAFETY: a table whose functions keep the contract of `Replacement`.
    unsafe { hooks::install_replacement(replacement) }
}

fn replacements() {
    assert!(dispatch::functions().is_none());
    assert_eq!(install(&raw const upper::TABLE), Err(HookError::NoAllocator));
    let functions = Functions {
        malloc: Some(malloc),
        calloc: Some(calloc),
        realloc: Some(realloc),
        free: Some(free),
        memalign: Some(memalign),
        malloc_usable_size: Some(malloc_usable_size),
        ..Functions::EMPTY
    };
    // SAFETY: `set_underlying` asks to be called once, by one thread: the only test of this program
    // does so here. The functions are those of one allocator, the C library's, and include
    // `malloc`, `calloc`, `realloc` and `free`.
    unsafe { dispatch::set_underlying(functions) };
    nothing_is_replaced();

    for replacement in [&raw const lower::TABLE, &raw const upper::TABLE, &raw const middle::TABLE] {
        assert_eq!(install(replacement), Ok(()));
        assert_eq!(install(replacement), Err(HookError::AlreadyInstalled));
    }
    let block = program!(malloc(5));
    assert_eq!(logged_calls(), ["upper malloc 5", "lower malloc 5"]);
    program!(free(block));
    assert_eq!(logged_calls(), ["middle free", "lower free"]);
    let block = program!(calloc(3, 4));
    assert_eq!(logged_calls(), [""; 0], "all leave it out");
    program!(free(block));
    logged_calls();
    derived_functions();

    // A layer in the middle is removed, while the others stay.
    assert_eq!(hooks::remove_replacement(&raw const middle::TABLE), Ok(()));
    assert_eq!(hooks::remove_replacement(&raw const middle::TABLE), Err(HookError::NotInstalled));
    let block = program!(malloc(5));
    program!(free(block));
    assert_eq!(logged_calls(), ["upper malloc 5", "lower malloc 5", "lower free"]);
    assert_eq!(install(&raw const middle::TABLE), Ok(()));
    let block = program!(malloc(5));
    program!(free(block));
    assert_eq!(logged_calls(), ["upper malloc 5", "lower malloc 5", "middle free", "lower free"]);
    for replacement in [&raw const upper::TABLE, &raw const lower::TABLE, &raw const middle::TABLE] {
        assert_eq!(hooks::remove_replacement(replacement), Ok(()));
    }
    nothing_is_replaced();
}

/// Checks that every function works, and that no hook is called.
fn nothing_is_replaced() {
    let mut block = ptr::null_mut();
    assert_eq!(program!(posix_memalign(&raw mut block, 64, 100)), 0);
    let arena = program!(create_arena(ptr::null::<c_void>()));
    let blocks = [
        block,
        program!(malloc(10)),
        program!(calloc(1, 10)),
        program!(realloc(ptr::null_mut(), 10)),
        program!(memalign(64, 10)),
        program!(aligned_alloc(64, 64)),
        program!(valloc(10)),
        program!(pvalloc(10)),
        program!(arena_malloc(arena, 10)),
        program!(arena_calloc(arena, 1, 10)),
    ];
    for block in blocks {
        assert!(!block.is_null() && program!(malloc_usable_size(block)) >= 10);
        program!(free(block));
    }
    for size in [0, 1, 10, 24, 25, 100, 1000, 5000, 65_536] {
        let good = program!(malloc_good_size(size));
        let block = program!(malloc(size));
        assert_eq!(good, program!(malloc_usable_size(block)), "of {size} bytes");
        program!(free(block));
    }
    assert_eq!(program!(malloc_good_size(1 << 30)), 1 << 30, "no such block is allocated to see it");
    assert_eq!(logged_calls(), [""; 0]);
}

/// Checks, with all three layers, the functions derived from memalign, and arenas over plain
/// functions.
fn derived_functions() {
    let aligned = || {
        let mut calls = logged_calls();
        calls.retain(|line| line.contains("memalign"));
        calls
    };
    let mut block = ptr::null_mut();
    assert_eq!(program!(posix_memalign(&raw mut block, 64, 100)), 0);
    assert!(!block.is_null() && block.addr().is_multiple_of(64));
    let others = [program!(aligned_alloc(32, 64)), program!(valloc(10)), program!(pvalloc(10))];
    assert_eq!(
        aligned(),
        ["middle memalign 64 100", "middle memalign 32 64", "middle memalign 4096 10", "middle memalign 4096 4096"]
    );
    program!(free(block));
    others.into_iter().for_each(|block| program!(free(block)));
    assert_eq!(program!(posix_memalign(&raw mut block, 3, 100)), 22, "EINVAL");
    assert_eq!(aligned(), [""; 0]);

    let arena = program!(create_arena(ptr::null::<c_void>()));
    assert_eq!(arena, 1);
    let block = program!(arena_malloc(arena, 7));
    assert_eq!(logged_calls(), ["upper malloc 7", "lower malloc 7"]);
    let block = program!(arena_realloc(arena, block, 9));
    program!(arena_free(arena, block));
    assert_eq!(logged_calls(), ["middle free", "lower free"]);
    let block = program!(arena_memalign(arena, 64, 9));
    assert_eq!(logged_calls(), ["middle memalign 64 9"]);
    program!(arena_free(arena, block));
    program!(dispose_arena(arena));
    logged_calls();
}

/// Checks that a replacement which owns blocks is called only for those, even after it was removed.
fn a_replacement_that_owns() {
    let foreign = program!(malloc(5));
    assert_eq!(install(&raw const owner::TABLE), Ok(()));
    assert_eq!(install(&raw const upper::TABLE), Ok(()));
    let own = program!(malloc(5));
    assert_eq!(logged_calls(), ["upper malloc 5", "owner malloc"]);
    program!(free(foreign));
    assert_eq!(logged_calls(), [""; 0], "not its own");
    assert_eq!(program!(malloc_usable_size(own)), 64);
    let own = program!(realloc(own, 20));
    assert_eq!(logged_calls(), ["owner realloc true"]);
    program!(realloc(ptr::null_mut(), 20));
    assert_eq!(logged_calls(), ["owner malloc"], "of null: a new block");
    program!(malloc_usable_size(ptr::null_mut()));
    assert_eq!(logged_calls(), [""; 0], "null is nobody's own");

    // A block that it made for a dummy arena stays its own.
    let arena = program!(create_arena(ptr::null::<c_void>()));
    let of_arena = program!(arena_malloc(arena, 5));
    assert_eq!((of_arena, logged_calls()), (own, vec!["upper malloc 5".to_owned(), "owner malloc".to_owned()]));
    program!(arena_free(arena, of_arena));
    assert_eq!(logged_calls(), ["owner free true"]);

    assert_eq!(hooks::remove_replacement(&raw const owner::TABLE), Ok(()));
    assert_eq!(hooks::remove_replacement(&raw const owner::TABLE), Err(HookError::NotInstalled));
    program!(arena_free(arena, of_arena));
    assert_eq!(logged_calls(), ["owner free true"]);
    assert_eq!(hooks::remove_replacement(&raw const upper::TABLE), Ok(()));
    let foreign = [program!(malloc(5)), program!(realloc(ptr::null_mut(), 20))];
    assert_eq!(program!(malloc_usable_size(own)), 64);
    program!(realloc(own, 30));
    program!(free(own));
    foreign.into_iter().for_each(|block| program!(free(block)));
    assert_eq!(logged_calls(), ["owner realloc true", "owner free true"]);

    assert_eq!(install(&raw const owner::TABLE), Ok(()));
    program!(malloc(5));
    assert_eq!(logged_calls(), ["owner malloc"]);
    assert_eq!(hooks::remove_replacement(&raw const owner::TABLE), Ok(()));
}

// -------------------------------------------------------------------------------------------- ways

/// Checks the dispatch path of calls past an observer that samples, which they take only if it is
/// alone.
fn dispatch_paths() {
    const RATE: u32 = 12;
    let may_bypass = || (dispatch_path::may_bypass_malloc(8), dispatch_path::may_bypass_free(address(16)));
    dispatch_path::watch(|path| log_call(format!("{path:?}")));
    assert_eq!(
        (logged_calls(), may_bypass()),
        (vec!["Direct".to_owned()], (false, false)),
        "who is behind is not known"
    );
    dispatch_path::set_initialised();
    assert_eq!(may_bypass(), (true, true));

    dispatch_path::set_sampling(&FULL, RATE);
    assert_eq!((logged_calls(), may_bypass()), (vec!["Direct".to_owned()], (true, true)));
    assert_eq!(install_observer(&raw const FULL), Ok(()));
    assert_eq!((logged_calls(), may_bypass()), (vec!["Sampled".to_owned()], (false, true)), "nothing is drawn");
    assert_eq!(countdown::draw(1, RATE, |_| 1000), None);
    assert_eq!(may_bypass(), (true, true));
    filter::add(0x1200);
    assert!(
        !dispatch_path::may_bypass_free(address(0x1200))
            && !dispatch_path::may_bypass_free(address(0x12ff))
            && dispatch_path::may_bypass_free(address(0x1300))
    );
    filter::remove(0x1200);
    assert!(dispatch_path::may_bypass_free(address(0x1200)));

    assert_eq!(install_observer(&raw const LAST), Ok(()));
    assert_eq!((logged_calls(), may_bypass()), (vec!["Hooked".to_owned()], (false, false)), "another one wants all");
    assert_eq!(hooks::remove_observer(&raw const LAST), Ok(()));
    assert_eq!((logged_calls(), may_bypass()), (vec!["Sampled".to_owned()], (true, true)));
    assert_eq!(install(&raw const upper::TABLE), Ok(()));
    assert_eq!(
        (logged_calls(), may_bypass()),
        (vec!["Hooked".to_owned()], (false, false)),
        "something is in the allocator's place"
    );
    assert_eq!(hooks::remove_replacement(&raw const upper::TABLE), Ok(()));
    assert_eq!((logged_calls(), may_bypass()), (vec!["Sampled".to_owned()], (true, true)));

    dispatch_path::set_sampling(&FULL, RATE + 1);
    assert_eq!((logged_calls(), may_bypass()), (vec!["Sampled".to_owned()], (false, true)), "drawn at another rate");
    dispatch_path::set_sampling(&FULL, 0);
    assert_eq!((logged_calls(), may_bypass()), (vec!["Hooked".to_owned()], (false, false)), "it wants all");
    dispatch_path::set_sampling(&FULL, dispatch_path::EXTERNAL_RATE);
    assert_eq!(
        (logged_calls(), may_bypass()),
        (vec!["Sampled".to_owned()], (false, false)),
        "the entry points know the rate"
    );
    assert_eq!(hooks::remove_observer(&raw const FULL), Ok(()));
    assert_eq!((logged_calls(), may_bypass()), (vec!["Direct".to_owned()], (true, true)));
    dispatch_path::watch(|_| {});
}

fn malformed_replacements() {
    let malformed = [
        Replacement { version: 2, ..upper::TABLE },
        Replacement { size: offset_of!(Replacement, functions) as u32, ..upper::TABLE },
        Replacement { below: ptr::null_mut(), ..upper::TABLE },
        Replacement { functions: Functions { free: None, ..owner::TABLE.functions }, ..owner::TABLE },
        Replacement { functions: Functions { version: 2, ..owner::TABLE.functions }, ..owner::TABLE },
    ];
    for table in &malformed {
        assert_eq!(install(table), Err(HookError::Malformed), "{table:?}");
    }
    // Four replacements were installed before.
    let results: Vec<_> = (0..REPLACEMENTS_MAX - 3).map(|_| install(Box::leak(Box::new(upper::TABLE)))).collect();
    let (last, fitting) = results.split_last().unwrap();
    assert!(fitting.iter().all(Result::is_ok) && *last == Err(HookError::Full), "{results:?}");
}

#[test]
fn the_hook_table() {
    observers();
    malformed_observers();
    replacements();
    // Before the replacement that owns blocks, which stays linked even after it was removed.
    dispatch_paths();
    a_replacement_that_owns();
    malformed_replacements();
}
