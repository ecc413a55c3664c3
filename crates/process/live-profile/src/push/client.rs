//! The request that sends a profile.

use std::io::{self, Read};
use std::time::Duration;

use heapledger_http::{HttpAnswer, HttpUrl, HttpUrlError, Timeouts, send_request};

const TIMEOUTS: Timeouts = Timeouts { step: Duration::from_secs(10), total: Duration::from_secs(25) };
/// The number of bytes of an answer's body that are read, at most.
const BODY_BYTES_MAX: u64 = 16 << 10;

/// Returns the server at a URL of the form `http://HOST[:PORT][/PATH]`, without a slash at its end,
/// or the reason why there is none.
pub(super) fn server(url: &str) -> Result<HttpUrl, &'static str> {
    if url.starts_with("https://") {
        return Err("https:// is not spoken here; have an agent on this machine pass profiles on");
    }
    let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic()) && !url.contains(['?', '#', '@']);
    if url.starts_with("http://") && !is_plain {
        return Err("the address of a server is http://HOST[:PORT][/PATH]");
    }
    let mut server = HttpUrl::parse(url).map_err(|error| match error {
        HttpUrlError::NotHttp => "the address of a server begins with http://",
        HttpUrlError::Port => "the port of the server is no number up to 65535",
        HttpUrlError::NoHost => "the address of the server has no host",
    })?;
    server.target.truncate(server.target.trim_end_matches('/').len());
    Ok(server)
}

/// True if a header of this name may have this value.
pub(super) fn is_header(name: &str, value: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.bytes().all(is_name) && value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

/// A request to send.
pub(super) struct Post<'a> {
    pub(super) url: &'a HttpUrl,
    /// The path, appended to that of the URL.
    pub(super) path: &'a str,
    pub(super) content_type: &'a str,
    pub(super) headers: &'a [(String, String)],
    pub(super) body: &'a [u8],
}

/// Sends a request. Success means that the server has taken the profile.
pub(super) fn post(what: &Post<'_>) -> io::Result<()> {
    let Post { url, path, content_type, headers, body } = what;
    let mut head = format!(
        "POST {}{path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: heapledger/{}\r\nContent-Type: {content_type}\r\n\
         Content-Length: {}\r\nConnection: close\r\n",
        url.target,
        url.authority,
        env!("CARGO_PKG_VERSION"),
        body.len(),
    );
    for (name, value) in *headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    check(send_request(url, &head, body, TIMEOUTS)?)
}

/// Fails unless the answer says that the server took the profile.
fn check(mut answer: HttpAnswer<impl Read>) -> io::Result<()> {
    let mut body = Vec::new();
    // The status is known: after an error, the part of the body that was read counts.
    let _ = answer.by_ref().take(BODY_BYTES_MAX).read_to_end(&mut body);
    if (200..=299).contains(&answer.status) {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&body);
    let why: String = body.lines().next().unwrap_or_default().chars().take(200).collect();
    Err(io::Error::other(format!("the server says: {} {}: {why}", answer.status, answer.reason)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers() {
        let target = |text: &str| server(text).map(|server| server.target);
        assert_eq!((target("http://a"), target("http://a:4040/b/")), (Ok("".into()), Ok("/b".into())));
        for wrong in
            ["https://a", "a:80", "http://", "http://a:b", "http://a b", "http://a/?q", "http://a\r\nb", "http://u@a"]
        {
            assert!(server(wrong).is_err(), "{wrong}");
        }
        assert!(is_header("X-Scope-OrgID", "a b") && !is_header("X", "a\r\nb") && !is_header("", "a"));
    }

    #[test]
    fn answers_of_servers() {
        let check = |bytes: &[u8]| HttpAnswer::read(bytes).and_then(super::check);
        assert!(check(b"HTTP/1.1 200 OK\r\n\r\n").is_ok() && check(b"HTTP/1.0 204 No Content\r\n\r\n").is_ok());
        let refused = check(b"HTTP/1.1 422 Unprocessable Entity\r\nA: b\r\n\r\nwhat is that?\nnothing").unwrap_err();
        assert_eq!(refused.to_string(), "the server says: 422 Unprocessable Entity: what is that?");
        assert!(check(b"SSH-2.0\r\n").is_err() && check(b"").is_err() && check(b"HTTP/1.1 \xff").is_err());
    }
}
