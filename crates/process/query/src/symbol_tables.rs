//! The symbol tables of a 64-bit little-endian ELF file, whose bytes are not trusted.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// The table with all symbols of a file, and that with those which other files may need.
pub(crate) const ALL: u64 = 2;
pub(crate) const DYNAMIC: u64 = 11;

/// Kinds of symbols: data, such as a vtable, and functions.
pub(crate) const OBJECT: u64 = 1;
#[cfg(feature = "symbols")]
pub(crate) const FUNCTION: u64 = 2;

/// A file, with its lists of segments and sections.
pub(crate) struct ElfFile {
    file: File,
    segments: Vec<u8>,
    sections: Vec<u8>,
}

/// A symbol table and its names.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    symbols: Vec<u8>,
    /// Names, each with a zero behind it.
    pub(crate) names: Vec<u8>,
}

/// A symbol.
pub(crate) struct Symbol {
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// The beginning of its name.
    pub(crate) name: u32,
}

const SEGMENT: usize = 56;
const SECTION: usize = 64;
const SYMBOL: usize = 24;

impl ElfFile {
    pub(crate) fn open(path: &str) -> io::Result<ElfFile> {
        let file = File::open(path)?;
        let head = read(&file, 0, 64, u64::MAX)?;
        if &head[..6] != b"\x7fELF\x02\x01" {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let list = |start, count, size| read(&file, number(&head, start, 8), number(&head, count, 2) * size, u64::MAX);
        let (segments, sections) = (list(32, 56, SEGMENT as u64)?, list(40, 60, SECTION as u64)?);
        Ok(ElfFile { file, segments, sections })
    }

    /// Returns the place in the file of an address, in the file's own addresses.
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments.chunks_exact(SEGMENT).find_map(|segment| {
            let [offset, start, size] = [8, 16, 32].map(|field| number(segment, field, 8));
            let is_loaded = number(segment, 0, 4) == 1;
            (is_loaded && address.wrapping_sub(start) < size).then(|| (address - start).wrapping_add(offset))
        })
    }

    /// Reads the tables of these kinds, of which neither the symbols nor the names have more than
    /// so many bytes.
    pub(crate) fn tables(&self, kinds: &[u64], bytes_max: u64) -> io::Result<Vec<SymbolTable>> {
        let of_kind = self.sections.chunks_exact(SECTION).filter(|section| kinds.contains(&number(section, 4, 4)));
        let read = |section: &[u8]| read(&self.file, number(section, 24, 8), number(section, 32, 8), bytes_max);
        let table = |section| {
            let names = self.sections.chunks_exact(SECTION).nth(number(section, 40, 4) as usize);
            let names = names.ok_or(io::ErrorKind::InvalidData)?;
            Ok(SymbolTable { symbols: read(section)?, names: read(names)? })
        };
        of_kind.map(table).collect()
    }
}

impl SymbolTable {
    /// Returns the symbols of a kind.
    pub(crate) fn symbols(&self, kind: u64) -> impl Iterator<Item = Symbol> {
        let of_kind = self.symbols.chunks_exact(SYMBOL).filter(move |symbol| number(symbol, 4, 1) & 0xf == kind);
        of_kind.map(|symbol| Symbol {
            address: number(symbol, 8, 8),
            length: number(symbol, 16, 8),
            name: number(symbol, 0, 4) as u32,
        })
    }
}

/// Returns the name that begins there, without the zero behind it; `None` if there is none.
pub(crate) fn name(names: &[u8], at: u32) -> Option<&[u8]> {
    let name = names.get(at as usize..)?;
    Some(&name[..name.iter().position(|&byte| byte == 0)?])
}

fn read(mut file: &File, offset: u64, length: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
    if length > bytes_max.min(file.metadata()?.len()) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Returns a little-endian number in bytes that are there.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let mut word = [0; 8];
    word[..length].copy_from_slice(&bytes[at..at + length]);
    u64::from_le_bytes(word)
}
