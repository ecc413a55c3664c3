//! Unwind information for code that has none, from the code alone.
//!
//! A function's instructions are followed from its start along all paths, with what is known about
//! registers and the stack before each: an abstract interpretation, in which a value is known on
//! every path or not at all. Where the CFA and the caller's rbp are known, there is a rule.
//!
//! Functions are checked: at each `ret` the stack and the registers that a function leaves alone
//! (System V psABI) are as they were at its start. If they are not, there is no rule for any of its
//! code. So a rule is wrong only if code does what neither compilers nor the ABI do.
//!
//! Functions begin at symbols, at the addresses that are called, and where descriptions of
//! neighbours begin. An address that is only mentioned, and code that nothing leads to, may be a
//! function: it counts as one if it returns with everything as it was, and if its code contradicts
//! no other rule. A function that never returns cannot be checked so: an address that is mentioned
//! counts as one if it also begins by saving registers of its caller, and one that another function
//! calls counts as one.

mod code;
mod effect;
mod encode;
mod frame_pointers;
mod function;
mod value;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register};

use crate::described::{Described, Elf};
use code::Code;
use function::{Context, Function, Row, Rule, follow};

/// The bytes of uncovered code from which on all other code is searched for calls of it.
const SEARCHED_MIN: u64 = 2048;
/// The number of instructions that are looked at: in any file, and more for each byte of uncovered
/// code. The files of usual compilers need a tenth of it; others get fewer rules.
const BUDGET_MIN: u64 = 1 << 20;
const BUDGET_PER_BYTE: u64 = 64;
/// The most times that all functions are followed.
const ROUNDS_MAX: usize = 4;
/// The fewest registers that a function saves which never returns and is only mentioned.
const SAVED_MIN: usize = 3;
/// The registers that a function leaves alone, or saves (System V psABI).
const SAVED_REGISTERS: [Register; 6] =
    [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
/// The number of instructions at the beginning of a function among which it saves registers.
const BEGINNING: usize = 16;
/// The most places of the code to which a signal handler returns.
const SIGNAL_RETURNS_MAX: usize = 16;
/// The code to which a signal handler returns: `mov $15, %rax` or `mov $15, %eax`, then `syscall`.
/// Number 15 is `rt_sigreturn`.
const SIGNAL_RETURNS: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];

/// Unwind information that was generated from code.
#[derive(Clone, Debug, Default)]
pub struct Generated {
    /// An `.eh_frame` whose addresses are offsets from the start of the module.
    pub(crate) frames: Vec<u8>,
    /// Its index: pairs as [`heapledger_wire::module_table`] has them.
    pub(crate) pairs: Vec<[u8; 8]>,
}

/// Generates rules for the code that no description covers. `None` if there is none. In the result
/// the address `base` is 0.
pub(crate) fn uncovered(file: &Elf<'_>, others: &[&[u8]], covered: &[Described], base: u64) -> Option<Generated> {
    let rows = rows(file, others, covered);
    let generated = encode::encode(&rows, base);
    (!generated.pairs.is_empty()).then_some(generated)
}

/// Returns the parts of a file's code that no description covers, in order, and the bytes of all
/// its code.
pub(crate) fn gaps(file: &Elf<'_>, covered: &[Described]) -> (Vec<(u64, u64)>, u64) {
    let code = Code::of_sections(file);
    (code.uncovered(covered), code.length())
}

/// True if the functions in these parts of a file's code keep frame pointers, as far as a sample of
/// them says.
pub(crate) fn are_frame_pointers_kept(file: &Elf<'_>, parts: &[(u64, u64)]) -> bool {
    frame_pointers::are_kept(&Code::of_sections(file), parts)
}

