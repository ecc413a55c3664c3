//! Functions that start other programs, so that these are recorded too, and `dlclose`.
//!
//! Each calls the next definition with the environment of [`environment::for_child`]. The variadic ones collect their
//! arguments and go the way of their array forms, as POSIX defines them.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_unwind::modules;

use crate::environment::{Child, Environment, for_child, with_shell_command};
use heapledger_family::next::{Scope, lookup};

type Text = *const c_char;
type Arguments = *const Text;

static EXECVE: AtomicUsize = AtomicUsize::new(0);
static EXECVPE: AtomicUsize = AtomicUsize::new(0);
static FEXECVE: AtomicUsize = AtomicUsize::new(0);
static EXECVEAT: AtomicUsize = AtomicUsize::new(0);
static POSIX_SPAWN: AtomicUsize = AtomicUsize::new(0);
static POSIX_SPAWNP: AtomicUsize = AtomicUsize::new(0);
static SYSTEM: AtomicUsize = AtomicUsize::new(0);
static POPEN: AtomicUsize = AtomicUsize::new(0);
static DLCLOSE: AtomicUsize = AtomicUsize::new(0);
static DL_ITERATE_PHDR: AtomicUsize = AtomicUsize::new(0);
/// Address of the variable `environ`.
static ENVIRON: AtomicUsize = AtomicUsize::new(0);

/// Looks up what the functions here call. Once, at start.
pub(crate) fn look_up() {
    let wanted: [(&AtomicUsize, Scope, &CStr); 11] = [
        (&EXECVE, Scope::Next, c"execve"),
        (&EXECVPE, Scope::Next, c"execvpe"),
        (&FEXECVE, Scope::Next, c"fexecve"),
        (&EXECVEAT, Scope::Next, c"execveat"),
        (&POSIX_SPAWN, Scope::Next, c"posix_spawn"),
        (&POSIX_SPAWNP, Scope::Next, c"posix_spawnp"),
        (&SYSTEM, Scope::Next, c"system"),
        (&POPEN, Scope::Next, c"popen"),
        (&DLCLOSE, Scope::Next, c"dlclose"),
        (&DL_ITERATE_PHDR, Scope::Next, c"dl_iterate_phdr"),
        // A program may have its own copy of the variable, made by the linker.
        (&ENVIRON, Scope::All, c"__environ"),
    ];
    for (place, scope, name) in wanted {
        place.store(lookup(scope, name), Ordering::Release);
    }
}

/// The function at a looked-up address.
macro_rules! function {
    ($place:ident: fn($($type:ty),*) -> $result:ty) => {{
        let address = $place.load(Ordering::Acquire);
        // SAFETY: null is `None`; otherwise the C library's function of the name it was looked up by, of this type.
        unsafe { core::mem::transmute::<usize, Option<unsafe extern "C" fn($($type),*) -> $result>>(address) }
    }};
}

const ENOSYS: c_int = 38;

/// The answer of a function that this C library does not have.
#[cold]
fn missing() -> c_int {
    heapledger_family::set_errno(ENOSYS);
    -1
}

/// The program's environment as it is now.
pub(crate) fn environ() -> Environment {
    let variable = ptr::with_exposed_provenance::<Environment>(ENVIRON.load(Ordering::Acquire));
    // SAFETY: null, or the C library's variable.
    unsafe { variable.as_ref() }.map_or(ptr::null(), |environment| *environment)
}

fn run(path: Text, arguments: Arguments, environment: Environment) -> c_int {
    match function!(EXECVE: fn(Text, Arguments, Environment) -> c_int) {
        // SAFETY: the program's own arguments; the environment is well-formed.
        Some(execve) => unsafe { execve(path, arguments, for_child(environment, Child::At(path))) },
        None => missing(),
    }
}

