//! The hook libraries: preloaded beside this one, and asked once to install their hooks. Also the
//! hook table that they are given.

use core::ffi::{CStr, c_char, c_int};
use core::mem;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use heapledger_core::hooks::{Functions, Hooks};
use heapledger_interpose::next::Objects;

use crate::replace_malloc;

/// The hook table of this process, which hook libraries are given too.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_hooks_v1: Hooks = Hooks::new(&heapledger_interpose::PROGRAM);

/// `heapledger_hook_init`: see include/heapledger/hooks.h.
type Init = unsafe extern "C" fn(*const Functions, *const Hooks) -> c_int;

/// Pairs of functions of hook libraries: to be called before something, and when it has failed.
/// Only the first libraries that have them are kept.
type Around = [[AtomicUsize; 2]; 4];

/// True if there is a library with hooks.
static IS_ANY_LOADED: AtomicBool = AtomicBool::new(false);

static AROUND_EXEC: Around = [const { [const { AtomicUsize::new(0) }; 2] }; 4];
static AROUND_SANDBOX: Around = [const { [const { AtomicUsize::new(0) }; 2] }; 4];

/// Functions of hook libraries that are notified of libraries whose calls are not seen.
static UNSEEN: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// True if the process has hook libraries.
pub(crate) fn is_any_loaded() -> bool {
    IS_ANY_LOADED.load(Ordering::Relaxed)
}

/// Notifies hook libraries that the program opens a library whose calls of the allocator are not
/// seen.
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

/// Calls an exec function, and the hook libraries' functions around it.
pub(crate) fn around_exec(exec: impl FnOnce() -> c_int) -> c_int {
    call(&AROUND_EXEC, 0);
    let failed = exec();
    call(&AROUND_EXEC, 1);
    failed
}

/// Calls the hook libraries' functions before the program enters a sandbox.
pub(crate) fn sandbox_begins() {
    call(&AROUND_SANDBOX, 0);
}

/// Calls the hook libraries' functions if the program has not entered the sandbox after all.
pub(crate) fn sandbox_refused() {
    call(&AROUND_SANDBOX, 1);
}

fn call(around: &Around, index: usize) {
    for functions in around {
        let address = functions.get(index).map_or(0, |function| function.load(Ordering::Acquire));
        // SAFETY: 0, or a function that a hook library says is of this type, by its name.
        if let Some(function) = unsafe { core::mem::transmute::<usize, Option<extern "C" fn()>>(address) } {
            function();
        }
    }
}

/// Lets each library install its hooks, in the order of the paths. Their results are ignored: a
/// library that installs nothing changes nothing. A library of the replace-malloc protocol is
/// [hosted](replace_malloc); the command refuses a second one.
pub(crate) fn install_hooks<'a>(paths: impl Iterator<Item = &'a [u8]> + Clone, objects: &Objects<'_>) {
    let mut is_one_hosted = false;
    // Before any of them allocates, which may make the program ask other libraries of the protocol.
    let is_hook = |path: &&[u8]| objects.lookup_at(path, c"heapledger_hook_init") != 0;
    let mut hosted = paths.clone().filter(|path| !is_hook(path)).map(|path| objects.lookup_at(path, c"replace_init"));
    replace_malloc::set_hosted(hosted.find(|&address| address != 0).unwrap_or(0));
    for path in paths {
        let address = objects.lookup_at(path, c"heapledger_hook_init");
        // Otherwise it is the allocator.
        if address != 0 {
            IS_ANY_LOADED.store(true, Ordering::Relaxed);
            // SAFETY: by defining the name, the library declares that the function is of this type;
            // the command that added the library has checked its version.
            let init = unsafe { core::mem::transmute::<usize, Init>(address) };
            // SAFETY: both tables are static, and complete: there is an allocator.
            unsafe { init(heapledger_hooks_v1.real, &raw const heapledger_hooks_v1) };
        } else {
            let address = objects.lookup_at(path, c"replace_init");
            if address != 0 && !mem::replace(&mut is_one_hosted, true) {
                IS_ANY_LOADED.store(true, Ordering::Relaxed);
                // SAFETY: the library's function of this name. Once: the flag says so; and this
                // function is called at the first call of the malloc functions, by one thread.
                unsafe { replace_malloc::host(address) };
            }
        }
        let unseen = objects.lookup_at(path, c"heapledger_hook_library_unseen");
        if let Some(slot) = UNSEEN.iter().find(|slot| unseen != 0 && slot.load(Ordering::Relaxed) == 0) {
            slot.store(unseen, Ordering::Release);
        }
        for (around, names) in [
            (&AROUND_EXEC, [c"heapledger_hook_exec_begins", c"heapledger_hook_exec_failed"]),
            (&AROUND_SANDBOX, [c"heapledger_hook_sandbox_begins", c"heapledger_hook_sandbox_refused"]),
        ] {
            let functions = names.map(|name| objects.lookup_at(path, name));
            if functions != [0; 2]
                && let Some(slots) = around.iter().find(|[before, _]| before.load(Ordering::Relaxed) == 0)
            {
                slots.iter().zip(functions).for_each(|(slot, address)| slot.store(address, Ordering::Release));
            }
        }
    }
}
