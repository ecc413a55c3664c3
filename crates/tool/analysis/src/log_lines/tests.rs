use std::collections::BTreeMap;

use heapledger_alloc_log::{Fields, Line, LineError, Munge, Survey};
use heapledger_recording::{Recording, RecordingError};
use proptest::prelude::*;

use super::{LogFields, log_lines};
use crate::rewrite::Draft;
use crate::{ImportedLog, LogFacts, LogLineError, fuzzing, overview, testing};

const ALL: LogFields = LogFields { times: true, usable: true, arenas: true };
const NONE: LogFields = LogFields { times: false, usable: false, arenas: false };

/// Makes a recording of a log, of which each line must be accepted.
fn recorded(log: &str) -> (Vec<u8>, LogFacts) {
    fn add(log: &str, draft: &mut Draft<&mut Vec<u8>>) -> (heapledger_recording::Footer, LogFacts) {
        let mut import = ImportedLog::new(draft);
        log.lines().for_each(|line| import.add(line.as_bytes()).expect(line));
        import.finish("a log").unwrap()
    }
    let mut so_far = Vec::new();
    let mut draft = Draft::new(&mut so_far);
    add(log, &mut draft);
    draft.flush().unwrap();
    let mut bytes = Vec::new();
    let mut draft = Draft::new(&mut bytes);
    let (footer, facts) = add(log, &mut draft);
    let so_far = Recording::open(&so_far).unwrap();
    draft.count_and_finish(&so_far, footer, &mut |_, _| {}).unwrap();
    let recording = Recording::open(&bytes).unwrap();
    assert!(recording.complete() && recording.damage().is_empty());
    (bytes, facts)
}

/// Returns the log of a recording, and the number of blocks that it does not have.
fn logged(recording: &[u8], choice: LogFields) -> (String, u64) {
    let recording = Recording::open(recording).unwrap();
    let (mut log, mut unknown) = (String::new(), 0);
    for start in recording.images() {
        let each = |line: &Line, fields: &Fields<'_>| {
            log += &format!("{line}{fields}\n");
            Ok::<(), RecordingError>(())
        };
        unknown += log_lines(&recording, start.image, choice, |_| {}, each).unwrap();
    }
    (log, unknown)
}

/// Returns the lines of each process of a log, munged.
fn munged(log: &str) -> BTreeMap<u64, Vec<String>> {
    let mut lines = BTreeMap::<u64, Vec<String>>::new();
    let mut munges = BTreeMap::<u64, Munge>::new();
    for text in log.lines() {
        let process = Line::parse(text.as_bytes()).unwrap().process;
        let munged = munges.entry(process).or_default().line(text.as_bytes());
        let line = munged.map_or_else(|error| error.to_string(), |line| line.to_string());
        lines.entry(process).or_default().push(line);
    }
    lines
}

const LOG: &str = "\
7 100 malloc(32)=0x1000
7 100 calloc(3,16)=0x1040
7 200 realloc(0x1000,64)=0x1100
7 200 posix_memalign(256,240)=0x1200
8 300 malloc(9)=0x1000
7 200 aligned_alloc(64,128)=0x1300
7 100 jemalloc_stats()
7 100 memalign(32,5)=0x1400
7 100 valloc(77)=0x2000
7 100 malloc(18446744073709551615)=0x0
7 100 realloc(0x0,5)=0x2010
7 100 realloc(0x2010,0)=0x0
8 300 free(0x1000)
7 100 calloc(18446744073709551615,2)=0x0
7 100 free(0x1300)
7 100 jemalloc_stats()
8 300 jemalloc_stats()
";

#[test]
fn a_log_becomes_a_recording_and_a_log_again() {
    let (recording, facts) = recorded(LOG);
    let expected = LogFacts { lines: 17, calls: 17, statistics: 3, has_times: false, frees_missed: 0 };
    assert_eq!(facts, expected);
    let (log, unknown) = logged(&recording, NONE);
    // The sum that is too large for a size is one of its parts no more.
    let expected = LOG.replace("calloc(18446744073709551615,2)", "calloc(1,18446744073709551615)");
    assert_eq!((munged(&log), unknown), (munged(&expected), 0));
    let recording = Recording::open(&recording).unwrap();
    let overview = overview(&recording, &mut |_, _| {}).unwrap();
    let counts = overview.counts;
    assert_eq!((counts.allocations.0, counts.frees.0, counts.failed.0), (9, 4, 2));
    assert_eq!((counts.blocks_live_end.0, counts.bytes_live_end.0), (5, 48 + 64 + 240 + 5 + 77));
    assert_eq!(overview.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [7, 8]);
}

