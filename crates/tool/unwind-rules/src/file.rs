//! The unwind information of a file: where the file has it, an index if the file has none, and what
//! was generated from the code.

use std::path::Path;

use heapledger_symbols::{SymbolFiles, SymbolizerOptions};
use heapledger_wire::module_table::pair;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

use crate::described::{Described, Descriptions, Elf, descriptions};
use crate::error::{Result, RulesError};
use crate::generate::{self, Generated};

/// The page size: the kernel maps whole pages.
const PAGE: u64 = 4096;
/// The most segments that a file may have: linkers make fewer than twenty.
const SEGMENTS_MAX: usize = 256;
/// The most bytes of code without unwind information for which rules are generated: beyond it, that
/// takes seconds for which the program waits, and gigabytes.
const UNCOVERED_MAX: u64 = 8 << 20;

/// The unwind information of a file. All addresses are the file's own.
#[derive(Clone, Debug, Default)]
pub struct FileRules {
    /// The first page, and the end of the last segment.
    start: u64,
    end: u64,
    eh_frame_hdr: Option<u64>,
    found: Option<FoundFrames>,
    generated: Option<Generated>,
    /// The parts of its code that no description covers, in order; none if rules are not generated
    /// for them. And the bytes of all its code.
    uncovered: Vec<(u64, u64)>,
    code_length: u64,
    /// True if no rules are generated because there is too much code, and its functions keep frame
    /// pointers.
    keeps_frame_pointers: bool,
}

/// An `.eh_frame` of a file without `.eh_frame_hdr`.
#[derive(Clone, Debug)]
pub struct FoundFrames {
    /// Its address.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
    /// The index: pairs as [`heapledger_wire::module_table`] has them.
    pub(crate) pairs: Vec<[u8; 8]>,
}

impl FileRules {
    /// Reads a file, and generates rules for its code that has no unwind information, unless that
    /// is more than 8 MiB.
    ///
    /// Takes time in proportion to the file's `.eh_frame` and to the code that it does not cover.
    /// Memory is bounded by a multiple of both.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened, is not ELF for x86-64, or its headers are damaged.
    pub fn read(path: &Path) -> Result<FileRules> {
        FileRules::read_with(path, SymbolizerOptions::default())
    }

    /// Reads a file without generating rules. Takes time in proportion to its `.eh_frame`.
    ///
    /// # Errors
    ///
    /// Fails as [`FileRules::read`] does.
    pub fn read_found(path: &Path) -> Result<FileRules> {
        let files = open(path, SymbolizerOptions::default())?;
        FileRules::parse(path, files.module()).map(|(rules, _, _)| rules)
    }

    /// Reads a file as [`FileRules::read`] does, and looks for its debug file, whose symbols say
    /// where functions begin, where `options` say. No server is asked.
    ///
    /// # Errors
    ///
    /// Fails as [`FileRules::read`] does.
    pub fn read_with(path: &Path, options: SymbolizerOptions) -> Result<FileRules> {
        let files = open(path, options)?;
        let others: Vec<&[u8]> = files.others().map(|file| file.bytes).collect();
        FileRules::from_bytes(path, files.module(), &others)
    }

    /// Reads a file from memory; `others` are the bytes of files that have symbols which it lacks.
    /// `path` is used in errors only.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not ELF for x86-64, or the headers are damaged.
    pub fn from_bytes(path: &Path, bytes: &[u8], others: &[&[u8]]) -> Result<FileRules> {
        let (mut rules, file, covered) = FileRules::parse(path, bytes)?;
        if !rules.uncovered.is_empty() {
            rules.generated = generate::uncovered(&file, others, &covered, rules.start);
        }
        Ok(rules)
    }