/// Returns the rules of the instructions that no description covers, in order.
pub(crate) fn rows(file: &Elf<'_>, others: &[&[u8]], covered: &[Described]) -> Vec<Row> {
    let mut code = Code::read(file, others);
    let gaps = code.uncovered(covered);
    if gaps.is_empty() {
        return Vec::new();
    }
    let is_uncovered = |address: u64| {
        let after = gaps.partition_point(|gap| gap.0 <= address);
        after.checked_sub(1).and_then(|index| gaps.get(index)).is_some_and(|gap| address < gap.1)
    };
    if gaps.iter().map(|(from, to)| to - from).sum::<u64>() >= SEARCHED_MIN {
        search(&mut code, covered);
    }
    code.starts.extend(covered.iter().map(|function| function.start));
    let budget = BUDGET_MIN + BUDGET_PER_BYTE * gaps.iter().map(|(from, to)| to - from).sum::<u64>();
    let mut functions = Functions {
        starts: std::mem::take(&mut code.starts),
        endings: std::mem::take(&mut code.endings),
        references: std::mem::take(&mut code.references),
        budget: Cell::new(budget),
        ..Functions::default()
    };
    functions.follow_certain(&code, &is_uncovered);
    functions.follow_likely(&code, &is_uncovered);
    functions.follow_gaps(&code, &gaps);
    let mut rows = functions.rows();
    rows.retain(|row| is_uncovered(row.start));
    add_signal_returns(&code, &is_uncovered, &mut rows);
    rows
}

/// Returns the addresses to which branches with a condition lead: they are inside of functions.
fn inner_targets(code: &Code<'_>, gaps: &[(u64, u64)]) -> HashSet<u64> {
    let mut targets = HashSet::new();
    for &(from, to) in gaps {
        let Some((start, bytes)) = code.section(from) else { continue };
        let bytes = bytes.get((from - start) as usize..(to - start) as usize).unwrap_or(&[]);
        for instruction in &mut Decoder::with_ip(64, bytes, from, DecoderOptions::NONE) {
            if instruction.flow_control() == FlowControl::ConditionalBranch {
                targets.insert(instruction.near_branch64());
            }
        }
    }
    targets
}

/// Searches code that has descriptions for calls and mentions of other code.
fn search(code: &mut Code<'_>, covered: &[Described]) {
    let (mut calls, mut references) = (Vec::new(), Vec::new());
    // Descriptions may overlap in damaged files only.
    let mut left = 2 * code.length();
    for function in covered {
        let Some((start, bytes)) = code.section(function.start) else { continue };
        let from = (function.start - start) as usize;
        let to = from.saturating_add((function.end - function.start) as usize).min(bytes.len());
        let bytes = bytes.get(from..to).unwrap_or(&[]);
        left = left.saturating_sub(bytes.len() as u64);
        if left == 0 {
            break;
        }
        for instruction in &mut Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE) {
            if instruction.mnemonic() == Mnemonic::Call && instruction.op0_kind() == OpKind::NearBranch64 {
                calls.push(instruction.near_branch64());
            } else if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
                references.push(instruction.ip_rel_memory_address());
            }
        }
    }
    calls.retain(|&address| code.contains(address));
    references.retain(|&address| code.contains(address));
    code.starts.extend(calls);
    code.references.extend(references);
}

/// The reason to look for a function at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    /// A call in another function.
    Called,
    /// A number in code or data.
    Mentioned,
    /// Nothing that is known.
    None,
}

/// The functions of a file.
#[derive(Debug, Default)]
struct Functions {
    /// Where functions begin.
    starts: BTreeSet<u64>,
    /// The functions that never return.
    endings: BTreeSet<u64>,
    /// The addresses that may be functions'.
    references: BTreeSet<u64>,
    /// The functions that were followed; `None` if something in them is contradictory.
    followed: BTreeMap<u64, Option<Function>>,
    /// The functions that never return, to which nothing has led yet that only leads to functions.
    doubtful: HashSet<u64>,
    /// The number of instructions that may still be looked at.
    budget: Cell<u64>,
    /// The rule of each instruction; `None` inside if functions differ about it.
    known: HashMap<u64, Row>,
}

