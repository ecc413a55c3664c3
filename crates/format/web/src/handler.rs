//! The answers to requests.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use heapledger_dmd::Log;
use heapledger_http::{Hosts, HttpRequest, HttpResponse, Responder, strip_base};
use heapledger_report_format::Reports;
use serde::Serialize;

use crate::cache::{Cache, Origin, no_longer_cached};
use crate::dark;
use crate::files::{is_log, read_log};
use crate::source::{MeasureOptions, Source};
use crate::view::{ViewRequest, Views};

/// The page of a [`Source`]: answers requests, wherever they come from.
///
/// A request must have the right path, name an expected host and, if it says where it comes from,
/// come from the page itself, which other pages in the same browser do not.
pub struct Handler {
    source: Box<dyn Source>,
    options: PageOptions,
    cache: Mutex<Cache<Reports>>,
    views: Mutex<Views>,
    logs: Mutex<Cache<Log>>,
    dark_views: Mutex<dark::Views>,
    /// Held while the source is asked, so that it does one thing at a time.
    source_lock: Mutex<()>,
}

/// The options of a [`Handler`].
#[derive(Clone, Debug)]
pub struct PageOptions {
    /// The path of the page without a slash at its end, such as `/0123456789abcdef`. A request for
    /// any other path is answered with "not found".
    pub base: String,
    /// The hosts that requests may name.
    pub hosts: Hosts,
    /// The most bytes of measurements and files that are kept; the oldest are dropped first, but
    /// two are always kept.
    pub cache_bytes_max: usize,
    /// The largest size of a file that is loaded, in bytes.
    pub file_bytes_max: usize,
}

impl Default for PageOptions {
    fn default() -> PageOptions {
        PageOptions { base: String::new(), hosts: Hosts::Loopback, cache_bytes_max: 64 << 20, file_bytes_max: 64 << 20 }
    }
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The options are left out: the path is a secret.
        f.debug_struct("Handler").field("source", &self.source.title()).finish_non_exhaustive()
    }
}

/// A file of the page, compiled in.
struct Asset {
    name: &'static str,
    content_type: &'static str,
    content: &'static str,
}

/// The asset of this name, from `assets/`.
macro_rules! asset {
    ($name:literal, $content_type:literal) => {
        Asset { name: $name, content_type: $content_type, content: include_str!(concat!("assets/", $name)) }
    };
}

