//! Report files, version 1: JSON, most often gzipped. Firefox writes and reads the same.
//!
//! ```json
//! {
//!   "version": 1,
//!   "hasMozMallocUsableSize": true,
//!   "reports": [
//!     {"process": "redis (pid 12)", "path": "explicit/cache/keys", "kind": 1, "units": 0, "amount": 4096,
//!      "description": "Keys.", "stable_path": "explicit/cache/keys"}
//!   ]
//! }
//! ```
//!
//! `stable_path` is ours. It is present only if it differs from the path, and Firefox ignores it. A
//! crash report of Firefox has the whole object as its `memory_report`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::report::{Invalid, Kind, MAIN_PROCESS, Report, Reports, Unit};

/// The version that is read and written.
const VERSION: f64 = 1.0;

/// The most that a file may hold when unpacked, in bytes. Files of a browser with a hundred tabs
/// have a tenth of it.
pub const FILE_BYTES_MAX: usize = 256 << 20;

/// The most names that all paths of a file may have: a node of a tree can take a hundred times the
/// memory of its name.
const NAMES_MAX: usize = 8 << 20;

/// The reason why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The position in the text, after it was unpacked.
    pub offset: Option<usize>,
    /// The reason, in a few words.
    pub reason: String,
}

impl std::error::Error for FileError {}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "{} (at byte {offset})", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl From<Invalid> for FileError {
    fn from(invalid: Invalid) -> FileError {
        FileError { offset: None, reason: invalid.to_string() }
    }
}

impl Reports {
    /// Parses a report file, gzipped or not.
    ///
    /// Takes no more memory than a small multiple of [`FILE_BYTES_MAX`], whatever the file says.
    ///
    /// # Errors
    ///
    /// Fails if it is not such a file, or has [reports that cannot be shown](Reports::check).
    pub fn parse(bytes: &[u8]) -> Result<Reports, FileError> {
        let text = if bytes.starts_with(&[0x1f, 0x8b]) { Cow::Owned(unpack(bytes)?) } else { Cow::Borrowed(bytes) };
        if text.len() > FILE_BYTES_MAX {
            return Err(FileError { offset: None, reason: too_long() });
        }
        let body: Body = serde_json::from_slice(&text).map_err(|error| FileError {
            offset: Some(offset(&text, error.line(), error.column())),
            reason: reason(&error),
        })?;
        let reports = body.into_reports()?;
        reports.check()?;
        Ok(reports)
    }

    /// Returns the text of a report file, with a line for each report.
    pub fn to_json(&self) -> String {
        let mut text = format!(
            "{{\n  \"version\": {VERSION},\n  \"hasMozMallocUsableSize\": {},\n  \"reports\": [",
            self.has_usable_size
        );
        for (number, report) in self.reports.iter().enumerate() {
            text.push_str(if number == 0 { "\n    " } else { ",\n    " });
            // Texts and numbers can always be written.
            push_ascii(&serde_json::to_string(&Written::from(report)).unwrap_or_default(), &mut text);
        }
        text.push_str("\n  ]\n}\n");
        text
    }

    /// Returns the file, gzipped: a `.json.gz`.
    pub fn to_gzip(&self) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // Writing to memory cannot fail.
        let _ = encoder.write_all(self.to_json().as_bytes());
        encoder.finish().unwrap_or_default()
    }
}

/// Adds JSON with escapes for all characters other than ASCII, because Firefox garbles those in
/// gzipped files.
fn push_ascii(json: &str, text: &mut String) {
    for character in json.chars() {
        if character.is_ascii() {
            text.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = fmt::Write::write_fmt(text, format_args!("\\u{unit:04x}"));
            }
        }
    }
}

fn unpack(bytes: &[u8]) -> Result<Vec<u8>, FileError> {
    let mut text = Vec::new();
    let read = MultiGzDecoder::new(bytes).take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut text);
    match read {
        Ok(_) if text.len() > FILE_BYTES_MAX => Err(FileError { offset: None, reason: too_long() }),
        Ok(_) => Ok(text),
        Err(error) => Err(FileError { offset: Some(text.len()), reason: format!("the gzip data is damaged: {error}") }),
    }
}

fn too_long() -> String {
    format!("it has more than {} MiB unpacked", FILE_BYTES_MAX >> 20)
}

/// Returns the error without its position.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(reason, _)| reason.to_owned())
}

