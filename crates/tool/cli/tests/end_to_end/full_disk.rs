//! A recording that cannot be written to its end.

use crate::harness::{HEAPLEDGER, Job, Outcome, Recording, Scratch, exited, installed, program, skipped};

/// Asserts that the report has the error first, then the readable part of the file, and that the
/// program did not notice.
fn assert_told(outcome: &Outcome, error: &str) {
    let report = String::from_utf8_lossy(&outcome.stderr);
    let first = report.lines().next().unwrap_or_default();
    assert!(first.contains("HL0066") && first.contains(&format!(": {error}: the recording ends at ")), "{outcome:?}");
    let missing = first.split("; ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    assert!(missing.replace(',', "").parse::<u64>().is_ok_and(|events| events > 0), "{outcome:?}");
    assert!(first.contains(" events are not in it"), "{outcome:?}");
    assert!(report.contains("what can be read of the file: "), "{outcome:?}");
    assert!(!report.contains("still live at exit"), "totals that the file does not have: {outcome:?}");
}

#[test]
fn a_device_that_is_full() {
    let mix = Job::fixture("mix", "20000");
    let (bare, outcome) = (mix.bare(), mix.option("--force").with_report().start(Some("/dev/full".as_ref())).outcome());
    assert_eq!((outcome.status, &outcome.stdout), (bare.status, &bare.stdout), "{outcome:?}");
    let report = String::from_utf8_lossy(&outcome.stderr);
    let first = report.lines().next().unwrap_or_default();
    assert!(first.contains("cannot write /dev/full: no space left on device: "), "{outcome:?}");
    assert!(report.contains("nothing of the file can be read"), "{outcome:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_full_disk() {
    let scratch = Scratch::new();
    if installed("unshare").is_none() {
        return;
    }
    let disk = scratch.file("disk");
    std::fs::create_dir(&disk).unwrap();
    let alone = |line: &str| Job::new(["unshare", "--mount", "/bin/sh", "-c", line]).directory(scratch.path()).bare();
    let mount = "mount -t tmpfs -o size=1M none disk";
    if !alone(mount).status.success() {
        return skipped("no file system can be mounted here");
    }
    let mix = program("mix");
    let line = format!(
        "{mount} && {HEAPLEDGER} record -o disk/recording.hl -- '{}' 3000000; code=$?; cp disk/recording.hl .; exit $code",
        mix.display()
    );
    let outcome = alone(&line);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    assert_told(&outcome, "no space left on device");
    assert_eq!(Recording::open(scratch.file("recording.hl")).summary["complete"], false);
}
