//! The root directories of recorded processes in other mount namespaces: containers, whose files
//! have other places here, or none.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};

/// The most root directories that are kept; each takes two descriptors.
const ROOTS_MAX: usize = 32;

/// The root directories of processes that have another one than this process.
///
/// A root directory that is kept can be used after its last process has ended, since its mount
/// namespace is kept, too. Both are given up when the value is dropped.
#[derive(Debug, Default)]
pub struct Roots {
    kept: Mutex<Vec<Root>>,
}

#[derive(Debug)]
struct Root {
    identity: Identity,
    directory: OwnedFd,
    /// Without it, the kernel would take the mounts below the root apart.
    _namespace: Option<File>,
}

/// The numbers of the mount, of the directory, and of the mount namespace. A process that sets up a
/// container begins there with the old root, which may be the same directory in another mount.
type Identity = (u64, u64, u64);

impl Roots {
    /// Keeps the root directory of a process if it is another one than ours. Does nothing if it
    /// cannot be opened: that takes the right to trace the process.
    pub(crate) fn note(&self, pid: u32) {
        let (Some(found), Some(own)) = (identity(&pid.to_string()), identity("self")) else { return };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if found == own || kept.len() >= ROOTS_MAX || kept.iter().any(|root| root.identity == found) {
            return;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(directory) = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty()) {
            let namespace = File::open(format!("/proc/{pid}/ns/mnt")).ok();
            kept.push(Root { identity: found, directory, _namespace: namespace });
        }
    }

    /// Returns paths of the directories, which are valid in this process as long as `self` exists.
    pub fn paths(&self) -> Vec<PathBuf> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().map(|root| format!("/proc/self/fd/{}", root.directory.as_raw_fd()).into()).collect()
    }
}

fn identity(process: &str) -> Option<Identity> {
    let root = format!("/proc/{process}/root");
    // Kernels before 5.8 say 0.
    let asked = StatxFlags::INO | StatxFlags::MNT_ID;
    let root = statx(rustix::fs::CWD, root, AtFlags::empty(), asked).ok()?;
    let namespace = fs::metadata(format!("/proc/{process}/ns/mnt")).ok()?;
    Some((root.stx_mnt_id, root.stx_ino, namespace.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_root_is_not_kept() {
        let roots = Roots::default();
        roots.note(std::process::id());
        roots.note(u32::MAX);
        assert_eq!(roots.paths(), Vec::<PathBuf>::new());
    }
}
