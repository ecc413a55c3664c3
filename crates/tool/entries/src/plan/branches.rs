//! Branches into the first instructions of entries, from anywhere in a module.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions};

use super::prologue::target;
use crate::module::Module;

/// The bytes before and behind a window from which a branch with one byte of displacement reaches
/// it.
const SHORT_REACH: u64 = 130;

/// The most bytes that are decoded from the beginning of an entry.
const FUNCTION_MAX: usize = 1 << 16;

/// Returns the targets of branches that are in one of the windows, in ascending order.
///
/// Branches with a displacement of four bytes are looked for at every byte of the code, and count
/// if an instruction may begin there. One that is seen where none is has no other consequence than
/// an entry that is left alone. Those with a displacement of one byte are looked for in the
/// instructions of the entry itself. Branches by a table in memory are not seen: tables of
/// functions have their beginnings, and those of a `switch` lead behind the code that computes the
/// index.
pub(super) fn into(module: &Module, mut windows: Vec<Range<u64>>) -> Vec<u64> {
    windows.sort_by_key(|window| window.start);
    let (Some(first), Some(last)) = (windows.first(), windows.iter().map(|window| window.end).max()) else {
        return vec![];
    };
    let bounds = first.start..last;
    let is_inside = |target: u64| {
        bounds.contains(&target) && {
            let behind = windows.partition_point(|window| window.start <= target);
            windows[..behind].last().is_some_and(|window| window.contains(&target))
        }
    };
    let mut targets = vec![];
    for (address, code) in module.segments() {
        long_branches(address, code, &bounds, &is_inside, &mut targets);
    }
    for window in &windows {
        short_branches(module, window, &mut targets);
    }
    targets.sort_unstable();
    targets
}

/// Adds the targets inside of branches with four bytes of displacement: `call`, `jmp` and the
/// conditional ones.
fn long_branches(
    address: u64,
    code: &[u8],
    bounds: &Range<u64>,
    is_inside: &impl Fn(u64) -> bool,
    targets: &mut Vec<u64>,
) {
    // Nearly all displacements lead elsewhere, so these are compared first, in 32 bits.
    let (first, length) = (bounds.start as u32, (bounds.end - bounds.start).min(u32::MAX.into()) as u32);
    for (at, bytes) in code.windows(5).enumerate() {
        let displacement = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        let low = (address as u32).wrapping_add(at as u32).wrapping_add(5).wrapping_add(displacement);
        if low.wrapping_sub(first) >= length {
            continue;
        }
        let begin = match bytes[0] {
            0xe8 | 0xe9 => at,
            0x80..=0x8f if at > 0 && code[at - 1] == 0x0f => at - 1,
            _ => continue,
        };
        let target = address.wrapping_add(at as u64 + 5).wrapping_add_signed((displacement as i32).into());
        if is_inside(target) && may_begin(code, begin) {
            targets.push(target);
        }
    }
}

/// True if an instruction may begin at an index: decoding from one of some bytes before leads
/// there. Wherever decoding begins, it falls into step with the real instructions after a few.
fn may_begin(code: &[u8], at: usize) -> bool {
    const BEFORE: usize = 64;
    const STARTS: usize = 16;
    if at < BEFORE {
        return true;
    }
    (at - BEFORE..at - BEFORE + STARTS).any(|start| {
        let mut decoder = Decoder::with_ip(64, &code[start..], 0, DecoderOptions::NONE);
        while start + decoder.position() < at {
            // Bytes that are no instruction may be data, behind which there are some again.
            if decoder.decode().is_invalid() {
                let next = decoder.position().max(1);
                if decoder.set_position(next).is_err() {
                    return false;
                }
            }
        }
        start + decoder.position() == at
    })
}

/// Adds the targets inside of a window of the branches in the function that begins before it.
fn short_branches(module: &Module, window: &Range<u64>, targets: &mut Vec<u64>) {
    // The window begins with the second byte of an instruction.
    let start = window.start - 1;
    let Some(code) = module.code_at(start) else { return };
    let reach = (window.end - start + SHORT_REACH) as usize;
    let code = &code[..code.len().min(reach).min(FUNCTION_MAX)];
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return;
        }
        targets.extend(target(&instruction).filter(|target| window.contains(target)));
    }
}
