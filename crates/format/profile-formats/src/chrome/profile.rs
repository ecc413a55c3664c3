//! A profile as a trace: a dump for each of its moments.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::guid::Guid;
use super::heap::Heap;
use super::process::{Kind, Level, ProcessDump};
use super::trace::{HeapFormat, Trace};
use crate::holds::Holds;
use crate::profile::{Amount, Amounts, Known, Location, Profile, Sample};

/// The live amounts at several moments, and over time.
pub const HOLDS: Holds = Holds {
    amounts: Known { live: true, peak: true, end: true, ..Known::NONE },
    blocks: true,
    labels: true,
    names: true,
    timeline: true,
    ..Holds::STACKS
};

/// The allocator of blocks that are in no heap of the program's own.
pub(super) const MAIN_HEAP: &str = "malloc";

/// Writes a trace with a dump for the peak, one for the moment of the profile if that is another,
/// one for each of its [snapshots](Profile::snapshots), and one for the end, in their order. Scopes
/// of contexts are the outermost frames, a heap that the program has declared is an allocator of
/// its own.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write, heaps: HeapFormat) -> io::Result<()> {
    let mut trace = Trace::begin(out, heaps)?;
    for (number, moment) in moments(profile).iter().enumerate() {
        let process = profile.command.as_str();
        let mut dump = ProcessDump::new(profile.pid, process, time_us(profile, moment.time_ns), Level::Detailed);
        for (allocator, heap) in heaps_of(profile, &moment.live) {
            let total = heap.total();
            dump.allocator(&allocator).set_size(total.bytes).set_object_count(total.blocks);
            dump.add_heap(&allocator, heap);
        }
        trace.dump(Guid::of(&format!("{}:{number}", profile.pid)), moment.kind, &dump)?;
    }
    for point in &profile.timeline {
        let time = time_us(profile, point.time_ns);
        trace.counter(profile.pid, time, "live bytes", point.live.bytes)?;
        trace.counter(profile.pid, time, "live blocks", point.live.blocks)?;
    }
    for purge in &profile.purges {
        let time = time_us(profile, purge.start_ns);
        trace.purge(purge, time, purge.end_ns.saturating_sub(purge.start_ns) / 1000)?;
    }
    trace.finish().map(drop)
}

fn time_us(profile: &Profile, time_ns: u64) -> u64 {
    profile.start_unix_ns.saturating_add(time_ns) / 1000
}

/// A moment of the profile.
struct Moment<'p> {
    time_ns: u64,
    /// The reason for its dump.
    kind: Kind,
    live: Live<'p>,
}

/// The live amounts at a moment.
enum Live<'p> {
    /// One of the amounts of each sample.
    Of(fn(&Amounts) -> Amount),
    /// The amount of each sample.
    Snapshot(&'p [Amount]),
}

impl Live<'_> {
    /// Returns the amount of one sample, given with its index.
    fn of(&self, number: usize, sample: &Sample) -> Amount {
        match self {
            Live::Of(amount) => amount(&sample.amounts),
            Live::Snapshot(live) => live.get(number).copied().unwrap_or_default(),
        }
    }
}

/// Returns the moments, in their order.
fn moments(profile: &Profile) -> Vec<Moment<'_>> {
    let (known, mut moments) = (profile.known, Vec::new());
    let mut add = |time_ns, kind, live| moments.push(Moment { time_ns, kind, live });
    if known.peak {
        add(profile.peak_ns, Kind::Peak, Live::Of(|amounts| amounts.peak));
    }
    if known.end {
        add(profile.duration_ns, Kind::Explicit, Live::Of(|amounts| amounts.end));
    }
    let is_live = |of: fn(&Amounts) -> Amount| profile.samples.iter().all(|it| of(&it.amounts) == it.amounts.live);
    let is_there = known.peak && is_live(|amounts| amounts.peak) || known.end && is_live(|amounts| amounts.end);
    if known.live && !is_there {
        add(profile.moment_ns, Kind::Explicit, Live::Of(|amounts| amounts.live));
    }
    for snapshot in &profile.snapshots {
        let is_there = known.peak && snapshot.time_ns == profile.peak_ns
            || known.end && snapshot.time_ns == profile.duration_ns
            || known.live && snapshot.time_ns == profile.moment_ns;
        // Nothing is live once all processes have ended, which needs no dump.
        let is_something = snapshot.live.iter().any(|live| *live != Amount::default());
        if is_something && !is_there {
            add(snapshot.time_ns, Kind::Periodic, Live::Snapshot(&snapshot.live));
        }
    }
    moments.sort_by_key(|moment| moment.time_ns);
    moments
}

