//! x86-64: rules over rsp and rbp.
//!
//! Sources: System V psABI for AMD64 (register numbers, frame layout), DWARF 5 §6.4, and the layout
//! of the kernel's signal frame (`struct rt_sigframe`, `ucontext`).

use gimli::{CfaRule, EhFrame, EndianSlice, NativeEndian, Operation, Register, RegisterRule};

use crate::bounds::Stack;
use crate::row::Row;

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);
/// The registers whose rules are kept.
pub(crate) const REGISTERS: [Register; 2] = [RBP, RETURN_ADDRESS];

/// A frame, and the registers that rules need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FrameRegisters {
    /// The address of the word below the frame's stack pointer, which held the return address that
    /// led into the frame.
    pub slot: u64,
    /// That return address, which is one more than the address to look up; for an interrupted frame
    /// too.
    pub return_address: u64,
    /// The frame's rbp.
    pub rbp: u64,
}

impl FrameRegisters {
    /// Returns the frame's stack pointer.
    #[inline(always)]
    pub const fn sp(&self) -> u64 {
        self.slot.wrapping_add(8)
    }
}

/// A rule for stepping out of a frame, in 30 bits: words to the caller's return address 17 │ words
/// from there to rbp 10 │ kind 3.
///
/// The caller's *return address* is the one that leads into the caller. The first field is the
/// distance to it from the frame's own return address, or, for rules by rbp, the signed distance
/// from where rbp points to the CFA, just above it. The second field says how far below it rbp was
/// saved; 0 if it was not. Rules by rsp have kind 0 and are checked when they are made: the words
/// that they name lie inside the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Rule(u32);

/// The kinds of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    /// CFA = rsp + offset.
    Rsp = 0,
    /// CFA = rbp + offset.
    Rbp = 1,
    /// The outermost frame.
    End = 2,
    /// CFA = *(rbp + offset); rbp is saved at *rbp, or not at all. gcc realigns stacks so.
    Deref = 3,
    /// A PLT entry: CFA = rsp + 8, and 8 more in the last 5 bytes of each 16.
    Plt = 4,
    /// The kernel's signal trampoline.
    Signal = 5,
    /// A rule that 30 bits cannot express.
    Unsupported = 6,
    /// CFA = rbp + offset, without proof that rbp is the frame pointer.
    FramePointer = 7,
}

const DISTANCE_BITS: u32 = 17;
const SAVED_BITS: u32 = 10;
const KIND_SHIFT: u32 = DISTANCE_BITS + SAVED_BITS;

impl Rule {
    /// The rule for a frame whose unwind information cannot be expressed.
    pub const UNSUPPORTED: Rule = Rule((Kind::Unsupported as u32) << KIND_SHIFT);
    /// The rule for an address at which nothing is executed: no frame has it.
    pub const NOT_CODE: Rule = Rule((Kind::Unsupported as u32) << KIND_SHIFT | 1);
    /// The rule for a frame in code without unwind information: its frame pointer leads to the
    /// words that `push %rbp; mov %rsp,%rbp` leaves (psABI, *The Stack Frame*).
    pub const FRAME_POINTER: Rule = Rule(2 | 1 << DISTANCE_BITS | (Kind::FramePointer as u32) << KIND_SHIFT);
    /// The rule for a frame that has eight bytes of its own: CFA = rsp + 16.
    pub const TRAMPOLINE: Rule = Rule(2 | (Kind::Rsp as u32) << KIND_SHIFT);
    /// The rule for a frame without caller.
    pub const END: Rule = Rule((Kind::End as u32) << KIND_SHIFT);
    /// The number of bits in use.
    pub const BITS: u32 = KIND_SHIFT + 3;
    /// The end of the rules by rsp, as bits; they are all below it.
    pub const BY_RSP_END: u64 = 1 << KIND_SHIFT;
    /// The end of the rules by rbp, as bits; they are between [`Rule::BY_RSP_END`] and this.
    pub const BY_RBP_END: u64 = 2 << KIND_SHIFT;

    /// Returns a rule with an offset of the CFA; `saved` is the distance in words below the CFA at
    /// which rbp was saved, 0 if it was not.
    fn new(kind: Kind, offset: i64, saved: u64) -> Rule {
        let words = offset >> 3;
        // The word below the CFA is the return address.
        let fits = match kind {
            Kind::Rsp => words > 0 && words < 1 << DISTANCE_BITS && saved <= words as u64,
            _ => (-(1 << (DISTANCE_BITS - 1))..1 << (DISTANCE_BITS - 1)).contains(&words),
        };
        if offset & 7 != 0 || !fits || saved == 1 || saved > 1 << SAVED_BITS {
            return Rule::UNSUPPORTED;
        }
        let words = words as u32 & ((1 << DISTANCE_BITS) - 1);
        Rule(words | (saved.saturating_sub(1) as u32) << DISTANCE_BITS | (kind as u32) << KIND_SHIFT)
    }

