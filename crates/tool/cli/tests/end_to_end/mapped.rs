//! Mappings in place of blocks: what programs map, by whom and of which kind.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::*;

const MIB: i64 = 1 << 20;

/// Returns the bytes of each row, in an answer whose rows have this name.
fn rows(answer: &Value, name: &str) -> BTreeMap<String, i64> {
    let rows = answer["rows"].as_array().unwrap().iter();
    rows.map(|row| (row[name].as_str().unwrap_or_default().to_owned(), number(row, "bytes"))).collect()
}

/// Returns the recording of the program that maps memory in many ways, and the bytes that were
/// mapped at its end.
fn recorded(scratch: &Scratch) -> (Recording, i64) {
    let job = Job::fixture("maps", "").argument(scratch.path().join("file")).option("--mappings");
    let (outcome, recording) = job.recorded(scratch);
    let mapped = outcome.text().trim().parse().unwrap();
    (recording, mapped)
}

#[test]
fn mappings_by_owner_and_kind() {
    let scratch = Scratch::new();
    let (recording, mapped) = recorded(&scratch);
    let answer = recording.ask("top", &["--metric", "mapped", "--at", "end", "--by", "kind", "-n", "0"]);
    assert_eq!(answer["mappings"], true, "{answer:#}");
    let kinds = rows(&answer, "heap");
    let sum: i64 = kinds.values().sum();
    // Mappings that no call tells are found in time, unless the machine has much other work. Some
    // pages are mapped while the program reads the list, and after it.
    let is_found = kinds.contains_key("program and libraries");
    assert!(!is_found || (sum - mapped).abs() <= MIB / 4, "{sum} {mapped} {answer:#}");
    assert_eq!(kinds["file"], MIB, "{answer:#}");
    assert_eq!(kinds["shared"], 5 * MIB, "{answer:#}");
    assert_eq!(kinds["code"], MIB, "{answer:#}");
    assert_eq!(kinds["reserved"], 62 * MIB, "{answer:#}");
    assert_eq!(kinds["anonymous"], (3 + 2 + 6 + 4) * MIB, "{answer:#}");
    assert!(kinds["allocator"] > 10 * MIB, "{answer:#}");

    let kept = &recording.summary["mapped"];
    assert!(number(kept, "bytes_max") >= sum + 256 * MIB - 20 * MIB, "{kept:#}");
    let end: i64 = kept["end"].as_array().unwrap().iter().map(|kind| number(kind, "bytes")).sum();
    assert_eq!(end, sum, "{kept:#}");
    let own = ["--mappings", "--at", "end", "--by", "owner", "-n", "0"];
    let functions = rows(&recording.ask("top", &own), "function");
    let of = |name: &str| functions.get(name).copied().unwrap_or(0) / MIB;
    let expected = [("keep", 3), ("share", 5), ("file", 1), ("reserve", 64), ("code", 1), ("cut", 6), ("grow", 4)];
    expected.iter().for_each(|&(name, mib)| assert_eq!(of(name), mib, "{name}: {functions:?}"));
    assert_eq!((of("allocate"), of("give_back")), (10, 0), "{functions:?}");
    let peak = rows(&recording.ask("top", &["--mappings", "--by", "owner", "-n", "0"]), "function");
    assert_eq!(peak["give_back"], 256 * MIB, "{peak:?}");
    let file = recording.ask("top", &["--mappings", "--at", "end", "--by", "type", "--kind", "file"]);
    // The name is found later, too.
    let name = file["rows"][0]["type"].as_str().unwrap();
    assert!(name.ends_with("/file") || name == "file", "{file:#}");
}

