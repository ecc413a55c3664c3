//! Frame pointers: whether the functions of a file keep them, by a sample of its code.
//!
//! For files with so much code without unwind information that no rules are generated. Only
//! functions that call others matter: no stack leads through the others.

use std::collections::HashMap;

use iced_x86::{Code as Instruction, Decoder, DecoderOptions, FlowControl, Register};

use super::code::Code;

/// The number of places from which code is decoded, at equal distances.
const PLACES: u64 = 4096;
/// The bytes of code that are decoded at each place.
const BYTES_EACH: usize = 1024;
/// The number of bytes in which a function sets up its frame or calls another one.
const FUNCTION_BYTES: usize = 256;
/// The least number of functions to judge by.
const FUNCTIONS_MIN: usize = 500;

/// True if functions in these parts of the code, of which there is a sample, set rbp to the frame
/// before they call another function: at least 49 of 50 of them.
///
/// Takes a few milliseconds for each place of the sample that is read from disk.
pub(crate) fn are_kept(code: &Code<'_>, parts: &[(u64, u64)]) -> bool {
    let (keeping, all) = counts(code, parts);
    all >= FUNCTIONS_MIN && keeping * 50 >= all * 49
}

/// Returns the number of functions that keep a frame pointer, and that of all that call others.
pub(crate) fn counts(code: &Code<'_>, parts: &[(u64, u64)]) -> (usize, usize) {
    // The start of a place may be in the middle of an instruction, and a few calls there none. An
    // address that is called twice begins a function.
    let mut calls: HashMap<u64, u32> = HashMap::new();
    let length: u64 = parts.iter().map(|(from, to)| to - from).sum();
    for place in 0..PLACES {
        let Some(from) = at(parts, length / PLACES * place) else { continue };
        for instruction in &mut Decoder::with_ip(64, bytes(code, from, BYTES_EACH), from, DecoderOptions::NONE) {
            if instruction.code() == Instruction::Call_rel32_64 {
                *calls.entry(instruction.near_branch64()).or_default() += 1;
            }
        }
    }
    let is_inside = |address: u64| parts.iter().any(|&(from, to)| (from..to).contains(&address));
    let functions = calls.into_iter().filter(|&(address, count)| count > 1 && is_inside(address));
    let kept = functions.filter_map(|(address, _)| keeps(bytes(code, address, FUNCTION_BYTES), address));
    kept.fold((0, 0), |(keeping, all), is_kept| (keeping + usize::from(is_kept), all + 1))
}

/// Returns the address at an offset in all parts together.
fn at(parts: &[(u64, u64)], mut offset: u64) -> Option<u64> {
    for &(from, to) in parts {
        if offset < to - from {
            return Some(from + offset);
        }
        offset -= to - from;
    }
    None
}

fn bytes<'data>(code: &Code<'data>, address: u64, length: usize) -> &'data [u8] {
    let found = code.section(address).and_then(|(start, bytes)| bytes.get((address - start) as usize..));
    found.map_or(&[], |bytes| bytes.get(..length).unwrap_or(bytes))
}

/// True if a function sets rbp to its frame before its first call, false if it does not. `None` if
/// it ends, or jumps elsewhere, before either.
fn keeps(bytes: &[u8], address: u64) -> Option<bool> {
    let mut is_saved = false;
    for instruction in &mut Decoder::with_ip(64, bytes, address, DecoderOptions::NONE) {
        match (instruction.code(), instruction.op0_register(), instruction.op1_register()) {
            (Instruction::Push_r64, Register::RBP, _) => is_saved = true,
            (Instruction::Mov_rm64_r64 | Instruction::Mov_r64_rm64, Register::RBP, Register::RSP) if is_saved => {
                return Some(true);
            }
            _ => {}
        }
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => return Some(false),
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            _ => return None,
        }
    }
    None
}
