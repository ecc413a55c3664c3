//! The recording format: chunks, event columns, index and footer. Pure: bytes in, bytes out.
//!
//! One recording holds one *session*: one run of `heapledger record`, which may observe several
//! processes. A process runs one or more *images*: `exec` starts a new image in the same process, a
//! fork starts a new process with an image of its own. Threads, serials and stack ids belong to an
//! image. Every time is in nanoseconds since the session began.
//!
//! - [`messages`]: what is known about the session, its images, modules and threads, and the
//!   totals.
//! - [`events`]: the calls in order, as columns.
//! - [`nodes`], [`sites`], [`checkpoint`], [`timeline`], [`memory`], [`mappings`], [`resident`],
//!   [`annotations`]: the other bulk chunks.
//! - [`writer`]: [`RecordingWriter`] strings chunks together and ends with index, footer and
//!   trailer.
//! - [`reader`]: [`Recording`] opens a whole, truncated or damaged file.
//! - [`follow`]: reads a file that is still being written.
//!
//! `FORMAT.md` in the repository's root is the specification.
//!
//! # What a hostile file can cost
//!
//! Nothing here panics on any input, and nothing recurses over it. A chunk never unpacks to more
//! than [`CHUNK_RAW_MAX`] bytes or more than [`CHUNK_ROWS_MAX`] rows. The directory of chunks takes
//! memory in proportion to the file (a chunk takes at least 32 bytes of it). A table that gathers
//! many chunks (nodes or sites of one image, a timeline, the metadata) stops with a damage report
//! at [`Limits::table_bytes`].
#![forbid(unsafe_code)]

pub mod annotations;
pub mod checkpoint;
mod columns;
pub mod error;
pub mod events;
pub mod follow;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod head;
pub mod ids;
mod ledger_totals;
pub mod mappings;
pub mod memory;
pub mod messages;
pub mod names;
pub mod nodes;
mod proto;
pub mod reader;
mod records;
pub mod resident;
pub mod sites;
mod stamps;
pub mod timeline;
mod varint;
pub mod writer;

pub use annotations::AnnotationsEncoder;
pub use checkpoint::{CheckpointEncoder, LiveBlock};
pub use error::{Damage, Reason, RecordingError};
pub use events::{
    BlockMark, Event, EventKind, Events, EventsBuffer, EventsEncoder, Extras, FreedBlock, Mark, MarkedBlocks, Reported,
    Sampled,
};
pub use follow::{CHUNK_HEADER_LENGTH, ChunkHeader, FIRST_CHUNK};
pub use frame::{CHUNK_RAW_MAX, Compressor, EncodedChunk, RawChunk, VERSION_MAJOR, VERSION_MINOR};
pub use head::{CHUNK_ROWS_MAX, ChunkEntry, ChunkHead, ChunkKind};
pub use ids::{Call, ImageId, Live, ModuleId, TextId, Time};
pub use mappings::{
    AddressSpace, MappedPiece, MappingCall, MappingChange, MappingEvent, MappingFlags, MappingKind, MappingSerial,
    MappingsEncoder, Protection,
};
pub use memory::{MemoryEncoder, MemorySample};
pub use messages::{
    Annotation, Clock, CountErrors, Counts, Departure, ExitStatus, Footer, ImageCounts, ImageEnd, ImageEndReason,
    ImageOrigin, ImageStart, ImportedLocation, Mapping, Module, NamedFunction, Pause, ProcessCounts, Record, RunCosts,
    Sampling, Session, StackCounts, Text, Thread,
};
pub use names::{CodeExtent, NamedLocation, Names, NamesEncoder};
pub use nodes::{Frames, Node, NodeCache, NodeKind, NodeTable, NodesEncoder, StackTree};
pub use reader::{Checkpoint, EventChunk, Limits, Process, Recording, Rows};
pub use resident::{
    ResidentEncoder, ResidentFigures, ResidentSnapshot, SNAPSHOT_NAMES_MAX, SNAPSHOT_PARTS_MAX, SnapshotCause,
    SnapshotPart, SnapshotSite,
};
pub use sites::{Site, SiteErrors, SitesEncoder};
pub use stamps::StampText;
pub use timeline::{Sample, Timeline, TimelineEncoder};
pub use writer::{RecordingWriter, encode_records};
