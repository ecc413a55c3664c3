//! Reads the x86-64 code around calls.

/// Bytes of code after the return address in which constructors count.
pub(crate) const WINDOW: u64 = 96;

/// Returns the offset from the frame pointer at which x86-64 code, at its beginning, stores the
/// result of the last call: `mov %rax,-0x18(%rbp)`.
pub(crate) fn stored_at(code: &[u8]) -> Option<i64> {
    match code {
        [0x48, 0x89, 0x45, at, ..] => Some(i64::from(*at as i8)),
        [0x48, 0x89, 0x85, a, b, c, d, ..] => Some(i64::from(i32::from_le_bytes([*a, *b, *c, *d]))),
        _ => None,
    }
}

/// Returns the positions of the calls in x86-64 code, and the called addresses, relative to the
/// beginning of the code. Bytes that only look like a call are included.
pub(crate) fn calls(code: &[u8]) -> impl Iterator<Item = (u32, i64)> + '_ {
    code.windows(5).enumerate().filter(|(_, bytes)| bytes[0] == 0xe8).map(|(at, bytes)| {
        let distance = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        (at as u32, at as i64 + 5 + i64::from(distance))
    })
}

/// Returns the address of the slot from which the address of the called function is read, if the
/// six bytes of x86-64 code before `after` end in a call through memory, or in a call of a stub
/// that jumps through memory.
pub(crate) fn slot_of_call<'c>(code: &[u8; 6], after: u64, code_at: impl Fn(u64) -> &'c [u8]) -> Option<u64> {
    let relative = |bytes: &[u8], from: u64| {
        let distance = i32::from_le_bytes(*bytes.first_chunk()?);
        from.checked_add_signed(distance.into())
    };
    if let [0xff, 0x15, distance @ ..] = code {
        return relative(distance, after);
    }
    let [_, 0xe8, distance @ ..] = code else { return None };
    let stub = relative(distance, after)?;
    let mut code = code_at(stub);
    let mut at = stub;
    // Skips `endbr64`, and the prefix `bnd`.
    for skipped in [&[0xf3, 0x0f, 0x1e, 0xfa][..], &[0xf2][..]] {
        if let Some(rest) = code.strip_prefix(skipped) {
            code = rest;
            at = at.checked_add(skipped.len() as u64)?;
        }
    }
    relative(code.strip_prefix(&[0xff, 0x25])?, at.checked_add(6)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_after_a_call() {
        assert_eq!(stored_at(&[0x48, 0x89, 0x45, 0xe8, 0x90]), Some(-24));
        assert_eq!(stored_at(&[0x48, 0x89, 0x85, 0x58, 0xff, 0xff, 0xff]), Some(-168));
        assert_eq!(stored_at(&[0x48, 0x89]), None);
        let code = [0x90, 0xe8, 0x10, 0, 0, 0, 0xe8, 0xf0, 0xff, 0xff, 0xff, 0xe8, 0];
        assert_eq!(calls(&code).collect::<Vec<_>>(), [(1, 22), (6, -5)]);
    }

    #[test]
    fn calls_of_other_modules() {
        let stub = |_| &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x10, 0, 0, 0, 0x90][..];
        let code = [0x90, 0xe8, 0xf0, 0, 0, 0];
        assert_eq!(slot_of_call(&code, 0x1000, stub), Some(0x10f0 + 11 + 0x10));
        assert_eq!(slot_of_call(&[0xff, 0x15, 0xf0, 0, 0, 0], 0x1000, stub), Some(0x10f0));
        assert_eq!(slot_of_call(&code, 0x1000, |_| &[0x55]), None);
        assert_eq!(slot_of_call(&[0x41, 0xff, 0x54, 0x24, 0x10, 0x90], 0x1000, stub), None);
    }
}