impl Functions {
    fn context<'a>(&'a self, code: &'a Code<'a>, is_certain: bool) -> Context<'a> {
        Context { code, starts: &self.starts, endings: &self.endings, budget: &self.budget, is_certain }
    }

    /// Follows the functions whose starts are certain, and those that they call, until it is known
    /// where all of them begin, and which of them return.
    fn follow_certain(&mut self, code: &Code<'_>, is_uncovered: &impl Fn(u64) -> bool) {
        for _ in 0..ROUNDS_MAX {
            let (starts, endings) = (self.starts.clone(), self.endings.clone());
            let mut work: Vec<u64> = starts.iter().copied().filter(|&start| is_uncovered(start)).collect();
            while let Some(start) = work.pop() {
                if self.followed.contains_key(&start) {
                    continue;
                }
                let function = follow(start, self.context(code, true));
                if let Some(function) = &function {
                    let new = function.calls.iter().copied().filter(|call| !self.starts.contains(call));
                    work.extend(new.filter(|&call| is_uncovered(call)));
                    self.starts.extend(function.calls.iter().copied());
                    self.references.extend(function.references.iter().copied());
                    if !function.may_return {
                        self.endings.insert(start);
                    }
                }
                self.followed.insert(start, function);
            }
            let new_starts: BTreeSet<u64> = self.starts.difference(&starts).copied().collect();
            let new_endings: BTreeSet<u64> = self.endings.difference(&endings).copied().collect();
            if new_starts.is_empty() && new_endings.is_empty() {
                break;
            }
            // The others would be followed in the same way again.
            self.followed.retain(|&start, function| {
                function.as_ref().is_some_and(|function| {
                    function.calls.is_disjoint(&new_endings) && !function.has_any(start, &new_starts)
                })
            });
        }
        for function in self.followed.values().flatten() {
            for row in &function.rows {
                enter(&mut self.known, *row);
            }
        }
    }

    /// Follows what may be functions because their addresses are mentioned.
    fn follow_likely(&mut self, code: &Code<'_>, is_uncovered: &impl Fn(u64) -> bool) {
        // The last one is first: then it is known where a function ends whose last call does not
        // return.
        let references = self.references.iter().filter(|&&address| is_uncovered(address));
        let mut work: Vec<(u64, Lead)> = references.map(|&address| (address, Lead::Mentioned)).collect();
        while let Some((start, lead)) = work.pop() {
            let others = self.try_function(start, lead, code);
            work.extend(others.into_iter().filter(|&(address, _)| is_uncovered(address)));
        }
    }

    /// Follows code to which nothing leads, where it begins behind the end of other code.
    fn follow_gaps(&mut self, code: &Code<'_>, gaps: &[(u64, u64)]) {
        let inner = inner_targets(code, gaps);
        for &(from, to) in gaps {
            // The beginning of uncovered code is where a description ends.
            let (mut at, mut is_behind_end) = (from, true);
            while at < to {
                if let Some(row) = self.known.get(&at) {
                    at = row.end.max(at + 1);
                    is_behind_end = true;
                    continue;
                }
                let Some(bytes) = code.instruction(at) else { break };
                let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
                if instruction.is_invalid() {
                    at += 1;
                    continue;
                }
                let is_padding = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
                if is_behind_end && !is_padding && !inner.contains(&at) {
                    let mut work = vec![(at, Lead::None)];
                    while let Some((start, lead)) = work.pop() {
                        work.extend(self.try_function(start, lead, code));
                    }
                    if self.known.contains_key(&at) {
                        continue;
                    }
                }
                is_behind_end &= is_padding;
                is_behind_end |= matches!(
                    instruction.flow_control(),
                    FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::Exception
                );
                at = instruction.next_ip();
            }
        }
    }

    /// Follows what may be a function, and keeps it if it is one. Returns other addresses that may
    /// be, and what leads to them.
    fn try_function(&mut self, start: u64, lead: Lead, code: &Code<'_>) -> Vec<(u64, Lead)> {
        if self.known.contains_key(&start) || self.followed.contains_key(&start) {
            return Vec::new();
        }
        // A call may lead there yet.
        if self.doubtful.contains(&start) && lead != Lead::Called {
            return Vec::new();
        }
        let mut is_doubtful = false;
        let function = follow(start, self.context(code, false)).filter(|function| {
            let agrees = |row: &Row| self.known.get(&row.start).is_none_or(|known| known == row);
            let begins_here = || match lead {
                Lead::Called => true,
                Lead::Mentioned => saved(code, start) >= SAVED_MIN,
                Lead::None => false,
            };
            let is_whole = function.returns || !function.may_return;
            let is_sound =
                is_whole && !function.is_left_open && !function.uses_callers && function.rows.iter().all(agrees);
            is_doubtful = is_sound && !function.returns && !begins_here();
            is_sound && !is_doubtful
        });
        let Some(function) = function else {
            if is_doubtful {
                self.doubtful.insert(start);
            } else {
                self.followed.insert(start, None);
            }
            return Vec::new();
        };
        for row in &function.rows {
            enter(&mut self.known, *row);
        }
        self.starts.insert(start);
        // The one that is popped first is called.
        let mentioned = function.references.iter().map(|&address| (address, Lead::Mentioned));
        let others = mentioned.chain(function.calls.iter().map(|&address| (address, Lead::Called)));
        let others = others.filter(|(address, _)| !self.followed.contains_key(address)).collect();
        self.followed.insert(start, Some(function));
        others
    }

    /// Returns all rules, in order. Instructions that overlap have none.
    fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.known.values().copied().collect();
        rows.sort_unstable_by_key(|row| row.start);
        let mut kept: Vec<Row> = Vec::with_capacity(rows.len());
        for row in rows {
            match kept.last_mut() {
                // Behind a `lock`, an instruction is also one without.
                Some(last) if last.end > row.start => {
                    if last.rule != row.rule || last.end != row.end {
                        last.rule = None;
                        last.end = last.end.max(row.end);
                    }
                }
                _ => kept.push(row),
            }
        }
        kept
    }
}

