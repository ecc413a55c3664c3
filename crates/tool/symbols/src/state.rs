//! How well a module can be symbolized, and what stands in the way.

use std::fmt;
use std::path::PathBuf;

/// What is known about one module of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleState {
    /// The name in `module+0xoffset`: last component of the recorded path.
    pub name: String,
    /// The file that the program ran, if it is there and the right one.
    pub file: Option<PathBuf>,
    /// The separate file with debug information, if one is used.
    pub debug_file: Option<PathBuf>,
    /// What there is to take names from.
    pub debug: DebugInfo,
    /// What was missing or wrong, in the order in which it was met; some show only with the first lookups.
    pub problems: Vec<Problem>,
    /// Where the names of the addresses asked for so far came from.
    pub names: NameCounts,
}

/// What there is to take names from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DebugInfo {
    /// Nothing: addresses are shown as `module+0xoffset`.
    Missing,
    /// Exported functions only; those internal to the module have no name.
    ExportsOnly,
    /// Function names, but no files, lines and inlined functions.
    SymbolsOnly,
    /// Functions, files, lines and inlined functions, at least of a part of the module: see [`NameCounts`].
    Full,
}

/// Distinct addresses asked for, by where the name of their physical (not inlined) function came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// From debug information.
    pub debug: usize,
    /// From the symbol table, surely or most likely.
    pub symbols: usize,
    /// From nowhere: `module+0xoffset`.
    pub none: usize,
}

/// A reason why a module is symbolized less well than it could be. Displays as part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The module never was a file: the vdso, an anonymous mapping.
    NotAFile,
    /// There is no file at the recorded path.
    NotFound {
        /// Where it was looked for.
        file: PathBuf,
    },
    /// There are too many files below a directory that was to be searched: only the first were looked at.
    SearchCut {
        /// The directory.
        directory: PathBuf,
    },
    /// The file is not the one that was recorded, and was not used.
    BuildIdMismatch {
        /// The file.
        file: PathBuf,
        /// As recorded.
        expected: BuildId,
        /// In the file; `None` if it has none.
        found: Option<BuildId>,
    },
    /// A separate debug file has the right name, but is of another build (checksum or build id), and was not used.
    DebugFileMismatch {
        /// The file.
        file: PathBuf,
    },
    /// The file cannot be read, or is not a usable ELF file.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        error: String,
    },
    /// Some of the debug information is damaged, or beyond the limits that protect from damaged files.
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was met first.
        error: String,
    },
    /// The common part of the debug information (made by `dwz`) is not there: some names are missing.
    SupplementaryMissing {
        /// As the debug file calls it.
        file: PathBuf,
    },
    /// Parts of the debug information are in files (`.dwo`, `.dwp`) which are not there.
    SplitMissing {
        /// The first one missed.
        file: PathBuf,
    },
}

/// The build id of an ELF file: the hash by which debug files are found. Displays as lower-case hex.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BuildId(pub Box<[u8]>);

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAFile => f.write_str("not a file"),
            Self::SearchCut { directory } => {
                write!(f, "there are too many files below {}: not all were looked at", directory.display())
            }
            Self::NotFound { file } => write!(f, "{} is not there", file.display()),
            Self::BuildIdMismatch { file, expected, found: Some(found) } => {
                write!(
                    f,
                    "{} is another build than the one recorded (build id {found}, not {expected})",
                    file.display()
                )
            }
            Self::BuildIdMismatch { file, expected, found: None } => {
                write!(f, "{} is another build than the one recorded (no build id, not {expected})", file.display())
            }
            Self::DebugFileMismatch { file } => write!(f, "the debug file {} is of another build", file.display()),
            Self::Unreadable { file, error } => write!(f, "{} cannot be read: {error}", file.display()),
            Self::Damaged { file, error } => {
                write!(f, "the debug information in {} is damaged: {error}", file.display())
            }
            Self::SupplementaryMissing { file } => {
                write!(f, "the common debug information {} is not there", file.display())
            }
            Self::SplitMissing { file } => write!(f, "the split debug information {} is not there", file.display()),
        }
    }
}
