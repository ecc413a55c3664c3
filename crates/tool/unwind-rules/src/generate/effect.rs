//! The effect of an instruction on what is known.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; for instructions
//! that are not handled one by one, the registers that iced-x86 lists.

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::value::{RBP, RSP, State, Value};

/// Where the processor goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// To the next instruction.
    Next,
    /// Elsewhere.
    Jump(u64),
    /// To the next instruction, or elsewhere.
    Branch(u64),
    /// To an address that is not in the instruction.
    Indirect(Value),
    /// To a function, which may return to the next instruction; `None` if its address is not in the
    /// instruction.
    Call(Option<u64>),
    /// To the caller.
    Return,
    /// Nowhere.
    End,
    /// This is not known.
    Unknown,
}

/// Applies an instruction to what is known before it.
pub(crate) fn apply(instruction: &Instruction, state: &mut State, info: &mut InstructionInfoFactory) -> Flow {
    if instruction.is_invalid() {
        return Flow::Unknown;
    }
    match instruction.mnemonic() {
        Mnemonic::Push if instruction.stack_pointer_increment() == -8 => {
            let value = operand(instruction, 0, state);
            push(state, value);
        }
        Mnemonic::Pop if instruction.stack_pointer_increment() == 8 && wide(instruction, 0).is_some() => {
            let value = state.sp().map_or(Value::Unknown, |sp| state.load(sp));
            state.set(RSP, state.get(RSP).plus(8));
            state.set(wide(instruction, 0).unwrap_or(RSP), value);
        }
        Mnemonic::Pushfq => push(state, Value::Unknown),
        Mnemonic::Popfq => state.set(RSP, state.get(RSP).plus(8)),
        Mnemonic::Leave if instruction.code() == Code::Leaveq => leave(state),
        Mnemonic::Mov | Mnemonic::Movsxd => return mov(instruction, state, info),
        Mnemonic::Lea => match wide(instruction, 0) {
            Some(register) => state.set(register, address(instruction, state)),
            None => forget_written(instruction, state, info),
        },
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Xor => arithmetic(instruction, state, info),
        Mnemonic::Call => return call(instruction, state),
        Mnemonic::Ret => return Flow::Return,
        Mnemonic::Jmp => return jump(instruction, state),
        Mnemonic::Ud0 | Mnemonic::Ud1 | Mnemonic::Ud2 | Mnemonic::Hlt | Mnemonic::Int3 => return Flow::End,
        Mnemonic::Syscall => {
            for register in [0, 1, 11] {
                state.set(register, Value::Unknown);
            }
            state.has_called_kernel = true;
        }
        _ => {
            forget_written(instruction, state, info);
            return match instruction.flow_control() {
                FlowControl::Next => Flow::Next,
                FlowControl::ConditionalBranch => Flow::Branch(instruction.near_branch64()),
                // A transaction that fails goes on elsewhere, with the registers that it had here.
                FlowControl::XbeginXabortXend if instruction.mnemonic() == Mnemonic::Xbegin => {
                    state.set(0, Value::Unknown);
                    Flow::Branch(instruction.near_branch64())
                }
                FlowControl::XbeginXabortXend => Flow::Next,
                _ => Flow::Unknown,
            };
        }
    }
    Flow::Next
}

fn push(state: &mut State, value: Value) {
    state.set(RSP, state.get(RSP).plus(-8));
    if let Some(sp) = state.sp() {
        state.store(sp, 8, value);
    }
}

fn leave(state: &mut State) {
    let base = state.get(RBP);
    let saved = if let Value::Cfa(offset) = base { state.load(offset) } else { Value::Unknown };
    state.set(RSP, base.plus(8));
    if !matches!(base, Value::Cfa(_)) {
        state.set(RSP, Value::Unknown);
    }
    state.set(RBP, saved);
}

fn mov(instruction: &Instruction, state: &mut State, info: &mut InstructionInfoFactory) -> Flow {
    let from = instruction.op1_kind();
    if let Some(register) = wide(instruction, 0) {
        let value = match from {
            OpKind::Memory if instruction.mnemonic() == Mnemonic::Movsxd => table(instruction, state, 4),
            OpKind::Memory => loaded(instruction, state),
            _ if instruction.mnemonic() == Mnemonic::Movsxd => Value::Unknown,
            _ => operand(instruction, 1, state),
        };
        state.set(register, value);
        return Flow::Next;
    }
    // The upper half becomes zero.
    if from == OpKind::Immediate32
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().is_gpr32()
    {
        let register = instruction.op0_register().full_register();
        state.set(register.number(), Value::Constant(u64::from(instruction.immediate32())));
        return Flow::Next;
    }
    if instruction.op0_kind() == OpKind::Memory
        && let Value::Cfa(offset) = address(instruction, state)
    {
        let size = instruction.memory_size().size();
        let value = if size == 8 { operand(instruction, 1, state) } else { Value::Unknown };
        state.store(offset, size, value);
        return Flow::Next;
    }
    forget_written(instruction, state, info);
    Flow::Next
}

