//! The first instructions of an entry, which a jump replaces.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

use super::Refusal;
use crate::allocator::Entry;
use crate::module::Module;

/// The bytes of `jmp rel32`.
pub(super) const JUMP_LENGTH: usize = 5;

/// Returns where the jump goes, in the module's own addresses, and the bytes of the instructions
/// that it replaces.
pub(super) fn read(module: &Module, entry: &Entry) -> Result<(u64, Vec<u8>), Refusal> {
    let code = module.code_at(entry.at).ok_or(Refusal::NoCode)?;
    if module.has_text_relocations() {
        return Err(Refusal::TextRelocations);
    }
    // `endbr64` stays in front: indirect calls must find it.
    let skipped = if code.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
    let at = entry.at + skipped as u64;
    let code = &code[skipped..];
    let length = length_of_whole_instructions(code, at)?;
    let displaced = code[..length].to_vec();
    if leads_into(&displaced, at) {
        return Err(Refusal::BranchTarget);
    }
    // Instructions that cannot be moved are found out by moving them, to an address nearby.
    let patch = super::Patch { entry: entry.clone(), at, displaced, clobbers_all: false };
    super::relocate(&patch, NEAR, NEAR + (1 << 20))?;
    Ok((at, patch.displaced))
}

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// An address for a trial.
const NEAR: u64 = 0x5555_5000_0000;

/// Returns the bytes of the first instructions that have at least the length of a jump. Padding
/// behind the last instruction of a short function counts as one.
fn length_of_whole_instructions(code: &[u8], at: u64) -> Result<usize, Refusal> {
    let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    let mut has_ended = false;
    while decoder.position() < JUMP_LENGTH {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(if has_ended { Refusal::TooShort } else { Refusal::Undecodable });
        }
        let is_padding = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
        if has_ended && !is_padding || instruction.mnemonic() == Mnemonic::Endbr64 {
            return Err(Refusal::TooShort);
        }
        if !has_ended && instruction.mnemonic() == Mnemonic::Int3 {
            return Err(Refusal::Patched);
        }
        has_ended |= ends(&instruction);
    }
    Ok(decoder.position())
}

/// True if the next instruction is not run after this one.
pub(super) fn ends(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Jmp | Mnemonic::Ret | Mnemonic::Ud2 | Mnemonic::Hlt)
}

/// True if an instruction branches to another one among these, or to the first.
fn leads_into(displaced: &[u8], at: u64) -> bool {
    let inside = at..at + displaced.len() as u64;
    Decoder::with_ip(64, displaced, at, DecoderOptions::NONE)
        .iter()
        .any(|instruction| target(&instruction).is_some_and(|target| inside.contains(&target)))
}

/// Returns the address that an instruction branches to, if that is in it.
pub(super) fn target(instruction: &Instruction) -> Option<u64> {
    (instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64).then(|| instruction.near_branch64())
}
