//! Reading DHAT's files.

use serde::Deserialize;

use crate::gather::Gather;
use crate::json;
use crate::profile::{Amount, Frame, Known, Location, Profile};
use crate::read_error::ReadError;

/// True if a file may be one of DHAT: JSON with DHAT's version number.
pub fn detects(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(4096)];
    bytes.starts_with(b"{") && head.windows(17).any(|part| part == b"\"dhatFileVersion\"")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    dhat_file_version: u64,
    #[serde(default)]
    bklt: bool,
    #[serde(default)]
    cmd: String,
    #[serde(default)]
    pid: u32,
    /// The times of the peak and of the end.
    #[serde(default)]
    tg: u64,
    #[serde(default)]
    te: u64,
    /// The unit of time.
    #[serde(default)]
    tu: String,
    #[serde(default)]
    mode: String,
    pps: Vec<Point>,
    ftbl: Vec<String>,
}

/// A stack that allocates: its total, and its amounts at its own maximum, at the peak and at the
/// end, each in bytes and blocks.
#[derive(Deserialize)]
struct Point {
    tb: u64,
    tbk: u64,
    #[serde(default)]
    tl: u64,
    #[serde(default)]
    mb: u64,
    #[serde(default)]
    mbk: u64,
    #[serde(default)]
    gb: u64,
    #[serde(default)]
    gbk: u64,
    #[serde(default)]
    eb: u64,
    #[serde(default)]
    ebk: u64,
    fs: Vec<usize>,
}

/// Reads a file.
///
/// # Errors
///
/// Fails if it is not such a file.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    let file: File = json::read(bytes)?;
    if file.dhat_file_version != 2 {
        return Err(ReadError::new(0, format!("it is of version {}, not 2", file.dhat_file_version)));
    }
    let mut gather = Gather::default();
    let frames: Vec<Option<usize>> = file.ftbl.iter().map(|text| Some(gather.location(location(text)?))).collect();
    for (number, point) in file.pps.iter().enumerate() {
        let frame = |&at: &usize| {
            let frame =
                frames.get(at).ok_or_else(|| format!("`pps` {number} has a frame {at}, which is not in `ftbl`"));
            frame.copied().map_err(|reason| ReadError::new(0, reason))
        };
        let stack: Vec<Option<usize>> = point.fs.iter().map(frame).collect::<Result<_, _>>()?;
        let amounts = gather.amounts(stack.into_iter().flatten().collect(), Vec::new());
        let amount = |blocks, bytes| Amount { blocks, bytes };
        amounts.allocated.add(amount(point.tbk, point.tb));
        amounts.most.add(amount(point.mbk, point.mb));
        amounts.peak.add(amount(point.gbk, point.gb));
        amounts.end.add(amount(point.ebk, point.eb));
        amounts.lifetimes_ns = amounts.lifetimes_ns.saturating_add(nanoseconds(point.tl, &file.tu).unwrap_or(0));
    }
    let profile = &mut gather.profile;
    let has_times = nanoseconds(1, &file.tu).is_some();
    let known = file.bklt;
    profile.known = Known {
        allocated: true,
        peak: known,
        end: known,
        most: known,
        lifetimes: known && has_times,
        ..Known::default()
    };
    (profile.command, profile.pid) = (file.cmd, file.pid);
    profile.duration_ns = nanoseconds(file.te, &file.tu).unwrap_or(0);
    profile.peak_ns = nanoseconds(file.tg, &file.tu).unwrap_or(0);
    profile.comments.push(format!("DHAT, mode {}", file.mode));
    Ok(gather.profile)
}

/// Converts a time in the file's unit; `None`: the unit is not a time (instructions).
fn nanoseconds(time: u64, unit: &str) -> Option<u64> {
    let each = match unit {
        "ns" => 1,
        "µs" | "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    time.checked_mul(each)
}

/// Parses `0xADDRESS: function (file:line:column)` or `(in library)`; `None`: the root.
fn location(text: &str) -> Option<Location> {
    if text == "[root]" {
        return None;
    }
    let (address, rest) = match text.split_once(": ") {
        Some((address, rest)) if address.starts_with("0x") => {
            (u64::from_str_radix(&address[2..], 16).unwrap_or(0), rest)
        }
        _ => (0, text),
    };
    let (function, place) = match rest.rfind(" (").filter(|_| rest.ends_with(')')) {
        Some(at) => (&rest[..at], &rest[at + 2..rest.len() - 1]),
        None => (rest, ""),
    };
    let mut frame = Frame {
        function: function.into(),
        full_name: function.into(),
        known: !function.is_empty() && function != "???",
        ..Frame::default()
    };
    if !place.starts_with("in ") {
        (frame.file, frame.line) = file_and_line(place);
    }
    Some(Location { module: None, address, frames: vec![frame] })
}

/// Parses `file:line` or `file:line:column`.
fn file_and_line(place: &str) -> (String, u32) {
    let number = |text: &str| text.parse::<u32>().ok();
    let Some((front, last)) = place.rsplit_once(':').and_then(|(front, last)| Some((front, number(last)?))) else {
        return (place.into(), 0);
    };
    match front.rsplit_once(':').and_then(|(file, line)| Some((file, number(line)?))) {
        Some((file, line)) => (file.into(), line),
        None => (front.into(), last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_say_where_they_are() {
        let of = |text| {
            location(text)
                .map(|it| (it.address, it.frames[0].function.clone(), it.frames[0].file.clone(), it.frames[0].line))
        };
        assert_eq!(of("[root]"), None);
        assert_eq!(of("0x1F: main (a b.c:7:3)"), Some((0x1f, "main".into(), "a b.c".into(), 7)));
        assert_eq!(of("0x1F: f(int) (x.rs:7)"), Some((0x1f, "f(int)".into(), "x.rs".into(), 7)));
        assert_eq!(of("0x1F: f (in /usr/lib/libc.so.6)"), Some((0x1f, "f".into(), String::new(), 0)));
        assert_eq!(of("core::f"), Some((0, "core::f".into(), String::new(), 0)));
    }

    #[test]
    fn all_moments_are_there() {
        let file = r#"{"dhatFileVersion":2,"mode":"heap","bklt":true,"cmd":"./a","pid":7,"te":9,"tg":4,"tu":"µs","pps":[
            {"tb":10,"tbk":2,"tl":3,"mb":8,"mbk":1,"gb":6,"gbk":1,"eb":4,"ebk":1,"fs":[1,2]}],"ftbl":["[root]","0x1: f (a.c:1)","main"]}"#;
        assert!(detects(file.as_bytes()));
        let profile = read(file.as_bytes()).unwrap();
        let amounts = profile.samples[0].amounts;
        assert_eq!(amounts.peak, Amount { blocks: 1, bytes: 6 });
        assert_eq!((amounts.allocated.bytes, amounts.end.bytes, amounts.lifetimes_ns), (10, 4, 3_000));
        assert_eq!((profile.duration_ns, profile.peak_ns, profile.pid), (9_000, 4_000, 7));
        assert_eq!(profile.locations[profile.samples[0].locations[1]].frames[0].function, "main");
    }

    #[test]
    fn damage_is_told() {
        assert_eq!(read(b"{\n \"dhatFileVersion\": x").unwrap_err().offset, 22);
        let wrong = read(br#"{"dhatFileVersion":2,"pps":[{"tb":1,"tbk":1,"fs":[3]}],"ftbl":[]}"#).unwrap_err();
        assert!(wrong.reason.contains("frame 3"), "{wrong}");
        assert!(read(br#"{"dhatFileVersion":1,"pps":[],"ftbl":[]}"#).is_err());
    }
}
