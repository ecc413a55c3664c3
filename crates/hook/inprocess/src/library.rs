//! The functions of the C library that the ledger needs when it starts and at a fork: never within
//! a call of the allocator.

use core::ffi::{c_char, c_int, c_void};

use heapledger_core::arch::{nr, syscall};
use heapledger_core::sys;
use heapledger_thread::KeyFunctions;
use heapledger_unwind::bounds;
use heapledger_unwind::modules::{self, ProgramHeader};

/// `struct dl_phdr_info` of `<link.h>`, as far as all C libraries have it.
#[repr(C)]
struct PhdrInfo {
    bias: u64,
    name: *const c_char,
    headers: *const ProgramHeader,
    count: u16,
}

unsafe extern "C" {
    fn pthread_key_create(key: *mut u32, destructor: Option<unsafe extern "C" fn(*mut c_void)>) -> c_int;
    fn pthread_key_delete(key: u32) -> c_int;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
    fn dl_iterate_phdr(
        callback: unsafe extern "C" fn(*mut PhdrInfo, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

/// The functions by which a thread's end is noticed.
pub(crate) const LIBRARY: KeyFunctions =
    KeyFunctions { key_create: pthread_key_create, key_delete: pthread_key_delete, set_specific: pthread_setspecific };

/// Registers handlers around each fork that goes through the C library. The handlers before a fork
/// run in the opposite order of registration. They do not allocate.
pub(crate) fn watch_forks(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> bool {
    // SAFETY: POSIX's function; the handlers are part of this loaded object, and do only what may
    // be done there: none of their calls allocates.
    unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

/// Lists modules for the unwinder: the program itself, which glibc may know in part only, and all
/// others if the C library has no look-up that the unwinder can use.
///
/// A listed module is known for good. So if there is such a look-up, no library is listed: after
/// `dlclose` its rules would be read from memory that is not mapped any more.
pub(crate) fn list_modules() {
    unsafe extern "C" fn each(info: *mut PhdrInfo, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: the C library calls this with its description of a module, whose program headers
        // are mapped meanwhile. The first one is the program, which is never unloaded; that others
        // stay is what `modules::list` is documented to need of C libraries without a look-up.
        unsafe {
            let info = &*info;
            let headers = core::slice::from_raw_parts(info.headers, usize::from(info.count));
            modules::list_headers(info.bias, headers, info.name);
        }
        c_int::from(modules::can_ask_linker())
    }
    // SAFETY: the function of this name, with a callback of the type that it asks for.
    unsafe { dl_iterate_phdr(each, core::ptr::null_mut()) };
}

/// Finds the end of the first thread's stack.
pub(crate) fn find_first_stack() {
    if bounds::first_top() == 0 {
        let top = libc_stack_end().or_else(stack_mapping_end);
        bounds::set_first_top(top.unwrap_or(0));
    }
}

/// Returns glibc's variable, if this is glibc.
fn libc_stack_end() -> Option<u64> {
    let variable = core::ptr::with_exposed_provenance::<u64>(heapledger_core::weak_address!("__libc_stack_end"));
    // SAFETY: null, or a variable that is set before any code of the program runs, and constant
    // since.
    unsafe { variable.as_ref() }.copied().filter(|&top| top != 0)
}

/// Returns the end of the mapping that the kernel calls `[stack]`.
fn stack_mapping_end() -> Option<u64> {
    const O_CLOEXEC: usize = 0o2000000;
    const LINE: usize = 512;
    // SAFETY: open(2) reads up to the NUL that ends the literal, which is static. A new descriptor,
    // closed below, breaks no assumption of other code.
    let opened = unsafe { syscall(nr::OPEN, [c"/proc/self/maps".as_ptr() as usize, O_CLOEXEC, 0, 0, 0, 0]) };
    let fd = sys::check(opened).ok()? as i32;
    // A line, and the beginning of the next ones. Longer lines are not the stack's.
    let (mut line, mut length, mut found) = ([0_u8; LINE], 0, None);
    let mut chunk = [0_u8; LINE];
    'file: loop {
        // SAFETY: the kernel writes at most that many bytes to the live array.
        let read = unsafe { syscall(nr::READ, [fd as usize, chunk.as_mut_ptr() as usize, LINE, 0, 0, 0]) };
        let Ok(count @ 1..) = sys::check(read) else { break };
        for &byte in chunk.get(..count).unwrap_or(&[]) {
            if byte != b'\n' {
                if let Some(slot) = line.get_mut(length) {
                    *slot = byte;
                    length += 1;
                }
                continue;
            }
            let text = line.get(..length).unwrap_or(&[]);
            if text.ends_with(b"[stack]") {
                found = end_of_range(text);
                break 'file;
            }
            length = 0;
        }
    }
    sys::close(fd);
    found
}

/// Returns the second number of `START-END …`.
fn end_of_range(line: &[u8]) -> Option<u64> {
    let from = line.iter().position(|&byte| byte == b'-')? + 1;
    let digits = line.get(from..)?.iter().map_while(|&byte| char::from(byte).to_digit(16));
    Some(digits.fold(0, |value, digit| value << 4 | u64::from(digit)))
}
