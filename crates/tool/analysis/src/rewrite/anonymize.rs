//! Recordings without the data that identify their origin.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Write;

use heapledger_recording::{
    ChunkKind, Damage, Departure, Footer, ImageCounts, ImageStart, ImportedLocation, Module, Node, NodeKind, Record,
    Recording, RecordingError, ResidentEncoder, Session, StampText, Text, TextId, Thread,
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{Draft, Error};

/// The data that [`anonymize`] keeps beyond what it always keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The file names of the user's own programs, libraries and sources, without their directories,
    /// and the names of threads, scopes, heaps and stamped types.
    pub names: bool,
    /// The names of functions, and of the files that they are in; for the user's own files without
    /// directories.
    pub functions: bool,
    /// The build ids of the user's own programs and libraries. Anybody who has the same files can
    /// find function names by them.
    pub build_ids: bool,
}

/// Directories of the distribution: their contents are the same for everybody who has the package.
const SYSTEM: &[&str] = &["/usr/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/bin/", "/sbin/"];
/// Directories below those that are the user's own.
const OWN: &[&str] = &["/usr/local/", "/usr/home/", "/usr/src/"];

/// Writes the recording without the data that identify its origin. `draft` is finished if the
/// recording is. Returns the damage that opening the recording did not find, which is missing from
/// the copy.
///
/// Names that are removed are replaced by the first 48 bits of their HMAC-SHA-256 under `key`.
/// Equal names stay equal, also in another recording that is made anonymous with the same key, and
/// nobody without the key can test guesses. The key is not stored.
///
/// | | kept | removed or replaced |
/// |---|---|---|
/// | session | version of the tool, date, page size, clock, pauses | command line, working directory, options |
/// | images | ids, pids, times, how they began and ended, inherited blocks | arguments; see the next line for the path |
/// | paths of modules | those below the distribution's directories | all others: `/own/HASH` or, with [`Kept::names`], `/own/NAME` |
/// | build ids | those of modules whose path is kept; with [`Kept::build_ids`] all | all others |
/// | threads | ids, times | names: `thread-HASH` or, with [`Kept::names`], kept |
/// | names of scopes and heaps, categories | which of them are tasks | `text-HASH` or, with [`Kept::names`], kept |
/// | values of scopes | | `text-HASH`: they are data |
/// | stamps | lines | types: `type-HASH`, labels: `text-HASH` or, with [`Kept::names`], kept; source files: as paths of modules |
/// | names of mapped files | those below the distribution's directories | all others: as paths of modules |
/// | names of functions and their files | with [`Kept::functions`]; of files, the name alone, if not of the distribution | all |
/// | resident snapshots | all numbers | names of files: as paths of modules; of other memory: `text-HASH` or, with [`Kept::names`], kept |
/// | annotations | | all: their contents are the program's |
/// | events, nodes, checkpoints, sites, timelines, memory, mappings, totals, costs | all: numbers only | |
/// | chunks of a newer version | | all |
pub fn anonymize<W: Write>(
    recording: &Recording<'_>,
    kept: Kept,
    key: &[u8],
    mut draft: Draft<W>,
) -> Result<Vec<Damage>, Error> {
    draft.begin(recording.is_sample());
    draft.records(&records(recording, &Names { kept, key }))?;
    let mut damage = Vec::new();
    for chunk in recording.chunks() {
        match chunk.kind {
            ChunkKind::Metadata | ChunkKind::Annotations | ChunkKind::Names | ChunkKind::Resident => continue,
            ChunkKind::Index | ChunkKind::Footer | ChunkKind::Other(_) => continue,
            ChunkKind::Nodes | ChunkKind::Events | ChunkKind::Checkpoint | ChunkKind::Sites => {}
            ChunkKind::Timeline | ChunkKind::Memory | ChunkKind::Mappings => {}
        }
        match recording.copy_chunk(chunk, &chunk.head) {
            Ok(copy) => draft.chunk(&copy)?,
            Err(RecordingError::Damaged(found)) => damage.push(found),
            Err(error) => return Err(error.into()),
        }
    }
    for start in recording.images() {
        let mut snapshots = recording.resident_snapshots(start.image);
        damage.append(&mut snapshots.damage);
        for snapshot in &mut snapshots.rows {
            snapshot.parts.iter_mut().for_each(|part| part.name = Names { kept, key }.mapping(&part.name));
            draft.put(|compressor| ResidentEncoder::encode(start.image, snapshot, compressor))?;
        }
    }
    if kept.functions {
        let mut found = recording.names();
        let names = Names { kept: Kept { names: true, ..kept }, key };
        let shown = |file: Cow<'_, str>| String::from_utf8_lossy(&names.path(file.as_bytes())).into_owned().into();
        let places: Vec<_> = found
            .iter()
            .map(|mut place| {
                place.functions.iter_mut().for_each(|function| function.file = function.file.take().map(shown));
                place
            })
            .collect();
        draft.names(&places)?;
        draft.extents(&found.extents().collect::<Vec<_>>())?;
        damage.append(&mut found.damage);
    }
    match recording.footer() {
        Some(footer) => {
            let complete = recording.complete() && damage.is_empty();
            draft.finish(&Footer { complete, ..*footer })?;
        }
        None => draft.flush()?,
    }
    Ok(damage)
}

