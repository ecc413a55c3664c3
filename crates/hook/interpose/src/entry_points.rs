//! The entry points of the most frequent calls.
//!
//! Each exported function is one jump: to the next allocator while nothing is installed, to the
//! code for one observer that samples ([`arch`]), or to the thunk that notifies all observers.

use core::arch::naked_asm;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::hooks::dispatch_path::{self, DispatchPath};
use heapledger_core::hooks::{Functions, Pointer, dispatch};
use heapledger_redirect::nesting;

use crate::{arch, calls, thunks};

/// Defines an exported function, and the variable that holds its target; the first one has to do
/// for the call that starts this loaded object.
macro_rules! entry_point {
    ($name:ident, $own:ident, $target:ident, $first:ident, $($argument:ident: $type:ty),* => $result:ty) => {
        static $target: AtomicPtr<()> = AtomicPtr::new(thunks::$first as *mut ());

        /// The C function of this name: jumps to its present target.
        ///
        /// # Safety
        ///
        /// The contract of the C function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            naked_asm!("jmp qword ptr [rip + {target}]", target = sym $target)
        }

        /// The same function by a name that leads here in any program.
        ///
        /// # Safety
        ///
        /// The contract of the C function.
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $own($($argument: $type),*) -> $result {
            naked_asm!("jmp qword ptr [rip + {target}]", target = sym $target)
        }
    };
}

entry_point!(malloc, own_malloc, MALLOC, malloc_outermost, size: usize => Pointer);
entry_point!(calloc, own_calloc, CALLOC, calloc_outermost, count: usize, each: usize => Pointer);
entry_point!(realloc, own_realloc, REALLOC, realloc_outermost, old: Pointer, size: usize => Pointer);
entry_point!(free, own_free, FREE, free_outermost, block: Pointer => ());

/// Calls `watcher` with the return address of each call of `malloc`, before the call is made; with
/// `None`, ends that. The dynamic linker calls `malloc` while it loads a library.
pub fn watch_malloc(watcher: Option<fn(u64)>) {
    WATCHER.store(watcher.map_or(ptr::null_mut(), |watcher| watcher as *mut ()), Ordering::SeqCst);
    dispatch_path::update();
}

/// The function that [`watch_malloc`] has set.
static WATCHER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// `malloc`, while its calls are watched. Passes the caller's registers on like the thunks.
#[unsafe(naked)]
unsafe extern "C" fn malloc_watched(size: usize) -> Pointer {
    naked_asm!("mov rsi, rsp", "mov rdx, rbp", "jmp {watched}", watched = sym watched)
}

extern "C" fn watched(size: usize, sp: u64, rbp: u64) -> Pointer {
    let watcher = WATCHER.load(Ordering::Acquire);
    if !watcher.is_null() {
        // SAFETY: on entry to a function the return address is at the stack pointer, which the
        // thunk has passed on.
        let caller = unsafe { ptr::with_exposed_provenance::<u64>(sp as usize).read() };
        // SAFETY: `transmute` requires that the pointer is a `fn(u64)`. It is not null, and
        // `watch_malloc`, which stores all others, makes them from a `fn(u64)`.
        unsafe { core::mem::transmute::<*mut (), fn(u64)>(watcher)(caller) };
    }
    calls::malloc_outermost(size, sp, rbp)
}

/// Calls `handler` at the next call of `malloc`, `calloc`, `realloc` or `free`, and at every later
/// one, while [`dispatch_path::REQUESTED`] is not 0 and the path is [`DispatchPath::Armed`]. Calls
/// of redirected entries count, too, on any path.
pub fn on_request(handler: fn()) {
    heapledger_redirect::set_request_handler(handler);
    REQUEST_HANDLER.store(handler as *mut (), Ordering::Release);
}

/// The function that [`on_request`] has set, or null.
static REQUEST_HANDLER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Handles a request. Called by entry points in assembly.
#[cold]
pub(crate) extern "C" fn requested() {
    let handler = REQUEST_HANDLER.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: `transmute` requires that the pointer is a `fn()`. It is not null, and
        // `on_request`, which stores all others, makes them from a `fn()`.
        unsafe { core::mem::transmute::<*mut (), fn()>(handler)() };
    }
}

/// Sets the dispatch path of calls. Only once there is an allocator.
pub(crate) fn set_dispatch_path(path: DispatchPath) {
    let [malloc, calloc, realloc, free] = match path {
        // The next allocator's functions may have been redirected: a call must not be observed
        // twice, and the other paths do not mark that one has begun. Those of an armed program do,
        // once somebody observes.
        _ if nesting::is_active() && path != DispatchPath::Armed => [
            thunks::malloc_outermost as *mut (),
            thunks::calloc_outermost as *mut (),
            thunks::realloc_outermost as *mut (),
            thunks::free_outermost as *mut (),
        ],
        DispatchPath::Direct => {
            // SAFETY: `set_underlying` has written it, and nobody writes it again.
            let Functions { malloc, calloc, realloc, free, .. } = unsafe { &*dispatch::underlying_table() };
            [
                malloc.map_or(thunks::malloc_hooked as *mut (), |function| function as *mut ()),
                calloc.map_or(thunks::calloc_hooked as *mut (), |function| function as *mut ()),
                realloc.map_or(thunks::realloc_hooked as *mut (), |function| function as *mut ()),
                free.map_or(thunks::free_hooked as *mut (), |function| function as *mut ()),
            ]
        }
        DispatchPath::Sampled => {
            [arch::malloc as *mut (), arch::calloc as *mut (), arch::realloc as *mut (), arch::free as *mut ()]
        }
        DispatchPath::Counted => [
            arch::counted::malloc as *mut (),
            arch::counted::calloc as *mut (),
            arch::counted::realloc as *mut (),
            arch::counted::free as *mut (),
        ],
        DispatchPath::Armed => [
            arch::armed::malloc as *mut (),
            arch::armed::calloc as *mut (),
            arch::armed::realloc as *mut (),
            arch::armed::free as *mut (),
        ],
        DispatchPath::Hooked => [
            thunks::malloc_hooked as *mut (),
            thunks::calloc_hooked as *mut (),
            thunks::realloc_hooked as *mut (),
            thunks::free_hooked as *mut (),
        ],
    };
    let malloc = if WATCHER.load(Ordering::Acquire).is_null() { malloc } else { malloc_watched as *mut () };
    // In this order, so that observers are notified of the free of every block whose allocation
    // they were notified of.
    FREE.store(free, Ordering::Release);
    REALLOC.store(realloc, Ordering::Release);
    CALLOC.store(calloc, Ordering::Release);
    MALLOC.store(malloc, Ordering::Release);
}
