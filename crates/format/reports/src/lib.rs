//! Memory reports, the one tree printer, and the escaping of names that come from elsewhere.
//!
//! - [`Reports`]: what reporters measured.
//! - [`Tree`]: rows in preorder, with aligned columns on the left and the tree drawn on the right.
//! - [`escape`]: text that cannot control a terminal.
//!
//! Pure: it writes to a [`fmt::Write`](std::fmt::Write) that the caller provides.
#![forbid(unsafe_code)]

mod escape;
mod report;
mod tree;

pub use escape::{escape, is_harmless};
pub use report::{Kind, MAIN_PROCESS, Report, Reports, Unit};
pub use tree::{Layout, Line, Row, Tree};
