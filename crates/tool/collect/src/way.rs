//! The ways in which programs come to be recorded.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use heapledger_core::program::{self, Obstacle, Program};

/// The way in which a program comes to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Its dynamic linker loads the library; also if that cannot be determined.
    Preloaded,
    /// musl's dynamic linker loads the copy that is for musl.
    Musl,
    /// It is statically linked: the library is placed into it.
    Placed,
    /// Not at all, for this reason if one is known.
    None(Option<Obstacle>),
}

/// The maximum depth of scripts whose interpreters are scripts: the kernel's limit.
pub(crate) const INTERPRETERS_MAX: usize = 4;

/// Returns the way in which a program comes to be recorded.
pub(crate) fn way(file: &Path, interpreters_left: usize) -> Way {
    way_by(file, interpreters_left, &|path| File::open(path))
}

/// Does the same for a program that another process executes: `open` opens a file by the path that
/// the process has for it.
pub(crate) fn way_by(file: &Path, interpreters_left: usize, open: &dyn Fn(&Path) -> io::Result<File>) -> Way {
    let read = || {
        let file = open(file)?;
        let has_capabilities = has_capabilities(&file);
        let mut head = Vec::new();
        let metadata = file.metadata()?;
        file.take(program::HEAD_LENGTH as u64).read_to_end(&mut head)?;
        io::Result::Ok((head, metadata, has_capabilities))
    };
    let Ok((head, metadata, has_capabilities)) = read() else { return Way::Preloaded };
    let caller = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if program::gains_rights(metadata.mode(), (metadata.uid(), metadata.gid()), caller) {
        return Way::None(Some(Obstacle::OtherRights));
    }
    match program::classify(&head) {
        Program::Dynamic | Program::Unknown => Way::Preloaded,
        Program::Musl => Way::Musl,
        // A traced process gets no capabilities from a file.
        Program::Other(Obstacle::Static) if has_capabilities => Way::None(Some(Obstacle::OtherRights)),
        Program::Other(Obstacle::Static) => Way::Placed,
        Program::Other(obstacle) => Way::None(Some(obstacle)),
        Program::Script(_) if interpreters_left == 0 => Way::None(None),
        Program::Script(interpreter) => way_by(Path::new(OsStr::from_bytes(interpreter)), interpreters_left - 1, open),
    }
}

fn has_capabilities(file: &File) -> bool {
    let mut value = [0_u8; 64];
    rustix::fs::fgetxattr(file, "security.capability", &mut value).is_ok()
}
