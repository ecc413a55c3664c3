//! C++'s operators `new` and `delete`, in front of the program's own.
//!
//! Each is a thunk that notes through which operator the call comes, and jumps on to the next
//! definition with the arguments as they were: no frame of ours is on the stack if that definition
//! throws. An allocator's definitions (jemalloc, tcmalloc and mimalloc have some) are passed over:
//! they allocate without a call of `malloc`, which the C++ library's do not. If the program defines
//! an operator itself, in its executable, ours are not called, and [`are_in_effect`] says so.

use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_dynsym::{Objects, Scope};
use heapledger_memcheck::{Call, operator_delete, operator_new};

/// The symbol of an operator, and the address of the next definition.
struct Operator {
    name: &'static CStr,
    next: AtomicUsize,
}

/// The numbers, from 1, of the arguments that are the size of a block and the alignment. 0 if there
/// is none.
#[derive(Clone, Copy)]
struct Arguments {
    size: usize,
    alignment: usize,
}

macro_rules! operators {
    ($($symbol:ident: $call:ident, size $size:literal, alignment $alignment:literal;)*) => {
        $(
            /// The operator that this mangled name stands for.
            ///
            /// # Safety
            ///
            /// The contract of the C++ operator.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(non_snake_case, reason = "the name is a C++ symbol")]
            pub unsafe extern "C" fn $symbol() {
                extern "C" fn on_call(first: usize, second: usize, third: usize) -> usize {
                    static OPERATOR: Operator = Operator {
                        name: match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!(),
                        },
                        next: AtomicUsize::new(0),
                    };
                    notify_checks(&OPERATOR, Call::$call, [first, second, third], Arguments { size: $size, alignment: $alignment })
                }
                // On entry the stack is 8 off a multiple of 16 (System V psABI), so three words
                // align it for a call.
                naked_asm!(
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "call {on_call}",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "jmp rax",
                    on_call = sym on_call,
                )
            }
        )*

        /// The names and addresses of all operators.
        const OPERATORS: &[(&CStr, unsafe extern "C" fn())] = &[
            $((
                match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!(),
                },
                $symbol,
            ),)*
        ];
    };
}

operators! {
    _Znwm: New, size 1, alignment 0;
    _ZnwmRKSt9nothrow_t: New, size 1, alignment 0;
    _ZnwmSt11align_val_t: New, size 1, alignment 2;
    _ZnwmSt11align_val_tRKSt9nothrow_t: New, size 1, alignment 2;
    _Znam: NewArray, size 1, alignment 0;
    _ZnamRKSt9nothrow_t: NewArray, size 1, alignment 0;
    _ZnamSt11align_val_t: NewArray, size 1, alignment 2;
    _ZnamSt11align_val_tRKSt9nothrow_t: NewArray, size 1, alignment 2;
    _ZdlPv: Delete, size 0, alignment 0;
    _ZdlPvRKSt9nothrow_t: Delete, size 0, alignment 0;
    _ZdlPvm: Delete, size 2, alignment 0;
    _ZdlPvSt11align_val_t: Delete, size 0, alignment 2;
    _ZdlPvSt11align_val_tRKSt9nothrow_t: Delete, size 0, alignment 2;
    _ZdlPvmSt11align_val_t: Delete, size 2, alignment 3;
    _ZdaPv: DeleteArray, size 0, alignment 0;
    _ZdaPvRKSt9nothrow_t: DeleteArray, size 0, alignment 0;
    _ZdaPvm: DeleteArray, size 2, alignment 0;
    _ZdaPvSt11align_val_t: DeleteArray, size 0, alignment 2;
    _ZdaPvSt11align_val_tRKSt9nothrow_t: DeleteArray, size 0, alignment 2;
    _ZdaPvmSt11align_val_t: DeleteArray, size 2, alignment 3;
}

fn notify_checks(operator: &Operator, call: Call, arguments: [usize; 3], which: Arguments) -> usize {
    let argument = |number: usize| number.checked_sub(1).and_then(|at| arguments.get(at)).copied();
    let alignment = argument(which.alignment).unwrap_or(0);
    let first = arguments[0];
    match call {
        Call::New | Call::NewArray => operator_new(call, first, alignment),
        _ => operator_delete(call, first, argument(which.size), alignment),
    }
    match operator.next.load(Ordering::Relaxed) {
        0 => find_next(operator),
        next => next,
    }
}

/// Finds the next definition, in any library, even in one that was loaded as another's dependency
/// only.
#[cold]
fn find_next(operator: &Operator) -> usize {
    let address = within_loader(|objects| {
        let outside = objects.lookup_outside_allocators(operator.name);
        if outside == 0 { objects.lookup(Scope::Next, operator.name) } else { outside }
    });
    operator.next.store(address, Ordering::Relaxed);
    if address == 0 { none as *const () as usize } else { address }
}

/// True if the program's calls reach all of these: no object before ours defines one.
pub(crate) fn are_in_effect(objects: &Objects<'_>) -> bool {
    OPERATORS.iter().all(|&(name, own)| objects.lookup(Scope::All, name) == own as *const () as usize)
}

/// True if this is the name of an operator whose calls end in calls of the malloc functions, though
/// an allocator defines it, too: the C++ library's definition is used then.
pub(crate) fn is_redirected(objects: &Objects<'_>, name: &CStr) -> bool {
    OPERATORS.iter().any(|&(operator, _)| operator == name) && objects.lookup_outside_allocators(name) != 0
}

/// Returns the next definition of a symbol, while nobody loads or unloads a library.
pub(crate) fn find_within_loader(name: &CStr) -> usize {
    within_loader(|objects| objects.lookup(Scope::Next, name))
}

/// Returns the result of `find` for the loaded objects, while nobody loads or unloads a library; 0
/// if they cannot be listed.
fn within_loader(find: impl FnOnce(&Objects<'_>) -> usize) -> usize {
    unsafe extern "C" {
        /// Calls back with each object, while it holds the dynamic linker's lock of the list.
        fn dl_iterate_phdr(
            callback: unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> c_int,
            data: *mut c_void,
        ) -> c_int;
    }

    // SAFETY: `Objects::locked` requires the C library's `dl_iterate_phdr`. The declaration above
    // refers to that symbol, which no object but the C library is known to define. The look-ups
    // that callers pass wait for no other thread.
    unsafe { Objects::locked(dl_iterate_phdr, find) }.unwrap_or(0)
}

/// Stands in for an operator that nobody defines: code that refers to it weakly would not have
/// called it. Returns no block.
extern "C" fn none() -> *mut c_void {
    core::ptr::null_mut()
}
