//! Memory dumps as Chrome's `memory-infra` has them, and the traces that hold them: `about:tracing` shows such a file.
//!
//! A [`ProcessDump`] is what the parts of a process say of their memory at one moment: [allocator dumps](AllocatorDump) with
//! names and attributes, who owns what of them, [heaps](Heap) by stack and type, and what the kernel says. A [`Trace`] is
//! where the dumps of several processes, made at the same moment and under the same number, become a file. What [`write()`] makes of
//! a profile is such a trace, too, with a dump for each moment that the profile has.
//!
//! What its importers trip over is seen to here: frames and types have numbers that are unique in the file and begin with 1,
//! names of types are always there, and beside each heap there is an allocator dump of its name.

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
pub use read::{is_one, read, reports};
pub use trace::{HeapFormat, Trace};
#[doc(hidden)]
pub use untracked::set_scope;
