use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::testing::{events, example, steps};

fn written(events: &[Event], peak: u64) -> String {
    let (mut file, profile) = (Vec::new(), example());
    let mut writer = Writer::new(&mut file, peak);
    events.iter().for_each(|event| writer.event(&profile, event).unwrap());
    writer.finish(&profile).unwrap();
    drop(writer);
    String::from_utf8(file).unwrap()
}

/// The figures that a reader computes from a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    allocations: u64,
    temporaries: u64,
    peak: u64,
    live: u64,
    /// The bytes allocated in all and live, by the innermost function.
    by_function: HashMap<String, (u64, u64)>,
}

fn read(file: &str) -> Read {
    let (mut read, mut strings, mut places, mut stacks, mut pairs) =
        (Read::default(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut latest, mut time) = (0, 0);
    for line in file.lines() {
        let (mode, rest) = line.split_at(1);
        let rest = rest.trim_start();
        let numbers = || -> Vec<u64> { rest.split(' ').map(|word| u64::from_str_radix(word, 16).unwrap()).collect() };
        match mode {
            "v" => assert_eq!(rest, "10400 3"),
            "X" => assert_eq!(rest, "/bin/a --b \"c\""),
            "s" => {
                let (length, text) = rest.split_once(' ').unwrap();
                assert_eq!(u64::from_str_radix(length, 16), Ok(text.len() as u64));
                strings.push(text.to_owned());
            }
            "i" => places.push(numbers()),
            "t" => {
                let (place, outside) = (numbers()[0] as usize, numbers()[1] as usize);
                assert!((1..=places.len()).contains(&place) && outside <= stacks.len());
                stacks.push(place);
            }
            "a" => pairs.push((numbers()[0], numbers()[1] as usize)),
            "c" => {
                assert!(numbers()[0] >= time);
                time = numbers()[0];
            }
            "+" | "-" => {
                let number = numbers()[0];
                let (bytes, stack) = pairs[number as usize];
                let function = places[stacks[stack - 1] - 1].get(2).map_or("?", |&name| &strings[name as usize - 1]);
                let (allocated, live) = read.by_function.entry(function.to_owned()).or_default();
                if mode == "+" {
                    read.allocations += 1;
                    read.live += bytes;
                    (*allocated, *live) = (*allocated + bytes, *live + bytes);
                    latest = number;
                } else {
                    read.temporaries += u64::from(latest == number);
                    read.live -= bytes;
                    *live -= bytes;
                    latest = 0;
                }
                read.peak = read.peak.max(read.live);
            }
            _ => panic!("{line}"),
        }
    }
    read
}

/// Returns the true figures, and the number of blocks that are temporary only if other threads are
/// ignored, and so may be missed.
fn truth(events: &[Event]) -> (Read, u64) {
    let (mut truth, profile) = (Read::default(), example());
    let (mut latest, mut among_others) = (HashMap::new(), 0);
    let mut before = None;
    for event in events {
        let name = |sample: usize| {
            let location = profile.samples.get(sample).and_then(|sample| sample.locations.first());
            let Some(&location) = location else { return "[no stack]".to_owned() };
            profile.locations[location]
                .frames
                .first()
                .map_or("?".to_owned(), |frame| on_one_line(&frame.full_name).into())
        };
        let (thread, block) = ((event.process, event.thread), (event.process, event.address));
        match event.kind {
            EventKind::Allocated { bytes, sample } => {
                latest.insert(thread, block);
                truth.allocations += 1;
                truth.live += bytes;
                let of = truth.by_function.entry(name(sample)).or_default();
                *of = (of.0 + bytes, of.1 + bytes);
            }
            EventKind::Freed { bytes, sample } => {
                let is_temporary = latest.remove(&thread) == Some(block);
                truth.temporaries += u64::from(is_temporary);
                among_others += u64::from(is_temporary && before != Some(block));
                truth.live -= bytes;
                truth.by_function.get_mut(&name(sample)).unwrap().1 -= bytes;
            }
        }
        truth.peak = truth.peak.max(truth.live);
        before = Some(block);
    }
    (truth, among_others)
}

proptest! {
    #[test]
    fn readers_count_what_happened(steps in steps(200), options in any::<[bool; 3]>()) {
        let [knows_peak, is_quick, has_threads] = options;
        let mut events = events(&steps);
        for event in &mut events {
            (event.process, event.thread) = if has_threads { (event.process, event.thread) } else { (0, 1) };
            event.time_ns = if is_quick { 5 } else { event.time_ns };
        }
        let (mut truth, among_others) = truth(&events);
        let mut read = read(&written(&events, if knows_peak { truth.peak } else { 0 }));
        let missed = truth.temporaries.checked_sub(read.temporaries);
        prop_assert!(missed.is_some_and(|missed| missed <= among_others), "{:?} of {:?}", read, truth);
        // Blocks are missed only when the peak is reached: there, each thread may have an
        // allocation that is written early because of another thread's.
        if knows_peak && is_quick && truth.peak > 0 {
            let at_peak = events_at(&events, truth.peak);
            prop_assert!(missed.unwrap() <= 5 * at_peak, "{missed:?}: {read:?} of {truth:?}");
        }
        (read.temporaries, truth.temporaries) = (0, 0);
        prop_assert_eq!(read, truth);
    }
}

/// Returns how often the live bytes are at the peak.
fn events_at(events: &[Event], peak: u64) -> u64 {
    let mut live = 0;
    let is_at = events.iter().filter(|event| {
        match event.kind {
            EventKind::Allocated { bytes, .. } => live += bytes,
            EventKind::Freed { bytes, .. } => live -= bytes,
        }
        live == peak
    });
    is_at.count() as u64
}

#[test]
fn nothing_is_a_file() {
    assert_eq!(written(&[], 0), "v 10400 3\nX /bin/a --b \"c\"\nc 0\nc 32\n");
}

#[test]
fn functions_at_a_place_are_there_from_the_inside() {
    let kind = EventKind::Allocated { bytes: 255, sample: 0 };
    let file = written(&[Event { time_ns: 0, process: 0, thread: 1, address: 1, kind }], 0);
    // The outer place first; at the inner one, the function that was inlined.
    assert!(file.contains("i 2200 1 2 3 c\nt 1 0\n"), "{file}");
    assert!(file.contains("s a inner(int)\ns 3 a.c\ns a outer(int)\ni 1004 1 4 5 3 6 5 7\nt 2 1\n"), "{file}");
    // A pair that is never used, and the first that is.
    assert!(file.contains("a 0 2\na ff 2\n+ 1\n"), "{file}");
}

#[test]
fn a_block_is_not_temporary_if_its_thread_did_something_else() {
    for is_interrupted in [false, true] {
        let (mut file, profile) = (Vec::new(), example());
        let mut writer = Writer::new(&mut file, 0);
        let event = |kind| Event { time_ns: 0, process: 0, thread: 1, address: 1, kind };
        writer.event(&profile, &event(EventKind::Allocated { bytes: 10, sample: 0 })).unwrap();
        // An interruption of another thread does not matter.
        writer.interrupted(&profile, 0, 2).unwrap();
        if is_interrupted {
            writer.interrupted(&profile, 0, 1).unwrap();
        }
        writer.event(&profile, &event(EventKind::Freed { bytes: 10, sample: 0 })).unwrap();
        writer.finish(&profile).unwrap();
        drop(writer);
        assert_eq!(read(&String::from_utf8(file).unwrap()).temporaries, u64::from(!is_interrupted));
    }
}
