//! Finding the allocator in a process.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

use memchr::memmem;
use object::elf::{FileHeader64, SHT_STRTAB};
use object::read::elf::{ElfFile, SectionHeader};
use object::{Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{HeapMapError, Result};
use crate::heap::HeapMap;
use crate::layout::SYMBOL;

pub(crate) type Elf<'data> = ElfFile<'data, FileHeader64<Endianness>, &'data ReadCache<File>>;

/// The files that were searched for Heapledger's allocator in vain, so that they need not be
/// searched again.
#[derive(Debug, Default)]
pub struct SearchedFiles(HashSet<FileIdentity>);

/// The device, the inode, the size, and the time of the last change (seconds and nanoseconds).
type FileIdentity = (u64, u64, u64, i64, i64);

impl SearchedFiles {
    /// The most files that are remembered.
    const FILES_MAX: usize = 1 << 14;

    fn identity(file: &File) -> Option<FileIdentity> {
        let metadata = file.metadata().ok()?;
        Some((metadata.dev(), metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
    }

    fn add(&mut self, file: FileIdentity) {
        if self.0.len() >= Self::FILES_MAX {
            self.0.clear();
        }
        self.0.insert(file);
    }
}

impl HeapMap {
    /// Reads the heap of a running process. The process is not stopped. So each run is shown as it
    /// is at a moment of its own. If one changes just then, its figures may be wrong, but not out
    /// of bounds.
    ///
    /// # Errors
    ///
    /// Fails if there is no such process, if this user may not read it (that takes the rights of a
    /// debugger), or if it does not use Heapledger's allocator.
    pub fn of_process(process: u32) -> Result<HeapMap, HeapMapError> {
        HeapMap::of_process_with(process, &mut SearchedFiles::default())
    }

    /// Does the same, without a search of files that were searched before.
    pub(crate) fn of_process_with(process: u32, searched: &mut SearchedFiles) -> Result<HeapMap> {
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => HeapMapError::NoProcess(process),
            // The process ended between two calls.
            _ if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => HeapMapError::NoProcess(process),
            _ => HeapMapError::NotAllowed(process),
        };
        let maps = fs::read(format!("/proc/{process}/maps")).map_err(refused)?;
        if maps.is_empty() {
            return Err(HeapMapError::NoProcess(process));
        }
        let memory = File::open(format!("/proc/{process}/mem")).map_err(refused)?;
        let maps = String::from_utf8_lossy(&maps);
        let mappings = Mapping::files(&maps);
        let addresses = mappings.iter().filter_map(|mapping| mapping.symbol(process, searched));
        HeapMap::read_used(&memory, addresses)?.ok_or(HeapMapError::NoAllocator(process))
    }
}

/// The first mapping of a file.
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'maps> {
    start: u64,
    offset: u64,
    path: &'maps str,
}

impl<'maps> Mapping<'maps> {
    /// Returns the files in the lines of `/proc/PID/maps`.
    fn files(maps: &'maps str) -> Vec<Mapping<'maps>> {
        let mut seen = BTreeSet::new();
        let mappings = maps.lines().filter_map(Mapping::parse);
        mappings.filter(|mapping| seen.insert(mapping.path)).collect()
    }

    fn parse(line: &'maps str) -> Option<Mapping<'maps>> {
        // START-END PERMISSIONS OFFSET DEVICE INODE PATH
        let mut fields = line.splitn(6, ' ');
        let (start, _) = fields.next()?.split_once('-')?;
        let offset = fields.nth(1)?;
        let path = fields.nth(2)?.trim_start();
        let number = |text| u64::from_str_radix(text, 16).ok();
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        path.starts_with('/').then_some(Mapping { start: number(start)?, offset: number(offset)?, path })
    }

    /// Returns the address of the allocator's symbol. `None` if the file does not have it, or
    /// cannot be read: it may be gone, or be no program.
    fn symbol(&self, process: u32, searched: &mut SearchedFiles) -> Option<u64> {
        // The path is the process's own view of it, which may be in a container.
        let file = open_file(&format!("/proc/{process}/root{}", self.path))?;
        let identity = SearchedFiles::identity(&file)?;
        if searched.0.contains(&identity) {
            return None;
        }
        let address = self.symbol_in(file);
        if address.is_none() {
            searched.add(identity);
        }
        address
    }

    fn symbol_in(&self, file: File) -> Option<u64> {
        let cache = ReadCache::new(file);
        let elf = Elf::parse(&cache).ok()?;
        if !has_name(&elf) {
            return None;
        }
        let is_it = |symbol: &object::read::elf::ElfSymbol64<'_, '_, Endianness, _>| {
            symbol.is_definition() && symbol.name_bytes() == Ok(SYMBOL)
        };
        let symbol = elf.dynamic_symbols().find(is_it).or_else(|| elf.symbols().find(is_it))?;
        let segment = elf.segments().find(|segment| {
            let (start, size) = segment.file_range();
            start / 4096 * 4096 <= self.offset && self.offset < start.saturating_add(size)
        })?;
        // The difference of an address in memory and in the file.
        let bias =
            self.start.wrapping_sub(self.offset).wrapping_sub(segment.address()).wrapping_add(segment.file_range().0);
        Some(symbol.address().wrapping_add(bias))
    }
}

/// True if the name of the allocator's symbol is in a string table of the file. Its bytes are found
/// in a fraction of the time that it takes to compare the names of all symbols.
fn has_name(elf: &Elf<'_>) -> bool {
    let endian = elf.endian();
    let mut tables = elf.sections().filter(|section| section.elf_section_header().sh_type(endian) == SHT_STRTAB);
    tables.any(|table| table.data().is_ok_and(|bytes| memmem::find(bytes, SYMBOL).is_some()))
}

/// Opens a regular file for reading. `None` for anything else: the opening of a device may have
/// effects, and that of a FIFO waits for a writer.
pub(crate) fn open_file(path: &str) -> Option<File> {
    let is_file = |metadata: io::Result<fs::Metadata>| metadata.is_ok_and(|metadata| metadata.is_file());
    if !is_file(fs::metadata(path)) {
        return None;
    }
    // The path may have been replaced since: then the opening must not wait either.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    is_file(file.metadata()).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::fs::{CWD, FileType};
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn files_are_found_in_the_lines_of_maps() {
        let maps = "\
55d0c0000000-55d0c0001000 r--p 00000000 08:01 42                         /usr/bin/a program
55d0c0001000-55d0c0002000 r-xp 00001000 08:01 42                         /usr/bin/a program
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
7f0000500000-7f0000600000 r--p 00003000 08:01 43                         /lib/b.so (deleted)
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
nonsense
";
        let expected = [
            Mapping { start: 0x55d0_c000_0000, offset: 0, path: "/usr/bin/a program" },
            Mapping { start: 0x7f00_0050_0000, offset: 0x3000, path: "/lib/b.so" },
        ];
        assert_eq!(Mapping::files(maps), expected);
    }

    #[test]
    fn a_process_without_the_allocator_is_told_from_no_process() {
        let own = std::process::id();
        assert!(matches!(HeapMap::of_process(own), Err(HeapMapError::NoAllocator(process)) if process == own));
        assert!(matches!(HeapMap::of_process(u32::MAX), Err(HeapMapError::NoProcess(_))));
    }

    #[test]
    fn files_are_searched_once() {
        let program = std::env::current_exe().unwrap();
        let mapping = Mapping { start: 0, offset: 0, path: program.to_str().unwrap() };
        let mut searched = SearchedFiles::default();
        for _ in 0..2 {
            assert_eq!(mapping.symbol(std::process::id(), &mut searched), None);
            assert_eq!(searched.0.len(), 1);
        }
    }

    /// A child that has ended and was not waited for has no memory.
    #[test]
    fn a_process_that_has_ended_is_none() {
        let mut child = Command::new("true").spawn().unwrap();
        let id = Pid::from_child(&child);
        waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let found = HeapMap::of_process(child.id());
        child.wait().unwrap();
        assert!(matches!(found, Err(HeapMapError::NoProcess(_))), "{found:?}");
    }

    /// A mapped file may have been replaced by a FIFO, the opening of which would wait for ever.
    #[test]
    fn a_fifo_is_not_opened() {
        let path = std::env::temp_dir().join(format!("heapledger-fifo-{}", std::process::id()));
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let symbol = Mapping { start: 0, offset: 0, path: path.to_str().unwrap() };
        let symbol = symbol.symbol(std::process::id(), &mut SearchedFiles::default());
        fs::remove_file(&path).unwrap();
        assert_eq!(symbol, None);
    }
}
