//! The system calls execve and execveat of a C library, and those that may enter a sandbox (prctl
//! and seccomp); in a session that records mappings, also those that change them. And the stubs
//! that make them.
//!
//! C libraries make them by two instructions, `mov eax, NUMBER; syscall`. The first one has five
//! bytes: a jump takes its place.
//!
//! ```text
//! 0   address of the thunk
//! 8   stub:  lea rsp, [rsp - 128]; mov eax, NUMBER; call [0]; lea rsp, [rsp + 128];
//!            jmp behind the system call
//! ```

use heapledger_wire::redirection::Jump;

/// The instructions of a system call: `mov eax, NUMBER; syscall`.
type Call = [u8; 7];
/// The bytes of the first one.
const SET_NUMBER: usize = 5;
/// The instructions of execve, execveat, prctl and seccomp.
const CALLS: [Call; 4] = [
    [0xb8, 0x3b, 0, 0, 0, 0x0f, 0x05],
    [0xb8, 0x42, 0x01, 0, 0, 0x0f, 0x05],
    [0xb8, 0x9d, 0, 0, 0, 0x0f, 0x05],
    [0xb8, 0x3d, 0x01, 0, 0, 0x0f, 0x05],
];
/// The bytes of a stub.
const STUB: usize = 29;
/// The numbers of mmap, mprotect, munmap, brk, mremap, madvise, shmat and shmdt.
const MAPPING_CALLS: [u8; 8] = [9, 10, 11, 12, 25, 28, 30, 67];
/// The most system calls that are replaced: glibc has three or four, and 40 that change mappings.
const SITES_MAX: usize = 512;

/// A system call in code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    address: u64,
    call: Call,
}

/// True for the instructions of a system call that changes mappings.
fn changes_mappings(bytes: &[u8]) -> bool {
    matches!(bytes, [0xb8, number, 0, 0, 0, 0x0f, 0x05] if MAPPING_CALLS.contains(number))
}

/// The code of munmap, of exit (`mov eax, 60`), and the most bytes between the two.
const MUNMAP: Call = [0xb8, 11, 0, 0, 0, 0x0f, 0x05];
const SET_EXIT: [u8; SET_NUMBER] = [0xb8, 60, 0, 0, 0];
const BEFORE_EXIT_MAX: usize = 16;

/// True for a munmap at the beginning of the code after which the thread ends: it unmaps the stack
/// on which it runs, to which no thunk can return. musl's `__unmapself` does that in each detached
/// thread.
fn unmaps_own_stack(code: &[u8]) -> bool {
    let behind = code.strip_prefix(&MUNMAP).unwrap_or_default();
    behind.windows(SET_NUMBER).take(BEFORE_EXIT_MAX + 1).any(|bytes| bytes == SET_EXIT)
}

/// Returns the system calls in code that begins at an address; those that change mappings only
/// `with_mappings`.
pub(super) fn sites(code: &[u8], start: u64, with_mappings: bool) -> Vec<Site> {
    let calls = code.windows(size_of::<Call>()).enumerate().filter_map(|(offset, bytes)| {
        let known = CALLS.into_iter().find(|call| bytes == call);
        let is_wanted = || with_mappings && changes_mappings(bytes) && !unmaps_own_stack(&code[offset..]);
        let call = known.or_else(|| bytes.try_into().ok().filter(|_| is_wanted()))?;
        Some(Site { address: start + offset as u64, call })
    });
    calls.take(SITES_MAX).collect()
}

/// The beginning of a stub: `lea rsp, [rsp - 128]`, and the first byte of `mov eax, …`.
const START: [u8; 6] = [0x48, 0x8d, 0x64, 0x24, 0x80, 0xb8];

/// True for the code of a stub.
pub(super) fn is_stub(code: &[u8]) -> bool {
    code.starts_with(&START)
}

/// Returns the bytes of so many stubs.
pub(super) fn length(sites: usize) -> usize {
    8 + sites * STUB
}

/// Returns stubs for an address, which lead to the thunk, and the jumps to them. A system call that
/// is too far away is left out.
pub(super) fn stubs(sites: &[Site], address: u64, thunk: u64) -> (Vec<u8>, Vec<Jump>) {
    let (mut code, mut jumps) = (thunk.to_le_bytes().to_vec(), Vec::new());
    for &Site { address: site, call } in sites {
        let start = code.len();
        // The stub begins below the red zone of the program.
        code.extend([0x48, 0x8d, 0x64, 0x24, 0x80]);
        code.extend(call.iter().take(SET_NUMBER));
        code.extend([0xff, 0x15]);
        code.extend((0_usize.wrapping_sub(start + 16) as u32).to_le_bytes());
        code.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
        let from = address + code.len() as u64;
        let back = Jump::new(from, &call, site + call.len() as u64);
        let there = Jump::new(site, &call, address + start as u64);
        match back.zip(there) {
            Some((back, there)) => {
                code.extend(back.jump);
                jumps.push(there);
            }
            None => code.truncate(start),
        }
    }
    (code, jumps)
}

#[cfg(test)]
mod tests;
