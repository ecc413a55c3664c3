use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::EventWriter;
use crate::firefox::Writer;
use crate::testing::{events, example, steps};

/// Returns the live bytes after each event, by process and innermost function.
fn lives(profile: &Profile, events: &[Event], pids: &[u32]) -> Vec<(u32, String, i64)> {
    let name = |sample: usize| {
        let location = profile.samples.get(sample).and_then(|sample| sample.locations.first());
        let location = location.and_then(|&at| profile.locations.get(at));
        location.map_or(String::new(), |it| match it.frames.first() {
            Some(frame) => frame.full_name.clone(),
            None => format!("{:#x}", it.address),
        })
    };
    let live = |event: &Event| match event.kind {
        EventKind::Allocated { bytes, sample } => (pids[event.process], name(sample), bytes as i64),
        EventKind::Freed { bytes, sample } => (pids[event.process], name(sample), -(bytes as i64)),
    };
    events.iter().map(live).collect()
}

fn written(events: &[Event], profile: &Profile) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, 1 << 20);
    events.iter().for_each(|event| writer.event(profile, event).unwrap());
    writer.finish(profile).unwrap();
    file
}

proptest! {
    #[test]
    fn what_was_written_comes_back(steps in steps(100)) {
        // The format has no place for blocks without bytes.
        let is_something = |event: &Event| {
            !matches!(event.kind, EventKind::Allocated { bytes: 0, .. } | EventKind::Freed { bytes: 0, .. })
        };
        let (mut events, mut profile) = (events(&steps), example());
        events.retain(is_something);
        // If nothing is known about a place, its address is in the file itself.
        profile.modules[0].start = 0;
        let file = written(&events, &profile);
        prop_assert!(detects(&file));
        if events.is_empty() {
            prop_assert!(read(&file).is_err());
            return Ok(());
        }
        let (again, read) = read(&file).unwrap();
        let pids: Vec<u32> = again.processes.iter().map(|process| process.pid).collect();
        prop_assert_eq!(lives(&again, &read, &pids), lives(&profile, &events, &[70, 77]));
    }
}

fn processed() -> Value {
    let mut events = events(&[(false, 0, 3, 1, 5_000_000), (false, 2, 4, 2, 1_000_000), (true, 0, 0, 1, 1_000_000)]);
    events.iter_mut().for_each(|event| event.process = 0);
    let mut profile = example();
    profile.processes.truncate(1);
    serde_json::from_slice(&written(&events, &profile)).unwrap()
}

#[test]
fn functions_that_were_inlined_are_at_one_place() {
    let (profile, events) = read(processed().to_string().as_bytes()).unwrap();
    assert_eq!(events.len(), 3);
    let EventKind::Allocated { bytes: 72, sample } = events[0].kind else { panic!("{events:?}") };
    let places = &profile.samples[sample].locations;
    let names: Vec<Vec<&str>> = places
        .iter()
        .map(|&at| profile.locations[at].frames.iter().map(|frame| frame.function.as_str()).collect())
        .collect();
    assert_eq!(names, [vec!["inner(int)", "outer(int)"], vec!["main(int)"]]);
    let place = &profile.locations[places[0]];
    assert_eq!((profile.modules[place.module.unwrap()].build_id.as_str(), place.frames[0].line), ("ab", 3));
    assert_eq!(place.frames[0].file, "a.c");
}

#[test]
fn older_and_newer_versions() {
    let expected = read(processed().to_string().as_bytes()).unwrap();
    // Before version 60 each thread had its tables, and functions had the names of their files.
    let mut old = processed();
    let shared = old["shared"].take();
    old["meta"]["preprocessedProfileVersion"] = json!(55);
    for (name, table) in shared.as_object().unwrap() {
        old["threads"][0][name] = table.clone();
    }
    let sources = shared["funcTable"]["source"].as_array().unwrap();
    let file = |at: &Value| at.as_u64().map(|at| shared["sources"]["filename"][at as usize].clone());
    old["threads"][0]["funcTable"]["fileName"] = sources.iter().map(file).collect();
    old["threads"][0]["funcTable"]["source"] = json!([]);
    old.as_object_mut().unwrap().remove("shared");
    assert_eq!(read(old.to_string().as_bytes()).unwrap(), expected);
    // Since version 66 stacks are at a distance, since 70 libraries belong to frames.
    let mut new = processed();
    new["meta"]["preprocessedProfileVersion"] = json!(70);
    let stacks = &mut new["shared"]["stackTable"];
    let prefixes = stacks["prefix"].take();
    let offset = |(at, prefix): (usize, &Value)| json!(prefix.as_u64().map_or(0, |prefix| at as u64 - prefix));
    stacks["prefixOffset"] = prefixes.as_array().unwrap().iter().enumerate().map(offset).collect();
    stacks.as_object_mut().unwrap().remove("prefix");
    let funcs = new["shared"]["frameTable"]["func"].as_array().unwrap().clone();
    let lib = |func: &Value| new["shared"]["funcTable"]["resource"][func.as_u64().unwrap() as usize].clone();
    let libs: Value = funcs.iter().map(lib).collect();
    new["shared"]["frameTable"]["lib"] = libs;
    new["shared"]["resourceTable"].as_object_mut().unwrap().remove("lib");
    assert_eq!(read(new.to_string().as_bytes()).unwrap(), expected);
    new["meta"]["preprocessedProfileVersion"] = json!(71);
    assert!(read(new.to_string().as_bytes()).unwrap_err().reason.contains("newer than 70"));
}

