//! One HTTP/1.1 request on a connection of its own, with timeouts for all steps.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use heapledger_http::{HttpUrl, HttpUrlError};

/// The timeout for connecting, and for each step after that.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for the whole request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(25);
/// The number of bytes of an answer that are read, at most.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// A URL of the form `http://HOST[:PORT][/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    /// Host and port, for the header `Host`.
    authority: String,
    /// The host to connect to.
    host: String,
    port: u16,
    /// The path without a slash at its end.
    path: String,
}

impl Url {
    /// # Errors
    ///
    /// Why not.
    pub(super) fn parse(text: &str) -> Result<Url, &'static str> {
        if text.starts_with("https://") {
            return Err("https:// is not spoken here; have an agent on this machine pass profiles on");
        }
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains(['?', '#', '@']);
        if text.starts_with("http://") && !is_plain {
            return Err("the address of a server is http://HOST[:PORT][/PATH]");
        }
        let HttpUrl { authority, host, port, target } = HttpUrl::parse(text).map_err(|error| match error {
            HttpUrlError::NotHttp => "the address of a server begins with http://",
            HttpUrlError::Port => "the port of the server is no number up to 65535",
            HttpUrlError::NoHost => "the address of the server has no host",
        })?;
        let path = target.trim_end_matches('/').to_owned();
        Ok(Url { authority: authority.to_owned(), host: host.to_owned(), port, path })
    }
}

/// True if a header of this name may have this value.
pub(super) fn is_header(name: &str, value: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.bytes().all(is_name) && value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

/// A request to send.
pub(super) struct Post<'a> {
    pub(super) url: &'a Url,
    /// The path, appended to that of the URL.
    pub(super) path: &'a str,
    pub(super) content_type: &'a str,
    pub(super) headers: &'a [(String, String)],
    pub(super) body: &'a [u8],
}

/// Sends a request. Success means that the server has taken the profile.
pub(super) fn post(what: &Post<'_>) -> io::Result<()> {
    let Post { url, path, content_type, headers, body } = what;
    let until = Instant::now() + REQUEST_TIMEOUT;
    let mut stream = connect(url)?;
    stream.set_write_timeout(Some(STEP_TIMEOUT))?;
    let mut head = format!(
        "POST {}{path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: heapledger/{}\r\nContent-Type: {content_type}\r\n\
         Content-Length: {}\r\nConnection: close\r\n",
        url.path,
        url.authority,
        env!("CARGO_PKG_VERSION"),
        body.len(),
    );
    for (name, value) in *headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    for piece in body.chunks(64 << 10) {
        if Instant::now() > until {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.write_all(piece)?;
    }
    check(&answer(&mut stream, until)?)
}

fn connect(url: &Url) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the server's name leads nowhere");
    // Two at most: a name may have many addresses.
    for address in (&*url.host, url.port).to_socket_addrs()?.take(2) {
        match TcpStream::connect_timeout(&address, STEP_TIMEOUT / 2) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the beginning of the server's answer.
fn answer(stream: &mut TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let (mut answer, mut bytes) = (Vec::new(), [0; 4096]);
    while answer.len() < ANSWER_BYTES_MAX {
        let left = until.saturating_duration_since(Instant::now()).min(STEP_TIMEOUT);
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // After a whole head, an error ends the answer: the part that was read counts.
            Err(_) if has_head(&answer) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

fn has_head(answer: &[u8]) -> bool {
    answer.windows(4).any(|four| four == b"\r\n\r\n")
}

/// Fails unless the answer says that the server took the profile.
fn check(answer: &[u8]) -> io::Result<()> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let line = head.lines().next().unwrap_or_default();
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse::<u16>().ok());
    match status {
        Some(200..=299) => Ok(()),
        Some(_) => {
            let why: String = body.lines().next().unwrap_or_default().chars().take(200).collect();
            Err(io::Error::other(format!("the server says: {}: {why}", line.get(9..).unwrap_or(line))))
        }
        None => Err(io::Error::new(ErrorKind::InvalidData, "the server does not speak HTTP/1.1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers() {
        let parts = |text: &str| Url::parse(text).map(|url| (url.host, url.port, url.path, url.authority));
        let url =
            |host: &str, port, path: &str, authority: &str| Ok((host.into(), port, path.into(), authority.into()));
        assert_eq!(parts("http://a"), url("a", 80, "", "a"));
        assert_eq!(parts("http://a:4040/b/"), url("a", 4040, "/b", "a:4040"));
        assert_eq!(parts("http://[::1]:4318"), url("::1", 4318, "", "[::1]:4318"));
        assert_eq!(parts("http://[::1]/x"), url("::1", 80, "/x", "[::1]"));
        for wrong in
            ["https://a", "a:80", "http://", "http://a:b", "http://a b", "http://a/?q", "http://a\r\nb", "http://u@a"]
        {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
        assert!(is_header("X-Scope-OrgID", "a b") && !is_header("X", "a\r\nb") && !is_header("", "a"));
    }

    #[test]
    fn answers_of_servers() {
        assert!(check(b"HTTP/1.1 200 OK\r\n\r\n").is_ok() && check(b"HTTP/1.0 204 No Content\r\n\r\n").is_ok());
        let refused = check(b"HTTP/1.1 422 Unprocessable Entity\r\nA: b\r\n\r\nwhat is that?\nnothing").unwrap_err();
        assert_eq!(refused.to_string(), "the server says: 422 Unprocessable Entity: what is that?");
        assert!(check(b"SSH-2.0\r\n").is_err() && check(b"").is_err() && check(b"HTTP/1.1 \xff").is_err());
    }
}
