//! The JSON of <https://www.speedscope.app>: a profile for each kind of amount, to choose from.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

mod read;

use crate::calls::Call;
use crate::holds::Holds;
use crate::profile::{Amounts, Figure, Known, Profile};

pub use read::{detects, read};

/// All amounts but maxima and lifetimes of single stacks.
pub const HOLDS: Holds = Holds {
    amounts: Known { allocated: true, temporaries: true, live: true, peak: true, end: true, ..Known::NONE },
    blocks: true,
    names: true,
    // Frames are functions, wherever in them the calls are.
    files: true,
    ..Holds::STACKS
};

#[derive(Serialize)]
struct File<'p> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'p str,
    #[serde(rename = "activeProfileIndex")]
    active_profile_index: usize,
    shared: Shared,
    profiles: Vec<Sampled<'p>>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<'s> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<&'s [usize]>,
    weights: Vec<u64>,
}

/// Writes the file. Takes memory in proportion to the profile.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut frames = Vec::new();
    let mut numbers: HashMap<Frame, usize> = HashMap::new();
    let mut number = |call: &Call<'_>| {
        let file = Some(call.frame.file.clone()).filter(|file| !file.is_empty());
        *numbers.entry(Frame { name: call.name().into_owned(), file }).or_insert_with_key(|frame| {
            frames.push(frame.clone());
            frames.len() - 1
        })
    };
    let stacks: Vec<Vec<usize>> = profile
        .samples
        .iter()
        .map(|sample| Call::of(profile, sample).iter().rev().map(&mut number).collect())
        .collect();

    let kinds = kinds(profile);
    let profiles = kinds.iter().map(|kind| {
        let weighted = profile.samples.iter().map(|sample| (kind.of)(&sample.amounts)).zip(&stacks);
        let (weights, samples): (Vec<u64>, Vec<&[usize]>) =
            weighted.filter(|(weight, _)| *weight > 0).map(|(weight, stack)| (weight, &stack[..])).unzip();
        let end_value = weights.iter().fold(0, |sum: u64, weight| sum.saturating_add(*weight));
        let (name, unit) = (kind.name.clone(), kind.unit);
        Sampled { kind: "sampled", name, unit, start_value: 0, end_value, samples, weights }
    });
    let profiles = profiles.collect();
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: "heapledger",
        name: &profile.command,
        active_profile_index: kinds.iter().position(|kind| kind.figure == Some(profile.shown)).unwrap_or(0),
        shared: Shared { frames },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")
}

/// The kind of one profile in the file.
struct Kind {
    name: String,
    unit: &'static str,
    figure: Option<Figure>,
    of: fn(&Amounts) -> u64,
}

/// Returns the kinds of amounts that a profile knows.
fn kinds(profile: &Profile) -> Vec<Kind> {
    let known = profile.known;
    let moment = if profile.moment.is_empty() { "live" } else { &profile.moment };
    let mut kinds = Vec::new();
    let mut add =
        |is_known: bool, name: &str, bytes: Option<Figure>, blocks: Option<Figure>, of: [fn(&Amounts) -> u64; 2]| {
            if is_known {
                let units = [("bytes", "bytes", bytes), ("blocks", "none", blocks)];
                kinds.extend(units.into_iter().zip(of).map(|((counted, unit, figure), of)| Kind {
                    name: format!("{counted} {name}"),
                    unit,
                    figure,
                    of,
                }));
            }
        };
    use Figure::{AllocatedBytes, Allocations, LiveBlocks, LiveBytes};
    add(known.live, moment, Some(LiveBytes), Some(LiveBlocks), [|of| of.live.bytes, |of| of.live.blocks]);
    let of: [fn(&Amounts) -> u64; 2] = [|of| of.allocated.bytes, |of| of.allocated.blocks];
    add(known.allocated, "allocated in all", Some(AllocatedBytes), Some(Allocations), of);
    let is = |what: &str| moment.starts_with(what);
    let at_peak = known.peak && !is("live at the peak");
    add(at_peak, "live at the peak", None, None, [|of| of.peak.bytes, |of| of.peak.blocks]);
    let at_end = known.end && !is("live at the end");
    add(at_end, "live at the end", None, None, [|of| of.end.bytes, |of| of.end.blocks]);
    if known.temporaries {
        let (name, figure) = ("temporary allocations".to_owned(), Some(Figure::Temporaries));
        kinds.push(Kind { name, unit: "none", figure, of: |of| of.temporaries });
    }
    kinds
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::testing::{self, example};

    fn written(profile: &Profile) -> Value {
        serde_json::from_slice(&testing::written(write, profile)).unwrap()
    }

    #[test]
    fn a_profile_for_each_kind() {
        let mut profile = example();
        profile.shown = Figure::Allocations;
        let file = written(&profile);
        let profiles = file["profiles"].as_array().unwrap();
        let totals: Vec<(&str, u64)> = profiles
            .iter()
            .map(|profile| {
                let weights = profile["weights"].as_array().unwrap().iter().map(|weight| weight.as_u64().unwrap());
                assert_eq!(profile["samples"].as_array().unwrap().len(), weights.len());
                assert_eq!(profile["endValue"], weights.clone().sum::<u64>());
                (profile["name"].as_str().unwrap(), weights.sum())
            })
            .collect();
        let expected = [
            ("bytes live at the peak (20 ms)", 106),
            ("blocks live at the peak (20 ms)", 10),
            ("bytes allocated in all", 130),
            ("blocks allocated in all", 16),
            ("bytes live at the end", 16),
            ("blocks live at the end", 1),
            ("temporary allocations", 2),
        ];
        assert_eq!(totals, expected);
        assert_eq!(file["activeProfileIndex"], 3);
    }

    #[test]
    fn stacks_begin_outside() {
        let file = written(&example());
        let names = |stack: &Value| {
            let name = |at: &Value| file["shared"]["frames"][at.as_u64().unwrap() as usize]["name"].clone();
            stack.as_array().unwrap().iter().map(name).collect::<Vec<_>>()
        };
        let stacks = file["profiles"][0]["samples"].as_array().unwrap();
        assert_eq!(names(&stacks[0]), ["main", "outer", "inner"]);
        assert_eq!(stacks[0], stacks[1]);
        assert_eq!(names(&stacks[3]), ["[no stack]"]);
        assert_eq!(written(&Profile::default())["profiles"].as_array().unwrap().len(), 0);
    }
}
