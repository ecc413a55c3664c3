//! The ways in which programs come to be recorded.

use std::ffi::OsStr;
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
    let read = || {
        let file = std::fs::File::open(file)?;
        let mut head = Vec::new();
        let metadata = file.metadata()?;
        file.take(program::HEAD_LENGTH as u64).read_to_end(&mut head)?;
        io::Result::Ok((head, metadata))
    };
    let Ok((head, metadata)) = read() else { return Way::Preloaded };
    let caller = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if program::gains_rights(metadata.mode(), (metadata.uid(), metadata.gid()), caller) {
        return Way::None(Some(Obstacle::OtherRights));
    }
    match program::classify(&head) {
        Program::Dynamic | Program::Unknown => Way::Preloaded,
        Program::Musl => Way::Musl,
        // A traced process gets no capabilities from a file.
        Program::Other(Obstacle::Static) if has_capabilities(file) => Way::None(Some(Obstacle::OtherRights)),
        Program::Other(Obstacle::Static) => Way::Placed,
        Program::Other(obstacle) => Way::None(Some(obstacle)),
        Program::Script(_) if interpreters_left == 0 => Way::None(None),
        Program::Script(interpreter) => way(Path::new(OsStr::from_bytes(interpreter)), interpreters_left - 1),
    }
}

pub(crate) fn has_capabilities(file: &Path) -> bool {
    let mut value = [0_u8; 64];
    rustix::fs::getxattr(file, "security.capability", &mut value).is_ok()
}
