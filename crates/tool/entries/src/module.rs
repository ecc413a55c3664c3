//! The file of a program or of a library.

use std::path::{Path, PathBuf};

use heapledger_symbols::{SymbolFiles, SymbolizerOptions};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, elf};

use crate::error::{EntriesError, Result};

/// The most segments that a file may have: linkers make fewer than twenty.
const SEGMENTS_MAX: usize = 256;

/// An executable or a library whose entries are looked for: its bytes, mapped, and those of the
/// file with its symbols.
#[derive(Debug)]
pub struct Module {
    path: PathBuf,
    bytes: Bytes,
    /// The executable segments, by address.
    code: Vec<Segment>,
    /// True if it names a dynamic linker.
    is_program: bool,
    /// True if the dynamic linker changes its code.
    has_text_relocations: bool,
}

#[derive(Debug)]
enum Bytes {
    Files(SymbolFiles),
    Memory(Vec<u8>),
}

/// An executable segment, as far as it is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    offset: usize,
    length: usize,
}

impl Module {
    /// Maps a file and, if it has no symbol table, the separate file that has it: by build id or
    /// `.gnu_debuglink` in `/usr/lib/debug` and beside the file, or packed into the file
    /// (MiniDebugInfo).
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened, is not ELF for x86-64, or its headers are damaged.
    pub fn open(path: &Path) -> Result<Module> {
        Module::open_with(path, SymbolizerOptions::default())
    }

    /// Maps a file as [`Module::open`] does, and looks for debug files where `options` say: below
    /// the root of another mount namespace, for example. No server is asked.
    ///
    /// # Errors
    ///
    /// Fails as [`Module::open`] does.
    pub fn open_with(path: &Path, options: SymbolizerOptions) -> Result<Module> {
        let files =
            SymbolFiles::open(path, options).map_err(|error| EntriesError::Open { file: path.to_owned(), error })?;
        Module::new(path, Bytes::Files(files))
    }

    /// Reads a module from memory; it has no separate debug file.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not ELF for x86-64, or the headers are damaged. `path` is used in
    /// errors only.
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Module> {
        Module::new(path, Bytes::Memory(bytes))
    }

    fn new(path: &Path, bytes: Bytes) -> Result<Module> {
        let module =
            Module { path: path.to_owned(), bytes, code: vec![], is_program: false, has_text_relocations: false };
        let data = module.data();
        let unreadable = |error: object::Error| module.unreadable(error);
        let header = elf::FileHeader64::<Endianness>::parse(data).map_err(unreadable)?;
        let endian = header.endian().map_err(unreadable)?;
        if header.e_machine(endian) != elf::EM_X86_64 || endian != Endianness::Little {
            return Err(EntriesError::OtherMachine { file: module.path });
        }
        // The work of each pass over the code is bounded by the size of the file.
        let (mut code, mut code_length) = (vec![], 0_u64);
        let (mut is_program, mut has_text_relocations) = (false, false);
        for segment in header.program_headers(endian, data).map_err(unreadable)?.iter().take(SEGMENTS_MAX) {
            is_program |= segment.p_type(endian) == elf::PT_INTERP;
            let dynamic = segment.dynamic(endian, data).ok().flatten().unwrap_or_default();
            has_text_relocations |= dynamic.iter().any(|entry| relocates_text(entry, endian));
            if segment.p_type(endian) != elf::PT_LOAD || !segment.p_flags(endian).contains(elf::PF_X) {
                continue;
            }
            let (offset, size) = (segment.p_offset(endian), segment.p_filesz(endian).min(segment.p_memsz(endian)));
            let end = offset.checked_add(size).filter(|&end| end <= data.len() as u64);
            let address = segment.p_vaddr(endian);
            if end.is_none() || address.checked_add(size).is_none() {
                let reason = format!("the segment at offset {offset:#x} with {size} bytes is not in the file");
                return Err(EntriesError::Unreadable { file: module.path.clone(), reason });
            }
            code_length = size.saturating_add(code_length);
            if code_length > data.len() as u64 {
                let reason = "its executable segments overlap".to_owned();
                return Err(EntriesError::Unreadable { file: module.path.clone(), reason });
            }
            code.push(Segment { address, offset: offset as usize, length: size as usize });
        }
        code.sort_by_key(|segment| segment.address);
        Ok(Module { code, is_program, has_text_relocations, ..module })
    }

    /// Returns the path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes of the file.
    pub(crate) fn data(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Files(files) => files.module(),
            Bytes::Memory(bytes) => bytes,
        }
    }

    /// True if it is a program that is linked dynamically, not a library.
    pub fn is_program(&self) -> bool {
        self.is_program
    }

    /// True if the dynamic linker changes the code itself: it is in memory as in the file only
    /// before that.
    pub(crate) fn has_text_relocations(&self) -> bool {
        self.has_text_relocations
    }

    /// Returns the bytes of the other files that have symbols.
    pub(crate) fn debug_files(&self) -> Vec<&[u8]> {
        match &self.bytes {
            Bytes::Files(files) => files.others().map(|file| file.bytes).collect(),
            Bytes::Memory(_) => vec![],
        }
    }

    /// Returns the code from an address to the end of its segment; `None` if no code is there.
    pub(crate) fn code_at(&self, address: u64) -> Option<&[u8]> {
        self.segments().find_map(|(start, code)| {
            let offset = usize::try_from(address.checked_sub(start)?).ok()?;
            code.get(offset..).filter(|code| !code.is_empty())
        })
    }

    /// Returns the executable segments: the address and the bytes of each.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let data = self.data();
        // A mapped file may have been cut since its headers were read.
        let bytes = move |segment: &Segment| data.get(segment.offset..segment.offset.checked_add(segment.length)?);
        self.code.iter().filter_map(move |segment| Some((segment.address, bytes(segment)?)))
    }

    pub(crate) fn unreadable(&self, error: impl std::fmt::Display) -> EntriesError {
        EntriesError::Unreadable { file: self.path.clone(), reason: error.to_string() }
    }
}

/// True if an entry of the dynamic section says that the code is relocated.
fn relocates_text(entry: &elf::Dyn64<Endianness>, endian: Endianness) -> bool {
    match entry.d_tag(endian) {
        elf::DT_TEXTREL => true,
        elf::DT_FLAGS => entry.d_val(endian) & elf::DF_TEXTREL.0 != 0,
        _ => false,
    }
}