fn run_from_path(file: Text, arguments: Arguments, environment: Environment) -> c_int {
    match function!(EXECVPE: fn(Text, Arguments, Environment) -> c_int) {
        // SAFETY: as in `run`.
        Some(execvpe) => unsafe { execvpe(file, arguments, for_child(environment, Child::InPath(file))) },
        None => missing(),
    }
}

/// Defines an exported C function, whose contract is C's.
macro_rules! export {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block) => {
        /// The C function of this name.
        ///
        /// # Safety
        ///
        /// As C has it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result $body
    };
}

export!(execve(path: Text, arguments: Arguments, environment: Environment) -> c_int {
    run(path, arguments, environment)
});

export!(execv(path: Text, arguments: Arguments) -> c_int {
    run(path, arguments, environ())
});

export!(execvp(file: Text, arguments: Arguments) -> c_int {
    run_from_path(file, arguments, environ())
});

export!(execvpe(file: Text, arguments: Arguments, environment: Environment) -> c_int {
    run_from_path(file, arguments, environment)
});

export!(fexecve(fd: c_int, arguments: Arguments, environment: Environment) -> c_int {
    match function!(FEXECVE: fn(c_int, Arguments, Environment) -> c_int) {
        // SAFETY: as in `run`.
        Some(fexecve) => unsafe { fexecve(fd, arguments, for_child(environment, Child::Below(fd, core::ptr::null()))) },
        None => missing(),
    }
});

export!(execveat(directory: c_int, path: Text, arguments: Arguments, environment: Environment, flags: c_int) -> c_int {
    match function!(EXECVEAT: fn(c_int, Text, Arguments, Environment, c_int) -> c_int) {
        // SAFETY: as in `run`.
        Some(execveat) => unsafe { execveat(directory, path, arguments, for_child(environment, Child::Below(directory, path)), flags) },
        None => missing(),
    }
});

export!(posix_spawn(
    pid: *mut c_int, path: Text, actions: *const c_void, attributes: *const c_void, arguments: Arguments,
    environment: Environment
) -> c_int {
    match function!(POSIX_SPAWN: fn(*mut c_int, Text, *const c_void, *const c_void, Arguments, Environment) -> c_int) {
        // SAFETY: as in `run`.
        Some(spawn) => unsafe {
            spawn(pid, path, actions, attributes, arguments, for_child(environment, Child::At(path)))
        },
        None => ENOSYS,
    }
});

export!(posix_spawnp(
    pid: *mut c_int, file: Text, actions: *const c_void, attributes: *const c_void, arguments: Arguments,
    environment: Environment
) -> c_int {
    match function!(POSIX_SPAWNP: fn(*mut c_int, Text, *const c_void, *const c_void, Arguments, Environment) -> c_int) {
        // SAFETY: as in `run`.
        Some(spawn) => unsafe {
            spawn(pid, file, actions, attributes, arguments, for_child(environment, Child::InPath(file)))
        },
        None => ENOSYS,
    }
});

export!(system(command: Text) -> c_int {
    match function!(SYSTEM: fn(Text) -> c_int) {
        // SAFETY: the program's own argument, or one that means the same.
        Some(system) => with_shell_command(command, |command| unsafe { system(command) }),
        None => missing(),
    }
});

export!(popen(command: Text, mode: Text) -> *mut c_void {
    match function!(POPEN: fn(Text, Text) -> *mut c_void) {
        // SAFETY: as for `system`.
        Some(popen) => with_shell_command(command, |command| unsafe { popen(command, mode) }),
        None => {
            missing();
            ptr::null_mut()
        }
    }
});

/// Defines a variadic thunk: spills the register arguments after the first into an array, and calls
/// `target(first, &register_arguments, &stack_arguments)`.
macro_rules! variadic {
    ($name:ident, $target:ident) => {
        /// The C function of this name.
        ///
        /// # Safety
        ///
        /// As C has it: the arguments end with a null pointer.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(first: Text) -> c_int {
            naked_asm!(
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                "call {target}",
                "add rsp, 40",
                "ret",
                target = sym $target,
            )
        }
    };
}

