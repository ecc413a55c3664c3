//! Programs that a careless recorder would change, make hang, or lose events of.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::json;

use crate::harness::{
    Build, Job, MemoryGroup, Recording, Scratch, build, exited, installed, number, program, skipped, wait_until,
};

#[test]
fn results_of_the_malloc_functions() {
    let scratch = Scratch::new();
    Job::fixture("answers", "").both(&scratch).1.assert_whole();
}

/// However a program ends, its last block is in the recording, and its end is the same as without
/// the recorder.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_way_to_end() {
    let scratch = Scratch::new();
    let (_, idle) = Job::fixture("dies", "0 return").recorded(&scratch);
    let by_code = [("return", 7), ("exit", 3), ("_exit", 4), ("quick_exit", 5), ("exit_group", 6)];
    let by_signal = [("KILL", 9), ("TERM", 15), ("HUP", 1), ("INT", 2), ("PIPE", 13), ("USR1", 10)];
    let by_fault = [("abort", 6), ("SEGV", 11), ("ILL", 4)];
    let codes = by_code.map(|(how, code)| (how, exited(code), json!({ "code": code })));
    let signals = by_signal.into_iter().chain(by_fault).map(|(how, signal)| (how, signal, json!({ "signal": signal })));
    let signals = signals.map(|(how, signal, end)| (how, ExitStatus::from_raw(signal), end));
    for (how, status, end) in codes.into_iter().chain(signals) {
        let (outcome, recording) = Job::fixture("dies", &format!("50000 {how}")).both(&scratch);
        let told = |status: ExitStatus| (status.code(), status.signal());
        assert_eq!(told(outcome.status), told(status), "{how}: {outcome:?}");
        assert_eq!(recording.process_named("dies")["exit"], end, "{how}: {recording:?}");
        let counts =
            [("allocations", 50_000), ("frees", 10_000), ("bytes_allocated", 5_000_000), ("blocks_live_end", 40_000)];
        for (name, count) in counts {
            assert_eq!(recording.total(name) - idle.total(name), count, "{how}: {name}: {recording:?}");
        }
        recording.assert_whole().assert_adds_up();
    }
}

#[test]
fn a_program_that_is_killed_while_its_threads_allocate() {
    let scratch = Scratch::new();
    let tally = scratch.file("tally");
    let cells = || -> Vec<i64> {
        let bytes = fs::read(&tally).unwrap_or_default();
        bytes.chunks_exact(8).map(|cell| i64::from_ne_bytes(cell.try_into().unwrap())).collect()
    };
    let file = scratch.file("recording.hl");
    let running = Job::fixture("tally", tally.to_str().unwrap()).start(Some(&file));
    wait_until("200,000 blocks are allocated", || cells().iter().take(8).sum::<i64>() > 400_000);
    kill_process(Pid::from_raw(cells()[100] as i32).unwrap(), Signal::KILL).unwrap();
    let outcome = running.outcome();
    assert_eq!(outcome.status.signal(), Some(9), "{outcome:?}");
    let recording = Recording::open(file);
    recording.assert_whole();
    let (begun, done) = (0..4).fold((0, 0), |sum, i| (sum.0 + cells()[2 * i], sum.1 + cells()[2 * i + 1]));
    // libc allocates a vector of thread-local storage for each of the four threads.
    let recorded = recording.total("allocations") - 4;
    assert!((done..=begun).contains(&recorded), "{done} done, {recorded} recorded, {begun} begun: {recording:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn ten_thousand_short_threads() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("short_threads", "10000").both(&scratch);
    let told = &outcome.printed_objects()[0];
    recording.assert_whole();
    for name in ["allocations", "bytes_allocated"] {
        // libc allocates a little for each new stack, and the number of new ones depends on timing.
        let (told, recorded) = (number(told, name), recording.total(name));
        assert!(recorded >= told && recorded < told * 6, "{name}: {told} at least, {recorded} recorded: {recording:?}");
    }
    assert_eq!(recording.total("threads"), 10_001, "{recording:?}");
}

#[test]
fn blocks_before_main_and_after_it() {
    if installed("c++").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("lifetime", "").both(&scratch);
    // 20 of its own (16 moments, 4 values of keys), and those of its libraries.
    assert!(recording.assert_whole().total("allocations") >= 20, "{recording:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn leaving_the_recorder_by_siglongjmp() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("escapes", "50000").both(&scratch);
    let told = &outcome.printed_objects()[0];
    assert_eq!(recording.summary["complete"], true, "{recording:?}");
    // At most the one event under way at each of the 300 jumps may be missing.
    for (name, most) in [("blocks_live_end", 300), ("bytes_live_end", 300 * 777)] {
        let (told, recorded) = (number(told, name), recording.total(name));
        assert!((recorded - told).abs() <= most, "{name}: {told} told, {recorded} recorded: {recording:?}");
    }
    for name in ["events_lost", "frees_unknown"] {
        assert!(recording.total(name) <= 300, "{name}: {recording:?}");
    }
}

#[test]
fn a_program_that_closes_all_descriptors() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("closes", "").both(&scratch);
    recording.assert_whole();
    assert_eq!(recording.processes().len(), 2, "{recording:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn standard_descriptors_that_are_closed() {
    let scratch = Scratch::new();
    program("closes");
    // The descriptors of the program alone are closed, and those of the recorder, too, whose
    // messages are then lost.
    for (index, closed) in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"].into_iter().enumerate() {
        let (_, recording) = Job::shell(&format!("exec \"$PROGRAMS/closes\" {closed}")).both(&scratch);
        recording.assert_whole();
        let file = scratch.file(&format!("{index}.hl"));
        let words = Job::fixture("closes", "").recording_words(&file);
        let outcome = Job::shell(&format!("exec {words} {closed}")).bare();
        assert_eq!(outcome.status.code(), Some(0), "{closed}: {outcome:?}");
        Recording::open(file).assert_whole();
    }
}

#[test]
fn the_smallest_stacks() {
    let scratch = Scratch::new();
    let (_, idle) = Job::fixture("tiny_stacks", "0").recorded(&scratch);
    let (outcome, recording) = Job::fixture("tiny_stacks", "100").both(&scratch);
    // libc keeps one block for the one stack that all these threads used in turn.
    let kept = recording.assert_whole().total("blocks_live_end") - idle.total("blocks_live_end");
    assert_eq!(kept, number(&outcome.printed_objects()[0], "blocks_live_end") + 1, "{recording:?}");
}

#[test]
fn a_main_thread_that_ends_first() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("main_exits", "").both(&scratch);
    assert_eq!(outcome.status, exited(9), "{outcome:?}");
    assert!(recording.assert_whole().total("allocations") >= 1001, "{recording:?}");
}

