//! Memory reporters: the parts of a program say how much memory they hold.
//!
//! A *reporter* is a function that makes measurements when it is asked, each with a path, an amount, a unit and a
//! description. [`collect`] asks all of them, and adds what the kernel and the allocator say.

mod abi;
mod artefacts;
mod builtin;
mod children;
mod collect;
mod collector;
mod listen;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
mod path;
mod registry;
mod save;
mod slot;
mod socket;

#[cfg(feature = "opentelemetry")]
pub use crate::opentelemetry::observe;
pub use builtin::allocator_statistics;
pub use collect::{Options, collect};
pub use collector::{Collector, Pending};
pub use heapledger_reports::{Kind, Report, Reports, Unit};
pub use listen::{Listener, listen};
pub use path::{Part, part, private, variable};
pub use registry::{
    Registration, ReportItself, StaticReporter, register, register_async, register_strong, register_weak,
};
pub use save::save;
