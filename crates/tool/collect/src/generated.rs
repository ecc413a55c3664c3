//! Code that belongs to no module: the names of its functions, from the files that compilers write
//! for profilers.
//!
//! A program announces the memory of such code as a module without a file. The files are read when
//! the image ends, or the recording is closed, and only the names of addresses on its stacks are
//! kept. The process may be gone by then, and its root with it: so what leads to the files is
//! opened at the announcement.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use heapledger_code_map::jitdump::DumpClock;
use heapledger_code_map::{CodeMapError, Wanted, jitdump, perf_map};
use heapledger_recording::{ImportedLocation, Module, ModuleId, NamedFunction, Node, NodeKind};

/// The maximum length of a list of mappings that is searched for jitdump files, in bytes.
const MAPS_MAX: u64 = 64 << 20;
/// The maximum number of jitdump files of a process.
const DUMPS_MAX: usize = 16;
/// The maximum number of addresses of an image that get names: about 100 MiB.
const ADDRESSES_MAX: usize = 1 << 20;

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
    /// Those of the processes that it was forked from, the nearest first.
    inherited: Vec<Rc<CodeFiles>>,
    /// The addresses on its stacks, with the nanoseconds of CLOCK_MONOTONIC when each was first
    /// seen.
    addresses: BTreeMap<u64, u64>,
    /// The names that were read before an `exec`: the next program may have files with the same
    /// names.
    early: BTreeMap<u64, String>,
}

/// The files in which a process names its code.
#[derive(Debug)]
struct CodeFiles {
    pid: u32,
    /// The root of its file system, if it could be opened.
    root: Option<File>,
    /// Its number in its own pid namespace, and its user.
    inner_pid: u32,
    user: u32,
    dumps: std::cell::RefCell<Vec<(PathBuf, File)>>,
}

impl GeneratedCode {
    /// Returns the state for a child that is forked now.
    pub(crate) fn fork(&self) -> GeneratedCode {
        let inherited = self.own.iter().chain(&self.inherited).take(PARENTS_MAX).cloned().collect();
        GeneratedCode { module: self.module, inherited, ..GeneratedCode::default() }
    }

    /// Returns the module that stands for generated code, if the image has announced any.
    pub(crate) fn module(&self) -> Option<ModuleId> {
        self.module
    }

    /// Sets the module that stands for generated code of this image alone.
    pub(crate) fn set_module(&mut self, module: ModuleId) {
        self.module = Some(module);
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
        let own = self.own.get_or_insert_with(|| Rc::new(CodeFiles::of(pid)));
        own.find_dumps();
    }

    /// Notes a node, which may be in generated code; `monotonic_ns` is about when it was made.
    pub(crate) fn note(&mut self, node: &Node, monotonic_ns: u64) {
        if node.kind == NodeKind::Frame && Some(node.module) == self.module && self.addresses.len() < ADDRESSES_MAX {
            self.addresses.entry(node.offset).or_insert(monotonic_ns);
        }
    }

    /// Reads the names for process `pid`, which is about to run another program.
    pub(crate) fn read_early(&mut self, pid: u32) {
        self.early = self.read(pid);
    }

    /// Reads the files of process `pid`, and returns the names of all addresses noted so far.
    pub(crate) fn names(&mut self, pid: u32) -> Vec<ImportedLocation> {
        let Some(module) = self.module else { return Vec::new() };
        let location = |(offset, name): (u64, String)| {
            let function = NamedFunction { name: name.into(), file: None, line: 0 };
            ImportedLocation { module, offset, functions: vec![function.to_bytes()] }
        };
        self.read(pid).into_iter().map(location).collect()
    }

    fn read(&mut self, pid: u32) -> BTreeMap<u64, String> {
        let mut names = self.early.clone();
        let mut wanted = self.addresses.clone();
        wanted.retain(|address, _| !names.contains_key(address));
        if wanted.is_empty() {
            return names;
        }
        // A forked child may have announced nothing itself.
        self.find_files(pid);
        for files in self.own.iter().chain(&self.inherited) {
            for found in files.read(&wanted) {
                for (address, name) in found.names() {
                    wanted.remove(&address);
                    names.entry(address).or_insert_with(|| name.to_owned());
                }
            }
            if wanted.is_empty() {
                break;
            }
        }
        names
    }
}

