//! The sources of reports.

use std::fs::File;
use std::io::{self, Read};

use heapledger_profile_formats::chrome;
use heapledger_report_format::request::ReportsRequest;
use heapledger_report_format::{FILE_BYTES_MAX, Reports};

use super::url;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::import_format;
use crate::process::{self, DEADLINE, REPORTER_DEADLINE};

/// Reads the reports in a file, or asks a running process or a page for them; `-` is standard
/// input. If `is_anonymous`, a process is asked to leave out what its reporters have declared
/// private.
pub(super) fn read(source: &str, is_anonymous: bool) -> Result<Reports> {
    if let Some(pid) = process::number(source) {
        return parse(source, &of_process(pid, is_anonymous)?);
    }
    if let Some(answer) = url::ask(source, is_anonymous) {
        return parse(source, &answer?);
    }
    let cannot = |error: io::Error| {
        Failure::caused(Exit::Unreadable, format_args!("cannot read `{source}`"), error)
            .hint("`heapledger reports --help` says what can be read")
    };
    let bytes = match source {
        "-" => all_of(io::stdin().lock()),
        path => File::open(path).and_then(all_of),
    };
    parse(source, &bytes.map_err(cannot)?)
}

/// Asks a process for its report file, which includes the reports of its descendants.
fn of_process(pid: u32, anonymous: bool) -> Result<Vec<u8>> {
    let (reporter_deadline, deadline) = (REPORTER_DEADLINE, DEADLINE);
    let request = ReportsRequest { anonymous, mark: false, children: true, reporter_deadline, deadline };
    process::ask(pid, &request.to_line(), "the reports", FILE_BYTES_MAX)?.ok_or_else(|| {
        Failure::new(Exit::Unreadable, format_args!("process {pid} gives no memory reports"))
            .hint("it may have been built with another version of Heapledger; see docs/reporters.md")
    })
}

/// Reads at most one byte more than a report file may have, so that the caller sees if it is too
/// long.
fn all_of(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse(source: &str, bytes: &[u8]) -> Result<Reports> {
    let trace = import_format::unpacked(bytes).ok().filter(|bytes| chrome::detects(&bytes[..bytes.len().min(1 << 16)]));
    if let Some(trace) = trace {
        return chrome::reports(&trace)
            .map_err(|error| Failure::caused(Exit::Unreadable, format_args!("cannot read `{source}`"), error));
    }
    Reports::parse(bytes).map_err(|error| {
        Failure::caused(Exit::Unreadable, format_args!("`{source}` is no memory report file"), error)
            .hint("such a file is written by `heapledger reports save`, or by Firefox on its page about:memory")
    })
}
