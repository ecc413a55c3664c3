//! The bodies of fuzz targets, shared with property tests.

use heapledger_alloc_log::{Fields, Line, for_each_line};
use heapledger_core::ThreadId;
use heapledger_recording::{Annotation, Footer, ImageId, Recording, RecordingError, Time};

use crate::rewrite::Draft;
use crate::suppressions::{self, Suppressions};
use crate::{ImportedLog, LogFacts, LogFields, allocator_event, log_lines};

/// Decodes bytes as an annotation about an arena or a purge: the first two are its code. Panics
/// only if the decoder does.
pub fn annotation(data: &[u8]) {
    let Some((code, payload)) = data.split_first_chunk() else { return };
    let (code, payload) = (u32::from(u16::from_le_bytes(*code)), payload.to_vec());
    let annotation = Annotation { image: ImageId(0), thread: ThreadId(0), time: Time(0), code, payload };
    let _ = allocator_event(&annotation);
}

/// Reads bytes as the tables in the file of a [`Cube`](crate::Cube) of a recording with two sites,
/// and asks the cube what it has. Panics only if one of these steps does, or if the same tables are
/// not written again.
pub fn cube(data: &[u8]) {
    crate::cube::exercise(data);
}

/// Reads the bytes before the first zero byte as a file of suppressions, and matches them against
/// the name that follows it. Panics only if one of these steps does.
pub fn suppressions(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0).map(String::from_utf8_lossy);
    let (file, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut known = Suppressions::default();
    // The lines before an invalid one have been added.
    let _ = known.add(&file);
    known.iter().for_each(|it| _ = suppressions::matches(&it.pattern, &name));
}

/// Makes a recording of a log, a log of that, and both once more. Panics if the lines that are
/// calls cannot be written, or if something that both hold is lost.
pub fn log(data: &[u8]) {
    let (recording, facts) = recording_of(data);
    let once = log_of(&recording);
    let (again, _) = recording_of(&once);
    assert!(facts.calls >= facts.statistics);
    assert_eq!(String::from_utf8_lossy(&log_of(&again)), String::from_utf8_lossy(&once));
}

/// Returns the recording of a log; lines that it cannot have are left out.
pub(crate) fn recording_of(log: &[u8]) -> (Vec<u8>, LogFacts) {
    let add = |draft: &mut Draft<&mut Vec<u8>>| -> (Footer, LogFacts) {
        let mut import = ImportedLog::new(draft);
        let read = for_each_line(log, |line| {
            // An error is a value; the next line can be added.
            let _ = import.add(line);
            true
        });
        assert!(read.is_ok());
        import.finish("a log").expect("a draft in memory")
    };
    let (mut so_far, mut bytes) = (Vec::new(), Vec::new());
    let mut draft = Draft::new(&mut so_far);
    add(&mut draft);
    draft.flush().expect("a draft in memory");
    let mut draft = Draft::new(&mut bytes);
    let (footer, facts) = add(&mut draft);
    let so_far = Recording::open(&so_far).expect("a draft");
    if facts.calls > 0 {
        draft.count_and_finish(&so_far, footer, &mut |_, _| {}).expect("a recording in memory");
    } else {
        draft.finish(&footer).expect("a recording in memory");
    }
    (bytes, facts)
}

/// Returns the log of a recording.
fn log_of(recording: &[u8]) -> Vec<u8> {
    let recording = Recording::open(recording).expect("a recording");
    let mut text = Vec::new();
    for start in recording.images() {
        let fields = LogFields { times: true, usable: true, arenas: true };
        let each = |line: &Line, fields: &Fields<'_>| {
            line.write_to(&mut text);
            fields.write_to(&mut text);
            text.push(b'\n');
            Ok::<(), RecordingError>(())
        };
        log_lines(&recording, start.image, fields, |_| {}, each).expect("a recording");
    }
    text
}
