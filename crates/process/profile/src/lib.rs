//! The heap profile of a running program: which functions hold how much, and which have allocated
//! how much, estimated from a sample of the allocations at next to no cost.
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
//! [`start`] and [`stop`] may be called at any time, in a program that has been running for days:
//! earlier allocations are unknown. The profile is the program's one [`Ledger`], which samples: it
//! can be queried as usual meanwhile, and a program that runs an exact ledger has profiles without
//! starting anything.
//!
//! - [`snapshot`]: a profile as data, for the writers of [`formats`].
//! - [`Events`]: sampled allocations and their frees one by one, and those of them that are
//!   [`retained`].
//! - [`Server`], or [`Endpoint`] for a web server that the program already has: answers `go tool
//!   pprof` and scrapers.
//! - `Pusher`, with the feature `push`: sends profiles.
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

/// The options of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The mean number of allocated bytes from one sample point to the next, rounded to a power of
    /// two.
    pub sample_every: Bytes,
    /// The stacks that are kept with blocks.
    pub stacks: Stacks,
    /// The most memory for data about blocks and sites. Allocations that would need more are not in
    /// the profile, which says how many these are.
    pub bytes_max: Bytes,
    /// The number of events that are kept for [`Events`], of 48 bytes each; 0 for none.
    pub events: usize,
}

impl Options {
    /// Returns the default options with another rate.
    pub fn every(sample_every: Bytes) -> Options {
        Options { sample_every, ..Options::default() }
    }
}

impl Default for Options {
    /// 512 KiB, as Go and jemalloc have it; 64 MiB at most, which is enough for some 500,000
    /// sampled blocks.
    fn default() -> Options {
        let heapledger_inspect::Options { stacks, bytes_max, .. } = heapledger_inspect::Options::SAMPLED;
        Options { sample_every: Bytes(512 << 10), stacks, bytes_max, events: 0 }
    }
}

/// Starts sampling. Blocks that are live already stay unknown.
///
/// # Errors
///
/// [`StartError::Running`] if the ledger runs already, for any purpose; other errors if it cannot
/// start.
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

/// Stops sampling: the program's calls go straight to its allocator again. The profile until then
/// can still be taken, until the next [`start`].
pub fn stop() {
    Ledger::get().stop();
}

/// Samples at another rate from now on, rounded to a power of two. Sampled blocks keep their
/// weights, so that the profile stays unbiased.
pub fn set_rate(sample_every: Bytes) {
    Ledger::get().set_sampling(Some(sample_every));
}

/// True if a profile is being recorded.
pub fn is_on() -> bool {
    Ledger::get().is_running()
}

/// The state of the profile.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct State {
    /// True if a profile is being recorded.
    pub is_on: bool,
    /// The mean distance between sample points; `None` if every allocation is recorded.
    pub sample_every: Option<Bytes>,
    /// The time since the start.
    pub age: Duration,
    /// The allocations and frees since the start, and what is live of them: estimates.
    pub totals: Totals,
    /// The allocations that could not be recorded.
    pub losses: Losses,
    /// The cost of the profile: memory by purpose, and time.
    pub overhead: Overhead,
}

/// Returns the state of the profile now.
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
