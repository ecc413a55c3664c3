//! Finds the allocator that a program is to run with, and checks it before anything runs.

use std::path::{Path, PathBuf};
use std::{fs, io};

use heapledger_collect::CommandAllocator;

use crate::args::{AllocatorName, InstalledAllocator};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::launch::preload::ALLOCATOR;
use crate::launch::shared_library::{defines, parse};
use crate::text::{quoted, shown};

/// The directories of the distribution's libraries, of Debian and others.
const DIRECTORIES: [&str; 5] =
    ["/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];

/// The functions that a library must have to replace malloc, according to glibc's manual.
const FUNCTIONS: [&str; 4] = ["malloc", "calloc", "realloc", "free"];

/// Returns the allocator of this name, after checking that it can be loaded.
pub(crate) fn find(name: &AllocatorName) -> Result<CommandAllocator> {
    match name {
        AllocatorName::System => Ok(CommandAllocator::System),
        AllocatorName::Heapledger => Ok(CommandAllocator::Carried(ALLOCATOR.into())),
        AllocatorName::Installed(known) => file(&installed(*known)?, &FUNCTIONS).map(CommandAllocator::File),
        AllocatorName::File(path) => file(path, &FUNCTIONS).map(CommandAllocator::File),
    }
}

/// Returns the allocator of this name as [`find`] does, if it has all functions that a replay may
/// call.
pub(crate) fn find_for_replay(name: &AllocatorName) -> Result<CommandAllocator> {
    let found = find(name)?;
    if let CommandAllocator::File(path) = &found {
        file(path, &["memalign", "posix_memalign", "aligned_alloc", "malloc_usable_size"])?;
    }
    Ok(found)
}

fn installed(known: InstalledAllocator) -> Result<PathBuf> {
    let paths = known.files().iter().flat_map(|file| DIRECTORIES.map(|directory| Path::new(directory).join(file)));
    paths.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let (name, package) = (known.name(), known.package());
        let hint = format!("install it, or give the path of its library:\napt install {package}");
        Failure::new(Exit::NotStarted, format_args!("cannot use the allocator {name}: it is not installed"))
            .code(Code::NoAllocator)
            .hint(hint)
    })
}

/// Returns the absolute path of an allocator's library, which must have these functions.
fn file(path: &Path, functions: &[&str]) -> Result<PathBuf> {
    let name = format!("cannot use the allocator `{}`", shown(path));
    let word = quoted(&path.to_string_lossy());
    // A device or a pipe might never end.
    let read = fs::metadata(path).and_then(|data| match data.is_file() {
        true => Ok((fs::canonicalize(path)?, fs::read(path)?)),
        false => Err(io::Error::other("it is not a regular file")),
    });
    let (absolute, bytes) = read.map_err(|error| {
        let hint = format!("check the path:\nls -l {word}");
        Failure::caused(Exit::NotStarted, &name, error).code(Code::NoAllocator).hint(hint)
    })?;
    let refuse = |why: &str, hint: String| {
        Failure::new(Exit::NotStarted, format_args!("{name}: {why}")).code(Code::NotAnAllocator).hint(hint)
    };
    let library =
        parse(&bytes).map_err(|why| refuse(why, format!("give a shared library of this machine:\nfile {word}")))?;
    // For one that is missing, the C library's would be called, with blocks of the other allocator.
    if let Some(missing) = functions.iter().find(|function| !defines(&library, function)) {
        let all = functions.join(", ");
        let hint = format!("it must export these functions: {all}\nnm -D --defined-only {word}");
        return Err(refuse(&format!("it exports no `{missing}`"), hint));
    }
    Ok(absolute)
}
