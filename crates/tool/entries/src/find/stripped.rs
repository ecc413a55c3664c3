//! Finds the allocator of a stripped Rust program or library by the calls of its functions.
//!
//! jemalloc and mimalloc are libraries in C, whose functions call each other directly. Those that
//! refer to the allocator's own texts lead to all others. Rust code calls them by other
//! instructions. A function of the library that is called so is one of those that Rust's global
//! allocator calls, and these are few: the crates `tikv-jemallocator` and `mimalloc` call six and
//! four. Which one it is follows from the arguments that its code reads, and from the use that
//! callers make of its result.
//!
//! The beginnings of functions are those of the unwind information, which is not stripped.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use heapledger_wire::entries::EntryKind;
use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions,
    Mnemonic, OpAccess, OpKind, Register,
};
use memchr::memmem;
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader};
use object::{Endianness, elf};

use super::new_entry;
use super::symbols::Function;
use crate::allocator::{Allocator, Entry, Evidence, Family};
use crate::module::Module;

/// The text that every Rust program with the standard library has: that of its hook for failed
/// allocations.
const RUST: &[u8] = b"memory allocation of ";

/// The allocators that are told by a text of theirs. jemalloc's functions begin messages with it;
/// mimalloc's are one object file, of which a few functions refer to texts.
const TEXTS: [(&[u8], Family); 2] = [(b"<jemalloc>: ", Family::Jemalloc), (b"mimalloc: ", Family::Mimalloc)];

/// The most instructions of a function that are looked at for its arguments, or for one of a call.
const INSTRUCTIONS_MAX: usize = 400;

/// Returns the allocator, with names for its functions that say what they do; `None` if there is
/// none of those that are known, or if it is not certain which function is which.
///
/// The cost is that of decoding the code once, and the functions that allocate a second time.
pub(super) fn find(module: &Module) -> Option<Allocator> {
    let data = module.data();
    memmem::find(data, RUST)?;
    let (family, texts) = TEXTS.iter().find_map(|&(text, family)| {
        let found: BTreeSet<u64> = memmem::find_iter(data, text).filter_map(|at| address_of(data, at)).collect();
        (!found.is_empty()).then_some((family, found))
    })?;
    let code = Code { module, functions: functions(data)?, slots: slots(data) };
    let called = code.entries(&texts)?;
    let entry = |(at, callers): (u64, Callers)| {
        let (name, kind) = classify(family, &Shape::read(module, at)?, callers)?;
        let size = code.length(code.functions.binary_search(&at).ok()?).unwrap_or_default() as u64;
        let function = Function { at, size, evidence: Evidence::Calls, is_exported: false };
        Some(new_entry(name.to_owned(), kind, function))
    };
    let entries: Vec<Entry> = called.into_iter().filter_map(entry).collect();
    let is_twice = |kind: EntryKind| entries.iter().filter(|entry| entry.kind == kind).count() > at_most(kind);
    let is_certain = !entries.iter().any(|entry| is_twice(entry.kind));
    is_certain.then(|| Allocator { family, prefix: String::new(), entries })
}

/// Returns the address at which a byte of the file is in memory.
fn address_of(data: &[u8], at: usize) -> Option<u64> {
    let at = at as u64;
    let (header, endian) = header(data)?;
    header.program_headers(endian, data).ok()?.iter().find_map(|segment| {
        let (offset, size) = (segment.p_offset(endian), segment.p_filesz(endian));
        let inside = at.checked_sub(offset).filter(|&inside| inside < size)?;
        (segment.p_type(endian) == elf::PT_LOAD).then(|| segment.p_vaddr(endian).wrapping_add(inside))
    })
}

