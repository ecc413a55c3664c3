//! The endpoint that answers requests for profiles.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use heapledger_http::{DeferredAnswer, Hosts, HttpRequest, HttpResponse, Responder, strip_base};
use heapledger_profile_formats::{Figure, Sample, pprof};

use crate::builder::ProfileBuilder;
use crate::names::FrameNames;

/// The maximal length of a request's body, a list of addresses.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The longest difference that can be requested. For a longer one, fetch two profiles.
const SECONDS_MAX: f64 = 3600.0;

const PPROF: &str = "application/octet-stream";

/// The options of an [`Endpoint`].
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// The path below which the endpoint answers, without a slash at its end.
    pub base: String,
    /// The host names that requests may use.
    pub hosts: Hosts,
    /// The names that frames have.
    pub names: FrameNames,
}

impl Default for EndpointOptions {
    /// `/debug/pprof`, the loopback, and names.
    fn default() -> EndpointOptions {
        EndpointOptions { base: "/debug/pprof".into(), hosts: Hosts::Loopback, names: FrameNames::Known }
    }
}

/// Serves the paths of Go's `net/http/pprof` that are about the heap: `heap`, `allocs`, `cmdline`
/// and `symbol`, below [`EndpointOptions::base`]. With `?seconds=N` the profile is the difference
/// over that many seconds, and [`answer`](Responder::answer) takes as long. Other parameters, such
/// as `gc` and `debug`, change nothing.
///
/// A client that can reach the endpoint sees the names of the program's functions, its arguments
/// (`cmdline`) and how much memory it holds where. Requests that other sites' pages cause a browser
/// to make are refused, and so are unexpected host names.
///
/// ```
/// # use heapledger_live_profile::{Endpoint, EndpointOptions, HttpRequest, Responder};
/// # #[global_allocator]
/// # static ALLOCATOR: heapledger_allocator::Allocator = heapledger_allocator::Allocator::system();
/// let endpoint = Endpoint::new(EndpointOptions::default());
/// let headers: [(&str, &[u8]); 1] = [("Host", b"localhost")];
/// let request = HttpRequest { method: "GET", target: "/debug/pprof/heap", headers: &headers, body: &[] };
/// let response = endpoint.answer(&request);
/// assert_eq!((response.status, &response.body[..2]), (200, &b"\x1f\x8b"[..]), "gzip");
/// ```
#[derive(Clone, Debug)]
pub struct Endpoint {
    options: EndpointOptions,
    stopped: Arc<Stopped>,
}

/// The signal that wakes requests which wait for a difference.
#[derive(Debug, Default)]
struct Stopped {
    is: Mutex<bool>,
    changed: Condvar,
}

impl Endpoint {
    /// Returns an endpoint for the program's ledger. Clones share their state.
    pub fn new(options: EndpointOptions) -> Endpoint {
        Endpoint { options, stopped: Arc::default() }
    }

    /// Ends the differences that are being waited for now, and later ones at once: for the end of
    /// the program.
    pub fn stop(&self) {
        *self.stopped.is.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopped.changed.notify_all();
    }

    /// Returns the path of the request below the base.
    fn route<'a>(&self, request: &HttpRequest<'a>) -> Option<&'a str> {
        strip_base(&self.options.base, request.path()).map(|rest| rest.trim_start_matches('/'))
    }

    fn dispatch(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpResponse> {
        match self.route(request).unwrap_or_default() {
            "" => Ok(self.index()),
            "heap" => self.profile(request, Figure::LiveBytes),
            "allocs" => self.profile(request, Figure::AllocatedBytes),
            "cmdline" => Ok(HttpResponse::new(200, "text/plain; charset=utf-8", command_line())),
            "symbol" => Ok(self.symbol(request)),
            "profile" | "trace" | "goroutine" | "block" | "mutex" | "threadcreate" => {
                Err(HttpResponse::text(404, "this is a heap profiler: heap and allocs are what it has"))
            }
            _ => Err(HttpResponse::text(404, "not found")),
        }
    }

    fn index(&self) -> HttpResponse {
        let state = crate::state();
        let what = match (state.is_on, state.sample_every) {
            (true, Some(mean)) => format!("on, one sample point in {} bytes (with 95 % error bars)", mean.0),
            (true, None) => "on, every allocation".to_owned(),
            (false, _) => "off".to_owned(),
        };
        let base = &self.options.base;
        let text = format!(
            "the heap profile is {what}, for {:.0} s\n{}\n\n{base}/heap    what is live\n{base}/allocs  what was allocated\n\
             both with ?seconds=N: what so many seconds change",
            state.age.as_secs_f64(),
            state.totals,
        );
        HttpResponse::text(200, text)
    }

    fn profile(&self, request: &HttpRequest<'_>, shown: Figure) -> Result<HttpResponse, HttpResponse> {
        let difference = Difference::begin(self.options.names, shown, duration(request)?);
        if let Some(duration) = difference.duration {
            self.wait(duration);
        }
        difference.end()
    }

    fn wait(&self, duration: Duration) {
        let stopped = self.stopped.is.lock().unwrap_or_else(PoisonError::into_inner);
        let _woken = self.stopped.changed.wait_timeout_while(stopped, duration, |stopped| !*stopped);
    }

    /// Returns the names of the functions at the requested addresses, which are joined by plus
    /// signs.
    fn symbol(&self, request: &HttpRequest<'_>) -> HttpResponse {
        use std::fmt::Write;

        let query = request.target.split_once('?').map_or("", |(_, query)| query);
        let asked = if request.method == "POST" { std::str::from_utf8(request.body).unwrap_or("") } else { query };
        let mut text = "num_symbols: 1\n".to_owned();
        for word in asked.split('+') {
            let digits = word.trim().trim_start_matches("0x");
            let Ok(address) = u64::from_str_radix(digits, 16) else { continue };
            // The outermost function is the one that contains the address; the others were inlined
            // into it.
            if let Some(frame) = self.options.names.of(address).frames.pop() {
                // A string takes everything.
                let _ = writeln!(text, "{address:#x} {}", frame.full_name);
            }
        }
        HttpResponse::new(200, "text/plain; charset=utf-8", text.into_bytes())
    }
}

