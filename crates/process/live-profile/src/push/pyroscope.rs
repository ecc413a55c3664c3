//! The body of Pyroscope's `POST /ingest`: a form with a profile and a description of its sample
//! types.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use heapledger_profile_formats::{Profile, pprof};

/// The boundary between the parts of the form. A compressed profile contains it by chance with
/// negligible probability.
const BOUNDARY: &str = "heapledger-6b8f0c1d5e9a47d2b3f4a1c07d2e8b95";
const CONTENT_TYPE: &str = "multipart/form-data; boundary=heapledger-6b8f0c1d5e9a47d2b3f4a1c07d2e8b95";

/// Allocated amounts are differences, which add up over time; live amounts are averaged.
const SAMPLE_TYPES: &str = r#"{"alloc_objects":{"units":"objects"},"alloc_space":{"units":"bytes"},"inuse_objects":{"units":"objects","aggregation":"average"},"inuse_space":{"units":"bytes","aggregation":"average"}}"#;

/// Writes the body, and returns its content type.
pub(super) fn write(profile: &Profile, out: &mut Vec<u8>) -> io::Result<&'static str> {
    part(out, "sample_type_config", "sample_type_config.json")?;
    out.write_all(SAMPLE_TYPES.as_bytes())?;
    out.write_all(b"\r\n")?;
    part(out, "profile", "profile.pprof")?;
    pprof::write(profile, out)?;
    write!(out, "\r\n--{BOUNDARY}--\r\n")?;
    Ok(CONTENT_TYPE)
}

fn part(out: &mut Vec<u8>, name: &str, file: &str) -> io::Result<()> {
    let disposition = format!("Content-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"");
    write!(out, "--{BOUNDARY}\r\n{disposition}\r\nContent-Type: application/octet-stream\r\n\r\n")
}

/// Returns path and query for a profile of the time from one moment to another, since the UNIX
/// epoch.
///
/// There is no `format` in it: with `pprof` there, a server takes the whole body for a profile, and
/// finds no form.
pub(super) fn path(name: &str, labels: &[(String, String)], from: Duration, until: Duration) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let name = if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) };
    // Whole seconds, at least one.
    let (from, until) = (from.as_secs(), until.as_secs().max(from.as_secs() + 1));
    format!("/ingest?name={}&from={from}&until={until}&spyName=heapledger", encoded(&name))
}

/// Encodes a text for a query.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            // A string takes everything.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_name_labels_and_time() {
        let labels = [("env".to_owned(), "a b".to_owned())];
        let second = Duration::from_secs;
        assert_eq!(
            path("shop", &labels, second(7), second(7)),
            "/ingest?name=shop%7Benv%3Da%20b%7D&from=7&until=8&spyName=heapledger"
        );
        assert!(CONTENT_TYPE.ends_with(BOUNDARY));
    }
}