variadic!(execl, execl_from);
variadic!(execlp, execlp_from);
variadic!(execle, execle_from);

extern "C" fn execl_from(path: Text, registers: Arguments, stack: Arguments) -> c_int {
    with_arguments(registers, stack, |arguments, _| run(path, arguments, environ()))
}

extern "C" fn execlp_from(file: Text, registers: Arguments, stack: Arguments) -> c_int {
    with_arguments(registers, stack, |arguments, _| run_from_path(file, arguments, environ()))
}

extern "C" fn execle_from(path: Text, registers: Arguments, stack: Arguments) -> c_int {
    with_arguments(registers, stack, |arguments, next| run(path, arguments, next.cast()))
}

/// Collects variadic arguments up to the null pointer; also hands over what follows it, which only means something for
/// `execle` (the thunk's frame and the caller's make it readable for all).
fn with_arguments(registers: Arguments, stack: Arguments, call: impl FnOnce(Arguments, Text) -> c_int) -> c_int {
    const IN_REGISTERS: usize = 5;
    let argument = |index: usize| {
        let place =
            if index < IN_REGISTERS { registers.wrapping_add(index) } else { stack.wrapping_add(index - IN_REGISTERS) };
        // SAFETY: the thunk spilled five register arguments; the caller passed the rest on its stack, up to the null
        // pointer, which is asked for before anything that follows it.
        unsafe { place.read() }
    };
    let mut count = 0;
    while !argument(count).is_null() {
        count += 1;
    }
    let next = argument(count + 1);
    // A vfork child cannot give memory back once it has become another program: as few as usual are kept on the stack.
    let mut few = [ptr::null(); 64];
    if count < few.len() {
        few.iter_mut().take(count).enumerate().for_each(|(index, place)| *place = argument(index));
        return call(few.as_ptr(), next);
    }
    let length = (count + 1) * size_of::<Text>();
    let Ok(memory) = heapledger_core::sys::map_private(length) else { return -1 };
    let many = memory.cast::<Text>();
    for index in 0..count {
        // SAFETY: the mapping has room for `count` pointers, and a null pointer, which it is full of.
        unsafe { many.add(index).write(argument(index)) };
    }
    let result = call(many, next);
    // SAFETY: mapped above; the call has returned, so nothing refers to it.
    unsafe { heapledger_core::sys::unmap(memory, length) };
    result
}

export!(dlclose(handle: *mut c_void) -> c_int {
    let before = modules_unloaded();
    let result = match function!(DLCLOSE: fn(*mut c_void) -> c_int) {
        // SAFETY: the program's own argument.
        Some(dlclose) => unsafe { dlclose(handle) },
        None => -1,
    };
    if modules_unloaded() != before {
        modules::advance_epoch();
    }
    result
});

/// How many modules have been unloaded so far in this process.
fn modules_unloaded() -> u64 {
    /// The head of `struct dl_phdr_info` of `<link.h>`.
    #[repr(C)]
    struct Info {
        address: u64,
        name: Text,
        headers: *const c_void,
        header_count: u16,
        added: u64,
        removed: u64,
    }
    type Callback = unsafe extern "C" fn(*const Info, usize, *mut u64) -> c_int;
    unsafe extern "C" fn first(info: *const Info, length: usize, removed: *mut u64) -> c_int {
        if length >= size_of::<Info>() {
            // SAFETY: the C library says that the structure is that long; `removed` is our caller's variable.
            unsafe { *removed = (*info).removed };
        }
        1
    }
    let mut removed = 0;
    if let Some(iterate) = function!(DL_ITERATE_PHDR: fn(Callback, *mut u64) -> c_int) {
        // SAFETY: the callback takes what the C library documents, and returns 1 to stop.
        unsafe { iterate(first, &mut removed) };
    }
    removed
}