#[test]
fn a_recording_holds_times_usable_sizes_and_arenas() {
    let log = "\
7 0 malloc(32)=#1 usable=40 time=5
7 1 malloc(8)=#2 usable=24 time=1000000123 arena=one
7 0 realloc(#1,64)=#3 usable=72 time=1000000124
7 0 jemalloc_stats() time=1000000130
7 0 free(#3) time=2000000000
7 0 malloc(1)=#4 time=2000000001 arena=two%20words
7 0 jemalloc_stats() time=2000000005
";
    let (recording, facts) = recorded(log);
    assert!(facts.has_times);
    assert_eq!(logged(&recording, ALL), (log.to_owned(), 0));
    let bare = LogFields { usable: true, ..NONE };
    assert!(logged(&recording, bare).0.starts_with("7 0 malloc(32)=#1 usable=40\n7 1 malloc(8)=#2 usable=24\n"));
}

#[test]
fn blocks_without_an_allocation_or_a_free_are_counted() {
    let log = "1 1 free(0x10)\n1 1 realloc(0x20,5)=0x30\n1 1 malloc(7)=0x30\n1 1 free(0x0)\n";
    let (recording, facts) = recorded(log);
    assert_eq!((facts.calls, facts.frees_missed), (4, 1));
    let (back, unknown) = logged(&recording, NONE);
    assert_eq!(back, "1 0 free(#0)\n1 0 realloc(#0,5)=#1\n1 0 free(#1)\n1 0 malloc(7)=#2\n");
    assert_eq!(unknown, 2);
    assert_eq!(logged(&recorded(&back).0, NONE), (back, 2));
}

#[test]
fn lines_that_a_recording_cannot_have_are_refused() {
    let mut out = Vec::new();
    let mut draft = Draft::new(&mut out);
    let mut import = ImportedLog::new(&mut draft);
    let malformed = import.add(b"1 1 malloc(x)=0x10");
    assert!(matches!(malformed, Err(LogLineError::Line(LineError::Malformed))));
    assert!(matches!(import.add(b"1 1 f()"), Err(LogLineError::Line(LineError::UnknownFunction))));
    assert!(matches!(import.add(b"4294967296 1 malloc(1)=0x10"), Err(LogLineError::Unwritable(_))));
    for process in 0..16_384 {
        import.add(format!("{process} 1 malloc(1)=0x10").as_bytes()).unwrap();
    }
    assert!(matches!(import.add(b"70000 1 malloc(1)=0x10"), Err(LogLineError::Unwritable(_))));
    // The next line can be added.
    import.add(b"1 1 free(0x10)").unwrap();
    import.add(b"").unwrap();
    let (_, facts) = import.finish("a log").unwrap();
    assert_eq!((facts.lines, facts.calls), (16_384 + 6, 16_385));
}

#[test]
fn times_after_lines_without_are_exact() {
    let log = "1 0 malloc(1)=#1\n1 0 malloc(2)=#2 time=4200\n1 0 jemalloc_stats() time=4700\n1 0 free(#1) time=4750\n";
    let expected = log.replace("#1\n", "#1 time=1000\n");
    assert_eq!(logged(&recorded(log).0, ALL).0, expected);
}

#[test]
fn labels_fit_in_lines_when_they_are_escaped() {
    let line = |bytes| [&b"1 1 malloc(1)=#1 arena="[..], &vec![0x80; bytes]].concat();
    let mut out = Vec::new();
    let mut draft = Draft::new(&mut out);
    let mut import = ImportedLog::new(&mut draft);
    assert!(matches!(import.add(&line(1025)), Err(LogLineError::Unwritable(_))));
    import.add(&line(1024)).unwrap();
    for bytes in [1024, 1025, 1400] {
        fuzzing::log(&line(bytes));
    }
}

/// Returns the number of blocks of the log of a recording that were live when their slots were
/// given out.
fn allocations_of_live(recording: &[u8]) -> u64 {
    let mut survey = Survey::default();
    for line in logged(recording, NONE).0.lines() {
        survey.add(&Line::parse(line.as_bytes()).unwrap());
    }
    survey.allocations_of_live()
}

#[test]
fn programs_of_one_process_have_their_own_slots() {
    // Both children have the number 102, and each has one block, which it does not free.
    let (recording, ..) = testing::write_with_pids(&testing::steps_of_two_children(), 102);
    assert_eq!(logged(&recording, NONE).0.matches("malloc(").count(), 2);
    assert_eq!(allocations_of_live(&recording), 0);
}

/// A call that is made up: process, thread, function, and a choice among blocks and sizes.
type Made = (u8, u8, u8, u16);

/// Makes a log, in which any block may be passed to `free` or `realloc`, and addresses are used
/// again while they are live.
fn log_of(calls: &[Made]) -> String {
    let mut log = String::new();
    for (index, &(process, thread, function, choice)) in calls.iter().enumerate() {
        let (block, other, size) = (choice % 23 * 16, choice / 23 % 23 * 16, choice % 301);
        let call = match function {
            0..=3 => format!("malloc({size})={block:#x}"),
            4..=6 => format!("free({block:#x})"),
            7 => format!("realloc({block:#x},{size})={other:#x}"),
            8 => format!("calloc({},{size})={block:#x}", choice % 5),
            9 => format!("memalign({},{size})={block:#x}", 1 << (choice % 9)),
            10 => format!("posix_memalign(64,{size})={block:#x}"),
            11 => format!("aligned_alloc(64,{size})={block:#x}"),
            12 => format!("valloc({size})={block:#x}"),
            _ => "jemalloc_stats()".to_owned(),
        };
        let fields = match choice % 3 {
            0 => format!(" time={}", index * 700),
            1 => format!(" time={} usable={} arena=a{}", index * 700, size + 8, choice % 4),
            _ => format!(" time={}", index * 700),
        };
        log += &format!("{process} {thread} {call}{fields}\n");
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Recording, log, recording, log: what both hold is the same, whatever the log.
    #[test]
    fn recordings_and_logs_hold_the_same(calls in prop::collection::vec((1..4_u8, 0..3_u8, 0..14_u8, any::<u16>()), 1..300)) {
        let log = log_of(&calls);
        let (recording, facts) = recorded(&log);
        let (once, unknown) = logged(&recording, ALL);
        let (again, _) = recorded(&once);
        prop_assert_eq!(&logged(&again, ALL).0, &once);
        // The blocks of the log are those of the recording.
        let mut survey = Survey::default();
        for line in log.lines() {
            survey.add(&Line::parse(line.as_bytes()).unwrap());
        }
        let recording = Recording::open(&recording).unwrap();
        let counts = overview(&recording, &mut |_, _| {}).unwrap().counts;
        prop_assert_eq!((counts.blocks_live_end.0, counts.bytes_live_end.0), (survey.blocks_live(), survey.bytes_live()));
        prop_assert_eq!((unknown, facts.frees_missed), (survey.frees_unknown(), survey.allocations_of_live()));
        prop_assert_eq!(facts.calls, survey.calls());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever the processes are, and whether they become other programs.
    #[test]
    fn no_slot_is_given_out_twice(steps in testing::steps(80)) {
        prop_assert_eq!(allocations_of_live(&testing::write(&steps).0), 0);
    }
}

proptest! {
    /// Logs with wrong bytes.
    #[test]
    fn damaged_logs(
        calls in prop::collection::vec((1..4_u8, 0..3_u8, 0..14_u8, any::<u16>()), 1..40),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut log = log_of(&calls).into_bytes();
        for (at, byte) in damage {
            let at = at.index(log.len());
            log[at] = byte;
        }
        fuzzing::log(&log);
    }

    #[test]
    fn any_bytes(log in prop::collection::vec(any::<u8>(), 0..500)) {
        fuzzing::log(&log);
    }
}
