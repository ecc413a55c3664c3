//! Where reports come from.

use std::fs::File;
use std::io::{self, Read};

use heapledger_reports::{FILE_BYTES_MAX, Reports};

use super::{process, url};
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// The reports of a file, of a running process, or of a page; `-` is standard input. A process may be asked to leave out what its
/// reporters have declared private.
pub(super) fn read(source: &str, is_anonymous: bool) -> Result<Reports> {
    if let Some(pid) = process::number(source) {
        return parse(source, &process::ask(pid, is_anonymous)?);
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

/// What was read, as far as it can be a report file.
fn all_of(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse(source: &str, bytes: &[u8]) -> Result<Reports> {
    Reports::parse(bytes).map_err(|error| {
        Failure::caused(Exit::Unreadable, format_args!("`{source}` is no memory report file"), error)
            .hint("such a file is written by `heapledger reports save`, or by Firefox on its page about:memory")
    })
}