#[test]
fn without_addresses_what_was_allocated() {
    let mut file = processed();
    let table = file["threads"][0]["nativeAllocations"].as_object_mut().unwrap();
    table.remove("memoryAddress");
    table.remove("threadId");
    let (profile, events) = read(file.to_string().as_bytes()).unwrap();
    let allocated: u64 = profile.samples.iter().map(|sample| sample.amounts.allocated.bytes).sum();
    assert_eq!((allocated, events.len(), profile.known.allocated, profile.known.live), (72 + 128, 0, true, false));
}

/// Returns a profile as Firefox writes it, with a process that was started two seconds later.
fn gecko() -> Value {
    let marker = |time: f64, size: i64, address: u64, stack: u64| {
        json!([0, time, null, 0, 1, {
            "type": "Native allocation", "size": size, "memoryAddress": address, "threadId": 9,
            "stack": { "name": "SyncProfile", "samples": { "schema": { "stack": 0, "time": 1 }, "data": [[stack, 1.5]] } }
        }])
    };
    let process = |pid: u32, start: f64, markers: Value, processes: Value| {
        json!({
            "meta": { "version": 31, "startTime": start, "stackwalk": 1, "product": "Firefox" },
            "libs": [{ "start": 0x10000, "end": 0x20000, "offset": 0, "path": "/lib/libxul.so", "codeId": "abcd" }],
            "threads": [{
                "name": "GeckoMain", "processName": "Parent Process", "pid": pid, "tid": pid,
                "markers": { "schema": { "name": 0, "startTime": 1, "endTime": 2, "phase": 3, "category": 4, "data": 5 }, "data": markers },
                "frameTable": { "schema": { "location": 0, "relevantForJS": 1 }, "data": [[1, false], [2, false, null], [3]] },
                "stackTable": { "schema": { "prefix": 0, "frame": 1 }, "data": [[null, 0], [0, 1], [1, 2]] },
                "stringTable": ["Native allocation", "(root)", "0x10101", "js (a.js:1)"]
            }],
            "processes": processes,
        })
    };
    let child = process(8, 3000.0, json!([marker(1.0, 5, 0x40, 2), ["other", 2.0]]), json!([]));
    process(
        7,
        1000.0,
        json!([marker(1.0, 100, 0x40, 1), marker(5000.0, -100, 0x40, 2), marker(5001.0, -7, 0x50, 2)]),
        json!([child]),
    )
}

#[test]
fn what_firefox_itself_writes() {
    let file = gecko().to_string();
    assert!(detects(file.as_bytes()));
    let (profile, events) = read(file.as_bytes()).unwrap();
    let found: Vec<_> =
        events.iter().map(|event| (event.time_ns, profile.processes[event.process].pid, event.kind)).collect();
    assert_eq!(
        found,
        [
            (1_000_000, 7, EventKind::Allocated { bytes: 100, sample: 0 }),
            (2_001_000_000, 8, EventKind::Allocated { bytes: 5, sample: 2 }),
            // The free counts for the stack that allocated the block; blocks allocated before the
            // profile began are left out.
            (5_000_000_000, 7, EventKind::Freed { bytes: 100, sample: 0 }),
        ]
    );
    let place = |sample: usize, depth: usize| &profile.locations[profile.samples[sample].locations[depth]];
    let (inner, outer) = (place(0, 0), place(0, 1));
    assert_eq!((inner.address, profile.modules[inner.module.unwrap()].bias), (0x10100, Some(0x10000)));
    assert_eq!(outer.frames[0].function, "(root)");
    assert_eq!(place(2, 0).frames[0].function, "js (a.js:1)");
    assert_eq!(profile.start_unix_ns, 1_000_000_000);
}

#[test]
fn damage_is_told() {
    let (whole, firefox) = (processed().to_string(), gecko().to_string());
    for (text, from, to, reason) in [
        (&whole, "\"weight\":[", "\"weight\":[1,", "not of one length"),
        (&whole, "\"nativeAllocations\"", "\"none\"", "no native allocations"),
        (&whole, "\"prefix\":[null,", "\"prefix\":[1,", "comes before"),
        (&whole, "\"stackTable\"", "\"none\"", "no tables of stacks"),
        (&whole, "\"stringArray\":[", "\"stringArray\":[],\"x\":[", "of a function that is not there"),
        (&firefox, "[[null,0],[0,1]", "[[0,0],[0,1]", "comes before"),
        (&firefox, "\"stringTable\":[", "\"stringTable\":[],\"x\":[", "has no frame"),
        (&firefox, "\"size\":100", "\"size\":\"x\"", "an allocation that is none"),
    ] {
        let told = read(text.replace(from, to).as_bytes()).unwrap_err();
        assert!(told.reason.contains(reason), "{from}: {told}");
    }
    let cut = read(&whole.as_bytes()[..100]).unwrap_err();
    assert_eq!(cut.offset, 99, "{cut}");
}
