//! Dynamic linking: the linker of a program, the libraries that are loaded with it, and the C
//! library among them.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::Endianness;
use object::elf;
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};

use super::{Check, State};
use crate::code::Code;

/// Checks the C library among those that are loaded with a program.
pub(super) fn library(subject: &str, libraries: &[PathBuf]) -> Option<Check> {
    let library = libraries.iter().find(|library| library.file_name() == Some(OsStr::new("libc.so.6")))?;
    if mentions(library, &["_dl_find_object"], true) {
        return Some(Check::good(subject, format!("glibc 2.35 or newer ({})", library.display())));
    }
    let text = format!("{} is of a glibc before 2.35: stacks of `record` only", library.display());
    Some(Check::problem(
        subject,
        State::Note,
        Code::OldLibrary,
        text,
        "use `check` and `run --phc` on a newer distribution (Debian 12, Ubuntu 22.04)",
    ))
}

/// Returns the dynamic linker that a program names.
pub(super) fn linker_of(file: &Path) -> Option<PathBuf> {
    let cache = ReadCache::new(File::open(file).ok()?);
    let elf = elf::FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = elf.endian().ok()?;
    let segments = elf.program_headers(endian, &cache).ok()?;
    let named = segments.iter().find(|segment| segment.p_type(endian) == elf::PT_INTERP)?.data(endian, &cache).ok()?;
    let path = named.split(|&byte| byte == 0).next()?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// True if a file defines one of these dynamic symbols, or, without `is_defined`, imports one.
pub(super) fn mentions(file: &Path, names: &[&str], is_defined: bool) -> bool {
    let find = || {
        let cache = ReadCache::new(File::open(file).ok()?);
        let elf = elf::FileHeader64::<Endianness>::parse(&cache).ok()?;
        let endian = elf.endian().ok()?;
        let sections = elf.sections(endian, &cache).ok()?;
        let (_, dynamic) = sections.enumerate().find(|(_, section)| section.sh_type(endian) == elf::SHT_DYNSYM)?;
        let table = sections.symbols(endian, &cache, dynamic.sh_type(endian)).ok()?;
        let is_it = |symbol: &elf::Sym64<Endianness>| {
            symbol.name(endian, table.strings()).is_ok_and(|found| names.iter().any(|name| found == name.as_bytes()))
        };
        table.iter().find(|symbol| symbol.is_undefined(endian) != is_defined && is_it(symbol)).map(drop)
    };
    find().is_some()
}

/// Returns the libraries that are loaded with a program, and the names of those that are not found.
/// The dynamic linker lists them without running any of the program's code.
pub(super) fn libraries(linker: &Path, program: &Path) -> (Vec<PathBuf>, Vec<String>) {
    let mut list = Command::new(linker);
    // This is how ldd(1) does it; `--list` would stop at the first library that is not found.
    list.arg(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let text = list.output().map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default();
    let (mut found, mut missing) = (vec![], vec![]);
    // `NAME => PATH (ADDRESS)`, `NAME => not found`, or for the linker itself and the vdso
    // `PATH (ADDRESS)`.
    for line in text.lines().map(str::trim) {
        let (name, path) = line.split_once(" => ").unwrap_or((line, line));
        match path.rsplit_once(" (") {
            Some((path, _)) if path.starts_with('/') => found.push(PathBuf::from(path)),
            Some(_) => {}
            None if path == "not found" => missing.push(name.to_owned()),
            None => {}
        }
    }
    (found, missing)
}
