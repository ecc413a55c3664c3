//! Trampolines: the displaced instructions of an entry at another address.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, Instruction, InstructionBlock, Mnemonic,
};

use super::prologue::{JUMP_LENGTH, ends, target};
use super::{Patch, Refusal, TRAMPOLINE_LENGTH_MAX};

/// Returns the trampoline of a patch: its displaced instructions, re-encoded for another address,
/// and a jump to the instruction behind them. It changes no register and no flag.
///
/// `from` is the runtime address of [`Patch::at`], and `to` that of the trampoline. A displaced
/// call returns to the original code, not to the trampoline, so the stack of what it calls is as
/// without the patch.
///
/// # Errors
///
/// Fails if the instructions cannot do the same from `to`: if what they refer to is more than 2 GiB
/// from there, or if a call is not the last of them.
pub fn relocate(patch: &Patch, from: u64, to: u64) -> Result<Vec<u8>, Refusal> {
    let decoder = Decoder::with_ip(64, &patch.displaced, from, DecoderOptions::NONE);
    let mut instructions: Vec<Instruction> = decoder.into_iter().collect();
    let back = from.wrapping_add(patch.displaced.len() as u64);
    if instructions.iter().any(Instruction::is_invalid) {
        return Err(Refusal::Undecodable);
    }
    // Behind the end of a short function is padding.
    if let Some(end) = instructions.iter().position(ends) {
        instructions.truncate(end + 1);
    }
    let is_call = |instruction: &Instruction| instruction.mnemonic() == Mnemonic::Call;
    let call = match instructions.iter().position(is_call) {
        Some(at) if at + 1 == instructions.len() => instructions.pop(),
        Some(_) => return Err(Refusal::Immovable),
        None => None,
    };
    let has_ended = instructions.last().is_some_and(ends);
    let mut code = encode(&instructions, to)?;
    match call.as_ref() {
        Some(call) => push_call(&mut code, call, back, to)?,
        None if !has_ended => push_jump(&mut code, back, to),
        None => {}
    }
    if code.len() > TRAMPOLINE_LENGTH_MAX {
        return Err(Refusal::Immovable);
    }
    Ok(code)
}

/// Returns instructions in their encoding for another address.
fn encode(instructions: &[Instruction], to: u64) -> Result<Vec<u8>, Refusal> {
    let block = InstructionBlock::new(instructions, to);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).map_err(|_| Refusal::Immovable)?;
    Ok(encoded.code_buffer)
}

/// Appends a jump to an address, which may be anywhere. `start` is the address of the code.
fn push_jump(code: &mut Vec<u8>, to: u64, start: u64) {
    let distance = to.wrapping_sub(start.wrapping_add((code.len() + JUMP_LENGTH) as u64)).cast_signed();
    if let Ok(distance) = i32::try_from(distance) {
        code.push(0xe9);
        code.extend(distance.to_le_bytes());
        return;
    }
    // jmp [rip + 0], and the address behind it.
    code.extend([0xff, 0x25, 0, 0, 0, 0]);
    code.extend(to.to_le_bytes());
}

/// Appends a call that returns to `back`: it pushes that address, and jumps.
fn push_call(code: &mut Vec<u8>, call: &Instruction, back: u64, to: u64) -> Result<(), Refusal> {
    const PUSH_LENGTH: usize = 6;
    let at = to.wrapping_add((code.len() + PUSH_LENGTH) as u64);
    let jump = match target(call) {
        Some(target) => {
            let mut jump = vec![];
            push_jump(&mut jump, target, at);
            jump
        }
        // Its operand would be another place once the return address is pushed.
        None if call.memory_base() == iced_x86::Register::RSP => return Err(Refusal::Immovable),
        None => {
            let mut jump = *call;
            jump.set_code(match call.code() {
                Code::Call_rm64 => Code::Jmp_rm64,
                _ => return Err(Refusal::Immovable),
            });
            encode(&[jump], at)?
        }
    };
    // push [rip + the length of the jump]: the address is behind the jump.
    code.extend([0xff, 0x35]);
    code.extend((jump.len() as u32).to_le_bytes());
    code.extend(jump);
    code.extend(back.to_le_bytes());
    Ok(())
}
