//! Modules that a program opens while the library is in it: their allocators are redirected before
//! the dynamic linker goes on.
//!
//! A thread of the program is in the linker, and waits for the recorder. One thread is stopped, and
//! maps the stubs. The jumps to them are written as when the library was placed: all threads are
//! stopped, and none may be where a jump will be. Nobody can call the functions of the new modules
//! yet. But a module that was missed before, for want of room or because it was opened while the
//! others were redirected, may be in use by all threads.

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heapledger_inject::{Caller, InjectError, Mapping, Memory, Threads};
use heapledger_wire::redirection::{Jump, Region};

use super::{Attachment, Change, Part, Wanted, change_within, has_jump, in_tracer};
use crate::redirection::{self, Opened, Parts};

/// The most modules that are redirected while a process is recorded: each keeps its stubs.
const MODULES_MAX: usize = 1024;
/// The time for which all threads are stopped in attempts to redirect a module: one of them waits
/// for the end of these in the linker. The next module that is opened gives another try.
const STOPPED_MAX: Duration = Duration::from_millis(50);
/// The most modules whose missing entries are counted.
const MISSED_MAX: usize = 1 << 14;

/// A module, by its path, its address and its inode.
type ModuleKey = (PathBuf, u64, u64);

/// The modules that were redirected later.
#[derive(Debug, Default)]
pub(super) struct Later(Mutex<Modules>);

#[derive(Clone, Debug, Default)]
pub(super) struct Modules {
    /// True from the end of the recording on.
    is_closed: bool,
    redirected: Vec<Redirected>,
    /// The modules whose missing entries have been counted, by process.
    missed: HashSet<(u32, ModuleKey)>,
}

/// A module whose stubs are mapped. Its jumps may not be written, or not any more.
#[derive(Clone, Debug)]
struct Redirected {
    module: ModuleKey,
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
        let (mut mapped, mut code) = (self.mapped.clone(), self.code.clone());
        let mappings = memory.mappings().unwrap_or_default();
        let module_of = |jump: &Jump| self.modules.iter().find(|module| module.range.contains(&jump.address));
        let is_closed = |jump: &Jump| is_closed(memory, &mappings, jump, module_of(jump));
        // The entry of a module that is there and has another jump may lead to ours yet.
        let mut jumps: Vec<Jump> = self.jumps.iter().filter(|jump| !is_closed(jump)).copied().collect();
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
        let (modules, later) = (self.modules.clone(), Later::default());
        Attachment { pid, memory, program, mapped, code, jumps, modules, shared_before, later, ..*self }
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
        let mut missed = 0;
        for opened in &opened {
            let entries = if is_own { self.redirect(opened, &mut later) } else { opened.parts.entries };
            missed += later.count_missed(pid, opened, entries);
        }
        missed
    }

    /// Redirects the allocators of a module. Returns the number of entries that are not redirected.
    fn redirect(&self, opened: &Opened, later: &mut Modules) -> u64 {
        let (parts, module) = (&opened.parts, opened.key());
        // It was there before, and its stubs still are.
        let known = later.redirected.iter().find(|redirected| redirected.module == module);
        let jumps = match known {
            Some(redirected) => redirected.jumps.clone(),
            None if later.redirected.len() == MODULES_MAX => return parts.entries,
            None if parts.jumps.is_empty() || in_tracer(|| self.map_stubs(parts)).is_err() => return parts.entries,
            None => {
                let range = |region: &Region| region.address..region.address + region.length;
                let stubs = parts.regions.iter().map(range).collect();
                later.redirected.push(Redirected { module, jumps: parts.jumps.clone(), stubs });
                parts.jumps.clone()
            }
        };
        let changes: Vec<Change<'_>> = jumps.iter().map(Change::to_jump).collect();
        match change_within(STOPPED_MAX, self.pid, &self.memory, &changes) {
            Ok(_) => parts.entries.saturating_sub(jumps.len() as u64),
            Err(_) => parts.entries,
        }
    }

    /// Maps and fills stubs, or maps nothing.
    fn map_stubs(&self, parts: &Parts) -> Result<(), InjectError> {
        let memory = &self.memory;
        let mut threads = Threads::stop_one(self.pid)?;
        if !memory.is_current() {
            return Err(InjectError::OtherProgram);
        }
        let wanted = Wanted { mapped: parts.regions.iter().map(Part::of_stubs).collect() };
        let instruction = memory.syscall_instruction(&memory.mappings()?).ok_or(InjectError::NoVdso)?;
        wanted.map_by(&mut Caller::new(&mut threads, instruction)?)?;
        let filled = parts.regions.iter().try_for_each(|region| {
            let (from, length) = (region.offset as usize, region.length as usize);
            threads.write(memory, region.address, parts.code.get(from..from + length).unwrap_or(&[]))
        });
        if filled.is_err() {
            let mut caller = Caller::new(&mut threads, instruction)?;
            for region in &parts.regions {
                let arguments = [region.address, region.length, 0, 0, 0, 0];
                caller.syscall("give memory back", libc::SYS_munmap, arguments)?;
            }
        }
        filled
    }
}

impl Opened {
    fn key(&self) -> ModuleKey {
        (self.module.path.clone(), self.module.start, self.module.inode)
    }
}

impl Modules {
    /// Returns the number of a module's entries that are not redirected, the first time, and 0 if
    /// they have been counted before.
    fn count_missed(&mut self, pid: u32, opened: &Opened, entries: u64) -> u64 {
        let has_room = self.missed.len() < MISSED_MAX;
        if entries != 0 && has_room && self.missed.insert((pid, opened.key())) { entries } else { 0 }
    }
}

/// True if the module with a jump has been closed, given its mapping as it was, if that is known.
/// False if the module is there with something else than its own code, such as the jump.
fn is_closed(memory: &Memory, mappings: &[Mapping], jump: &Jump, before: Option<&Mapping>) -> bool {
    let now = mappings.iter().find(|mapping| mapping.range.contains(&jump.address));
    let mut found = vec![0; jump.expected().len()];
    match memory.read(jump.address, &mut found) {
        Ok(()) if found.starts_with(&jump.jump) => false,
        // It may have been opened anew at the same place.
        Ok(()) if found == jump.expected() => true,
        Ok(()) => {
            let path = Mapping::name_before_deletion;
            before.zip(now).is_some_and(|(before, now)| path(before) != path(now))
        }
        Err(_) => now.is_none(),
    }
}

#[cfg(test)]
mod tests;
