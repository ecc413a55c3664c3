//! System calls that change mappings, made in the place of the program.

use heapledger_core::arch::{self, nr};
use heapledger_core::hooks::Caller;
use heapledger_core::sys::check;
use heapledger_wire::event::{MapCall, MapStep};

use super::{MappingCall, moves, record};

const PAGE: u64 = 4096;

/// Makes a system call that changes mappings, and records it. Returns the kernel's result.
///
/// `number` is that of mmap, mprotect, munmap, mremap, madvise, shmat, shmdt or brk. `is_syscall`
/// says that the program has called the C function `syscall`, and `is_allocators` that an allocator
/// makes the call while it serves one of the malloc functions. `stack` is the stack pointer of the
/// call.
///
/// # Safety
///
/// See [`record`] for `caller`. The arguments are those of a call that the program makes.
pub unsafe fn make(
    number: u64,
    arguments: &[u64; 6],
    (is_syscall, is_allocators): (bool, bool),
    stack: u64,
    caller: Caller,
) -> isize {
    let record = |call: MapCall, step, address, length, arguments| {
        let call = MapCall::from_number(call as u8 | if is_syscall { MapCall::SYSCALL } else { 0 }).unwrap_or(call);
        // SAFETY: this function's `# Safety` requires of `caller` what `record` requires.
        unsafe { record(MappingCall { call, step, is_allocators, address, length, arguments }, caller) };
    };
    let [first, second, third, fourth, _, sixth] = *arguments;
    let words = arguments.map(|argument| argument as usize);
    // In a sandbox too: the call is the program's.
    // SAFETY: `arch::syscall` requires valid pointers, and no effect that breaks assumptions: the
    // call and its arguments are the program's own.
    let call = || unsafe { arch::syscall(number as usize, words) };
    match number as usize {
        nr::MMAP => {
            let result = call();
            if let Ok(address) = check(result) {
                record(MapCall::Mmap, MapStep::Done, address as u64, second, [third, fourth, sixth]);
            }
            result
        }
        nr::MPROTECT | nr::MADVISE => {
            let made = if number as usize == nr::MPROTECT { MapCall::Mprotect } else { MapCall::Madvise };
            let result = call();
            if check(result).is_ok() {
                record(made, MapStep::Done, first, second, [third, 0, 0]);
            }
            result
        }
        nr::SHMAT => {
            let result = call();
            if let Ok(address) = check(result) {
                record(MapCall::Shmat, MapStep::Done, address as u64, 0, [first, third, 0]);
            }
            result
        }
        nr::MREMAP => {
            let _turn = moves::begin(stack);
            // The old range may be another thread's as soon as the call is made.
            record(MapCall::Mremap, MapStep::Begins, first, second, [0; 3]);
            let result = call();
            let (step, address) = match check(result) {
                Ok(address) => (MapStep::Done, address as u64),
                Err(_) => (MapStep::Failed, first),
            };
            record(MapCall::Mremap, step, address, third, [fourth, first, second]);
            result
        }
        nr::BRK => {
            // SAFETY: `arch::syscall` requires valid pointers, and no effect that breaks
            // assumptions: a break of 0 is never set, the kernel returns the present one.
            let before = unsafe { arch::syscall(number as usize, [0; 6]) } as u64;
            let now = call() as u64;
            if now != before {
                record(MapCall::Brk, MapStep::Done, now, 0, [before, 0, 0]);
            }
            now as isize
        }
        nr::MUNMAP | nr::SHMDT => {
            let (made, length) =
                if number as usize == nr::SHMDT { (MapCall::Shmdt, 0) } else { (MapCall::Munmap, second) };
            // The kernel refuses other ranges.
            let is_sound = first.is_multiple_of(PAGE) && (number as usize == nr::SHMDT || second != 0);
            if is_sound {
                record(made, MapStep::Begins, first, length, [0; 3]);
            }
            let result = call();
            if is_sound && check(result).is_err() {
                record(made, MapStep::Failed, first, length, [0; 3]);
            }
            result
        }
        _ => call(),
    }
}