    /// Returns the rule of these bits.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Rule {
        Rule(bits)
    }

    /// Returns the bits of the rule.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// True if it steps out of a signal handler.
    pub const fn is_signal(self) -> bool {
        self.kind() == Kind::Signal as u32
    }

    /// True if nothing proves that the step leads to the caller.
    #[inline(always)]
    pub const fn is_unproven(self) -> bool {
        self.kind() == Kind::FramePointer as u32
    }

    #[inline(always)]
    const fn kind(self) -> u32 {
        self.0 >> KIND_SHIFT
    }

    /// Returns the distance in bytes from a frame's return address to its caller's. For a rule by
    /// rsp.
    #[inline(always)]
    pub const fn distance(self) -> u64 {
        ((self.0 & ((1 << DISTANCE_BITS) - 1)) as u64) << 3
    }

    /// Returns the distance in bytes from where rbp points to the CFA.
    #[inline(always)]
    pub const fn offset_from_rbp(self) -> i64 {
        (((self.0 << (32 - DISTANCE_BITS)) as i32) >> (32 - DISTANCE_BITS)) as i64 * 8
    }

    /// Returns the distance in bytes from the saved rbp up to the caller's return address; 0 if it
    /// was not saved. For a rule by rsp or rbp.
    #[inline(always)]
    pub const fn saved(self) -> u64 {
        (self.0 >> DISTANCE_BITS & ((1 << SAVED_BITS) - 1)) as u64 * 8
    }

    /// Returns the words of the stack, other than return addresses, and the use of rbp that a step
    /// by this rule depends on.
    pub fn uses(self, rbp: u64) -> Uses {
        let kind = self.kind();
        if kind == Kind::Deref as u32 {
            let saved = if self.saved() == 0 { Saved::Nowhere } else { Saved::At(rbp) };
            return Uses { rbp: true, cfa_at: Some(rbp.wrapping_add_signed(self.offset_from_rbp())), saved };
        }
        let saved = if self.saved() == 0 { Saved::Nowhere } else { Saved::BelowReturnAddress(self.saved()) };
        Uses { rbp: kind == Kind::Rbp as u32 || self.is_unproven(), cfa_at: None, saved }
    }

    /// Returns the rule to remember for a step by this rule that has failed. It depends on rbp as
    /// this one does, but on no word of the stack: the words may be unreadable.
    pub fn without_words(self) -> Rule {
        let uses_rbp = self.uses(0).rbp;
        if uses_rbp { Rule((Kind::Rbp as u32) << KIND_SHIFT) } else { Rule::END }
    }

    /// Returns the rule that a row of unwind information states.
    pub(crate) fn from_row(
        row: &Row,
        is_signal: bool,
        section: &EhFrame<EndianSlice<'_, NativeEndian>>,
        encoding: gimli::Encoding,
    ) -> Rule {
        if is_signal {
            return Rule((Kind::Signal as u32) << KIND_SHIFT);
        }
        match row.register(RETURN_ADDRESS) {
            Some(RegisterRule::Undefined) => return Rule::END,
            Some(RegisterRule::Offset(-8)) => {}
            _ => return Rule::UNSUPPORTED,
        }
        let saved = row.register(RBP);
        let slot = match saved {
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(0),
            Some(RegisterRule::Offset(offset)) if offset < 0 && offset & 7 == 0 => Some(offset.unsigned_abs() >> 3),
            _ => None,
        };
        match (&row.cfa, slot) {
            (&CfaRule::RegisterAndOffset { register: RSP, offset }, Some(slot)) => Rule::new(Kind::Rsp, offset, slot),
            (&CfaRule::RegisterAndOffset { register: RBP, offset }, Some(slot)) => Rule::new(Kind::Rbp, offset, slot),
            (CfaRule::Expression(expression), slot) => {
                let Ok(expression) = expression.get(section) else { return Rule::UNSUPPORTED };
                let mut operations = expression.operations(encoding);
                let mut next = || operations.next().ok().flatten();
                match (next(), next(), next()) {
                    (
                        Some(Operation::RegisterOffset { register: RBP, offset, .. }),
                        Some(Operation::Deref { .. }),
                        None,
                    ) => match (slot, saved) {
                        (Some(0), _) => Rule::new(Kind::Deref, offset, 0),
                        (None, Some(RegisterRule::Expression(location))) => {
                            let Ok(location) = location.get(section) else { return Rule::UNSUPPORTED };
                            let mut operations = location.operations(encoding);
                            match (operations.next(), operations.next()) {
                                (Ok(Some(Operation::RegisterOffset { register: RBP, offset: 0, .. })), Ok(None)) => {
                                    Rule::new(Kind::Deref, offset, 2)
                                }
                                _ => Rule::UNSUPPORTED,
                            }
                        }
                        _ => Rule::UNSUPPORTED,
                    },
                    // The linker's description of a PLT starts like this; no other does.
                    (
                        Some(Operation::RegisterOffset { register: RSP, offset: 8, .. }),
                        Some(Operation::RegisterOffset { register: RETURN_ADDRESS, offset: 0, .. }),
                        Some(Operation::UnsignedConstant { value: 15 }),
                    ) => Rule::new(Kind::Plt, 0, 0),
                    _ => Rule::UNSUPPORTED,
                }
            }
            _ => Rule::UNSUPPORTED,
        }
    }
}

