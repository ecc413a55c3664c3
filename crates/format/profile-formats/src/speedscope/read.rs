//! Reading Speedscope's files.

use std::borrow::Cow;

use serde::Deserialize;

use crate::gather::Gather;
use crate::json;
use crate::profile::{Amount, Amounts, Frame, Known, Location, Profile};
use crate::read_error::ReadError;

/// True if a file may be one of Speedscope: JSON that names the schema.
pub fn detects(bytes: &[u8]) -> bool {
    const SCHEMA: &[u8] = b"speedscope.app/file-format-schema.json";
    bytes.trim_ascii_start().starts_with(b"{") && bytes.windows(SCHEMA.len()).any(|part| part == SCHEMA)
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    shared: Shared<'a>,
    #[serde(borrow)]
    profiles: Vec<Kind<'a>>,
    #[serde(default, rename = "activeProfileIndex")]
    active: Option<usize>,
    #[serde(default, borrow)]
    exporter: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    name: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Shared<'a> {
    #[serde(borrow)]
    frames: Vec<FrameOf<'a>>,
}

#[derive(Deserialize)]
struct FrameOf<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    file: Option<Cow<'a, str>>,
    #[serde(default)]
    line: Option<u32>,
}

/// A profile: stacks with weights, or calls that begin and end.
#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(default, borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    unit: Cow<'a, str>,
    #[serde(default)]
    samples: Vec<Vec<usize>>,
    #[serde(default)]
    weights: Vec<f64>,
    #[serde(default)]
    events: Vec<CallEvent>,
}

#[derive(Deserialize)]
struct CallEvent {
    #[serde(rename = "type")]
    kind: char,
    at: f64,
    frame: usize,
}

/// The figure of a profile, by the beginning of its name, and the amounts that are then known.
type Place = (&'static str, fn(&mut Amounts, u64), Known);

/// The profiles that [`write`](super::write) writes.
const OURS: [Place; 9] = [
    ("bytes live at the peak", |to, n| to.peak.add(bytes(n)), Known { peak: true, ..Known::NONE }),
    ("blocks live at the peak", |to, n| to.peak.add(blocks(n)), Known { peak: true, ..Known::NONE }),
    ("bytes live at the end", |to, n| to.end.add(bytes(n)), Known { end: true, ..Known::NONE }),
    ("blocks live at the end", |to, n| to.end.add(blocks(n)), Known { end: true, ..Known::NONE }),
    ("bytes allocated in all", |to, n| to.allocated.add(bytes(n)), Known { allocated: true, ..Known::NONE }),
    ("blocks allocated in all", |to, n| to.allocated.add(blocks(n)), Known { allocated: true, ..Known::NONE }),
    (
        "temporary",
        |to, n| to.temporaries = to.temporaries.saturating_add(n),
        Known { temporaries: true, ..Known::NONE },
    ),
    ("bytes ", |to, n| to.live.add(bytes(n)), LIVE),
    ("blocks ", |to, n| to.live.add(blocks(n)), LIVE),
];

/// The profiles of `memray transform speedscope`.
const MEMRAY: [Place; 2] =
    [("Memory", |to, n| to.live.add(bytes(n)), LIVE), ("Allocations", |to, n| to.live.add(blocks(n)), LIVE)];

const LIVE: Known = Known { live: true, ..Known::NONE };

fn bytes(bytes: u64) -> Amount {
    Amount { blocks: 0, bytes }
}

fn blocks(blocks: u64) -> Amount {
    Amount { blocks, bytes: 0 }
}

/// Reads a file. If Heapledger or memray wrote it, all profiles are read. Otherwise only one is:
/// the one that is shown first if its unit is bytes, or else the first whose unit is bytes; its
/// bytes count as live at one moment.
///
/// # Errors
///
/// Fails if it is not such a file, or no profile has the unit bytes.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    let file: File<'_> = json::read(bytes)?;
    let mut gather = Gather::default();
    let places: Vec<usize> = file.shared.frames.iter().map(|frame| gather.location(location(frame))).collect();
    let mut known = Known::NONE;
    let table = match file.exporter.as_deref().unwrap_or_default() {
        "heapledger" => &OURS[..],
        exporter if exporter.starts_with("memray") => &MEMRAY,
        _ => &[],
    };
    for kind in &file.profiles {
        let place = table.iter().find(|(name, ..)| kind.name.starts_with(name));
        let Some((_, add, is_known)) = place else { continue };
        known = either(known, *is_known);
        weigh(kind, &places, &mut gather, add)?;
    }
    if known == Known::NONE {
        let is_of_bytes = |kind: &&Kind<'_>| kind.unit == "bytes";
        let active = file.active.and_then(|at| file.profiles.get(at)).filter(is_of_bytes);
        let kind = active.or_else(|| file.profiles.iter().find(is_of_bytes));
        let kind = kind.ok_or_else(|| ReadError::new(0, "none of its profiles is of bytes"))?;
        known = LIVE;
        weigh(kind, &places, &mut gather, &|to, n| to.live.add(self::bytes(n)))?;
    }
    gather.profile.known = known;
    gather.profile.command = file.name.unwrap_or_default().into_owned();
    Ok(gather.profile)
}

