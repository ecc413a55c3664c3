use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::profile::{Amount, Point, Purge};
use crate::testing::{events, example, steps};

fn written(events: &[Event], blocks_max: usize, profile: &Profile) -> (Value, Option<String>) {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, blocks_max);
    events.iter().for_each(|event| writer.event(profile, event).unwrap());
    writer.finish(profile).unwrap();
    let merged = writer.merged();
    (serde_json::from_slice(&file).unwrap(), merged)
}

/// A time in nanoseconds, bytes, the innermost function if there is a stack, and an address.
type Entry = (u64, i64, Option<String>, u64);

/// Returns the rows of a process, after checking all columns.
fn entries(file: &Value, process: usize) -> Vec<Entry> {
    let table = &file["threads"][process]["nativeAllocations"];
    let column = |name: &str| {
        let column = table[name].as_array().unwrap();
        assert_eq!(Some(column.len() as u64), table["length"].as_u64());
        column.clone()
    };
    let (times, weights, stacks) = (column("time"), column("weight"), column("stack"));
    let (addresses, _) = (column("memoryAddress"), column("threadId"));
    let shared = &file["shared"];
    let text = |at: &Value| shared["stringArray"][at.as_u64().unwrap() as usize].as_str().unwrap().to_owned();
    let function = |stack: &Value| {
        let frame = &shared["stackTable"]["frame"][stack.as_u64()? as usize];
        let func = &shared["frameTable"]["func"][frame.as_u64().unwrap() as usize];
        Some(text(&shared["funcTable"]["name"][func.as_u64().unwrap() as usize]))
    };
    let row = |at: usize| {
        let time = (times[at].as_f64().unwrap() * 1e6).round() as u64;
        (time, weights[at].as_i64().unwrap(), function(&stacks[at]), addresses[at].as_u64().unwrap())
    };
    (0..times.len()).map(row).collect()
}

/// Returns the bytes retained from allocations before a time, as the profiler computes them, by
/// function.
fn retained(entries: &[Entry], before: u64) -> HashMap<Option<String>, i64> {
    let mut live = HashMap::new();
    for (_, bytes, function, address) in entries.iter().filter(|(time, ..)| *time < before) {
        if *bytes >= 0 {
            assert!(live.insert(*address, (function.clone(), *bytes)).is_none(), "{address} twice");
        } else {
            assert_eq!(live.remove(address).unwrap().1, -bytes);
        }
    }
    let mut by_function = HashMap::new();
    live.into_values().for_each(|(function, bytes)| *by_function.entry(function).or_default() += bytes);
    by_function
}

fn truth(events: &[Event], profile: &Profile, process: usize, before: u64) -> HashMap<Option<String>, i64> {
    let mut by_function: HashMap<_, i64> = HashMap::new();
    for event in events.iter().filter(|event| event.process == process && event.time_ns < before) {
        let (EventKind::Allocated { bytes, sample } | EventKind::Freed { bytes, sample }) = event.kind;
        let location = profile.samples.get(sample).and_then(|sample| sample.locations.first());
        let name = location.map(|&at| {
            let location = &profile.locations[at];
            location.frames.first().map_or(format!("{:#x}", location.address), |frame| frame.full_name.clone())
        });
        let sign = if matches!(event.kind, EventKind::Allocated { .. }) { 1 } else { -1 };
        *by_function.entry(name).or_default() += sign * bytes as i64;
    }
    by_function.retain(|_, bytes| *bytes != 0);
    by_function
}

proptest! {
    #[test]
    fn what_is_retained_is_what_was_live(steps in steps(200), blocks_max in 1..200_usize) {
        let (events, profile) = (events(&steps), example());
        let (file, merged) = written(&events, blocks_max, &profile);
        let blocks = events.iter().filter(|event| matches!(event.kind, EventKind::Allocated { .. })).count();
        prop_assert!(merged.is_none() || blocks > blocks_max);
        // The interval in milliseconds is a power of two; the shortest one if nothing was merged.
        let interval = merged.map_or(1_000_000, |said| {
            let words: Vec<&str> = said.split(' ').collect();
            let at = words.iter().position(|word| word.starts_with("ms")).unwrap();
            words[at - 1].parse::<u64>().unwrap() * 1_000_000
        });
        let last = events.last().map_or(0, |event| event.time_ns);
        for process in 0..2 {
            let entries = entries(&file, process);
            prop_assert!(entries.is_sorted_by_key(|(time, ..)| *time));
            for before in [1, last / interval / 2, last / interval, last / interval + 1].map(|number| number * interval) {
                let mut retained = retained(&entries, before);
                retained.retain(|_, bytes| *bytes != 0);
                prop_assert_eq!(retained, truth(&events, &profile, process, before), "{} of {}", before, last);
            }
            let allocated: i64 = entries.iter().map(|(_, bytes, ..)| *bytes.max(&0)).sum();
            let is_one = |event: &&Event| event.process == process && matches!(event.kind, EventKind::Allocated { .. });
            let expected: i64 = events.iter().filter(is_one).map(|event| match event.kind {
                EventKind::Allocated { bytes, .. } | EventKind::Freed { bytes, .. } => bytes as i64,
            }).sum();
            prop_assert_eq!(allocated, expected);
        }
    }
}

