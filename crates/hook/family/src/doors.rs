//! The doors: where the calls go of which a program makes most.
//!
//! What the program calls is one jump: to the next allocator while nothing is installed, past an observer that samples
//! ([`arch`]), or to the thunk that has everybody told.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::hooks::way::Way;
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
    // In this order: who is told of a block is told of its free.
    FREE.store(free, Ordering::Release);
    REALLOC.store(realloc, Ordering::Release);
    CALLOC.store(calloc, Ordering::Release);
    MALLOC.store(malloc, Ordering::Release);
}
