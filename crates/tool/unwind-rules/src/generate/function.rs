//! Follows the control flow of one function, and finds what is known before each instruction.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::code::Code;
use super::effect::{Flow, apply};
use super::value::{CALLEE_SAVED, RBP, RSP, State, Value};

/// The most instructions of a function.
const INSTRUCTIONS_MAX: usize = 200_000;
/// The most times that an instruction is looked at, on average.
const VISITS_MAX: usize = 24;
/// The most calls that are found not to return.
const ENDINGS_MAX: usize = 64;
/// The most entries of a table whose length is not known.
const TABLE_MAX: u64 = 1024;
/// The most bytes of a function in which mentioned addresses are looked for.
const MENTIONED_MAX: u64 = 1 << 18;
/// The number of instructions before a jump among which the table's length is looked for.
const LIMIT_DISTANCE: usize = 24;

/// A rule for leaving a frame: the CFA, and where the caller's rbp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The CFA is rsp and an offset, and rbp and another one, as far as they are known: one is.
    Cfa {
        /// The offset from rsp.
        by_rsp: Option<i64>,
        /// The offset from rbp.
        by_rbp: Option<i64>,
        /// The offset from the CFA at which rbp was saved; `None` if it is still the caller's.
        saved: Option<i64>,
    },
    /// There is no caller.
    End,
    /// The kernel's signal frame.
    Signal,
}

/// The rule of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `None` if no rule is certain.
    pub(crate) rule: Option<Rule>,
}

/// A function as its control flow shows it.
#[derive(Debug, Default)]
pub(crate) struct Function {
    /// Its instructions, in order.
    pub(crate) rows: Vec<Row>,
    /// The functions that it calls.
    pub(crate) calls: BTreeSet<u64>,
    /// The addresses of code that it uses as numbers.
    pub(crate) references: BTreeSet<u64>,
    /// True if it returns, or jumps to another function, with everything as it was at its start.
    pub(crate) returns: bool,
    /// True if it jumps elsewhere although not everything is as it was.
    pub(crate) is_left_open: bool,
    /// True if it uses a register that only its caller has set, other than to save it: then it is
    /// a part of another function. Not looked for if its start is certain.
    pub(crate) uses_callers: bool,
    /// True if it may return, itself or by a function that it jumps to.
    pub(crate) may_return: bool,
}

impl Function {
    /// True if one of its instructions, other than the one at its `start`, is at one of these
    /// addresses.
    pub(crate) fn has_any(&self, start: u64, addresses: &BTreeSet<u64>) -> bool {
        let (Some(first), Some(last)) = (self.rows.first(), self.rows.last()) else { return false };
        let has = |address: &u64| self.rows.binary_search_by_key(address, |row| row.start).is_ok();
        let is_own = |address: &u64| *address != start && has(address);
        addresses.range(first.start..=last.start).any(is_own)
    }
}

/// The knowledge about other functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) code: &'a Code<'a>,
    /// Where functions begin.
    pub(crate) starts: &'a BTreeSet<u64>,
    /// The functions that never return.
    pub(crate) endings: &'a BTreeSet<u64>,
    /// The number of instructions that may still be looked at in this file.
    pub(crate) budget: &'a Cell<u64>,
    /// True if a function certainly begins where one is followed.
    pub(crate) is_certain: bool,
}

impl Context<'_> {
    /// Takes some of the budget; false if there is not enough.
    fn spend(&self, instructions: u64) -> bool {
        let left = self.budget.get();
        self.budget.set(left.saturating_sub(instructions));
        left > instructions
    }
}

/// The way to an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Next,
    AfterCall,
    Jump,
}

#[derive(Debug)]
struct Node {
    instruction: Instruction,
    state: State,
    /// The call behind which it is, if nothing else leads here.
    only_after: Option<u64>,
    /// True if a jump leads here.
    is_jumped_to: bool,
    /// The instruction from which it was reached first.
    from: Option<(u64, Way)>,
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// This call does not return: otherwise the code would contradict itself.
    EndsAt(u64),
    /// The code does what compilers do not do, or it is no code.
    Strange,
}

/// Follows the function that begins at an address. `None` if something in it contradicts what
/// functions do: then nothing about it is certain.
pub(crate) fn follow(start: u64, context: Context<'_>) -> Option<Function> {
    let mut endings = HashSet::new();
    let mentioned = mentioned(start, context);
    loop {
        let mut walk = Walk {
            start,
            context,
            endings: &endings,
            nodes: BTreeMap::new(),
            work: Vec::new(),
            info: InstructionInfoFactory::new(),
            function: Function::default(),
            mentioned: &mentioned,
        };
        match walk.run() {
            Ok(()) => {
                let found = walk.endings_before_padding();
                if found.is_empty() {
                    return Some(walk.finish());
                }
                endings.extend(found);
            }
            Err(Stop::EndsAt(call)) if endings.len() < ENDINGS_MAX && endings.insert(call) => {}
            Err(_) => return None,
        }
    }
}

