//! The headers of a module's file: its build id, and its segments.

use std::fs::{self, File};
use std::path::Path;

use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

use crate::state::BuildId;

/// The page size: the kernel maps whole pages.
const PAGE: u64 = 4096;

/// The headers of an executable or a library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// The loaded segments, in the order of the headers.
    segments: Vec<Segment>,
    /// The build id, if there is one.
    pub build_id: Option<BuildId>,
    /// True if a part of it is written in Go: it has the note or the section that Go's linker adds.
    pub has_go: bool,
}

/// A segment of a file that is loaded, with exact bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The module's own address of its first byte.
    pub start: u64,
    /// The address after its last byte.
    pub end: u64,
    /// The offset in the file of the first byte.
    pub offset: u64,
    /// The number of its bytes that are in the file.
    file_size: u64,
    is_code: bool,
}

impl Headers {
    /// Reads the headers of a 64-bit file. `None` if there is none, or it is invalid.
    pub fn read(path: &Path) -> Option<Headers> {
        // Not a pipe or the like, which would block.
        fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let cache = ReadCache::new(File::open(path).ok()?);
        let header = elf::FileHeader64::<Endianness>::parse(&cache).ok()?;
        let endian = header.endian().ok()?;
        let mut headers = Headers::default();
        for segment in header.program_headers(endian, &cache).ok()? {
            if segment.p_type(endian) == elf::PT_LOAD {
                let start = segment.p_vaddr(endian);
                headers.segments.push(Segment {
                    start,
                    end: start.checked_add(segment.p_memsz(endian))?,
                    offset: segment.p_offset(endian),
                    file_size: segment.p_filesz(endian),
                    is_code: segment.p_flags(endian) & elf::PF_X == elf::PF_X,
                });
            }
            let mut notes = segment.notes(endian, &cache).ok().flatten();
            while let Some(Ok(Some(note))) = notes.as_mut().map(|notes| notes.next()) {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                    headers.build_id.get_or_insert_with(|| BuildId(note.desc().into()));
                }
                headers.has_go |= note.name() == elf::ELF_NOTE_GO;
            }
        }
        // A linker script may leave the note out.
        headers.has_go |= header
            .sections(endian, &cache)
            .is_ok_and(|sections| sections.section_by_name(endian, b".go.buildinfo").is_some());
        Some(headers)
    }

    /// Returns the code: the first executable segment.
    pub fn code(&self) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.is_code)
    }

    /// Returns the number to subtract (wrapping) from an address to get the module's own address,
    /// if `offset` in the file was mapped to `start`. Prefers a mapping of code, if one may contain
    /// the offset. `None` if no segment contains it.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let may_be = |segment: &&Segment| {
            let first = segment.offset - segment.offset % PAGE;
            (first..segment.offset.saturating_add(segment.file_size)).contains(&offset)
        };
        let candidates = || self.segments.iter().filter(may_be);
        let segment = candidates().find(|segment| segment.is_code).or_else(|| candidates().next())?;
        let own = segment.start.wrapping_sub(segment.offset).wrapping_add(offset);
        Some(start.wrapping_sub(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns where this program's code is mapped: start, end and offset.
    fn own_code() -> (u64, u64, u64) {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let own = std::env::current_exe().unwrap();
        let is_own = |line: &&str| line.contains(" r-xp ") && line.ends_with(own.to_str().unwrap());
        let line = maps.lines().find(is_own).unwrap_or_else(|| panic!("{maps}"));
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (start, rest) = line.split_once('-').unwrap();
        let mut words = rest.split_whitespace();
        let (end, offset) = (number(words.next().unwrap()), number(words.nth(1).unwrap()));
        (number(start), end, offset)
    }

    #[test]
    fn of_this_program() {
        let headers = Headers::read(Path::new("/proc/self/exe")).unwrap();
        let code = headers.code().unwrap();
        // As the kernel maps it, except for what is on the same pages.
        let (start, end, offset) = own_code();
        let length = end - start;
        assert!(code.offset - offset < 1 << 16 && code.end - code.start <= length, "{code:?}");
        assert!(length - (code.end - code.start) < 2 << 16, "{code:?}");
        let bias = headers.bias(start, offset).unwrap();
        let function = of_this_program as fn() as usize as u64;
        assert!((code.start..code.end).contains(&function.wrapping_sub(bias)), "{bias:x} {code:?}");
        assert_eq!(bias % PAGE, 0);
        assert_eq!(Headers::read(Path::new("/dev/null")), None);
        assert_eq!(Headers::read(Path::new("/etc/passwd")), None);
    }

    #[test]
    fn segments_that_are_elsewhere_in_memory_than_in_the_file() {
        let segment = |start, offset, is_code| Segment { start, end: start + 0x600, offset, file_size: 0x600, is_code };
        // The layout of lld: each segment on pages of its own in memory, and right behind the one
        // before in the file.
        let headers =
            Headers { segments: vec![segment(0, 0, false), segment(0x1600, 0x600, true)], ..Headers::default() };
        // The code begins in the first page of the file.
        assert_eq!(headers.bias(0x7000_1000, 0), Some(0x7000_0000));
        assert_eq!(headers.bias(0x7000_1700, 0x700), Some(0x7000_0000));
        assert_eq!(headers.bias(0x7000_1000, 0x10_0000), None);
    }
}
