//! The files of a module that have its symbols, for code that reads symbol tables itself.

use std::fmt;
use std::io;
use std::path::Path;

use object::Object;

use crate::find::DebugFileFinder;
use crate::mapped::Mapped;
use crate::options::SymbolizerOptions;

/// A module's file, and the files with the symbols that it lacks, mapped for reading.
///
/// Their bytes may be damaged, and may change while they are read.
#[derive(Debug)]
pub struct SymbolFiles {
    module: Mapped,
    debug: Option<Mapped>,
    mini: Option<Mapped>,
}

/// A part of [`SymbolFiles`] that has symbols.
#[derive(Clone, Copy)]
pub struct SymbolFile<'f> {
    /// The path; that of the module for symbols that are packed into it.
    pub path: &'f Path,
    /// The bytes of an ELF file.
    pub bytes: &'f [u8],
}

impl fmt::Debug for SymbolFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SymbolFile").field(&self.path).finish()
    }
}

impl SymbolFiles {
    /// Maps a module, and the symbols that it lacks if it has no symbol table: a separate debug
    /// file, found by build id or `.gnu_debuglink`, and MiniDebugInfo. No server is asked.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened, or is not a regular file. The error of others is not
    /// reported: their symbols are missing.
    pub fn open(path: &Path, options: SymbolizerOptions) -> io::Result<SymbolFiles> {
        let module = Mapped::open(path)?;
        let (mut debug, mut mini) = (None, None);
        if let Ok(elf) = module.elf()
            && elf.symbols().next().is_none()
        {
            let build_id = elf.build_id().ok().flatten().unwrap_or_default().to_vec();
            let finder = DebugFileFinder::new(SymbolizerOptions { debuginfod: None, ..options });
            debug = finder.debug(Some(&module), &build_id, &mut Vec::new());
            mini = module.mini_debug().and_then(Result::ok);
        }
        Ok(SymbolFiles { module, debug, mini })
    }

    /// Returns the bytes of the module.
    pub fn module(&self) -> &[u8] {
        self.module.bytes()
    }

    /// Returns the other files that have symbols: the debug file first.
    pub fn others(&self) -> impl Iterator<Item = SymbolFile<'_>> {
        let files = [self.debug.as_ref(), self.mini.as_ref()].into_iter().flatten();
        files.map(|file| SymbolFile { path: &file.path, bytes: file.bytes() })
    }
}
