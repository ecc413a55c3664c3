//! The dark matter detector, which finds memory that no reporter reports, and memory that is
//! reported twice.
//!
//! A [`Log`] holds the blocks of a heap, by the stacks that allocated and reported them. It is made
//! with a [`Builder`], from a ledger or a recording.
#![forbid(unsafe_code)]

mod advice;
mod analysis;
mod block_source;
mod builder;
mod digest;
mod dump_stats;
mod frames;
#[doc(hidden)]
pub mod fuzzing;
mod hash;
mod json;
mod lexer;
mod log;
mod read;
mod read_error;
mod referrers;
pub mod request;
mod scan;
mod spool;
mod spooled;
mod stacks;
mod table_keys;
mod text;
mod write;

pub use advice::{Advice, Adviser, Code, CodeClass, Owner, Part, Plan, Reason, ReporterName, SharedProperty, Step};
pub use analysis::{
    Analysis, DefectRecord, DmdOptions, DmdStack, Estimate, GroupBy, Kind, KindName, MOZILLA_PROBABILITY, Record,
    Reported, Share, Sort, Total,
};
pub use builder::Builder;
pub use digest::DifferentModes;
pub use frames::{FrameTexts, UnresolvedFrame, is_alloc_fn};
pub use log::{
    About, Block, Defect, DefectKind, DumpStats, FrameId, Group, Log, Mode, Module, NameId, Report, Sampling, Scanned,
    ScannedBlock, Size, TraceId,
};
pub use read_error::ReadError;
pub use referrers::{Chains, Link, Referrers};
pub use scan::{ClampStats, Overlap};
pub use spool::{SpoolFile, Spooling};
pub use spooled::SpooledLog;
pub use text::{RECORDS_MAX, TextOptions};
