//! Sends profiles to a server, at intervals.

mod client;
mod pyroscope;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heapledger_annotate::{untracked, untracked_thread};
use heapledger_http::HttpUrl;
use heapledger_inprocess::overhead::age_of_ledger;
use heapledger_profile_formats::{Amount, Amounts, Profile, Sample, otlp};

use crate::builder::{Labels, ProfileBuilder};
use crate::names::FrameNames;
use client::Post;

/// The protocol of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `POST /ingest` of Grafana Pyroscope, and of servers that accept the same, such as Grafana
    /// Alloy: pprof.
    Pyroscope,
    /// `POST /v1development/profiles` of a collector of OpenTelemetry. Unstable, as its name says:
    /// see [`otlp`](heapledger_profile_formats::otlp).
    Otlp,
}

/// The destination and the content of the profiles that are sent.
#[derive(Clone, Debug)]
pub struct PushOptions {
    /// The protocol of the server.
    pub protocol: Protocol,
    /// The server: `http://HOST[:PORT][/PATH]`, followed by the protocol's own path. There is no
    /// TLS: to reach a server elsewhere, use an agent on this machine that forwards profiles.
    pub url: String,
    /// The name of the program on the server: `service.name`.
    pub name: String,
    /// Further labels of the program.
    pub labels: Vec<(String, String)>,
    /// More headers, such as `X-Scope-OrgID`.
    pub headers: Vec<(String, String)>,
    /// The time from one profile to the next.
    pub every: Duration,
    /// The names that frames have.
    pub names: FrameNames,
}

impl PushOptions {
    /// Returns options to send every 15 seconds, with names, without labels and headers.
    pub fn new(protocol: Protocol, url: impl Into<String>, name: impl Into<String>) -> PushOptions {
        let (url, name, every) = (url.into(), name.into(), Duration::from_secs(15));
        PushOptions { protocol, url, name, labels: Vec::new(), headers: Vec::new(), every, names: FrameNames::Known }
    }
}

/// The reason why nothing is sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum PushError {
    /// The URL is not one of a server that profiles can be sent to; why.
    Url(&'static str),
    /// A header, given by its name, has a character that is not allowed.
    Header(String),
    /// No thread can be made.
    Thread(io::Error),
}

impl fmt::Display for PushError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PushError::Url(why) => write!(out, "no profiles are sent: {why}"),
            PushError::Header(name) => write!(out, "no profiles are sent: {name:?} is no header, or has no such value"),
            PushError::Thread(error) => write!(out, "no profiles are sent: there is no thread: {error}"),
        }
    }
}

impl std::error::Error for PushError {}

/// The outcome of sending profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushState {
    /// The number of profiles that the server took.
    pub sent: u64,
    /// The number of profiles that the server did not take. Their allocations are in the next one.
    pub failed: u64,
    /// The reason why the last profile was not taken; `None` if it was.
    pub error: Option<String>,
}

/// A thread that sends the program's profile until this is dropped: what is live at that moment,
/// and what was allocated since the last profile that the server took. A profile that the server
/// does not take is not sent again: the next one includes its amounts. The thread takes none of the
/// program's signals, and its allocations are not in the profile.
///
/// Only [`stop`](Pusher::stop) waits for the thread. A server that does not answer is given up
/// after 10 seconds.
#[derive(Debug)]
pub struct Pusher {
    shared: Arc<Shared>,
    thread: Option<untracked_thread::Thread>,
    process: u32,
}

#[derive(Debug, Default)]
struct Shared {
    command: Mutex<Command>,
    changed: Condvar,
    state: Mutex<PushState>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Command {
    #[default]
    Continue,
    /// Send one more profile, then end.
    Finish,
    /// End at once.
    End,
}

impl Pusher {
    /// Starts to send; the first profile after the first interval.
    ///
    /// # Errors
    ///
    /// See [`PushError`]. An unreachable server is not an error here: [`Pusher::state`] tells of
    /// it.
    pub fn start(options: PushOptions) -> Result<Pusher, PushError> {
        untracked::scope(|| Pusher::begin(options))
    }

    fn begin(options: PushOptions) -> Result<Pusher, PushError> {
        let url = client::server(&options.url).map_err(PushError::Url)?;
        if let Some((name, _)) = options.headers.iter().find(|(name, value)| !client::is_header(name, value)) {
            return Err(PushError::Header(name.clone()));
        }
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = untracked_thread::spawn("heapledger-push", move || run(&options, &url, &of_thread));
        let thread = thread.map_err(PushError::Thread)?;
        Ok(Pusher { shared, thread: Some(thread), process: std::process::id() })
    }

    /// Returns the outcome so far.
    pub fn state(&self) -> PushState {
        lock(&self.shared.state).clone()
    }