/// Returns the word in the file that is at an address.
fn word_at(data: &[u8], address: u64) -> Option<u64> {
    let (header, endian) = header(data)?;
    let segments = header.program_headers(endian, data).ok()?.iter();
    let mut loaded = segments.filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
    let inside = |segment: &elf::ProgramHeader64<Endianness>| {
        let inside =
            address.checked_sub(segment.p_vaddr(endian)).filter(|&inside| inside < segment.p_filesz(endian))?;
        usize::try_from(segment.p_offset(endian).checked_add(inside)?).ok()
    };
    let word = data.get(loaded.find_map(inside)?..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

fn header(data: &[u8]) -> Option<(&elf::FileHeader64<Endianness>, Endianness)> {
    let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
    Some((header, header.endian().ok()?))
}

/// Returns the addresses of all functions, in ascending order, by the table for binary searches in
/// `.eh_frame_hdr` (Linux Standard Base, 10.6.2), in the form that all linkers write.
fn functions(data: &[u8]) -> Option<Vec<u64>> {
    const HEAD: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    let (header, endian) = header(data)?;
    let segments = header.program_headers(endian, data).ok()?;
    let segment = segments.iter().find(|segment| segment.p_type(endian) == elf::PT_GNU_EH_FRAME)?;
    let start = usize::try_from(segment.p_offset(endian)).ok()?;
    let table = data.get(start..)?.get(..usize::try_from(segment.p_filesz(endian)).ok()?)?;
    let rows = table.strip_prefix(&HEAD)?.get(4..)?;
    let (count, rows) = rows.split_first_chunk()?;
    let rows = rows.get(..(u32::from_le_bytes(*count) as usize).checked_mul(8)?)?;
    let address = |row: &[u8]| {
        let distance = i32::from_le_bytes([row[0], row[1], row[2], row[3]]);
        segment.p_vaddr(endian).wrapping_add_signed(distance.into())
    };
    let mut functions: Vec<u64> = rows.chunks_exact(8).map(address).collect();
    // Functions with the same code may be one.
    functions.dedup();
    functions.is_sorted().then_some(functions)
}

/// The most functions of an allocator's library: jemalloc has 600, mimalloc 300. More of them mean
/// that Rust code is among them: a tool has rewritten the calls.
const LIBRARY_MAX: usize = 2000;

/// The most bytes between two functions of a library that are neighbours among those that refer to
/// its texts: jemalloc has 300 to 800 KB of code, mimalloc 60 KB.
const LENGTH_MAX: u64 = 1 << 20;

/// The most bytes of a function that are decoded.
const FUNCTION_MAX: usize = 1 << 20;

/// The callers of a function from outside of the allocator.
#[derive(Clone, Copy, Debug, Default)]
struct Callers {
    /// The number of calls, without jumps at the end of a function.
    calls: u32,
    /// The number of calls behind which the result is used.
    with_result: u32,
    /// The number of calls whose first argument is the constant 1.
    with_one: u32,
    /// The number of calls whose second argument is a constant that may be an alignment.
    with_alignment: u32,
}

/// A call, or a jump, of one function to another, by their numbers.
#[derive(Clone, Copy, Debug)]
struct Call {
    from: u32,
    to: u32,
    form: Form,
}

/// The form of a call's instruction. rustc calls functions of other libraries through the global
/// offset table, so that the linker may bind them to any module. For functions of the same module
/// linkers replace that by a direct call, with a prefix that makes it as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `call rel32` or `jmp rel32`, as C code calls functions of its own library.
    Plain,
    /// `call [rip + slot]`, or `addr32 call rel32`; the same with `jmp`.
    ByTable,
    /// `jmp rel32` and `nop`, which may be either.
    Either,
}

/// The code of a module: where functions begin, and to which of them slots of the global offset
/// table lead.
struct Code<'m> {
    module: &'m Module,
    functions: Vec<u64>,
    slots: HashMap<u64, u64>,
}