fn records(recording: &Recording<'_>, names: &Names<'_>) -> Vec<Record> {
    let session = recording.session().map(|session| Session {
        command: Vec::new(),
        directory: Vec::new(),
        options: String::new(),
        ..session.clone()
    });
    let mut records: Vec<Record> = session.map(Record::Session).into_iter().collect();
    records.extend(recording.pauses().iter().copied().map(Record::Pause));
    records.extend(recording.sampling().iter().copied().map(Record::Sampling));
    records.extend(recording.modules().iter().map(|module| {
        let is_kept = names.kept.build_ids || is_system(&module.path);
        let build_id = if is_kept { module.build_id.clone() } else { Vec::new() };
        Record::Module(Module { module: module.module, path: names.path(&module.path), build_id })
    }));
    let (values, stamps) = (values(recording), texts_of(recording, NodeKind::Stamp));
    let (files, values_of_scopes) = (recording.mapped_files(), texts_of(recording, NodeKind::Value));
    records.extend(recording.texts().iter().map(|text| {
        let is_value = values.contains(&text.text);
        let is_stamp = !is_value && stamps.contains(&text.text);
        // A name that the program gave to its memory is no path.
        let is_path = files.contains(&text.text) && !text.bytes.starts_with(b"[anon");
        let is_file = is_path && !values_of_scopes.contains(&text.text) && !is_stamp;
        let bytes = match (is_stamp, is_file) {
            (true, _) => names.stamp(&text.stamp()),
            (_, true) => names.path(&text.bytes),
            _ => names.text(&text.bytes, is_value),
        };
        Record::Text(Text { bytes, category: names.text(&text.category, false), ..text.clone() })
    }));
    records.extend(recording.imported_locations().iter().map(|place| {
        let functions = place.functions.iter().map(|text| names.stamp(&StampText::parse(text))).collect();
        Record::ImportedLocation(ImportedLocation { functions, ..place.clone() })
    }));
    for start in recording.images() {
        let executable = names.path(&start.executable);
        let name = executable.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
        let argv = if start.argv.is_empty() { Vec::new() } else { vec![name] };
        records.push(Record::ImageStart(ImageStart { executable, argv, ..start.clone() }));
        records.extend(recording.mappings(start.image).iter().copied().map(Record::Mapping));
        records.extend(recording.threads(start.image).iter().map(|thread| {
            let name = names.thread(&thread.name);
            Record::Thread(Thread { name, ..thread.clone() })
        }));
        records.extend(recording.image_end(start.image).copied().map(Record::ImageEnd));
        let counts = recording.image_counts(start.image).copied();
        records.extend(counts.map(|counts| Record::ImageCounts(ImageCounts { image: start.image, counts })));
    }
    records.extend(
        recording
            .departures()
            .iter()
            .map(|departure| Record::Departure(Departure { path: names.path(&departure.path), ..departure.clone() })),
    );
    records.extend(recording.process_counts().iter().copied().map(Record::ProcessCounts));
    records
}

/// Returns the texts that are values of scopes, and so data of the program. A text that no node
/// refers to is treated as one.
fn values(recording: &Recording<'_>) -> HashSet<TextId> {
    let mut values: HashSet<TextId> = recording.texts().iter().map(|text| text.text).collect();
    if values.is_empty() {
        return values;
    }
    for kind in [NodeKind::Scope, NodeKind::Heap, NodeKind::Stamp] {
        texts_of(recording, kind).iter().for_each(|name| _ = values.remove(name));
    }
    values.extend(texts_of(recording, NodeKind::Value));
    values
}

/// Returns the texts that nodes of this kind refer to.
fn texts_of(recording: &Recording<'_>, kind: NodeKind) -> HashSet<TextId> {
    let mut texts = HashSet::new();
    if !recording.texts().is_empty() {
        for start in recording.images() {
            let table = recording.nodes(start.image);
            texts.extend(table.nodes().iter().filter(|node| node.kind == kind).filter_map(Node::text));
        }
    }
    texts
}

fn is_system(path: &[u8]) -> bool {
    let below = |directories: &[&str]| directories.iter().any(|directory| path.starts_with(directory.as_bytes()));
    // Names such as `[vdso]` are the kernel's.
    let is_plain = !path.windows(3).any(|part| part == b"/..");
    path.starts_with(b"[") || (below(SYSTEM) && !below(OWN) && is_plain)
}

/// The replacement of names.
struct Names<'k> {
    kept: Kept,
    key: &'k [u8],
}