fn arithmetic(instruction: &Instruction, state: &mut State, info: &mut InstructionInfoFactory) {
    let is_register = |operand| instruction.op_kind(operand) == OpKind::Register;
    let is_same = is_register(0) && is_register(1) && instruction.op0_register() == instruction.op1_register();
    if is_same && instruction.mnemonic() != Mnemonic::Add && instruction.op0_register().size() >= 4 {
        return state.set(instruction.op0_register().full_register().number(), Value::Constant(0));
    }
    let Some(register) = wide(instruction, 0) else { return forget_written(instruction, state, info) };
    let (own, other) = (state.get(register), operand(instruction, 1, state));
    let sum = match (instruction.mnemonic(), own, other) {
        (Mnemonic::Add, own, Value::Constant(number)) if !is_register(1) => own.plus(number as i64),
        (Mnemonic::Sub, own, Value::Constant(number)) if !is_register(1) => own.plus((number as i64).wrapping_neg()),
        (Mnemonic::Add, Value::TableOffset(table), Value::Constant(base))
        | (Mnemonic::Add, Value::Constant(base), Value::TableOffset(table)) => Value::TableTarget(table, base),
        _ => Value::Unknown,
    };
    state.set(register, sum);
}

fn call(instruction: &Instruction, state: &mut State) -> Flow {
    let target = (instruction.op0_kind() == OpKind::NearBranch64).then(|| instruction.near_branch64());
    if target == Some(instruction.next_ip()) {
        // It only pushes its address.
        push(state, Value::Constant(instruction.next_ip()));
        return Flow::Next;
    }
    state.call();
    Flow::Call(target)
}

fn jump(instruction: &Instruction, state: &State) -> Flow {
    match instruction.op0_kind() {
        OpKind::NearBranch64 => Flow::Jump(instruction.near_branch64()),
        OpKind::Register => Flow::Indirect(wide(instruction, 0).map_or(Value::Unknown, |register| state.get(register))),
        OpKind::Memory => Flow::Indirect(table(instruction, state, 8)),
        _ => Flow::Unknown,
    }
}

/// Returns the number of an operand that is a register of 64 bits.
fn wide(instruction: &Instruction, operand: u32) -> Option<usize> {
    let register = instruction.op_register(operand);
    let is_wide = instruction.op_kind(operand) == OpKind::Register && register.is_gpr64();
    is_wide.then(|| register.number())
}

/// Returns the value of an operand of 64 bits.
fn operand(instruction: &Instruction, operand: u32, state: &State) -> Value {
    match instruction.op_kind(operand) {
        OpKind::Register => wide(instruction, operand).map_or(Value::Unknown, |register| state.get(register)),
        OpKind::Memory => loaded(instruction, state),
        OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
            Value::Constant(instruction.immediate(operand))
        }
        _ => Value::Unknown,
    }
}

/// Returns the word at the address of a memory operand.
fn loaded(instruction: &Instruction, state: &State) -> Value {
    if instruction.memory_size().size() != 8 {
        return Value::Unknown;
    }
    match address(instruction, state) {
        Value::Cfa(offset) => state.load(offset),
        _ => table(instruction, state, 8),
    }
}

/// Returns the value that comes from a table with an index, whose entries have this size.
fn table(instruction: &Instruction, state: &State, size: u32) -> Value {
    let has_index = instruction.memory_index() != Register::None && instruction.memory_index_scale() == size;
    if !has_index || is_thread_local(instruction) {
        return Value::Unknown;
    }
    let displacement = instruction.memory_displacement64();
    let base = match instruction.memory_base() {
        Register::None => Value::Constant(displacement),
        base if base.is_gpr64() => state.get(base.number()).plus(displacement as i64),
        _ => Value::Unknown,
    };
    match base {
        Value::Constant(table) if size == 4 => Value::TableOffset(table),
        Value::Constant(table) => Value::TableAddress(table),
        _ => Value::Unknown,
    }
}

/// Returns the address of a memory operand.
fn address(instruction: &Instruction, state: &State) -> Value {
    if instruction.memory_index() != Register::None || is_thread_local(instruction) {
        return Value::Unknown;
    }
    let displacement = instruction.memory_displacement64();
    match instruction.memory_base() {
        // The displacement is the address.
        Register::RIP => Value::Constant(displacement),
        base if base.is_gpr64() => state.get(base.number()).plus(displacement as i64),
        _ => Value::Unknown,
    }
}

fn is_thread_local(instruction: &Instruction) -> bool {
    matches!(instruction.memory_segment(), Register::FS | Register::GS)
}

/// Forgets the registers and the words of the stack that an instruction writes.
fn forget_written(instruction: &Instruction, state: &mut State, info: &mut InstructionInfoFactory) {
    let is_write = |access| {
        matches!(access, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite)
    };
    let info = info.info(instruction);
    for memory in info.used_memory().iter().filter(|memory| is_write(memory.access())) {
        let is_plain = memory.index() == Register::None && memory.base().is_gpr64();
        let base = if is_plain { state.get(memory.base().number()) } else { Value::Unknown };
        if let Value::Cfa(offset) = base.plus(memory.displacement() as i64) {
            state.store(offset, memory.memory_size().size(), Value::Unknown);
        }
    }
    for used in info.used_registers().iter().filter(|used| is_write(used.access())) {
        if used.register().is_gpr() {
            state.set(used.register().full_register().number(), Value::Unknown);
        }
    }
}
