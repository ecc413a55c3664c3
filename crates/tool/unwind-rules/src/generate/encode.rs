//! Writes rules as an `.eh_frame`.
//!
//! Source: DWARF 5 §6.4.1, LSB core specification, "Exception frames".

use heapledger_wire::module_table::pair;

use super::Generated;
use super::function::{Row, Rule};

/// `DW_EH_PE_udata4`: an address is a number of 32 bits.
const UDATA4: u8 = 0x03;
const RBP: u8 = 6;
const RSP: u8 = 7;
const RETURN_ADDRESS: u8 = 16;
/// The distance in code after which another description begins, so that they are short to read.
const DESCRIPTION_MAX: u64 = 1 << 12;

/// Returns the rules as an `.eh_frame` in which the address `base` is 0, with its index. Rows are
/// in order and do not overlap; those without rule are left out, as are those more than 4 GiB
/// behind `base`.
pub(crate) fn encode(rows: &[Row], base: u64) -> Generated {
    let mut generated = Generated::default();
    let common = [common(&mut generated.frames, false), common(&mut generated.frames, true)];
    let mut rest = rows;
    while let Some((first, _)) = rest.split_first() {
        let is_signal = first.rule == Some(Rule::Signal);
        let mut end = first.start;
        let length = rest
            .iter()
            .take_while(|row| {
                let continues = row.start == end
                    && row.rule.is_some()
                    && (row.rule == Some(Rule::Signal)) == is_signal
                    && row.end - first.start <= DESCRIPTION_MAX;
                end = row.end;
                continues
            })
            .count();
        let (run, after) = rest.split_at(length.max(1));
        rest = after;
        let offset = |address: u64| address.checked_sub(base).and_then(|offset| u32::try_from(offset).ok());
        let (Some(start), Some(end)) = (offset(first.start), run.last().and_then(|last| offset(last.end))) else {
            continue;
        };
        let Ok(at) = u32::try_from(generated.frames.len()) else { break };
        if first.rule.is_some() {
            generated.pairs.push(pair(start, at));
            describe(&mut generated.frames, run, start, end, common[usize::from(is_signal)]);
        }
    }
    // The end of the section.
    generated.frames.extend([0; 4]);
    generated
}

/// Appends what descriptions have in common, and returns its offset.
fn common(frames: &mut Vec<u8>, is_signal: bool) -> usize {
    entry(frames, |frames, _| {
        frames.extend(0_u32.to_le_bytes());
        frames.push(1);
        frames.extend(if is_signal { &b"zRS\0"[..] } else { b"zR\0" });
        // The unit of code is a byte, that of data -8.
        frames.extend([1, 0x78, RETURN_ADDRESS, 1, UDATA4]);
        // def_cfa rsp, 8; offset of the return address: -8.
        frames.extend([0x0c, RSP, 8, 0x80 | RETURN_ADDRESS, 1]);
    })
}

/// Appends the description of the code from `start` to `end`.
fn describe(frames: &mut Vec<u8>, rows: &[Row], start: u32, end: u32, common: usize) {
    entry(frames, |frames, at| {
        // The distance back from this field.
        frames.extend(((at + 4 - common) as u32).to_le_bytes());
        frames.extend(start.to_le_bytes());
        frames.extend((end - start).to_le_bytes());
        frames.push(0);
        let mut current = Operations::Cfa { register: RSP, offset: 8, saved: None };
        let mut from = rows.first().map_or(0, |row| row.start);
        for row in rows {
            let Some(next) = row.rule.map(Operations::of).filter(|next| *next != current) else { continue };
            advance(frames, row.start - from);
            from = row.start;
            change(frames, current, next);
            current = next;
        }
    });
}

/// Appends an entry with its length in front, in whole words of 32 bits, and returns its offset.
fn entry(frames: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>, usize)) -> usize {
    let at = frames.len();
    frames.extend([0; 4]);
    write(frames, at);
    // Operations that do nothing.
    frames.resize(frames.len().next_multiple_of(4), 0);
    let length = (frames.len() - at - 4) as u32;
    if let Some(to) = frames.get_mut(at..at + 4) {
        to.copy_from_slice(&length.to_le_bytes());
    }
    at
}

fn advance(frames: &mut Vec<u8>, distance: u64) {
    match distance {
        0 => {}
        1..0x40 => frames.push(0x40 | distance as u8),
        0x40..0x100 => frames.extend([0x02, distance as u8]),
        _ => {
            frames.push(0x03);
            frames.extend((distance as u16).to_le_bytes());
        }
    }
}

/// A rule as operations express it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operations {
    Cfa { register: u8, offset: i64, saved: Option<i64> },
    NoCaller,
    SignalFrame,
}

impl Operations {
    /// Returns the form of a rule. Prefers rsp: the walk of a stack then needs no rbp.
    fn of(rule: Rule) -> Operations {
        match rule {
            Rule::Cfa { by_rsp: Some(offset), saved, .. } => Operations::Cfa { register: RSP, offset, saved },
            Rule::Cfa { by_rbp, saved, .. } => {
                Operations::Cfa { register: RBP, offset: by_rbp.unwrap_or_default(), saved }
            }
            Rule::End => Operations::NoCaller,
            Rule::Signal => Operations::SignalFrame,
        }
    }
}

/// Appends the operations that make one rule of another.
fn change(frames: &mut Vec<u8>, from: Operations, to: Operations) {
    let Operations::Cfa { register, offset, saved } = to else {
        if to == Operations::NoCaller {
            // undefined return address.
            frames.extend([0x07, RETURN_ADDRESS]);
        }
        return;
    };
    let (same_base, before) = match from {
        Operations::Cfa { register: before, saved, .. } => (before == register, Some(saved)),
        Operations::NoCaller | Operations::SignalFrame => {
            // restore the return address' rule.
            frames.push(0xc0 | RETURN_ADDRESS);
            (false, None)
        }
    };
    match (same_base, offset >= 0) {
        // def_cfa_offset, def_cfa, def_cfa_sf.
        (true, true) => frames.push(0x0e),
        (false, true) => frames.extend([0x0c, register]),
        (_, false) => frames.extend([0x12, register]),
    }
    if offset >= 0 {
        unsigned(frames, offset as u64);
    } else {
        signed(frames, offset / -8);
    }
    if before == Some(saved) {
        return;
    }
    match saved {
        // same_value.
        None => frames.extend([0x08, RBP]),
        Some(saved) if saved < 0 => {
            frames.push(0x80 | RBP);
            unsigned(frames, (saved / -8) as u64);
        }
        // offset_extended_sf.
        Some(saved) => {
            frames.extend([0x11, RBP]);
            signed(frames, saved / -8);
        }
    }
}

/// Appends a number as ULEB128 (DWARF 5 §7.6).
fn unsigned(frames: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        frames.push(if number == 0 { low } else { low | 0x80 });
        if number == 0 {
            return;
        }
    }
}

/// Appends a number as SLEB128 (DWARF 5 §7.6).
fn signed(frames: &mut Vec<u8>, mut number: i64) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        let is_last = number == if low & 0x40 == 0 { 0 } else { -1 };
        frames.push(if is_last { low } else { low | 0x80 });
        if is_last {
            return;
        }
    }
}