const ASSETS: [Asset; 13] = [
    asset!("page.css", "text/css; charset=utf-8"),
    asset!("dark.css", "text/css; charset=utf-8"),
    asset!("page.js", "text/javascript; charset=utf-8"),
    asset!("shell.js", "text/javascript; charset=utf-8"),
    asset!("measurements.js", "text/javascript; charset=utf-8"),
    asset!("dark.js", "text/javascript; charset=utf-8"),
    asset!("record.js", "text/javascript; charset=utf-8"),
    asset!("list.js", "text/javascript; charset=utf-8"),
    asset!("row.js", "text/javascript; charset=utf-8"),
    asset!("overview.js", "text/javascript; charset=utf-8"),
    asset!("processes.js", "text/javascript; charset=utf-8"),
    asset!("server.js", "text/javascript; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
];

const PAGE: &str = include_str!("assets/page.html");
const JSON: &str = "application/json";
const GZIP: &str = "application/gzip";

/// Nothing is loaded from elsewhere, nothing inline is executed or applied, and no other page can
/// frame this one.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'";

/// The headers of every answer.
const SECURITY: [(&str, &str); 7] = [
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
];

/// The largest text of a log that is loaded, in bytes: what is kept of a real log is a small part
/// of it.
const LOG_BYTES_MAX: usize = 256 << 20;

/// The thing that has just been added.
enum Added {
    Nothing,
    Measurement(u64),
    Log(u64),
}

/// The largest body of a request from the page itself, which is not a file.
const BODY_BYTES_MAX: usize = 1 << 20;

impl Handler {
    /// Creates the page of this source.
    pub fn new(source: impl Source + 'static, options: PageOptions) -> Handler {
        Handler {
            source: Box::new(source),
            cache: Mutex::new(Cache::new(options.cache_bytes_max)),
            views: Mutex::default(),
            logs: Mutex::new(Cache::new(options.cache_bytes_max)),
            dark_views: Mutex::default(),
            source_lock: Mutex::default(),
            options,
        }
    }

    /// Adds existing reports, as a file with this name. The page shows the last of them first.
    pub fn load(&self, name: impl Into<String>, reports: Reports) {
        self.cache().keep(Origin::Loaded(name.into()), reports);
    }

    /// Adds an existing log of the dark matter detector, as a file with this name.
    pub fn load_log(&self, name: impl Into<String>, log: Log) {
        lock(&self.logs).keep(Origin::Loaded(name.into()), log);
    }

    /// Drops everything that can be made again. For a server whose page nobody looks at.
    pub fn clear_views(&self) {
        lock(&self.views).clear();
        lock(&self.dark_views).clear();
    }

    /// True if there is nothing to [`clear_views`](Handler::clear_views).
    pub fn has_no_views(&self) -> bool {
        lock(&self.views).is_empty() && lock(&self.dark_views).is_empty()
    }

    /// Returns roughly how many bytes are kept: measurements, and the views made from them.
    pub fn cached_bytes(&self) -> usize {
        let logs = lock(&self.logs).bytes() + lock(&self.dark_views).bytes();
        self.cache().bytes() + lock(&self.views).bytes() + logs
    }

    /// Returns the requested path below the base, without a slash before it. `/` is the base
    /// itself.
    fn route<'a>(&self, request: &HttpRequest<'a>) -> Option<&'a str> {
        let rest = strip_base(&self.options.base, request.path())?;
        Some(rest.strip_prefix('/').unwrap_or("/"))
    }

    fn dispatch(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpResponse> {
        let route = self.route(request).unwrap_or_default();
        if let Some(asset) = ASSETS.iter().find(|asset| asset.name == route) {
            return Ok(HttpResponse::new(200, asset.content_type, asset.content.as_bytes()));
        }
        match (request.method, route) {
            ("GET" | "HEAD", "/") => {
                Ok(HttpResponse::text(308, "").header("Location", format!("{}/", self.options.base)))
            }
            ("GET" | "HEAD", "") => {
                let page = PAGE.replacen("{base}", &attribute(&self.options.base), 1);
                Ok(HttpResponse::new(200, "text/html; charset=utf-8", page.into_bytes()))
            }
            ("GET" | "HEAD", "reports.json.gz") => self.save(request),
            ("GET" | "HEAD", "metrics") => self.metrics(),
            ("GET" | "HEAD", "allocator") => {
                self.ask(|source| source.allocator()).map(|text| HttpResponse::text(200, text))
            }
            ("GET" | "HEAD", "dmd.json.gz") => self.save_log(request),
            ("GET" | "HEAD", "state") => Ok(self.state(Added::Nothing)),
            ("POST", "measure") => {
                let id = self.measure(measure_options(request))?;
                Ok(self.state(Added::Measurement(id)))
            }
            ("POST", "look") => {
                let id = self.look(measure_options(request))?;
                Ok(self.state(Added::Log(id)))
            }
            ("POST", "minimise") => {
                self.ask(|source| source.minimise())?;
                let id = self.measure(measure_options(request))?;
                Ok(self.state(Added::Measurement(id)))
            }
            ("POST", "load") => self.add_file(request).map(|added| self.state(added)),
            ("POST", "forget") => {
                let id = request.parameter("id").and_then(|id| id.parse().ok());
                let id = id.ok_or_else(|| HttpResponse::text(400, "forget what? ?id=N"))?;
                self.cache().forget(id);
                Ok(self.state(Added::Nothing))
            }
            ("POST", "rows") => {
                let wanted = ViewRequest::parse(request.body)?;
                let mut views = lock(&self.views);
                views.rows(&self.cache(), &wanted).map(|rows| HttpResponse::new(200, JSON, rows))
            }
            ("POST", "text") => {
                let wanted = ViewRequest::parse(request.body)?;
                let text = wanted.text(&self.cache())?;
                Ok(HttpResponse::new(200, "text/plain; charset=utf-8", text.into_bytes()))
            }
            ("POST", "records" | "record" | "dark-text") => {
                let wanted = dark::ViewRequest::parse(request.body)?;
                let (mut views, logs) = (lock(&self.dark_views), lock(&self.logs));
                match route {
                    "records" => views.rows(&logs, &wanted).map(|rows| HttpResponse::new(200, JSON, rows)),
                    "record" => views.row(&logs, &wanted).map(|row| HttpResponse::new(200, JSON, row)),
                    _ => views.text(&logs, &wanted).map(|text| HttpResponse::text(200, text)),
                }
            }
            (_, "" | "reports.json.gz" | "dmd.json.gz" | "metrics" | "allocator" | "state") => {
                Err(HttpResponse::text(405, "GET this"))
            }
            (
                _,
                "measure" | "minimise" | "look" | "load" | "forget" | "rows" | "text" | "records" | "record"
                | "dark-text",
            ) => Err(HttpResponse::text(405, "POST this")),
            _ => Err(HttpResponse::text(404, "not found")),
        }
    }

    /// Returns a report file: of a measurement that is kept, or of a new one.
    fn save(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpResponse> {
        let file = match request.parameter("measurement") {
            Some(id) => {
                let id = id.parse().map_err(|_| HttpResponse::text(400, "measurements have numbers"))?;
                let reports = self.cache().get(id).map(|one| one.content.clone());
                reports.ok_or_else(no_longer_cached)?.to_gzip()
            }
            None => self.ask(|source| source.measure(measure_options(request)))?.to_gzip(),
        };
        Ok(self.file("memory-report", file))
    }

    /// Returns the requested log, as a file.
    fn save_log(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpResponse> {
        let id = request.parameter("log").and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| HttpResponse::text(400, "which log? ?log=N"))?;
        let log = lock(&self.logs).get(id).map(|one| one.content.clone()).ok_or_else(no_longer_cached)?;
        Ok(self.file("dmd", log.to_gzip()))
    }

    /// Returns a file to be saved, named after its contents and the title of the page.
    fn file(&self, what: &str, content: Vec<u8>) -> HttpResponse {
        let name: String =
            self.source.title().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let name = name.trim_matches('-').to_owned();
        let name = if name.is_empty() { "memory".to_owned() } else { name };
        let disposition = format!("attachment; filename=\"{what}-{name}.json.gz\"");
        HttpResponse::new(200, GZIP, content).header("Content-Disposition", disposition)
    }

    fn metrics(&self) -> Result<HttpResponse, HttpResponse> {
        let reports = self.ask(|source| source.measure(MeasureOptions { anonymous: true }))?;
        let text = reports.to_openmetrics();
        Ok(HttpResponse::new(200, "application/openmetrics-text; version=1.0.0; charset=utf-8", text.into_bytes()))
    }

    fn measure(&self, measure_options: MeasureOptions) -> Result<u64, HttpResponse> {
        let before = self.source.now();
        let reports = self.ask(|source| source.measure(measure_options))?;
        let at = self.source.now();
        let milliseconds = at.saturating_sub(before);
        Ok(self.cache().keep(Origin::Measured { at, milliseconds }, reports))
    }

    /// Makes a log of the dark matter detector, and returns its id.
    fn look(&self, measure_options: MeasureOptions) -> Result<u64, HttpResponse> {
        let before = self.source.now();
        let log = self.ask(|source| source.dark_matter(measure_options))?;
        let at = self.source.now();
        let origin = Origin::Measured { at, milliseconds: at.saturating_sub(before) };
        Ok(lock(&self.logs).keep(origin, log))
    }

    /// Adds the file that is the body of a request: a log, or reports.
    fn add_file(&self, request: &HttpRequest<'_>) -> Result<Added, HttpResponse> {
        let origin = Origin::Loaded(request.parameter("name").unwrap_or_else(|| "a file".to_owned()));
        if is_log(request.body) {
            let log = read_log(request.body, LOG_BYTES_MAX).map_err(|error| HttpResponse::text(422, error))?;
            return Ok(Added::Log(lock(&self.logs).keep(origin, log)));
        }
        let reports = Reports::parse(request.body).map_err(|error| HttpResponse::text(422, error.to_string()))?;
        Ok(Added::Measurement(self.cache().keep(origin, reports)))
    }

    /// Returns what can be shown and what can be asked for. `new` is what the request just added.
    fn state(&self, new: Added) -> HttpResponse {
        #[derive(Serialize)]
        struct State {
            title: String,
            can_measure: bool,
            can_look: bool,
            can_minimise: bool,
            can_tell_of_allocator: bool,
            file_bytes_max: usize,
            measurements: Vec<Measurement>,
            logs: Vec<LogInfo>,
            #[serde(skip_serializing_if = "Option::is_none")]
            new: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            new_log: Option<u64>,
        }
        #[derive(Serialize)]
        struct Measurement {
            id: u64,
            /// The name, for a file.
            #[serde(skip_serializing_if = "Option::is_none")]
            name: Option<String>,
            /// The time, for a measurement made here.
            #[serde(skip_serializing_if = "Option::is_none")]
            at: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            milliseconds: Option<u64>,
            reports: usize,
        }
        #[derive(Serialize)]
        struct LogInfo {
            id: u64,
            /// The name, for a file.
            #[serde(skip_serializing_if = "Option::is_none")]
            name: Option<String>,
            /// The time, for a log made here.
            #[serde(skip_serializing_if = "Option::is_none")]
            at: Option<u64>,
            /// The time for which the program was held up.
            pause: String,
        }
        let capabilities = self.source.capabilities();
        let cache = self.cache();
        let measurements = cache.iter().map(|one| {
            let (name, at, milliseconds) = match &one.origin {
                Origin::Loaded(name) => (Some(name.clone()), None, None),
                Origin::Measured { at, milliseconds } => (None, Some(*at), Some(*milliseconds)),
            };
            Measurement { id: one.id, name, at, milliseconds, reports: one.content.reports.len() }
        });
        let logs = lock(&self.logs);
        let log_infos = logs.iter().map(|one| {
            let (name, at) = match &one.origin {
                Origin::Loaded(name) => (Some(name.clone()), None),
                Origin::Measured { at, .. } => (None, Some(*at)),
            };
            LogInfo { id: one.id, name, at, pause: dark::pause(one.content.about.pause_ns) }
        });
        let (new, new_log) = match new {
            Added::Nothing => (None, None),
            Added::Measurement(id) => (Some(id), None),
            Added::Log(id) => (None, Some(id)),
        };
        let state = State {
            title: self.source.title(),
            can_measure: capabilities.measure,
            can_look: capabilities.dark_matter,
            can_minimise: capabilities.minimise,
            can_tell_of_allocator: capabilities.allocator,
            file_bytes_max: self.options.file_bytes_max,
            measurements: measurements.collect(),
            logs: log_infos.collect(),
            new,
            new_log,
        };
        json(&state)
    }

    fn ask<T>(&self, question: impl FnOnce(&dyn Source) -> Result<T, String>) -> Result<T, HttpResponse> {
        let _guard = lock(&self.source_lock);
        question(&*self.source).map_err(|why| HttpResponse::text(501, why))
    }

    fn cache(&self) -> MutexGuard<'_, Cache<Reports>> {
        lock(&self.cache)
    }
}

