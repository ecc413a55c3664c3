//! Programs of this machine into which a library can be loaded.
//!
//! The command is one itself, unless it is static ([docs/portable.md]): then the C library that
//! programs have here is looked for in other programs.
//!
//! [docs/portable.md]: https://github.com/heapledger/heapledger/blob/main/docs/portable.md

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use heapledger_collect::is_musl_installed;
use heapledger_core::program::{self, Program};

/// The shell, which every system has.
const SHELL: &str = "/bin/sh";

/// Programs that most systems have, beginning with those that need the fewest libraries.
const USUAL: [&str; 5] = ["/bin/true", "/usr/bin/true", "/usr/bin/env", "/bin/ls", SHELL];

/// Returns the file of this command, if a library can be loaded into it.
pub(crate) fn own() -> Option<PathBuf> {
    std::env::current_exe().ok().filter(|own| loads_libraries(own))
}

/// Returns a program for glibc that does nothing of note: this command if it is one.
pub(crate) fn any() -> Option<PathBuf> {
    own().or_else(|| USUAL.into_iter().map(PathBuf::from).find(|file| loads_libraries(file)))
}

/// Returns the shell, if it can be recorded.
pub(crate) fn shell() -> Option<PathBuf> {
    let file = PathBuf::from(SHELL);
    (loads_libraries(&file) || is_for_musl(&file)).then_some(file)
}

/// True if a file is a program for this processor with glibc's dynamic linker.
fn loads_libraries(file: &Path) -> bool {
    is(file, Program::Dynamic)
}

/// True if a file is a program for this processor with musl's dynamic linker, which is here.
pub(crate) fn is_for_musl(file: &Path) -> bool {
    is(file, Program::Musl) && is_musl_installed()
}

fn is(file: &Path, kind: Program<'_>) -> bool {
    let mut head = Vec::with_capacity(program::HEAD_LENGTH);
    let read = File::open(file).and_then(|file| file.take(program::HEAD_LENGTH as u64).read_to_end(&mut head));
    read.is_ok() && program::classify(&head) == kind
}
