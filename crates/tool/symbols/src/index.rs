//! An index of the search directories.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use object::Object;

use crate::mapped::Mapped;

/// The maximum number of files that are examined.
const FILES_MAX: usize = 100_000;
/// The maximum depth of directories.
const DEPTH_MAX: usize = 32;

/// The ELF files, and the packages of split debug information, below some directories.
#[derive(Debug, Default)]
pub(crate) struct Index {
    by_build_id: HashMap<Box<[u8]>, Vec<PathBuf>>,
    by_name: HashMap<OsString, Vec<PathBuf>>,
    /// The number of files that may still be examined.
    left: usize,
    cut: Option<PathBuf>,
}

impl Index {
    /// Indexes these files and directories. Links to directories are followed only if they are in
    /// `roots`, so the search ends.
    pub(crate) fn new(roots: &[PathBuf]) -> Self {
        let mut index = Self { left: FILES_MAX, ..Self::default() };
        for root in roots {
            if root.is_dir() {
                index.add_directory(root, 0)
            } else {
                index.add_file(root)
            }
            if index.left == 0 && index.cut.is_none() {
                index.cut = Some(root.clone());
            }
        }
        index
    }

    pub(crate) fn by_build_id(&self, build_id: &[u8]) -> impl Iterator<Item = &Path> {
        self.by_build_id.get(build_id).into_iter().flatten().map(PathBuf::as_path)
    }

    pub(crate) fn by_name(&self, name: &OsStr) -> impl Iterator<Item = &Path> {
        self.by_name.get(name).into_iter().flatten().map(PathBuf::as_path)
    }

    /// Returns the directory in which the search ended early, if it did.
    pub(crate) fn cut(&self) -> Option<&Path> {
        self.cut.as_deref()
    }

    fn add_directory(&mut self, directory: &Path, depth: usize) {
        let Ok(entries) = fs::read_dir(directory) else { return };
        // Sorted, so the choice between several files does not change from run to run.
        let mut entries: Vec<_> = entries.flatten().take(self.left).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if self.left == 0 {
                return;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEPTH_MAX => self.add_directory(&entry.path(), depth + 1),
                Ok(kind) if !kind.is_dir() => self.add_file(&entry.path()),
                _ => {}
            }
        }
    }

    fn add_file(&mut self, path: &Path) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        // The type is checked before opening, because a pipe would block.
        let is_elf = || {
            let mut magic = [0; 4];
            File::open(path)?.read_exact(&mut magic).map(|()| magic == object::elf::ELFMAG)
        };
        if !path.is_file() || !is_elf().unwrap_or(false) {
            return;
        }
        let Some(name) = path.file_name() else { return };
        self.by_name.entry(name.to_owned()).or_default().push(path.to_owned());
        let file = Mapped::open(path).ok();
        let elf = file.as_ref().and_then(|file| file.elf().ok());
        if let Some(id) = elf.as_ref().and_then(|elf| elf.build_id().ok().flatten()) {
            self.by_build_id.entry(id.into()).or_default().push(path.to_owned());
        }
    }
}
