//! The files of another process, by the paths that it has for them.
//!
//! A process may have another root than this one, or other mounts. The link `/proc/PID/root` leads
//! to its root; but an absolute symbolic link on the way from there would lead to ours. So the path
//! is resolved by openat2(2), for which the other root is the root.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

/// The places from which a process's paths lead.
#[derive(Debug)]
pub(crate) struct Files {
    root: OwnedFd,
    /// True if the process sees the files that this one sees at the same paths.
    has_our_root: bool,
    /// The directory from which relative paths lead: a path in the process's root, or one of ours
    /// if the process has our root. `None` if it is not below the root.
    directory: Option<PathBuf>,
    /// The directory of the process's descriptors.
    descriptors: PathBuf,
}

impl Files {
    /// Finds out where a process has its files.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended, or if the kernel does not allow it.
    pub(crate) fn of(pid: u32) -> io::Result<Files> {
        let link = |name: &str| format!("/proc/{pid}/{name}");
        let root = open(link("root"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let has_same = |name: &str| io::Result::Ok(fs::read_link(link(name))? == fs::read_link(own(name))?);
        let has_our_root =
            identity(File::from(root.try_clone()?).metadata()?) == identity(fs::metadata("/")?) && has_same("ns/mnt")?;
        let directory = match has_our_root {
            true => Some(PathBuf::from(link("cwd"))),
            // The kernel writes both as we would.
            false => below(&fs::read_link(link("root"))?, &fs::read_link(link("cwd"))?),
        };
        Ok(Files { root, has_our_root, directory, descriptors: PathBuf::from(link("fd")) })
    }

    /// Finds a regular file, as the process would. Links are followed.
    ///
    /// # Errors
    ///
    /// Fails if there is none. Also if the process has another root, and the kernel has no
    /// openat2(2): those before Linux 5.6.
    pub(crate) fn find(&self, path: &Path) -> io::Result<Found> {
        // Links of the process to what it has opened: the kernel follows them to the very file.
        let descriptor = path.strip_prefix("/proc/self/fd").ok();
        let is_below = |path: &&Path| path.components().all(|part| matches!(part, Component::Normal(_)));
        if let Some(descriptor) = descriptor.filter(is_below) {
            return Found::of(open(self.descriptors.join(descriptor), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
        }
        let directory = self.directory.as_ref().filter(|_| path.is_relative());
        let path = match directory {
            Some(directory) => &directory.join(path),
            None if path.is_relative() => return Err(io::ErrorKind::NotFound.into()),
            None => path,
        };
        // Only as a place: to open a device may do something, and a pipe would be waited for.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Found::of(match self.has_our_root {
            true => open(path, flags, Mode::empty())?,
            false => openat2(self.root.as_fd(), path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?,
        })
    }
}

/// A regular file that was found.
#[derive(Debug)]
pub(crate) struct Found(OwnedFd);

impl Found {
    fn of(place: OwnedFd) -> io::Result<Found> {
        let found = Found(place);
        match fs::metadata(found.path())?.is_file() {
            true => Ok(found),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Returns a path by which this process opens the file, as long as this is kept.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(own(&format!("fd/{}", self.0.as_raw_fd())))
    }

    /// Opens it to be read.
    pub(crate) fn open(&self) -> io::Result<File> {
        File::open(self.path())
    }

    /// True if the file gives rights to who executes it. It need not be readable.
    pub(crate) fn has_capabilities(&self) -> bool {
        let mut value = [0_u8; 64];
        rustix::fs::getxattr(self.path(), "security.capability", &mut value).is_ok()
    }
}

/// Returns a path in proc(5) of this process.
fn own(name: &str) -> String {
    format!("/proc/self/{name}")
}

/// Returns the path of a directory as those see it who have this root.
fn below(root: &Path, directory: &Path) -> Option<PathBuf> {
    Some(Path::new("/").join(directory.strip_prefix(root).ok()?))
}

#[cfg(test)]
mod tests;
