//! Code that belongs to no module: the names of its functions, from the files that compilers write
//! for profilers.
//!
//! A program announces the memory of such code as a module without a file. The files are read when
//! the image ends, or the recording is closed, and only the names of addresses on its stacks are
//! kept. The process may be gone by then, and its root with it: so what leads to the files is
//! opened at the announcement.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use heapledger_recording::{ImportedLocation, Module, ModuleId, NamedFunction, Node, NodeKind};

use self::files::CodeFiles;
use crate::outcome::DamagedCodeFile;

mod files;

/// The maximum number of addresses of an image that get names: about 100 MiB.
const ADDRESSES_MAX: usize = 1 << 20;
/// The maximum number of bytes of the names of an image in a file of the recording, which has a
/// name again for each address.
const WRITTEN_MAX: usize = 128 << 20;
/// The maximum number of parents whose files name the functions of a forked child.
const PARENTS_MAX: usize = 8;

/// The generated code of an image.
#[derive(Debug, Default)]
pub(crate) struct GeneratedCode {
    /// The module that stands for its memory, once it has been announced.
    module: Option<ModuleId>,
    announcements: u32,
    /// The files of its own process.
    own: Option<Rc<CodeFiles>>,
    /// The files of the processes that it was forked from, the nearest first.
    inherited: Vec<Rc<CodeFiles>>,
    /// The names in its own module.
    names: Option<Rc<ModuleNames>>,
    /// The names in the modules of the images that it was forked from, the nearest first.
    inherited_names: Vec<Rc<ModuleNames>>,
    /// The addresses on its stacks, with the nanoseconds of CLOCK_MONOTONIC when each was first
    /// seen.
    addresses: BTreeMap<u64, u64>,
    /// The names that were read before an `exec`: the next program may have files with the same
    /// names.
    early: BTreeMap<u64, Rc<str>>,
    /// The process that was to run another program, as its own pid namespace numbers it.
    early_of: Option<u32>,
    /// The files that could not be read to their ends.
    damaged: Vec<DamagedCodeFile>,
}

/// The names that were read for a module, which the stacks of forked children need in each later
/// file of the recording, when the module's own image has ended.
#[derive(Debug)]
struct ModuleNames {
    module: ModuleId,
    by_address: RefCell<BTreeMap<u64, Rc<str>>>,
    /// True if the module's own image writes them no more.
    has_ended: Cell<bool>,
    /// True if they are in the current file.
    are_written: Cell<bool>,
}

impl ModuleNames {
    fn locations(&self) -> impl Iterator<Item = ImportedLocation> {
        let module = self.module;
        let mut left = WRITTEN_MAX;
        let names: Vec<_> = self.by_address.borrow().iter().map(|(at, name)| (*at, Rc::clone(name))).collect();
        names.into_iter().map_while(move |(offset, name)| {
            left = left.checked_sub(name.len())?;
            let function = NamedFunction { name: (&*name).into(), file: None, line: 0 };
            Some(ImportedLocation { module, offset, functions: vec![function.to_bytes()] })
        })
    }
}

impl GeneratedCode {
    /// Returns the state for a child that is forked now.
    pub(crate) fn fork(&self) -> GeneratedCode {
        let inherited = self.own.iter().chain(&self.inherited).take(PARENTS_MAX).cloned().collect();
        let inherited_names = self.names.iter().chain(&self.inherited_names).take(PARENTS_MAX).cloned().collect();
        GeneratedCode { module: self.module, inherited, inherited_names, ..GeneratedCode::default() }
    }

    /// Returns the module that stands for generated code, if the image has announced any.
    pub(crate) fn module(&self) -> Option<ModuleId> {
        self.module
    }

    /// Sets the module that stands for generated code of this image alone.
    pub(crate) fn set_module(&mut self, module: ModuleId) {
        self.module = Some(module);
        if self.names.as_ref().is_none_or(|names| names.module != module) {
            let (has_ended, are_written) = (Cell::new(false), Cell::new(false));
            self.names = Some(Rc::new(ModuleNames { module, by_address: RefCell::default(), has_ended, are_written }));
        }
    }

    /// Looks for the files of the process, which has announced code and so is likely to exist. Not
    /// at each of many announcements.
    pub(crate) fn announced(&mut self, pid: u32) {
        self.announcements += 1;
        if self.announcements.is_power_of_two() {
            self.find_files(pid);
        }
    }

    fn find_files(&mut self, pid: u32) {
        let parents = self.inherited.first();
        let own = self.own.get_or_insert_with(|| Rc::new(CodeFiles::of(pid, parents.map(|parents| &**parents))));
        own.find_dumps();
    }

    /// Notes a node, which may be in generated code; `monotonic_ns` is about when it was made.
    pub(crate) fn note(&mut self, node: &Node, monotonic_ns: u64) {
        if node.kind == NodeKind::Frame && Some(node.module) == self.module && self.addresses.len() < ADDRESSES_MAX {
            self.addresses.entry(node.offset).or_insert(monotonic_ns);
        }
    }

    /// Reads the names for process `pid`, which is about to run another program. It has the number
    /// `process` in its own pid namespace.
    pub(crate) fn read_early(&mut self, pid: u32, process: u32) {
        self.early = self.read(pid);
        self.early_of = Some(process);
    }

    /// Forgets the names that were read for an `exec` if that process's has failed: the program
    /// goes on, and may write others.
    pub(crate) fn exec_failed(&mut self, process: u32) {
        if self.early_of == Some(process) {
            self.early.clear();
            self.early_of = None;
        }
    }

    /// Reads the files of process `pid`, and returns the names of all addresses noted so far, and
    /// those of its parents' code that nobody else writes to this file.
    pub(crate) fn names(&mut self, pid: u32) -> Vec<ImportedLocation> {
        let mut locations = Vec::new();
        if let Some(names) = self.names.clone() {
            names.by_address.borrow_mut().extend(self.read(pid));
            names.are_written.set(true);
            locations.extend(names.locations());
        }
        for names in self.inherited_names.iter().filter(|names| names.has_ended.get()) {
            if !names.are_written.replace(true) {
                locations.extend(names.locations());
            }
        }
        locations
    }

    /// Notes that another file of the recording begins.
    pub(crate) fn begin_segment(&self) {
        for names in self.inherited_names.iter().filter(|names| names.has_ended.get()) {
            names.are_written.set(false);
        }
    }

    /// Notes that the image has ended, and has written its names for the last time.
    pub(crate) fn end(&self) {
        if let Some(names) = &self.names {
            names.has_ended.set(true);
        }
    }

    /// Returns the files that could not be read to their ends, once.
    pub(crate) fn take_damaged(&mut self) -> Vec<DamagedCodeFile> {
        std::mem::take(&mut self.damaged)
    }

    fn read(&mut self, pid: u32) -> BTreeMap<u64, Rc<str>> {
        let mut names = self.early.clone();
        let mut wanted = self.addresses.clone();
        wanted.retain(|address, _| !names.contains_key(address));
        if wanted.is_empty() {
            return names;
        }
        // A forked child may have announced nothing itself.
        self.find_files(pid);
        for files in self.own.iter().chain(&self.inherited) {
            files.read(&mut wanted, &mut names, &mut self.damaged);
            if wanted.is_empty() {
                break;
            }
        }
        names
    }
}

/// Returns the record of a module that stands for generated code.
pub(crate) fn module(module: ModuleId) -> Module {
    Module { module, path: heapledger_core::GENERATED_CODE.to_vec(), build_id: Vec::new() }
}

#[cfg(test)]
mod tests;
