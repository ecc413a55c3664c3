//! The doors: where the calls go of which a program makes most.
//!
//! What the program calls is one jump: to the next allocator while nothing is installed, past an observer that samples
//! ([`arch`]), or to the thunk that has everybody told.

use core::arch::naked_asm;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::hooks::way::{self, Way};
use heapledger_core::hooks::{Functions, Pointer, serve};

use crate::{arch, thunks};

/// Defines a function that the artefact exports, and where its calls go.
macro_rules! door {
    ($name:ident, $door:ident, $told:ident, $($argument:ident: $type:ty),* => $result:ty) => {
        static $door: AtomicPtr<()> = AtomicPtr::new(thunks::$told as *mut ());

        /// The C function of this name.
        ///
        /// # Safety
        ///
        /// As C has it.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            naked_asm!("jmp qword ptr [rip + {door}]", door = sym $door)
        }
    };
}

door!(malloc, MALLOC, malloc_told, size: usize => Pointer);
door!(calloc, CALLOC, calloc_told, count: usize, each: usize => Pointer);
door!(realloc, REALLOC, realloc_told, old: Pointer, size: usize => Pointer);
door!(free, FREE, free_told, block: Pointer => ());

/// Has this called with the return address of each call of `malloc`, before the call is made; `None`: nobody any more. The
/// dynamic linker calls it while it loads a library.
pub fn watch_malloc(watcher: Option<fn(u64)>) {
    WATCHER.store(watcher.map_or(ptr::null_mut(), |watcher| watcher as *mut ()), Ordering::SeqCst);
    way::update();
}

/// See [`watch_malloc`].
static WATCHER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// `malloc`, while somebody watches its calls. See the thunks.
#[unsafe(naked)]
unsafe extern "C" fn malloc_watched(size: usize) -> Pointer {
    naked_asm!("mov rsi, rsp", "mov rdx, rbp", "jmp {watched}", watched = sym watched)
}

extern "C" fn watched(size: usize, sp: u64, rbp: u64) -> Pointer {
    let watcher = WATCHER.load(Ordering::Acquire);
    if !watcher.is_null() {
        // SAFETY: on entry to a function the return address is at the stack pointer, which the thunk has passed on.
        let caller = unsafe { ptr::with_exposed_provenance::<u64>(sp as usize).read() };
        // SAFETY: stored by `watch_malloc`, of this type.
        unsafe { core::mem::transmute::<*mut (), fn(u64)>(watcher)(caller) };
    }
    thunks::malloc_from(size, sp, rbp)
}

/// Has calls take this way from now on. Once there is an allocator.
pub(crate) fn open(way: Way) {
    let [malloc, calloc, realloc, free] = match way {
        Way::Straight => {
            // SAFETY: `set_bottom` has written it, and nobody does again.
            let Functions { malloc, calloc, realloc, free, .. } = unsafe { &*serve::real_table() };
            [
                malloc.map_or(thunks::malloc_told as *mut (), |function| function as *mut ()),
                calloc.map_or(thunks::calloc_told as *mut (), |function| function as *mut ()),
                realloc.map_or(thunks::realloc_told as *mut (), |function| function as *mut ()),
                free.map_or(thunks::free_told as *mut (), |function| function as *mut ()),
            ]
        }
        Way::Sampled => {
            [arch::malloc as *mut (), arch::calloc as *mut (), arch::realloc as *mut (), arch::free as *mut ()]
        }
        Way::Told => [
            thunks::malloc_told as *mut (),
            thunks::calloc_told as *mut (),
            thunks::realloc_told as *mut (),
            thunks::free_told as *mut (),
        ],
    };
    let malloc = if WATCHER.load(Ordering::Acquire).is_null() { malloc } else { malloc_watched as *mut () };
    // In this order: who is told of a block is told of its free.
    FREE.store(free, Ordering::Release);
    REALLOC.store(realloc, Ordering::Release);
    CALLOC.store(calloc, Ordering::Release);
    MALLOC.store(malloc, Ordering::Release);
}
