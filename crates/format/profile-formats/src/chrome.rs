//! Memory dumps in the format of Chrome's `memory-infra`, and the traces that hold them:
//! `about:tracing` shows such a file.
//!
//! A [`ProcessDump`] has the memory of a process at one moment: [allocator dumps](AllocatorDump)
//! with names and attributes, their owners, [heaps](Heap) by stack and type, and the kernel's
//! figures. A [`Trace`] turns the dumps of several processes, made at the same moment and under the
//! same number, into a file. [`write()`] turns a profile into such a trace too, with a dump for
//! each moment that the profile has.
//!
//! Known problems of Chrome's importers are avoided: frames and types have numbers that are unique
//! in the file and begin with 1, names of types are always there, and beside each heap there is an
//! allocator dump with its name.

mod allocators;
mod cut;
#[doc(hidden)]
pub mod fuzzing;
mod guid;
mod heap;
mod kernel;
mod leaves;
mod names;
mod process;
mod profile;
mod read;
pub mod request;
mod trace;
mod untracked;

pub use allocators::{AllocatorDump, Attribute, Edge, WEAK};
pub use cut::{Cut, Entry};
pub use guid::Guid;
pub use heap::{Heap, UNKNOWN_TYPE};
pub use kernel::{Region, Totals, protection};
pub use leaves::leaves;
pub use process::{Kind, Level, ProcessDump};
pub use profile::{HOLDS, write};
pub use read::{detects, read, reports};
pub use trace::{HeapFormat, Trace};
#[doc(hidden)]
pub use untracked::set_scope;
