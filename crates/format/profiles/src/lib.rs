//! Profile formats of other tools: converts a [`Profile`] to the bytes of a file, and back.
//!
//! A module for each format, with a function `write`, a constant `HOLDS`, and `read` if files of
//! other tools are read:
//!
//! - [`otlp`]: profiles of OpenTelemetry, which are not stable yet.
//! - [`chrome`]: traces with memory dumps, of Chrome's `about:tracing`;
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
//! Writers take a profile as it is; data that a format cannot hold is left out. Readers take memory
//! in proportion to the file, never panic, and report the [offset](ReadError) of an error.
#![forbid(unsafe_code)]

mod addresses;
mod calls;
pub mod chrome;
pub mod collapsed;
pub mod dhat;
mod events;
pub mod firefox;
#[doc(hidden)]
pub mod fuzzing;
mod gather;
pub mod gperftools;
pub mod heapprofile;
pub mod heaptimeline;
pub mod heaptrack;
mod holds;
pub mod jemalloc;
mod json;
mod maps;
pub mod massif;
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
    Amount, Amounts, Event, EventKind, Figure, Frame, Known, Location, Module, Point, Process, Profile, Sample,
    Snapshot,
};
pub use read_error::ReadError;