/// Returns the number of registers that code saves at its beginning, of those that functions leave
/// alone.
fn saved(code: &Code<'_>, start: u64) -> usize {
    let Some((section, bytes)) = code.section(start) else { return 0 };
    let bytes = bytes.get((start - section) as usize..).unwrap_or(&[]);
    let mut saved = BTreeSet::new();
    for instruction in Decoder::with_ip(64, bytes, start, DecoderOptions::NONE).iter().take(BEGINNING) {
        if instruction.flow_control() != FlowControl::Next {
            break;
        }
        if instruction.mnemonic() == Mnemonic::Push && SAVED_REGISTERS.contains(&instruction.op0_register()) {
            saved.insert(instruction.op0_register() as usize);
        }
    }
    saved.len()
}

/// Enters the rule of an instruction. If another one is known, none is certain.
fn enter(known: &mut HashMap<u64, Row>, row: Row) {
    let entered = known.entry(row.start).or_insert(row);
    if *entered != row {
        entered.rule = None;
    }
}

/// Adds the rule of the code to which signal handlers return. It is looked up one byte before its
/// start, as all return addresses.
fn add_signal_returns(code: &Code<'_>, is_uncovered: &impl Fn(u64) -> bool, rows: &mut Vec<Row>) {
    let mut found = Vec::new();
    for (start, bytes) in code.sections() {
        for pattern in SIGNAL_RETURNS {
            let places = bytes.windows(pattern.len()).enumerate().filter(|(_, window)| *window == pattern);
            found.extend(places.map(|(offset, window)| (start + offset as u64, window.len() as u64)));
        }
    }
    for (at, length) in found.into_iter().take(SIGNAL_RETURNS_MAX) {
        if !is_uncovered(at) || at == 0 {
            continue;
        }
        let row = Row { start: at - 1, end: at + length, rule: Some(Rule::Signal) };
        rows.retain(|other| other.end <= row.start || other.start >= row.end);
        let index = rows.partition_point(|other| other.start < row.start);
        rows.insert(index, row);
    }
}

#[cfg(test)]
mod tests;
