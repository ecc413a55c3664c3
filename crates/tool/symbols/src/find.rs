//! Finds the files that belong to a module.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use object::Object;

use crate::breakpad::{self, Breakpad};
use crate::index::Index;
use crate::mapped::{self, Mapped};
use crate::options::SymbolizerOptions;
use crate::state::{BuildId, Problem};

/// The time limit of a server; a slower one is not asked again.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct DebugFileFinder {
    pub(crate) options: SymbolizerOptions,
    /// The index of the search directories; made when it is first needed.
    index: OnceLock<Index>,
    /// True if `debuginfod-find` has failed and is not used any more.
    gave_up: AtomicBool,
}

impl DebugFileFinder {
    pub(crate) fn new(options: SymbolizerOptions) -> Self {
        Self { options, index: OnceLock::new(), gave_up: AtomicBool::new(false) }
    }

    /// Finds the file that the program ran. Its build id must be `build_id`, unless that is empty.
    pub(crate) fn module(&self, path: &Path, build_id: &[u8], problems: &mut Vec<Problem>) -> Option<Mapped> {
        let mut candidates = self.places(path, !build_id.is_empty());
        let name = path.file_name().unwrap_or_default();
        if build_id.is_empty() {
            // Without a build id, only a user who names search directories can know which file of
            // that name is meant.
            candidates.splice(0..0, self.index().by_name(name).map(Path::to_path_buf));
        } else {
            let is_module = |path: &&Path| {
                Mapped::open(path).is_ok_and(|file| file.elf().is_ok_and(|elf| !mapped::is_debug_file(&elf)))
            };
            candidates.extend(self.index().by_build_id(build_id).filter(is_module).map(Path::to_path_buf));
        }
        if !build_id.is_empty()
            && let Some(path) = path.as_os_str().as_bytes().strip_suffix(b" (deleted)")
        {
            candidates.extend(self.places(Path::new(OsStr::from_bytes(path)), true));
        }
        let mut missing = None;
        for candidate in candidates {
            match Mapped::open(&candidate) {
                Ok(file) => match check(&file, build_id) {
                    Ok(()) => return Some(file),
                    Err(problem) => problems.push(problem),
                },
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    missing.get_or_insert(candidate);
                }
                Err(error) => problems.push(Problem::Unreadable { file: candidate, error: error.to_string() }),
            }
        }
        if let Some(directory) = self.index().cut() {
            problems.push(Problem::SearchCut { directory: directory.to_path_buf() });
        }
        if problems.is_empty() {
            let file = missing.unwrap_or_else(|| path.to_path_buf());
            problems.push(Problem::NotFound { file });
        }
        None
    }

    /// Finds the separate file with the debug information of a module: by build id, or by the link
    /// in `module`.
    pub(crate) fn debug(
        &self,
        module: Option<&Mapped>,
        build_id: &[u8],
        problems: &mut Vec<Problem>,
    ) -> Option<Mapped> {
        let has_dwarf = |file: &Mapped| file.elf().is_ok_and(|elf| mapped::has_dwarf(&elf));
        let candidates = self.index().by_build_id(build_id);
        candidates
            .filter_map(|path| Mapped::open(path).ok())
            .find(|file| check(file, build_id).is_ok() && has_dwarf(file))
            .or_else(|| self.by_build_id(build_id))
            .or_else(|| self.by_link(module?, problems))
    }

    /// Finds the symbol file of Breakpad for a module. Without a build id, it must be the only one
    /// with that name.
    pub(crate) fn breakpad(
        &self,
        path: &Path,
        build_id: &[u8],
        base: u64,
        problems: &mut Vec<Problem>,
    ) -> Option<Breakpad> {
        let path = path.as_os_str().as_bytes();
        let name = Path::new(OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path))).file_name()?;
        let debug_id = (!build_id.is_empty()).then(|| breakpad::debug_id(build_id));
        self.options.breakpad.iter().find_map(|directory| {
            let mut file_name = name.to_owned();
            file_name.push(".sym");
            let builds = directory.join(name);
            let file = match &debug_id {
                Some(id) => builds.join(id).join(file_name),
                None => only(&builds)?.join(file_name),
            };
            let mapped = match Mapped::open(&file) {
                Ok(mapped) => mapped,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
                Err(error) => {
                    problems.push(Problem::Unreadable { file, error: error.to_string() });
                    return None;
                }
            };
            match Breakpad::new(mapped, base) {
                Ok(symbols) if debug_id.as_ref().is_none_or(|id| id.eq_ignore_ascii_case(symbols.debug_id())) => {
                    Some(symbols)
                }
                Ok(_) => {
                    problems.push(Problem::DebugFileMismatch { file });
                    None
                }
                Err(error) => {
                    problems.push(Problem::Damaged { file, error: error.to_string() });
                    None
                }
            }
        })
    }

    /// Gets the debug information of `name` from the servers that the environment names, by the
    /// installed client, which keeps its downloads.
    pub(crate) fn download(&self, name: &str, build_id: &[u8]) -> Option<Mapped> {
        let tell = self.options.debuginfod.filter(|_| !build_id.is_empty() && !self.gave_up.load(Ordering::Relaxed))?;
        tell(name);
        let begin = Instant::now();
        let id = BuildId(build_id.into()).to_string();
        let client = Command::new("debuginfod-find")
            .args(["debuginfo", &id])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        let found = client.as_ref().ok().filter(|done| done.status.success()).and_then(|done| {
            let path = done.stdout.split(|&byte| byte == b'\n').next()?;
            let file = Mapped::open(Path::new(OsStr::from_bytes(path))).ok()?;
            check(&file, build_id).is_ok().then_some(file)
        });
        if client.is_err() || found.is_none() && begin.elapsed() > TIMEOUT {
            self.gave_up.store(true, Ordering::Relaxed);
        }
        found
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::new(&self.options.search))
    }

    fn by_build_id(&self, build_id: &[u8]) -> Option<Mapped> {
        let name = build_id_path(build_id)?;
        let directories = self.debug_directories();
        directories.iter().find_map(|directory| {
            let file = Mapped::open(&directory.join(&name)).ok()?;
            check(&file, build_id).is_ok().then_some(file)
        })
    }

    /// Follows `.gnu_debuglink`: a file name and the checksum of that file.
    fn by_link(&self, module: &Mapped, problems: &mut Vec<Problem>) -> Option<Mapped> {
        let elf = module.elf().ok()?;
        let (name, checksum) = elf.gnu_debuglink().ok()??;
        let build_id = elf.build_id().ok().flatten().unwrap_or_default();
        let name = Path::new(OsStr::from_bytes(name));
        let mut components = name.components();
        if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
            return None;
        }
        let mut folders: Vec<PathBuf> = module.path.parent().map(Path::to_path_buf).into_iter().collect();
        if let Ok(real) = module.path.canonicalize()
            && let Some(folder) = real.parent()
            && !folders.iter().any(|known| known == folder)
        {
            folders.push(folder.to_path_buf());
        }
        let mut candidates = Vec::new();
        for folder in &folders {
            candidates.push(folder.join(name));
            candidates.push(folder.join(".debug").join(name));
        }
        for directory in self.debug_directories() {
            for folder in &folders {
                candidates.push(below(&directory, self.without_sysroot(folder)).join(name));
            }
        }
        candidates.extend(self.index().by_name(name.as_os_str()).map(Path::to_path_buf));
        candidates.into_iter().find_map(|candidate| {
            let file = Mapped::open(&candidate).ok()?;
            // A link to its own file, or to a debug file that was stripped in turn, is useless.
            if candidate == module.path {
                return None;
            }
            if crc32fast::hash(file.bytes()) == checksum && check_if_present(&file, build_id) {
                Some(file)
            } else {
                problems.push(Problem::DebugFileMismatch { file: candidate });
                None
            }
        })
    }

    /// Finds the file with the parts that `dwz` found to be common to several debug files, if
    /// `debug` refers to one.
    pub(crate) fn supplementary(&self, debug: &Mapped, problems: &mut Vec<Problem>) -> Option<Mapped> {
        let elf = debug.elf().ok()?;
        let (name, build_id) = elf.gnu_debugaltlink().ok()??;
        let name = Path::new(OsStr::from_bytes(name));
        let mut candidates = Vec::new();
        if name.is_absolute() {
            candidates.extend(self.places(name, true));
        } else {
            // Relative to the real path of the debug file: those in the build-id directories may be
            // symbolic links.
            let real = debug.path.canonicalize().ok();
            for path in [Some(&debug.path), real.as_ref()].into_iter().flatten() {
                candidates.extend(path.parent().map(|folder| folder.join(name)));
            }
        }
        candidates.extend(self.index().by_build_id(build_id).map(Path::to_path_buf));
        let found = candidates.iter().find_map(|candidate| {
            let file = Mapped::open(candidate).ok()?;
            check(&file, build_id).is_ok().then_some(file)
        });
        let found = found.or_else(|| self.by_build_id(build_id)).or_else(|| {
            let name = name.file_name().unwrap_or_default().to_string_lossy();
            self.download(&name, build_id)
        });
        if found.is_none() {
            problems.push(Problem::SupplementaryMissing { file: name.to_path_buf() });
        }
        found
    }

    /// Finds the package of split debug information beside a file: `name.dwp`.
    pub(crate) fn package(&self, file: &Path) -> Option<Mapped> {
        let mut name = file.as_os_str().to_owned();
        name.push(".dwp");
        let name = Path::new(&name);
        let found = self.index().by_name(name.file_name()?).find_map(|path| Mapped::open(path).ok());
        found.or_else(|| Mapped::open(name).ok())
    }

    /// Finds one file of split debug information, by its name in the debug information.
    pub(crate) fn split(&self, path: &Path) -> Option<Mapped> {
        let found = self.places(path, true).iter().find_map(|place| Mapped::open(place).ok());
        found.or_else(|| self.index().by_name(path.file_name()?).find_map(|path| Mapped::open(path).ok()))
    }

    /// Returns the paths on this system for `path` of the observed system. With a sysroot, files
    /// outside of it are included only if `verified`; those in the roots of other processes, too.
    fn places(&self, path: &Path, verified: bool) -> Vec<PathBuf> {
        let mut places = match &self.options.sysroot {
            None => vec![path.to_path_buf()],
            Some(root) if verified => vec![below(root, path), path.to_path_buf()],
            Some(root) => vec![below(root, path)],
        };
        if verified {
            places.extend(self.options.roots.iter().map(|root| below(root, path)));
        }
        places
    }

    fn debug_directories(&self) -> Vec<PathBuf> {
        let directories = &self.options.debug_dirs;
        let below = |root: &PathBuf| directories.iter().map(|dir| below(root, dir)).collect::<Vec<_>>();
        let [sysroot, roots] = [self.options.sysroot.as_slice(), &self.options.roots];
        let of_others = roots.iter().flat_map(below);
        sysroot.iter().flat_map(below).chain(directories.iter().cloned()).chain(of_others).collect()
    }

    fn without_sysroot<'p>(&self, path: &'p Path) -> &'p Path {
        self.options.sysroot.as_ref().and_then(|root| path.strip_prefix(root).ok()).unwrap_or(path)
    }
}