impl Code<'_> {
    /// Returns the addresses of the functions of the allocator's library that are called from
    /// outside, with the sums of these calls.
    fn entries(&self, texts: &BTreeSet<u64>) -> Option<Vec<(u64, Callers)>> {
        let (mut users, mut calls) = (vec![], vec![]);
        for from in 0..self.functions.len() {
            let code = self.decode(from);
            if code.iter().any(|instruction| address_in(instruction).is_some_and(|at| texts.contains(&at))) {
                users.push(from);
            }
            let called = (0..code.len()).filter_map(|index| self.called(&code, index));
            calls.extend(called.map(|(to, form)| Call { from: from as u32, to: to as u32, form }));
        }
        let library = self.library(&users, &calls)?;
        let is_from_outside =
            |call: &&Call| call.form != Form::Plain && library.contains(&call.to) && !library.contains(&call.from);
        let callers: BTreeSet<u32> = calls.iter().filter(is_from_outside).map(|call| call.from).collect();
        let mut sums: BTreeMap<usize, Callers> = BTreeMap::new();
        for from in callers {
            let code = self.decode(from as usize);
            for index in 0..code.len() {
                if let Some((to, _)) = self.called(&code, index).filter(|(to, _)| library.contains(&(*to as u32))) {
                    sums.entry(to).or_default().add(&code, index);
                }
            }
        }
        Some(sums.into_iter().map(|(to, callers)| (self.functions[to], callers)).collect())
    }

    /// Returns the functions of the library: those that refer to its texts, and all that are
    /// connected with them by plain calls. Only functions nearby count as called ones: C code also
    /// calls functions of the compiler's library. Callers may be anywhere: linkers put functions
    /// that run often, or seldom, elsewhere.
    fn library(&self, users: &[usize], calls: &[Call]) -> Option<BTreeSet<u32>> {
        let at = |function: usize| self.functions[function];
        let cluster = users.chunk_by(|&a, &b| at(b) - at(a) < LENGTH_MAX).max_by_key(|users| users.len())?;
        let (first, last) = (at(*cluster.first()?), at(*cluster.last()?));
        let near = first.saturating_sub(LENGTH_MAX)..last.saturating_add(LENGTH_MAX);
        let mut neighbours: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for call in calls.iter().filter(|call| call.form == Form::Plain && near.contains(&at(call.to as usize))) {
            neighbours.entry(call.to).or_default().push(call.from);
            neighbours.entry(call.from).or_default().push(call.to);
        }
        let mut library: BTreeSet<u32> = users.iter().map(|&user| user as u32).collect();
        let mut left: Vec<u32> = library.iter().copied().collect();
        while let Some(function) = left.pop() {
            let others = neighbours.get(&function).into_iter().flatten();
            left.extend(others.copied().filter(|other| library.insert(*other)));
        }
        (library.len() <= LIBRARY_MAX).then_some(library)
    }

    /// Returns the instructions of a function.
    fn decode(&self, function: usize) -> Vec<Instruction> {
        let start = self.functions[function];
        let bytes = self.module.code_at(start).unwrap_or_default();
        let length = self.length(function).unwrap_or(bytes.len()).min(FUNCTION_MAX);
        Decoder::with_ip(64, &bytes[..length.min(bytes.len())], start, DecoderOptions::NONE).iter().collect()
    }

    /// Returns the bytes up to the next function.
    fn length(&self, function: usize) -> Option<usize> {
        self.functions.get(function + 1).map(|next| (next - self.functions[function]) as usize)
    }

    /// Returns the address in a slot of the global offset table: by its relocation, or as it is in
    /// the file, where packed relocations (`DT_RELR`) have it.
    fn behind(&self, slot: u64) -> Option<u64> {
        self.slots.get(&slot).copied().or_else(|| word_at(self.module.data(), slot))
    }

    /// Returns the function that an instruction calls or jumps to.
    fn called(&self, code: &[Instruction], index: usize) -> Option<(usize, Form)> {
        const LENGTH: usize = 5;
        let instruction = &code[index];
        let next = code.get(index + 1);
        let is_before_nop = || next.is_some_and(|next| next.len() == 1 && next.mnemonic() == Mnemonic::Nop);
        let (to, form) = match instruction.code() {
            Opcode::Call_rel32_64 if instruction.len() > LENGTH => (instruction.near_branch64(), Form::ByTable),
            Opcode::Jmp_rel32_64 if is_before_nop() => (instruction.near_branch64(), Form::Either),
            Opcode::Call_rel32_64 | Opcode::Jmp_rel32_64 => (instruction.near_branch64(), Form::Plain),
            Opcode::Call_rm64 | Opcode::Jmp_rm64 if instruction.is_ip_rel_memory_operand() => {
                (self.behind(instruction.ip_rel_memory_address())?, Form::ByTable)
            }
            Opcode::Call_rm64 if instruction.op0_kind() == OpKind::Register => {
                let slot = slot_in(instruction.op0_register(), &code[index.saturating_sub(INSTRUCTIONS_MAX)..index])?;
                (self.behind(slot)?, Form::ByTable)
            }
            _ => return None,
        };
        let function = self.functions.binary_search(&to).ok()?;
        (self.functions[function] != code[0].ip()).then_some((function, form))
    }
}

