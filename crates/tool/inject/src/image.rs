//! A shared library as a file, and its segments relocated to an address in a process.
//!
//! Only what a freestanding library has is supported: no thread-local storage, no symbols of other
//! libraries but weak ones.

use std::fs::File;

use object::elf;
use object::read::StringTable;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, Object, ObjectSymbol, ObjectSymbolTable, ReadCache, RelocationFlags, RelocationTarget};

use crate::error::{InjectError, Result};

/// The bytes of a page.
const PAGE: u64 = 4096;
/// The most bytes that a library may take in memory.
const LENGTH_MAX: u64 = 64 << 20;
/// The most bytes of the names of dynamic symbols that are read.
const NAMES_MAX: u64 = 64 << 20;

/// A library that can be placed.
#[derive(Debug)]
pub struct Image<'a> {
    bytes: &'a [u8],
    segments: Vec<FileSegment>,
    relocations: Vec<Relocation>,
    length: u64,
}

/// A segment, in the addresses of the file.
#[derive(Clone, Copy, Debug)]
struct FileSegment {
    address: u64,
    length: u64,
    offset: u64,
    file_length: u64,
    is_writable: bool,
    is_executable: bool,
}

/// A word that depends on where the library is.
#[derive(Clone, Debug)]
struct Relocation {
    at: u64,
    value: Value,
}

/// The value of a relocated word.
#[derive(Clone, Debug)]
enum Value {
    /// An address of the library.
    Own(u64),
    /// A weak symbol of this name.
    Weak(String),
}

/// A library at its address in a process.
#[derive(Debug)]
pub struct Loaded {
    /// The segments, by address.
    pub segments: Vec<Segment>,
    base: u64,
}

/// A segment as it is to be in memory.
#[derive(Debug)]
pub struct Segment {
    /// The address of its first page.
    pub start: u64,
    /// The bytes of its pages.
    pub length: u64,
    /// Its contents from the start on; zeros follow.
    pub bytes: Vec<u8>,
    /// True if it may be written to.
    pub is_writable: bool,
    /// True if it may be executed.
    pub is_executable: bool,
}

impl<'a> Image<'a> {
    /// Reads a library.
    ///
    /// # Errors
    ///
    /// Fails if it is no library for x86-64, or needs something that is not supported.
    pub fn parse(bytes: &'a [u8]) -> Result<Image<'a>> {
        let broken = |error: object::Error| damaged(error);
        let header = elf::FileHeader64::<Endianness>::parse(bytes).map_err(broken)?;
        let endian = header.endian().map_err(broken)?;
        if header.e_machine(endian) != elf::EM_X86_64 || header.e_type(endian) != elf::ET_DYN {
            return Err(damaged("it is no shared library for x86-64"));
        }
        let mut segments: Vec<FileSegment> = Vec::new();
        for segment in header.program_headers(endian, bytes).map_err(broken)? {
            if segment.p_type(endian) == elf::PT_TLS {
                return Err(damaged("it has thread-local storage"));
            }
            if segment.p_type(endian) == elf::PT_LOAD {
                segments.push(FileSegment::new(segment, endian, bytes.len() as u64)?);
            }
        }
        let length = segments.last().map_or(0, |last| last.address + last.length).next_multiple_of(PAGE);
        let is_ordered = segments.windows(2).all(|pair| pair[0].page_end() <= pair[1].page_start());
        if length == 0 || length > LENGTH_MAX || !is_ordered {
            return Err(damaged("its segments are in no order that can be mapped"));
        }
        let mut image = Image { bytes, segments, relocations: Vec::new(), length };
        image.relocations = image.read_relocations()?;
        Ok(image)
    }

    /// Returns the bytes that the library takes in memory, in whole pages.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the address of an exported symbol, in the addresses of the file.
    ///
    /// # Errors
    ///
    /// Fails if the library does not define it.
    pub fn symbol(&self, name: &str) -> Result<u64> {
        let file = object::File::parse(self.bytes).map_err(damaged)?;
        let found = file.dynamic_symbols().find(|symbol| symbol.is_definition() && symbol.name() == Ok(name));
        found.map(|symbol| symbol.address()).ok_or_else(|| damaged(format!("it has no symbol {name}")))
    }

    fn read_relocations(&self) -> Result<Vec<Relocation>> {
        let file = object::File::parse(self.bytes).map_err(damaged)?;
        let symbols = file.dynamic_symbol_table();
        let mut relocations = Vec::new();
        for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let addend = relocation.addend().cast_unsigned();
            let value = match relocation.flags() {
                RelocationFlags::Elf { r_type: elf::R_X86_64_RELATIVE } => Value::Own(addend),
                RelocationFlags::Elf { r_type } => {
                    let is_with_addend = r_type == elf::R_X86_64_64;
                    if !is_with_addend && r_type != elf::R_X86_64_GLOB_DAT && r_type != elf::R_X86_64_JUMP_SLOT {
                        return Err(damaged(format!("it has a relocation of type {r_type:?} at {at:#x}")));
                    }
                    let RelocationTarget::Symbol(index) = relocation.target() else {
                        return Err(damaged(format!("its relocation at {at:#x} has no symbol")));
                    };
                    let symbol = symbols.as_ref().and_then(|table| table.symbol_by_index(index).ok());
                    let symbol = symbol.ok_or_else(|| damaged(format!("its relocation at {at:#x} has no symbol")))?;
                    match (symbol.is_definition(), symbol.is_weak()) {
                        (true, _) => Value::Own(symbol.address().wrapping_add(if is_with_addend { addend } else { 0 })),
                        (false, true) => Value::Weak(symbol.name().unwrap_or_default().to_owned()),
                        (false, false) => {
                            let name = symbol.name().unwrap_or("?");
                            return Err(damaged(format!("it needs {name} of another library")));
                        }
                    }
                }
                _ => return Err(damaged(format!("it has an unknown relocation at {at:#x}"))),
            };
            relocations.push(Relocation { at, value });
        }
        Ok(relocations)
    }