/// However many blocks there are, a few stacks need little room.
#[test]
fn many_blocks_take_little_room() {
    let profile = example();
    let events: Vec<Event> = (0..20_000_u64)
        .flat_map(|number| {
            let event = |time_ns, kind| Event { time_ns, process: 0, thread: 1, address: number, kind };
            let time = number * 1_000_000;
            [
                event(time, EventKind::Allocated { bytes: 10, sample: 0 }),
                event(time + 500_000, EventKind::Freed { bytes: 10, sample: 0 }),
            ]
        })
        .collect();
    let (file, merged) = written(&events, 100, &profile);
    let entries = entries(&file, 0);
    assert!(merged.is_some() && entries.len() <= 200, "{}: {merged:?}", entries.len());
    assert_eq!(entries.iter().map(|(_, bytes, ..)| bytes.max(&0)).sum::<i64>(), 200_000);
}

#[test]
fn counters_are_changes() {
    let mut profile = example();
    let point = |time_ns, bytes| Point { time_ns, live: Amount { blocks: 1, bytes } };
    profile.processes[1].timeline = vec![point(1_500_000, 10), point(2_000_000, 4), point(3_000_000, 40)];
    let (file, _) = written(&[], 1, &profile);
    let counter = &file["counters"][0];
    assert_eq!(file["counters"].as_array().unwrap().len(), 1);
    assert_eq!((&counter["mainThreadIndex"], &counter["pid"]), (&1.into(), &"77".into()));
    let samples = &counter["samples"];
    assert_eq!(samples["count"], serde_json::json!([10, -6, 36]));
    assert_eq!(samples["time"], serde_json::json!([1.5, 2.0, 3.0]));
}

#[test]
fn purges_are_markers_of_their_process() {
    let mut profile = example();
    let pid = profile.processes[1].pid;
    let purge = Purge { pid, start_ns: 1_500_000, end_ns: 1_750_000, arena: 9, ..Purge::default() };
    let named = Purge { label: "images".into(), reason: "idle".into(), pages: 7, calls: 2, chunks: 1, ..purge.clone() };
    profile.purges = vec![named, purge];
    let (file, _) = written(&[], 1, &profile);
    let markers = &file["threads"][1]["markers"];
    assert_eq!((&markers["length"], &markers["phase"]), (&2.into(), &serde_json::json!([1, 1])));
    assert_eq!((&markers["startTime"][0], &markers["endTime"][0]), (&1.5.into(), &1.75.into()));
    let name = markers["name"][0].as_u64().unwrap() as usize;
    assert_eq!(file["shared"]["stringArray"][name], "PurgeArena");
    let data = serde_json::json!({
        "type": "PurgeArena", "arena": "0x9", "label": "images", "caller": "idle", "pages": 7, "syscalls": 2, "chunks": 1,
    });
    assert_eq!(markers["data"][0], data);
    assert_eq!(file["threads"][0]["markers"]["length"], 0);
    assert_eq!(file["meta"]["markerSchema"][0]["name"], "PurgeArena");
    // Without purges nothing is described.
    assert_eq!(written(&[], 1, &example()).0["meta"]["markerSchema"], serde_json::json!([]));
}

#[test]
fn one_process_need_not_be_named() {
    let profile = Profile { processes: Vec::new(), ..example() };
    let kind = EventKind::Allocated { bytes: 5, sample: 0 };
    let (file, _) = written(&[Event { time_ns: 0, process: 0, thread: 1, address: 1, kind }], 1, &profile);
    let thread = &file["threads"][0];
    assert_eq!((&thread["name"], &thread["pid"]), (&"a".into(), &"77".into()));
    assert_eq!(thread["nativeAllocations"]["weight"], serde_json::json!([5]));
}

#[test]
fn inlined_functions_are_frames_of_one_place() {
    let (file, _) = written(&[], 1, &example());
    let frames = &file["shared"]["frameTable"];
    // `main`, and in it `outer`, into which `inner` was inlined.
    assert_eq!(frames["inlineDepth"].as_array().unwrap()[..3], [0, 0, 1]);
    assert_eq!(frames["address"].as_array().unwrap()[..3], [0x1200, 4, 4]);
    assert_eq!(frames["line"].as_array().unwrap()[..3], [12, 7, 3]);
    let lib = &file["libs"][0];
    assert_eq!((&lib["name"], &lib["codeId"]), (&"a".into(), &"ab".into()));
    assert_eq!(lib["breakpadId"], format!("000000AB{}0", "0".repeat(24)));
}