/// Returns the heaps of a moment, by allocator. The main one is always there.
fn heaps_of(profile: &Profile, live: &Live<'_>) -> BTreeMap<String, Heap> {
    let mut heaps = BTreeMap::from([(MAIN_HEAP.to_owned(), Heap::default())]);
    for (number, sample) in profile.samples.iter().enumerate() {
        let amount = live.of(number, sample);
        if amount == Amount::default() {
            continue;
        }
        let label = |key: &str| sample.labels.iter().find(|(known, _)| known == key).map(|(_, text)| text.as_str());
        // A name of one part: parts below it would be taken for parts of it.
        let allocator = label("heap").map_or_else(|| MAIN_HEAP.to_owned(), |heap| heap.replace('/', "\\"));
        let frames = label("context").into_iter().chain(frames(profile, sample));
        heaps.entry(allocator).or_default().add(frames, label("type"), amount);
    }
    heaps
}

/// Returns the functions of a stack, the outermost first.
fn frames<'p>(profile: &'p Profile, sample: &'p Sample) -> impl Iterator<Item = &'p str> {
    let locations = sample.locations.iter().rev().filter_map(|&at| profile.locations.get(at));
    locations.flat_map(|location: &Location| location.frames.iter().rev().map(|frame| frame.function.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::profile::{Point, Purge, Snapshot};
    use crate::testing::example;

    #[test]
    fn a_dump_for_each_moment() {
        let mut profile = example();
        let live = |bytes: [u64; 4]| bytes.map(|bytes| Amount { blocks: 1, bytes }).to_vec();
        profile.snapshots = vec![
            Snapshot { time_ns: 7_000_000, live: live([1, 2, 3, 4]) },
            // The peak, which is there already; an empty one; and one with only some of the
            // amounts.
            Snapshot { time_ns: 20_000_000, live: live([9; 4]) },
            Snapshot { time_ns: 28_000_000, live: vec![Amount::default(); 4] },
            Snapshot { time_ns: 30_000_000, live: live([5; 4])[..2].to_vec() },
        ];
        profile.moment_ns = 25_000_000;
        profile.timeline = vec![Point { time_ns: 7_000_000, live: Amount { blocks: 4, bytes: 10 } }];
        let mut file = Vec::new();
        write(&profile, &mut file, HeapFormat::Aggregated).unwrap();
        let file: Value = serde_json::from_slice(&file).unwrap();
        let events = || file["traceEvents"].as_array().unwrap().iter();
        let dumps = events().filter(|event| event["ph"] == "v");
        let sum = |dump: &Value, name: &str| {
            let column = &dump["args"]["dumps"]["heaps_v2"]["allocators"]["malloc"][name];
            column.as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).sum::<u64>()
        };
        let found: Vec<_> = dumps
            .clone()
            .map(|dump| {
                (dump["ts"].as_u64().unwrap(), dump["name"].as_str().unwrap(), sum(dump, "sizes"), sum(dump, "counts"))
            })
            .collect();
        assert_eq!(
            found,
            [
                (7_000, "periodic_interval", 10, 4),
                (20_000, "peak_memory_usage", 97, 7),
                (25_000, "explicitly_triggered", 106, 10),
                (30_000, "periodic_interval", 10, 2),
                (50_000, "explicitly_triggered", 16, 1),
            ]
        );
        let mut ids: Vec<_> = dumps.map(|dump| dump["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), found.len());
        let counters: Vec<_> =
            events().filter(|event| event["ph"] == "C").map(|event| &event["args"]["value"]).collect();
        assert_eq!(counters, [10, 4]);
        assert!(events().all(|event| event["ph"] != "X"));
    }

    #[test]
    fn purges_are_slices() {
        let mut profile = example();
        let purge = Purge { pid: 12, start_ns: 5_000_000, end_ns: 5_250_000, arena: 9, ..Purge::default() };
        let texts = Purge { label: "images".into(), reason: "idle".into(), ..purge };
        profile.purges = vec![Purge { pages: 7, calls: 2, chunks: 1, ..texts }];
        let mut file = Vec::new();
        write(&profile, &mut file, HeapFormat::default()).unwrap();
        let file: Value = serde_json::from_slice(&file).unwrap();
        let found: Vec<_> = file["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").collect();
        let [slice] = found[..] else { panic!("{file:#}") };
        assert_eq!((&slice["name"], &slice["ts"], &slice["dur"]), (&"purge".into(), &5_000.into(), &250.into()));
        assert_eq!(slice["pid"], 12);
        let args = serde_json::json!({
            "arena": "0x9", "label": "images", "reason": "idle", "pages": 7, "calls": 2, "chunks": 1,
        });
        assert_eq!(slice["args"], args);
    }
}
