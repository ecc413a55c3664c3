//! Live memory over time: the plot, the picture, and the figures behind them.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Job, Recording, Scratch, exited, heapledger, installed, number};

fn samples(timeline: &Value) -> Vec<(f64, i64, i64)> {
    let sample =
        |sample: &Value| (sample["time_seconds"].as_f64().unwrap(), number(sample, "bytes"), number(sample, "blocks"));
    timeline["live"].as_array().unwrap().iter().map(sample).collect()
}

/// Asserts that the samples are in order, and that their largest is the peak of the summary.
#[track_caller]
fn agrees(timeline: &Value, summary: &Value) {
    let samples = samples(timeline);
    assert!(samples.is_sorted_by(|a, b| a.0 <= b.0), "{timeline:#}");
    let peak = samples.iter().map(|sample| sample.1).max().unwrap();
    assert_eq!(peak, number(summary, "bytes_live_max"), "{timeline:#}");
    assert_eq!(number(&timeline["peak"], "bytes"), peak);
    let time = |value: &Value| value.as_f64().unwrap();
    let (found, said) = (time(&timeline["peak"]["time_seconds"]), time(&summary["bytes_live_max_time_seconds"]));
    // Times of events are rounded.
    assert!((found - said).abs() < 0.001, "{found} {said}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_a_session_and_of_each_process() {
    let scratch = Scratch::new();
    let line = "perl -e '@a = map { $_ x 20 } 1..20000; select undef, undef, undef, 0.05; @a = (); exit 3'; \
                python3 -c 'x = [str(i) for i in range(50000)]' & wait; exit 0";
    let (_, recording) = Job::shell(line).recorded(&scratch);
    let timeline = recording.ask("timeline", &[]);
    agrees(&timeline, &recording.summary);
    let images: usize = recording.processes().iter().map(|process| process["images"].as_array().unwrap().len()).sum();
    assert_eq!(timeline["programs"].as_array().unwrap().len(), images);
    let perl = timeline["programs"].as_array().unwrap().iter().find(|it| it["exit"] == json!({ "code": 3 })).unwrap();
    assert!(perl["command"].as_str().unwrap().starts_with("perl"), "{perl:#}");
    assert_eq!(samples(&timeline).last().unwrap().1, 0, "nothing is live when all have ended");

    for process in recording.processes() {
        let own = recording.ask("timeline", &["--process", &process["pid"].to_string()]);
        agrees(&own, process);
    }
    // A part of the time: it starts with the blocks that were live then.
    let perl_start = perl["from_seconds"].as_f64().unwrap();
    let part = recording.ask("timeline", &["--from", &format!("{perl_start}s"), "--to", "1h"]);
    assert_eq!(part["from_seconds"], perl["from_seconds"]);
    assert_eq!(samples(&part)[0].0, perl_start);
    let nothing = heapledger(["timeline".as_ref(), recording.path.as_os_str(), "--from".as_ref(), "1h".as_ref()]);
    assert_eq!(nothing.status, exited(2), "{nothing:?}");
}

/// A recording without its end contains no timeline, which is then computed by a replay.
#[test]
fn of_a_recording_that_was_cut_off() {
    let scratch = Scratch::new();
    let (_, whole) = Job::fixture("mix_threads", "3000").recorded(&scratch);
    let bytes = fs::read(&whole.path).unwrap();
    let cut = Recording::open(scratch.write("cut.hl", &bytes[..bytes.len() - 40]));
    assert_eq!(cut.summary["complete"], false);
    agrees(&cut.ask("timeline", &[]), &cut.summary);
    agrees(&whole.ask("timeline", &[]), &whole.summary);
}

#[test]
fn as_text_and_as_a_picture() {
    let scratch = Scratch::new();
    let (_, recording) = Job::shell("$PROGRAMS/mix 2000 >/dev/null; true <\"&\"; true").recorded(&scratch);
    let file = recording.path.to_str().unwrap();
    let text = |locale: &str| {
        let command = crate::harness::HEAPLEDGER;
        Job::new([command, "timeline", file]).variable("LC_ALL", locale).bare().text()
    };
    assert!(text("en_US.UTF-8").contains("└") && text("en_US.UTF-8").contains('█'), "{}", text("en_US.UTF-8"));
    let plot = text("C");
    let plot = plot.split("\n\n").nth(1).unwrap();
    assert!(plot.is_ascii() && plot.contains('#') && plot.contains('^'), "{plot}");

    let picture = scratch.file("timeline.svg");
    let drawn = heapledger(["timeline", file, "--svg", "-o", picture.to_str().unwrap()]);
    assert!(drawn.status.success() && drawn.stdout.is_empty(), "{drawn:?}");
    let svg = fs::read_to_string(&picture).unwrap();
    assert_eq!(heapledger(["timeline", file, "--svg", "-o", "-"]).text().trim_end(), svg.trim_end());
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("href"), "{svg}");
    let Some(renderer) = installed("rsvg-convert") else { return };
    let rendered = Command::new(renderer).arg(&picture).output().unwrap();
    assert!(rendered.status.success() && rendered.stdout.len() > 5000, "{rendered:?}");
}

