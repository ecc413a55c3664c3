//! The function by which the dynamic linker tells a debugger that it loads or unloads modules.
//!
//! `_dl_debug_state` does nothing: debuggers put a breakpoint there (`r_brk` of `<link.h>`). The
//! linker calls it before it maps the first module of a `dlopen`, again when all are mapped and
//! none is relocated yet, and before and after it unmaps modules. So a jump in its place sees each
//! module before any of its code runs.

use crate::redirection::Jump;

/// The bytes of the function that are looked at.
pub const LINKER_FUNCTION_LENGTH: usize = 16;

/// `r_state` of `<link.h>` when the list of modules is complete.
pub const RT_CONSISTENT: u32 = 0;
/// `r_state` when the linker begins to load modules.
pub const RT_ADD: u32 = 1;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const RET: u8 = 0xc3;

/// Returns the number of bytes before the function's `ret`, and as many bytes from there on as a
/// jump takes. `None` if there is another instruction, or not enough padding.
pub fn replaceable(bytes: &[u8; LINKER_FUNCTION_LENGTH]) -> Option<(usize, &[u8])> {
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
