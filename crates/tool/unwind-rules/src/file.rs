//! The unwind information of a file: where the file has it, an index if the file has none, and what
//! was generated from the code.

use std::path::Path;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use heapledger_symbols::{SymbolFiles, SymbolizerOptions};
use heapledger_wire::module_table::pair;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, elf};

use crate::error::{Result, RulesError};
use crate::generate::{self, Generated};

/// The page size: the kernel maps whole pages.
const PAGE: u64 = 4096;
/// The most segments that a file may have: linkers make fewer than twenty.
const SEGMENTS_MAX: usize = 256;
/// The most functions whose descriptions are read.
const DESCRIPTIONS_MAX: usize = 8 << 20;

pub(crate) type Elf<'data> = ElfFile64<'data, Endianness>;

/// The unwind information of a file. All addresses are the file's own.
#[derive(Clone, Debug, Default)]
pub struct FileRules {
    /// The first page, and the end of the last segment.
    start: u64,
    end: u64,
    eh_frame_hdr: Option<u64>,
    found: Option<FoundFrames>,
    generated: Option<Generated>,
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
    /// Reads a file, and generates rules for its code that has no unwind information.
    ///
    /// Takes time in proportion to the file's `.eh_frame` and to the code that it does not cover:
    /// about a second for a megabyte of such code. Memory is bounded by a multiple of both.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened, is not ELF for x86-64, or its headers are damaged.
    pub fn read(path: &Path) -> Result<FileRules> {
        FileRules::read_with(path, SymbolizerOptions::default())
    }

    /// Reads a file as [`FileRules::read`] does, and looks for its debug file, whose symbols say
    /// where functions begin, where `options` say. No server is asked.
    ///
    /// # Errors
    ///
    /// Fails as [`FileRules::read`] does.
    pub fn read_with(path: &Path, options: SymbolizerOptions) -> Result<FileRules> {
        let files =
            SymbolFiles::open(path, options).map_err(|error| RulesError::Open { file: path.to_owned(), error })?;
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
        let unreadable = |reason: String| RulesError::Unreadable { file: path.to_owned(), reason };
        let file = Elf::parse(bytes).map_err(|error| unreadable(error.to_string()))?;
        let (header, endian) = (file.elf_header(), file.endian());
        if header.e_machine(endian) != elf::EM_X86_64 || endian != Endianness::Little {
            return Err(RulesError::OtherMachine { file: path.to_owned() });
        }
        let mut rules = FileRules { start: u64::MAX, ..FileRules::default() };
        for segment in file.elf_program_headers().iter().take(SEGMENTS_MAX) {
            let address = segment.p_vaddr(endian);
            match segment.p_type(endian) {
                elf::PT_LOAD => {
                    let end = address.checked_add(segment.p_memsz(endian));
                    let end = end.ok_or_else(|| unreadable(format!("a segment at {address:#x} is too long")))?;
                    rules.start = rules.start.min(address - address % PAGE);
                    rules.end = rules.end.max(end);
                }
                elf::PT_GNU_EH_FRAME => rules.eh_frame_hdr = Some(address),
                _ => {}
            }
        }
        if rules.start >= rules.end {
            return Err(unreadable("it has no segments to load".to_owned()));
        }
        let descriptions = descriptions(&file);
        if rules.eh_frame_hdr.is_none() {
            rules.found = descriptions.as_ref().and_then(|descriptions| rules.index(descriptions));
        }
        let covered = descriptions.map(|descriptions| descriptions.functions).unwrap_or_default();
        rules.generated = generate::uncovered(&file, others, &covered, rules.start);
        Ok(rules)
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

/// A function that `.eh_frame` describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The offset of the description in `.eh_frame`.
    pub(crate) description: u32,
}

/// The descriptions in an `.eh_frame`.
struct Descriptions {
    address: u64,
    length: u64,
    functions: Vec<Described>,
}

/// Reads the descriptions of `.eh_frame`, as far as they are whole. `None` if there is none.
fn descriptions(file: &Elf<'_>) -> Option<Descriptions> {
    let section = file.section_by_name(".eh_frame")?;
    let bytes = section.data().ok()?;
    let frames = EhFrame::from(EndianSlice::new(bytes, LittleEndian));
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let mut functions = Vec::new();
    let mut entries = frames.entries(&bases);
    // The common parts are few and near their descriptions: the latest is usually the right one.
    let mut latest = None;
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|frames, bases, offset| match &latest {
            Some((at, common)) if *at == offset => Ok(Clone::clone(common)),
            _ => {
                let common = frames.cie_from_offset(bases, offset)?;
                latest = Some((offset, common.clone()));
                Ok(common)
            }
        });
        let Ok(description) = parsed else { continue };
        let (start, end) = (description.initial_address(), description.end_address());
        if start < end
            && let Ok(offset) = u32::try_from(description.offset())
        {
            functions.push(Described { start, end, description: offset });
        }
        if functions.len() == DESCRIPTIONS_MAX {
            break;
        }
    }
    functions.sort_unstable_by_key(|function| function.start);
    Some(Descriptions { address: section.address(), length: bytes.len() as u64, functions })
}
