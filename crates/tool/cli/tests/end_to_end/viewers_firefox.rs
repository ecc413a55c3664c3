//! Recordings in the Firefox Profiler, without a browser: the bytes that it retains are those that
//! were live.

use std::path::PathBuf;

use serde_json::Value;

use crate::export::exported;
use crate::harness::{Job, Recording, Scratch, number};
use crate::viewers::Profiler;

const RETAINED: &str = "native-retained-allocations";
const ALLOCATED: &str = "native-allocations";
const FREED: &str = "native-deallocations-memory";

fn written(scratch: &Scratch, recording: &Recording, options: &[&str]) -> (PathBuf, Value) {
    let (file, _) = exported(scratch, recording, "firefox", options);
    let profile = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    (file, profile)
}

#[test]
#[ignore = "needs the npm package @firefox-devtools/profiler-cli; in .ci/viewers"]
fn what_is_retained_is_what_was_live() {
    let Some(profiler) = Profiler::new() else { return };
    let scratch = Scratch::new();
    for (job, options) in [
        (Job::fixture("mix_threads", "3000"), &[][..]),
        (Job::fixture("mix_threads", "3000"), &["--blocks-max", "1000"]),
        (Job::fixture("forks", ""), &[]),
    ] {
        let (_, recording) = job.recorded(&scratch);
        let (file, profile) = written(&scratch, &recording, options);
        profiler.load(&file);
        let counters = profiler.ask_json(&["counter", "list"]);
        for (at, process) in recording.processes().iter().enumerate() {
            let pid = number(process, "pid").to_string();
            let threads = profile["threads"].as_array().unwrap();
            let thread = threads.iter().position(|thread| thread["pid"] == *pid).unwrap();
            let bytes = |view| profiler.calls(&format!("t-{thread}"), view).0;
            let (allocated, live) = (number(process, "bytes_allocated"), number(process, "bytes_live_end"));
            assert_eq!([bytes(RETAINED), bytes(ALLOCATED)], [live, allocated], "{options:?} {process:#}");
            // If nothing was freed, it has no view of freed bytes.
            if allocated > live {
                assert_eq!(bytes(FREED).abs(), allocated - live, "{options:?} {process:#}");
            }
            // From nothing to the peak.
            let stats = &counters["counters"][at]["stats"][0];
            assert_eq!(stats["source"], "count-range", "{counters:#}");
            let peaks = recording.processes().iter().map(|process| number(process, "bytes_live_max"));
            assert!(peaks.clone().any(|peak| peak == number(stats, "value")), "{counters:#}");
        }
    }
}

/// From the beginning to a moment it retains the bytes that were live then.
#[test]
#[ignore = "needs the npm package @firefox-devtools/profiler-cli; in .ci/viewers"]
fn any_moment_can_be_zoomed_to() {
    let Some(profiler) = Profiler::new() else { return };
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix_threads", "30000").recorded(&scratch);
    let (file, profile) = written(&scratch, &recording, &[]);
    let times = profile["threads"][0]["nativeAllocations"]["time"].as_array().unwrap();
    profiler.load(&file);
    let begins = profiler.ask_json(&["profile", "info"])["context"]["rootRange"]["start"].as_f64().unwrap();
    for part in [3, 5, 8] {
        // Between two distinguishable times of the recording.
        let until = times[times.len() * part / 10].as_f64().unwrap() + 0.25;
        profiler.ask(&["zoom", "push", &format!("0,{:.9}", (until - begins) / 1e3)]);
        let expected = recording.ask("top", &["--at", &format!("{until}ms")]);
        assert_eq!(profiler.calls("t-0", RETAINED).0, number(&expected["total"], "bytes"), "{until}: {expected:#}");
        profiler.ask(&["zoom", "clear"]);
    }
}
