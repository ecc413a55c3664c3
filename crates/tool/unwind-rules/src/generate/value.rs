//! The knowledge about registers and the stack before an instruction.

use std::cmp::Ordering;

/// The numbers of registers, as the processor encodes them.
pub(crate) const RSP: usize = 4;
/// See [`RSP`].
pub(crate) const RBP: usize = 5;
/// The registers that a function leaves as they were (System V psABI, *Registers*), but rsp.
pub(crate) const CALLEE_SAVED: [usize; 6] = [3, RBP, 12, 13, 14, 15];
const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
/// The most places on the stack whose contents are known.
const SLOTS_MAX: usize = 64;

/// A value of 64 bits. The CFA is the address above the function's return address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Value {
    /// Anything.
    #[default]
    Unknown,
    /// The value of this register when the function was called.
    Entry(u8),
    /// The CFA and an offset.
    Cfa(i64),
    /// A number, or an address of the module.
    Constant(u64),
    /// An offset from the table of 32-bit offsets at this address, sign-extended.
    TableOffset(u64),
    /// The sum of an offset from the first address and the second one, which often is the same.
    TableTarget(u64, u64),
    /// An address from the table of 64-bit addresses at this address.
    TableAddress(u64),
}

impl Value {
    /// Returns the sum of a value and a number.
    pub(crate) fn plus(self, number: i64) -> Value {
        match self {
            Value::Cfa(offset) => offset.checked_add(number).map_or(Value::Unknown, Value::Cfa),
            Value::Constant(constant) => Value::Constant(constant.wrapping_add_signed(number)),
            _ if number == 0 => self,
            _ => Value::Unknown,
        }
    }
}

/// The knowledge about the registers and the stack before an instruction: it holds on every path to
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    registers: [Value; 16],
    /// The known words on the stack, by their offsets from the CFA, in order.
    slots: Vec<(i64, Value)>,
    /// True after a system call, on every path.
    pub(crate) has_called_kernel: bool,
}

impl State {
    /// Returns the state at the start of a function.
    pub(crate) fn entry() -> State {
        let mut registers = [Value::Unknown; 16];
        for register in CALLEE_SAVED {
            registers[register] = Value::Entry(register as u8);
        }
        registers[RSP] = Value::Cfa(-8);
        State { registers, slots: Vec::new(), has_called_kernel: false }
    }

    /// Returns a register's value.
    pub(crate) fn get(&self, register: usize) -> Value {
        self.registers.get(register).copied().unwrap_or_default()
    }

    /// Sets a register. What is below the stack pointer when it goes up is given up.
    pub(crate) fn set(&mut self, register: usize, value: Value) {
        if register == RSP
            && let (Some(before), Value::Cfa(after)) = (self.sp(), value)
            && after > before
        {
            self.slots.retain(|slot| slot.0 >= after);
        }
        if let Some(known) = self.registers.get_mut(register) {
            *known = value;
        }
    }

    /// Returns the offset of the stack pointer from the CFA, if it is known.
    pub(crate) fn sp(&self) -> Option<i64> {
        match self.get(RSP) {
            Value::Cfa(offset) => Some(offset),
            _ => None,
        }
    }

    /// Returns the word at an offset from the CFA.
    pub(crate) fn load(&self, offset: i64) -> Value {
        let found = self.slots.binary_search_by_key(&offset, |slot| slot.0);
        found.ok().and_then(|index| self.slots.get(index)).map_or(Value::Unknown, |slot| slot.1)
    }

    /// Notes that `size` bytes at an offset from the CFA are written; `value` counts if they are a
    /// word.
    pub(crate) fn store(&mut self, offset: i64, size: usize, value: Value) {
        let end = offset.saturating_add(size as i64);
        self.slots.retain(|&(at, _)| at.saturating_add(8) <= offset || at >= end);
        if size == 8 && value != Value::Unknown && self.slots.len() < SLOTS_MAX {
            let index = self.slots.partition_point(|slot| slot.0 < offset);
            self.slots.insert(index, (offset, value));
        }
    }

    /// Returns the place where a register was saved that still has the caller's value.
    pub(crate) fn saved(&self, register: usize) -> Option<i64> {
        let sp = self.sp().unwrap_or(i64::MIN);
        let is_saved = |slot: &&(i64, Value)| slot.0 >= sp && slot.1 == Value::Entry(register as u8);
        self.slots.iter().find(is_saved).map(|slot| slot.0)
    }

    /// Forgets what a called function may change: registers, and the stack below.
    pub(crate) fn call(&mut self) {
        for register in CALLER_SAVED {
            self.set(register, Value::Unknown);
        }
        let sp = self.sp().unwrap_or(i64::MIN);
        self.slots.retain(|&(offset, value)| offset >= sp && !matches!(value, Value::Constant(_)));
    }

    /// True if the stack pointer and all registers that a function leaves as they were are as at
    /// its start.
    pub(crate) fn is_as_at_entry(&self) -> bool {
        let is_kept = |&register: &usize| self.get(register) == Value::Entry(register as u8);
        self.sp() == Some(-8) && CALLEE_SAVED.iter().all(is_kept)
    }

    /// Keeps what is also known in another state. True if that is less than before.
    pub(crate) fn join(&mut self, other: &State) -> bool {
        let mut has_changed = false;
        for (own, other) in self.registers.iter_mut().zip(other.registers) {
            if *own != other && *own != Value::Unknown {
                *own = Value::Unknown;
                has_changed = true;
            }
        }
        let before = self.slots.len();
        let mut others = other.slots.iter().peekable();
        self.slots.retain(|slot| {
            while others.next_if(|other| other.0.cmp(&slot.0) == Ordering::Less).is_some() {}
            others.peek() == Some(&slot)
        });
        has_changed |= self.slots.len() != before;
        has_changed |= self.has_called_kernel && !other.has_called_kernel;
        self.has_called_kernel &= other.has_called_kernel;
        has_changed
    }
}
