//! Functions that start other programs, replaced so that these are recorded too.
//!
//! Each calls the C library's definition with the environment of
//! [`for_child`](crate::additions::for_child). If a library of the program wraps it, the wrapper is
//! called first ([`wrappers`](crate::wrappers)). The variadic ones collect their arguments and
//! continue as their array forms, as POSIX defines them.
//!
//! # The program's arguments
//!
//! Arguments come from the program, which keeps the contract of the C function that it calls. Texts
//! are NUL-terminated, and arrays of texts end with a null pointer. Either may be null where the C
//! function takes null. Handles are those of the function's library. Nothing of this changes until
//! the call returns. The functions here pass the arguments on as they are, variadic ones as an
//! array that ends with a null pointer too.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize};

use crate::announce::{replaced, spawned};
use crate::child::Child;
use crate::environment::{Environment, environ};
use crate::linker::function;
use crate::shell::with_shell_command;

type Text = *const c_char;
type Arguments = *const Text;

/// An exported function: a jump through `entry`.
pub(crate) struct Exported {
    pub(crate) name: &'static CStr,
    /// The first wrapper's definition; if there is none, ours.
    pub(crate) entry: &'static AtomicPtr<()>,
    /// Our definition, which adds to the environment and calls the C library's.
    pub(crate) own: *const (),
    /// The C library's definition.
    pub(crate) next: &'static AtomicUsize,
    /// The address at which the last wrapper before the C library is loaded, and that of the next
    /// object; 0 if there is none.
    pub(crate) wrapper: &'static [AtomicUsize; 2],
}

// SAFETY: `own` alone is not `Sync` by its type. It is the address of a function, which stays and
// is never written.
unsafe impl Sync for Exported {}

const ENOSYS: c_int = 38;

/// Fails as a function that this C library does not have.
#[cold]
fn missing() -> c_int {
    heapledger_interpose::set_errno(ENOSYS);
    -1
}

fn run(path: Text, arguments: Arguments, environment: Environment) -> c_int {
    match function!(EXECVE: fn(Text, Arguments, Environment) -> c_int) {
        Some(execve) => {
            // SAFETY: `execve` requires NUL-terminated texts, and arrays of them with a null
            // pointer at the end: these are *the program's arguments*. `replaced` lends a complete
            // environment, the program's or that of `for_child`.
            replaced(environment, Child::At(path), |environment| unsafe { execve(path, arguments, environment) })
        }
        None => missing(),
    }
}

fn run_from_path(file: Text, arguments: Arguments, environment: Environment) -> c_int {
    match function!(EXECVPE: fn(Text, Arguments, Environment) -> c_int) {
        Some(execvpe) => {
            // SAFETY: `execvpe` requires NUL-terminated texts, and arrays of them with a null
            // pointer at the end: these are *the program's arguments*. `replaced` lends a complete
            // environment, the program's or that of `for_child`.
            replaced(environment, Child::InPath(file), |environment| unsafe { execvpe(file, arguments, environment) })
        }
        None => missing(),
    }
}

/// The functions that start programs. Each exported one jumps to a wrapper of the program's or to
/// its definition here, which calls the C library's by the address in the second static.
macro_rules! started_by {
    ($($name:ident, $next:ident => $own:ident;)*) => {
        $(static $next: AtomicUsize = AtomicUsize::new(0);)*

        pub(crate) static EXPORTED: [Exported; [$(stringify!($name)),*].len()] = [$(Exported {
            name: {
                // SAFETY: `from_bytes_with_nul_unchecked` requires one zero, at the end: `concat!`
                // adds it, and an identifier has none.
                unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) }
            },
            entry: &entries::$name,
            own: $own as *const (),
            next: &$next,
            wrapper: {
                static WRAPPER: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
                &WRAPPER
            },
        }),*];

        mod entries {
            #![allow(non_upper_case_globals, reason = "named like the functions")]
            use core::sync::atomic::AtomicPtr;
            $(pub(super) static $name: AtomicPtr<()> = AtomicPtr::new(super::$own as *mut ());)*
        }

        $(
            /// The C function of this name.
            ///
            /// # Safety
            ///
            /// The contract of the C function.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                naked_asm!("jmp qword ptr [rip + {entry}]", entry = sym entries::$name)
            }
        )*
    };
}

