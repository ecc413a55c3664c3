//! The addresses of the server, and who may ask for them.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use heapledger_http::{Hosts, strip_base};
use http_body_util::channel::Channel;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Error, Method, Request, Response, StatusCode};
use serde_json::json;

use crate::answer::AnswerError;
use crate::assets;
use crate::events;
use crate::jobs::{Asked, Form, Jobs, Pending, UNEXPECTED};
use crate::question::Question;
use crate::reply::{JSON, Outcome};

/// The time that a client waits for an answer before it gets the number of the job instead.
const PATIENCE: Duration = Duration::from_millis(80);

/// The code of requests that the server refuses.
const REFUSED: &str = "HL0134";

/// The header with the notes to an answer: a JSON list of texts, in ASCII.
const NOTES: &str = "heapledger-notes";

/// The body of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, Error>;

/// The policy for the page's contents: it loads its own files, and nothing else. Texts become no
/// code, even if the page puts them where code is expected.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; \
                      img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

/// The addresses of a server.
#[derive(Debug)]
pub(crate) struct Router {
    /// The secret path: `/TOKEN`.
    pub(crate) base: String,
    /// Another path, which leads to the secret one, once.
    pub(crate) once: Mutex<Option<String>>,
    pub(crate) jobs: Arc<Jobs>,
}

impl Router {
    /// Answers a request. Its body is not read.
    pub(crate) async fn respond<B>(&self, request: Request<B>) -> Result<Response<Body>, Infallible> {
        let mut response = self.answer(&request.into_parts().0).await;
        let headers = response.headers_mut();
        for (name, value) in [
            ("cache-control", "no-store"),
            ("content-security-policy", POLICY),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("referrer-policy", "no-referrer"),
            ("x-content-type-options", "nosniff"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Ok(response)
    }

    async fn answer(&self, request: &hyper::http::request::Parts) -> Response<Body> {
        let host = text(&request.headers, header::HOST);
        if !host.is_some_and(|host| Hosts::Loopback.allow(host)) {
            return refused(StatusCode::FORBIDDEN, "the header Host does not name this machine's loopback");
        }
        if self.is_first_visit(request) {
            return moved(StatusCode::SEE_OTHER, &format!("{}/", self.base));
        }
        let Some(path) = strip_base(&self.base, request.uri.path()) else {
            return refused(StatusCode::NOT_FOUND, "there is nothing at this address");
        };
        let Some(path) = path.strip_prefix('/') else {
            return moved(StatusCode::PERMANENT_REDIRECT, &format!("{}/", self.base));
        };
        let (path, is_api) = path.strip_prefix("api/").map_or((path, false), |path| (path, true));
        if is_api && !is_of_this_page(&request.headers, host.unwrap_or_default()) {
            return refused(StatusCode::FORBIDDEN, "the request comes from another page");
        }
        match request.method {
            Method::GET | Method::DELETE if is_api => self.api(request, path).await,
            Method::GET | Method::HEAD if !is_api => match assets::find(path) {
                Some(asset) => with_type(StatusCode::OK, asset.media_type, Bytes::from_static(asset.bytes)),
                None => refused(StatusCode::NOT_FOUND, "there is nothing at this address"),
            },
            _ => refused(StatusCode::METHOD_NOT_ALLOWED, "this address does not take this method"),
        }
    }

    /// True if a browser comes by the path that leads here once. From then on that path leads
    /// nowhere.
    fn is_first_visit(&self, request: &hyper::http::request::Parts) -> bool {
        let mut once = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        let is_visit = once.as_ref().is_some_and(|once| strip_base(once, request.uri.path()) == Some("/"));
        is_visit && request.method == Method::GET && once.take().is_some()
    }

    async fn api(&self, request: &hyper::http::request::Parts, path: &str) -> Response<Body> {
        let (is_get, query) = (request.method == Method::GET, request.uri.query().unwrap_or_default());
        let accepts_gzip = text(&request.headers, header::ACCEPT_ENCODING).is_some_and(accepts_gzip);
        match path.split_once('/').unwrap_or((path, "")) {
            ("job", number) => match number.parse().ok() {
                Some(number) if is_get => match self.jobs.state_of(number) {
                    Some(asked) => self.wait(number, asked, accepts_gzip).await,
                    None => no_job(),
                },
                Some(number) if self.jobs.cancel(number) => empty(StatusCode::NO_CONTENT),
                _ => no_job(),
            },
            _ if !is_get => refused(StatusCode::METHOD_NOT_ALLOWED, "only jobs can be deleted"),
            ("session", "") => {
                let session = self.jobs.answer().session(&self.jobs.memory());
                with_type(StatusCode::OK, JSON, session.into())
            }
            ("events", "") => self.events(),
            ("columns", "") => self.ask("tree", query, Form::Columns, accepts_gzip).await,
            ("ask", verb) if !verb.is_empty() => self.ask(verb, query, Form::Json, accepts_gzip).await,
            _ => refused(StatusCode::NOT_FOUND, "there is nothing at this address"),
        }
    }

    async fn ask(&self, verb: &str, query: &str, form: Form, accepts_gzip: bool) -> Response<Body> {
        let question = match Question::parse(verb, query) {
            Ok(question) => question,
            Err(why) => return refused(StatusCode::URI_TOO_LONG, &why.to_string()),
        };
        match self.jobs.ask(question, form) {
            Ok(Some(asked)) => {
                let client = Client::of(&self.jobs, &asked);
                let response = self.wait(0, asked, accepts_gzip).await;
                client.stays();
                response
            }
            Ok(None) => {
                let why = "too many questions wait for an answer";
                failed(&AnswerError::new(503, REFUSED, why).hint("cancel some, or wait"))
            }
            Err(error) => {
                let mut failure = AnswerError::new(503, UNEXPECTED, "no thread can be started for the question");
                failure.causes.push(error.to_string());
                failed(&failure)
            }
        }
    }

    /// Waits a moment for the end of a job.
    async fn wait(&self, number: u64, asked: Asked, accepts_gzip: bool) -> Response<Body> {
        let Pending { job, work, mut finished } = match asked {
            Asked::Finished(outcome) => return finished_with(&outcome, accepts_gzip),
            Asked::AtWork(pending) => pending,
        };
        debug_assert!(number == 0 || number == job);
        // Nothing is ever sent: the end of the wait is the end of the job.
        let is_finished = tokio::time::timeout(PATIENCE, finished.changed()).await.is_ok();
        if is_finished {
            return match self.jobs.state_of(job) {
                Some(Asked::Finished(outcome)) => finished_with(&outcome, accepts_gzip),
                _ => no_job(),
            };
        }
        let body = json!({"job": job.to_string(), "progress": work.progress()}).to_string();
        with_type(StatusCode::ACCEPTED, JSON, body.into())
    }

    fn events(&self) -> Response<Body> {
        let (sender, body) = Channel::new(1);
        tokio::spawn(events::send(Arc::clone(&self.jobs), sender));
        response(StatusCode::OK, "text/event-stream", body.boxed_unsync())
    }
}

/// A client that has asked a question, until it gets the number of the job or the answer. If its
/// connection ends before, the server drops the future of its response and so this value: nobody
/// else would cancel the job then.
struct Client<'j> {
    jobs: &'j Jobs,
    job: Option<u64>,
}

impl Client<'_> {
    fn of<'j>(jobs: &'j Jobs, asked: &Asked) -> Client<'j> {
        let job = match asked {
            Asked::Finished(_) => None,
            Asked::AtWork(pending) => Some(pending.job),
        };
        Client { jobs, job }
    }

    /// Leaves the job to the client, which cancels it by its number.
    fn stays(mut self) {
        self.job = None;
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.job {
            self.jobs.cancel(job);
        }
    }
}