/// The calls of an allocator that the program exports are recorded, and nothing goes wrong.
#[test]
fn a_program_with_an_allocator_of_its_own() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("own_malloc", "").both(&scratch);
    assert!(recording.assert_whole().total("allocations") >= 2, "{recording:?}");
}

/// If the collector cannot be reached any more, less may be recorded, but the recording says so.
#[test]
fn a_program_that_locks_itself_in() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("sandbox", "").both(&scratch);
    let all = 1 + 3 * 3000 + 3000;
    let is_all_there = recording.total("allocations") >= all;
    let says_so = recording.summary["complete"] == false || recording.total("events_lost") > 0;
    assert!(is_all_there || says_so, "{all} allocations, and silence about those that are missing: {recording:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn tight_limits() {
    let scratch = Scratch::new();
    let tight = ["none 0", "NOFILE 3", "AS 60000000", "FSIZE 0", "STACK 65536", "MEMLOCK 0"];
    for limit in tight {
        let (_, recording) = Job::fixture("limits", limit).both(&scratch);
        // Also without descriptors: a helper process has its own.
        let whole = |recording: &Recording| {
            assert!(recording.total("allocations") >= 5 * 5000, "{limit}: {recording:?}");
            recording.assert_whole();
        };
        whole(&recording);
        // The shell sets the limit, so it applies from the program's first instruction on.
        let (letter, value) = match limit.split_once(' ').unwrap() {
            ("NOFILE", _) => ("n", 4),
            ("AS", _) => ("v", 60_000),
            ("FSIZE", _) => ("f", 0),
            ("STACK", _) => ("s", 64),
            ("MEMLOCK", _) => ("l", 0),
            _ => continue,
        };
        let line = format!("ulimit -{letter} {value}; exec \"$PROGRAMS/limits\" none 0");
        let shell = if letter == "l" { "/bin/bash" } else { "/bin/sh" };
        let programs = program("limits").parent().unwrap().to_owned();
        let (_, recording) = Job::new([shell, "-c", &line]).variable("PROGRAMS", programs).both(&scratch);
        whole(&recording);
    }
}