started_by! {
    execl, EXECL => own_execl;
    execle, EXECLE => own_execle;
    execlp, EXECLP => own_execlp;
    execv, EXECV => own_execv;
    execve, EXECVE => own_execve;
    execveat, EXECVEAT => own_execveat;
    execvp, EXECVP => own_execvp;
    execvpe, EXECVPE => own_execvpe;
    fexecve, FEXECVE => own_fexecve;
    popen, POPEN => own_popen;
    posix_spawn, POSIX_SPAWN => own_posix_spawn;
    posix_spawnp, POSIX_SPAWNP => own_posix_spawnp;
    system, SYSTEM => own_system;
}

/// Defines a function of the C library's contract.
macro_rules! own {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block) => {
        /// # Safety
        ///
        /// The contract of the C function: see *the program's arguments*.
        unsafe extern "C" fn $name($($argument: $type),*) -> $result $body
    };
}

own!(own_execve(path: Text, arguments: Arguments, environment: Environment) -> c_int {
    run(path, arguments, environment)
});

own!(own_execv(path: Text, arguments: Arguments) -> c_int {
    run(path, arguments, environ())
});

own!(own_execvp(file: Text, arguments: Arguments) -> c_int {
    run_from_path(file, arguments, environ())
});

own!(own_execvpe(file: Text, arguments: Arguments, environment: Environment) -> c_int {
    run_from_path(file, arguments, environment)
});

own!(own_fexecve(fd: c_int, arguments: Arguments, environment: Environment) -> c_int {
    match function!(FEXECVE: fn(c_int, Arguments, Environment) -> c_int) {
        // SAFETY: `fexecve` requires NUL-terminated texts, and arrays of them with a null pointer
        // at the end: these are *the program's arguments*. `replaced` lends a complete environment,
        // the program's or that of `for_child`.
        Some(fexecve) => replaced(environment, Child::Below(fd, ptr::null()), |environment| unsafe { fexecve(fd, arguments, environment) }),
        None => missing(),
    }
});

own!(own_execveat(directory: c_int, path: Text, arguments: Arguments, environment: Environment, flags: c_int) -> c_int {
    match function!(EXECVEAT: fn(c_int, Text, Arguments, Environment, c_int) -> c_int) {
        // SAFETY: `execveat` requires NUL-terminated texts, and arrays of them with a null pointer
        // at the end: these are *the program's arguments*. `replaced` lends a complete environment,
        // the program's or that of `for_child`.
        Some(execveat) => replaced(environment, Child::Below(directory, path), |environment| unsafe { execveat(directory, path, arguments, environment, flags) }),
        None => missing(),
    }
});

own!(own_posix_spawn(
    pid: *mut c_int, path: Text, actions: *const c_void, attributes: *const c_void, arguments: Arguments,
    environment: Environment
) -> c_int {
    match function!(POSIX_SPAWN: fn(*mut c_int, Text, *const c_void, *const c_void, Arguments, Environment) -> c_int) {
        // SAFETY: `posix_spawn` requires what POSIX says: `spawned` lends a place for the pid and a
        // complete environment; all else are *the program's arguments*.
        Some(spawn) => spawned(pid, environment, Child::At(path), |pid, environment| unsafe {
            spawn(pid, path, actions, attributes, arguments, environment)
        }),
        None => ENOSYS,
    }
});

