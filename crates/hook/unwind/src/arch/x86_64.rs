//! x86-64: rules over rsp and rbp.
//!
//! Sources: System V psABI for AMD64 (register numbers, frame layout), DWARF 5 §6.4, and the layout of the kernel's
//! signal frame (`struct rt_sigframe`, `ucontext`).

use gimli::{CfaRule, EhFrame, EndianSlice, NativeEndian, Operation, Register, RegisterRule};

use crate::bounds::Stack;
use crate::rules::Row;

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);

/// The registers that rules need, as they are in one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    /// The address to look up: the return address less one, or the exact address in an interrupted frame.
    pub lookup: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer register.
    pub rbp: u64,
}

/// How to step out of a frame, in 30 bits: kind 3 │ frame offset/8 17, signed │ slot 10.
///
/// The *slot* says where rbp was saved: 0 not at all, otherwise at CFA − 8 × slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Rule(u32);

/// The kinds of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    /// The outermost frame.
    End = 0,
    /// CFA = rsp + offset.
    Rsp = 1,
    /// CFA = rbp + offset.
    Rbp = 2,
    /// CFA = *(rbp + offset); a slot other than 0 means rbp is saved at *rbp: how gcc realigns a stack.
    Deref = 3,
    /// A PLT entry: CFA = rsp + 8, and 8 more in the last 5 bytes of each 16.
    Plt = 4,
    /// The kernel's signal trampoline.
    Signal = 5,
    /// Nothing that 30 bits can say.
    Unsupported = 6,
}

impl Rule {
    /// For what cannot be expressed.
    pub const UNSUPPORTED: Rule = Rule(Kind::Unsupported as u32);
    /// For a frame that nobody called.
    pub const END: Rule = Rule(Kind::End as u32);
    /// Bits in use.
    pub const BITS: u32 = 30;

    const fn new(kind: Kind, offset: i64, slot: u64) -> Rule {
        let eighths = offset >> 3;
        if offset & 7 != 0 || eighths >= 1 << 16 || eighths < -(1 << 16) || slot >= 1 << 10 {
            return Rule::UNSUPPORTED;
        }
        Rule(kind as u32 | (eighths as u32 & 0x1ffff) << 3 | (slot as u32) << 20)
    }