/// The largest groups add up to the live bytes, and at the peak they are those of `top`.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_the_largest_groups() {
    let scratch = Scratch::new();
    let script = "our @kept; for (1..10) { push @kept, map { 'x' x 500 } 1..500; select undef, undef, undef, 0.02 } \
                  select undef, undef, undef, 0.1; @kept = ();";
    let (_, recording) = Job::new(["perl", "-e", script]).recorded(&scratch);
    let top = recording.ask("top", &["--by", "module", "-n", "0"]);
    let timeline = recording.ask("timeline", &["--by", "module", "-n", "2"]);
    let groups: Vec<Vec<i64>> = (timeline["groups"].as_array().unwrap().iter())
        .map(|group| group["bytes"].as_array().unwrap().iter().map(|bytes| bytes.as_i64().unwrap()).collect())
        .collect();
    let times: Vec<f64> = timeline["times_seconds"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect();
    assert!(times.is_sorted() && groups.iter().all(|group| group.len() == times.len()), "{times:?}");
    let peak = times.iter().position(|&time| timeline["peak"]["time_seconds"] == time).unwrap();
    let near = |a: i64, b: i64| (a - b).abs() * 100 <= a.max(b);
    let sum = |at: usize| groups.iter().map(|group| group[at]).sum::<i64>();
    assert!(near(sum(peak), number(&timeline["peak"], "bytes")), "{} {:#}", sum(peak), timeline["peak"]);
    assert!(near(groups[0][peak], number(&top["rows"][0], "bytes")), "{groups:?} {top:#}");
    assert!((0..times.len()).all(|at| sum(at) <= number(&timeline["peak"], "bytes") * 101 / 100));
    // The memory grew in steps. The number of intervals in each depends on the machine.
    let mut steps = groups[0][..=peak].to_vec();
    steps.dedup();
    assert!(steps.len() >= 4 && steps[0] < groups[0][peak] / 2, "{groups:?}");

    let file = recording.path.to_str().unwrap();
    let svg = heapledger(["timeline", file, "--by", "function", "--svg", "-o", "-"]).text();
    assert!(svg.contains(">all others<"), "{svg}");
    assert!(heapledger(["timeline", file, "--by", "site", "-n", "1"]).text().contains("all others"));
}

/// Resident memory is shown beside live memory, with a note if it is much larger.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn resident_memory_in_the_summary() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("resident", "160").recorded(&scratch);
    let resident = &recording.summary["resident_max"];
    let timeline = recording.ask("timeline", &[]);
    let seen = timeline["memory"].as_array().unwrap().iter().map(|sample| number(sample, "resident")).max();
    assert_eq!(Some(number(resident, "bytes")), seen, "{resident:#} {timeline:#}");
    assert!(number(resident, "anonymous_bytes") >= 200 << 20, "{resident:#}");
    assert!(number(resident, "bytes") >= number(resident, "anonymous_bytes"), "{resident:#}");
    let text = heapledger(["summary", recording.path.to_str().unwrap()]).text();
    let line = text.lines().find(|line| line.contains("resident, at most")).unwrap_or_default();
    assert!(line.ends_with(" MiB more than was ever live"), "{text}");
}
