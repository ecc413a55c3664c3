//! Memory reports, the one tree printer, and the escaping of names from elsewhere.
//!
//! - [`Reports`]: the measurements of reporters, and their files.
//! - [`about`]: their display as in Firefox's about:memory, as data and as text; [`Difference`]:
//!   that of two sets.
//! - [`ask`]: the protocol by which processes ask each other; [`request`]: the request for reports.
//! - [`Tree`]: rows in preorder, with aligned columns on the left and the tree drawn on the right.
//! - [`escape`]: text that cannot control a terminal. [`grouped`]: numbers that people can read.
//!
//! Pure: it writes to a [`fmt::Write`](std::fmt::Write) that the caller provides. Only the feature
//! `sockets` opens sockets.
#![forbid(unsafe_code)]

#[cfg(feature = "about")]
pub mod about;
#[cfg(feature = "about")]
mod anonymize;
pub mod ask;
#[cfg(feature = "about")]
mod difference;
mod escape;
mod file;
#[cfg(feature = "about")]
#[doc(hidden)]
pub mod fuzzing;
mod grouped;
mod openmetrics;
mod report;
pub mod request;
mod tree;

#[cfg(feature = "about")]
pub use difference::{Change, Difference, Incomparable, Presence};
pub use escape::{escape, is_harmless};
pub use file::{FILE_BYTES_MAX, FileError};
pub use grouped::grouped;
pub use report::{Invalid, Kind, MAIN_PROCESS, Report, Reports, Unit};
pub use tree::{Layout, Line, Row, Tree, without_middle};
