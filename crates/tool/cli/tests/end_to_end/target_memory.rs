//! The recorder's memory in the program: reported with the kernel's figures, little for each stack,
//! and limited by `record --target-memory`.

use std::path::Path;

use serde_json::Value;

use crate::harness::{Job, Recording, Scratch, exited, heapledger, installed, number, program};

/// Returns the recorder's private memory in the program, according to the recording, in KiB.
fn reported(recording: &Recording) -> i64 {
    number(&recording.ask("summary", &[])["costs"], "target_private_bytes") / 1024
}

/// Returns the kernel's figures that a program prints last, in KiB.
fn sums_of(told: &[Value]) -> (i64, i64) {
    let last = told.last().unwrap();
    (number(last, "anonymous"), number(last, "shared"))
}

/// Returns the additional resident memory with the recorder, and the reported one: both in KiB.
#[track_caller]
fn compared(job: &Job, scratch: &Scratch) -> (i64, i64, Recording) {
    let (bare, _) = sums_of(&job.bare().printed_objects());
    let (outcome, recording) = job.recorded(scratch);
    let (anonymous, shared) = sums_of(&outcome.printed_objects());
    let rings = number(&recording.ask("summary", &[])["costs"], "ring_bytes") / 1024;
    assert!(shared <= rings, "{shared} KiB of rings are in the program, of {rings}");
    (anonymous - bare, reported(&recording), recording)
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn it_is_what_the_kernel_says() {
    let scratch = Scratch::new();
    for (levels, threads, stacks) in [(6, 1, 64), (10, 1, 1 << 10), (16, 1, 1 << 16), (12, 8, 8 << 12)] {
        let job = Job::fixture("many_stacks", &format!("{levels} {threads}"));
        let (resident, reported, recording) = compared(&job, &scratch);
        assert!(recording.total("allocations") >= stacks, "{recording:?}");
        let tolerance = 48 + 16 * threads + resident / 20;
        assert!((resident - reported).abs() <= tolerance, "{levels}, {threads}: {resident} KiB, told {reported}");
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn it_is_little_for_each_stack() {
    let scratch = Scratch::new();
    for levels in [15, 16, 17] {
        let job = Job::fixture("many_stacks", &levels.to_string());
        let (resident, _, _) = compared(&job, &scratch);
        // A path of two nodes for each stack; the rest is the same for every program.
        let nodes = 2 << levels;
        assert!((resident - 384) * 1024 <= 48 * nodes, "{resident} KiB for {nodes} nodes");
    }
}

#[test]
fn of_interpreters() {
    let scratch = Scratch::new();
    let in_kib = "import json, re; text = open('/proc/self/status').read(); \
                  print(json.dumps({key: int(re.search(name + r':\\s+(\\d+)', text)[1]) \
                  for key, name in (('anonymous', 'RssAnon'), ('shared', 'RssShmem'))}))";
    let work = "import json; rows = [{'id': i, 'tags': [str(j) for j in range(i % 7)]} for i in range(4000)]; \
                back = json.loads(json.dumps(rows)); ";
    let perl = "my %h; $h{$_ % 977} .= \"v$_,\" for 0..40000; open(my $f, '<', '/proc/self/status'); my %v; \
                while (<$f>) { $v{$1} = $2 if /^(\\w+):\\s+(\\d+)/ } \
                print qq({\"anonymous\": $v{RssAnon}, \"shared\": $v{RssShmem}}\\n);";
    let python = installed("python3").map(|python| {
        Job::new([python.as_os_str(), "-c".as_ref(), format!("{work}{in_kib}").as_ref()])
            .variable("PYTHONMALLOC", "malloc")
            .variable("PYTHONHASHSEED", "0")
    });
    let perl = installed("perl")
        .map(|it| Job::new([it.as_os_str(), "-e".as_ref(), perl.as_ref()]).variable("PERL_HASH_SEED", "0"));
    for job in [python, perl].into_iter().flatten() {
        let (resident, reported, _) = compared(&job, &scratch);
        assert!((resident - reported).abs() <= 256 + resident / 5, "{job:?}: {resident} KiB, told {reported}");
    }
}

/// A compiler, the kind of program with the most stacks: compared by its maximum resident memory.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_a_compiler() {
    let scratch = Scratch::new();
    let (Some(python), Some(_)) = (installed("python3"), installed("c++")) else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../benches/programs/objects.cpp");
    let script = "import json, resource, subprocess, sys; \
                  cc1plus = subprocess.run(['c++', '-print-prog-name=cc1plus'], capture_output=True, text=True).stdout.strip(); \
                  subprocess.run([cc1plus, '-quiet', '-O2', '-fpreprocessed', sys.argv[1], '-o', '/dev/null'], check=True); \
                  most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss; \
                  print(json.dumps({'anonymous': most, 'shared': 0}))";
    let preprocessed = scratch.file("objects.ii");
    let line = format!("c++ -E '{}' -o '{}'", source.display(), preprocessed.display());
    assert!(Job::shell(&line).bare().status.success());
    let job = Job::new([python.as_os_str(), "-c".as_ref(), script.as_ref(), preprocessed.as_os_str()]);
    let (resident, reported, recording) = compared(&job, &scratch);
    // The figure includes the ring, the library's own code, and the compiler's memory, which
    // depends a little on its addresses.
    assert!(reported >= 4096 && (resident - reported).abs() <= 3072 + reported / 10, "{resident} KiB, told {reported}");
    assert!(recording.total("stacks_folded") == 0, "{recording:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_limit_is_kept_and_what_is_folded_is_told() {
    let scratch = Scratch::new();
    let stacks = 1 << 15;
    let job = Job::fixture("many_stacks", "15");
    let whole = job.recorded(&scratch).1;
    assert_eq!(whole.total("stacks_folded"), 0, "{whole:?}");

    let job = job.option("--target-memory=1MiB").with_report();
    let (bare, _) = sums_of(&job.bare().printed_objects());
    let (outcome, recording) = job.recorded(&scratch);
    let (anonymous, _) = sums_of(&outcome.printed_objects());
    assert!(anonymous - bare <= 1024 + 64 && reported(&recording) <= 1024, "{} KiB, {recording:?}", anonymous - bare);
    // Only the stacks are fewer than without the limit.
    for name in ["allocations", "frees", "bytes_allocated", "blocks_live_end", "events_lost"] {
        assert_eq!(recording.total(name), whole.total(name), "{name}: {recording:?}");
    }
    let folded = recording.total("stacks_folded");
    assert!(folded > stacks / 2 && folded < stacks, "{recording:?}");

    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(said.contains("warning[HL0079]: ") && said.contains("stacks were folded into their callers"), "{said}");
    assert!(said.contains("shared by both") && said.contains("in the program alone"), "{said}");
    for verb in ["summary", "info"] {
        let text = heapledger([verb.as_ref(), recording.path.as_os_str()]).text();
        assert!(text.contains("folded") && text.contains("[HL0079]"), "{text}");
    }
    assert!(heapledger(["info".as_ref(), recording.path.as_os_str()]).text().contains("--target-memory 1048576"));
    assert!(heapledger(["explain", "HL0079"]).text().contains("--target-memory"));
}

/// If the address space of the program is limited to what it needs, the recorder leaves it enough.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_program_near_its_limit_lives() {
    let scratch = Scratch::new();
    let fixture = program("many_stacks");
    let line = format!("ulimit -v 16000; exec '{}' 17", fixture.display());
    for limit in [None, Some("--target-memory=1MiB")] {
        let job = limit.into_iter().fold(Job::shell(&line), Job::option);
        let (outcome, recording) = job.recorded(&scratch);
        assert!(outcome.status.success() && sums_of(&outcome.printed_objects()).0 < 16_000, "{outcome:?}");
        assert!(recording.total("allocations") >= 1 << 17 && recording.total("events_lost") == 0, "{recording:?}");
        assert!(recording.total("stacks_folded") > 0, "{recording:?}");
    }
}

#[test]
fn a_limit_that_is_no_use_is_refused() {
    let outcome = heapledger(["record", "--target-memory", "64KiB", "--", "true"]);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(outcome.status == exited(2) && said.contains("at least 256KiB"), "{outcome:?}");
}
