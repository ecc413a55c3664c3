//! The collector: everything that `heapledger record` does after parsing its arguments.
//!
//! [`record`] runs a command, and records what its processes do with their heaps. It works in the
//! calling thread, with three more threads: the *broker* (`broker`) answers the programs, the
//! *writer* (`writer`) compresses and writes, and one waits for the command (`command`). The
//! *collector* (`collector`) is in between.
//!
//! [`run`] starts a command in the same way with hook libraries, and records nothing.
//!
//! Nothing is printed. The [`Outcome`] has everything, including the command's exit status.

mod address_index;
mod armed;
pub mod ask;
mod attachment;
mod broker;
mod clock;
mod collector;
mod command;
mod control;
mod departures;
mod destination;
mod discard;
mod early;
mod error;
mod exec;
mod exiting;
mod external_counters;
mod file_state;
mod files_of;
mod follow;
mod forks;
mod generated;
mod heap_checker;
mod image;
mod inbox;
mod launch;
mod libraries;
mod live_figures;
mod live_pages;
mod live_recording;
mod log;
mod lost;
mod mapped;
mod memory;
mod module_table;
mod modules;
mod musl;
mod nodes;
mod options;
mod outcome;
mod output;
mod placed;
mod proc_maps;
mod process;
mod recorder;
mod redirection;
mod resident;
mod roots;
mod run;
mod session;
mod session_state;
mod shared;
mod signals;
mod slowness;
mod source;
mod stamps;
mod status;
mod texts;
mod tree;
mod unix;
mod way;
mod writer;

pub use armed::{ArmError, ArmedProcess, Denial, Sandbox};
pub use attachment::{AttachError, Stop, TraceDenial};
pub use control::{ControlRequest, RunningSession};
pub use discard::DiscardingSession;
pub use error::RecordError;
pub use heap_checker::{Checker, HeapChecker};
pub use heapledger_wire::session::ALLOCATOR_FILE_NAME;
pub use libraries::{CommandAllocator, CommandLibraries, is_loadable, parts_of_older_glibc};
pub use live_figures::LiveFigures;
pub use live_pages::LivePages;
pub use live_recording::{LiveError, LiveRecording};
pub use log::{ExistingFile, LogOptions, Logged, LoggedFields, log};
pub use musl::is_installed as is_musl_installed;
pub use options::{Begin, OnFull, RecordOptions, ResidentSnapshots, Rotation, StackMode};
pub use outcome::{DamagedCodeFile, ImageOutcome, Outcome, ProcessOutcome, Progress, Totals};
pub use placed::PlacementError;
pub use recorder::{attach, attach_from_outside, record};
pub use redirection::{RedirectedAllocator, placed_allocators, redirected_allocators};
pub use roots::Roots;
pub use run::{check, run};
pub use session::{Library, is_observed};
pub use signals::die_by;
pub use status::Status;
