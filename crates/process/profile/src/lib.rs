//! The heap profile of a program that runs: which functions hold how much, and which have allocated how much, estimated from
//! a sample of the allocations that costs next to nothing.
//!
//! ```
//! # use heapledger_profile as profile;
//! # #[global_allocator]
//! # static ALLOCATOR: heapledger_allocator::Allocator = heapledger_allocator::Allocator::system();
//! profile::start(profile::Options::default())?; // one sample point in 512 KiB
//! let server = profile::Server::start(profile::ServerOptions::default())?;
//! eprintln!("go tool pprof {}/heap", server.url());
//! # assert!(profile::state().is_on);
//! # server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`start`] and [`stop`] may be called at any time, in a program that has been running for days: what was allocated before
//! is unknown. It is the program's one [`Ledger`], made to sample: all that the ledger answers can be asked of it
//! meanwhile, and a program that runs an exact ledger has profiles without starting anything.
//!
//! - [`snapshot`]: a profile as data, for the writers of [`formats`].
//! - [`Events`]: sampled allocations and their frees one by one, and what of them is [`retained`].
//! - [`Server`], and [`Endpoint`] for a web server that the program has anyway: what `go tool pprof` and scrapers ask for.
//! - `Pusher`, with the feature `push`: profiles are sent.
//!
//! `docs/profile.md` of the project is the manual.
#![forbid(unsafe_code)]

mod endpoint;
mod events;
mod gather;
mod names;
#[cfg(feature = "push")]
mod push;
mod server;

use std::time::Duration;

use heapledger_core::Bytes;
use heapledger_inspect::{Ledger, Losses, Overhead, Totals};
use heapledger_resident::overhead::age_of_ledger;

pub use endpoint::{Endpoint, EndpointOptions};
pub use events::{Event, Events, native_allocations, retained};
pub use gather::snapshot;
pub use heapledger_http::{Hosts, Request, Responder, Response};
pub use heapledger_inspect::{Stacks, StartError};
pub use heapledger_profiles as formats;
pub use names::Names;
#[cfg(feature = "push")]
pub use push::{Protocol, PushError, PushOptions, PushState, Pusher};
pub use server::{Server, ServerOptions};

/// How a profile is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The mean number of allocated bytes from one sample point to the next, rounded to a power of two.
    pub sample_every: Bytes,
    /// What is kept with a block.
    pub stacks: Stacks,
    /// The most memory for what is known of blocks and sites. What would take more is not in the profile, which says how much
    /// that is.
    pub bytes_max: Bytes,
    /// How many events are kept for [`Events`], of 48 bytes each; 0: none.
    pub events: usize,
}

impl Options {
    /// The default, at another rate.
    pub fn every(sample_every: Bytes) -> Options {
        Options { sample_every, ..Options::default() }
    }
}

impl Default for Options {
    /// 512 KiB, as Go and jemalloc have it; 64 MiB at most, which is enough for some 500,000 sampled blocks.
    fn default() -> Options {
        let heapledger_inspect::Options { stacks, bytes_max, .. } = heapledger_inspect::Options::SAMPLED;
        Options { sample_every: Bytes(512 << 10), stacks, bytes_max, events: 0 }
    }
}

/// Begins to sample. What is live already stays unknown.
///
/// # Errors
///
/// [`StartError::Running`] if the ledger runs already, for whatever purpose; others if it cannot.
pub fn start(options: Options) -> Result<(), StartError> {
    let Options { sample_every, stacks, bytes_max, events } = options;
    Ledger::start(heapledger_inspect::Options {
        sample_every: Some(sample_every),
        stacks,
        bytes_max,
        ..heapledger_inspect::Options::EXACT
    })?;
    heapledger_resident::events::keep(events).map_err(|_| {
        stop();
        StartError::OutOfMemory
    })
}

/// Ends it: the program's calls go straight to its allocator again. The profile of what there was until then can still be
/// taken, until the next [`start`].
pub fn stop() {
    Ledger::get().stop();
}

/// Samples at another rate from now on, rounded to a power of two. What has been sampled keeps its weight, so that the profile
/// stays unbiased.
pub fn set_rate(sample_every: Bytes) {
    Ledger::get().set_sampling(Some(sample_every));
}

/// Whether something is recorded now.
pub fn is_on() -> bool {
    Ledger::get().is_running()
}

/// Whether the profile is on, and what it has.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct State {
    /// Whether it is.
    pub is_on: bool,
    /// The mean distance of sample points; `None` where every allocation is recorded.
    pub sample_every: Option<Bytes>,
    /// The time since the start.
    pub age: Duration,
    /// What was allocated and freed since the start, and what is live of it: estimates.
    pub totals: Totals,
    /// What could not be recorded.
    pub losses: Losses,
    /// What it costs: memory by purpose, and time.
    pub overhead: Overhead,
}

/// As of now.
pub fn state() -> State {
    let ledger = Ledger::get();
    State {
        is_on: ledger.is_running(),
        sample_every: ledger.sampling(),
        age: Duration::from_nanos(age_of_ledger()),
        totals: ledger.totals(),
        losses: ledger.losses(),
        overhead: ledger.overhead(),
    }
}