    /// Returns the library as it is to be in memory, from this address on: a multiple of the size
    /// of a page, with room for [`length`](Image::length) bytes. Weak symbols are 0.
    ///
    /// # Errors
    ///
    /// Fails if a relocation is outside of the segments.
    pub fn load(&self, base: u64) -> Result<Loaded> {
        self.load_with(base, |_| None)
    }

    /// Returns the library as [`load`](Image::load) does, with the addresses in the process of the
    /// weak symbols that `resolve` knows.
    ///
    /// # Errors
    ///
    /// Fails as [`load`](Image::load) does.
    pub fn load_with(&self, base: u64, mut resolve: impl FnMut(&str) -> Option<u64>) -> Result<Loaded> {
        let mut segments: Vec<Segment> = self.segments.iter().map(|segment| self.load_segment(segment, base)).collect();
        for Relocation { at, value } in &self.relocations {
            let (at, word) = match value {
                Value::Own(address) => (*at, base.wrapping_add(*address)),
                Value::Weak(name) => (*at, resolve(name).unwrap_or(0)),
            };
            let mut written = Loaded::slot(&mut segments, base.wrapping_add(at), 8);
            let Some(slot) = written.as_mut().and_then(|slot| slot.first_chunk_mut::<8>()) else {
                return Err(damaged(format!("its relocation at {at:#x} is outside of its segments")));
            };
            *slot = word.to_le_bytes();
        }
        Ok(Loaded { segments, base })
    }

    fn load_segment(&self, segment: &FileSegment, base: u64) -> Segment {
        let before = (segment.address - segment.page_start()) as usize;
        let from = segment.offset as usize;
        // `FileSegment::new` has checked the bounds.
        let contents = self.bytes.get(from..from + segment.file_length as usize).unwrap_or(&[]);
        let mut bytes = vec![0; before];
        bytes.extend(contents);
        Segment {
            start: base + segment.page_start(),
            length: segment.page_end() - segment.page_start(),
            bytes,
            is_writable: segment.is_writable,
            is_executable: segment.is_executable,
        }
    }
}

/// The addresses of a module, in its own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first address of its first segment.
    pub start: u64,
    /// One past the last address of its last segment.
    pub end: u64,
    /// The address of its `.eh_frame_hdr`, if it has one.
    pub eh_frame_hdr: Option<u64>,
}

/// Returns the bounds of an executable or a library; `None` if its headers are damaged. Reads only
/// the headers.
pub fn bounds(file: File) -> Option<Bounds> {
    let file = ReadCache::new(file);
    let header = elf::FileHeader64::<Endianness>::parse(&file).ok()?;
    let endian = header.endian().ok()?;
    let headers = header.program_headers(endian, &file).ok()?;
    let loaded = || headers.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
    let end = |segment: &elf::ProgramHeader64<_>| segment.p_vaddr(endian).saturating_add(segment.p_memsz(endian));
    let index = headers.iter().find(|segment| segment.p_type(endian) == elf::PT_GNU_EH_FRAME);
    Some(Bounds {
        start: loaded().map(|segment| segment.p_vaddr(endian)).min()?,
        end: loaded().map(end).max()?,
        eh_frame_hdr: index.map(|segment| segment.p_vaddr(endian)),
    })
}