/// The collector is killed: the program continues undisturbed, and the part of the file that was
/// written is readable.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_collector_that_is_killed() {
    let scratch = Scratch::new();
    program("persists");
    let (mark, end) = (scratch.file("mark"), scratch.file("end"));
    let line = format!(
        "\"$PROGRAMS/persists\" {0} 600000 {0}.end; echo $? > {1}.new; mv {1}.new {1}",
        mark.display(),
        end.display()
    );
    let file = scratch.file("recording.hl");
    let running = Job::shell(&line).start(Some(&file));
    wait_until("the program runs", || fs::read(&mark).is_ok_and(|bytes| bytes == b"ready\n"));
    wait_until("some of it is recorded", || fs::metadata(&file).is_ok_and(|data| data.len() > 4096));
    kill_process(running.pid(), Signal::KILL).unwrap();
    // The program continues for a while without its recorder.
    std::thread::sleep(Duration::from_millis(400));
    fs::write(mark.with_extension("end"), "").unwrap();
    wait_until("the program has ended", || end.exists());
    assert_eq!(fs::read_to_string(&end).unwrap(), "42\n", "{:?}", fs::read_to_string(&mark));
    assert_eq!(fs::read_to_string(&mark).unwrap(), "ready\nfine\n");
    let recording = Recording::open(file);
    assert_eq!(recording.summary["complete"], false, "{recording:?}");

    // Killed together with the program, as by an out-of-memory killer.
    let (file, tally) = (scratch.file("together.hl"), scratch.file("tally"));
    let running = Job::fixture("tally", tally.to_str().unwrap()).start(Some(&file));
    wait_until("some of it is recorded", || fs::metadata(&file).is_ok_and(|data| data.len() > 4096));
    kill_process_group(running.pid(), Signal::KILL).unwrap();
    running.outcome();
    assert_eq!(Recording::open(file).summary["complete"], false);
}

/// The collector is stopped for a while: the program may wait, and nothing is lost.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_collector_that_is_stopped_and_continued() {
    let scratch = Scratch::new();
    let file = scratch.file("recording.hl");
    let running = Job::fixture("mix_threads", "150000").start(Some(&file));
    std::thread::sleep(Duration::from_millis(150));
    kill_process(running.pid(), Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    kill_process(running.pid(), Signal::CONT).unwrap();
    let outcome = running.outcome();
    assert!(outcome.status.success(), "{outcome:?}");
    let recording = Recording::open(file);
    recording.assert_whole();
    let told = &outcome.printed_objects()[0];
    // libc keeps the stacks of a few of the eight threads, with one block each.
    let kept = recording.total("blocks_live_end") - number(told, "blocks_live_end");
    assert!((0..=8).contains(&kept), "{kept} too many live at the end: {outcome:?} {recording:?}");
    assert!(
        (0..=8).contains(&(recording.total("allocations") - number(told, "allocations"))),
        "{outcome:?} {recording:?}"
    );
}

/// The collector is killed: a waiting call notices in a bounded time, with and without a free
/// descriptor.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn how_long_a_killed_collector_is_waited_for() {
    /// The collector is checked ten times a second; the rest is for a busy machine.
    const LONGEST_MS: i64 = 2000;
    let scratch = Scratch::new();
    program("pauses");
    for limit in ["", "ulimit -n 4; "] {
        let mark = scratch.file(&format!("mark{}", limit.len()));
        let file = scratch.file(&format!("recording{}.hl", limit.len()));
        let line = format!("{limit}exec \"$PROGRAMS/pauses\" {} 1000", mark.display());
        let running = Job::shell(&line).start(Some(&file));
        let told = || fs::read_to_string(&mark).unwrap_or_default();
        wait_until("the program runs", || told() == "ready\n");
        // The file is written once a second.
        let written = || Recording::open(file.clone()).total("allocations");
        wait_until("there are calls in the file", || written() > 10_000);
        kill_process(running.pid(), Signal::KILL).unwrap();
        fs::write(scratch.file(&format!("mark{}.end", limit.len())), "").unwrap();
        wait_until("the program has ended", || told().lines().count() == 2);
        let longest: i64 = told().lines().nth(1).unwrap().parse().unwrap();
        assert!(longest < LONGEST_MS, "{limit:?}: a call took {longest} ms");
        let recording = Recording::open(file);
        assert_eq!(recording.summary["complete"], false, "{recording:?}");
    }
}

