//! The places to look for files.

use std::path::PathBuf;

/// The places to look for files.
#[derive(Debug, Clone)]
pub struct SymbolizerOptions {
    /// Directories with separate debug files, searched in this order; `/usr/lib/debug` by default.
    pub debug_dirs: Vec<PathBuf>,
    /// Root of the file system that the program ran in, if it was not this system's. All absolute
    /// paths are looked up below it; if nothing is there, files of this system are used, but only
    /// with the recorded build id.
    pub sysroot: Option<PathBuf>,
    /// Root directories of other processes, such as those of containers. Modules and debug files
    /// are also looked up below each, and taken only with the recorded build id.
    pub roots: Vec<PathBuf>,
    /// Files, and directories that are searched recursively, for modules, debug files, and parts of
    /// split debug information: by build id, and by name if there is none. The first 100,000 files
    /// are examined.
    pub search: Vec<PathBuf>,
    /// Directories with symbol files of Breakpad: `NAME/DEBUGID/NAME.sym`, as its tools and
    /// Mozilla's lay them out. They are the first source of names.
    pub breakpad: Vec<PathBuf>,
    /// Asks the servers in the environment variable `DEBUGINFOD_URLS`, by the program
    /// `debuginfod-find`, for debug information that is not found locally. The function is called
    /// with the name of the module before each request, which may take long.
    pub debuginfod: Option<fn(&str)>,
    /// A directory in which answers are kept from run to run, by build id: at most 4 MiB of names
    /// for each module, and 256 MiB in all, which include what other crates
    /// [keep there](crate::cache::CacheEntry). Made if it does not exist. The names are written
    /// when the symbolizer is dropped.
    pub cache: Option<PathBuf>,
}

impl Default for SymbolizerOptions {
    fn default() -> Self {
        Self {
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            sysroot: None,
            roots: Vec::new(),
            search: Vec::new(),
            breakpad: Vec::new(),
            debuginfod: None,
            cache: None,
        }
    }
}
