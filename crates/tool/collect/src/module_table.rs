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

use crate::redirection::maps::{Mapped, Mappings};
use crate::redirection::{FileKey, PlanFile, file_of, sealed_file};

/// The most files whose rules are kept.
const FILES_MAX: usize = 4096;

/// What is known of a file; `None` if it cannot be read.
type Known = Option<Arc<(Headers, FileRules)>>;

/// The files that have been examined.
static FILES: LazyLock<Mutex<HashMap<FileKey, Arc<OnceLock<Known>>>>> = LazyLock::new(Mutex::default);

/// Makes the table of a process's modules. `None` if none of them has this address, or the process
/// cannot be examined.
pub(crate) fn of_process(pid: u32, address: u64) -> Option<PlanFile> {
    let bytes = bytes_of_process(pid, |start, end| (start..end).contains(&address))?;
    let length = bytes.len();
    sealed_file(&bytes).ok().map(|fd| PlanFile { fd, length })
}

/// Returns the table of a process's modules, of which one has to have the `wanted` range.
pub(crate) fn bytes_of_process(pid: u32, wanted: impl Fn(u64, u64) -> bool) -> Option<Vec<u8>> {
    let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let mut modules = Vec::new();
    for module in Mappings::of(pid)?.modules() {
        let is_executable = module.path == executable;
        let Some(known) = rules_of(pid, &module, is_executable) else { continue };
        let Some(bias) = known.0.bias(module.start, module.offset) else { continue };
        modules.push((module.path, is_executable, bias, known));
    }
    let mapped: Vec<MappedModule<'_>> = modules
        .iter()
        .map(|(path, is_executable, bias, known)| MappedModule {
            bias: *bias,
            path: if *is_executable { &[] } else { path.as_os_str().as_bytes() },
            rules: &known.1,
        })
        .collect();
    let is_wanted = |module: &MappedModule<'_>| {
        let (start, end) = module.rules.range();
        wanted(start.wrapping_add(module.bias), end.wrapping_add(module.bias))
    };
    mapped.iter().any(is_wanted).then(|| table(&mapped))
}

/// Returns what is known of a module's file. A file is examined once: who asks meanwhile waits for
/// the result.
fn rules_of(pid: u32, module: &Mapped, is_executable: bool) -> Known {
    let (file, metadata) = file_of(pid, module, is_executable)?;
    let key = FileKey::of(&metadata);
    let cell = {
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        match files.get(&key) {
            Some(cell) => Arc::clone(cell),
            None if files.len() < FILES_MAX => Arc::clone(files.entry(key).or_default()),
            None => Arc::default(),
        }
    };
    cell.get_or_init(|| examine(&file)).clone()
}

fn examine(file: &Path) -> Known {
    Some(Arc::new((Headers::read(file)?, FileRules::read(file).ok()?)))
}

#[cfg(test)]
mod tests;
