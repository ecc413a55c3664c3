//! Profile formats of other tools: what [`Profile`] holds, as the bytes of a file.
//!
//! One module and one function `encode` for each format:
//!
//! - [`pprof`]: the `profile.proto` of `go tool pprof`, Speedscope, Grafana Pyroscope, Polar Signals and others.
#![forbid(unsafe_code)]

pub mod pprof;
mod profile;

pub use profile::{Amounts, Frame, Location, Module, Profile, Sample};
