//! Requests and responses.

use std::borrow::Cow;
use std::fmt::Write;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    /// `GET`, `HEAD` or `POST`; others are refused.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The names, in any case, and the values.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body, of at most [`Responder::body_bytes_max`](crate::Responder::body_bytes_max) bytes
    /// for the target.
    pub body: &'a [u8],
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// The headers without `Content-Length`.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    /// The body, left out if the method was `HEAD`.
    pub body: Cow<'static, [u8]>,
}

impl<'a> HttpRequest<'a> {
    /// Returns the first header with this name, if it is text.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value).ok()
    }

    /// Returns the requested host, if exactly one is named.
    pub fn host(&self) -> Option<&'a str> {
        let hosts = self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("Host")).count();
        if hosts == 1 { self.header("Host") } else { None }
    }

    /// Returns the path without the query.
    pub fn path(&self) -> &'a str {
        self.target.split_once('?').map_or(self.target, |(path, _)| path)
    }

    /// True if a page of another origin has the browser make this request.
    pub fn is_foreign(&self) -> bool {
        match (self.header("Sec-Fetch-Site"), self.header("Origin")) {
            (Some(site), _) if self.method == "POST" => site != "same-origin",
            // Following a link from elsewhere does no harm; loading this as an image or a script
            // might.
            (Some(site), _) => {
                !["same-origin", "none"].contains(&site) && self.header("Sec-Fetch-Mode") != Some("navigate")
            }
            (None, Some(origin)) => {
                let host = origin.split_once("://").map(|(_, host)| host);
                host.is_none() || host != self.header("Host")
            }
            (None, None) => false,
        }
    }

    /// Returns a parameter of the query, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.into_iter().find(|(other, _)| *other == name).map(|(_, value)| decode(value))
    }
}

/// Decodes text from a query. Bytes that are not valid text become replacement characters.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits = || Some(char::from(*after.first()?).to_digit(16)? * 16 + char::from(*after.get(1)?).to_digit(16)?);
        match (byte, digits()) {
            (b'+', _) => bytes.push(b' '),
            (b'%', Some(decoded)) => {
                bytes.push(decoded as u8);
                rest = &after[2..];
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl HttpResponse {
    /// Creates a response with this status and body.
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Cow<'static, [u8]>>) -> HttpResponse {
        HttpResponse { status, headers: vec![("Content-Type", content_type.into())], body: body.into() }
    }

    /// Creates a response with one line that says what is wrong.
    pub fn text(status: u16, text: impl Into<String>) -> HttpResponse {
        let mut text = text.into();
        text.push('\n');
        HttpResponse::new(status, "text/plain; charset=utf-8", text.into_bytes())
    }

    /// Returns the response with one more header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> HttpResponse {
        self.headers.push((name, value.into()));
        self
    }

    /// Returns its bytes on the wire.
    pub(crate) fn encode(&self, is_head: bool, is_last: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            204 => "No Content",
            308 => "Permanent Redirect",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            410 => "Gone",
            411 => "Length Required",
            413 => "Content Too Large",
            415 => "Unsupported Media Type",
            421 => "Misdirected Request",
            422 => "Unprocessable Content",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            503 => "Service Unavailable",
            _ => "Internal Server Error",
        };
        let mut head = format!("HTTP/1.1 {} {reason}\r\n", self.status);
        for (name, value) in &self.headers {
            // A line break in a value would let an attacker begin a header.
            let value: String = value.chars().filter(|character| !character.is_control()).collect();
            _ = write!(head, "{name}: {value}\r\n");
        }
        let connection = if is_last { "close" } else { "keep-alive" };
        _ = write!(head, "Content-Length: {}\r\nConnection: {connection}\r\n\r\n", self.body.len());
        let mut bytes = head.into_bytes();
        if !is_head {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}
