//! `heapledger lib`: the libraries that this command carries, as files that stay.

use std::env;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use heapledger_collect::{ALLOCATOR_FILE_NAME, is_loadable};
use rustix::fs::StatVfsMountFlags;
use serde::Serialize;

use crate::args::{CarriedLibrary, Lib};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::json::document::{Document, Form};
use crate::launch::preload::{ALLOCATOR, LIBRARY, LOGGER};
use crate::messages::notify;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::text::{quoted, shown};

/// The file of a library, and the environment variable that loads it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LibraryJson {
    /// The library: `allocator`, `preload` or `log`.
    library: &'static str,
    /// The path of the file.
    path: String,
    /// True if the file was written now: it was not there, or had another content.
    is_new: bool,
    /// The entry of a program's environment that loads the library.
    environment: String,
}

impl Document for LibraryJson {
    const SCHEMA: &'static str = "lib";
    const ROWS: Option<&'static str> = None;
}

pub(crate) fn run(arguments: &Lib, out: &mut Output) -> Result<()> {
    let (library, file_name, bytes) = match arguments.library {
        CarriedLibrary::Allocator => ("allocator", ALLOCATOR_FILE_NAME, ALLOCATOR),
        CarriedLibrary::Preload => ("preload", "libheapledger_preload.so", LIBRARY),
        CarriedLibrary::Log => ("log", "libheapledger_log.so", LOGGER),
    };
    let directory = match &arguments.directory {
        Some(directory) => directory.clone(),
        None => data_directory()?,
    };
    let directory = made(&directory)?;
    let path = directory.join(file_name);
    let is_new = place(&path, bytes)?;
    let environment = match arguments.library {
        // The library that calls it comes first; this is the entry that names the hook.
        CarriedLibrary::Log => format!("HEAPLEDGER_HOOKS={}", path.display()),
        _ => format!("LD_PRELOAD={}", path.display()),
    };
    if arguments.json {
        let path = path.to_string_lossy().into_owned();
        return out.document(&LibraryJson { library, path, is_new, environment }, Form::Json);
    }
    // The path as it is: it is given to other programs.
    out.stream().write_all(path.as_os_str().as_bytes())?;
    out.line("")?;
    if io::stdout().is_terminal() {
        out.stream().flush()?;
        notify(usage(arguments.library, &path));
    }
    Ok(())
}

/// Says how the library is used.
fn usage(library: CarriedLibrary, path: &Path) -> String {
    let word = quoted(&path.to_string_lossy());
    match library {
        CarriedLibrary::Allocator => format!(
            "for one program:         LD_PRELOAD={word} COMMAND\n\
             in a unit of systemd:    Environment=LD_PRELOAD={word}\n\
             in a Dockerfile:         ENV LD_PRELOAD={word} (after COPY of the file)"
        ),
        CarriedLibrary::Preload => format!(
            "with a hook library:     LD_PRELOAD={word}:HOOK HEAPLEDGER_HOOKS=HOOK COMMAND\n\
             (HOOK is the absolute path of the library; several have colons between them)"
        ),
        CarriedLibrary::Log => format!(
            "with the library that calls it:\n\
             MALLOC_LOG=FILE LD_PRELOAD=$(heapledger lib preload):{word} HEAPLEDGER_HOOKS={word} COMMAND"
        ),
    }
}

/// Returns the directory of this user's libraries.
fn data_directory() -> Result<PathBuf> {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    let data = data.ok_or_else(|| {
        Failure::new(Exit::Usage, "there is no directory for the library: neither XDG_DATA_HOME nor HOME is set")
            .hint("heapledger lib LIBRARY --directory DIR")
    })?;
    Ok(data.join("heapledger/lib"))
}

/// Makes the directory, and returns its absolute path. Fails if a library there cannot be loaded.
fn made(directory: &Path) -> Result<PathBuf> {
    let cannot = format!("cannot put the library into `{}`", shown(directory));
    let elsewhere = "choose another directory: heapledger lib LIBRARY --directory DIR";
    let made = fs::create_dir_all(directory).and_then(|()| fs::canonicalize(directory));
    let path = made
        .map_err(|error| Failure::caused(Exit::Unexpected, &cannot, error).code(Code::CannotWrite).hint(elsewhere))?;
    let refuse = |why: &str| {
        Err(Failure::new(Exit::Unexpected, format_args!("{cannot}: {why}")).code(Code::CannotWrite).hint(elsewhere))
    };
    if !is_loadable(&path) {
        return refuse("LD_PRELOAD has no paths with spaces, colons, semicolons or `$`");
    }
    if rustix::fs::statvfs(&path).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
        return refuse("the file system is mounted noexec");
    }
    Ok(path)
}

/// Writes the file unless it has these bytes. It appears whole: a program that starts meanwhile
/// loads the old file or the new one. Returns true if it was written.
fn place(path: &Path, bytes: &[u8]) -> Result<bool> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(false);
    }
    let file = NewFile::create(path, true, &[])?.quiet();
    file.write(&mut io::sink(), |out| out.write_all(bytes))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_written_once_and_replaced_if_it_differs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.so");
        assert!(place(&path, b"one").unwrap());
        assert!(!place(&path, b"one").unwrap());
        fs::write(&path, "tampered").unwrap();
        let before = fs::File::open(&path).unwrap();
        assert!(place(&path, b"one").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        // A program that has the old file goes on with it.
        assert_eq!(io::read_to_string(before).unwrap(), "tampered");
    }

    #[test]
    fn directories_that_the_loader_cannot_use_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let spaced = made(&directory.path().join("a b/c")).unwrap_err().to_string();
        assert!(spaced.contains("spaces") && spaced.contains("hint: choose another directory"), "{spaced}");
        let deep = directory.path().join("c/d");
        assert_eq!(made(&deep).unwrap(), fs::canonicalize(&deep).unwrap());
        fs::write(directory.path().join("file"), "").unwrap();
        let blocked = made(&directory.path().join("file/d")).unwrap_err().to_string();
        assert!(blocked.starts_with("error[HL0095]: cannot put the library into `"), "{blocked}");
    }
}
