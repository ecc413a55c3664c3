//! Reading traces and their memory dumps with heaps.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::gather::Gather;
use crate::json;
use crate::profile::{Amount, Known, Point, Profile};
use crate::read_error::ReadError;

mod heaps;
mod reports;

use heaps::{Heaps, Names};
pub use reports::reports;

/// True if a file may be a trace: JSON whose events have the right names. `bytes` may be just its
/// beginning.
pub fn detects(bytes: &[u8]) -> bool {
    let bytes = bytes.trim_ascii_start();
    let has = |word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
    match bytes.first() {
        Some(b'{') => has(b"\"traceEvents\""),
        // A list of events without the object around it.
        Some(b'[') => has(b"\"ph\"") && has(b"\"ts\""),
        _ => false,
    }
}

/// Reads a trace, and returns a profile for each process that has heaps in it. The last of several
/// dumps is the end; the one in which the most is live, in all processes together, is the peak; the
/// live amounts of all dumps are the timeline.
///
/// # Errors
///
/// Fails if the file is not a trace, or no dump has a heap.
pub fn read(bytes: &[u8]) -> Result<Vec<Profile>, ReadError> {
    let trace = Trace::of(bytes)?;
    let (mut dumps, mut processes) = (Dumps::default(), Vec::new());
    for (&pid, process) in &trace.processes {
        processes.extend(process.profile(pid, &trace, &mut dumps)?.map(|read| (process, read)));
    }
    if processes.is_empty() {
        return Err(ReadError::new(0, trace.without_heaps()));
    }
    let (peak, end) = dumps.peak_and_end();
    let begin_us = trace.begin_us;
    let since = |time_us: u64| time_us.saturating_sub(begin_us).saturating_mul(1000);
    let mut profiles = Vec::new();
    for (process, Read { gather, held }) in processes {
        let mut profile = gather.profile;
        let mut timeline: BTreeMap<u64, Amount> = BTreeMap::new();
        for (dump, sample, amount) in held {
            let amounts = &mut profile.samples[sample].amounts;
            if dump == peak {
                amounts.peak.add(amount);
            }
            if dump == end {
                amounts.end.add(amount);
                amounts.live.add(amount);
            }
            timeline.entry(since(dumps.times_us[dump])).or_default().add(amount);
        }
        if !process.live.is_empty() {
            timeline = process.live.iter().map(|(&time_us, &live)| (since(time_us), live)).collect();
        }
        profile.timeline = timeline.into_iter().map(|(time_ns, live)| Point { time_ns, live }).collect();
        let several = dumps.times_us.len() > 1;
        profile.known = Known { live: true, peak: several, end: several, ..Known::NONE };
        profile.moment = "in the last dump".into();
        (profile.peak_ns, profile.moment_ns) = (since(dumps.times_us[peak]), since(dumps.times_us[end]));
        profile.duration_ns = since(trace.end_us);
        // Chrome counts from the boot of the machine, others from 1970.
        profile.start_unix_ns = if begin_us > 1_000_000_000_000_000 { begin_us.saturating_mul(1000) } else { 0 };
        profiles.push(profile);
    }
    Ok(profiles)
}

/// The memory events of a trace.
#[derive(Default)]
struct Trace<'a> {
    file: &'a [u8],
    processes: BTreeMap<i64, Process<'a>>,
    begin_us: u64,
    end_us: u64,
    dumps: usize,
}

#[derive(Default)]
struct Process<'a> {
    name: String,
    /// The names of heaps that are written as entries.
    names: Names,
    dumps: Vec<Dump<'a>>,
    /// The latest values of allocators, in one part or more, and their time.
    allocators: (u64, Vec<&'a RawValue>),
    /// The live amounts over time, if the trace has them.
    live: BTreeMap<u64, Amount>,
}

struct Dump<'a> {
    id: Cow<'a, str>,
    time_us: u64,
    heaps: Heaps,
    regions: Vec<heaps::Region>,
}

/// A process as a profile.
struct Read {
    gather: Gather,
    /// The live amounts of samples: the dump, the sample and the amount.
    held: Vec<(usize, usize, Amount)>,
}

/// The dumps with heaps, of all processes.
#[derive(Default)]
struct Dumps<'a> {
    numbers: HashMap<&'a str, usize>,
    times_us: Vec<u64>,
    bytes: Vec<u64>,
}

impl<'a> Dumps<'a> {
    fn number(&mut self, dump: &'a Dump<'_>) -> usize {
        let next = self.times_us.len();
        let number = *self.numbers.entry(&dump.id).or_insert(next);
        if number == next {
            self.times_us.push(0);
            self.bytes.push(0);
        }
        self.times_us[number] = self.times_us[number].max(dump.time_us);
        number
    }

    fn peak_and_end(&self) -> (usize, usize) {
        let all = || 0..self.times_us.len();
        // Among equals, the first.
        let peak = all().rev().max_by_key(|&at| self.bytes[at]).unwrap_or(0);
        (peak, all().max_by_key(|&at| self.times_us[at]).unwrap_or(0))
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(default, borrow)]
    ph: Cow<'a, str>,
    #[serde(default, borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    pid: i64,
    #[serde(default)]
    ts: f64,
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    args: Option<&'a RawValue>,
}

impl Event<'_> {
    /// True if the event is about memory.
    fn is_wanted(&self) -> bool {
        match &*self.ph {
            "v" => true,
            "M" => matches!(&*self.name, "process_name" | "stackFrames" | "typeNames"),
            "C" => matches!(&*self.name, "live bytes" | "live blocks"),
            _ => false,
        }
    }
}

