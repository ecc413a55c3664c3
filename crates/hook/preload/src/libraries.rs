//! The hook libraries: preloaded beside this one, and asked once to install their hooks.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::hooks::{Functions, Hooks};

use crate::bridge::heapledger_hooks_v1;
use heapledger_family::next::Objects;

/// `heapledger_hook_init`: see include/heapledger/hooks.h.
type Init = unsafe extern "C" fn(*const Functions, *const Hooks) -> c_int;

/// Functions of hook libraries that are to be called around an exec: before, and when it has failed. Those of the first
/// libraries that have them.
static AROUND_EXEC: [[AtomicUsize; 2]; 4] = [const { [const { AtomicUsize::new(0) }; 2] }; 4];

/// Functions of hook libraries that are told of libraries whose calls are not seen.
static UNSEEN: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// Tells hook libraries that the program opens a library whose calls of the allocator are not seen.
pub(crate) fn unseen(reason: u64, path: &CStr) {
    for function in &UNSEEN {
        let address = function.load(Ordering::Acquire);
        // SAFETY: 0, or a function that a hook library says is of this type, by its name.
        let function = unsafe { core::mem::transmute::<usize, Option<extern "C" fn(u64, *const c_char)>>(address) };
        if let Some(function) = function {
            function(reason, path.as_ptr());
        }
    }
}

/// Calls an exec function, and what hook libraries want called around it.
pub(crate) fn around_exec(exec: impl FnOnce() -> c_int) -> c_int {
    let call = |index: usize| {
        for functions in &AROUND_EXEC {
            let address = functions.get(index).map_or(0, |function| function.load(Ordering::Acquire));
            // SAFETY: 0, or a function that a hook library says is of this type, by its name.
            if let Some(function) = unsafe { core::mem::transmute::<usize, Option<extern "C" fn()>>(address) } {
                function();
            }
        }
    };
    call(0);
    let failed = exec();
    call(1);
    failed
}

/// Has each library install its hooks, in the order of the paths. What they say is theirs: a library that installs
/// nothing changes nothing.
pub(crate) fn invite<'a>(paths: impl Iterator<Item = &'a [u8]>, objects: &Objects<'_>) {
    for path in paths {
        let address = objects.lookup_at(path, c"heapledger_hook_init");
        if address != 0 {
            // SAFETY: the library says by the name that the function is of this type; who put it here has checked its
            // version.
            let init = unsafe { core::mem::transmute::<usize, Init>(address) };
            // SAFETY: both tables are static, and complete: there is an allocator.
            unsafe { init(heapledger_hooks_v1.real, &raw const heapledger_hooks_v1) };
        }
        let unseen = objects.lookup_at(path, c"heapledger_hook_library_unseen");
        if let Some(place) = UNSEEN.iter().find(|place| unseen != 0 && place.load(Ordering::Relaxed) == 0) {
            place.store(unseen, Ordering::Release);
        }
        let around =
            [c"heapledger_hook_exec_begins", c"heapledger_hook_exec_failed"].map(|name| objects.lookup_at(path, name));
        if around != [0; 2]
            && let Some(places) = AROUND_EXEC.iter().find(|[before, _]| before.load(Ordering::Relaxed) == 0)
        {
            places.iter().zip(around).for_each(|(place, address)| place.store(address, Ordering::Release));
        }
    }
}
