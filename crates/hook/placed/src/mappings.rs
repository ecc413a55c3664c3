//! System calls that change mappings, made in the place of the C library and recorded.

use core::ptr;

use heapledger_core::hooks::Caller;
use heapledger_core::{arch, thread_slots};
use heapledger_recorder::hook::mappings;
use heapledger_recorder::session;
use heapledger_redirect::nesting;

use crate::call::Call;
use crate::start::has_begun;

/// The numbers of mmap, mprotect, munmap, brk, mremap, madvise, shmat and shmdt.
const NUMBERS: [usize; 8] = [9, 10, 11, 12, 25, 28, 30, 67];

/// The bytes by which a stub lowers the stack pointer.
const LOWERED: u64 = 128;
/// The bytes of the instruction in a stub to which the thunk returns, and the code of the jump
/// behind it, which leads behind the system call.
const RAISE: usize = 8;
const JUMP: u8 = 0xe9;

/// True for the number of a system call that changes mappings.
pub(crate) fn is_one(number: usize) -> bool {
    NUMBERS.contains(&number)
}

/// Makes the call, and records it if the process is recorded. Returns the kernel's result.
///
/// Before the library has started, nothing but the call is made: the C library maps the memory for
/// thread-local storage by such calls, and there is no thread pointer then. The library is not
/// started here.
///
/// Stacks begin behind the system call, as if it were a call whose return address is below the
/// stack pointer: in the red zone, where a word is kept aside meanwhile.
///
/// # Safety
///
/// The registers are those that the thunk has pushed for a stub whose call has yet to return. The
/// call is one that the program makes.
pub(crate) unsafe fn make(registers: &Call) -> isize {
    let &Call { number, r10, r9, r8, rdx, rsi, rdi, rbp, return_address } = registers;
    let arguments = [rdi, rsi, rdx, r10, r8, r9];
    // SAFETY: the stub is mapped code, by this function's `# Safety`.
    let behind = unsafe { behind_call(return_address) };
    let is_recorded = || has_begun() && session::is_on() && !thread_slots::enter().is_null();
    let Some(behind) = behind.filter(|_| is_recorded()) else {
        // SAFETY: `arch::syscall` requires valid pointers, and no effect that breaks assumptions:
        // the call and its arguments are the program's own.
        return unsafe { arch::syscall(number, arguments) };
    };
    let stack = (&raw const *registers).addr() as u64 + size_of::<Call>() as u64 + LOWERED;
    let slot = stack - 8;
    let word = ptr::with_exposed_provenance_mut::<u64>(slot as usize);
    // SAFETY: a word of this thread's stack, above the thunk's frame and below that of the code
    // with the system call. That may keep a word in it, which is written back. A signal handler's
    // frame is below the thunk's.
    let kept = unsafe { word.read_volatile() };
    // SAFETY: as for the read.
    unsafe { word.write_volatile(behind) };
    let is_allocators = nesting::around(slot).is_some();
    let words = arguments.map(|argument| argument as u64);
    let caller = Caller { slot, rbp: rbp as u64 };
    // SAFETY: `make` requires *live caller*: `slot` has an address in the code that made the call,
    // to which it has yet to return, and whose stack and frame pointers are those behind the slot;
    // and the arguments of a call that the program makes: this function's `# Safety`.
    let result = unsafe { mappings::make(number as u64, &words, (false, is_allocators), slot, caller) };
    // SAFETY: as for the read.
    unsafe { word.write_volatile(kept) };
    result
}

/// Returns the address behind the system call that a stub is for; `None` if it is no stub of such a
/// call.
///
/// # Safety
///
/// `return_address` is the one to which the thunk returns in a stub.
unsafe fn behind_call(return_address: usize) -> Option<u64> {
    let jump = ptr::with_exposed_provenance::<u8>(return_address + RAISE);
    // SAFETY: by this function's `# Safety`, the stub's code is there, which ends with a jump of
    // five bytes, and nobody writes it.
    let (code, distance) = unsafe { (jump.read(), jump.add(1).cast::<i32>().read_unaligned()) };
    let end = (return_address + RAISE + 5) as u64;
    (code == JUMP).then(|| end.wrapping_add_signed(i64::from(distance)))
}
