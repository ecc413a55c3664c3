//! HTTP/1.1 between a browser and a [`Handler`]: bytes in, bytes out. Whoever has the socket moves them.

use std::borrow::Cow;
use std::fmt::Write;

use crate::handler::Handler;

/// The longest beginning of a request: its first line and its headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Browsers send about fifteen.
const HEADERS_MAX: usize = 64;

/// What somebody wants.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `GET`, `HEAD` or `POST`; others are refused.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// Names, in any case, and values.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// At most [`Handler::body_bytes_max`] for the target.
    pub body: &'a [u8],
}

/// What they get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// A status of HTTP.
    pub status: u16,
    /// Without `Content-Length`.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    /// To be left out where the method was `HEAD`.
    pub body: Cow<'static, [u8]>,
}

/// One connection. It takes what was read, and has what is to be written; it answers one request after the other.
///
/// Its memory is bounded by the handler's largest body and its largest answer.
#[derive(Debug, Default)]
pub struct Connection {
    input: Vec<u8>,
    output: Vec<u8>,
    /// Of `output`.
    bytes_sent: usize,
    /// Nothing is read any more, and the connection ends once all is sent.
    is_closing: bool,
}

impl<'a> Request<'a> {
    /// The first header of this name, if it is text.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value).ok()
    }

    /// The path without the query.
    pub fn path(&self) -> &'a str {
        self.target.split_once('?').map_or(self.target, |(path, _)| path)
    }

    /// A parameter of the query, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.into_iter().find(|(other, _)| *other == name).map(|(_, value)| decode(value))
    }
}

/// Text as it stood before it became part of a query. What is no text becomes replacement characters.
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

impl Response {
    pub(crate) fn new(status: u16, content_type: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Response {
        Response { status, headers: vec![("Content-Type", content_type.into())], body: body.into() }
    }

    /// One line that says what is wrong.
    pub fn text(status: u16, text: impl Into<String>) -> Response {
        let mut text = text.into();
        text.push('\n');
        Response::new(status, "text/plain; charset=utf-8", text.into_bytes())
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Response {
        self.headers.push((name, value.into()));
        self
    }

    /// Its bytes on the wire.
    fn encode(&self, is_head: bool, is_last: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
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
            // A line break in a value would begin a header of somebody else's making.
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

/// What the input begins with.
enum Step {
    /// Less than a request.
    Wait,
    /// A request of this length, and its answer.
    Answer(usize, Vec<u8>, bool),
    /// No request, or none that is taken: nothing after it can be understood.
    Refuse(Response),
}

impl Connection {
    /// A connection on which nothing has been read.
    pub fn new() -> Connection {
        Connection::default()
    }

    /// Whether more may be read: not while an answer is being sent.
    pub fn wants_input(&self) -> bool {
        !self.is_closing && self.output().is_empty()
    }

    /// Takes what was read, and answers once it is a request.
    pub fn receive(&mut self, bytes: &[u8], handler: &Handler) {
        self.input.extend_from_slice(bytes);
        self.advance(handler);
    }

    /// What is to be written.
    pub fn output(&self) -> &[u8] {
        &self.output[self.bytes_sent..]
    }

    /// Says that so many bytes of the output were written. A request that was read before may be answered then.
    pub fn sent(&mut self, count: usize, handler: &Handler) {
        self.bytes_sent = self.output.len().min(self.bytes_sent + count);
        if self.output().is_empty() {
            self.output = Vec::new();
            self.bytes_sent = 0;
            self.advance(handler);
        }
    }

    /// Whether it is over: close it.
    pub fn is_over(&self) -> bool {
        self.is_closing && self.output().is_empty()
    }

    /// Whether a request has begun and not ended: such a one may not take for ever.
    pub fn is_in_request(&self) -> bool {
        !self.input.is_empty()
    }

    fn advance(&mut self, handler: &Handler) {
        if !self.wants_input() {
            return;
        }
        match step(&self.input, handler) {
            Step::Wait => {}
            Step::Answer(length, output, is_last) => {
                self.input.drain(..length);
                if self.input.is_empty() {
                    // A file that was loaded is not kept twice.
                    self.input = Vec::new();
                }
                self.output = output;
                self.is_closing = is_last;
            }
            Step::Refuse(response) => {
                self.input = Vec::new();
                self.output = response.encode(false, true);
                self.is_closing = true;
            }
        }
    }
}

fn step(input: &[u8], handler: &Handler) -> Step {
    let refuse = |status, why: &str| Step::Refuse(Response::text(status, why));
    let mut space = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut space);
    let head_bytes = match head.parse(input) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
        Ok(httparse::Status::Partial) if input.len() < HEAD_BYTES_MAX => return Step::Wait,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return refuse(431, "the request's headers are too long"),
        Err(error) => return refuse(400, &format!("this is no request of HTTP/1.1: {error}")),
    };
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return refuse(400, "this is no request of HTTP/1.1");
    };
    let headers: Vec<(&str, &[u8])> = head.headers.iter().map(|header| (header.name, header.value)).collect();
    let mut request = Request { method, target, headers: &headers, body: &[] };
    if request.header("Transfer-Encoding").is_some() {
        return refuse(411, "a body needs a Content-Length here");
    }
    // Two lengths are how one request is smuggled in another.
    let mut lengths = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("Content-Length"));
    let body_bytes = match (lengths.next(), lengths.next()) {
        (None, _) => 0,
        (Some((_, length)), None) => {
            let digits = std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            match digits.and_then(|digits| digits.parse::<usize>().ok()) {
                Some(length) => length,
                None => return refuse(400, "Content-Length is no number"),
            }
        }
        _ => return refuse(400, "Content-Length is there twice"),
    };
    // Before the body is read: whoever may not ask does not fill our memory either.
    if let Err(response) = handler.admit(&request) {
        return Step::Refuse(response);
    }
    if body_bytes > handler.body_bytes_max(&request) {
        return refuse(413, "the body is too large");
    }
    let Some(body) = input.get(head_bytes..head_bytes + body_bytes) else { return Step::Wait };
    request.body = body;
    let response = handler.answer(&request);
    let wish = request.header("Connection").unwrap_or_default();
    let is_last = version == 0 || wish.split(',').any(|token| token.trim().eq_ignore_ascii_case("close"));
    Step::Answer(head_bytes + body_bytes, response.encode(method == "HEAD", is_last), is_last)
}
