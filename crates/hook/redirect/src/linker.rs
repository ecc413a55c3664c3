//! The function by which the dynamic linker tells a debugger that it loads or unloads modules.
//!
//! `_dl_debug_state` does nothing: debuggers put a breakpoint there (`r_brk` of `<link.h>`). The
//! linker calls it before it maps the first module of a `dlopen`, again when all are mapped and
//! none is relocated yet, and before and after it unmaps modules. So a jump in its place sees each
//! module before any of its code runs.

use heapledger_wire::redirection::Jump;

use crate::install::{Memory, is_there};

/// The most bytes of the function that are looked at.
const LENGTH: usize = 16;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const RET: u8 = 0xc3;

/// Makes the dynamic linker's function at this address jump to another one, and returns true.
/// Returns false, and changes nothing, if it does not consist of a `ret` with enough room behind
/// it, or the other function is too far away.
///
/// # Safety
///
/// `breakpoint` is `r_brk` of the dynamic linker. The process has one thread, and is not in that
/// function. `function` is a C function without arguments that changes no register but rflags.
pub unsafe fn watch_linker(breakpoint: u64, function: u64) -> bool {
    let mut words = [0_u64; LENGTH / 8];
    let read = heapledger_core::sys::read_own_pieces(&[[breakpoint, LENGTH as u64]], &mut words);
    let [first, second] = words.map(u64::to_ne_bytes);
    let mut bytes = [0; LENGTH];
    for (to, from) in bytes.iter_mut().zip(first.into_iter().chain(second)) {
        *to = from;
    }
    if read != LENGTH {
        return false;
    }
    let Some((skipped, expected)) = replaceable(&bytes) else { return false };
    let address = breakpoint + skipped as u64;
    let Some(jump) = Jump::new(address, expected, function) else { return false };
    // SAFETY: `Memory::write` requires the start of an instruction in code that no thread is
    // executing: the function's first, or that behind its `endbr64`; the process has one thread,
    // which is elsewhere.
    unsafe { Memory::open().write(&jump) && is_there(address, &jump.jump) }
}

/// Returns the number of bytes before the function's `ret`, and as many bytes from there on as a
/// jump takes. `None` if there is another instruction, or not enough padding.
fn replaceable(bytes: &[u8; LENGTH]) -> Option<(usize, &[u8])> {
    let skipped = if bytes.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
    let body = bytes.get(skipped..)?;
    let padding = body.strip_prefix(&[RET])?;
    let mut covered = 0;
    while covered + 1 < Jump::LENGTH {
        covered += padding_length(padding.get(covered..)?)?;
    }
    Some((skipped, body.get(..Jump::LENGTH)?))
}

/// Returns the length of an instruction that compilers fill gaps with: a breakpoint, or one of the
/// forms of `nop` (AMD64 Architecture Programmer's Manual, volume 3).
fn padding_length(bytes: &[u8]) -> Option<usize> {
    let prefixes = bytes.iter().take_while(|&&byte| byte == 0x66 || byte == 0x2e).count();
    let rest = match bytes.get(prefixes..)? {
        [0xcc, ..] if prefixes == 0 => 1,
        [0x90, ..] => 1,
        [0x0f, 0x1f, 0x00, ..] => 3,
        [0x0f, 0x1f, 0x40, ..] => 4,
        [0x0f, 0x1f, 0x44, ..] => 5,
        [0x0f, 0x1f, 0x80, ..] => 7,
        [0x0f, 0x1f, 0x84, ..] => 8,
        _ => return None,
    };
    Some(prefixes + rest)
}

#[cfg(test)]
mod tests;
