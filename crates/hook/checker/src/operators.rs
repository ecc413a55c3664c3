//! C++'s operators `new` and `delete`, in front of the program's own.
//!
//! Each is a thunk that says through which operator the call comes, and jumps on to the next definition with the
//! arguments as they were: no frame of ours is on the stack when that throws. Where the program defines an operator
//! itself, in its executable, ours are not called, and [`are_in_effect`] says so.

use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_checks::{Call, operator_delete, operator_new};
use heapledger_loader::{Objects, Scope};

/// What a thunk says, and where it goes on.
struct Operator {
    name: &'static CStr,
    next: AtomicUsize,
}

/// Which argument, if any, is the size of a block, and which the alignment: numbers from 1.
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
            /// As C++ has it.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(non_snake_case, reason = "the name is a C++ symbol")]
            pub unsafe extern "C" fn $symbol() {
                extern "C" fn told(first: usize, second: usize, third: usize) -> usize {
                    static OPERATOR: Operator = Operator {
                        name: match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!(),
                        },
                        next: AtomicUsize::new(0),
                    };
                    tell(&OPERATOR, Call::$call, [first, second, third], Arguments { size: $size, alignment: $alignment })
                }
                // On entry the stack is 8 off a multiple of 16 (System V psABI), so three words align it for a call.
                naked_asm!(
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "call {told}",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "jmp rax",
                    told = sym told,
                )
            }
        )*

        /// Names and addresses of all.
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

fn tell(operator: &Operator, call: Call, arguments: [usize; 3], which: Arguments) -> usize {
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

/// The next definition, in whichever library, also one that was loaded for another alone.
#[cold]
fn find_next(operator: &Operator) -> usize {
    let address = find_within_loader(operator.name);
    operator.next.store(address, Ordering::Relaxed);
    if address == 0 { none as *const () as usize } else { address }
}

/// Whether the program's calls come to all of these: nobody before us defines one.
pub(crate) fn are_in_effect(objects: &Objects<'_>) -> bool {
    OPERATORS.iter().all(|&(name, own)| objects.lookup(Scope::All, name) == own as *const () as usize)
}

/// The next definition of a symbol, while nobody loads or unloads a library.
pub(crate) fn find_within_loader(name: &CStr) -> usize {
    unsafe extern "C" {
        /// Calls back with each object, while it holds the dynamic linker's lock of the list.
        fn dl_iterate_phdr(
            callback: unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> c_int,
            data: *mut c_void,
        ) -> c_int;
    }

    // SAFETY: the function of this name.
    unsafe { Objects::locked(dl_iterate_phdr, |objects| objects.lookup(Scope::Next, name)) }.unwrap_or(0)
}

/// In the place of an operator that nobody defines: what refers to it weakly would not have called it. No block.
extern "C" fn none() -> *mut c_void {
    core::ptr::null_mut()
}