    /// The rule of these bits.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Rule {
        Rule(bits)
    }

    /// The bits.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether it steps out of a signal handler.
    pub const fn is_signal(self) -> bool {
        self.kind() == Kind::Signal as u32
    }

    #[inline(always)]
    const fn kind(self) -> u32 {
        self.0 & 7
    }

    #[inline(always)]
    const fn offset(self) -> i64 {
        ((((self.0 << 12) as i32) >> 15) as i64) << 3
    }

    #[inline(always)]
    const fn slot(self) -> u64 {
        (self.0 >> 20) as u64 & 0x3ff
    }

    /// The rule that a row of unwind information states.
    pub(crate) fn from_row(
        row: &Row,
        is_signal: bool,
        section: &EhFrame<EndianSlice<'_, NativeEndian>>,
        encoding: gimli::Encoding,
    ) -> Rule {
        if is_signal {
            return Rule::new(Kind::Signal, 0, 0);
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
        match (row.cfa(), slot) {
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
                        (None, Some(RegisterRule::Expression(place))) => {
                            let Ok(place) = place.get(section) else { return Rule::UNSUPPORTED };
                            let mut operations = place.operations(encoding);
                            match (operations.next(), operations.next()) {
                                (Ok(Some(Operation::RegisterOffset { register: RBP, offset: 0, .. })), Ok(None)) => {
                                    Rule::new(Kind::Deref, offset, 1)
                                }
                                _ => Rule::UNSUPPORTED,
                            }
                        }
                        _ => Rule::UNSUPPORTED,
                    },
                    // The linker's description of a PLT starts like this; nothing else does.
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

/// What a step found. Not an enum: on the hot path it lives in registers.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The calling frame's registers, where there is one.
    pub caller: Registers,
    /// The word that held the caller's rbp: an address, or one of the constants below. The return address was in the
    /// word below the caller's sp.
    pub rbp_slot: u64,
    /// Whether the frame's own rbp was used to find all that.
    pub uses_rbp: bool,
}

/// The words that led to the caller cannot be told in this form.
pub const SLOT_UNKNOWN: u64 = 0;
/// rbp was not saved: the caller's is the same.
pub const SLOT_UNCHANGED: u64 = 1;
/// There is no caller: this is the thread's first frame.
pub const SLOT_END: u64 = 2;
/// The caller cannot be told.
pub const SLOT_LOST: u64 = 3;

impl Step {
    /// Whether there is a caller.
    #[inline(always)]
    pub fn is_caller(&self) -> bool {
        self.rbp_slot.wrapping_sub(SLOT_END) > SLOT_LOST - SLOT_END
    }

    const fn without_caller(rbp_slot: u64) -> Step {
        Step { caller: Registers { lookup: 0, sp: 0, rbp: 0 }, rbp_slot, uses_rbp: true }
    }
}

/// Steps from a frame to its caller by a rule. Reads the stack inside its bounds only.
#[inline(always)]
pub fn step(lookup: u64, sp: u64, rbp: u64, rule: Rule, stack: &mut Stack) -> Step {
    let kind = rule.kind();
    let base = if kind == Kind::Rsp as u32 {
        sp
    } else if kind == Kind::Rbp as u32 {
        rbp
    } else {
        return step_rarely(Registers { lookup, sp, rbp }, rule, stack);
    };
    let cfa = base.wrapping_add_signed(rule.offset());
    // Rules have offsets in multiples of 8, so only a wrong rbp can be unaligned.
    if cfa <= sp || cfa & 7 != 0 || !stack.covers_up_to(cfa) {
        return Step::without_caller(SLOT_LOST);
    }
    // SAFETY: `covers_up_to` has said that the words from the stack pointer up to here are readable stack memory.
    let return_address = unsafe { stack.read(cfa - 8) };
    if return_address == 0 {
        return Step::without_caller(SLOT_END);
    }
    let (mut caller_rbp, mut rbp_slot) = (rbp, SLOT_UNCHANGED);
    let slot = rule.slot();
    if slot != 0 {
        rbp_slot = cfa.wrapping_sub(slot << 3);
        if !stack.is_above_start(rbp_slot) {
            return Step::without_caller(SLOT_LOST);
        }
        // SAFETY: above the stack pointer where the walk began and below the CFA, which is covered.
        caller_rbp = unsafe { stack.read(rbp_slot) };
    }
    let caller = Registers { lookup: return_address.wrapping_sub(1), sp: cfa, rbp: caller_rbp };
    Step { caller, rbp_slot, uses_rbp: kind == Kind::Rbp as u32 }
}

#[cold]
#[inline(never)]
fn step_rarely(registers: Registers, rule: Rule, stack: &mut Stack) -> Step {
    let Registers { lookup, sp, rbp } = registers;
    let kind = rule.kind();
    let mut word = |address: u64| {
        (address & 7 == 0 && stack.covers(address)).then(|| {
            // SAFETY: `covers` has said that the word is readable stack memory.
            unsafe { stack.read(address) }
        })
    };
    if kind == Kind::End as u32 {
        return Step::without_caller(SLOT_END);
    }
    let caller = if kind == Kind::Signal as u32 {
        // sp points at the ucontext; its saved registers start at 40: …, rbp at 120, …, rsp at 160, rip at 168.
        let saved = (word(sp.wrapping_add(120)), word(sp.wrapping_add(160)), word(sp.wrapping_add(168)));
        let (Some(rbp), Some(sp), Some(rip)) = saved else { return Step::without_caller(SLOT_LOST) };
        // The interrupted frame may be on another stack.
        stack.enter(sp);
        Some(Registers { lookup: rip, sp, rbp })
    } else {
        let cfa = if kind == Kind::Deref as u32 {
            word(rbp.wrapping_add_signed(rule.offset()))
        } else if kind == Kind::Plt as u32 {
            Some(sp.wrapping_add(if lookup & 15 >= 11 { 16 } else { 8 }))
        } else {
            None
        };
        let saved_rbp = if rule.slot() == 0 { Some(rbp) } else { word(rbp) };
        match (cfa, saved_rbp) {
            (Some(cfa), Some(rbp)) if cfa > sp => match word(cfa.wrapping_sub(8)) {
                Some(0) => return Step::without_caller(SLOT_END),
                return_address => {
                    return_address.map(|address| Registers { lookup: address.wrapping_sub(1), sp: cfa, rbp })
                }
            },
            _ => None,
        }
    };
    match caller {
        Some(caller) => Step { caller, rbp_slot: SLOT_UNKNOWN, uses_rbp: true },
        None => Step::without_caller(SLOT_LOST),
    }
}

/// A context for evaluating unwind information is large; see [`crate::rules`].
pub(crate) const RULES_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_pack() {
        for (offset, slot) in [(8, 0), (16, 2), (-8, 1), (65_528 * 8, 1023), (-(1 << 16) * 8, 0)] {
            let rule = Rule::new(Kind::Rbp, offset, slot);
            assert_eq!((rule.kind(), rule.offset(), rule.slot()), (Kind::Rbp as u32, offset, slot));
            assert!(rule.bits() < 1 << Rule::BITS);
        }
        assert_eq!(Rule::new(Kind::Rsp, 12, 0), Rule::UNSUPPORTED);
        assert_eq!(Rule::new(Kind::Rsp, 1 << 20, 0), Rule::UNSUPPORTED);
        assert_eq!(Rule::new(Kind::Rsp, 8, 1 << 10), Rule::UNSUPPORTED);
    }
}