/// Returns the addresses that instructions mention between the start of a function and that of the
/// next one.
fn mentioned(start: u64, context: Context<'_>) -> BTreeSet<u64> {
    let Some((section, bytes)) = context.code.section(start) else { return BTreeSet::new() };
    let end = context.starts.range(start + 1..).next().copied().unwrap_or(u64::MAX);
    let length = (end - start).min(MENTIONED_MAX) as usize;
    let bytes = bytes.get((start - section) as usize..).unwrap_or(&[]);
    let bytes = bytes.get(..length).unwrap_or(bytes);
    let mut addresses = BTreeSet::new();
    // About the number of instructions.
    if !context.spend(bytes.len() as u64 / 4) {
        return addresses;
    }
    for instruction in &mut Decoder::with_ip(64, bytes, start, DecoderOptions::NONE) {
        if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
            addresses.insert(instruction.ip_rel_memory_address());
        }
    }
    addresses
}

struct Walk<'a> {
    start: u64,
    context: Context<'a>,
    /// The calls that have been found not to return.
    endings: &'a HashSet<u64>,
    nodes: BTreeMap<u64, Node>,
    work: Vec<u64>,
    info: InstructionInfoFactory,
    function: Function,
    /// The addresses that the function's code mentions: no table goes on behind one of them.
    mentioned: &'a BTreeSet<u64>,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        self.reach(None, self.start, &State::entry())?;
        let mut visits = 0;
        while let Some(at) = self.work.pop() {
            visits += 1;
            if visits > 1000 + VISITS_MAX * self.nodes.len() || !self.context.spend(1) {
                return Err(Stop::Strange);
            }
            let Some(node) = self.nodes.get(&at) else { continue };
            let (instruction, mut state) = (node.instruction, node.state.clone());
            let flow = apply(&instruction, &mut state, &mut self.info);
            self.note_references(&instruction);
            self.function.uses_callers |= !self.context.is_certain && self.uses_callers(at);
            let next = instruction.next_ip();
            match flow {
                Flow::Next => self.reach(Some((at, Way::Next)), next, &state)?,
                Flow::Jump(target) => self.reach(Some((at, Way::Jump)), target, &state)?,
                Flow::Branch(target) => {
                    self.reach(Some((at, Way::Jump)), target, &state)?;
                    self.reach(Some((at, Way::Next)), next, &state)?;
                }
                Flow::Call(target) => {
                    self.function.calls.extend(target.filter(|&target| self.context.code.contains(target)));
                    let ends = target.is_some_and(|target| self.context.endings.contains(&target));
                    if !ends && !self.endings.contains(&at) && !self.is_before_function(next) {
                        self.reach(Some((at, Way::AfterCall)), next, &state)?;
                    }
                }
                Flow::Indirect(value) => self.jump_by(at, value, &state)?,
                Flow::Return => {
                    if !state.is_as_at_entry() {
                        return Err(self.ending_before(at).map_or(Stop::Strange, Stop::EndsAt));
                    }
                    self.function.returns = true;
                    self.function.may_return = true;
                }
                Flow::End => {}
                Flow::Unknown => return Err(self.ending_before(at).map_or(Stop::Strange, Stop::EndsAt)),
            }
        }
        Ok(())
    }

    /// Goes to an instruction with what is known on the way there.
    fn reach(&mut self, from: Option<(u64, Way)>, to: u64, state: &State) -> Result<(), Stop> {
        let way = from.map_or(Way::Jump, |(_, way)| way);
        let call = from.filter(|(_, way)| *way == Way::AfterCall).map(|(at, _)| at);
        if to != self.start && self.context.starts.contains(&to) {
            // Another function: it is called instead of returning, or this one ends with a call
            // that does not return.
            if way == Way::Jump {
                self.leave(state);
                self.function.may_return |= !self.context.endings.contains(&to);
            }
            return Ok(());
        }
        if let Some(node) = self.nodes.get_mut(&to) {
            if let (Some(known), Some(new)) = (node.state.sp(), state.sp())
                && known != new
            {
                // In the code of compilers an instruction has one depth of the stack.
                match (call, node.only_after) {
                    (Some(call), _) | (None, Some(call)) => return Err(Stop::EndsAt(call)),
                    (None, None) => {}
                }
            }
            if call.is_none() {
                node.only_after = None;
            }
            node.is_jumped_to |= way == Way::Jump;
            if node.state.join(state) {
                self.work.push(to);
            }
            return Ok(());
        }
        let Some(bytes) = self.context.code.instruction(to) else {
            if way == Way::Jump {
                self.leave(state);
                self.function.may_return = true;
            }
            return Ok(());
        };
        let instruction = Decoder::with_ip(64, bytes, to, DecoderOptions::NONE).decode();
        if instruction.is_invalid() || self.is_inside(to) || self.nodes.len() >= INSTRUCTIONS_MAX {
            return Err(call.map_or(Stop::Strange, Stop::EndsAt));
        }
        let node = Node { instruction, state: state.clone(), only_after: call, is_jumped_to: way == Way::Jump, from };
        self.nodes.insert(to, node);
        self.work.push(to);
        Ok(())
    }

    /// True if an address is inside another instruction, and not just behind its `lock`.
    fn is_inside(&self, address: u64) -> bool {
        self.nodes.range(..address).next_back().is_some_and(|(&at, node)| {
            address < node.instruction.next_ip() && !(node.instruction.has_lock_prefix() && address == at + 1)
        })
    }

    /// Handles a jump whose address is not in the instruction.
    fn jump_by(&mut self, at: u64, value: Value, state: &State) -> Result<(), Stop> {
        let is_table = matches!(value, Value::TableTarget(..) | Value::TableAddress(_));
        let targets = if is_table { self.table(at, value) } else { Vec::new() };
        for &target in &targets {
            // Behind the table is something else.
            if self.is_inside(target) {
                break;
            }
            self.reach(Some((at, Way::Jump)), target, state)?;
        }
        if targets.is_empty() {
            self.leave(state);
            self.function.may_return = true;
        }
        Ok(())
    }

    /// Notes a jump to another function: it is called instead of returning, if everything is as at
    /// the start.
    fn leave(&mut self, state: &State) {
        if state.is_as_at_entry() {
            self.function.returns = true;
        } else {
            self.function.is_left_open = true;
        }
    }

    /// Returns the addresses in the table of a `switch`.
    fn table(&self, at: u64, value: Value) -> Vec<u64> {
        let code = self.context.code;
        let (first_entry, entry_length) = match value {
            Value::TableTarget(table, _) => (table, 4),
            Value::TableAddress(table) => (table, 8),
            _ => return Vec::new(),
        };
        let next_table = self.mentioned.range(first_entry.saturating_add(1)..).next().copied().unwrap_or(u64::MAX);
        let count = self.table_length(at).unwrap_or(TABLE_MAX).min((next_table - first_entry) / entry_length);
        let target = |index: u64| match value {
            Value::TableTarget(table, base) => {
                let offset = i32::from_le_bytes(code.data(table.checked_add(4 * index)?)?);
                Some(base.wrapping_add_signed(i64::from(offset)))
            }
            Value::TableAddress(table) => Some(u64::from_le_bytes(code.data(table.checked_add(8 * index)?)?)),
            _ => None,
        };
        let first = self.context.starts.range(..=self.start).next_back().copied().unwrap_or(0);
        let end = self.context.starts.range(self.start + 1..).next().copied().unwrap_or(u64::MAX);
        let is_own = |target: &u64| (first..end).contains(target) && code.contains(*target);
        (0..count.min(TABLE_MAX)).map_while(target).take_while(is_own).collect()
    }

    /// Returns the number of entries of a table, by the comparison before the jump.
    fn table_length(&self, jump: u64) -> Option<u64> {
        let mut after: Option<&Instruction> = None;
        for (_, node) in self.nodes.range(..jump).rev().take(LIMIT_DISTANCE) {
            let instruction = &node.instruction;
            let is_immediate = instruction.op_count() == 2 && instruction.try_immediate(1).is_ok();
            if instruction.mnemonic() == Mnemonic::Cmp && is_immediate {
                let limit = instruction.immediate(1) & 0xffff_ffff;
                return match after.map(Instruction::mnemonic) {
                    Some(Mnemonic::Ja | Mnemonic::Jbe) => Some(limit + 1),
                    Some(Mnemonic::Jae | Mnemonic::Jb) => Some(limit),
                    _ => None,
                };
            }
            after = Some(instruction);
        }
        None
    }

    /// Returns the call before an instruction that most likely does not return: the earliest one
    /// behind which is padding, or the start of another function.
    fn ending_before(&self, at: u64) -> Option<u64> {
        let mut found = None;
        let mut at = at;
        for _ in 0..self.nodes.len() {
            let Some((from, way)) = self.nodes.get(&at).and_then(|node| node.from) else { break };
            let is_padding = || self.nodes.get(&at).is_some_and(|node| node.instruction.mnemonic() == Mnemonic::Nop);
            if way == Way::AfterCall && (at.is_multiple_of(16) || is_padding()) {
                found = Some(from);
            }
            at = from;
        }
        found
    }

    /// True if another function seems to begin at an address behind a call: it is aligned as
    /// compilers align functions, and looks like one.
    fn is_before_function(&self, address: u64) -> bool {
        if !address.is_multiple_of(16) || self.nodes.contains_key(&address) {
            return false;
        }
        let Some(bytes) = self.context.code.instruction(address) else { return false };
        let first = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        let is_saving = first.mnemonic() == Mnemonic::Push
            && first.op0_kind() == OpKind::Register
            && CALLEE_SAVED.contains(&first.op0_register().full_register().number());
        let is_allocating = first.mnemonic() == Mnemonic::Sub && first.op0_register() == Register::RSP;
        is_saving || is_allocating || first.mnemonic() == Mnemonic::Endbr64
    }

    /// Returns the calls that do not return because padding follows, and behind that something to
    /// which nothing else leads: the next function. Padding inside of a function is before the
    /// beginning of a loop, to which its end jumps.
    fn endings_before_padding(&self) -> Vec<u64> {
        let is_padding = |node: &Node| node.instruction.mnemonic() == Mnemonic::Nop;
        let padded = self.nodes.iter().filter(|(_, node)| is_padding(node) && !node.is_jumped_to);
        let calls = padded.filter_map(|(&at, node)| Some((at, node.only_after?)));
        let leads_to_next = |at: u64| {
            let mut next = at;
            while let Some(node) = self.nodes.get(&next) {
                if !is_padding(node) || node.is_jumped_to {
                    return !node.is_jumped_to;
                }
                next = node.instruction.next_ip();
            }
            false
        };
        calls.filter(|&(at, _)| leads_to_next(at)).map(|(_, call)| call).collect()
    }

    /// True if an instruction reads a register that has the caller's value, and is none that saves
    /// registers.
    fn uses_callers(&mut self, at: u64) -> bool {
        let Some(Node { instruction, state, .. }) = self.nodes.get(&at) else { return false };
        let is_saving = match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Call | Mnemonic::Ret | Mnemonic::Syscall => true,
            Mnemonic::Mov => instruction.op0_kind() == OpKind::Memory,
            // The register becomes zero.
            Mnemonic::Xor | Mnemonic::Sub => instruction.op0_register() == instruction.op1_register(),
            _ => false,
        };
        let is_read = |access| {
            matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
        };
        let is_callers = |register: Register| {
            let number = register.full_register().number();
            register.is_gpr() && state.get(number) == Value::Entry(number as u8)
        };
        !is_saving
            && self
                .info
                .info(instruction)
                .used_registers()
                .iter()
                .any(|used| is_read(used.access()) && is_callers(used.register()))
    }

    fn note_references(&mut self, instruction: &Instruction) {
        let code = self.context.code;
        let mut note = |address: u64| {
            if code.contains(address) {
                self.function.references.insert(address);
            }
        };
        match instruction.mnemonic() {
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => note(instruction.ip_rel_memory_address()),
            Mnemonic::Mov | Mnemonic::Push => {
                for operand in 0..instruction.op_count() {
                    if let Ok(number) = instruction.try_immediate(operand) {
                        note(number);
                    }
                }
            }
            _ => {}
        }
    }

    fn finish(mut self) -> Function {
        let is_entry = self.start == self.context.code.entry;
        self.function.rows = self
            .nodes
            .iter()
            .map(|(&start, node)| {
                let rule = if is_entry { Some(Rule::End) } else { rule(&node.state) };
                Row { start, end: node.instruction.next_ip(), rule }
            })
            .collect();
        self.function
    }
}

/// Returns the rule for a frame with this state.
fn rule(state: &State) -> Option<Rule> {
    let saved = state.saved(RBP);
    let is_unchanged = state.get(RBP) == Value::Entry(RBP as u8);
    if !is_unchanged && saved.is_none() {
        // A thread's first function tells debuggers so that it has no caller (psABI, *Process
        // Initialization*, which asks for it at the start of a program).
        let is_first = state.get(RBP) == Value::Constant(0) && state.has_called_kernel;
        return is_first.then_some(Rule::End);
    }
    let by = |register| match state.get(register) {
        Value::Cfa(offset) => Some(-offset),
        _ => None,
    };
    let (by_rsp, by_rbp) = (by(RSP), by(RBP));
    (by_rsp.is_some() || by_rbp.is_some()).then_some(Rule::Cfa { by_rsp, by_rbp, saved })
}