/// Returns the functions to which slots of the global offset table lead, by slot: the relocations
/// that only add the place of the module.
fn slots(data: &[u8]) -> HashMap<u64, u64> {
    let relocations = || {
        let (header, endian) = header(data)?;
        let sections = header.sections(endian, data).ok()?;
        let tables = sections.iter().filter_map(move |section| section.rela(endian, data).ok().flatten());
        let relative =
            tables.flat_map(|(rows, _)| rows).filter(move |row| row.r_type(endian, false) == elf::R_X86_64_RELATIVE);
        Some(relative.map(move |row| (row.r_offset(endian), row.r_addend(endian) as u64)).collect())
    };
    relocations().unwrap_or_default()
}

/// Returns the slot that a register was last loaded from: it is kept there if it is used often.
fn slot_in(register: Register, before: &[Instruction]) -> Option<u64> {
    let loads = |instruction: &&Instruction| {
        instruction.code() == Opcode::Mov_r64_rm64 && instruction.op0_register() == register
    };
    let load = before.iter().rev().find(loads)?;
    load.is_ip_rel_memory_operand().then(|| load.ip_rel_memory_address())
}

/// Returns the address that an instruction computes relative to itself.
fn address_in(instruction: &Instruction) -> Option<u64> {
    (instruction.code() == Opcode::Lea_r64_m && instruction.is_ip_rel_memory_operand())
        .then(|| instruction.ip_rel_memory_address())
}

impl Callers {
    /// Adds one call.
    fn add(&mut self, code: &[Instruction], index: usize) {
        if !is_call(&code[index]) {
            return;
        }
        self.calls += 1;
        self.with_result += u32::from(uses_result(code, index + 1));
        self.with_one += u32::from(constant(code, index, Register::RDI) == Some(1));
        let alignment = constant(code, index, Register::RSI);
        self.with_alignment += u32::from(alignment.is_some_and(|value| value.is_power_of_two() && value <= 4096));
    }
}

/// Returns the constant that an argument of a call is set to.
fn constant(code: &[Instruction], index: usize, argument: Register) -> Option<u32> {
    let before = code[index.saturating_sub(INSTRUCTIONS_BEFORE)..index].iter();
    let is_it = |instruction: &&Instruction| {
        instruction.op0_kind() == OpKind::Register && instruction.op0_register().full_register() == argument
    };
    let set = before.rev().find(is_it)?;
    (set.code() == Opcode::Mov_r32_imm32).then(|| set.immediate32())
}

/// The instructions before a call in which its arguments are looked for.
const INSTRUCTIONS_BEFORE: usize = 8;

/// The instructions behind a call in which the use of its result is looked for.
const INSTRUCTIONS_BEHIND: usize = 8;

/// True if the result of a call is used, from the instruction behind it on.
fn uses_result(code: &[Instruction], mut index: usize) -> bool {
    let mut factory = InstructionInfoFactory::new();
    for _ in 0..INSTRUCTIONS_BEHIND {
        let Some(instruction) = code.get(index) else { return false };
        index += 1;
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::UnconditionalBranch => {
                let target = instruction.near_branch64();
                let Ok(next) = code.binary_search_by_key(&target, Instruction::ip) else { return false };
                index = next;
                continue;
            }
            _ => return false,
        }
        let info = factory.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
        let mut touches = info.used_registers().iter().filter(|used| used.register().full_register() == Register::RAX);
        if let Some(used) = touches.next() {
            return used.access() != OpAccess::Write && !is_zeroing(instruction);
        }
    }
    false
}

/// True if an instruction clears a register by itself.
fn is_zeroing(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Xor
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register()
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// The arguments that a function reads, and in which width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shape {
    /// For each of the first four arguments: the widest read in bytes; 0 if it is not read.
    widths: [usize; 4],
}

/// The registers of the first arguments (System V ABI for x86-64, 3.2.3).
const ARGUMENTS: [Register; 4] = [Register::RDI, Register::RSI, Register::RDX, Register::RCX];

