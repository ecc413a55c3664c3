//! The addresses of the functions by which Python interpreters run Python code, in the files of
//! programs and libraries.

use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;

use object::read::{Object, ObjectSymbol, ReadCache};

/// The names of these functions. Compilers add suffixes to the names of parts (`.cold`), and
/// CPython 3.14 has one function for each instruction if it was built with tail calls.
const IN_ANY_NAME: &str = "_PyEval_EvalFrameDefault";
const AT_THE_BEGINNING: &str = "_TAIL_CALL_";

/// A cache of the functions found in files.
#[derive(Debug, Default)]
pub(super) struct Interpreters {
    /// The address ranges of the functions, by path.
    files: HashMap<String, Vec<Range<u64>>>,
}

impl Interpreters {
    /// True if an address of a file is in a function that runs Python code. Missing files have no
    /// functions.
    pub(super) fn runs_python(&mut self, path: &str, address: u64) -> bool {
        let known = self.files.get(path);
        let functions = match known {
            Some(functions) => functions,
            None => self.files.entry(path.to_owned()).or_insert_with(|| functions(Path::new(path)).unwrap_or_default()),
        };
        functions.iter().any(|function| function.contains(&address))
    }
}

/// Returns the functions of a file.
fn functions(path: &Path) -> Option<Vec<Range<u64>>> {
    // Opening a FIFO or a device could block.
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let runs_python = symbols.filter(|symbol| {
        let is_it = |name: &str| name.contains(IN_ANY_NAME) || name.starts_with(AT_THE_BEGINNING);
        symbol.is_definition() && symbol.name().is_ok_and(is_it)
    });
    Some(runs_python.map(|symbol| symbol.address()..symbol.address().saturating_add(symbol.size())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_files_that_are_no_interpreters() {
        let mut interpreters = Interpreters::default();
        for path in ["/dev/null", "/etc/passwd", "/proc/self/exe", "/nonexistent", "relative"] {
            assert!(!interpreters.runs_python(path, 0x1000), "{path}");
        }
    }
}
