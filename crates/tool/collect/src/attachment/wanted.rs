//! The memory that a process maps for the library: for its segments, and for stubs.

use std::io;
use std::ops::Range;

use heapledger_inject::{Caller, Image, InjectError, Loaded, Memory, Threads};
use heapledger_wire::redirection::Region;

use crate::redirection::RunningPlan;

/// Memory that a process is to map.
pub(super) struct Wanted {
    pub(super) mapped: Vec<Part>,
}

pub(super) struct Part {
    pub(super) range: Range<u64>,
    protection: i32,
    is_code: bool,
}

impl Part {
    pub(super) fn of_stubs(region: &Region) -> Part {
        Part {
            range: region.address..region.address + region.length,
            protection: libc::PROT_READ | libc::PROT_EXEC,
            is_code: true,
        }
    }
}

impl Wanted {
    pub(super) fn new(loaded: &Loaded, image: &Image<'_>, plan: &RunningPlan) -> Wanted {
        let base = loaded.at(0);
        // All of the library's room, so that nothing else gets between its segments.
        let whole = Part { range: base..base + image.length(), protection: libc::PROT_NONE, is_code: false };
        let segments = loaded.segments.iter().map(|segment| {
            let writable = if segment.is_writable { libc::PROT_WRITE } else { 0 };
            let executable = if segment.is_executable { libc::PROT_EXEC } else { 0 };
            let protection = libc::PROT_READ | writable | executable;
            Part { range: segment.start..segment.start + segment.length, protection, is_code: segment.is_executable }
        });
        let stubs = plan.parts.regions.iter().map(Part::of_stubs);
        Wanted { mapped: [whole].into_iter().chain(segments).chain(stubs).collect() }
    }

    /// Returns the parts with code, in ascending order.
    pub(super) fn code(&self) -> Vec<Range<u64>> {
        let mut code: Vec<_> = self.mapped.iter().filter(|part| part.is_code).map(|part| part.range.clone()).collect();
        code.sort_by_key(|range| range.start);
        code
    }

    /// Maps all parts, by calls of one thread of the process, or none.
    pub(super) fn map(&self, pid: u32, memory: &Memory) -> Result<(), InjectError> {
        let mut threads = Threads::stop_one(pid)?;
        if !memory.is_current() {
            return Err(InjectError::OtherProgram);
        }
        let instruction = memory.syscall_instruction(&memory.mappings()?).ok_or(InjectError::NoVdso)?;
        self.map_by(&mut Caller::new(&mut threads, instruction)?)
    }

    /// Maps all parts by calls of a stopped thread, or none.
    pub(super) fn map_by(&self, caller: &mut Caller<'_>) -> Result<(), InjectError> {
        let mut made: Vec<Range<u64>> = Vec::new();
        for Part { range, protection, .. } in &self.mapped {
            let is_inside = made.first().is_some_and(|whole| whole.contains(&range.start));
            let place = if is_inside { libc::MAP_FIXED } else { libc::MAP_FIXED_NOREPLACE };
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | place;
            let length = range.end - range.start;
            let arguments = [range.start, length, *protection as u64, flags as u64, u64::MAX, 0];
            let mapped = caller.syscall("map memory", libc::SYS_mmap, arguments);
            let failure = match mapped {
                Ok(address) if address == range.start => {
                    made.push(range.clone());
                    continue;
                }
                Ok(elsewhere) => {
                    // Kernels before 4.17 take the address for a hint.
                    made.push(elsewhere..elsewhere + length);
                    InjectError::Call { what: "map memory near its code", source: io::ErrorKind::AlreadyExists.into() }
                }
                Err(error) => error,
            };
            for range in made {
                let _ = caller.syscall(
                    "give memory back",
                    libc::SYS_munmap,
                    [range.start, range.end - range.start, 0, 0, 0, 0],
                );
            }
            return Err(failure);
        }
        Ok(())
    }
}
