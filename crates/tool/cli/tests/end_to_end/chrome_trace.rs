//! Recordings, and dumps of a program, in the format that Chrome's viewer reads.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapledger_dump::{DumpArgs, ProcessDump, Provider, ProviderError};
use serde_json::Value;

use crate::harness::{Job, Recording, Scratch, heapledger};
use crate::trace_viewer::{Viewer, dumps, heap_total};

fn exported(scratch: &Scratch, recording: &Recording, format: &str) -> PathBuf {
    let file = scratch.file(&format!("{format}.json"));
    // Several viewers read the same file.
    let words = ["export", "--force", "--to", format, "-o"].map(OsStr::new).into_iter().chain([file.as_os_str()]);
    let outcome = heapledger(words.into_iter().chain([recording.path.as_os_str()]));
    assert!(outcome.status.success(), "{outcome:?}");
    file
}

/// Returns the live blocks and bytes at the moments of the file's dumps, before and after the
/// microsecond of each moment in the trace. The moments are the peak, the end, and some between.
fn expected(recording: &Recording, trace: &Value) -> Vec<[[u64; 2]; 2]> {
    let began = recording.ask("info", &[])["start_unix_ns"].as_u64().unwrap();
    let dumps = dumps(trace);
    let of = |kind: &str| dumps.iter().filter(|dump| dump["name"] == kind).count();
    let (peaks, ends, between) = (of("peak_memory_usage"), of("explicitly_triggered"), of("periodic_interval"));
    assert_eq!([peaks, ends, peaks + ends + between], [1, 1, dumps.len()]);
    let live = |dump: &&Value| {
        let names = match dump["name"].as_str() {
            Some("peak_memory_usage") => ["blocks_at_bytes_live_max", "bytes_live_max"],
            Some("explicitly_triggered") => ["blocks_live_end", "bytes_live_end"],
            _ => {
                return [0, 1].map(|after| {
                    let time = format!("{}ns", (dump["ts"].as_u64().unwrap() + after) * 1000 - began);
                    let total = &recording.ask("top", &["--at", &time, "-n", "1"])["total"];
                    ["blocks", "bytes"].map(|name| total[name].as_u64().unwrap())
                });
            }
        };
        [names.map(|name| recording.total(name) as u64); 2]
    };
    dumps.iter().map(live).collect()
}

/// Adds up `heaps_v2` without a viewer.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn aggregated_heaps_add_up() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "300").recorded(&scratch);
    let file: Value = serde_json::from_slice(&fs::read(exported(&scratch, &recording, "chrome-v2")).unwrap()).unwrap();
    let expected = expected(&recording, &file);
    let mut ids = Vec::new();
    for (dump, expected) in dumps(&file).into_iter().map(|dump| &dump["args"]["dumps"]).zip(expected) {
        let maps = dump["heaps_v2"]["maps"]["nodes"].as_array();
        for node in maps.into_iter().flatten() {
            // Parents come before their children, and no number occurs twice.
            let parent = &node["parent"];
            assert!(node["id"] != 0 && (parent.is_null() || ids.contains(parent)) && !ids.contains(&node["id"]));
            ids.push(node["id"].clone());
        }
        let heap = &dump["heaps_v2"]["allocators"]["malloc"];
        let sum = |name: &str| heap[name].as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).sum::<u64>();
        assert!(expected.contains(&[sum("counts"), sum("sizes")]), "{expected:?}: {heap:#}");
        assert!(heap["nodes"].as_array().unwrap().iter().all(|node| ids.contains(node)));
    }
}

/// This process, asked from outside as a running program.
#[test]
fn a_running_program_is_asked() {
    struct Pages;
    impl Provider for Pages {
        fn dump(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), ProviderError> {
            dump.allocator("pages").set_size(4096).set_text("level", args.level.name());
            Ok(())
        }
    }
    let _registration = heapledger_dump::register("Pages", Pages);
    let _listener = heapledger_reporters::listen().unwrap();
    let scratch = Scratch::new();
    let file = scratch.file("trace.json");
    let pid = std::process::id().to_string();
    let options = ["--level", "light", "--every", "1ms", "--count", "2", "-o"];
    let words = ["dump", &pid].into_iter().chain(options).map(OsStr::new).chain([file.as_os_str()]);
    let outcome = heapledger(words);
    assert!(outcome.status.success(), "{outcome:?}");
    let trace: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let dumps: Vec<_> = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "v").collect();
    assert!(dumps.len() == 2 && dumps[0]["id"] != dumps[1]["id"], "{trace:#}");
    for dump in dumps {
        let pages = &dump["args"]["dumps"]["allocators"]["pages"]["attrs"];
        assert_eq!((&pages["size"]["value"], &pages["level"]["value"]), (&"1000".into(), &"light".into()));
        assert_eq!(dump["pid"], std::process::id());
    }
    let outcome = heapledger(["dump", "4294967295", "-o", "-"]);
    assert!(outcome.status.code() == Some(102) && outcome.stdout.is_empty(), "{outcome:?}");
}