/// Returns the position of a line's column, both counted from 1.
fn offset(text: &[u8], line: usize, column: usize) -> usize {
    let before = text.split_inclusive(|&byte| byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len);
    before.sum::<usize>() + column.saturating_sub(1)
}

/// A report as it is written.
#[derive(Serialize)]
struct Written<'r> {
    process: &'r str,
    path: &'r str,
    kind: u8,
    units: u8,
    amount: i64,
    description: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    stable_path: Option<&'r str>,
}

impl<'r> From<&'r Report> for Written<'r> {
    fn from(report: &'r Report) -> Written<'r> {
        Written {
            process: if report.process.is_empty() { MAIN_PROCESS } else { &report.process },
            path: &report.path,
            kind: report.kind as u8,
            units: report.unit as u8,
            amount: report.amount,
            description: &report.description,
            stable_path: report.stable_path.as_deref().filter(|stable| **stable != *report.path),
        }
    }
}

/// The object that a file is.
#[derive(Default)]
struct Body {
    version: Option<Scalar>,
    has_usable_size: Option<Scalar>,
    reports: Option<List>,
    memory_report: Option<Box<Body>>,
}

impl Body {
    fn into_reports(self) -> Result<Reports, FileError> {
        let body = match self.memory_report {
            Some(inner) => *inner,
            None => self,
        };
        let missing = |reason: &str| FileError { offset: None, reason: reason.to_owned() };
        match body.version {
            Some(Scalar::Number(VERSION)) => {}
            Some(Scalar::Number(version)) => {
                return Err(missing(&format!("its version is {version}, not {VERSION}")));
            }
            _ => return Err(missing("it has no version number")),
        }
        let has_usable_size = match body.has_usable_size {
            None => return Err(missing("it has no `hasMozMallocUsableSize`")),
            Some(value) => value.is_true(),
        };
        match body.reports {
            Some(List::Reports(reports)) => Ok(Reports { reports, has_usable_size }),
            _ => Err(missing("it has no list of `reports`")),
        }
    }
}

/// A value, reduced to what matters here.
enum Scalar {
    Number(f64),
    Bool(bool),
    Text(bool),
    Null,
    Other,
}

impl Scalar {
    /// Evaluates it as a condition of JavaScript.
    fn is_true(&self) -> bool {
        match self {
            Scalar::Number(number) => *number != 0.0,
            Scalar::Bool(value) => *value,
            Scalar::Text(is_some) => *is_some,
            Scalar::Null => false,
            Scalar::Other => true,
        }
    }
}

/// The value of `reports`.
enum List {
    Reports(Vec<Report>),
    Other,
}

/// A report as it is read.
#[derive(Deserialize)]
struct Measured<'t> {
    #[serde(borrow)]
    process: Cow<'t, str>,
    #[serde(borrow)]
    path: Cow<'t, str>,
    kind: i64,
    units: i64,
    amount: Amount,
    #[serde(borrow)]
    description: Cow<'t, str>,
    #[serde(borrow, default)]
    stable_path: Option<Cow<'t, str>>,
}

/// A whole number, however it is written.
struct Amount(i64);

/// Texts that many reports have in common, each held once.
#[derive(Default)]
struct Texts(HashSet<Arc<str>>);

impl Texts {
    fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.0.get(text) {
            return shared.clone();
        }
        let shared: Arc<str> = text.into();
        self.0.insert(shared.clone());
        shared
    }
}

impl<'t> Deserialize<'t> for Body {
    fn deserialize<D: Deserializer<'t>>(from: D) -> Result<Body, D::Error> {
        from.deserialize_any(BodyVisitor { is_inner: false })
    }
}

struct BodyVisitor {
    /// True if it is the `memory_report` of another object.
    is_inner: bool,
}

impl<'t> DeserializeSeed<'t> for BodyVisitor {
    type Value = Body;

