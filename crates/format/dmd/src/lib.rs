//! The dark matter detector: which memory nobody reports, and which is reported twice.
//!
//! A [`Log`] holds the blocks of a heap, by where they were allocated and by who has reported them. It is made with a
//! [`Builder`], of a ledger or of a recording.
#![forbid(unsafe_code)]

mod advice;
mod amount;
mod builder;
mod log;
pub mod request;

pub use advice::{Advice, Adviser, Because, Near, Owner, Part, Plan, Step, Who, Whose};
pub use amount::Amount;
pub use builder::{Block, Builder};
pub use log::{About, Defect, DefectKind, FrameId, Group, Log, Mode, Module, NameId, Report, Sampling, Size, TraceId};
