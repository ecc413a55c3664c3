//! The memory of another process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{InjectError, Result};
use crate::maps::Mapping;
use crate::ptrace;

/// The most bytes of `/proc/PID/maps` that are read.
const MAPS_LENGTH_MAX: u64 = 64 << 20;
/// The most bytes of a mapping in which a `syscall` instruction is looked for.
const SEARCHED_MAX: u64 = 4 << 20;

/// The memory of a process, which is read and written whatever its protection is. It stays that of
/// the program that runs when it is opened: if the process starts another one, nothing can be read
/// or written any more.
#[derive(Debug)]
pub struct Memory {
    pid: u32,
    file: File,
    /// An address that is mapped.
    probe: u64,
}

impl Memory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    ///
    /// Fails if there is no such process, or if the kernel does not let this one debug it.
    pub fn open(pid: u32) -> Result<Memory> {
        let path = living(pid).join("mem");
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => InjectError::Gone,
            _ => InjectError::Denied { source },
        })?;
        let mut memory = Memory { pid, file, probe: 0 };
        let readable = memory.mappings()?.into_iter().find(|mapping| mapping.is_readable);
        memory.probe = readable.map(|mapping| mapping.range.start).ok_or(InjectError::Gone)?;
        Ok(memory)
    }

    /// True if the process still has this memory: it has neither ended nor started another program.
    /// It stays so while a thread of the process is stopped.
    pub fn is_current(&self) -> bool {
        // The file of memory that is not used any more reads as empty; an address at which nothing
        // is mapped any more is an error.
        !matches!(self.file.read_at(&mut [0], self.probe), Ok(0))
    }

    /// Reads bytes.
    ///
    /// # Errors
    ///
    /// Fails if not all are mapped, or the process has ended.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(bytes, address).map_err(InjectError::request("reading memory"))
    }

    /// Reads as many bytes as are mapped from an address on, and returns their number.
    pub(crate) fn read_some(&self, address: u64, bytes: &mut [u8]) -> usize {
        let mut count = 0;
        while let Some(rest) = bytes.get_mut(count..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, address + count as u64) {
                Ok(0) | Err(_) => break,
                Ok(read) => count += read,
            }
        }
        count
    }

    /// Writes bytes, also where the program cannot.
    ///
    /// # Errors
    ///
    /// Fails if not all are mapped, if the process has ended, or if the kernel is configured to
    /// refuse (`PROC_MEM_NO_FORCE`): then [`Threads::write`](crate::Threads::write) can.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, address).map_err(InjectError::request("writing memory"))
    }

    /// Returns the mappings of the process, by address.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended, or has so many that their list is longer than 64 MiB.
    pub fn mappings(&self) -> Result<Vec<Mapping>> {
        mappings(self.pid)
    }

    /// Returns the address of a `syscall` instruction in these mappings: of the vDSO, which has
    /// some, or of a library. Bytes inside another instruction do as well.
    pub fn syscall_instruction(&self, mappings: &[Mapping]) -> Option<u64> {
        syscall_instruction(mappings, |address, bytes| self.read_some(address, bytes))
    }
}

/// Returns the mappings of a process, by address.
pub(crate) fn mappings(pid: u32) -> Result<Vec<Mapping>> {
    let list = Mapping::read_list(living(pid).join("maps"), MAPS_LENGTH_MAX);
    list.map_err(InjectError::request("reading the list of mappings"))
}

/// Finds a `syscall` instruction: see [`Memory::syscall_instruction`]. `read` returns the number of
/// bytes that it has read.
pub(crate) fn syscall_instruction(mappings: &[Mapping], read: impl Fn(u64, &mut [u8]) -> usize) -> Option<u64> {
    let code = || mappings.iter().filter(|mapping| mapping.is_executable && mapping.is_readable);
    let first = code().filter(|mapping| mapping.name == b"[vdso]");
    first.chain(code()).find_map(|mapping| {
        let length = mapping.bytes().min(SEARCHED_MAX);
        let mut bytes = vec![0; length as usize];
        let count = read(mapping.range.start, &mut bytes);
        let found = bytes.get(..count)?.windows(2).position(|pair| pair == [0x0f, 0x05])?;
        Some(mapping.range.start + found as u64)
    })
}

/// Reads memory by a stopped thread that the calling thread traces, word by word.
pub(crate) fn read_words(tid: u32, address: u64, bytes: &mut [u8]) -> Result<()> {
    let failed = |source| InjectError::Memory { done: "read", address, source };
    for (index, chunk) in bytes.chunks_mut(8).enumerate() {
        let word = ptrace::peek(tid, address + index as u64 * 8).map_err(failed)?;
        chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
    }
    Ok(())
}

/// Writes memory by a stopped thread that the calling thread traces, word by word, whether its
/// pages are writable or not.
pub(crate) fn write_words(tid: u32, address: u64, bytes: &[u8]) -> Result<()> {
    let failed = |source| InjectError::Memory { done: "written", address, source };
    for (index, chunk) in bytes.chunks(8).enumerate() {
        let at = address + index as u64 * 8;
        let mut word = if chunk.len() == 8 { [0; 8] } else { ptrace::peek(tid, at).map_err(failed)?.to_ne_bytes() };
        word[..chunk.len()].copy_from_slice(chunk);
        ptrace::poke(tid, at, u64::from_ne_bytes(word)).map_err(failed)?;
    }
    Ok(())
}

/// Returns the directory in proc(5) of a thread that has the process's memory: the first one, or
/// another if that has ended before the others. That of the first one if there is none.
fn living(pid: u32) -> PathBuf {
    let process = PathBuf::from(format!("/proc/{pid}"));
    // The list of a thread that has ended is empty. An error is the caller's.
    let has_memory = |thread: &Path| {
        let maps = File::open(thread.join("maps"));
        maps.and_then(|mut maps| maps.read(&mut [0])).map_or(true, |length| length > 0)
    };
    if has_memory(&process) {
        return process;
    }
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path()).find(|thread| has_memory(thread)).unwrap_or(process)
}

#[cfg(test)]
mod tests;
