//! A recording without what tells whose it is.

use std::collections::HashMap;
use std::io::Write;

use heapledger_recording::{
    ChunkKind, Damage, Error as RecordingError, ImageStart, Module, Record, Recording, Session,
};

use super::{Draft, Error};

/// What [`anonymize`] keeps beyond what it always keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The file names of the user's own programs and libraries. Their directories go in any case.
    pub names: bool,
    /// The build ids of the user's own programs and libraries: who has the same files finds function names by them.
    pub build_ids: bool,
}

/// Directories of the distribution: what is below them is the same for everybody who has the package.
const SYSTEM: &[&str] = &["/usr/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/bin/", "/sbin/"];
/// Below those, but the user's own.
const OWN: &[&str] = &["/usr/local/", "/usr/home/", "/usr/src/"];

/// Writes the recording without what tells whose it is. `draft` is finished if the recording is. Returns what could not
/// be read, beyond what opening it found, and is missing.
///
/// | | kept | removed |
/// |---|---|---|
/// | session | version of the tool, date, page size, clock | command line, working directory, options |
/// | images | ids, pids, times, how they began and ended, inherited blocks | arguments; see the next line for the path |
/// | paths of modules | those below [the distribution's directories](SYSTEM) | all others: `/own/module-N` or, with [`Kept::names`], `/own/NAME` |
/// | build ids | those of modules whose path is kept; with [`Kept::build_ids`] all | |
/// | threads | ids, times | names |
/// | annotations | | all: their contents are the program's |
/// | events, nodes, checkpoints, sites, timelines, totals, costs | all: numbers only | |
/// | chunks of a newer version | | all |
pub fn anonymize<W: Write>(recording: &Recording<'_>, kept: Kept, mut draft: Draft<W>) -> Result<Vec<Damage>, Error> {
    let mut paths = Paths { kept: kept.names, known: HashMap::new() };
    // In the order of ids: the first module of a session is the program.
    let modules = recording.modules().iter().map(|module| Module {
        module: module.module,
        path: paths.anonymous(&module.path),
        build_id: if kept.build_ids || is_system(&module.path) { module.build_id.clone() } else { Vec::new() },
    });
    let mut records: Vec<Record> = modules.map(Record::Module).collect();
    let session = recording.session().map(|session| Session {
        command: Vec::new(),
        directory: Vec::new(),
        options: String::new(),
        ..session.clone()
    });
    records.splice(0..0, session.map(Record::Session));
    for start in recording.images() {
        let executable = paths.anonymous(&start.executable);
        let name = executable.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
        let argv = if start.argv.is_empty() { Vec::new() } else { vec![name] };
        records.push(Record::ImageStart(ImageStart { executable, argv, ..start.clone() }));
        records.extend(recording.mappings(start.image).iter().copied().map(Record::Mapping));
        for thread in recording.threads(start.image) {
            records.push(Record::Thread(heapledger_recording::Thread { name: Vec::new(), ..thread.clone() }));
        }
        records.extend(recording.image_end(start.image).copied().map(Record::ImageEnd));
        let counts = recording.image_counts(start.image).copied();
        let counts = counts.map(|counts| heapledger_recording::ImageCounts { image: start.image, counts });
        records.extend(counts.map(Record::ImageCounts));
    }
    records.extend(recording.process_counts().iter().copied().map(Record::ProcessCounts));
    draft.records(&records)?;

    let mut damage = Vec::new();
    for chunk in recording.chunks() {
        match chunk.kind {
            ChunkKind::Metadata | ChunkKind::Annotations | ChunkKind::Index | ChunkKind::Footer => continue,
            ChunkKind::Other(_) => continue,
            ChunkKind::Nodes | ChunkKind::Events | ChunkKind::Checkpoint | ChunkKind::Sites | ChunkKind::Timeline => {}
        }
        match recording.copy_chunk(chunk, &chunk.head) {
            Ok(copy) => draft.chunk(&copy)?,
            Err(RecordingError::Damaged(found)) => damage.push(found),
            Err(error) => return Err(error.into()),
        }
    }
    match recording.footer() {
        Some(footer) => {
            let complete = recording.complete() && damage.is_empty();
            draft.finish(&heapledger_recording::Footer { complete, ..*footer })?;
        }
        None => draft.flush()?,
    }
    Ok(damage)
}

fn is_system(path: &[u8]) -> bool {
    let below = |directories: &[&str]| directories.iter().any(|directory| path.starts_with(directory.as_bytes()));
    // `[vdso]` and the like are the kernel's.
    let is_plain = !path.windows(3).any(|part| part == b"/..");
    path.starts_with(b"[") || (below(SYSTEM) && !below(OWN) && is_plain)
}

/// The names that paths get.
struct Paths {
    kept: bool,
    known: HashMap<Vec<u8>, Vec<u8>>,
}

impl Paths {
    fn anonymous(&mut self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() || is_system(path) {
            return path.to_vec();
        }
        if let Some(known) = self.known.get(path) {
            return known.clone();
        }
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let number = self.known.len() + 1;
        let anonymous =
            if self.kept { [b"/own/", name].concat() } else { format!("/own/module-{number}").into_bytes() };
        self.known.insert(path.to_vec(), anonymous.clone());
        anonymous
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_distribution_stay() {
        for path in ["/usr/lib/x86_64-linux-gnu/libc.so.6", "/bin/sh", "/lib64/ld-linux-x86-64.so.2", "[vdso]"] {
            assert!(is_system(path.as_bytes()), "{path}");
        }
        for path in ["/home/jane/a", "/usr/local/bin/a", "/usr/lib/../../home/jane/a", "/libido/a", "a", "/opt/x"] {
            assert!(!is_system(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn own_paths_are_numbered_or_lose_their_directory() {
        let mut paths = Paths { kept: false, known: HashMap::new() };
        assert_eq!(paths.anonymous(b"/home/jane/secret"), b"/own/module-1");
        assert_eq!(paths.anonymous(b"/home/jane/other"), b"/own/module-2");
        assert_eq!(paths.anonymous(b"/home/jane/secret"), b"/own/module-1");
        assert_eq!(paths.anonymous(b""), b"");
        let mut paths = Paths { kept: true, known: HashMap::new() };
        assert_eq!(paths.anonymous(b"/home/jane/secret"), b"/own/secret");
    }
}
