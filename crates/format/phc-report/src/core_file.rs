//! Core files of processes with the heap checker.
//!
//! The checker keeps the latest reports in a mapping of its own, whose beginning tells it from
//! others: [`heapledger_core::crash_record`]. The rest comes from the notes of the core file (the
//! System V gABI, chapter 5, and Linux's `fs/binfmt_elf.c`): the files that were mapped
//! (`NT_FILE`), the process (`NT_PRPSINFO`), and its signal (`NT_PRSTATUS`).

use std::collections::HashMap;
use std::fmt;

use heapledger_core::crash_record::{HEADER, LENGTH, MAGIC, VERSION};
use object::elf::{FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadRef, elf};

use crate::{PhcFile, PhcFileError, parse};

/// Limits on what is read. A kernel allows a process 65,530 mappings by default.
const MAPPINGS_MAX: usize = 1 << 17;
const NOTES_BYTES_MAX: u64 = 64 << 20;
const PATH_BYTES_MAX: usize = 4096;
/// The most mappings that all reports have together. Some 60 reports of the checker fit in its
/// memory, so each can have all that a kernel allows.
const REPORT_MAPPINGS_MAX: usize = 1 << 22;
/// The most loaded objects whose first pages are searched for build ids.
const OBJECTS_MAX: usize = 1 << 14;
/// The bytes of a loaded object that Linux writes in any case, where its build id is.
const FIRST_PAGE: u64 = 4096;

/// A core file, as far as reports need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhcCore {
    /// The process.
    pub process: u32,
    /// The name of the program.
    pub program: String,
    /// The signal that ended the process; 0 if there was none.
    pub signal: u32,
    /// The mappings of files, as in `/proc/PID/maps`.
    pub maps: Vec<String>,
    /// The paths of loaded objects, and their build ids.
    pub build_ids: Vec<(String, Vec<u8>)>,
    reports: String,
}

/// The reason why a core file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PhcCoreError {
    /// It is no core file.
    NotCore,
    /// It is the core file of another processor.
    Machine,
    /// A part of it is not in the file: this is its offset in bytes.
    Cut(u64),
    /// It has no memory of the heap checker.
    NoChecker,
    /// The memory of the checker has this version.
    Version(u32),
}

impl fmt::Display for PhcCoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PhcCoreError::NotCore => out.write_str("offset 0: this is no core file"),
            PhcCoreError::Machine => out.write_str("offset 18: this is the core file of another processor than x86-64"),
            PhcCoreError::Cut(offset) => {
                write!(out, "offset {offset}: the file is damaged, or it ends before this part")
            }
            PhcCoreError::NoChecker => out.write_str("the process did not run with the heap checker"),
            PhcCoreError::Version(version) => {
                write!(out, "the heap checker of the process wrote version {version} of its reports, not {VERSION}")
            }
        }
    }
}

impl std::error::Error for PhcCoreError {}

/// True if a file that begins so is an ELF core file.
pub fn is_core(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF") && head.get(16..18) == Some(&[4, 0])
}

type Segments<'data> = &'data [ProgramHeader64<Endianness>];

/// Reads a core file. Reads the notes and the beginnings of its segments only, so a large one takes
/// no more memory than a small one: at most 64 MiB of notes, and the first pages of at most 16,384
/// loaded objects.
///
/// # Errors
///
/// See [`PhcCoreError`].
pub fn read_core<'data, R: ReadRef<'data>>(data: R) -> Result<PhcCore, PhcCoreError> {
    let head = data.read_bytes_at(0, 64).map_err(|()| PhcCoreError::NotCore)?;
    if !is_core(head) {
        return Err(PhcCoreError::NotCore);
    }
    let header = FileHeader64::<Endianness>::parse(data).map_err(|_| PhcCoreError::NotCore)?;
    let endian = header.endian().map_err(|_| PhcCoreError::NotCore)?;
    if header.e_machine(endian) != elf::EM_X86_64 {
        return Err(PhcCoreError::Machine);
    }
    let cut = |_| PhcCoreError::Cut(header.e_phoff(endian));
    let segments = header.program_headers(endian, data).map_err(cut)?;
    let mut core = PhcCore { reports: reports(endian, data, segments)?, ..PhcCore::default() };
    let (mut files, mut room) = (Vec::new(), NOTES_BYTES_MAX);
    for segment in segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_NOTE) {
        let cut = PhcCoreError::Cut(segment.p_offset(endian));
        // Segments may share their bytes, so their number times their size has no other bound.
        room = room.checked_sub(segment.p_filesz(endian)).ok_or(cut)?;
        let Some(mut notes) = segment.notes(endian, data).map_err(|_| cut)? else { continue };
        while let Some(note) = notes.next().map_err(|_| cut)? {
            match note.n_type(endian) {
                elf::NT_PRSTATUS if core.signal == 0 => core.signal = number(note.desc(), 12, 2) as u32,
                elf::NT_PRPSINFO => {
                    core.process = number(note.desc(), 24, 4) as u32;
                    let name = note.desc().get(40..56).unwrap_or(&[]);
                    core.program = text(name.split(|&byte| byte == 0).next().unwrap_or(&[]));
                }
                elf::NT_FILE => files = mapped_files(note.desc()),
                _ => {}
            }
        }
    }
    for MappedFile { start, end, offset, path } in &files {
        core.maps.push(format!("{start:x}-{end:x} r--p {offset:x} 00:00 0 {path}"));
    }
    core.build_ids = build_ids(endian, data, segments, files);
    Ok(core)
}