impl CodeFiles {
    fn of(pid: u32) -> CodeFiles {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // The innermost namespace is the last one; the effective user is the second.
        let inner_pid = field("NSpid:").and_then(|pids| pids.split_whitespace().last()?.parse().ok());
        let user = field("Uid:").and_then(|users| users.split_whitespace().nth(1)?.parse().ok());
        CodeFiles {
            pid,
            root: File::open(format!("/proc/{pid}/root")).ok(),
            inner_pid: inner_pid.unwrap_or(pid),
            user: user.unwrap_or(0),
            dumps: Default::default(),
        }
    }

    /// Opens the jitdump files of the process that are not open yet. Programs map them so that they
    /// can be found.
    fn find_dumps(&self) {
        let Ok(maps) = File::open(format!("/proc/{}/maps", self.pid)) else { return };
        let mut text = Vec::new();
        if maps.take(MAPS_MAX).read_to_end(&mut text).is_err() {
            return;
        }
        let mut dumps = self.dumps.borrow_mut();
        for line in String::from_utf8_lossy(&text).lines() {
            let Some(path) = line.find('/').and_then(|at| line.get(at..)).map(Path::new) else { continue };
            if !is_dump(path) || dumps.len() == DUMPS_MAX || dumps.iter().any(|(known, _)| known == path) {
                continue;
            }
            if let Some(file) = self.open(path) {
                dumps.push((path.to_owned(), file));
            }
        }
    }

    /// Opens a file of the process, by its path there. Only a regular file of the process's user:
    /// anyone may write to `/tmp`.
    fn open(&self, path: &Path) -> Option<File> {
        let root = match &self.root {
            Some(root) => format!("/proc/self/fd/{}", root.as_raw_fd()),
            None => "/".to_owned(),
        };
        let path = Path::new(&root).join(path.strip_prefix("/").unwrap_or(path));
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let metadata = file.metadata().ok()?;
        (metadata.is_file() && metadata.uid() == self.user).then_some(file)
    }

    /// Reads the files, and returns what each names. A damaged file names the functions before the
    /// damage.
    fn read(&self, addresses: &BTreeMap<u64, u64>) -> Vec<Wanted> {
        let mut found = Vec::new();
        let wanted = |addresses: &BTreeMap<u64, u64>| Wanted::new(addresses.iter().map(|(at, time)| (*at, *time)));
        for (_, dump) in self.dumps.borrow_mut().iter_mut() {
            let mut names = wanted(addresses);
            if read_dump(dump, &mut names, addresses).is_ok() {
                found.push(names);
            }
        }
        if let Some(map) = self.open(Path::new(&format!("/tmp/perf-{}.map", self.inner_pid))) {
            let mut names = wanted(addresses);
            let _: Result<u64, CodeMapError> = perf_map::read(BufReader::with_capacity(1 << 16, map), &mut names);
            found.push(names);
        }
        found
    }
}

/// Reads a jitdump file. If its times are in ticks, the last function at an address counts.
fn read_dump(dump: &mut File, names: &mut Wanted, addresses: &BTreeMap<u64, u64>) -> std::io::Result<()> {
    let mut header = [0; 40];
    dump.seek(SeekFrom::Start(0))?;
    dump.read_exact(&mut header)?;
    dump.seek(SeekFrom::Start(0))?;
    if jitdump::clock(&header) == Some(DumpClock::Ticks) {
        *names = Wanted::new(addresses.keys().map(|address| (*address, u64::MAX)));
    }
    let _: Result<(), CodeMapError> = jitdump::read(BufReader::with_capacity(1 << 16, dump), names);
    Ok(())
}

/// True if a path is that of a jitdump file: `jit-PID.dump`.
fn is_dump(path: &Path) -> bool {
    let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix("jit-")?.strip_suffix(".dump"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the record of a module that stands for generated code.
pub(crate) fn module(module: ModuleId) -> Module {
    Module { module, path: heapledger_core::GENERATED_CODE.to_vec(), build_id: Vec::new() }
}

#[cfg(test)]
mod tests;
