//! The heap profile of a running program: which functions hold how much, and which have allocated
//! how much, estimated from a sample of the allocations at next to no cost.
//!
//! ```
//! # use heapledger_live_profile as profile;
//! # #[global_allocator]
//! # static ALLOCATOR: heapledger_allocator::Allocator = heapledger_allocator::Allocator::system();
//! profile::start(profile::ProfileOptions::default())?; // one sample point in 512 KiB
//! let server = profile::ProfileServer::start(profile::ProfileServerOptions::default())?;
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
//! - [`ProfileEvents`]: sampled allocations and their frees one by one, and those of them that are
//!   [`retained`].
//! - [`ProfileServer`], or [`Endpoint`] for a web server that the program already has: answers `go
//!   tool pprof` and scrapers.
//! - `Pusher`, with the feature `push`: sends profiles.
//!
//! `docs/profile.md` of the project is the manual.
#![forbid(unsafe_code)]

mod builder;
mod endpoint;
mod events;
mod names;
#[cfg(feature = "push")]
mod push;
mod server;

use std::time::Duration;

use heapledger_core::Bytes;
use heapledger_inprocess::overhead::age_of_ledger;
use heapledger_query::{Ledger, Losses, Overhead, Totals};

pub use builder::snapshot;
pub use endpoint::{Endpoint, EndpointOptions};
pub use events::{ProfileEvent, ProfileEvents, native_allocations, retained};
pub use heapledger_http::{Hosts, HttpRequest, HttpResponse, Responder};
pub use heapledger_profile_formats as formats;
pub use heapledger_query::{Stacks, StartError};
pub use names::FrameNames;
#[cfg(feature = "push")]
pub use push::{Protocol, PushError, PushOptions, PushState, Pusher};
pub use server::{ProfileServer, ProfileServerOptions};

/// The options of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileOptions {
    /// The mean number of allocated bytes from one sample point to the next, rounded to a power of
    /// two.
    pub sample_every: Bytes,
    /// The stacks that are kept with blocks.
    pub stacks: Stacks,
    /// The most memory for data about blocks and sites. Allocations that would need more are not in
    /// the profile, which says how many these are.
    pub bytes_max: Bytes,
    /// The number of events that are kept for [`ProfileEvents`], of 48 bytes each; 0 for none.
    pub events: usize,
}

impl ProfileOptions {
    /// Returns the default options with another rate.
    pub fn every(sample_every: Bytes) -> ProfileOptions {
        ProfileOptions { sample_every, ..ProfileOptions::default() }
    }
}

impl Default for ProfileOptions {
    /// 512 KiB, as Go and jemalloc have it; 64 MiB at most, which is enough for some 500,000
    /// sampled blocks.
    fn default() -> ProfileOptions {
        let heapledger_query::LedgerOptions { stacks, bytes_max, .. } = heapledger_query::LedgerOptions::SAMPLED;
        ProfileOptions { sample_every: Bytes(512 << 10), stacks, bytes_max, events: 0 }
    }
}

/// Starts sampling. Blocks that are live already stay unknown.
///
/// # Errors
///
/// [`StartError::Running`] if the ledger runs already, for any purpose; other errors if it cannot
/// start.
pub fn start(options: ProfileOptions) -> Result<(), StartError> {
    let ProfileOptions { sample_every, stacks, bytes_max, events } = options;
    Ledger::start(heapledger_query::LedgerOptions {
        sample_every: Some(sample_every),
        stacks,
        bytes_max,
        ..heapledger_query::LedgerOptions::EXACT
    })?;
    heapledger_inprocess::events::keep(events).map_err(|_| {
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
pub struct ProfileState {
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
pub fn state() -> ProfileState {
    let ledger = Ledger::get();
    ProfileState {
        is_on: ledger.is_running(),
        sample_every: ledger.sampling(),
        age: Duration::from_nanos(age_of_ledger()),
        totals: ledger.totals(),
        losses: ledger.losses(),
        overhead: ledger.overhead(),
    }
}