    /// Reads what the file has, without generating rules. Also returns the file, and the functions
    /// that have descriptions.
    fn parse<'data>(path: &Path, bytes: &'data [u8]) -> Result<(FileRules, Elf<'data>, Vec<Described>)> {
        let unreadable = |reason: String| RulesError::Unreadable { file: path.to_owned(), reason };
        let file = Elf::parse(bytes).map_err(|error| unreadable(error.to_string()))?;
        let (header, endian) = (file.elf_header(), file.endian());
        if header.e_machine(endian) != elf::EM_X86_64 || endian != Endianness::Little {
            return Err(RulesError::OtherMachine { file: path.to_owned() });
        }
        let mut rules = FileRules { start: u64::MAX, ..FileRules::default() };
        // The parts that come from the file.
        let mut loaded = Vec::new();
        for segment in file.elf_program_headers().iter().take(SEGMENTS_MAX) {
            let address = segment.p_vaddr(endian);
            match segment.p_type(endian) {
                elf::PT_LOAD => {
                    let end = address.checked_add(segment.p_memsz(endian));
                    let end = end.ok_or_else(|| unreadable(format!("a segment at {address:#x} is too long")))?;
                    rules.start = rules.start.min(address - address % PAGE);
                    rules.end = rules.end.max(end);
                    loaded.push(address..address.saturating_add(segment.p_filesz(endian)).min(end));
                }
                elf::PT_GNU_EH_FRAME => rules.eh_frame_hdr = Some(address),
                _ => {}
            }
        }
        if rules.start >= rules.end {
            return Err(unreadable("it has no segments to load".to_owned()));
        }
        // The hook reads them in memory.
        let is_loaded = |found: &Descriptions| {
            let end = found.address.checked_add(found.length);
            loaded.iter().any(|part| part.contains(&found.address) && end.is_some_and(|end| end <= part.end))
        };
        let descriptions = descriptions(&file).filter(is_loaded);
        if rules.eh_frame_hdr.is_none() {
            rules.found = descriptions.as_ref().and_then(|descriptions| rules.index(descriptions));
        }
        let covered = descriptions.map(|descriptions| descriptions.functions).unwrap_or_default();
        (rules.uncovered, rules.code_length) = generate::gaps(&file, &covered);
        if rules.uncovered.iter().map(|(from, to)| to - from).sum::<u64>() > UNCOVERED_MAX {
            rules.keeps_frame_pointers = generate::are_frame_pointers_kept(&file, &rules.uncovered);
            rules.uncovered.clear();
        }
        Ok((rules, file, covered))
    }

    /// True if much of its code has no unwind information, but no more than 8 MiB: rules should be
    /// generated.
    pub fn lacks_much(&self) -> bool {
        let uncovered: u64 = self.uncovered.iter().map(|(from, to)| to - from).sum();
        uncovered > self.code_length / 8
    }

    /// True if an address is in code that has no unwind information, and for which rules can be
    /// generated.
    pub fn is_uncovered(&self, address: u64) -> bool {
        let after = self.uncovered.partition_point(|part| part.0 <= address);
        after.checked_sub(1).and_then(|index| self.uncovered.get(index)).is_some_and(|part| address < part.1)
    }

    /// Returns the first address that is loaded, and the one after the last.
    pub fn range(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Returns the address of its `.eh_frame_hdr`, if it has one.
    pub fn eh_frame_hdr(&self) -> Option<u64> {
        self.eh_frame_hdr
    }

    /// Returns its `.eh_frame`, with an index, if it has one without `.eh_frame_hdr`.
    pub fn found(&self) -> Option<&FoundFrames> {
        self.found.as_ref()
    }

    /// Returns the unwind information that was generated from code without any.
    pub fn generated(&self) -> Option<&Generated> {
        self.generated.as_ref()
    }

    /// True if there is so much code without unwind information that no rules are generated for it,
    /// and if its functions keep frame pointers: at least 49 of 50 of those in a sample that call
    /// others.
    pub fn keeps_frame_pointers(&self) -> bool {
        self.keeps_frame_pointers
    }

    /// Returns the bytes that it takes in a table at most.
    pub(crate) fn length(&self) -> usize {
        let found = self.found.as_ref().map_or(0, |found| found.pairs.len() * 8);
        let generated =
            self.generated.as_ref().map_or(0, |generated| generated.pairs.len() * 8 + generated.frames.len());
        found + generated + 64
    }

    /// Returns an index of an `.eh_frame`.
    fn index(&self, descriptions: &Descriptions) -> Option<FoundFrames> {
        let mut pairs: Vec<(u32, u32)> = Vec::with_capacity(descriptions.functions.len());
        for function in &descriptions.functions {
            let offset = function.start.checked_sub(self.start).and_then(|offset| u32::try_from(offset).ok());
            pairs.extend(offset.map(|offset| (offset, function.description)));
        }
        pairs.sort_unstable();
        pairs.dedup_by_key(|&mut (function, _)| function);
        let pairs: Vec<_> = pairs.into_iter().map(|(function, description)| pair(function, description)).collect();
        (!pairs.is_empty()).then_some(FoundFrames { address: descriptions.address, length: descriptions.length, pairs })
    }
}

fn open(path: &Path, options: SymbolizerOptions) -> Result<SymbolFiles> {
    SymbolFiles::open(path, options).map_err(|error| RulesError::Open { file: path.to_owned(), error })
}