/// The dependencies of a step: see [`Rule::uses`].
#[derive(Clone, Copy, Debug)]
pub struct Uses {
    /// True if the frame's rbp was used.
    pub rbp: bool,
    /// The address of the word that held the CFA, if there was one.
    pub cfa_at: Option<u64>,
    /// The location of the word that held the caller's rbp.
    pub saved: Saved,
}

/// The location where a frame keeps its caller's rbp.
#[derive(Clone, Copy, Debug)]
pub enum Saved {
    /// Not saved: the caller's rbp is the same.
    Nowhere,
    /// At this number of bytes below the caller's return address.
    BelowReturnAddress(u64),
    /// At this address.
    At(u64),
}

/// The result of stepping out of a frame.
#[derive(Clone, Copy, Debug)]
pub enum StepResult {
    /// The caller, whose rule is to be looked up by its return address.
    Caller(FrameRegisters),
    /// An interrupted frame.
    Interrupted(FrameRegisters),
    /// There is no caller: this is the thread's first frame.
    End,
    /// The caller cannot be found.
    Lost,
}

/// Steps out of a frame by any rule. Reads the stack only within its bounds.
#[inline(never)]
pub fn step_out(from: FrameRegisters, rule: Rule, stack: &mut Stack) -> StepResult {
    let FrameRegisters { slot, return_address, rbp } = from;
    let kind = rule.kind();
    if kind == Kind::End as u32 {
        return StepResult::End;
    }
    if kind == Kind::Signal as u32 {
        // sp points at the ucontext; its saved registers start at 40: …, rbp at 120, …, rsp at 160,
        // rip at 168.
        let sp = slot.wrapping_add(8);
        let mut saved = |offset: u64| stack.word(sp.wrapping_add(offset));
        let (Some(rbp), Some(sp), Some(rip)) = (saved(120), saved(160), saved(168)) else { return StepResult::Lost };
        if sp & 7 != 0 {
            return StepResult::Lost;
        }
        // The interrupted frame may be on another stack.
        stack.enter(sp);
        return StepResult::Interrupted(FrameRegisters {
            slot: sp.wrapping_sub(8),
            return_address: rip.wrapping_add(1),
            rbp,
        });
    }
    let caller_slot = if kind == Kind::Rsp as u32 {
        Some(slot.wrapping_add(rule.distance()))
    } else if kind == Kind::Rbp as u32 {
        Some(rbp.wrapping_add_signed(rule.offset_from_rbp()).wrapping_sub(8))
    } else if rule.is_unproven() {
        stack.distrust();
        // The frame pointer of a frame is not below the frame.
        (rbp > slot).then(|| rbp.wrapping_add(8))
    } else if kind == Kind::Deref as u32 {
        stack.word(rbp.wrapping_add_signed(rule.offset_from_rbp())).map(|cfa| cfa.wrapping_sub(8))
    } else if kind == Kind::Plt as u32 {
        Some(slot.wrapping_add(if return_address.wrapping_sub(1) & 15 >= 11 { 16 } else { 8 }))
    } else {
        None
    };
    let Some(caller_slot) = caller_slot.filter(|&caller_slot| caller_slot > slot) else { return StepResult::Lost };
    let caller_rbp = match rule.uses(rbp).saved {
        Saved::Nowhere => Some(rbp),
        Saved::BelowReturnAddress(distance) => stack.word(caller_slot.wrapping_sub(distance)),
        Saved::At(address) => stack.word(address),
    };
    match (stack.word(caller_slot), caller_rbp) {
        (Some(return_address), Some(rbp)) => {
            StepResult::Caller(FrameRegisters { slot: caller_slot, return_address, rbp })
        }
        _ => StepResult::Lost,
    }
}

#[cfg(test)]
mod tests;
