//! Profiles are sent to a server, at intervals.

mod client;
mod pyroscope;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heapledger_context::{quiet, untracked};
use heapledger_profiles::{Amount, Amounts, Profile, Sample, otlp};
use heapledger_resident::overhead::age_of_ledger;

use crate::gather::{Gatherer, Labels};
use crate::names::Names;
use client::{Post, Url};

/// How a server takes profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `POST /ingest` of Grafana Pyroscope, and of those who take what it takes, such as Grafana Alloy: pprof.
    Pyroscope,
    /// `POST /v1development/profiles` of a collector of OpenTelemetry. Unstable, as its name says: see
    /// [`otlp`](heapledger_profiles::otlp).
    Otlp,
}

/// What is sent where.
#[derive(Clone, Debug)]
pub struct PushOptions {
    /// How.
    pub protocol: Protocol,
    /// The server: `http://HOST[:PORT][/PATH]`, in front of the protocol's own path. There is no TLS: for a server that is
    /// elsewhere, have an agent on this machine pass it on.
    pub url: String,
    /// What the program is called there: `service.name`.
    pub name: String,
    /// What else it is known by.
    pub labels: Vec<(String, String)>,
    /// More headers, such as `X-Scope-OrgID`.
    pub headers: Vec<(String, String)>,
    /// The time from one profile to the next.
    pub every: Duration,
    /// Whether frames have names.
    pub names: Names,
}

impl PushOptions {
    /// Every 15 seconds, with names, without labels and headers.
    pub fn new(protocol: Protocol, url: impl Into<String>, name: impl Into<String>) -> PushOptions {
        let (url, name, every) = (url.into(), name.into(), Duration::from_secs(15));
        PushOptions { protocol, url, name, labels: Vec::new(), headers: Vec::new(), every, names: Names::Known }
    }
}

/// Why nothing is sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum PushError {
    /// That is no address of a server which can be sent to; why.
    Url(&'static str),
    /// A header, by its name, has a character that none may have.
    Header(String),
    /// There is no thread.
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

/// What became of the profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushState {
    /// How many the server took.
    pub sent: u64,
    /// How many it did not. What was allocated until then is in the next.
    pub failed: u64,
    /// Why the last one was not; `None`: it was.
    pub error: Option<String>,
}

/// A quiet thread that sends the program's profile until this is dropped: what is live at that moment, and what was allocated
/// since the last profile that the server took. One that it does not take is not sent again: the next has it all.
///
/// Nobody waits for it but [`stop`](Pusher::stop). A server that does not answer is waited for 10 seconds.
#[derive(Debug)]
pub struct Pusher {
    shared: Arc<Shared>,
    thread: Option<quiet::Thread>,
    process: u32,
}

#[derive(Debug, Default)]
struct Shared {
    wish: Mutex<Wish>,
    changed: Condvar,
    state: Mutex<PushState>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    GoOn,
    /// One more, and then no more.
    Finish,
    /// At once.
    End,
}

impl Pusher {
    /// Sends from now on; the first profile after the first interval.
    ///
    /// # Errors
    ///
    /// See [`PushError`]. That a server cannot be reached is none: [`Pusher::state`] says that.
    pub fn start(options: PushOptions) -> Result<Pusher, PushError> {
        untracked::scope(|| Pusher::begin(options))
    }

    fn begin(options: PushOptions) -> Result<Pusher, PushError> {
        let url = Url::parse(&options.url).map_err(PushError::Url)?;
        if let Some((name, _)) = options.headers.iter().find(|(name, value)| !client::is_header(name, value)) {
            return Err(PushError::Header(name.clone()));
        }
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = quiet::thread("heapledger-push", move || run(&options, &url, &of_thread));
        let thread = thread.map_err(PushError::Thread)?;
        Ok(Pusher { shared, thread: Some(thread), process: std::process::id() })
    }

    /// What became of the profiles so far.
    pub fn state(&self) -> PushState {
        lock(&self.shared.state).clone()
    }

    /// Sends a last profile and waits for that: half a minute at most.
    pub fn stop(mut self) -> PushState {
        // A forked child's copy has no thread.
        if self.process == std::process::id() {
            self.shared.wish(Wish::Finish);
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
        self.shared.wish(Wish::End);
        if self.process != std::process::id() {
            std::mem::forget(self.thread.take());
        }
    }
}

impl Shared {
    /// What [`Wish::Finish`] wants, [`Wish::End`] does not take back.
    fn wish(&self, wish: Wish) {
        let mut wished = lock(&self.wish);
        if *wished == Wish::GoOn {
            *wished = wish;
        }
        self.changed.notify_all();
    }

    fn wait(&self, duration: Duration) -> Wish {
        let waited = self.changed.wait_timeout_while(lock(&self.wish), duration, |wish| *wish == Wish::GoOn);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(options: &PushOptions, url: &Url, shared: &Shared) {
    let mut sender = Sender::new(options, url);
    loop {
        let wish = shared.wait(options.every);
        if wish == Wish::End {
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
        if wish == Wish::Finish {
            return;
        }
    }
}

/// What the server has, and what it has not.
struct Sender<'a> {
    options: &'a PushOptions,
    url: &'a Url,
    gatherer: Gatherer,
    /// When it took the last one, and what had been allocated by then.
    since: SystemTime,
    taken: HashMap<Key, Amount>,
    /// How old the ledger was then.
    age: u64,
}

/// A stack and its labels.
type Key = (Vec<usize>, Labels);

impl<'a> Sender<'a> {
    fn new(options: &'a PushOptions, url: &'a Url) -> Sender<'a> {
        let gatherer = Gatherer::new(options.names);
        Sender { options, url, gatherer, since: SystemTime::now(), taken: HashMap::new(), age: 0 }
    }

    /// Sends what is live, and what was allocated since the server took something last.
    fn send(&mut self) -> io::Result<()> {
        let (now, age) = (SystemTime::now(), age_of_ledger());
        if age < self.age {
            // It has been started again: nothing of what was counted then is counted now.
            self.taken.clear();
        }
        let all = self.gatherer.samples();
        let mut profile = self.gatherer.profile(Vec::new());
        profile.samples = self.news(&all);
        let elapsed = now.duration_since(self.since).unwrap_or_default();
        profile.duration_ns = elapsed.as_nanos() as u64;
        profile.start_unix_ns = unix(self.since).as_nanos() as u64;
        self.post(&profile, now)?;
        let taken = all.into_iter().map(|sample| ((sample.locations, sample.labels), sample.amounts.allocated));
        (self.taken, self.since, self.age) = (taken.collect(), now, age);
        Ok(())
    }

    /// The samples as the server has not seen them.
    fn news(&self, all: &[Sample]) -> Vec<Sample> {
        let news = all.iter().map(|sample| {
            let mut news = sample.clone();
            let key = (news.locations, news.labels);
            let taken = self.taken.get(&key).copied().unwrap_or_default();
            (news.locations, news.labels) = key;
            let allocated = &mut news.amounts.allocated;
            allocated.blocks = allocated.blocks.saturating_sub(taken.blocks);
            allocated.bytes = allocated.bytes.saturating_sub(taken.bytes);
            news
        });
        news.filter(|sample| sample.amounts != Amounts::default()).collect()
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
