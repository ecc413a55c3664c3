//! The dark matter of a running program in C, with libheapledger, requested from outside and by the
//! program itself.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use heapledger_dmd::{DefectKind, Group, Log};
use serde_json::Value;

use crate::c::libheapledger;
use crate::harness::{Job, Scratch, exited, heapledger};
use crate::reporters_c::build;

fn read(path: &Path) -> Log {
    Log::read(fs::File::open(path).unwrap()).unwrap()
}

/// Returns the number of blocks with this number of reports, the first by this reporter.
fn reported(log: &Log, reporter: Option<&str>) -> u64 {
    let name = |group: &Group| Some(log.name(group.reports[0]?.reporter?));
    let wanted = log.groups.iter().filter(|group| name(group) == reporter);
    wanted.flat_map(|group| &group.sizes).map(|size| size.count).sum()
}

#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn a_program_gives_logs_of_its_heap() {
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let compiler = Path::new("cc");
    let program =
        build(compiler, &["-std=c99", "-D_GNU_SOURCE", "-g"], "fixtures/headers/dmd.c", &prefix, &scratch.file("dmd"));
    let [at_signal, at_exit] = ["at-signal", "at-exit"].map(|name| {
        fs::create_dir(scratch.file(name)).unwrap();
        scratch.file(name)
    });
    let saved = scratch.file("saved.dmd.json.gz");
    // The library path of cargo comes first; it may contain the library, too, from an earlier
    // build.
    let path = prefix.join("lib");
    let mut running = Command::new(&program);
    running.env("LD_LIBRARY_PATH", &path);
    running.arg(&saved).arg(&at_signal).arg(&at_exit).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = running.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("0x"), "{said}");
    let pid = running.id().to_string();

    // The program goes on, and reports its present blocks.
    let outcome = heapledger(["dmd", "--details", "--defects", &pid]);
    assert!(outcome.status.success(), "{outcome:?}");
    let text = outcome.text();
    let told = String::from_utf8_lossy(&outcome.stderr);
    let record = text.split("Unreported {").nth(1).unwrap();
    assert!(record.contains("1 block in heap block record 1 of") && record.contains("(777,777 requested /"), "{text}");
    assert!(record.contains(": forgotten (") && record.contains("fixtures/headers/dmd.c:"), "{text}");
    assert!(text.contains("explicit/cache") && told.contains("held up for"), "{text}{told}");

    let kept = scratch.file("kept.json.gz");
    let outcome = heapledger([
        "dmd",
        "--json",
        "-o",
        scratch.file("out.json").to_str().unwrap(),
        "--save",
        kept.to_str().unwrap(),
        &pid,
    ]);
    assert!(outcome.status.success(), "{outcome:?}");
    let json: Value = serde_json::from_slice(&fs::read(scratch.file("out.json")).unwrap()).unwrap();
    assert!(json.is_object());
    let outcome = heapledger(["dmd", "--mode", "live", &pid]);
    assert!(outcome.text().contains("Mode = 'live'"), "{outcome:?}");
    let outcome = heapledger(["dmd", "--mode", "cumulative", &pid]);
    assert_eq!(outcome.status, exited(102), "{outcome:?}");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("does not count blocks that have been freed"));

    drop(running.stdin.take());
    assert_eq!(running.wait().unwrap(), exited(0));
    let one_of = |directory: &Path| {
        let files: Vec<_> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
        let [file] = &files[..] else { panic!("{files:?}") };
        read(file)
    };
    for log in [read(&saved), read(&kept), one_of(&at_exit)] {
        assert_eq!(reported(&log, Some("explicit/cache")), 100);
        let defects = log.about.defects.iter().filter(|defect| defect.kind == DefectKind::Unmarked);
        assert_eq!(defects.count(), 1);
        assert_eq!((log.about.program.as_str(), log.about.pid.to_string()), ("dmd", pid.clone()));
        assert!(log.about.pause_ns > 0);
    }
    assert_eq!(one_of(&at_signal).mode, heapledger_dmd::Mode::Live);
    let outcome = heapledger(["dmd", &pid]);
    assert!(String::from_utf8_lossy(&outcome.stderr).contains(&format!("there is no process {pid}")), "{outcome:?}");

    // When it is recorded, it has no log of its own.
    let job = Job::new([&program]).argument("a").argument("b").argument("c").variable("LD_LIBRARY_PATH", &path);
    let (outcome, _) = job.recorded(&scratch);
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(0), "elsewhere\n"), "{outcome:?}");
}
