//! The memory cgroup of the process: when it is nearly full, waiting makes matters worse.
//!
//! Its limit is enforced when pages are touched, by reclaim and by the kernel's OOM killer, and
//! never makes mmap(2) fail. A process that is refused memory for another reason while its group is
//! full should give memory back at once, and let its caller handle the failure.

use core::ffi::CStr;

use super::text::{for_lines, number_after, number_in};

/// The longest path of a group's file that is looked at, in bytes.
const PATH: usize = 512;

/// A path that is put together from parts, with its NUL.
#[derive(Clone, Copy)]
struct GroupPath {
    bytes: [u8; PATH],
    length: usize,
}

impl GroupPath {
    fn new(root: &CStr) -> GroupPath {
        let mut path = GroupPath { bytes: [0; PATH], length: 0 };
        path.push(root.to_bytes());
        path
    }

    /// Appends a part. Parts that do not fit are cut off; then the file is not found.
    fn push(&mut self, part: &[u8]) {
        for &byte in part {
            if self.length + 1 < PATH
                && let Some(to) = self.bytes.get_mut(self.length)
            {
                *to = byte;
                self.length += 1;
            }
        }
    }

    /// Runs a function with the path of a file in the group's folder. `None` if it is too long.
    fn with<R>(&self, file: &str, run: impl FnOnce(&CStr) -> R) -> Option<R> {
        let mut path = *self;
        path.push(file.as_bytes());
        CStr::from_bytes_until_nul(&path.bytes).ok().map(run)
    }

    fn number(&self, file: &str) -> Option<usize> {
        self.with(file, number_in)?
    }

    /// Returns the number behind a name in the group's statistics, 0 if it is not there.
    fn statistic(&self, name: &str) -> usize {
        let mut number = 0;
        self.with("/memory.stat", |path| {
            for_lines(path, |line| number = number_after(line, name).unwrap_or(number));
        });
        number
    }
}

/// The interface of one of the kernel's two versions.
struct Version {
    /// The part of the path that it adds to the mount point.
    folder: &'static [u8],
    /// The file with the used bytes.
    used: &'static str,
    limit: &'static str,
    /// The name of the bytes of files that were not used lately: the kernel takes these first.
    cache: &'static str,
}

const VERSION_1: Version = Version {
    folder: b"/memory",
    used: "/memory.usage_in_bytes",
    limit: "/memory.limit_in_bytes",
    cache: "total_inactive_file ",
};
const VERSION_2: Version =
    Version { folder: b"", used: "/memory.current", limit: "/memory.max", cache: "inactive_file " };

/// True if a sixteenth or less of a limit is left.
pub(super) fn is_nearly_full(used: usize, limit: usize) -> bool {
    used > limit - limit / 16
}

/// True if the memory cgroup of the process, whose files are below `root`, is nearly full without
/// the files that the kernel can drop from its cache. A limit of `max` is none.
pub(super) fn is_pressed(root: &CStr) -> bool {
    let mut is_pressed = false;
    for_lines(c"/proc/self/cgroup", |line| is_pressed |= is_group_pressed(root, line));
    is_pressed
}

/// True if the group in a line of `/proc/PID/cgroup` (`ID:CONTROLLERS:PATH`) has the memory
/// controller, and is nearly full.
pub(super) fn is_group_pressed(root: &CStr, line: &[u8]) -> bool {
    let mut fields = line.splitn(3, |&byte| byte == b':');
    let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else { return false };
    let version = match controllers {
        b"" => VERSION_2,
        _ if controllers.split(|&byte| byte == b',').any(|name| name == b"memory") => VERSION_1,
        _ => return false,
    };
    let mut path = GroupPath::new(root);
    path.push(version.folder);
    if group != b"/" {
        path.push(group);
    }
    match (path.number(version.used), path.number(version.limit)) {
        (Some(used), Some(limit)) => is_nearly_full(used.saturating_sub(path.statistic(version.cache)), limit),
        _ => false,
    }
}
