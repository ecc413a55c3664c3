//! Memory reporters: the parts of a program report how much memory they hold.
//!
//! A *reporter* is a function that makes measurements when it is asked, each with a path, an
//! amount, a unit and a description. It is registered by the attribute `reporter`, which is there
//! before `main` begins, or by [`register`] and the like, which return a guard. [`collect`] asks
//! all reporters, after the kernel and the allocators; [`save`] writes what they say to a file,
//! [`listen`] tells it to other processes.
//!
//! ```
//! # use heapledger_reporters as reports;
//! use reports::{Collector, ReportOptions};
//!
//! let names = vec!["a name".to_owned()];
//! let _registration = reports::register("explicit/names", move |collector: &mut Collector| {
//!     collector.heap("", collector.measure(&names), "The names that are known.");
//! });
//! let collected = reports::collect(&ReportOptions::default());
//! assert!(collected.reports.iter().any(|report| &*report.path == "explicit/names"));
//! ```
//!
//! # Costs
//!
//! A reporter costs nothing until somebody collects: the attribute is a function of a few
//! instructions that runs before `main`, [`register`] a few small blocks. A collection takes as
//! long as its reporters, and a thread for them.
//!
//! # Threads, forks, libraries
//!
//! All functions may be called in any thread, except in signal handlers. Libraries that are loaded
//! and unloaded take their reporters with them. In a forked child reporters are registered as in
//! its parent; it answers others only when it calls [`listen`] itself.

mod abi;
mod builtin;
mod children;
mod collect;
mod collector;
pub mod dark_matter;
mod failure;
mod fork;
#[doc(hidden)]
pub mod internal;
mod kept_names;
mod ledger_control;
mod listen;
mod loaded_objects;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
mod path;
mod registration;
mod registry;
mod report_options;
mod save;
mod slot;
mod socket;

#[cfg(feature = "opentelemetry")]
pub use crate::opentelemetry::observe;
pub use builtin::allocator_statistics;
pub use collect::collect;
pub use collector::{Collector, Pending};
pub use heapledger_report_format::{Kind, Report, Reports, Unit};
pub use listen::{Listener, listen};
pub use path::{Part, part, private, variable};
pub use registration::{ReporterRegistration, register, register_async, register_strong, register_weak};
pub use registry::{ReportItself, StaticReporter};
pub use report_options::ReportOptions;
pub use save::save;
