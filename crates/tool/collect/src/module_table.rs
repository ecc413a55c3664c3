//! The tables of modules for processes whose C library cannot be asked about them.
//!
//! A program asks when a stack has an address in code of a file that it knows no module for. Its
//! modules are read from `/proc/PID/maps`, and the files through its own root. What is known of a
//! file is kept, so a program that is started a thousand times is examined once.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use heapledger_symbols::Headers;
use heapledger_unwind_rules::{FileRules, MappedModule, table};

use crate::redirection::maps::Mappings;
use crate::redirection::{FileKey, PlanFile, file_of, is_never_unloaded, sealed_file};

/// The most files whose rules are kept.
const FILES_MAX: usize = 4096;

/// The place of what is known of a file; `None` inside if it cannot be read.
type Examined = Arc<OnceLock<Option<Known>>>;

/// The files that have been examined.
static FILES: LazyLock<Mutex<HashMap<FileKey, Examined>>> = LazyLock::new(Mutex::default);

/// An examined file.
struct Known {
    headers: Headers,
    found: FileRules,
    /// With rules that were generated, once they are needed.
    whole: OnceLock<Option<FileRules>>,
}

impl Known {
    /// Returns the rules for a process that wants that of an address of the module's own.
    fn rules(&self, file: &Path, wanted: u64) -> &FileRules {
        let is_needed = self.found.lacks_much() || self.found.is_uncovered(wanted);
        let whole = if is_needed {
            self.whole.get_or_init(|| FileRules::read(file).ok()).as_ref()
        } else {
            self.whole.get().and_then(Option::as_ref)
        };
        whole.unwrap_or(&self.found)
    }
}

/// The modules that a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// All modules: the process drops the table when one is unloaded.
    All,
    /// The program itself, and libraries that stay as long as it runs: the process keeps the table
    /// and reads the memory of these modules.
    NeverUnloaded,
}

/// Makes the table of a process's modules. `None` if none of them has this address, or the process
/// cannot be examined.
pub(crate) fn of_process(pid: u32, address: u64, kept: Kept) -> Option<PlanFile> {
    let bytes = bytes_of_process(pid, address, kept)?;
    let length = bytes.len();
    sealed_file(&bytes).ok().map(|fd| PlanFile { fd, length })
}

/// Returns the bytes of the table of a process's modules, of which one has to have an address.
pub(crate) fn bytes_of_process(pid: u32, address: u64, kept: Kept) -> Option<Vec<u8>> {
    let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let mut modules = Vec::new();
    for module in Mappings::of(pid)?.modules() {
        let is_executable = module.path == executable;
        if kept == Kept::NeverUnloaded && !is_executable && !is_never_unloaded(&module.path) {
            continue;
        }
        let Some((file, metadata)) = file_of(pid, &module, is_executable) else { continue };
        let cell = examined(&file, &metadata);
        let Some(known) = cell.get().and_then(Option::as_ref) else { continue };
        let Some(bias) = known.headers.bias(module.start, module.offset) else { continue };
        modules.push((module.path, is_executable, bias, file, Arc::clone(&cell)));
    }
    let mapped: Vec<MappedModule<'_>> = modules
        .iter()
        .filter_map(|(path, is_executable, bias, file, cell)| {
            let known = cell.get()?.as_ref()?;
            let path = if *is_executable { &[] } else { path.as_os_str().as_bytes() };
            Some(MappedModule { bias: *bias, path, rules: known.rules(file, address.wrapping_sub(*bias)) })
        })
        .collect();
    let is_wanted = |module: &MappedModule<'_>| {
        let (start, end) = module.rules.range();
        (start..end).contains(&address.wrapping_sub(module.bias))
    };
    mapped.iter().any(is_wanted).then(|| table(&mapped))
}

/// Returns the place of what is known of a file. A file is examined once: who asks meanwhile waits
/// for the result.
fn examined(file: &Path, metadata: &fs::Metadata) -> Examined {
    let key = FileKey::of(metadata);
    let cell = {
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        match files.get(&key) {
            Some(cell) => Arc::clone(cell),
            None if files.len() < FILES_MAX => Arc::clone(files.entry(key).or_default()),
            None => Arc::default(),
        }
    };
    cell.get_or_init(|| examine(file));
    cell
}

fn examine(file: &Path) -> Option<Known> {
    Some(Known { headers: Headers::read(file)?, found: FileRules::read_found(file).ok()?, whole: OnceLock::new() })
}

#[cfg(test)]
mod tests;