fn either(one: Known, other: Known) -> Known {
    Known {
        allocated: one.allocated | other.allocated,
        temporaries: one.temporaries | other.temporaries,
        live: one.live | other.live,
        peak: one.peak | other.peak,
        end: one.end | other.end,
        ..one
    }
}

/// Adds the weights of a profile's stacks.
fn weigh(
    kind: &Kind<'_>,
    places: &[usize],
    gather: &mut Gather,
    add: &dyn Fn(&mut Amounts, u64),
) -> Result<(), ReadError> {
    let wrong = |reason: &str| ReadError::new(0, format!("profile `{}`: {reason}", kind.name));
    let mut put = |outside_in: &[usize], weight: f64| {
        let stack = outside_in.iter().rev().map(|&frame| places.get(frame).copied());
        let stack: Option<Vec<usize>> = stack.collect();
        let stack = stack.ok_or_else(|| wrong("a frame that is not there"))?;
        let stack = gather.walk(stack.into_iter()).map_err(wrong)?;
        add(gather.amounts(stack, Vec::new()), weight as u64);
        Ok(())
    };
    for (at, stack) in kind.samples.iter().enumerate() {
        // Without weights each sample counts once.
        let weight = if kind.weights.is_empty() { Some(1.0) } else { kind.weights.get(at).copied() };
        put(stack, weight.ok_or_else(|| wrong("more samples than weights"))?)?;
    }
    let (mut stack, mut before) = (Vec::new(), 0.0);
    for event in &kind.events {
        if event.at > before && !stack.is_empty() {
            put(&stack, event.at - before)?;
        }
        before = event.at;
        match event.kind {
            'O' => stack.push(event.frame),
            'C' if stack.last() == Some(&event.frame) => _ = stack.pop(),
            _ => return Err(wrong("a call ends that has not begun")),
        }
    }
    Ok(())
}

fn location(frame: &FrameOf<'_>) -> Location {
    let frame = Frame {
        function: frame.name.to_string(),
        full_name: frame.name.to_string(),
        known: true,
        file: frame.file.as_deref().unwrap_or_default().to_owned(),
        line: frame.line.unwrap_or(0),
    };
    Location { frames: vec![frame], ..Location::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, written};

    #[test]
    fn what_is_written_is_read() {
        let profile = example();
        let file = written(crate::speedscope::write, &profile);
        assert!(detects(&file));
        let again = read(&file).unwrap();
        let sum = |of: fn(&Amounts) -> u64, profile: &Profile| -> u64 {
            profile.samples.iter().map(|sample| of(&sample.amounts)).sum()
        };
        // The live amount is that at the peak, as the profile's moment says.
        assert_eq!(sum(|it| it.peak.bytes, &again), sum(|it| it.live.bytes, &profile));
        assert_eq!(sum(|it| it.end.blocks, &again), sum(|it| it.end.blocks, &profile));
        assert_eq!(sum(|it| it.allocated.bytes, &again), sum(|it| it.allocated.bytes, &profile));
        assert_eq!(sum(|it| it.temporaries, &again), sum(|it| it.temporaries, &profile));
        assert_eq!(again.known, Known { allocated: true, temporaries: true, peak: true, end: true, ..Known::NONE });
    }

    #[test]
    fn memray_has_bytes_and_blocks() {
        let file = r#"{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"memray@1.20.0",
            "shared":{"frames":[{"name":"a"}]},"profiles":[{"type":"sampled","name":"Memory","unit":"bytes","samples":[[0]],"weights":[70]},
            {"type":"sampled","name":"Allocations","unit":"none","samples":[[0]],"weights":[3]}]}"#;
        let profile = read(file.as_bytes()).unwrap();
        assert_eq!((profile.samples.len(), profile.samples[0].amounts.live), (1, Amount { blocks: 3, bytes: 70 }));
    }

    #[test]
    fn of_others_the_profile_of_bytes() {
        let file = r#"{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[{"name":"a"},{"name":"b","line":3}]},
            "profiles":[{"type":"sampled","name":"t","unit":"seconds","samples":[[0]],"weights":[1]},
            {"type":"evented","name":"m","unit":"bytes","events":[{"type":"O","at":0,"frame":0},{"type":"O","at":4,"frame":1},
            {"type":"C","at":9,"frame":1},{"type":"C","at":9,"frame":0}]}]}"#;
        let profile = read(file.as_bytes()).unwrap();
        let found: Vec<_> = profile.samples.iter().map(|it| (it.locations.clone(), it.amounts.live.bytes)).collect();
        assert_eq!(found, [(vec![0], 4), (vec![1, 0], 5)]);
        let wrong = read(file.replace("\"frame\":1}", "\"frame\":7}").as_bytes()).unwrap_err();
        assert!(wrong.reason.contains("frame that is not there"), "{wrong}");
        assert!(read(file.replace("bytes", "none").as_bytes()).unwrap_err().reason.contains("of bytes"));
    }
}
