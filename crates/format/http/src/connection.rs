//! One connection: bytes in, bytes out. The owner of the socket moves them.

use std::fmt;
use std::time::Duration;

use crate::message::{HttpRequest, HttpResponse};

/// The longest request line and headers together, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most headers of a request or an answer. Browsers send about fifteen.
pub(crate) const HEADERS_MAX: usize = 64;

/// The code that answers requests, wherever they come from.
pub trait Responder {
    /// Checks that the request may be made, regardless of its body.
    ///
    /// # Errors
    ///
    /// Fails with the answer to a request that may not be made.
    fn admit(&self, request: &HttpRequest<'_>) -> Result<(), HttpResponse>;

    /// Returns the largest body that is accepted for a request.
    fn body_bytes_max(&self, request: &HttpRequest<'_>) -> usize;

    /// Returns the answer to a request, after admitting it.
    fn answer(&self, request: &HttpRequest<'_>) -> HttpResponse;

    /// Returns the answer to a request if it takes time, while others are answered. `None`:
    /// [`answer`](Responder::answer) returns it at once.
    fn deferred(&self, _request: &HttpRequest<'_>) -> Option<DeferredAnswer> {
        None
    }
}

/// An answer that takes time.
pub struct DeferredAnswer {
    /// The time after the request at which the answer is to be made; earlier if the server ends.
    pub after: Duration,
    /// Makes the answer.
    pub finish: Box<dyn FnOnce() -> HttpResponse + Send>,
}

impl fmt::Debug for DeferredAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DeferredAnswer").field("after", &self.after).finish_non_exhaustive()
    }
}

/// One connection. It takes the bytes that were read, and has those that are to be written; it
/// answers one request after the other.
///
/// Its memory is bounded by the responder's largest body and its largest answer.
#[derive(Debug, Default)]
pub struct Connection {
    input: Vec<u8>,
    output: Vec<u8>,
    /// The number of bytes of `output` that were sent.
    bytes_sent: usize,
    /// True if nothing is read any more; the connection ends once everything is sent.
    is_closing: bool,
    /// The last request's answer, if it takes time.
    later: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    later: DeferredAnswer,
    is_head: bool,
    is_last: bool,
}

/// The kinds of bytes with which the input begins.
enum Step {
    /// Less than a request.
    Wait,
    /// A request of this length, and its answer.
    Answer(usize, Vec<u8>, bool),
    /// A request of this length, whose answer takes time.
    Deferred(usize, Waiting),
    /// Not a request, or one that is not accepted: nothing after it can be parsed.
    Refuse(HttpResponse),
}

impl Connection {
    /// Creates a connection on which nothing has been read.
    pub fn new() -> Connection {
        Connection::default()
    }

    /// True if more may be read: not while an answer is being made or sent.
    pub fn wants_input(&self) -> bool {
        !self.is_closing && self.later.is_none() && self.output().is_empty()
    }

    /// Takes the bytes that were read, and answers once they are a request.
    pub fn receive(&mut self, bytes: &[u8], responder: &impl Responder) {
        self.input.extend_from_slice(bytes);
        self.advance(responder);
    }

    /// Returns the bytes to be written.
    pub fn output(&self) -> &[u8] {
        &self.output[self.bytes_sent..]
    }

    /// Records that `count` bytes of the output were written. A request that was read before may be
    /// answered then.
    pub fn sent(&mut self, count: usize, responder: &impl Responder) {
        self.bytes_sent = self.output.len().min(self.bytes_sent + count);
        if self.output().is_empty() {
            self.output = Vec::new();
            self.bytes_sent = 0;
            self.advance(responder);
        }
    }

    /// True if the connection is over: close it.
    pub fn is_over(&self) -> bool {
        self.is_closing && self.output().is_empty()
    }

    /// Returns the time after its last request at which the answer is to be made, by
    /// [`finish`](Connection::finish). `None`: no answer is pending.
    pub fn answer_delay(&self) -> Option<Duration> {
        self.later.as_ref().map(|waiting| waiting.later.after)
    }

    /// Makes the pending answer, if there is one.
    pub fn finish(&mut self) {
        if let Some(Waiting { later, is_head, is_last }) = self.later.take() {
            self.output = (later.finish)().encode(is_head, is_last);
            self.is_closing = is_last;
        }
    }

    /// Sends this instead of the pending answer, and nothing after it.
    pub(crate) fn refuse(&mut self, response: &HttpResponse) {
        self.later = None;
        self.input = Vec::new();
        self.output = response.encode(false, true);
        self.is_closing = true;
    }

    fn advance(&mut self, responder: &impl Responder) {
        if !self.wants_input() {
            return;
        }
        match step(&self.input, responder) {
            Step::Wait => {}
            Step::Answer(length, output, is_last) => {
                self.take(length);
                self.output = output;
                self.is_closing = is_last;
            }
            Step::Deferred(length, waiting) => {
                self.take(length);
                self.later = Some(waiting);
            }
            Step::Refuse(response) => self.refuse(&response),
        }
    }

    /// Drops a request that was read.
    fn take(&mut self, length: usize) {
        self.input.drain(..length);
        if self.input.is_empty() {
            // Drops the buffer too: a file that was loaded is not kept twice.
            self.input = Vec::new();
        }
    }
}

fn step(input: &[u8], responder: &impl Responder) -> Step {
    let refuse = |status, why: &str| Step::Refuse(HttpResponse::text(status, why));
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
    let mut request = HttpRequest { method, target, headers: &headers, body: &[] };
    // If there were two, a proxy in front of this server may have looked at the other.
    if headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("Host")).count() > 1 {
        return refuse(400, "Host is there twice");
    }
    if request.header("Transfer-Encoding").is_some() {
        return refuse(411, "a body needs a Content-Length here");
    }
    // Two lengths are a means of request smuggling.
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
    // Checked before the body is read, so that nobody who may not ask can fill the memory.
    if let Err(response) = responder.admit(&request) {
        return Step::Refuse(response);
    }
    if body_bytes > responder.body_bytes_max(&request) {
        return refuse(413, "the body is too large");
    }
    let Some(body) = input.get(head_bytes..head_bytes + body_bytes) else { return Step::Wait };
    request.body = body;
    let options = request.header("Connection").unwrap_or_default();
    let is_last = version == 0 || options.split(',').any(|token| token.trim().eq_ignore_ascii_case("close"));
    let (length, is_head) = (head_bytes + body_bytes, method == "HEAD");
    match responder.deferred(&request) {
        Some(later) => Step::Deferred(length, Waiting { later, is_head, is_last }),
        None => Step::Answer(length, responder.answer(&request).encode(is_head, is_last), is_last),
    }
}