/// True if a browser says that the page itself makes the request, or the user by an address; or if
/// it is not a browser.
fn is_of_this_page(headers: &HeaderMap, host: &str) -> bool {
    let origin = text(headers, header::ORIGIN);
    let site = text(headers, HeaderName::from_static("sec-fetch-site"));
    // A header that is no text is nobody's.
    let is_unreadable =
        |name: &str| headers.contains_key(name) && headers.get(name).is_some_and(|it| it.to_str().is_err());
    !is_unreadable("origin")
        && !is_unreadable("sec-fetch-site")
        && origin.is_none_or(|origin| origin.strip_prefix("http://") == Some(host))
        && site.is_none_or(|site| matches!(site, "same-origin" | "none"))
}

/// Returns a header's value, if it is text.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// True if a list of encodings has gzip, and does not exclude it.
fn accepts_gzip(list: &str) -> bool {
    list.split(',').any(|encoding| {
        let (name, quality) = encoding.split_once(';').unwrap_or((encoding, ""));
        let is_excluded = quality.trim().strip_prefix("q=").and_then(|it| it.parse::<f64>().ok()) == Some(0.0);
        name.trim().eq_ignore_ascii_case("gzip") && !is_excluded
    })
}

fn finished_with(outcome: &Outcome, accepts_gzip: bool) -> Response<Body> {
    let reply = match outcome {
        Ok(reply) => reply,
        Err(error) => return failed(error),
    };
    match reply.body(accepts_gzip) {
        Ok((body, is_packed)) => {
            let mut response = with_type(StatusCode::OK, reply.media_type, body);
            if is_packed {
                response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
            if !reply.notes.is_empty()
                && let Ok(notes) = HeaderValue::from_str(&ascii_json(&reply.notes))
            {
                response.headers_mut().insert(HeaderName::from_static(NOTES), notes);
            }
            response
        }
        Err(error) => failed(&AnswerError::new(500, UNEXPECTED, format!("the answer cannot be unpacked: {error}"))),
    }
}

/// Returns a list of texts as JSON in ASCII: headers can have nothing else.
fn ascii_json(texts: &[String]) -> String {
    let mut ascii = String::new();
    for character in json!(texts).to_string().chars() {
        if character.is_ascii() && character != '\u{7f}' {
            ascii.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(ascii, "\\u{unit:04x}");
            }
        }
    }
    ascii
}

fn no_job() -> Response<Body> {
    let why = "there is no such job: it was cancelled, or its answer was dropped to make room";
    failed(&AnswerError::new(404, REFUSED, why).hint("ask the question again"))
}

fn refused(status: StatusCode, why: &str) -> Response<Body> {
    failed(&AnswerError::new(status.as_u16(), REFUSED, why))
}

fn failed(error: &AnswerError) -> Response<Body> {
    let mut object = json!({"code": error.code, "message": error.message, "causes": error.causes});
    if let Some(hint) = &error.hint {
        object["hint"] = json!(hint);
    }
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_type(status, JSON, json!({ "error": object }).to_string().into())
}

fn moved(status: StatusCode, to: &str) -> Response<Body> {
    let mut response = empty(status);
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    with_type(status, "text/plain", Bytes::new())
}

fn with_type(status: StatusCode, media_type: &'static str, body: Bytes) -> Response<Body> {
    response(status, media_type, Full::new(body).map_err(|never| match never {}).boxed_unsync())
}

fn response(status: StatusCode, media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