/// The program's memory group is full. Memory shared with the collector is charged to the
/// collector, which is in another group.
#[test]
fn a_full_memory_group() {
    /// The program's own memory that the recorder takes: for each thread, and besides.
    const PRIVATE: u64 = 16 * (100 << 10) + (512 << 10);
    /// Groups are charged in portions, for each processor.
    const PORTIONS: u64 = 512 << 10;
    let scratch = Scratch::new();
    let Some(group) = MemoryGroup::new() else { return };
    program("hog");
    let told = scratch.file("told");
    let job = Job::shell(&format!("{}\"$PROGRAMS/hog\" 24 16 {}", group.enter(), told.display()));
    let bare = job.bare();
    group.limit(group.peak() + PRIVATE + PORTIONS);
    let (recorded, recording) = job.recorded(&scratch);
    assert_eq!((bare, &*recorded.text()), (recorded.clone(), "fine\n"), "{recording:?}");
    assert!(recording.assert_whole().total("allocations") >= 24 + 16 * 20_000, "{recording:?}");
    let rings = recording.summary["costs"]["ring_bytes"].as_u64().unwrap();
    assert!(rings > PRIVATE + PORTIONS, "the bound proves nothing: {recording:?}");
}

/// The kernel kills the program because of its memory: all its events are in the recording.
#[test]
fn a_program_that_is_killed_for_its_memory() {
    let scratch = Scratch::new();
    let Some(group) = MemoryGroup::new() else { return };
    group.limit(40 << 20);
    let told = scratch.file("told");
    let hog = format!("{} 200 1 {}", program("hog").display(), told.display());
    let (outcome, recording) = Job::shell(&format!("{}{hog}", group.enter())).both(&scratch);
    assert_eq!(outcome.status.signal(), Some(9), "{outcome:?}");
    let megabytes = || i64::from_ne_bytes(fs::read(&told).unwrap()[8..16].try_into().unwrap());
    let killed = recording.assert_whole().process_named("hog");
    assert_eq!(
        (number(killed, "blocks_live_end"), &killed["exit"]),
        (megabytes(), &json!({"signal": 9})),
        "{recording:?}"
    );
    assert!((30..=40).contains(&megabytes()), "{recording:?}");

    // The recorder is in the same group: the kernel chooses which one it kills.
    let file = scratch.file("together.hl");
    let words = Job::new(hog.split(' ')).recording_words(&file);
    let outcome = Job::shell(&format!("{}{words}", group.enter())).bare();
    assert_eq!(outcome.status.signal(), Some(9), "{outcome:?}");
    let recording = Recording::open(file);
    if recording.summary["complete"] == true {
        assert_eq!(number(recording.process_named("hog"), "blocks_live_end"), megabytes(), "{recording:?}");
    }
}

/// The cost of an allocation does not grow with the depth of the stack, beyond the frames that are
/// kept.
#[test]
fn the_price_of_depth() {
    let scratch = Scratch::new();
    let (outcome, _) = Job::fixture("depths", "50000").recorded(&scratch);
    let told = &outcome.printed_objects()[0];
    for [shallow, deep] in [["down_shallow", "down_deep"], ["bottom_shallow", "bottom_deep"]] {
        let [shallow, deep] = [number(told, shallow), number(told, deep)];
        assert!(deep < 3 * shallow, "ten times as deep, {} times as long: {told}", deep / shallow.max(1));
    }
}

/// Two million lines, most of them written before the reader starts.
#[test]
fn very_much_output() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::shell("seq 2000000; seq 5 >&2").both(&scratch);
    assert_eq!((outcome.stdout.len(), outcome.stderr.len()), (14_888_896, 10));
    recording.assert_whole();
}

#[test]
fn a_program_that_changes_its_directory() {
    let scratch = Scratch::new();
    let job = Job::shell("mkdir deeper; cd deeper; pwd; cd /; rmdir \"$OLDPWD\"; ls -d .").directory(scratch.path());
    let bare = job.bare();
    // Into the default file, which has a relative name.
    assert_eq!(job.start(None).outcome(), bare);
    let [file] = &scratch.recordings()[..] else { panic!("{:?}", scratch.recordings()) };
    Recording::open(file.clone()).assert_whole().process_named("rmdir /");
}

#[test]
fn a_program_that_leaves_its_root() {
    let scratch = Scratch::new();
    let root = scratch.file("root");
    fs::create_dir(&root).unwrap();
    fs::copy(build("limits", Build::Static), root.join("static")).unwrap();
    let (outcome, recording) = Job::fixture("moves", &format!("{} /static", root.display())).both(&scratch);
    if outcome.text() == "not allowed\n" {
        return skipped("chroot is not allowed here, nor are user namespaces");
    }
    assert!(outcome.text().contains("child: 7\n") && outcome.text().contains("fork: fine"), "{outcome:?}");
    assert!(recording.assert_whole().total("allocations") >= 7000, "{recording:?}");
}

