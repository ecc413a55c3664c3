//! The quality of a module's symbolization, and the problems that limit it.

use std::fmt;
use std::path::PathBuf;

/// The symbolization state of one module of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleState {
    /// The name in `module+0xoffset`: last component of the recorded path.
    pub name: String,
    /// The file that the program ran, if it is there and the right one.
    pub file: Option<PathBuf>,
    /// The separate file with debug information, if one is used.
    pub debug_file: Option<PathBuf>,
    /// The kind of debug information that the module has.
    pub debug: DebugInfo,
    /// The problems found, in their order; some show only with the first lookups.
    pub problems: Vec<Problem>,
    /// The sources of the names of the addresses asked for so far.
    pub names: NameCounts,
}

/// The kind of debug information of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DebugInfo {
    /// None: addresses are shown as `module+0xoffset`.
    Missing,
    /// Exported functions only; those internal to the module have no name.
    ExportsOnly,
    /// Function names, but no files, lines and inlined functions.
    SymbolsOnly,
    /// Functions, files, lines and inlined functions, for at least a part of the module: see
    /// [`NameCounts`].
    Full,
}

/// The number of distinct addresses asked for, by the source of the name of their physical (not
/// inlined) function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// From debug information.
    pub debug: usize,
    /// From the symbol table, certainly or most likely.
    pub symbols: usize,
    /// Without a name: `module+0xoffset`.
    pub none: usize,
}

/// A reason why a module is symbolized less well than it could be. Displays as part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The module never was a file: the vdso, an anonymous mapping.
    NotAFile,
    /// There is no file at the recorded path.
    NotFound {
        /// The path that was looked for.
        file: PathBuf,
    },
    /// There are too many files below a search directory: only the first were examined.
    SearchCut {
        /// The directory.
        directory: PathBuf,
    },
    /// The file is not the recorded one, and was not used.
    BuildIdMismatch {
        /// The file.
        file: PathBuf,
        /// The recorded build id.
        expected: BuildId,
        /// The build id in the file; `None` if it has none.
        found: Option<BuildId>,
    },
    /// A separate debug file has the right name, but is from another build (checksum or build id),
    /// and was not used.
    DebugFileMismatch {
        /// The file.
        file: PathBuf,
    },
    /// The file cannot be read, or is not a usable ELF file.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: String,
    },
    /// Some of the debug information is damaged, or beyond the limits that protect from damaged
    /// files.
    Damaged {
        /// The file.
        file: PathBuf,
        /// The first error.
        error: String,
    },
    /// The common part of the debug information (made by `dwz`) is missing: some names are missing.
    SupplementaryMissing {
        /// The name in the debug file.
        file: PathBuf,
    },
    /// Parts of the debug information are in files (`.dwo`, `.dwp`) that are missing.
    SplitMissing {
        /// The first missing file.
        file: PathBuf,
    },
}

/// The build id of an ELF file: the hash by which debug files are found. Displays as lower-case
/// hex.
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
