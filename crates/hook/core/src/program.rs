//! What the kernel would make of a program file, judged from its first bytes: so that nothing is added to the
//! environment of a program in which nothing would take it out again.

/// The bytes that [`judge`] wants to see: headers are in the first of them.
pub const HEAD_LENGTH: usize = 4096;

/// The verdict on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program<'head> {
    /// An executable for this processor with a dynamic linker: `LD_PRELOAD` works.
    Dynamic,
    /// An executable without one, or for another processor.
    Other,
    /// A script: this is its interpreter's path.
    Script(&'head [u8]),
    /// Neither: what `execvp` hands to the shell.
    Unknown,
}

/// Whether a file with this mode, owner and group runs with rights that a caller with this user and group has not: then
/// the dynamic linker loads no library of the caller's.
pub const fn gains_rights(mode: u32, owner: (u32, u32), caller: (u32, u32)) -> bool {
    const SET_USER: u32 = 0o4000;
    /// Only with the group's right to execute does it mean that.
    const SET_GROUP: u32 = 0o2010;
    mode & SET_USER != 0 && owner.0 != caller.0 || mode & SET_GROUP == SET_GROUP && owner.1 != caller.1
}

/// Judges a file by its first bytes. Sources: generic ABI (ELF header, program headers), execve(2) (scripts).
pub fn judge(head: &[u8]) -> Program<'_> {
    const ELFCLASS64: u8 = 2;
    #[cfg(target_arch = "x86_64")]
    const EM_HOST: u16 = 62;
    #[cfg(target_arch = "aarch64")]
    const EM_HOST: u16 = 183;
    const PT_INTERP: u32 = 3;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or(&[]).trim_ascii();
        return Program::Script(line.split(|&byte| byte == b' ' || byte == b'\t').next().unwrap_or(&[]));
    }
    if !head.starts_with(b"\x7fELF") {
        return Program::Unknown;
    }
    let headers = (|| {
        let at = u64::from_le_bytes(head.get(32..40)?.try_into().ok()?);
        let length = u16::from_le_bytes(head.get(54..56)?.try_into().ok()?);
        let count = u16::from_le_bytes(head.get(56..58)?.try_into().ok()?);
        let machine = u16::from_le_bytes(head.get(18..20)?.try_into().ok()?);
        (head.get(4) == Some(&ELFCLASS64) && machine == EM_HOST).then_some((usize::try_from(at).ok()?, length, count))
    })();
    let Some((at, length, count)) = headers else { return Program::Other };
    let is_interpreter = |index: u16| {
        let at = at.checked_add(usize::from(index) * usize::from(length))?;
        let kind = head.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(kind.try_into().ok()?) == PT_INTERP)
    };
    if (0..count).any(|index| is_interpreter(index) == Some(true)) { Program::Dynamic } else { Program::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_their_interpreter() {
        assert_eq!(judge(b"#! /usr/bin/env python3\nprint()"), Program::Script(b"/usr/bin/env"));
        assert_eq!(judge(b"#!/bin/sh"), Program::Script(b"/bin/sh"));
        assert_eq!(judge(b"#!"), Program::Script(b""));
        assert_eq!(judge(b"echo hello"), Program::Unknown);
        assert_eq!(judge(b""), Program::Unknown);
    }

    #[test]
    fn rights_are_gained_from_others_only() {
        assert!(gains_rights(0o104755, (0, 0), (1000, 1000)));
        assert!(!gains_rights(0o104755, (0, 0), (0, 0)));
        assert!(gains_rights(0o102755, (0, 42), (0, 0)));
        assert!(!gains_rights(0o102745, (0, 42), (0, 0)));
        assert!(!gains_rights(0o100755, (0, 0), (1000, 1000)));
    }

    #[test]
    fn cut_headers_are_not_dynamic() {
        let mut head = [0_u8; 120];
        head[..5].copy_from_slice(b"\x7fELF\x02");
        head[18] = 62;
        head[32] = 64;
        head[54] = 56;
        head[56] = 1;
        assert_eq!(judge(&head), Program::Other);
        head[64] = 3;
        assert_eq!(judge(&head), Program::Dynamic);
        for length in 4..68 {
            assert_eq!(judge(&head[..length]), Program::Other);
        }
    }
}