impl Responder for Handler {
    fn admit(&self, request: &HttpRequest<'_>) -> Result<(), HttpResponse> {
        let refuse = |status, why: &str| Err(with_security_headers(HttpResponse::text(status, why)));
        if !request.host().is_some_and(|host| self.options.hosts.allow(host)) {
            return refuse(421, "this page is not known by that name; ask for the address that the program gave");
        }
        if self.route(request).is_none() {
            return refuse(404, "not found");
        }
        if request.is_foreign() {
            return refuse(403, "pages of others may not ask");
        }
        if !["GET", "HEAD", "POST"].contains(&request.method) {
            return refuse(405, "GET and POST are all there is");
        }
        // A form cannot send JSON or a file without asking first (CORS preflight).
        let content_type = request.header("Content-Type").unwrap_or_default();
        if request.method == "POST" && ![JSON, GZIP, "application/octet-stream"].contains(&content_type) {
            return refuse(415, "a POST has a body of application/json, or of application/octet-stream for a file");
        }
        Ok(())
    }

    fn body_bytes_max(&self, request: &HttpRequest<'_>) -> usize {
        if request.method != "POST" {
            0
        } else if self.route(request) == Some("load") {
            self.options.file_bytes_max
        } else {
            BODY_BYTES_MAX
        }
    }

    fn answer(&self, request: &HttpRequest<'_>) -> HttpResponse {
        with_security_headers(match self.admit(request) {
            Ok(()) => self.dispatch(request).unwrap_or_else(|response| response),
            Err(response) => return response,
        })
    }
}

fn measure_options(request: &HttpRequest<'_>) -> MeasureOptions {
    MeasureOptions { anonymous: request.parameter("anonymous").is_some_and(|value| value != "0") }
}

fn json(value: &impl Serialize) -> HttpResponse {
    match serde_json::to_vec(value) {
        Ok(bytes) => HttpResponse::new(200, JSON, bytes),
        Err(error) => HttpResponse::text(500, error.to_string()),
    }
}

fn with_security_headers(mut response: HttpResponse) -> HttpResponse {
    response.headers.extend(SECURITY.map(|(name, value)| (name, Cow::Borrowed(value))));
    response
}

/// Escapes text for an attribute of HTML.
fn attribute(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

/// Locks a mutex, even after a panic. A panic of a source is not a reason to show nothing from then
/// on: the data behind the locks is consistent at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