#[test]
fn leaks_of_mappings_leave_out_those_of_others() {
    let scratch = Scratch::new();
    let (recording, _) = recorded(&scratch);
    let answer = recording.ask("leaks", &["--mappings", "--by", "owner", "-n", "0"]);
    let owners = rows(&answer, "function");
    assert_eq!(owners["keep"], 3 * MIB, "{answer:#}");
    assert!(!owners.contains_key("allocate") && !owners.contains_key("give_back"), "{answer:#}");
    let apart = rows(&serde_json::json!({ "rows": answer["apart"] }), "kind");
    assert!(apart["allocator"] > 10 * MIB, "{answer:#}");
    let file = recording.path.as_os_str();
    let text = heapledger(["leaks".as_ref(), file, "--metric".as_ref(), "mapped".as_ref()]).text();
    assert!(text.contains(" mappings live at the end\n"), "{text}");
    assert!(text.contains("\nnot made by the program's own code, and left out (--kind shows them):\n"), "{text}");
    assert!(text.contains("\n  allocator: "), "{text}");
    let allocators = recording.ask("leaks", &["--mappings", "--by", "owner", "--kind", "allocator"]);
    assert!(rows(&allocators, "function")["allocate"] > 10 * MIB, "{allocators:#}");
}

#[test]
fn mappings_over_time_and_in_other_formats() {
    let scratch = Scratch::new();
    let (recording, _) = recorded(&scratch);
    let answer = recording.ask("timeline", &["--mappings", "--by", "kind"]);
    let text = answer.to_string();
    assert!(text.contains("\"anonymous\"") && text.contains("\"allocator\""), "{answer:#}");
    let file = recording.path.as_os_str();
    let flame = heapledger(["flame".as_ref(), file, "--collapsed".as_ref(), "--metric".as_ref(), "mapped".as_ref()]);
    let line = flame.text().lines().find(|line| line.contains("give_back")).map(str::to_owned).unwrap();
    assert!(line.ends_with(&format!(" {}", 256 * MIB)), "{line}");
    let pprof = scratch.path().join("mapped.folded");
    let export = ["export", "--mappings", "--to", "collapsed", "--at", "end", "-o"].map(std::ffi::OsStr::new);
    let outcome = heapledger(export.into_iter().chain([pprof.as_os_str(), file]));
    assert!(outcome.status.success(), "{outcome:?}");
    let exported = std::fs::read_to_string(&pprof).unwrap();
    assert!(
        exported.lines().any(|line| line.contains("keep") && line.ends_with(&format!(" {}", 3 * MIB))),
        "{exported}"
    );
    let options = ["--mappings", "--at", "end", "--at", "peak", "--by", "owner"];
    let diff = recording.ask("diff", &options);
    let of_moment = diff["rows"].as_array().unwrap().iter().find(|row| row["function"] == "give_back").unwrap();
    assert_eq!(number(&of_moment["after"], "bytes"), 256 * MIB, "{diff:#}");
}

#[test]
fn a_recording_without_mappings_says_how_to_get_them() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("fresh", "true").recorded(&scratch);
    let outcome = heapledger(["top".as_ref(), recording.path.as_os_str(), "--mappings".as_ref()]);
    assert_eq!(outcome.status, exited(2), "{outcome:?}");
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(said.contains("the recording has no mappings") && said.contains("HL0132"), "{said}");
    assert!(said.contains("hint: `heapledger record --mappings -- COMMAND` records them"), "{said}");
}

/// Questions that have no meaning for mappings are refused, not answered about something else.
#[test]
fn questions_about_blocks_alone() {
    let scratch = Scratch::new();
    let (recording, _) = recorded(&scratch);
    let refused = |line: &str, reason: &str| {
        let mut words = line.split(' ').map(std::ffi::OsStr::new);
        let verb = words.next().unwrap();
        let outcome = heapledger([verb, recording.path.as_os_str()].into_iter().chain(words));
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.status, exited(2), "{line}: {outcome:?}");
        assert!(said.contains(reason) && said.contains("hint: "), "{line}: {said}");
    };
    for verb in ["info", "types", "reallocations", "advise"] {
        refused(&format!("{verb} --mappings"), " about blocks, not about mappings");
    }
    refused("types --metric mapped", " about blocks, not about mappings");
    // The rules of the program's allocator say nothing about mappings.
    refused("top --mappings --metric slop", "HL0059");
    refused("timeline --mappings --slop", "HL0059");
    for selection in ["--mappings", "--function keep"] {
        refused(&format!("timeline --resident {selection}"), "those of whole processes");
    }
}