/// The library must be in a place from which the loader can map it.
#[test]
fn a_temporary_directory_that_is_noexec() {
    let scratch = Scratch::new();
    let mounted = scratch.file("mounted");
    fs::create_dir(&mounted).unwrap();
    let file = scratch.file("recording.hl");
    let words = Job::fixture("closes", "").recording_words(&file);
    let line = |then: &str| format!("mount -t tmpfs -o noexec none {0} && TMPDIR={0} {then}", mounted.display());
    let own_mounts = |line: &str| Job::new(["unshare", "-rm", "/bin/sh", "-c", line]).bare();
    if !own_mounts(&line("true")).status.success() {
        return skipped("unshare -rm cannot mount here");
    }
    let outcome = own_mounts(&line(&words));
    assert!(outcome.status.success(), "{outcome:?}");
    Recording::open(file).assert_whole();
}

#[test]
fn an_environment_with_nothing_in_it() {
    let scratch = Scratch::new();
    let file = scratch.file("recording.hl");
    let words = Job::fixture("closes", "").recording_words(&file);
    let outcome = Job::shell(&format!("exec env -i {words}")).bare();
    assert!(outcome.status.success(), "{outcome:?}");
    Recording::open(file).assert_whole();
}

/// Programs of other kinds run as usual, wherever they are started, and `record` says that they are
/// not recorded.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_cannot_be_recorded() {
    let scratch = Scratch::new();
    program("execs");
    let mut programs = vec![(crate::foreseen::without_allocator(&scratch), "statically linked")];
    // Linux for 32 bits: mov ebx, 42; mov eax, 1; int 0x80.
    let mut elf = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0\x01\0\0\0".to_vec();
    elf.extend([0x0804_8054_u32, 52, 0, 0].into_iter().flat_map(u32::to_le_bytes));
    elf.extend([52_u16, 32, 1, 0, 0, 0].into_iter().flat_map(u16::to_le_bytes));
    elf.extend([1_u32, 0, 0x0804_8000, 0x0804_8000, 96, 96, 5, 4096].into_iter().flat_map(u32::to_le_bytes));
    elf.extend(b"\xbb\x2a\0\0\0\xb8\x01\0\0\0\xcd\x80");
    scratch.script("for-32-bits", elf);
    let narrow = scratch.file("for-32-bits");
    if Job::new([&narrow]).bare().status.code() == Some(42) {
        programs.push((narrow, "not a 64-bit program"));
    } else {
        skipped("this kernel does not run 32-bit programs");
    }
    for (program, why) in &programs {
        let arguments = [program.to_str().unwrap(), "none", "0"];
        let file = scratch.file("direct.hl");
        let outcome = Job::new(arguments).with_report().option("--force").start(Some(&file)).outcome();
        let told = String::from_utf8_lossy(&outcome.stderr);
        assert!(told.contains(why) && told.contains("hint: "), "{why}: {told}");
        // A program for another processor is not even started.
        if *why != "not a 64-bit program" {
            let (_, recording) = Job::new(arguments).both(&scratch);
            assert_eq!(recording.total("allocations"), 0, "{why}: {recording:?}");
            assert!(told.contains("nothing was recorded"), "{why}: {told}");
        }
        // As a child, followed by one that is recorded; and started in every possible way.
        let line = format!("'{}' none 0; echo $?; \"$PROGRAMS/execs\" told", program.display());
        let (_, recording) = Job::shell(&line).both(&scratch);
        assert_eq!(
            recording.assert_whole().running("told").len(),
            2,
            "the shell, and the program after: {recording:?}"
        );
        for how in ["fork+execv", "vfork+execv", "posix_spawn", "posix_spawnp", "system", "popen"] {
            Job::fixture("spawns", &format!("{how} {} none 0", program.display())).both(&scratch);
        }
        if let Some(python) = installed("python3") {
            let script = "import os, sys; os.execve(os.open(sys.argv[1], os.O_RDONLY), sys.argv[1:], {})";
            let words = ["-c", script].into_iter().chain(arguments);
            Job::new([python.to_str().unwrap()].into_iter().chain(words)).both(&scratch);
        }
    }
}
