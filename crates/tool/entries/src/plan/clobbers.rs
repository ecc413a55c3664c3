//! Registers that callers of an entry may rely on.
//!
//! By the calling convention a function may change many registers. gcc lets a caller in the same
//! file keep values in those that the function, and all that it calls, leave alone (`-fipa-ra`). It
//! counts every register as changed by an instruction that calls a function of another file, or one
//! by its address: anywhere in the function, and in the functions of the same file that it calls.
//! So if such an instruction is found there, no caller relies on anything. Nearly all allocators
//! lock, map memory, or call a function of the C library somewhere.

use std::collections::{HashMap, HashSet};

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::prologue::{ends, target};
use crate::module::Module;

/// The most instructions that are looked at for one entry. Most have what is looked for among the
/// first hundred.
const INSTRUCTIONS_MAX: usize = 1 << 14;

/// True if the function at an address seems to its callers to change every register that a call may
/// change. False if it does not, or that cannot be told.
pub(super) fn seen_to_clobber_all(module: &Module, address: u64) -> bool {
    Search::new(module, address).finds()
}

/// A place in the code that is to be looked at: its address, and that of the function around it.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    function: u64,
}

/// The search for a call of an unknown function, along branches and direct calls.
struct Search<'a> {
    module: &'a Module,
    left: usize,
    queue: Vec<Place>,
    seen: HashSet<u64>,
    /// The functions of which a return has been found.
    returning: HashSet<u64>,
    /// The code behind calls of functions that have not been seen to return: if they never do,
    /// another function may begin there.
    waiting: HashMap<u64, Vec<Place>>,
}

impl<'a> Search<'a> {
    fn new(module: &'a Module, address: u64) -> Search<'a> {
        Search {
            module,
            left: INSTRUCTIONS_MAX,
            queue: vec![Place { at: address, function: address }],
            seen: HashSet::new(),
            returning: HashSet::new(),
            waiting: HashMap::new(),
        }
    }

    fn finds(&mut self) -> bool {
        while let Some(place) = self.queue.pop() {
            if self.finds_in(place) {
                return true;
            }
        }
        false
    }

    /// Looks at instructions up to the next one that the following is not run after.
    fn finds_in(&mut self, Place { at, function }: Place) -> bool {
        let Some(bytes) = self.module.code_at(at) else { return false };
        let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
        let mut pointer = Register::None;
        while decoder.can_decode() && self.left > 0 {
            let instruction = decoder.decode();
            if instruction.is_invalid() || !self.seen.insert(instruction.ip()) {
                return false;
            }
            self.left -= 1;
            if calls_unknown(&instruction, pointer) {
                return true;
            }
            pointer = pointer_after(&instruction, pointer);
            match target(&instruction) {
                Some(target) if instruction.mnemonic() == Mnemonic::Call => {
                    self.call(target, Place { at: instruction.next_ip(), function });
                    return false;
                }
                Some(target) => self.queue.push(Place { at: target, function }),
                None if instruction.mnemonic() == Mnemonic::Ret => {
                    self.returning.insert(function);
                    self.queue.extend(self.waiting.remove(&function).unwrap_or_default());
                }
                None => {}
            }
            if ends(&instruction) || instruction.mnemonic() == Mnemonic::Int3 {
                return false;
            }
        }
        false
    }

    /// Goes on in a function that is called, and behind the call if the function returns.
    fn call(&mut self, callee: u64, behind: Place) {
        match self.returning.contains(&callee) {
            true => self.queue.push(behind),
            false => self.waiting.entry(callee).or_default().push(behind),
        }
        self.queue.push(Place { at: callee, function: callee });
    }
}

/// True for an instruction that calls a function of which the compiler knew nothing: by an address
/// in a register or in memory. Calls of another file's functions lead to one: the jump by the
/// linker's table. `pointer` is the register with a function's address, if there is one.
fn calls_unknown(instruction: &Instruction, pointer: Register) -> bool {
    match instruction.mnemonic() {
        _ if target(instruction).is_some() => false,
        // `call [rax]` may be that of a TLS descriptor, which keeps all registers.
        Mnemonic::Call => {
            let has_offset = instruction.memory_index() != Register::None || instruction.memory_displacement64() != 0;
            instruction.memory_base() != Register::RAX || has_offset
        }
        Mnemonic::Jmp => {
            let by_pointer = pointer != Register::None && instruction.op0_register() == pointer;
            by_pointer || instruction.is_ip_rel_memory_operand()
        }
        _ => false,
    }
}

/// Returns the register that holds a function's address after an instruction: one that was loaded
/// from a place in memory. A `switch` loads the address that it jumps to from a table, by an index.
fn pointer_after(instruction: &Instruction, before: Register) -> Register {
    let written = instruction.op0_register();
    let is_load = instruction.code() == Code::Mov_r64_rm64 && instruction.op1_kind() == OpKind::Memory;
    if is_load && instruction.memory_index() == Register::None {
        return written;
    }
    // Nothing else writes to a register between a load and the jump by it: restores of registers,
    // and arguments.
    let is_other = match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Xor | Mnemonic::Add | Mnemonic::Pop => {
            number(written).is_some_and(|number_of_it| Some(number_of_it) != number(before))
        }
        Mnemonic::Test | Mnemonic::Cmp | Mnemonic::Nop => true,
        _ => false,
    };
    if is_other { before } else { Register::None }
}

/// Returns the number of a general register; `None` for its parts below 32 bits.
fn number(register: Register) -> Option<usize> {
    let [first, first_half] = [Register::RAX, Register::EAX].map(|register| register as usize);
    let [from, from_half] = [first, first_half].map(|first| (register as usize).checked_sub(first));
    from.filter(|&number| number < 16).or(from_half.filter(|&number| number < 16))
}

#[cfg(test)]
mod tests;