impl Names<'_> {
    fn path(&self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() || is_system(path) {
            return path.to_vec();
        }
        match path.rsplit(|&byte| byte == b'/').next() {
            Some(name) if self.kept.names => [b"/own/", name].concat(),
            _ => format!("/own/{}", self.hash(b"path", path)).into_bytes(),
        }
    }

    /// Returns the name of a part of memory: a path, or what the program calls it.
    fn mapping(&self, name: &str) -> String {
        let path = name.strip_suffix(" (deleted)").unwrap_or(name).as_bytes();
        let name = if path.starts_with(b"/") { self.path(path) } else { self.text(path, false) };
        String::from_utf8_lossy(&name).into_owned()
    }

    fn thread(&self, name: &[u8]) -> Vec<u8> {
        if name.is_empty() || self.kept.names {
            return name.to_vec();
        }
        format!("thread-{}", self.hash(b"thread", name)).into_bytes()
    }

    fn text(&self, text: &[u8], is_value: bool) -> Vec<u8> {
        if text.is_empty() || (self.kept.names && !is_value) {
            return text.to_vec();
        }
        format!("text-{}", self.hash(b"text", text)).into_bytes()
    }

    fn stamp(&self, stamp: &StampText<'_>) -> Vec<u8> {
        let named = |bytes: Vec<u8>| Cow::Owned(String::from_utf8_lossy(&bytes).into_owned());
        let type_name = match &*stamp.type_name {
            name if name.is_empty() || self.kept.names => name.to_owned(),
            name => format!("type-{}", self.hash(b"type", name.as_bytes())),
        };
        StampText {
            type_name: type_name.into(),
            file: stamp.file.as_ref().map(|file| named(self.path(file.as_bytes()))),
            line: stamp.line,
            label: stamp.label.as_ref().map(|label| named(self.text(label.as_bytes(), false))),
        }
        .to_bytes()
    }

    /// Returns twelve hexadecimal digits. Equal names of different kinds have different hashes.
    fn hash(&self, kind: &[u8], name: &[u8]) -> String {
        let Ok(mut hmac) = Hmac::<Sha256>::new_from_slice(self.key) else { unreachable!("a key may have any length") };
        hmac.update(kind);
        hmac.update(b"\0");
        hmac.update(name);
        hmac.finalize().into_bytes()[..6].iter().map(|byte| format!("{byte:02x}")).collect()
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
    fn names_depend_on_the_key() {
        let names = |key: &'static [u8]| Names { kept: Kept::default(), key };
        let path = names(b"key").path(b"/home/jane/secret");
        // printf 'path\0/home/jane/secret' | openssl dgst -sha256 -hmac key
        assert_eq!(path, b"/own/30a4c583b8ca");
        assert_eq!(path, names(b"key").path(b"/home/jane/secret"));
        assert_ne!(path, names(b"other").path(b"/home/jane/secret"));
        assert_ne!(path, names(b"key").path(b"/home/jane/other"));
        assert_eq!(names(b"key").path(b""), b"");
        assert_eq!(names(b"key").path(b"/usr/bin/sh"), b"/usr/bin/sh");
        assert_eq!(names(b"").path(b"/x").len(), "/own/0123456789ab".len());
        assert_eq!(names(b"key").thread(b""), b"");
        assert_eq!(names(b"key").mapping("/home/jane/secret (deleted)"), "/own/30a4c583b8ca");
        assert_eq!(names(b"key").mapping("/usr/lib/libc.so.6"), "/usr/lib/libc.so.6");
        assert!(names(b"key").mapping("secret").starts_with("text-"));
        assert!(names(b"key").thread(b"worker").starts_with(b"thread-"));
    }

    #[test]
    fn stamps_keep_their_lines() {
        let names = |names| Names { kept: Kept { names, ..Kept::default() }, key: b"key" };
        let (text, bare) = (StampText::parse(b"app::Secret\nsrc/secret.rs:7\nlabel"), StampText::parse(b"app::Secret"));
        let hidden = String::from_utf8(names(false).stamp(&text)).unwrap();
        let lines: Vec<&str> = hidden.lines().collect();
        assert!(lines[0].starts_with("type-") && lines[1].starts_with("/own/") && lines[1].ends_with(":7"), "{hidden}");
        assert!(lines[2].starts_with("text-") && !hidden.contains("ecret") && !hidden.contains("label"), "{hidden}");
        assert_eq!(names(false).stamp(&bare), lines[0].as_bytes());
        assert_eq!(names(true).stamp(&text), b"app::Secret\n/own/secret.rs:7\nlabel");
    }

    #[test]
    fn kept_names_lose_their_directory() {
        let names = Names { kept: Kept { names: true, ..Kept::default() }, key: b"key" };
        assert_eq!(names.path(b"/home/jane/secret"), b"/own/secret");
        assert_eq!(names.thread(b"worker"), b"worker");
    }
}