impl Shape {
    /// Follows the code from its beginning on all paths, until each argument has been overwritten.
    fn read(module: &Module, at: u64) -> Option<Shape> {
        let mut shape = Shape::default();
        let mut factory = InstructionInfoFactory::new();
        let mut seen = BTreeSet::new();
        let mut paths = vec![(at, [true; 4])];
        while let Some((at, mut is_argument)) = paths.pop() {
            let code = module.code_at(at)?;
            for instruction in &mut Decoder::with_ip(64, code, at, DecoderOptions::NONE) {
                if instruction.is_invalid() || is_argument == [false; 4] || seen.len() > INSTRUCTIONS_MAX {
                    break;
                }
                if !seen.insert((instruction.ip(), is_argument)) {
                    break;
                }
                shape.note(&mut factory, &instruction, &mut is_argument);
                match instruction.flow_control() {
                    FlowControl::ConditionalBranch => paths.push((instruction.near_branch64(), is_argument)),
                    FlowControl::UnconditionalBranch => {
                        paths.push((instruction.near_branch64(), is_argument));
                        break;
                    }
                    FlowControl::Next => {}
                    // A call may pass arguments on, but does not keep them.
                    FlowControl::Call | FlowControl::IndirectCall => is_argument = [false; 4],
                    _ => break,
                }
            }
        }
        Some(shape)
    }

    fn note(&mut self, factory: &mut InstructionInfoFactory, instruction: &Instruction, is_argument: &mut [bool; 4]) {
        // A register that is saved, or cleared by itself, is not used.
        if instruction.mnemonic() == Mnemonic::Push {
            return;
        }
        let is_cleared = is_zeroing(instruction);
        let used: Vec<_> = factory.info_options(instruction, InstructionInfoOptions::NONE).used_registers().to_vec();
        for (at, argument) in ARGUMENTS.iter().enumerate().filter(|&(at, _)| is_argument[at]) {
            for used in used.iter().filter(|used| used.register().full_register() == *argument) {
                let is_read = matches!(
                    used.access(),
                    OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
                );
                if is_read && !is_cleared && !is_call(instruction) {
                    self.widths[at] = self.widths[at].max(used.register().size());
                }
            }
        }
        for (at, argument) in ARGUMENTS.iter().enumerate() {
            let is_written = |used: &&iced_x86::UsedRegister| {
                used.register().full_register() == *argument
                    && matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite)
            };
            is_argument[at] &= !used.iter().any(|used| is_written(&used));
        }
    }

    fn count(&self) -> usize {
        self.widths.iter().rposition(|&width| width > 0).map_or(0, |last| last + 1)
    }
}

/// Returns the name and the kind of a function, if the global allocators of Rust have such a one.
fn classify(family: Family, shape: &Shape, callers: Callers) -> Option<(&'static str, EntryKind)> {
    let Callers { calls, with_result, with_one, with_alignment, .. } = callers;
    // Nearly all callers use the result of a function that has one. If there are only jumps,
    // nothing is known of it.
    let has_result = with_result * 4 > calls * 3;
    if calls == 0 || !has_result && with_result * 4 > calls {
        return None;
    }
    let is_int = |at: usize| shape.widths[at] <= 4;
    Some(match (family, shape.count(), has_result) {
        (Family::Jemalloc, 1, true) => ("malloc", EntryKind::Malloc),
        (Family::Jemalloc, 1, false) => ("free", EntryKind::Free),
        (Family::Jemalloc, 2, true) if with_one * 20 > calls * 19 => ("calloc", EntryKind::Calloc),
        (Family::Jemalloc, 2, true) if is_int(1) => ("mallocx", EntryKind::Mallocx),
        (Family::Jemalloc, 2, true) => ("realloc", EntryKind::Realloc),
        (Family::Jemalloc, 3, true) if is_int(2) => ("rallocx", EntryKind::Rallocx),
        (Family::Jemalloc, 3, false) if is_int(2) => ("sdallocx", EntryKind::Sdallocx),
        (Family::Mimalloc, 1, true) => ("mi_malloc", EntryKind::Malloc),
        (Family::Mimalloc, 1, false) => ("mi_free", EntryKind::Free),
        (Family::Mimalloc, 2, true) if with_alignment * 2 > calls => ("mi_malloc_aligned", EntryKind::MallocAligned),
        (Family::Mimalloc, 3, true) => ("mi_realloc_aligned", EntryKind::ReallocAligned),
        _ => return None,
    })
}

/// Returns the number of functions of a kind that a global allocator calls at most: mimalloc's has
/// two that allocate, of which one clears the memory.
fn at_most(kind: EntryKind) -> usize {
    if kind == EntryKind::MallocAligned { 2 } else { 1 }
}
