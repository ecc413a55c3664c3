//! The files in which a process names its generated code.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use heapledger_code_map::jitdump::DumpClock;
use heapledger_code_map::{CodeMapError, Wanted, jitdump, perf_map};
use heapledger_inject::Mapping;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::outcome::DamagedCodeFile;
use crate::process;

/// The maximum length of a list of mappings that is searched for jitdump files, in bytes.
const MAPS_MAX: u64 = 64 << 20;
/// The maximum number of jitdump files of a process.
const DUMPS_MAX: usize = 16;

/// The files of a process.
#[derive(Debug)]
pub(super) struct CodeFiles {
    pid: u32,
    /// The root of its file system, if it could be opened.
    root: Option<File>,
    /// Its number in its own pid namespace, if that is known.
    inner_pid: Option<u32>,
    user: u32,
    dumps: RefCell<Vec<(PathBuf, File)>>,
}

impl CodeFiles {
    /// Finds out where a process has its files. If it is gone, they are looked for where its parent
    /// has them; without a parent, where this process would have them.
    pub(super) fn of(pid: u32, parent: Option<&CodeFiles>) -> CodeFiles {
        let status = process::text(format!("/proc/{pid}/status")).unwrap_or_default();
        let root = File::open(format!("/proc/{pid}/root")).ok();
        CodeFiles::from_status(pid, &status, root, parent)
    }

    /// Does the same with the text of the process's status, which is empty if it is gone.
    fn from_status(pid: u32, status: &str, root: Option<File>, parent: Option<&CodeFiles>) -> CodeFiles {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // The innermost namespace is the last one; the effective user is the second.
        let inner_pid = field("NSpid:").and_then(|pids| pids.split_whitespace().last()?.parse().ok());
        let user = field("Uid:").and_then(|users| users.split_whitespace().nth(1)?.parse().ok());
        // In another namespace the number of a process that is gone is not known.
        let is_here = parent.is_none_or(|parent| parent.inner_pid == Some(parent.pid));
        let parents_user = || parent.map_or_else(|| rustix::process::geteuid().as_raw(), |parent| parent.user);
        CodeFiles {
            pid,
            root: root.or_else(|| parent?.root.as_ref()?.try_clone().ok()),
            inner_pid: inner_pid.or(is_here.then_some(pid)),
            user: user.unwrap_or_else(parents_user),
            dumps: RefCell::default(),
        }
    }

    /// Opens the jitdump files of the process that are not open yet. Programs map them so that they
    /// can be found.
    pub(super) fn find_dumps(&self) {
        let Ok(mappings) = Mapping::read_list(format!("/proc/{}/maps", self.pid), MAPS_MAX) else { return };
        let mut dumps = self.dumps.borrow_mut();
        for path in mappings.iter().filter_map(Mapping::path) {
            if !is_dump(&path) || dumps.len() == DUMPS_MAX || dumps.iter().any(|(known, _)| *known == path) {
                continue;
            }
            if let Some(file) = self.open(&path) {
                dumps.push((path, file));
            }
        }
    }

    /// Opens a file of the process, by its path there. Only a regular file of the process's user:
    /// anyone may write to `/tmp`. Nothing else is opened: to open a device may do something.
    fn open(&self, path: &Path) -> Option<File> {
        let found = match &self.root {
            Some(root) => locate(root, path),
            // This process's root, if the process is not in another namespace.
            None if self.inner_pid == Some(self.pid) => locate(&File::open("/").ok()?, path),
            None => None,
        };
        let found = File::from(found?);
        let metadata = found.metadata().ok()?;
        if !metadata.is_file() || metadata.uid() != self.user {
            return None;
        }
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
    }

    /// Reads the files, takes the addresses that they name from `wanted`, and adds their names. A
    /// damaged file names the functions before the damage, and is added to `damaged`.
    pub(super) fn read(
        &self,
        wanted: &mut BTreeMap<u64, u64>,
        names: &mut BTreeMap<u64, Rc<str>>,
        damaged: &mut Vec<DamagedCodeFile>,
    ) {
        let mut check = |path: &Path, result: Result<(), CodeMapError>| {
            let new =
                |error: CodeMapError| DamagedCodeFile { path: path.into(), pid: self.pid, error: error.to_string() };
            damaged.extend(result.err().map(new));
        };
        let mut take = |found: &Wanted, wanted: &mut BTreeMap<u64, u64>| {
            for (address, name) in found.names() {
                wanted.remove(&address);
                names.entry(address).or_insert_with(|| Rc::clone(name));
            }
        };
        for (path, dump) in self.dumps.borrow_mut().iter_mut() {
            // A file without a whole header is one that was just begun.
            if let Ok((found, result)) = read_dump(dump, wanted) {
                take(&found, wanted);
                check(path, result);
            }
        }
        let Some(path) = self.inner_pid.map(|pid| PathBuf::from(format!("/tmp/perf-{pid}.map"))) else { return };
        if let Some(map) = self.open(&path) {
            let mut found = Wanted::new(wanted.iter().map(|(at, time)| (*at, *time)));
            let result = perf_map::read(BufReader::with_capacity(1 << 16, map), &mut found);
            take(&found, wanted);
            check(&path, result.map(drop));
        }
    }
}

/// Finds a file below a root, as a process that has this root would: a link cannot lead out of it,
/// and the last component must be none.
fn locate(root: &File, path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match openat2(root.as_fd(), path, flags, Mode::empty(), resolve) {
        // Before Linux 5.6, and if it is filtered: in our own root, links lead nowhere else.
        Err(Errno::NOSYS | Errno::PERM) if is_own_root(root) => rustix::fs::open(path, flags, Mode::empty()).ok(),
        found => found.ok(),
    }
}

/// True if this is the root of this process, too.
fn is_own_root(root: &File) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (root, own) = (root.metadata().map(identity), fs::metadata("/").map(identity));
    matches!((root, own), (Ok(root), Ok(own)) if root == own)
}

/// Reads a jitdump file. If its times are in ticks, the last function at an address counts.
fn read_dump(dump: &mut File, wanted: &BTreeMap<u64, u64>) -> std::io::Result<(Wanted, Result<(), CodeMapError>)> {
    let mut header = [0; 40];
    dump.seek(SeekFrom::Start(0))?;
    dump.read_exact(&mut header)?;
    dump.seek(SeekFrom::Start(0))?;
    let is_in_ticks = jitdump::clock(&header) == Some(DumpClock::Ticks);
    let time = |time: &u64| if is_in_ticks { u64::MAX } else { *time };
    let mut found = Wanted::new(wanted.iter().map(|(at, seen)| (*at, time(seen))));
    let result = jitdump::read(BufReader::with_capacity(1 << 16, dump), &mut found);
    Ok((found, result))
}

/// True if a path is that of a jitdump file: `jit-PID.dump`.
fn is_dump(path: &Path) -> bool {
    let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix("jit-")?.strip_suffix(".dump"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