/// The memory events of a trace, which has many others.
struct Events<'a>(Vec<Event<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Events<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Wanted;
        impl<'de> Visitor<'de> for Wanted {
            type Value = Events<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut events = Vec::new();
                while let Some(event) = list.next_element::<Event<'de>>()? {
                    if event.is_wanted() {
                        events.push(event);
                    }
                }
                Ok(Events(events))
            }
        }
        deserializer.deserialize_seq(Wanted)
    }
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow, rename = "traceEvents")]
    events: Events<'a>,
}

#[derive(Deserialize)]
struct DumpArgs<'a> {
    #[serde(borrow)]
    dumps: DumpParts<'a>,
}

#[derive(Deserialize)]
struct DumpParts<'a> {
    #[serde(default)]
    heaps: Option<heaps::V1>,
    #[serde(default)]
    heaps_v2: Option<heaps::V2>,
    #[serde(default)]
    process_mmaps: Option<heaps::Mmaps>,
    #[serde(default, borrow)]
    allocators: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Value {
    value: f64,
}

impl<'a> Trace<'a> {
    fn of(file: &'a [u8]) -> Result<Trace<'a>, ReadError> {
        let Events(events) = match file.trim_ascii_start().first() {
            Some(b'[') => json::read(file)?,
            _ => json::read::<File<'_>>(file)?.events,
        };
        let mut trace = Trace { file, begin_us: u64::MAX, ..Trace::default() };
        for event in &events {
            trace.take(event)?;
        }
        trace.begin_us = trace.begin_us.min(trace.end_us);
        // Names come one after the other: those that a dump adds are known to the later ones.
        trace.processes.values_mut().for_each(|process| process.dumps.sort_by_key(|dump| dump.time_us));
        Ok(trace)
    }

    fn take(&mut self, event: &Event<'a>) -> Result<(), ReadError> {
        let Some(args) = event.args else { return Ok(()) };
        let time_us = event.ts as u64;
        if event.ph != "M" {
            (self.begin_us, self.end_us) = (self.begin_us.min(time_us), self.end_us.max(time_us));
        }
        match &*event.name {
            _ if event.ph == "v" => {
                let parts = self.parse::<DumpArgs<'_>>(args)?.dumps;
                self.dumps += 1;
                let id = event.id.map_or_else(|| time_us.to_string().into(), |id| Cow::Borrowed(id.get()));
                let heaps = Heaps::new(parts.heaps, parts.heaps_v2);
                let regions = parts.process_mmaps.map(|it| it.vm_regions).unwrap_or_default();
                let process = self.process(event);
                if let Some(said) = parts.allocators
                    && time_us >= process.allocators.0
                {
                    if time_us > process.allocators.0 {
                        process.allocators = (time_us, Vec::new());
                    }
                    process.allocators.1.push(said);
                }
                process.dumps.push(Dump { id, time_us, heaps, regions });
            }
            "process_name" => self.process(event).name = self.parse::<Named>(args)?.name,
            "stackFrames" => {
                let frames = self.parse(args)?;
                self.process(event).names.add_frames(frames);
            }
            "typeNames" => {
                let types = self.parse(args)?;
                self.process(event).names.add_types(types);
            }
            name => {
                let value = self.parse::<Value>(args)?.value as u64;
                let live = self.process(event).live.entry(time_us).or_default();
                if name == "live bytes" { live.bytes = value } else { live.blocks = value }
            }
        }
        Ok(())
    }

    fn process(&mut self, event: &Event<'_>) -> &mut Process<'a> {
        self.processes.entry(event.pid).or_default()
    }

    fn parse<T: Deserialize<'a>>(&self, part: &'a RawValue) -> Result<T, ReadError> {
        let text = part.get().as_bytes();
        json::read(text).map_err(|error: ReadError| {
            let before = (text.as_ptr() as usize).saturating_sub(self.file.as_ptr() as usize);
            ReadError::new(before as u64 + error.offset, error.reason)
        })
    }

    /// Returns the reason why the trace has no heaps, for people.
    fn without_heaps(&self) -> String {
        match self.dumps {
            0 => "it is a trace without memory dumps".into(),
            dumps => format!("its {dumps} memory dumps have no heaps: the heap profiler was not on"),
        }
    }
}

impl Process<'_> {
    /// Returns the profile of the process's heaps; `None` if it has none.
    fn profile<'a>(&'a self, pid: i64, trace: &Trace<'_>, dumps: &mut Dumps<'a>) -> Result<Option<Read>, ReadError> {
        if self.dumps.iter().all(|dump| dump.heaps.is_empty()) {
            return Ok(None);
        }
        let mut gather = Gather::default();
        let regions = self.dumps.iter().rev().map(|dump| &dump.regions).find(|regions| !regions.is_empty());
        gather.set_modules(regions.map(|regions| heaps::modules(regions)).unwrap_or_default());
        gather.profile.command = self.name.clone();
        gather.profile.pid = u32::try_from(pid).unwrap_or(0);
        let (mut names, mut held) = (Names::default(), Vec::new());
        for dump in self.dumps.iter().filter(|dump| !dump.heaps.is_empty()) {
            let number = dumps.number(dump);
            let wrong = |reason: String| ReadError::new(trace.offset_of(&dump.id), reason);
            let cells = dump.heaps.cells(&self.names, &mut names, &mut gather).map_err(wrong)?;
            for (sample, amount) in cells {
                dumps.bytes[number] = dumps.bytes[number].saturating_add(amount.bytes);
                held.push((number, sample, amount));
            }
        }
        Ok(Some(Read { gather, held }))
    }
}

impl Trace<'_> {
    /// Returns the offset in the file of the dump with an id.
    fn offset_of(&self, id: &str) -> u64 {
        (id.as_ptr() as usize).checked_sub(self.file.as_ptr() as usize).filter(|&at| at < self.file.len()).unwrap_or(0)
            as u64
    }
}

#[cfg(test)]
mod tests;