    /// Sends a last profile and waits for that, half a minute at most.
    pub fn stop(mut self) -> PushState {
        // A forked child's copy has no thread.
        if self.process == std::process::id() {
            self.shared.set_command(Command::Finish);
            if let Some(thread) = self.thread.take() {
                thread.join();
            }
        }
        self.state()
    }

    /// Sends for as long as the program runs.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        self.shared.set_command(Command::End);
        if self.process != std::process::id() {
            std::mem::forget(self.thread.take());
        }
    }
}

impl Shared {
    /// Sets the command; a [`Command::Finish`] is not replaced by a later [`Command::End`].
    fn set_command(&self, command: Command) {
        let mut current = lock(&self.command);
        if *current == Command::Continue {
            *current = command;
        }
        self.changed.notify_all();
    }

    fn wait(&self, duration: Duration) -> Command {
        let waited =
            self.changed.wait_timeout_while(lock(&self.command), duration, |command| *command == Command::Continue);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(options: &PushOptions, url: &HttpUrl, shared: &Shared) {
    let mut sender = Sender::new(options, url);
    loop {
        let command = shared.wait(options.every);
        if command == Command::End {
            return;
        }
        let sent = sender.send();
        {
            let mut state = lock(&shared.state);
            match sent {
                Ok(()) => (state.sent, state.error) = (state.sent + 1, None),
                Err(error) => (state.failed, state.error) = (state.failed + 1, Some(error.to_string())),
            }
        }
        if command == Command::Finish {
            return;
        }
    }
}

/// The state of sending: what the server has taken so far.
struct Sender<'a> {
    options: &'a PushOptions,
    url: &'a HttpUrl,
    builder: ProfileBuilder,
    /// The time of the last profile that the server took.
    since: SystemTime,
    taken: HashMap<Key, Amount>,
    /// The age of the ledger then.
    age: u64,
}

/// A stack and its labels.
type Key = (Vec<usize>, Labels);

impl<'a> Sender<'a> {
    fn new(options: &'a PushOptions, url: &'a HttpUrl) -> Sender<'a> {
        let builder = ProfileBuilder::new(options.names);
        Sender { options, url, builder, since: SystemTime::now(), taken: HashMap::new(), age: 0 }
    }

    /// Sends what is live, and what was allocated since the last profile that the server took.
    fn send(&mut self) -> io::Result<()> {
        let (now, age) = (SystemTime::now(), age_of_ledger());
        if age < self.age {
            // The ledger has been started anew: its counts begin at 0 again.
            self.taken.clear();
        }
        let all = self.builder.samples();
        let mut profile = self.builder.profile(Vec::new());
        profile.samples = self.unsent(&all);
        let elapsed = now.duration_since(self.since).unwrap_or_default();
        profile.duration_ns = elapsed.as_nanos() as u64;
        profile.start_unix_ns = unix(self.since).as_nanos() as u64;
        self.post(&profile, now)?;
        let taken = all.into_iter().map(|sample| ((sample.locations, sample.labels), sample.amounts.allocated));
        (self.taken, self.since, self.age) = (taken.collect(), now, age);
        Ok(())
    }

    /// Returns the samples less the amounts that the server has already.
    fn unsent(&self, all: &[Sample]) -> Vec<Sample> {
        let unsent = all.iter().map(|sample| {
            let mut unsent = sample.clone();
            let key = (unsent.locations, unsent.labels);
            let taken = self.taken.get(&key).copied().unwrap_or_default();
            (unsent.locations, unsent.labels) = key;
            let allocated = &mut unsent.amounts.allocated;
            allocated.blocks = allocated.blocks.saturating_sub(taken.blocks);
            allocated.bytes = allocated.bytes.saturating_sub(taken.bytes);
            unsent
        });
        unsent.filter(|sample| sample.amounts != Amounts::default()).collect()
    }

    fn post(&self, profile: &Profile, now: SystemTime) -> io::Result<()> {
        let (options, mut body) = (self.options, Vec::new());
        let (path, content_type) = match options.protocol {
            Protocol::Pyroscope => {
                let content_type = pyroscope::write(profile, &mut body)?;
                (pyroscope::path(&options.name, &options.labels, unix(self.since), unix(now)), content_type)
            }
            Protocol::Otlp => {
                let own = [("service.name", &*options.name)];
                let labels = options.labels.iter().map(|(name, value)| (&**name, &**value));
                let resource: Vec<(&str, &str)> = own.into_iter().chain(labels).collect();
                otlp::write_of(profile, &resource, &mut body)?;
                ("/v1development/profiles".to_owned(), otlp::MEDIA_TYPE)
            }
        };
        client::post(&Post { url: self.url, path: &path, content_type, headers: &options.headers, body: &body })
    }
}

fn unix(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}
