//! Places the recorder's library into a statically linked program before its first instruction.
//!
//! The program has been executed, and has not run yet: this thread traces it. The library is mapped
//! and relocated, given its parameters, and the entry points of the program's allocator are
//! redirected to it. Then the program runs, untraced.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use heapledger_inject::{ExecStop, Image, InjectError, Tracee};
use heapledger_wire::placed::{Parameters, SYMBOL};
use heapledger_wire::redirection::{Jump, Region, Thunk};
use rustix::process::Pid;

use crate::redirection::{self, Linking, Parts};

/// The library, and the session that it joins.
#[derive(Debug)]
pub(crate) struct Placement<'a> {
    /// The library's file.
    pub(crate) library: &'a [u8],
    /// The session's address.
    pub(crate) session: &'a OsStr,
}

/// The reason why the library was not placed into a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// The program cannot be worked on.
    #[error("{source}")]
    Inject {
        /// The reason.
        source: InjectError,
    },
    /// The program cannot be traced.
    #[error("the kernel does not let the recorder trace it: {source}")]
    NotTraced {
        /// The reason.
        source: io::Error,
    },
    /// No entry point of an allocator was found in the program.
    #[error("no allocator that is known was found in it")]
    NoAllocator,
    /// No entry point of the allocator can be redirected.
    #[error("none of its {entries} entry points can be redirected")]
    NothingRedirected {
        /// The number of entry points that were found.
        entries: u64,
    },
    /// The library does not match this recorder.
    #[error("the library to be placed is of another version")]
    OtherVersion,
}

impl From<InjectError> for PlacementError {
    fn from(source: InjectError) -> PlacementError {
        PlacementError::Inject { source }
    }
}

impl PlacementError {
    pub(crate) fn not_traced(source: io::Error) -> PlacementError {
        PlacementError::NotTraced { source }
    }
}

impl Placement<'_> {
    /// Waits until a child that this thread traces has executed its program, places the library,
    /// and lets the program run. If there is an error, it runs as it is.
    pub(crate) fn place(&self, pid: Pid) -> Result<(), PlacementError> {
        let mut stop = match ExecStop::wait(pid) {
            Ok(stop) => stop,
            Err(error) => {
                // If it has not ended, it must not stay stopped.
                let _ = Tracee::new(pid).detach();
                return Err(error.into());
            }
        };
        let placed = self.place_in(&mut stop, pid.as_raw_pid() as u32);
        stop.release()?;
        placed
    }

    pub(crate) fn place_in(&self, stop: &mut ExecStop, pid: u32) -> Result<(), PlacementError> {
        let image = Image::parse(self.library)?;
        let base = stop.reserve(image.length())?;
        let placed = self.fill(stop, pid, &image, base);
        if placed.is_err() {
            // If that fails, too, the memory stays, which costs the program nothing.
            let _ = stop.unmap(base, image.length());
        }
        placed
    }

    fn fill(&self, stop: &mut ExecStop, pid: u32, image: &Image<'_>, base: u64) -> Result<(), PlacementError> {
        let mut loaded = image.load(base)?;
        let description = loaded.at(image.symbol(SYMBOL)?);
        let word = |index: u64| loaded.word(description + index * 8);
        let (Some(version), Some(thunks), Some(parameters_at), Some(exec)) = (word(0), word(1), word(2), word(3))
        else {
            return Err(PlacementError::OtherVersion);
        };
        if version != u64::from(heapledger_wire::VERSION) {
            return Err(PlacementError::OtherVersion);
        }
        let mut parts =
            redirection::parts(pid, Thunk::first(thunks), Linking::Static).ok_or(PlacementError::NoAllocator)?;
        if parts.entries == 0 {
            return Err(PlacementError::NoAllocator);
        }
        let entries_planned = parts.jumps.len();
        redirection::add_exec(&mut parts, pid, exec, crate::session::records_mappings(self.session));
        // The code first: of a library without parameters nothing runs.
        let jumps = place_stubs(stop, &parts)?;
        let entries_redirected = jumps.iter().filter(|(index, _)| *index < entries_planned).count();
        if entries_redirected == 0 {
            return Err(PlacementError::NothingRedirected { entries: parts.entries });
        }
        let mut parameters =
            Parameters::new(self.session.as_bytes(), &stop.module()?).ok_or(PlacementError::OtherVersion)?;
        parameters.stack_top = stop.stack_top();
        parameters.entries_missed = parts.entries.saturating_sub(entries_redirected as u64);
        parameters.allocator = parts.allocator as u64;
        parameters.own_code = parts.own_code.unwrap_or_default();
        if !loaded.write(parameters_at, &parameters.to_bytes()) {
            return Err(PlacementError::OtherVersion);
        }
        stop.place(&loaded)?;
        // From the first jump on, the library has to stay. A jump has been written, or nothing has.
        let written: Vec<_> = jumps.iter().map(|(_, jump)| stop.tracee().write(jump.address, &jump.jump)).collect();
        match written.iter().any(Result::is_ok) {
            true => Ok(()),
            false => Ok(written.into_iter().collect::<Result<(), _>>()?),
        }
    }
}

/// Maps the stubs, and returns the jumps that lead to them with their indexes, as far as the code
/// is there that they replace.
fn place_stubs<'p>(stop: &mut ExecStop, parts: &'p Parts) -> Result<Vec<(usize, &'p Jump)>, PlacementError> {
    let mut failed = None;
    let mut is_mapped = |region: &&Region| {
        let (from, length) = (region.offset as usize, region.length as usize);
        let code = parts.code.get(from..from + length).unwrap_or(&[]);
        stop.place_code(region.address, code).map_err(|error| failed = Some(error)).is_ok()
    };
    let regions: Vec<&Region> = parts.regions.iter().filter(|region| is_mapped(region)).collect();
    if let (Some(error), true) = (failed, regions.is_empty()) {
        return Err(error.into());
    }
    let leads_there = |jump: &Jump| regions.iter().any(|region| region.contains(jump.target()));
    let mut jumps = Vec::new();
    for (index, jump) in parts.jumps.iter().enumerate().filter(|(_, jump)| leads_there(jump)) {
        if stop.has_code(jump.address, jump.expected())? {
            jumps.push((index, jump));
        }
    }
    Ok(jumps)
}