impl Responder for Endpoint {
    fn admit(&self, request: &HttpRequest<'_>) -> Result<(), HttpResponse> {
        if !request.host().is_some_and(|host| self.options.hosts.allow(host)) {
            return Err(HttpResponse::text(421, "this program is not known by that name"));
        }
        if self.route(request).is_none() {
            return Err(HttpResponse::text(404, "not found"));
        }
        if request.is_foreign() {
            return Err(HttpResponse::text(403, "pages of others may not ask"));
        }
        match (request.method, self.route(request)) {
            ("GET" | "HEAD", _) | ("POST", Some("symbol")) => Ok(()),
            _ => Err(HttpResponse::text(405, "GET this")),
        }
    }

    fn body_bytes_max(&self, request: &HttpRequest<'_>) -> usize {
        if request.method == "POST" { BODY_BYTES_MAX } else { 0 }
    }

    fn answer(&self, request: &HttpRequest<'_>) -> HttpResponse {
        private(self.admit(request).and_then(|()| self.dispatch(request)))
    }

    fn deferred(&self, request: &HttpRequest<'_>) -> Option<DeferredAnswer> {
        self.admit(request).ok()?;
        let shown = match self.route(request)?.trim_start_matches('/') {
            "heap" => Figure::LiveBytes,
            "allocs" => Figure::AllocatedBytes,
            _ => return None,
        };
        let after = duration(request).ok()??;
        let difference = Difference::begin(self.options.names, shown, Some(after));
        Some(DeferredAnswer { after, finish: Box::new(move || private(difference.end())) })
    }
}

/// A request for a profile, or for a difference over some time, which has begun.
struct Difference {
    builder: ProfileBuilder,
    shown: Figure,
    duration: Option<Duration>,
    /// The samples at its beginning; empty for a profile.
    before: Vec<Sample>,
}

impl Difference {
    fn begin(names: FrameNames, shown: Figure, duration: Option<Duration>) -> Difference {
        let _untracked = heapledger_annotate::untracked::enter();
        let mut builder = ProfileBuilder::new(names);
        let before = if duration.is_some() { builder.samples() } else { Vec::new() };
        Difference { builder, shown, duration, before }
    }

    fn end(mut self) -> Result<HttpResponse, HttpResponse> {
        let _untracked = heapledger_annotate::untracked::enter();
        let samples = self.builder.samples();
        let mut profile = self.builder.profile(samples);
        if let Some(duration) = self.duration {
            profile.duration_ns = duration.as_nanos() as u64;
            profile.comments.push(format!("the difference that {} seconds make", duration.as_secs_f64()));
        }
        let mut file = Vec::new();
        profile.shown = self.shown;
        pprof::write_change(&profile, &self.before, &mut file).map_err(|error| failed(&error))?;
        let name = if self.shown == Figure::LiveBytes { "heap" } else { "allocs" };
        Ok(HttpResponse::new(200, PPROF, file)
            .header("Content-Disposition", format!("attachment; filename=\"{name}.pb.gz\"")))
    }
}

/// Returns the length of the requested difference, if the request is for one.
fn duration(request: &HttpRequest<'_>) -> Result<Option<Duration>, HttpResponse> {
    let Some(text) = request.parameter("seconds") else { return Ok(None) };
    seconds(&text).map(Some).ok_or_else(|| HttpResponse::text(400, "?seconds=N, up to 3600"))
}

/// Adds headers to an answer: it is not to be cached, and its content type not to be guessed.
fn private(answer: Result<HttpResponse, HttpResponse>) -> HttpResponse {
    let response = answer.unwrap_or_else(|refused| refused);
    response.header("X-Content-Type-Options", "nosniff").header("Cache-Control", "no-store")
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    (seconds > 0.0 && seconds <= SECONDS_MAX).then(|| Duration::from_secs_f64(seconds))
}

/// Returns the words of the command line, separated by zeroes.
fn command_line() -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;

    let words: Vec<_> = std::env::args_os().collect();
    words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().join(&0)
}

fn failed(error: &io::Error) -> HttpResponse {
    HttpResponse::text(500, error.to_string())
}
