//! The symbolizer that the options of a verb describe, and the sources of its names.

use std::path::PathBuf;

use heapledger_collect::Roots;
use heapledger_report_format::escape;
use heapledger_symbols::{DebugInfo, Symbolizer, SymbolizerOptions};

use crate::args::SymbolFiles;
use crate::messages::notify;

/// Creates the symbolizer with these options.
pub(crate) fn symbolizer(symbols: &SymbolFiles) -> Symbolizer {
    Symbolizer::new(options(symbols))
}

fn options(symbols: &SymbolFiles) -> SymbolizerOptions {
    let mut options = SymbolizerOptions { sysroot: symbols.sysroot.clone(), ..SymbolizerOptions::default() };
    options.debug_dirs.splice(0..0, symbols.debug_dir.iter().cloned());
    options.search.clone_from(&symbols.search);
    options.breakpad.clone_from(&symbols.breakpad_symbols);
    if options.breakpad.is_empty() {
        options.breakpad.extend(std::env::var_os("BREAKPAD_SYMBOLS_PATH").map(PathBuf::from));
    }
    options.cache = cache_directory().map(|directory| directory.join("heapledger/symbols"));
    if symbols.download && std::env::var_os("DEBUGINFOD_URLS").is_some_and(|urls| !urls.is_empty()) {
        options.debuginfod = Some(|name| notify(format_args!("heapledger: asking debuginfod for {}", escape(name))));
    }
    options
}

/// Creates the symbolizer for a recording that has just been made: files are also looked for in the
/// root directories of its processes.
pub(crate) fn symbolizer_of_roots(roots: &Roots) -> Symbolizer {
    let mut options = options(&SymbolFiles::default());
    options.roots = roots.paths();
    Symbolizer::new(options)
}

/// Returns the source of the names of a module's functions, in a word or two.
pub(crate) fn names_from(debug: DebugInfo) -> &'static str {
    match debug {
        DebugInfo::Missing => "nothing",
        DebugInfo::ExportsOnly => "exports",
        DebugInfo::SymbolsOnly => "symbols",
        DebugInfo::Full => "debug info",
    }
}

/// Returns the user's cache directory, as the XDG Base Directory Specification defines it.
fn cache_directory() -> Option<PathBuf> {
    let directory = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    directory("XDG_CACHE_HOME").or_else(|| Some(directory("HOME")?.join(".cache")))
}
