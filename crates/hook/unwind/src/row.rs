//! One row of a function's unwind information, for only the registers that rules need: gimli
//! decodes the instructions, their effects are kept here in a few words.
//!
//! Source: DWARF 5 §6.4.

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CfaRule, EhFrame, EndianSlice,
    FrameDescriptionEntry, NativeEndian, Register, RegisterRule,
};

use crate::arch::REGISTERS;

type Bytes<'module> = EndianSlice<'module, NativeEndian>;
/// A function's description in `.eh_frame`.
pub(crate) type Description<'module> = FrameDescriptionEntry<Bytes<'module>>;

/// The maximum depth of remembered rows; compilers use a depth of one.
const REMEMBERED_MAX: usize = 4;

/// The rules for the CFA and the caller's registers at one address.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The CFA's rule.
    pub(crate) cfa: CfaRule<usize>,
    /// The registers' rules; `None` if a register is not mentioned.
    registers: [Option<RegisterRule<usize>>; REGISTERS.len()],
}

impl Row {
    const EMPTY: Row = Row {
        cfa: CfaRule::RegisterAndOffset { register: Register(u16::MAX), offset: 0 },
        registers: [const { None }; REGISTERS.len()],
    };

    /// Returns the row of an address. `None` if the description is broken, or uses instructions
    /// that do not occur in practice.
    pub(crate) fn at(
        address: u64,
        description: &Description<'_>,
        frames: &EhFrame<Bytes<'_>>,
        bases: &BaseAddresses,
    ) -> Option<Row> {
        let entry = description.cie();
        let mut evaluation = Evaluation {
            row: Row::EMPTY,
            initial: Row::EMPTY,
            remembered: [const { Row::EMPTY }; REMEMBERED_MAX],
            remembered_count: 0,
            at: description.initial_address(),
            code_unit: entry.code_alignment_factor(),
            data_unit: entry.data_alignment_factor(),
        };
        evaluation.run(entry.instructions(frames, bases), u64::MAX)?;
        evaluation.initial = evaluation.row.clone();
        evaluation.run(description.instructions(frames, bases), address)?;
        Some(evaluation.row)
    }

    /// Returns a register's rule; also `None` for registers that no rule needs.
    pub(crate) fn register(&self, register: Register) -> Option<RegisterRule<usize>> {
        REGISTERS.iter().zip(&self.registers).find(|&(&of, _)| of == register).and_then(|(_, rule)| rule.clone())
    }

    fn set(&mut self, register: Register, rule: Option<RegisterRule<usize>>) {
        if let Some((_, entry)) = REGISTERS.iter().zip(&mut self.registers).find(|&(&of, _)| of == register) {
            *entry = rule;
        }
    }
}

struct Evaluation {
    row: Row,
    initial: Row,
    remembered: [Row; REMEMBERED_MAX],
    remembered_count: usize,
    /// The first address of the row.
    at: u64,
    code_unit: u64,
    data_unit: i64,
}

impl Evaluation {
    /// Executes instructions up to the row of an address.
    fn run(&mut self, mut instructions: CallFrameInstructionIter<'_, Bytes<'_>>, address: u64) -> Option<()> {
        use CallFrameInstruction as Do;
        while let Some(instruction) = instructions.next().ok()? {
            match instruction {
                Do::SetLoc { address: next } if next > address => return Some(()),
                Do::SetLoc { address: next } => self.at = next,
                Do::AdvanceLoc { delta } => {
                    let next = self.at.wrapping_add(u64::from(delta).wrapping_mul(self.code_unit));
                    if next > address {
                        return Some(());
                    }
                    self.at = next;
                }
                Do::DefCfa { register, offset } => self.set_cfa(register, offset as i64),
                Do::DefCfaSf { register, factored_offset } => self.set_cfa(register, self.scaled(factored_offset)),
                Do::DefCfaRegister { register } => {
                    let CfaRule::RegisterAndOffset { offset, .. } = self.row.cfa else { return None };
                    self.set_cfa(register, offset);
                }
                Do::DefCfaOffset { offset } => self.set_cfa_offset(offset as i64)?,
                Do::DefCfaOffsetSf { factored_offset } => self.set_cfa_offset(self.scaled(factored_offset))?,
                Do::DefCfaExpression { expression } => self.row.cfa = CfaRule::Expression(expression),
                Do::Undefined { register } => self.row.set(register, Some(RegisterRule::Undefined)),
                Do::SameValue { register } => self.row.set(register, Some(RegisterRule::SameValue)),
                Do::Offset { register, factored_offset } => {
                    self.row.set(register, Some(RegisterRule::Offset(self.scaled(factored_offset as i64))));
                }
                Do::OffsetExtendedSf { register, factored_offset } => {
                    self.row.set(register, Some(RegisterRule::Offset(self.scaled(factored_offset))));
                }
                Do::ValOffset { register, factored_offset } => {
                    self.row.set(register, Some(RegisterRule::ValOffset(self.scaled(factored_offset as i64))));
                }
                Do::ValOffsetSf { register, factored_offset } => {
                    self.row.set(register, Some(RegisterRule::ValOffset(self.scaled(factored_offset))));
                }
                Do::Register { dest_register, src_register } => {
                    self.row.set(dest_register, Some(RegisterRule::Register(src_register)));
                }
                Do::Expression { register, expression } => {
                    self.row.set(register, Some(RegisterRule::Expression(expression)));
                }
                Do::ValExpression { register, expression } => {
                    self.row.set(register, Some(RegisterRule::ValExpression(expression)));
                }
                Do::Restore { register } => {
                    let rule = self.initial.register(register);
                    self.row.set(register, rule);
                }
                Do::RememberState => {
                    *self.remembered.get_mut(self.remembered_count)? = self.row.clone();
                    self.remembered_count += 1;
                }
                Do::RestoreState => {
                    self.remembered_count = self.remembered_count.checked_sub(1)?;
                    self.row = self.remembered.get(self.remembered_count)?.clone();
                }
                Do::ArgsSize { .. } | Do::Nop => {}
                _ => return None,
            }
        }
        Some(())
    }

    fn scaled(&self, factored: i64) -> i64 {
        factored.wrapping_mul(self.data_unit)
    }

    fn set_cfa(&mut self, register: Register, offset: i64) {
        self.row.cfa = CfaRule::RegisterAndOffset { register, offset };
    }

    fn set_cfa_offset(&mut self, offset: i64) -> Option<()> {
        let CfaRule::RegisterAndOffset { register, .. } = self.row.cfa else { return None };
        self.set_cfa(register, offset);
        Some(())
    }
}