own!(own_posix_spawnp(
    pid: *mut c_int, file: Text, actions: *const c_void, attributes: *const c_void, arguments: Arguments,
    environment: Environment
) -> c_int {
    match function!(POSIX_SPAWNP: fn(*mut c_int, Text, *const c_void, *const c_void, Arguments, Environment) -> c_int) {
        // SAFETY: `posix_spawnp` requires what POSIX says: `spawned` lends a place for the pid and
        // a complete environment; all else are *the program's arguments*.
        Some(spawn) => spawned(pid, environment, Child::InPath(file), |pid, environment| unsafe {
            spawn(pid, file, actions, attributes, arguments, environment)
        }),
        None => ENOSYS,
    }
});

own!(own_system(command: Text) -> c_int {
    match function!(SYSTEM: fn(Text) -> c_int) {
        // SAFETY: `system` requires null or a NUL-terminated text: `command` is one of *the
        // program's arguments*, or a text of `with_shell_command` that means the same.
        Some(system) => with_shell_command(command, |command| unsafe { system(command) }),
        None => missing(),
    }
});

own!(own_popen(command: Text, mode: Text) -> *mut c_void {
    match function!(POPEN: fn(Text, Text) -> *mut c_void) {
        // SAFETY: `popen` requires two NUL-terminated texts: `mode` is one of *the program's
        // arguments*, and `command` too, or a text of `with_shell_command` that means the same.
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
        /// # Safety
        ///
        /// The contract of the C function: the arguments end with a null pointer.
        #[unsafe(naked)]
        unsafe extern "C" fn $name(first: Text) -> c_int {
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

variadic!(own_execl, execl_from);
variadic!(own_execlp, execlp_from);
variadic!(own_execle, execle_from);

extern "C" fn execl_from(path: Text, registers: Arguments, stack: Arguments) -> c_int {
    with_arguments(registers, stack, |arguments, _| run(path, arguments, environ()))
}

extern "C" fn execlp_from(file: Text, registers: Arguments, stack: Arguments) -> c_int {
    with_arguments(registers, stack, |arguments, _| run_from_path(file, arguments, environ()))
}

extern "C" fn execle_from(path: Text, registers: Arguments, stack: Arguments) -> c_int {
    with_arguments(registers, stack, |arguments, next| run(path, arguments, next.cast()))
}

/// Collects variadic arguments up to the null pointer. Also hands over the argument after it, which
/// only means something for `execle` (the thunk's frame and the caller's make it readable for all).
fn with_arguments(registers: Arguments, stack: Arguments, call: impl FnOnce(Arguments, Text) -> c_int) -> c_int {
    const IN_REGISTERS: usize = 5;
    let argument = |index: usize| {
        let slot =
            if index < IN_REGISTERS { registers.wrapping_add(index) } else { stack.wrapping_add(index - IN_REGISTERS) };
        // SAFETY: the thunk spilled five register arguments; the caller passed the rest on its
        // stack, up to the null pointer, which is asked for before anything that follows it.
        unsafe { slot.read() }
    };
    let mut count = 0;
    while !argument(count).is_null() {
        count += 1;
    }
    let next = argument(count + 1);
    // A vfork child cannot give memory back once it has become another program: the usual, small
    // number of arguments is kept on the stack.
    let mut few = [ptr::null(); 64];
    if count < few.len() {
        few.iter_mut().take(count).enumerate().for_each(|(index, slot)| *slot = argument(index));
        return call(few.as_ptr(), next);
    }
    let length = (count + 1) * size_of::<Text>();
    let Ok(memory) = heapledger_core::sys::map_private(length) else { return -1 };
    let many = memory.cast::<Text>();
    for index in 0..count {
        // SAFETY: the mapping has room for `count` pointers, and a null pointer; it is zeroed.
        unsafe { many.add(index).write(argument(index)) };
    }
    let result = call(many, next);
    // SAFETY: mapped above; the call has returned, so nothing refers to it.
    unsafe { heapledger_core::sys::unmap(memory, length) };
    result
}
