//! The code of a file, and where functions begin in it.

use std::collections::{BTreeSet, HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use object::read::elf::{ElfSymbol64, FileHeader};
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, RelocationTarget, SectionFlags, SectionKind, SymbolKind, elf,
};

use crate::described::{Described, Elf};

/// The most symbols that are read.
const SYMBOLS_MAX: usize = 4 << 20;
/// The most instructions of the program's first code that are looked at.
const ENTRY_MAX: usize = 24;
/// The longest instruction of the processor in bytes.
const INSTRUCTION_MAX: usize = 15;

/// The functions of usual libraries that do not return.
const NEVER_RETURN: [&str; 27] = [
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "pthread_exit",
    "thrd_exit",
    "__assert_fail",
    "__assert_perror_fail",
    "__stack_chk_fail",
    "__chk_fail",
    "__fortify_fail",
    "__longjmp_chk",
    "err",
    "errx",
    "_Unwind_Resume",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_pure_virtual",
    "__cxa_throw_bad_array_length",
    "__cxa_throw_bad_array_new_length",
    "_ZSt9terminatev",
];

/// The code of a file.
#[derive(Debug, Default)]
pub(crate) struct Code<'data> {
    /// The address and the bytes of each section of code, in order.
    sections: Vec<(u64, &'data [u8])>,
    /// The address and the bytes of each segment.
    segments: Vec<(u64, &'data [u8])>,
    /// The addresses at which functions certainly begin.
    pub(crate) starts: BTreeSet<u64>,
    /// The addresses that the file has as numbers, and that may be functions'.
    pub(crate) references: BTreeSet<u64>,
    /// The functions that never return, as far as names say.
    pub(crate) endings: BTreeSet<u64>,
    /// The address at which the program begins.
    pub(crate) entry: u64,
}

impl<'data> Code<'data> {
    /// Reads the code of a file. `others` are the bytes of files with more symbols.
    pub(crate) fn read(file: &Elf<'data>, others: &[&[u8]]) -> Code<'data> {
        let mut code = Code::of_sections(file);
        code.read_symbols(file);
        for other in others {
            if let Ok(other) = Elf::parse(*other) {
                code.read_symbols(&other);
            }
        }
        code.read_relocations(file);
        if file.elf_header().e_type(file.endian()) == elf::ET_EXEC {
            code.read_data(file);
        }
        if code.contains(code.entry) {
            code.starts.insert(code.entry);
            code.read_entry();
        }
        code
    }

    /// Reads the code of a file, without where functions begin in it.
    pub(crate) fn of_sections(file: &Elf<'data>) -> Code<'data> {
        let mut code = Code { entry: file.elf_header().e_entry(file.endian()), ..Code::default() };
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            let is_code = sh_flags.contains(elf::SHF_EXECINSTR);
            // Stubs of the linker: nothing returns into them.
            let is_stubs = section.name().is_ok_and(|name| name.starts_with(".plt"));
            if is_code && !is_stubs && section.kind() == SectionKind::Text {
                code.sections.extend(section.data().ok().map(|bytes| (section.address(), bytes)));
            }
        }
        let segments = || file.segments().filter_map(|segment| Some((segment.address(), segment.data().ok()?)));
        code.segments = segments().collect();
        if code.sections.is_empty() {
            code.sections = file
                .segments()
                .filter(|segment| segment.permissions().executable())
                .filter_map(|segment| Some((segment.address(), segment.data().ok()?)))
                .collect();
        }
        code.sections.sort_by_key(|section| section.0);
        // So the work is bounded by the size of the file.
        let mut end = 0;
        let mut left = file.data().len();
        code.sections.retain(|&(start, bytes)| {
            let own_end = start.checked_add(bytes.len() as u64);
            let is_kept = start >= end && own_end.is_some() && bytes.len() <= left && !bytes.is_empty();
            if is_kept {
                left -= bytes.len();
                end = own_end.unwrap_or(u64::MAX);
            }
            is_kept
        });
        code
    }

    fn read_symbols(&mut self, file: &Elf<'_>) {
        for symbol in file.symbols().chain(file.dynamic_symbols()).take(SYMBOLS_MAX) {
            let address = symbol.address();
            if symbol.kind() != SymbolKind::Text || !symbol.is_definition() || !self.contains(address) {
                continue;
            }
            let name = symbol.name().unwrap_or_default();
            // A part of a function that is elsewhere: its frame is that of the function.
            if name.contains(".cold") {
                continue;
            }
            self.starts.insert(address);
            if never_returns(name) {
                self.endings.insert(address);
            }
        }
    }

    /// Reads the addresses that the dynamic linker writes, and the stubs for functions elsewhere.
    fn read_relocations(&mut self, file: &Elf<'data>) {
        let ends = |symbol: &ElfSymbol64<'_, '_>| symbol.name().is_ok_and(never_returns);
        let symbols = file.dynamic_symbols().take(SYMBOLS_MAX);
        let ending: HashSet<_> = symbols.filter(ends).map(|symbol| symbol.index()).collect();
        let mut slots = BTreeSet::new();
        for (at, relocation) in file.dynamic_relocations().into_iter().flatten().take(SYMBOLS_MAX) {
            match relocation.target() {
                RelocationTarget::Symbol(symbol) if ending.contains(&symbol) => {
                    slots.insert(at);
                }
                RelocationTarget::Absolute => {
                    let address = relocation.addend().cast_unsigned();
                    if self.contains(address) {
                        self.references.insert(address);
                    }
                }
                _ => {}
            }
        }
        for section in file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".plt"))) {
            let Ok(bytes) = section.data() else { continue };
            for offset in (0..bytes.len()).step_by(8) {
                // jmp [rip + displacement], perhaps behind endbr64.
                for skipped in [0, 4] {
                    if let Some(&[0xff, 0x25, ref rest @ ..]) = bytes.get(offset + skipped..)
                        && let Some(displacement) = rest.first_chunk()
                    {
                        let at = section.address().wrapping_add(offset as u64);
                        let next = at.wrapping_add(skipped as u64 + 6);
                        let slot = next.wrapping_add_signed(i64::from(i32::from_le_bytes(*displacement)));
                        if slots.contains(&slot) {
                            self.endings.insert(at);
                        }
                    }
                }
            }
        }
    }

    /// Reads the addresses that the program's first code gives to the C library before its first
    /// call: `main`, and in older ones the functions around it.
    fn read_entry(&mut self) {
        let Some((start, bytes)) = self.section(self.entry) else { return };
        let bytes = bytes.get((self.entry - start) as usize..).unwrap_or(&[]);
        for instruction in Decoder::with_ip(64, bytes, self.entry, DecoderOptions::NONE).iter().take(ENTRY_MAX) {
            let address = match instruction.mnemonic() {
                Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => instruction.ip_rel_memory_address(),
                Mnemonic::Mov => instruction.try_immediate(1).unwrap_or(0),
                _ if instruction.flow_control() != FlowControl::Next => return,
                _ => continue,
            };
            if self.contains(address) {
                self.starts.insert(address);
            }
        }
    }

    /// Reads the addresses in the data of a program that is not relocated: they are words there.
    fn read_data(&mut self, file: &Elf<'data>) {
        let segments = file.segments().filter(|segment| !segment.permissions().executable());
        for (start, bytes) in segments.filter_map(|segment| Some((segment.address(), segment.data().ok()?))) {
            let (_, aligned) = bytes.split_at_checked((start.wrapping_neg() % 8) as usize).unwrap_or_default();
            let words = aligned.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            let mentioned: Vec<u64> = words.filter(|&word| self.contains(word)).take(SYMBOLS_MAX).collect();
            self.references.extend(mentioned);
        }
    }

    /// True if code is at an address.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.section(address).is_some()
    }

    /// Returns the number of bytes of code.
    pub(crate) fn length(&self) -> u64 {
        self.sections.iter().map(|section| section.1.len() as u64).sum()
    }

    /// Returns the address and the bytes of the section that has this address.
    pub(crate) fn section(&self, address: u64) -> Option<(u64, &'data [u8])> {
        let after = self.sections.partition_point(|section| section.0 <= address);
        let section = *self.sections.get(after.checked_sub(1)?)?;
        (address - section.0 < section.1.len() as u64).then_some(section)
    }

    /// Returns all sections of code.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (u64, &'data [u8])> {
        self.sections.iter().copied()
    }

    /// Returns the bytes of the instruction at an address, and those behind it.
    pub(crate) fn instruction(&self, address: u64) -> Option<&'data [u8]> {
        let (start, bytes) = self.section(address)?;
        let bytes = bytes.get((address - start) as usize..)?;
        Some(bytes.get(..INSTRUCTION_MAX).unwrap_or(bytes))
    }

    /// Returns bytes of the file's data.
    pub(crate) fn data<const LENGTH: usize>(&self, address: u64) -> Option<[u8; LENGTH]> {
        self.segments.iter().find_map(|(start, bytes)| {
            let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(offset..)?.first_chunk().copied()
        })
    }

    /// Returns the parts of the code that no description covers, without those that are padding.
    pub(crate) fn uncovered(&self, covered: &[Described]) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut covered = covered.iter().peekable();
        for (start, bytes) in self.sections() {
            let end = start + bytes.len() as u64;
            let mut from = start;
            while let Some(function) = covered.next_if(|function| function.start < end) {
                if function.start > from {
                    gaps.push((from, function.start));
                }
                from = from.max(function.end);
            }
            if from < end {
                gaps.push((from, end));
            }
        }
        gaps.retain(|&(from, to)| !self.is_padding(from, to));
        gaps
    }

    /// True if this code is what compilers and linkers put between functions.
    fn is_padding(&self, from: u64, to: u64) -> bool {
        let Some((start, bytes)) = self.section(from) else { return true };
        let bytes = bytes.get((from - start) as usize..(to - start) as usize).unwrap_or(&[]);
        let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
        to - from < 64
            && (bytes.iter().all(|byte| *byte == 0)
                || decoder.iter().all(|instruction| matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)))
    }
}

/// True if the function of this name never returns.
fn never_returns(name: &str) -> bool {
    // `std::__throw_length_error(char const*)` and the like.
    NEVER_RETURN.contains(&name) || name.starts_with("_ZSt") && name.contains("__throw_")
}