/// Returns `path` with `root` as its root.
pub(crate) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns the only directory in a directory; `None` if there are several, or none.
fn only(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut directories = entries.filter(|path| path.is_dir());
    directories.next().filter(|_| directories.next().is_none())
}

fn build_id_path(build_id: &[u8]) -> Option<PathBuf> {
    let hex = BuildId(build_id.into()).to_string();
    let (folder, name) = hex.split_at_checked(2).filter(|(_, name)| !name.is_empty())?;
    Some(Path::new(".build-id").join(folder).join(format!("{name}.debug")))
}

/// Checks that `file` is ELF, and has this build id if one is given.
fn check(file: &Mapped, build_id: &[u8]) -> Result<(), Problem> {
    let unreadable = |error| Problem::Unreadable { file: file.path.clone(), error };
    let elf = file.elf().map_err(unreadable)?;
    if build_id.is_empty() {
        return Ok(());
    }
    match elf.build_id().map_err(|error| unreadable(error.to_string()))? {
        Some(found) if found == build_id => Ok(()),
        found => Err(Problem::BuildIdMismatch {
            file: file.path.clone(),
            expected: BuildId(build_id.into()),
            found: found.map(|id| BuildId(id.into())),
        }),
    }
}

/// True if `file` is ELF and does not have another build id.
fn check_if_present(file: &Mapped, build_id: &[u8]) -> bool {
    let Ok(elf) = file.elf() else { return false };
    elf.build_id().ok().flatten().is_none_or(|found| build_id.is_empty() || found == build_id)
}
