//! Libraries of the program that wrap the functions which start programs, such as those that `mold
//! -run` and `bear` preload.
//!
//! A wrapper may read the environment and edit it, in a vfork child too, whose memory is its
//! parent's. So the additions must come after it: a call goes to the wrapper first, unaltered. The
//! wrapper's own call of the next definition, which it knows from `dlsym(RTLD_NEXT, …)`, leads to
//! ours, which is the last before the C library's.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use heapledger_interpose::next::{Objects, Scope};

use crate::exec::{EXPORTED, Exported};
use crate::linker::find_next;

/// True when the wrappers have been looked up.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);

/// Looks up the wrappers of exported functions, and the definitions after them. Called while the
/// program starts; calling it twice does no harm.
pub(crate) fn look_up(objects: &Objects<'_>) {
    for function in &EXPORTED {
        let (mut first, mut last, mut next) = (0, 0, 0);
        objects.definitions(function.name, |definition| {
            if next != 0 {
                return;
            }
            if definition.is_of_c_library {
                next = definition.address;
            } else {
                first = if first == 0 { definition.address } else { first };
                last = definition.object;
            }
        });
        if next == 0 {
            // The C library has another name, or does not have the function: treated as if there
            // were no wrapper.
            next = objects.lookup(Scope::Next, function.name);
        } else if first != 0 {
            let [start, end] = function.wrapper;
            end.store(objects.next_object(last), Ordering::Relaxed);
            start.store(last, Ordering::Release);
            function.entry.store(ptr::with_exposed_provenance_mut(first), Ordering::Release);
        }
        function.next.store(next, Ordering::Release);
    }
    next_dlsym();
    IS_KNOWN.store(true, Ordering::Release);
}

/// The dynamic linker's `dlsym`.
static DLSYM: AtomicUsize = AtomicUsize::new(0);

extern "C" fn next_dlsym() -> usize {
    find_next(&DLSYM, c"dlsym")
}

/// Returns our definition of an exported function, if `caller` is in its last wrapper; otherwise
/// null, and the dynamic linker is to be asked.
extern "C" fn next_for_wrapper(name: *const c_char, caller: usize) -> *const () {
    if name.is_null() {
        return ptr::null();
    }
    // A wrapper's constructor may ask before ours has run.
    if !IS_KNOWN.load(Ordering::Acquire) {
        // SAFETY: the wrappers are looked up by the first call of a malloc function, which precedes
        // the second thread and has not been made yet: there is one thread.
        look_up(&unsafe { Objects::at_start() });
    }
    // SAFETY: `CStr::from_ptr` requires a live, NUL-terminated string: `name` is not null, and the
    // program passed it to `dlsym`, which requires the same.
    let name = unsafe { CStr::from_ptr(name) };
    let is_asked_for = |function: &&Exported| {
        let start = function.wrapper[0].load(Ordering::Acquire);
        start != 0 && (start..function.wrapper[1].load(Ordering::Relaxed)).contains(&caller) && function.name == name
    };
    EXPORTED.iter().find(is_asked_for).map_or(ptr::null(), |function| function.own)
}

/// Returns our definition of the function that the C library has at this address; the address
/// itself if it has none of them there.
extern "C" fn own_instead_of(address: usize) -> usize {
    let is_it = |function: &&Exported| address != 0 && function.next.load(Ordering::Acquire) == address;
    EXPORTED.iter().find(is_it).map_or(address, |function| function.own as usize)
}

/// The C function of this name. Returns our definition to a wrapper that asks for the next one, and
/// to any caller that asks for the C library's by its handle. All else is the dynamic linker's
/// answer, which may depend on its return address.
///
/// # Safety
///
/// The contract of POSIX.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        // RTLD_DEFAULT
        "test rdi, rdi",
        "jz 2f",
        // RTLD_NEXT
        "cmp rdi, -1",
        "je 5f",
        "call {next_dlsym}",
        "test rax, rax",
        "jz 3f",
        "mov rsi, [rsp + 8]",
        "mov rdi, [rsp + 16]",
        "call rax",
        "mov rdi, rax",
        "call {own_instead_of}",
        "jmp 3f",
        "5:",
        "mov rdi, rsi",
        "mov rsi, [rsp + 24]",
        "call {next_for_wrapper}",
        "test rax, rax",
        "jnz 3f",
        "2:",
        "call {next_dlsym}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 4f",
        "jmp rax",
        "3:",
        "add rsp, 24",
        "4:",
        "ret",
        next_for_wrapper = sym next_for_wrapper,
        own_instead_of = sym own_instead_of,
        next_dlsym = sym next_dlsym,
    )
}