/// Returns the address, in the module's own numbering, of a symbol that an executable or a library
/// exports. Reads the headers, the table of the dynamic symbols, and that of their names at once:
/// programs wait for this.
pub fn exported_symbol(file: File, name: &str) -> Option<u64> {
    let cache = ReadCache::new(file);
    let header = elf::FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &cache).ok()?;
    let symbols = sections.symbols(endian, &cache, elf::SHT_DYNSYM).ok()?;
    let names = sections.section(symbols.string_section()).ok()?;
    if names.sh_size(endian) > NAMES_MAX {
        return None;
    }
    let names = names.data(endian, &cache).ok()?;
    let names = StringTable::new(names, 0, names.len() as u64);
    let is_wanted = |symbol: &&elf::Sym64<Endianness>| {
        symbol.name(endian, names) == Ok(name.as_bytes()) && symbol.is_definition(endian, names)
    };
    symbols.iter().find(is_wanted).map(|symbol| symbol.st_value(endian))
}

impl FileSegment {
    fn new(header: &elf::ProgramHeader64<Endianness>, endian: Endianness, bytes: u64) -> Result<FileSegment> {
        let flags = header.p_flags(endian);
        let segment = FileSegment {
            address: header.p_vaddr(endian),
            length: header.p_memsz(endian),
            offset: header.p_offset(endian),
            file_length: header.p_filesz(endian),
            is_writable: flags.contains(elf::PF_W),
            is_executable: flags.contains(elf::PF_X),
        };
        let is_sound = segment.address <= LENGTH_MAX
            && segment.length <= LENGTH_MAX
            && segment.file_length <= segment.length
            && segment.offset.checked_add(segment.file_length).is_some_and(|end| end <= bytes)
            && !(segment.is_writable && segment.is_executable);
        if is_sound {
            Ok(segment)
        } else {
            Err(damaged(format!("its segment at {:#x} is impossible", segment.address)))
        }
    }

    fn page_start(&self) -> u64 {
        self.address & !(PAGE - 1)
    }

    fn page_end(&self) -> u64 {
        (self.address + self.length).next_multiple_of(PAGE)
    }
}

impl Loaded {
    /// Returns the address in the process of an address of the file.
    pub fn at(&self, address: u64) -> u64 {
        self.base.wrapping_add(address)
    }

    /// Returns the word at an address of the process; `None` if the library has none there.
    pub fn word(&self, address: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| segment.contains(address))?;
        let offset = (address - segment.start) as usize;
        Some(u64::from_le_bytes(*segment.bytes.get(offset..)?.first_chunk()?))
    }

    /// Writes bytes to an address of the process. False if the library has no writable memory
    /// there.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        let is_writable = |segment: &&Segment| segment.is_writable && segment.contains(address);
        let can_be_written = self.segments.iter().find(is_writable).is_some();
        let slot = Loaded::slot(&mut self.segments, address, bytes.len()).filter(|_| can_be_written);
        let Some(to) = slot.and_then(|slot| slot.get_mut(..bytes.len())) else { return false };
        to.copy_from_slice(bytes);
        true
    }

    /// Returns the bytes of a segment from an address of the process on: at least as many as
    /// wanted, if they are inside of it. Zeros that follow the file's contents are made.
    fn slot(segments: &mut [Segment], address: u64, wanted: usize) -> Option<&mut [u8]> {
        let segment = segments.iter_mut().find(|segment| segment.contains(address))?;
        let offset = (address - segment.start) as usize;
        let end = offset.checked_add(wanted).filter(|&end| end as u64 <= segment.length)?;
        if segment.bytes.len() < end {
            segment.bytes.resize(end, 0);
        }
        segment.bytes.get_mut(offset..)
    }
}

impl Segment {
    fn contains(&self, address: u64) -> bool {
        (self.start..self.start + self.length).contains(&address)
    }
}

fn damaged(reason: impl ToString) -> InjectError {
    InjectError::Image { reason: reason.to_string() }
}

#[cfg(test)]
mod tests;
