//! Profile formats of other tools: converts a [`Profile`] to the bytes of a file, and back.
//!
//! Each format has a module. If the format is written, the module has a function `write` and a
//! constant `HOLDS`; if it is read, `detects` and `read`. Formats that are written, and their
//! readers:
//!
//! - [`otlp`]: collectors of OpenTelemetry; the format is not stable yet.
//! - [`chrome`]: Chrome's `about:tracing`, for traces with memory dumps.
//! - [`pprof`]: the `profile.proto` of `go tool pprof`, Speedscope, Grafana Pyroscope, Polar
//!   Signals and others.
//! - [`dhat`]: Valgrind's `dh_view.html`, the Firefox Profiler.
//! - [`speedscope`]: <https://www.speedscope.app>.
//! - [`collapsed`]: flame graph tools, Speedscope, Perfetto, the Firefox Profiler.
//! - [`heapprofile`]: Chrome's DevTools, Speedscope.
//! - [`gperftools`]: google-pprof, `go tool pprof`.
//! - [`massif`]: `ms_print`, massif-visualizer.
//! - [`perfetto`]: <https://ui.perfetto.dev>, `trace_processor`.
//! - `parquet`, with the feature of that name: DuckDB, pandas, and everything else that queries
//!   tables.
//!
//! Formats that have a place for each allocation and each free have an [`EventWriter`] instead of
//! `write`:
//!
//! - [`heaptrack`]: `heaptrack_print`, `heaptrack_gui`.
//! - [`firefox`]: the Firefox Profiler.
//!
//! Formats that are only read: [`jemalloc`], and with the feature `readers`
//! `bytehound` and `memray`. All of those above are read, too, except `otlp`, `perfetto` and
//! `parquet`.
//!
//! Writers take a profile as it is; data that a format cannot hold is left out, and
//! [`Holds::lost`] names it. Readers take memory in proportion to the file, never panic, and report
//! the [offset](ReadError) of an error. `detects` gets the beginning of a file, which may end
//! anywhere, and says if the file may be of the format.
#![forbid(unsafe_code)]

mod addresses;
#[cfg(feature = "readers")]
pub mod bytehound;
mod calls;
pub mod chrome;
pub mod collapsed;
#[cfg(test)]
mod damaged;
pub mod dhat;
mod events;
pub mod firefox;
#[cfg(feature = "readers")]
#[doc(hidden)]
pub mod fuzzing;
mod gather;
pub mod gperftools;
pub mod heapprofile;
pub mod heaptrack;
mod holds;
#[cfg(feature = "readers")]
mod input;
pub mod jemalloc;
mod json;
mod maps;
pub mod massif;
#[cfg(feature = "readers")]
pub mod memray;
pub mod otlp;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod perfetto;
pub mod pprof;
mod profile;
mod read_error;
pub mod speedscope;
#[cfg(test)]
mod testing;

pub use events::EventWriter;
pub use holds::Holds;
pub use profile::{
    Amount, Amounts, Event, EventKind, Figure, Frame, Known, Location, Module, Point, Process, Profile, Purge, Sample,
    Snapshot, Thread,
};
pub use read_error::ReadError;
