//! The JSON of DHAT (file version 2), which Valgrind's `dh_view.html` and the Firefox Profiler
//! read: all allocations, the maximum of each stack, the live amounts at the peak and at the end,
//! and the lifetimes of blocks.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

mod read;

use crate::calls::{Call, on_one_line};
use crate::holds::Holds;
use crate::profile::{Amounts, Known, Profile};

pub use read::{detects, read};

/// All amounts but temporaries and those of other moments.
pub const HOLDS: Holds =
    Holds { amounts: AMOUNTS, expected: AMOUNTS, blocks: true, names: true, files: true, lines: true, ..Holds::STACKS };

const AMOUNTS: Known = Known { allocated: true, peak: true, end: true, most: true, lifetimes: true, ..Known::NONE };

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    dhat_file_version: u32,
    mode: &'static str,
    verb: &'static str,
    /// True if there are lifetimes, peak and end (`bklt`), and if there are numbers of accesses
    /// (`bkacc`).
    bklt: bool,
    bkacc: bool,
    /// The unit of times, and a million of them.
    tu: &'static str,
    #[serde(rename = "Mtu")]
    mtu: &'static str,
    /// The longest lifetime that counts as short.
    tuth: u64,
    cmd: String,
    pid: u32,
    /// The times of the peak and the end.
    tg: u64,
    te: u64,
    pps: Vec<Point>,
    ftbl: Vec<String>,
}

/// A stack: totals, lifetimes, maxima, and the live amounts at the peak and at the end, as bytes
/// and blocks.
#[derive(Serialize)]
struct Point {
    tb: u64,
    tbk: u64,
    tl: u64,
    mb: u64,
    mbk: u64,
    gb: u64,
    gbk: u64,
    eb: u64,
    ebk: u64,
    fs: Vec<usize>,
}

/// Writes the file. Takes memory in proportion to the profile.
///
/// Stacks that differ in nothing that the format holds become one. Its maximum is then the sum of
/// their maxima, which they may not have had at the same time.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut ftbl = vec!["[root]".to_owned()];
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut points: Vec<(Vec<usize>, Amounts)> = Vec::new();
    let mut places: HashMap<Vec<usize>, usize> = HashMap::new();
    for sample in &profile.samples {
        let number = |call: &Call<'_>| {
            *numbers.entry(frame(profile, call)).or_insert_with_key(|frame| {
                ftbl.push(frame.clone());
                ftbl.len() - 1
            })
        };
        let frames: Vec<usize> = Call::of(profile, sample).iter().map(number).collect();
        // Readers refuse a file that has a stack twice.
        let at = *places.entry(frames).or_insert_with_key(|frames| {
            points.push((frames.clone(), Amounts::default()));
            points.len() - 1
        });
        add(&mut points[at].1, &sample.amounts);
    }
    let file = File {
        dhat_file_version: 2,
        mode: "heap",
        verb: "Allocated",
        bklt: true,
        bkacc: false,
        tu: "µs",
        mtu: "s",
        tuth: 500,
        cmd: on_one_line(&profile.command).into_owned(),
        pid: profile.pid,
        tg: profile.peak_ns / 1000,
        te: profile.duration_ns / 1000,
        pps: points.into_iter().map(|(fs, amounts)| point(fs, &amounts)).collect(),
        ftbl,
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")
}

fn add(sum: &mut Amounts, amounts: &Amounts) {
    sum.allocated.add(amounts.allocated);
    sum.peak.add(amounts.peak);
    sum.end.add(amounts.end);
    sum.most.add(amounts.most);
    sum.lifetimes_ns = sum.lifetimes_ns.saturating_add(amounts.lifetimes_ns);
}

fn point(fs: Vec<usize>, amounts: &Amounts) -> Point {
    let Amounts { allocated, peak, end, most, lifetimes_ns, .. } = *amounts;
    // If the maximum is not known, it is at least this.
    let most = [most, peak, end].into_iter().max_by_key(|amount| amount.bytes).unwrap_or_default();
    Point {
        tb: allocated.bytes,
        tbk: allocated.blocks,
        tl: lifetimes_ns / 1000,
        mb: most.bytes,
        mbk: most.blocks,
        gb: peak.bytes,
        gbk: peak.blocks,
        eb: end.bytes,
        ebk: end.blocks,
        fs,
    }
}

/// Returns the text of a frame: `0xADDRESS: function (file:line)`, or `(in module)` if the file is
/// not known.
fn frame(profile: &Profile, call: &Call<'_>) -> String {
    let Call { location, frame } = call;
    let (address, name, file) = (location.address, call.name(), on_one_line(&frame.file));
    let module = location.module.and_then(|at| profile.modules.get(at)).map(|module| on_one_line(&module.path));
    match (&*file, frame.line, module) {
        ("", _, None) => format!("{address:#x}: {name} (in ???)"),
        ("", _, Some(module)) => format!("{address:#x}: {name} (in {module})"),
        (file, 0, _) => format!("{address:#x}: {name} ({file})"),
        (file, line, _) => format!("{address:#x}: {name} ({file}:{line})"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::profile::Amount;
    use crate::testing::{self, example};

    fn written(profile: &Profile) -> Value {
        serde_json::from_slice(&testing::written(write, profile)).unwrap()
    }

    #[test]
    fn stacks_that_differ_in_their_types_are_one() {
        let file = written(&example());
        let frame = |at: &Value| file["ftbl"][at.as_u64().unwrap() as usize].as_str().unwrap();
        let points = file["pps"].as_array().unwrap();
        let stacks: Vec<Vec<&str>> =
            points.iter().map(|point| point["fs"].as_array().unwrap().iter().map(frame).collect()).collect();
        let main = "0x2200: main (m.c:12)";
        assert_eq!(stacks[0], ["0x1004: inner (a.c:3)", "0x1004: outer (a.c:7)", main]);
        assert_eq!(stacks[1], ["0x1fff: 0x1fff (in /bin/a)", "0x2100: inlined ; parse  it (in ???)", main]);
        assert_eq!(stacks[2..], [vec!["0x0: [no stack] (in ???)"]]);
        assert_eq!(
            points[0],
            json!({
                "tb": 120, "tbk": 12, "tl": 10_000, "mb": 102, "mbk": 7, "gb": 96, "gbk": 6, "eb": 16, "ebk": 1,
                "fs": points[0]["fs"]
            })
        );
        assert_eq!((&file["tg"], &file["te"], &file["ftbl"][0]), (&20_000.into(), &50_000.into(), &"[root]".into()));
    }

    #[test]
    fn what_is_not_known_is_no_less_than_what_is() {
        let mut profile = example();
        profile.known.most = false;
        for sample in &mut profile.samples {
            sample.amounts.most = Amount::default();
        }
        let file = written(&profile);
        assert_eq!((&file["pps"][0]["mb"], &file["pps"][0]["mbk"]), (&96.into(), &6.into()));
        assert_eq!(written(&Profile::default())["pps"], json!([]));
    }
}
