//! The system call execve in a statically linked program, and the stubs that make it there.
//!
//! C libraries make it by two instructions, `mov eax, 59; syscall`. The first one has five bytes: a
//! jump takes its place.
//!
//! ```text
//! 0   address of the thunk
//! 8   stub:  lea rsp, [rsp - 128]; call [0]; lea rsp, [rsp + 128]; jmp behind the system call
//! ```

use heapledger_wire::redirection::Jump;

/// `mov eax, 59; syscall`.
const CALL: [u8; 7] = [0xb8, 0x3b, 0, 0, 0, 0x0f, 0x05];
/// The bytes of a stub.
const STUB: usize = 24;
/// The most system calls that are replaced: a C library has two or three.
const SITES_MAX: usize = 64;

/// Returns the addresses of the system calls in code that begins at an address.
pub(super) fn sites(code: &[u8], start: u64) -> Vec<u64> {
    let at = code.windows(CALL.len()).enumerate().filter(|(_, bytes)| **bytes == CALL);
    at.map(|(offset, _)| start + offset as u64).take(SITES_MAX).collect()
}

/// Returns the bytes of so many stubs.
pub(super) fn length(sites: usize) -> usize {
    8 + sites * STUB
}

/// Returns stubs for an address, which lead to the thunk, and the jumps to them. A system call that
/// is too far away is left out.
pub(super) fn stubs(sites: &[u64], address: u64, thunk: u64) -> (Vec<u8>, Vec<Jump>) {
    let (mut code, mut jumps) = (thunk.to_le_bytes().to_vec(), Vec::new());
    for &site in sites {
        let start = code.len();
        // The stub begins below the red zone of the program.
        code.extend([0x48, 0x8d, 0x64, 0x24, 0x80]);
        code.extend([0xff, 0x15]);
        code.extend((0_usize.wrapping_sub(start + 11) as u32).to_le_bytes());
        code.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
        let from = address + code.len() as u64;
        let back = Jump::new(from, &CALL, site + CALL.len() as u64);
        let there = Jump::new(site, &CALL, address + start as u64);
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