#[test]
#[ignore = "installs npm's traceviewer, and needs Chromium and Go's sources: .ci/run"]
fn recordings_as_the_viewers_read_them() {
    let scratch = Scratch::new();
    let jobs = [Job::fixture("mix_threads", "3000"), Job::fixture("contexts", ""), Job::fixture("growth", "50")];
    let (recordings, mut between) = (jobs.map(|job| job.recorded(&scratch).1), 0);
    for viewer in Viewer::all(&scratch) {
        for recording in &recordings {
            for format in ["chrome", "chrome-v2"] {
                if format == "chrome-v2" && !viewer.knows_aggregated() {
                    continue;
                }
                let file = exported(&scratch, recording, format);
                let trace: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
                let viewed = viewer.viewed(&file);
                let found = viewed["dumps"].as_array().unwrap();
                let expected = expected(recording, &trace);
                assert_eq!(found.len(), expected.len());
                between += expected.len() - 2;
                for (dump, expected) in found.iter().zip(expected) {
                    let process = dump["processes"].as_object().unwrap().values().next().unwrap();
                    assert_eq!(process["level"], "detailed");
                    let heaps = process["heaps"].as_object().unwrap();
                    let totals = heaps.keys().map(|heap| heap_total(process, heap));
                    let sum = totals.fold([0, 0], |sum, [blocks, bytes]| [sum[0] + blocks, sum[1] + bytes]);
                    assert!(expected.contains(&sum), "{format}: {sum:?} {expected:?}: {recording:?}");
                    // Each heap is shown beside an allocator with its name and its size.
                    for heap in heaps.keys() {
                        assert_eq!(process["allocators"][heap]["size"], heap_total(process, heap)[1]);
                    }
                }
            }
        }
    }
    assert!(between > 0, "no moments but the peak and the end");
}

/// The example: a provider with a heap of its own, besides that of malloc.
#[test]
#[ignore = "installs npm's traceviewer, and needs Chromium and Go's sources: .ci/run"]
fn dumps_of_a_program_as_the_viewers_read_them() {
    let scratch = Scratch::new();
    let of = |heaps: &str| {
        let file = scratch.file(&format!("foo.{heaps}.json"));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let run = ["run", "--quiet", "-p", "heapledger", "--features", "dump", "--example", "dump_provider", "--"];
        let done = Command::new(env!("CARGO")).args(run).arg(&file).arg(heaps).current_dir(root).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let said: Value = serde_json::from_slice(&done.stdout).unwrap();
        (file, said)
    };
    let (entries, aggregated) = (of("entries"), of("aggregated"));
    for viewer in Viewer::all(&scratch) {
        assert_is_the_example(&viewer.viewed(&entries.0), &entries.1);
        if viewer.knows_aggregated() {
            assert_is_the_example(&viewer.viewed(&aggregated.0), &aggregated.1);
        }
    }
}

fn assert_is_the_example(viewed: &Value, said: &Value) {
    let dumps = viewed["dumps"].as_array().unwrap();
    let levels: Vec<_> = dumps.iter().map(|dump| dump["level"].as_str().unwrap()).collect();
    assert_eq!((levels.as_slice(), &said["dumps"]), (&["light", "detailed", "detailed"][..], &Value::from(3)));
    let detailed = dumps.iter().filter(|dump| dump["level"] == "detailed");
    for (dump, live) in detailed.zip(said["foo_allocator"].as_array().unwrap()) {
        let process = dump["processes"].as_object().unwrap().values().next().unwrap();
        assert_eq!(heap_total(process, "foo_allocator")[1], *live);
        // Every block and byte that the ledger held at that moment.
        let (allocators, [blocks, bytes]) = (&process["allocators"], heap_total(process, "malloc"));
        let objects = &allocators["malloc/allocated_objects"];
        assert_eq!(objects["shim_allocated_objects_size"], bytes);
        assert_eq!(objects["shim_allocated_objects_count"], blocks);
        assert!(bytes >= 1 << 20, "the memory of the other is a block of it");
        // The memory of the other allocator is subtracted here, and so is its account.
        let number = |name: &str, attribute: &str| allocators[name][attribute].as_u64().unwrap();
        let account = number("tracing", "size");
        assert!(account > 0 && number("foo_allocator", "size") == 1 << 20);
        let left = number("malloc/allocated_objects", "size") - (1 << 20) - account;
        assert_eq!(number("malloc/allocated_objects", "effective_size"), left);
        assert!(process["regions"]["sizeInBytes"].as_u64().unwrap() > 1 << 20);
        assert!(process["totals"]["residentBytes"].is_u64());
        let frames = process["heaps"]["foo_allocator"].as_array().unwrap();
        // If each line shows only its own memory, a leaf says so.
        let is_there = |entry: &Value| {
            let stack = entry["stack"].as_array().unwrap();
            let stack: Vec<_> = stack.iter().map(|frame| frame.as_str().unwrap()).collect();
            matches!(stack[..], ["render", "paint"] | ["render", "paint", "<self>"])
        };
        assert!(frames.iter().any(is_there), "{frames:#?}");
    }
}