/// Checks that a program which printed the bytes of its mappings and was killed at once had as
/// many, give or take two percent: other threads go on while it reads the list.
#[track_caller]
fn expect_all_mapped(job: Job, least_anonymous: i64) {
    let scratch = Scratch::new();
    let (outcome, recording) = job.option("--mappings").directory(scratch.path()).recorded(&scratch);
    let mapped: i64 = outcome.text().trim().parse().unwrap_or_else(|_| panic!("{outcome:?}"));
    // The last process is the program itself, whatever a script that starts it has run before.
    let answer = recording.ask("top", &["--mappings", "--at", "end", "--by", "process", "-n", "0"]);
    let all = answer["rows"].as_array().unwrap().iter();
    let nearest = all.map(|row| number(row, "bytes")).min_by_key(|bytes| (bytes - mapped).abs()).unwrap();
    println!("{mapped} by /proc/self/maps, {nearest} in the recording");
    assert!((nearest - mapped).abs() <= mapped / 50, "{nearest} {mapped} {answer:#}");
    let kinds = rows(&recording.ask("top", &["--mappings", "--by", "kind", "-n", "0"]), "heap");
    assert!(kinds["anonymous"] + kinds.get("reserved").unwrap_or(&0) >= least_anonymous, "{kinds:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn python_has_mapped_what_the_kernel_lists() {
    let Some(python) = installed("python3") else { return };
    let script = "
import mmap, os, signal
kept = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
texts = [str(number) * 5 for number in range(200_000)]
ranges = [line.split()[0].split('-') for line in open('/proc/self/maps') if '[vsyscall]' not in line]
print(sum(int(end, 16) - int(start, 16) for start, end in ranges), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
";
    expect_all_mapped(Job::new([python.as_os_str(), "-c".as_ref(), script.as_ref()]), 40 << 20);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn node_has_mapped_what_the_kernel_lists() {
    let Some(node) = installed("node") else { return };
    let script = "
const kept = []; for (let i = 0; i < 200000; i++) kept.push({ i });
const lines = require('fs').readFileSync('/proc/self/maps', 'utf8').split('\\n');
const ranges = lines.filter(line => line && !line.includes('[vsyscall]')).map(line => line.split(' ')[0].split('-'));
console.log(ranges.reduce((sum, [start, end]) => sum + parseInt(end, 16) - parseInt(start, 16), 0));
process.kill(process.pid, 'SIGKILL');
";
    expect_all_mapped(Job::new([node.as_os_str(), "-e".as_ref(), script.as_ref()]), 40 << 20);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn java_has_mapped_what_the_kernel_lists() {
    let (Some(java), Some(_)) = (installed("java"), installed("javac")) else { return };
    let scratch = Scratch::new();
    let source = scratch.file("Mapped.java");
    let program = r#"
import java.nio.file.*;
public class Mapped {
    public static void main(String[] arguments) throws Exception {
        byte[][] kept = new byte[50][];
        for (int i = 0; i < kept.length; i++) kept[i] = new byte[1 << 20];
        long sum = 0;
        for (String line : Files.readAllLines(Path.of("/proc/self/maps"))) {
            if (line.contains("[vsyscall]")) continue;
            String[] range = line.split(" ")[0].split("-");
            sum += Long.parseLong(range[1], 16) - Long.parseLong(range[0], 16);
        }
        System.out.println(sum);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
"#;
    std::fs::write(&source, program).unwrap();
    let job = Job::new([java.as_os_str(), "-Xmx256m".as_ref(), source.as_os_str()]);
    expect_all_mapped(job.timeout(std::time::Duration::from_secs(300)), 200 << 20);
}
