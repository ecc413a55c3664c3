//! One line on how to get better names.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::find;
use crate::modules::ModuleRef;
use crate::options::SymbolizerOptions;
use crate::state::{DebugInfo, ModuleState, Problem};

pub(crate) fn hint(state: &ModuleState, module: ModuleRef<'_>, options: &SymbolizerOptions) -> Option<String> {
    let name = &state.name;
    let has = |wanted: fn(&Problem) -> bool| state.problems.iter().any(wanted);
    if has(|problem| matches!(problem, Problem::NotAFile)) {
        return None;
    }
    if state.debug == DebugInfo::Full {
        return partly(state);
    }
    let Some(file) = &state.file else {
        return Some(if has(|problem| matches!(problem, Problem::BuildIdMismatch { .. })) {
            format!(
                "{name}: the file has changed since the recording (rebuilt or upgraded); names need the recorded build: \
                 --symbols DIR searches a directory for it"
            )
        } else if has(|problem| matches!(problem, Problem::NotFound { .. })) {
            let path = String::from_utf8_lossy(module.path);
            format!("{name}: {path} is not there; --symbols DIR searches a directory for it")
        } else {
            format!("{name}: {}", state.problems.first()?)
        });
    };
    if let Some(problem) = state
        .problems
        .iter()
        .find(|problem| matches!(problem, Problem::DebugFileMismatch { .. } | Problem::Damaged { .. }))
    {
        return Some(format!("{name}: {problem}"));
    }
    // The recorded path: package managers do not know the sysroot.
    let path = Path::new(std::ffi::OsStr::from_bytes(module.path));
    Some(match package(path, file, options) {
        Some(package) => {
            format!("{name}: install the debug symbols of {package} ({package}-dbg or {package}-dbgsym)")
        }
        // Wheels have no debug information, and pip cannot install any.
        None if is_wheel(path) => return None,
        None if is_system(path) => format!("{name}: install the debug symbols of the package it is from"),
        None => format!("{name}: build it with debug information (-g; in Cargo, debug = 1) and do not strip it"),
    })
}

/// Returns a hint if only part of the module has debug information.
fn partly(state: &ModuleState) -> Option<String> {
    let name = &state.name;
    for problem in &state.problems {
        match problem {
            Problem::Damaged { .. } => return Some(format!("{name}: {problem}")),
            Problem::SupplementaryMissing { .. } => {
                return Some(format!("{name}: {problem}; it belongs to the same package of debug symbols"));
            }
            Problem::SplitMissing { .. } => {
                return Some(format!("{name}: {problem}; keep the .dwo files, or a .dwp beside the program"));
            }
            _ => {}
        }
    }
    let without = state.names.symbols + state.names.none;
    let all = without + state.names.debug;
    // A few functions, such as those of the C start-up code, never have debug information.
    (without * 10 > all)
        .then(|| format!("{name}: {without} of {all} addresses are in parts built without debug information (-g)"))
}

fn is_system(path: &Path) -> bool {
    ["/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin"].iter().any(|root| path.starts_with(root))
        && !path.starts_with("/usr/local")
}

/// True for a module of a package installed by pip.
fn is_wheel(path: &Path) -> bool {
    path.iter().any(|part| part == "site-packages" || part == "dist-packages")
}

/// Returns the Debian package that installed a file.
fn package(path: &Path, file: &Path, options: &SymbolizerOptions) -> Option<String> {
    let database = Path::new("/var/lib/dpkg/info");
    let database = options.sysroot.as_ref().map_or(database.to_path_buf(), |root| find::below(root, database));
    let real = file.canonicalize().ok();
    let real = real.as_deref().map(|real| match &options.sysroot {
        Some(root) => Path::new("/").join(real.strip_prefix(root).unwrap_or(real)),
        None => real.to_path_buf(),
    });
    let mut names: Vec<PathBuf> = vec![path.to_path_buf()];
    names.extend(real);
    // If /lib is a link to /usr/lib, packages may name either.
    for at in 0..names.len() {
        if let Ok(rest) = names[at].strip_prefix("/usr") {
            names.push(Path::new("/").join(rest));
        } else {
            names.push(find::below(Path::new("/usr"), &names[at]));
        }
    }
    let lists = fs::read_dir(database).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    for list in lists.filter(|list| list.extension().is_some_and(|extension| extension == "list")) {
        let Ok(text) = fs::read(&list) else { continue };
        let mut lines = text.split(|&byte| byte == b'\n');
        if lines.any(|line| names.iter().any(|name| name.as_os_str().as_bytes() == line)) {
            // `libc6:amd64.list`
            let package = list.file_stem()?.to_string_lossy();
            return Some(package.split(':').next().unwrap_or(&package).to_owned());
        }
    }
    None
}