    fn deserialize<D: Deserializer<'t>>(self, from: D) -> Result<Body, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'t> Visitor<'t> for BodyVisitor {
    type Value = Body;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with memory reports")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Body, A::Error> {
        let mut body = Body::default();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match &*key {
                "version" => body.version = Some(map.next_value()?),
                "hasMozMallocUsableSize" => body.has_usable_size = Some(map.next_value()?),
                "reports" => body.reports = Some(map.next_value()?),
                "memory_report" if !self.is_inner => {
                    body.memory_report = Some(Box::new(map.next_value_seed(BodyVisitor { is_inner: true })?));
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(body)
    }
}

impl<'t> Deserialize<'t> for Scalar {
    fn deserialize<D: Deserializer<'t>>(from: D) -> Result<Scalar, D::Error> {
        struct ScalarVisitor;
        impl<'t> Visitor<'t> for ScalarVisitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(value as f64))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(value as f64))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar::Number(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(!value.is_empty()))
            }
            fn visit_unit<E>(self) -> Result<Scalar, E> {
                Ok(Scalar::Null)
            }
            fn visit_seq<A: SeqAccess<'t>>(self, mut list: A) -> Result<Scalar, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
            fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Scalar, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
        }
        from.deserialize_any(ScalarVisitor)
    }
}

impl<'t> Deserialize<'t> for List {
    fn deserialize<D: Deserializer<'t>>(from: D) -> Result<List, D::Error> {
        struct ListVisitor;
        impl<'t> Visitor<'t> for ListVisitor {
            type Value = List;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of reports")
            }
            fn visit_seq<A: SeqAccess<'t>>(self, mut list: A) -> Result<List, A::Error> {
                let mut texts = Texts::default();
                let mut reports = Vec::new();
                let mut names = 0;
                while let Some(read) = list.next_element::<Measured<'t>>()? {
                    names += 1 + read.path.bytes().filter(|&byte| byte == b'/').count();
                    if names > NAMES_MAX {
                        return Err(A::Error::custom(format!("all paths together have more than {NAMES_MAX} names")));
                    }
                    reports.push(report(&read, &mut texts).map_err(A::Error::custom)?);
                }
                Ok(List::Reports(reports))
            }
            // A crash report may have reports of another sort.
            fn visit_bool<E>(self, _: bool) -> Result<List, E> {
                Ok(List::Other)
            }
            fn visit_i64<E>(self, _: i64) -> Result<List, E> {
                Ok(List::Other)
            }
            fn visit_u64<E>(self, _: u64) -> Result<List, E> {
                Ok(List::Other)
            }
            fn visit_f64<E>(self, _: f64) -> Result<List, E> {
                Ok(List::Other)
            }
            fn visit_str<E>(self, _: &str) -> Result<List, E> {
                Ok(List::Other)
            }
            fn visit_unit<E>(self) -> Result<List, E> {
                Ok(List::Other)
            }
            fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<List, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(List::Other)
            }
        }
        from.deserialize_any(ListVisitor)
    }
}

fn report(read: &Measured<'_>, texts: &mut Texts) -> Result<Report, String> {
    let path = &read.path;
    Ok(Report {
        process: texts.share(&read.process),
        path: texts.share(path),
        stable_path: read.stable_path.as_deref().map(|stable| texts.share(stable)),
        kind: Kind::from_number(read.kind).ok_or_else(|| format!("`{path}` has a bad kind, {}", read.kind))?,
        unit: Unit::from_number(read.units).ok_or_else(|| format!("`{path}` has bad units, {}", read.units))?,
        amount: read.amount.0,
        description: texts.share(&read.description),
    })
}

