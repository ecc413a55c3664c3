//! The program of a process as a module: its addresses, and its unwind information.

use std::fs::{self, File};
use std::io::{self, Read};

use heapledger_wire::placed::PlacedModule;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};
use rustix::process::Pid;

use crate::error::{InjectError, Result};

/// Returns the program of a process as a module, by its file and the kernel's auxiliary vector.
pub(crate) fn of_program(pid: Pid) -> Result<PlacedModule> {
    let what = "reading the program's headers";
    let failed = |source: io::Error| InjectError::Request { what, source };
    let path = |name: &str| format!("/proc/{}/{name}", pid.as_raw_pid());
    let file = ReadCache::new(File::open(path("exe")).map_err(failed)?);
    let entry = auxiliary_entry(&path("auxv")).map_err(failed)?;
    read(&file, entry).map_err(|error| failed(io::Error::other(error.to_string())))
}

/// Returns the address of the program's first instruction.
fn auxiliary_entry(path: &str) -> io::Result<u64> {
    /// The vector has some twenty pairs of words.
    const LENGTH_MAX: u64 = 4096;
    const AT_ENTRY: u64 = 9;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(LENGTH_MAX).read_to_end(&mut bytes)?;
    let words = |pair: &[u8; 16]| {
        let (kind, value) = pair.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        (word(kind), word(value))
    };
    let entry = bytes.as_chunks::<16>().0.iter().map(words).find(|&(kind, _)| kind == AT_ENTRY);
    entry.map(|(_, value)| value).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn read(file: &ReadCache<File>, entry: u64) -> object::Result<PlacedModule> {
    let header = elf::FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    let bias = entry.wrapping_sub(header.e_entry(endian));
    let (mut start, mut end, mut eh_frame_hdr) = (u64::MAX, 0, 0);
    for segment in header.program_headers(endian, file)? {
        let (address, length) = (segment.p_vaddr(endian), segment.p_memsz(endian));
        match segment.p_type(endian) {
            elf::PT_LOAD => {
                start = start.min(address);
                end = end.max(address.saturating_add(length));
            }
            elf::PT_GNU_EH_FRAME => eh_frame_hdr = bias.wrapping_add(address),
            _ => {}
        }
    }
    Ok(PlacedModule { start: bias.wrapping_add(start), end: bias.wrapping_add(end), bias, eh_frame_hdr })
}
