use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn lines(log: &[u8]) -> Vec<Result<Line, LineError>> {
    let mut lines = Vec::new();
    for_each_line(log, |line| {
        lines.push(Line::parse(line));
        true
    })
    .unwrap();
    lines
}

/// Returns the munged log, and the reason of each line that is left out.
fn munged(log: &str) -> (String, Vec<String>) {
    let (mut munge, mut text, mut ignored) = (Munge::default(), String::new(), Vec::new());
    for line in log.lines() {
        match munge.line(line.as_bytes()) {
            Ok(line) => text += &format!("{line}\n"),
            Err(error) => ignored.push(format!("{line}: {error}")),
        }
    }
    (text, ignored)
}

const LOG: &str = "\
18545 18545 malloc(32)=0x7f90495120e0
18545 18545 calloc(1,148)=0x7f9049537480
18545 18546 realloc(0x7f90495120e0,64)=0x7f9049536680
18545 18546 posix_memalign(256,240)=0x7f9049583300
18545 18545 jemalloc_stats()
18545 18545 free(0x7f9049536680)
7 7 memalign(512,1024)=0x7f9049536680
18545 18545 aligned_alloc(256,1024)=0x7f9049536680
18545 18545 valloc(1024)=0x7f9049590000
";

/// The rules of logalloc's README: `realloc` keeps its slot, and freed slots are used again.
#[test]
fn a_log_is_munged() {
    let expected = "\
1 1 malloc(32)=#1
1 1 calloc(1,148)=#2
1 2 realloc(#1,64)=#1
1 2 posix_memalign(256,240)=#3
1 1 jemalloc_stats()
1 1 free(#1)
2 1 memalign(512,1024)=#1
1 1 aligned_alloc(256,1024)=#1
1 1 valloc(1024)=#4
";
    assert_eq!(munged(LOG), (expected.to_owned(), Vec::new()));
    // The process takes the place of the thread in logs without threads.
    assert_eq!(munged("9 malloc(1)=0x10\n9 8 free(0x10)\n").0, "1 1 malloc(1)=#1\n1 2 free(#1)\n");
    // Slots that are free longest are taken first.
    let queue = "1 malloc(1)=0x1\n1 malloc(1)=0x2\n1 free(0x2)\n1 free(0x1)\n1 malloc(1)=0x3\n1 malloc(1)=0x4\n";
    assert!(munged(queue).0.ends_with("1 1 malloc(1)=#2\n1 1 malloc(1)=#1\n"));
    // The slot of the null pointer is never free.
    let null = "1 free(0x0)\n1 malloc(1)=0x9\n1 free(0x0)\n1 realloc(0x0,8)=0xa\n";
    assert_eq!(munged(null).0, "1 1 free(#1)\n1 1 malloc(1)=#2\n1 1 free(#1)\n1 1 realloc(#1,8)=#3\n");
}

#[test]
fn lines_that_are_left_out_have_a_reason() {
    let bad = "\
nothing
1 1 malloc(1)
1 1 strdup(0x10)=0x20
1 1 free(0x30)
1 1 malloc(8)=0x0
1 1 free(0x10)=0x0
1 1 malloc(-1)=0x10
1 1 malloc(1,2)=0x10
1 1 malloc(1)0x10
1 1 malloc(18446744073709551616)=0x10
1 1 jemalloc_stats(1)
";
    let (text, ignored) = munged(bad);
    assert_eq!(text, "1 1 malloc(1)\n");
    let reasons: Vec<&str> = ignored.iter().map(|line| line.rsplit(": ").next().unwrap()).collect();
    let malformed = "Malformed input";
    let first = [malformed, "Unknown function", "Did not see an alloc for pointer", "Result is NULL"];
    assert_eq!(reasons[..4], first);
    assert!(reasons.len() == 10 && reasons[4..].iter().all(|reason| *reason == malformed), "{ignored:?}");
}

#[test]
fn requests_are_counted_by_size() {
    let log = "\
1 1 malloc(0)=0x1
1 1 malloc(4095)=0x2
1 1 calloc(4096,1)=0x3
1 1 realloc(0x3,1048575)=0x3
1 1 memalign(16,1048576)=0x4
1 1 calloc(18446744073709551615,2)=0x0
1 1 posix_memalign(4096,1024)=0x5
1 1 free(0x4)
";
    let mut requests = Requests::default();
    lines(log.as_bytes()).into_iter().flatten().for_each(|line| requests.add(&line));
    assert_eq!(SizeClass::ALL.map(|class| requests.count(class)), [1, 2, 2]);
    assert_eq!((requests.total(), requests.share(SizeClass::Huge)), (5, 0.4));
    assert_eq!(Requests::default().share(SizeClass::Small), 0.0);
}

#[test]
fn a_survey_follows_the_blocks() {
    let mut survey = Survey::default();
    lines(LOG.as_bytes()).into_iter().flatten().for_each(|line| survey.add(&line));
    assert_eq!((survey.calls(), survey.processes(), survey.threads(), survey.is_munged()), (9, 2, 3, false));
    assert_eq!((survey.blocks_live(), survey.bytes_live()), (5, 148 + 240 + 3 * 1024));
    assert_eq!((survey.blocks_live_max(), survey.bytes_live_max()), (4, 148 + 240 + 2 * 1024));
    let more = "\
1 1 malloc(10)=#1
1 1 malloc(20)=#1
1 1 realloc(#1,1000)=0x0
1 1 realloc(#1,0)=0x0
1 1 realloc(#9,10)=#9
1 1 free(#9)
2 2 free(0x10)
2 2 free(0x0)
";
    let mut survey = Survey::default();
    lines(more.as_bytes()).into_iter().flatten().for_each(|line| survey.add(&line));
    assert_eq!((survey.blocks_live(), survey.bytes_live(), survey.bytes_live_max()), (0, 0, 20));
    assert_eq!((survey.frees_unknown(), survey.allocations_of_live(), survey.is_munged()), (1, 1, true));
    let realloc = survey.functions().find(|(function, _)| *function == Function::Realloc).unwrap().1;
    assert_eq!(realloc, FunctionCalls { calls: 3, failed: 1, bytes_requested: 1010 });
}

/// Lines are the same wherever the reader's buffer ends, and long ones are cut.
#[test]
fn lines_are_cut_anywhere() {
    let log = format!("{LOG}{}\n\n1 1 free(0x0)", "9".repeat(3 * LINE_MAX));
    let whole = lines(log.as_bytes());
    assert!(whole.len() == 12 && whole[9..11].iter().all(Result::is_err) && whole[11].is_ok());
    for size in [1, 2, 7, 100, LINE_MAX + 1] {
        let (mut found, mut longest) = (Vec::new(), 0);
        let read = for_each_line(std::io::BufReader::with_capacity(size, log.as_bytes()), |line| {
            longest = longest.max(line.len());
            found.push(Line::parse(line));
            true
        });
        assert_eq!((found, longest, read.unwrap()), (whole.clone(), LINE_MAX, log.len() as u64));
    }
    let mut count = 0;
    for_each_line(log.as_bytes(), |_| {
        count += 1;
        count < 3
    })
    .unwrap();
    assert_eq!(count, 3);
}

/// A call in a log that is made up: process, thread, function, and a choice among blocks.
type Made = (u8, u8, u8, u16);

/// Makes a log of calls that can have happened.
fn log_of(calls: &[Made]) -> String {
    let (mut log, mut live, mut next) = (String::new(), BTreeMap::<u8, Vec<u64>>::new(), 0x1000);
    for &(process, thread, function, choice) in calls {
        let live = live.entry(process).or_default();
        let mut new = |live: &mut Vec<u64>| {
            // Some addresses are used again.
            next = if choice % 3 == 0 || live.contains(&(next - 16)) { next + 16 } else { next - 16 };
            while live.contains(&next) {
                next += 16;
            }
            live.push(next);
            next
        };
        let taken = |live: &mut Vec<u64>| live.swap_remove(usize::from(choice) % live.len());
        let call = match function % 4 {
            0 if !live.is_empty() => format!("free({:#x})", taken(live)),
            1 if !live.is_empty() => {
                let old = taken(live);
                format!("realloc({old:#x},{choice})={:#x}", new(live))
            }
            2 => format!("memalign(64,{choice})={:#x}", new(live)),
            _ => format!("calloc(2,{choice})={:#x}", new(live)),
        };
        log += &format!("{} {} {call}\n", 100 + u32::from(process), 7 + u32::from(thread));
    }
    log
}

proptest! {
    /// A log that is munged again stays the same, and has the same requests, frees and peak.
    #[test]
    fn a_munged_log_is_the_same_work(calls in prop::collection::vec((0..3_u8, 0..3_u8, any::<u8>(), any::<u16>()), 0..300)) {
        let log = log_of(&calls);
        let (text, ignored) = munged(&log);
        prop_assert!(ignored.is_empty(), "{ignored:?}");
        prop_assert_eq!(munged(&text), (text.clone(), Vec::new()));
        let survey = |log: &str| {
            let mut survey = Survey::default();
            lines(log.as_bytes()).into_iter().for_each(|line| survey.add(&line.unwrap()));
            let live = (survey.blocks_live(), survey.bytes_live(), survey.blocks_live_max(), survey.bytes_live_max());
            (live, survey.functions().collect::<Vec<_>>(), survey.frees_unknown(), survey.allocations_of_live())
        };
        let found = survey(&text);
        prop_assert_eq!(&found, &survey(&log));
        prop_assert_eq!((found.2, found.3), (0, 0));
        // No slot is live twice, and none is larger than needed.
        let slots: Vec<u64> = lines(text.as_bytes()).into_iter().filter_map(|line| match line.unwrap().result {
            Some(Pointer::Slot(slot)) => Some(slot),
            _ => None,
        }).collect();
        prop_assert!(slots.iter().all(|&slot| slot <= found.0.2), "{slots:?}");
    }

    /// A line is written as it was read.
    #[test]
    fn lines_are_written_as_they_were_read(calls in prop::collection::vec((0..3_u8, 0..3_u8, any::<u8>(), any::<u16>()), 0..50)) {
        let log = log_of(&calls);
        let written: String = lines(log.as_bytes()).into_iter().map(|line| format!("{}\n", line.unwrap())).collect();
        prop_assert_eq!(written, log);
    }

    #[test]
    fn any_bytes(log in prop::collection::vec(any::<u8>(), 0..2000)) {
        fuzzing::log(&log);
    }

    /// Logs with a few wrong bytes.
    #[test]
    fn damaged_logs(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut log = LOG.as_bytes().to_vec();
        for (at, byte) in damage {
            let at = at.index(log.len());
            log[at] = byte;
        }
        fuzzing::log(&log);
    }
}

/// Fields follow a call, in any order; Mozilla's lines have none.
#[test]
fn fields_follow_a_call() {
    let parse = |text: &'static str| Line::parse_with_fields(text.as_bytes());
    let (line, fields) = parse("1 2 malloc(5)=0x10 time=7 color=red arena=a%20b%25 usable=24").unwrap();
    assert_eq!(line.to_string(), "1 2 malloc(5)=0x10");
    assert_eq!((fields.time_ns, fields.usable), (Some(7), Some(24)));
    assert_eq!(fields.arena_label().as_deref(), Some(&b"a b%"[..]));
    assert_eq!(fields.to_string(), " usable=24 time=7 arena=a%20b%25");
    assert_eq!(Fields::escaped_label(b"a b%\xff="), b"a%20b%25%ff=");
    let odd = Fields { arena: Some(b"%zz%2"), ..Fields::default() };
    assert_eq!(odd.arena_label().as_deref(), Some(&b"%zz%2"[..]));
    for (text, time) in
        [("1 2 free(0x10) time=8", Some(8)), ("1 2 jemalloc_stats() time=9", Some(9)), ("1 free(0)", None)]
    {
        assert_eq!(parse(text).unwrap().1.time_ns, time);
    }
    for bad in ["1 2 malloc(5)=0x10 word", "1 2 malloc(5)=0x10 =1", "1 2 malloc(5)= time=1", "1 2 malloc(5)=0x10  x"] {
        assert_eq!(parse(bad), Err(LineError::Malformed), "{bad}");
        assert_eq!(Line::parse(bad.as_bytes()), Err(LineError::Malformed), "{bad}");
    }
    // A value that is none makes a line malformed only for those who ask for its fields.
    assert!(parse("1 2 malloc(5)=0x10 time=x").is_err() && Line::parse(b"1 2 malloc(5)=0x10 time=x").is_ok());
    let (text, ignored) = munged("1 2 malloc(5)=0x10 time=7\n1 2 free(0x10) time=8\n");
    assert_eq!((&*text, ignored.len()), ("1 1 malloc(5)=#1\n1 1 free(#1)\n", 0));
}

/// A line is the same whatever the lines before it were.
#[test]
fn lines_begin_as_those_before() {
    let mut parser = LineParser::default();
    let lines = [
        "1 2 malloc(5)=0x10",
        "1 2 free(0x10)",
        "1 malloc(5)=0x10",
        "1 2 malloc(5)=0x10",
        "1 free(0x10)",
        "1 23 free(0x10)",
        "1 2",
        "12 2 free(0x10)",
        "1 2 3(0x10)",
        "1 2 malloc(18446744073709551615)=0xffffffffffffffff\r",
        "1 2 malloc(18446744073709551616)=0x1",
        "1 2 malloc(5)=0x11112222333344445",
        "1 2 realloc(#3,5)=#4",
        "1 2 realloc(3,5)=4 time=1",
        "1 2 malloc(5)=",
        "1 2 malloc()=0x1",
        "1 2 free(0x)",
    ];
    for line in lines.iter().chain(lines.iter().rev()) {
        assert_eq!(parser.parse(line.as_bytes()), Line::parse(line.as_bytes()), "{line}");
    }
}

#[test]
fn a_survey_counts_fields() {
    let log = "1 1 malloc(10)=0x10 usable=24 time=500\n1 1 malloc(8)=0x0 usable=0 time=700 arena=x\n\
        1 1 malloc(30)=0x20 usable=40 arena=x time=100\n1 1 free(0x20) time=600\n1 1 malloc(7)=0x30 arena=x\n";
    let mut survey = Survey::default();
    for line in log.lines() {
        let (line, fields) = Line::parse_with_fields(line.as_bytes()).unwrap();
        survey.add(&line);
        survey.add_fields(&line, &fields);
    }
    assert_eq!(survey.times_ns(), Some((100, 700)));
    assert_eq!(survey.usable(), Usable { blocks: 2, bytes_requested: 40, bytes_usable: 64 });
    let arenas: Vec<_> = survey.arenas().collect();
    assert_eq!(arenas, [(&b"x"[..], ArenaCalls { blocks: 2, bytes_requested: 37 })]);
}

proptest! {
    /// The table of blocks does what any map does, with keys that are near each other and others.
    #[test]
    fn blocks_are_found(steps in prop::collection::vec((0..3_u8, 0..80_u64, 0..4_u8, any::<u16>()), 0..600)) {
        let (mut table, mut model) = (blocks::BlockMap::default(), BTreeMap::new());
        for (step, number, form, value) in steps {
            let key = match form {
                0 => number * 16,
                1 => !number,
                2 => number,
                _ => number << 40,
            };
            match step {
                0 => prop_assert_eq!(table.insert(key, value), model.insert(key, value)),
                1 => prop_assert_eq!(table.remove(key), model.remove(&key)),
                _ => prop_assert_eq!(table.get(key), model.get(&key).copied()),
            }
            prop_assert_eq!(table.len(), model.len());
        }
        for (&key, &value) in &model {
            prop_assert_eq!(table.get(key), Some(value));
        }
    }
}
