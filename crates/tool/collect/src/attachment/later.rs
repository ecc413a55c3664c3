//! Modules that a program opens while the library is in it: their allocators are redirected before
//! the dynamic linker goes on.
//!
//! A thread of the program is in the linker, and waits for the recorder. Nobody can call the
//! functions of the new modules yet. So one thread is stopped, which maps the stubs; the others go
//! on.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heapledger_inject::{Caller, InjectError, Memory, Threads};
use heapledger_wire::redirection::{Jump, Region};

use super::{Attachment, Part, Wanted, has_jump, in_tracer};
use crate::redirection::{self, Opened, Parts};

/// The most modules that are redirected while a process is recorded: each keeps its stubs.
const MODULES_MAX: usize = 1024;

/// The modules that were redirected later.
#[derive(Debug, Default)]
pub(super) struct Later(Mutex<Modules>);

#[derive(Clone, Debug, Default)]
pub(super) struct Modules {
    /// True from the end of the recording on.
    is_closed: bool,
    redirected: Vec<Redirected>,
}

#[derive(Clone, Debug)]
struct Redirected {
    /// The module, and where it was.
    module: (PathBuf, u64, u64),
    jumps: Vec<Jump>,
    stubs: Vec<Range<u64>>,
}

impl Later {
    fn lock(&self) -> MutexGuard<'_, Modules> {
        // The modules are consistent between any two calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the modules; no more come.
    pub(super) fn close(&self) -> Modules {
        let mut modules = self.lock();
        modules.is_closed = true;
        modules.clone()
    }
}

impl Attachment {
    /// Returns what has to be taken out of a process with this memory: the process itself, or one
    /// that it has forked. Modules that have been closed since, or were opened after the fork, are
    /// left out.
    pub(super) fn with(&self, pid: u32, memory: &Arc<Memory>, opened: &Modules) -> Attachment {
        let (mut mapped, mut code, mut jumps) = (self.mapped.clone(), self.code.clone(), self.jumps.clone());
        for module in &opened.redirected {
            jumps.extend(module.jumps.iter().filter(|jump| has_jump(memory, jump)));
            // Stubs begin with the address of the thunk.
            let is_there = |stubs: &&Range<u64>| {
                let mut word = [0; 8];
                memory.read(stubs.start, &mut word).is_ok() && u64::from_ne_bytes(word) == self.thunk
            };
            let stubs = module.stubs.iter().filter(is_there);
            mapped.extend(stubs.clone().cloned());
            code.extend(stubs.cloned());
        }
        code.sort_by_key(|range| range.start);
        let (memory, program, shared_before) = (Arc::clone(memory), self.program.clone(), self.shared_before.clone());
        Attachment { pid, memory, program, mapped, code, jumps, shared_before, later: Later::default(), ..*self }
    }

    /// Redirects the allocators of modules that a process has opened, one of whose threads waits
    /// for that. Returns the number of entries that should be redirected and are not.
    pub(crate) fn redirect_opened(&self, pid: u32) -> u64 {
        let mut later = self.later.lock();
        if later.is_closed {
            return 0;
        }
        // A forked child has its own memory.
        let own;
        let memory = match pid == self.pid {
            true => &*self.memory,
            false => {
                let Ok(opened) = Memory::open(pid) else { return 0 };
                own = opened;
                &own
            }
        };
        let is_new = |address: u64, expected: &[u8]| {
            let mut found = vec![0; expected.len()];
            memory.read(address, &mut found).is_ok() && found == expected
        };
        let opened = redirection::plan_opened(pid, self.thunk, is_new).unwrap_or_default();
        // A change of a child could not be taken back: it is not known here.
        let is_own = pid == self.pid && memory.is_current();
        opened.iter().map(|opened| if is_own { self.redirect(opened, &mut later) } else { opened.parts.entries }).sum()
    }

    fn redirect(&self, opened: &Opened, later: &mut Modules) -> u64 {
        let Opened { module, parts } = opened;
        let known = (module.path.clone(), module.start, module.inode);
        // It was there before, and its stubs still are.
        let again = later.redirected.iter().find(|redirected| redirected.module == known);
        let jumps = match again {
            Some(redirected) => redirected.jumps.clone(),
            None if later.redirected.len() == MODULES_MAX => return parts.entries,
            None => parts.jumps.clone(),
        };
        let written = in_tracer(|| self.write(parts, &jumps, again.is_some())).unwrap_or(0);
        if again.is_none() && written != 0 {
            let range = |region: &Region| region.address..region.address + region.length;
            let stubs = parts.regions.iter().map(range).collect();
            later.redirected.push(Redirected { module: known, jumps, stubs });
        }
        parts.entries.saturating_sub(written)
    }

    /// Maps and fills stubs, unless they are there, and writes the jumps to them. Returns the
    /// number of jumps that were written: all, or none.
    fn write(&self, parts: &Parts, jumps: &[Jump], has_stubs: bool) -> Result<u64, InjectError> {
        let memory = &self.memory;
        let mut threads = Threads::stop_one(self.pid)?;
        if !memory.is_current() {
            return Err(InjectError::OtherProgram);
        }
        if !has_stubs {
            let wanted = Wanted { mapped: parts.regions.iter().map(Part::of_stubs).collect() };
            let instruction = memory.syscall_instruction(&memory.mappings()?).ok_or(InjectError::NoVdso)?;
            wanted.map_by(&mut Caller::new(&mut threads, instruction)?)?;
            for region in &parts.regions {
                let (from, length) = (region.offset as usize, region.length as usize);
                threads.write(memory, region.address, parts.code.get(from..from + length).unwrap_or(&[]))?;
            }
        }
        for (index, jump) in jumps.iter().enumerate() {
            let Err(error) = threads.write(memory, jump.address, &jump.jump) else { continue };
            for jump in jumps.iter().take(index) {
                let _ = threads.write(memory, jump.address, jump.expected().get(..Jump::LENGTH).unwrap_or(&[]));
            }
            return Err(error);
        }
        Ok(jumps.len() as u64)
    }
}
