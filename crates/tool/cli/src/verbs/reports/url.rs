//! Reports from a program that serves its page about:memory, by the page's address.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use heapledger_http::{HttpAnswer, HttpUrl, HttpUrlError, Timeouts, send_request};
use heapledger_report_format::FILE_BYTES_MAX;

use crate::error::{Failure, Result};
use crate::exit::Exit;

/// The program may be silent for a minute, in which it asks all its reporters, and its children;
/// the whole file may take any time.
const TIMEOUTS: Timeouts = Timeouts { step: Duration::from_secs(60), total: Duration::MAX };

/// Fetches the report file from the page at this address, which may also be the address of the
/// file. Returns `None` if it is not an address.
pub(super) fn ask(url: &str, is_anonymous: bool) -> Option<Result<Vec<u8>>> {
    if url.starts_with("https://") {
        let failure = Failure::new(Exit::Usage, format_args!("cannot read `{url}`: only http is spoken here"))
            .hint("`curl URL | heapledger reports show -`");
        return Some(Err(failure));
    }
    let cannot = |error: io::Error| {
        Failure::caused(Exit::Unreadable, format_args!("cannot read `{url}`"), error)
            .hint("give the address that the program printed, with all of its path; it may have ended since")
    };
    let server = match HttpUrl::parse(url) {
        Ok(server) => server,
        Err(HttpUrlError::NotHttp) => return None,
        Err(HttpUrlError::Port | HttpUrlError::NoHost) => return Some(Err(cannot(no_address()))),
    };
    let path = server.target.strip_prefix('/').unwrap_or_default();
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let (base, name) = path.rsplit_once('/').map_or(("", path), |(base, name)| (base, name));
    let separator = if base.is_empty() { "" } else { "/" };
    let path = match name {
        "" => format!("/{base}{separator}reports.json.gz"),
        name if name.contains('.') => format!("/{path}"),
        _ => format!("/{path}/reports.json.gz"),
    };
    let query = if is_anonymous { "?anonymous" } else { "" };
    Some(get(&server, &format!("{path}{query}")).map_err(cannot))
}

fn no_address() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "this is no address")
}

fn get(server: &HttpUrl, target: &str) -> io::Result<Vec<u8>> {
    let authority = &*server.authority;
    if [authority, target].iter().any(|text| text.contains(|c: char| c.is_control() || c == ' ')) {
        return Err(no_address());
    }
    let head = format!("GET {target} HTTP/1.0\r\nHost: {authority}\r\nAccept: application/gzip\r\n\r\n");
    body(send_request(server, &head, &[], TIMEOUTS))
}

/// Returns the body of a successful HTTP response.
fn body(answer: io::Result<HttpAnswer<impl Read>>) -> io::Result<Vec<u8>> {
    let mut answer = answer.map_err(|error| match error.kind() {
        ErrorKind::InvalidData => io::Error::new(error.kind(), "the answer is not that of a page about:memory"),
        _ => error,
    })?;
    let mut content = Vec::new();
    // A file that is too long is refused by those who read it.
    let is_cut_off = answer.by_ref().take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content)? > FILE_BYTES_MAX;
    match answer.status {
        200 if !is_cut_off && answer.content_length.is_some_and(|stated| stated != content.len() as u64) => {
            Err(ErrorKind::UnexpectedEof.into())
        }
        200 => Ok(content),
        status => {
            let why = String::from_utf8_lossy(&content[..content.len().min(200)]);
            let why = heapledger_report_format::escape(why.trim()).into_owned();
            Err(io::Error::other(format!("the program answered {status}: {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_body_or_says_why_not() {
        let body = |bytes: &[u8]| super::body(HttpAnswer::read(bytes));
        let good = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(body(good).unwrap(), b"abc");
        for length in 0..good.len() {
            assert!(body(&good[..length]).is_err(), "{length}");
        }
        let refused = body(b"HTTP/1.1 421 Misdirected Request\r\n\r\nnot by that name\x1b[2J\n").unwrap_err();
        assert_eq!(refused.to_string(), "the program answered 421: not by that name\\u{1b}[2J");
        assert!(body(b"220 smtp.example.org\r\n").is_err());
    }

    #[test]
    fn only_addresses_are_asked() {
        assert!(ask("reports.json.gz", false).is_none());
        assert!(ask("https://localhost/", false).is_some_and(|answer| answer.is_err()));
        assert!(ask("http://127.0.0.1:1/a b/", false).is_some_and(|answer| answer.is_err()));
    }
}