impl<'t> Deserialize<'t> for Amount {
    fn deserialize<D: Deserializer<'t>>(from: D) -> Result<Amount, D::Error> {
        struct AmountVisitor;
        impl Visitor<'_> for AmountVisitor {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of 64 bits")
            }
            fn visit_i64<E>(self, value: i64) -> Result<Amount, E> {
                Ok(Amount(value))
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Amount, E> {
                i64::try_from(value).map(Amount).map_err(|_| E::custom(format!("{value} is more than 63 bits")))
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Amount, E> {
                // Numbers from 2^63 on would not fit.
                if value.trunc() == value && (-(2f64.powi(63))..2f64.powi(63)).contains(&value) {
                    Ok(Amount(value as i64))
                } else {
                    Err(E::custom(format!("{value} is no whole number of 64 bits")))
                }
            }
        }
        from.deserialize_any(AmountVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Reports {
        let report = |process: &str, path: &str, stable: Option<&str>, amount| Report {
            process: process.into(),
            path: path.into(),
            stable_path: stable.map(Into::into),
            kind: Kind::Heap,
            unit: Unit::Bytes,
            amount,
            description: "What \"this\" is\n.".into(),
        };
        Reports {
            reports: vec![
                report("a (pid 1)", "explicit/x/y\\z", None, 7),
                report("b (pid 2)", "explicit/naïve/名", Some("explicit/NNN"), i64::MIN),
            ],
            has_usable_size: true,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let reports = sample();
        assert_eq!(Reports::parse(reports.to_json().as_bytes()), Ok(reports.clone()));
        assert_eq!(Reports::parse(&reports.to_gzip()), Ok(reports.clone()));
        assert!(reports.to_json().is_ascii());
        let none = Reports::default();
        assert_eq!(Reports::parse(none.to_json().as_bytes()), Ok(none));
    }

    #[test]
    fn a_crash_report_has_it_inside() {
        let json = format!(
            "{{\"version\": \"9\", \"reports\": {{}}, \"memory_report\": {}, \"x\": [[1]]}}",
            sample().to_json()
        );
        assert_eq!(Reports::parse(json.as_bytes()), Ok(sample()));
    }

    #[test]
    fn errors_have_a_position_and_a_reason() {
        let error = |json: &str| Reports::parse(json.as_bytes()).unwrap_err().to_string();
        let report = |path: &str, kind: u8, units: u8, amount: &str| {
            format!(
                "{{\"version\":1,\"hasMozMallocUsableSize\":true,\"reports\":[\n{{\"process\":\"\",\"path\":\"{path}\",\
                 \"kind\":{kind},\"units\":{units},\"amount\":{amount},\"description\":\"\"}}]}}"
            )
        };
        assert_eq!(error(""), "EOF while parsing a value (at byte 0)");
        assert_eq!(error("[]"), "invalid type: sequence, expected an object with memory reports (at byte 1)");
        assert_eq!(error("{}"), "it has no version number");
        assert_eq!(error("{\"version\":\"1\"}"), "it has no version number");
        assert_eq!(error("{\"version\":2}"), "its version is 2, not 1");
        assert_eq!(error("{\"version\":1}"), "it has no `hasMozMallocUsableSize`");
        assert_eq!(error("{\"version\":1,\"hasMozMallocUsableSize\":0,\"reports\":{}}"), "it has no list of `reports`");
        assert_eq!(error(&report("x", 3, 0, "1")), "`x` has a bad kind, 3 (at byte 127)");
        assert_eq!(error(&report("x", 0, 4, "1")), "`x` has bad units, 4 (at byte 127)");
        assert_eq!(error(&report("explicit/x", 2, 0, "1")), "`explicit/x` is neither on the heap nor off it");
        assert_eq!(error(&report("explicit/x", 1, 1, "1")), "`explicit/x` is not in bytes");
        assert!(error(&report("x", 0, 0, "1.5")).starts_with("1.5 is no whole number of 64 bits"));
        assert!(
            error(&report("x", 0, 0, "9223372036854775808")).starts_with("9223372036854775808 is more than 63 bits")
        );
        assert!(error(&report("x", 0, 0, "1e400")).starts_with("number out of range"));
        let amount = |text: &str| Reports::parse(report("x", 0, 0, text).as_bytes()).unwrap().reports[0].amount;
        assert_eq!((amount("1e3"), amount("-0"), amount("-9223372036854775808")), (1000, 0, i64::MIN));
    }

    #[test]
    fn a_few_bytes_do_not_make_much_of_a_tree() {
        let path = vec!["a"; 1 << 20].join("/");
        let report = format!(r#"{{"process":"","path":"{path}","kind":0,"units":0,"amount":1,"description":""}}"#);
        let json = |count| {
            let reports = vec![&*report; count].join(",");
            format!(r#"{{"version":1,"hasMozMallocUsableSize":true,"reports":[{reports}]}}"#)
        };
        assert_eq!(Reports::parse(json(8).as_bytes()).unwrap().reports.len(), 8);
        let error = Reports::parse(json(9).as_bytes()).unwrap_err();
        assert_eq!(error.reason, "all paths together have more than 8388608 names");
    }

    #[test]
    fn a_gzip_bomb_is_no_danger() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let megabyte = vec![b' '; 1 << 20];
        for _ in 0..=FILE_BYTES_MAX >> 20 {
            encoder.write_all(&megabyte).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        assert_eq!(Reports::parse(&bomb).unwrap_err().reason, "it has more than 256 MiB unpacked");
        let mut cut = sample().to_gzip();
        cut.truncate(cut.len() / 2);
        assert!(Reports::parse(&cut).unwrap_err().reason.starts_with("the gzip data is damaged"));
    }
}