impl PhcCore {
    /// Returns the reports that the process has made, each with the mappings of files. All reports
    /// together have at most 4,194,304 of these: a forged file may have thousands of empty reports.
    ///
    /// # Errors
    ///
    /// See [`PhcFileError`]: lines are those of the text in the checker's memory.
    pub fn file(&self) -> Result<PhcFile<'_>, PhcFileError> {
        if self.reports.is_empty() {
            return Ok(PhcFile::default());
        }
        let mut file = parse(&self.reports)?;
        let maps_max = REPORT_MAPPINGS_MAX / file.reports.len().max(1);
        for report in &mut file.reports {
            report.maps = self.maps.iter().take(maps_max).map(String::as_str).collect();
            if report.program.is_empty() {
                report.program = &self.program;
            }
        }
        Ok(file)
    }
}

/// Finds the mapping of the checker, and returns the reports in it.
fn reports<'data, R: ReadRef<'data>>(
    endian: Endianness,
    data: R,
    segments: Segments<'data>,
) -> Result<String, PhcCoreError> {
    for segment in segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD) {
        let (offset, bytes) = (segment.p_offset(endian), segment.p_filesz(endian));
        if bytes < HEADER as u64 {
            continue;
        }
        // A core file that was cut off has parts that are not in it.
        let Ok(head) = data.read_bytes_at(offset, HEADER as u64) else { continue };
        if !head.starts_with(&MAGIC) {
            continue;
        }
        let (version, length) = (number(head, 16, 4) as u32, number(head, 20, 4));
        if version != VERSION {
            return Err(PhcCoreError::Version(version));
        }
        if length > (LENGTH - HEADER) as u64 || length > bytes - HEADER as u64 {
            return Err(PhcCoreError::Cut(offset));
        }
        let text = offset.checked_add(HEADER as u64).and_then(|offset| data.read_bytes_at(offset, length).ok());
        return Ok(String::from_utf8_lossy(text.ok_or(PhcCoreError::Cut(offset))?).into_owned());
    }
    Err(PhcCoreError::NoChecker)
}

struct MappedFile {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
}

/// Reads `NT_FILE`: the number of mappings, the unit of offsets, three numbers for each mapping,
/// and their paths.
fn mapped_files(note: &[u8]) -> Vec<MappedFile> {
    let (count, unit) = (number(note, 0, 8), number(note, 8, 8));
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(MAPPINGS_MAX).min(note.len() / 24);
    let mut paths = note.get(16 + count * 24..).unwrap_or(&[]).split(|&byte| byte == 0);
    let mut files = Vec::new();
    for index in 0..count {
        let at = |field: usize| number(note, 16 + index * 24 + field * 8, 8);
        let Some(path) = paths.next().filter(|path| path.len() <= PATH_BYTES_MAX) else { break };
        files.push(MappedFile { start: at(0), end: at(1), offset: at(2).saturating_mul(unit), path: text(path) });
    }
    files
}

/// Returns the build ids of loaded objects, by the paths of their files.
fn build_ids<'data, R: ReadRef<'data>>(
    endian: Endianness,
    data: R,
    segments: Segments<'data>,
    files: Vec<MappedFile>,
) -> Vec<(String, Vec<u8>)> {
    // Both files and segments may be many.
    let mut loaded = HashMap::new();
    for segment in segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD) {
        loaded.entry(segment.p_vaddr(endian)).or_insert(segment);
    }
    let objects = files.into_iter().filter(|file| file.offset == 0);
    let objects = objects.filter_map(|file| Some((*loaded.get(&file.start)?, file.path))).take(OBJECTS_MAX);
    objects.filter_map(|(segment, path)| Some((path, build_id(endian, data, segment)?))).collect()
}

/// Returns the build id of the object whose first page is at the beginning of a segment.
fn build_id<'data, R: ReadRef<'data>>(
    endian: Endianness,
    data: R,
    segment: &ProgramHeader64<Endianness>,
) -> Option<Vec<u8>> {
    let page = data.read_bytes_at(segment.p_offset(endian), segment.p_filesz(endian).min(FIRST_PAGE)).ok()?;
    let header = FileHeader64::<Endianness>::parse(page).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, page).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, page) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.n_type(endian) == elf::NT_GNU_BUILD_ID && note.name() == elf::ELF_NOTE_GNU {
                return Some(note.desc().to_vec());
            }
        }
    }
    None
}

/// Returns a little-endian number of up to eight bytes; 0 if the bytes are not there.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let bytes = at.checked_add(length).and_then(|end| bytes.get(at..end)).unwrap_or(&[]);
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Returns text in which every line break is another character, so that it is a part of a line.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(['\n', '\r'], "\u{fffd}")
}

#[cfg(test)]
mod tests;
