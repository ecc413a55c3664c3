//! The records of a recording that are not events: the session, its images, modules, threads and
//! totals; and annotations.

use std::borrow::Cow;

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::sample::Rate;
use heapledger_core::{Blocks, Bytes, StackId, ThreadId};

use crate::ids::{ImageId, Live, ModuleId, TextId, Time};
use crate::stamps::StampText;

/// One piece of metadata, as it is written.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Record {
    /// The session; the first record of a file.
    Session(Session),
    /// An image begins.
    ImageStart(ImageStart),
    /// An image is over.
    ImageEnd(ImageEnd),
    /// A module is named.
    Module(Module),
    /// A module is mapped into an image.
    Mapping(Mapping),
    /// A thread. A later record about the same thread replaces an earlier one.
    Thread(Thread),
    /// The totals of one image. A later record about the same image replaces an earlier one.
    ImageCounts(ImageCounts),
    /// The totals of one process. A later record about the same process replaces an earlier one.
    ProcessCounts(ProcessCounts),
    /// Recording was paused.
    Pause(Pause),
    /// A text that nodes of stack trees refer to.
    Text(Text),
    /// From here on blocks are sampled at this rate.
    Sampling(Sampling),
    /// The name that another tool gave to a place in a module.
    ImportedLocation(ImportedLocation),
    /// A program or process that ran unrecorded.
    Departure(Departure),
}

/// One run of `heapledger record`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The version of the tool that recorded.
    pub tool_version: String,
    /// The beginning of the session: nanoseconds since the UNIX epoch.
    pub start_unix_ns: u64,
    /// The recorded command and its arguments.
    pub command: Vec<Vec<u8>>,
    /// The working directory.
    pub directory: Vec<u8>,
    /// The page size of the machine.
    pub page_size: Bytes,
    /// The options that were in force, as text.
    pub options: String,
    /// The clock that orders events across threads.
    pub clock: Clock,
    /// The beginning of the recording: events before it are missing. 0 if it begins with the
    /// session.
    pub begins: Time,
    /// The number of this file among those of the session, from 1; 0 if there is only one.
    pub segment: u32,
    /// True if the recording has totals only, and no events.
    pub totals_only: bool,
    /// True if only a sample of all blocks is recorded: totals are then estimates.
    pub samples: bool,
}

/// The clock that orders events across threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// Unspecified, or one that this version does not know.
    #[default]
    Unknown,
    /// The processor's time stamp counter.
    Tsc,
    /// A sequence number shared by all threads.
    Sequence,
    /// The system's monotonic clock.
    Monotonic,
}

/// An image begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageStart {
    /// This image.
    pub image: ImageId,
    /// Its process.
    pub pid: u32,
    /// The process's parent.
    pub parent_pid: u32,
    /// The image it came from: the forking one, or the one that called `exec`. Always a lower id
    /// than its own.
    pub parent_image: Option<ImageId>,
    /// The way in which it began.
    pub how: ImageOrigin,
    /// After a fork: stack ids below this one are those of the parent image. 0 otherwise.
    pub fork_node_base: StackId,
    /// Blocks that were live when it began.
    pub inherited_blocks: Blocks,
    /// Their requested bytes.
    pub inherited_bytes: Bytes,
    /// True if the two figures before are exact, not estimates.
    pub inherited_exact: bool,
    /// The time at which it began.
    pub time: Time,
    /// For an image that was attached to: the time in nanoseconds for which its process had run
    /// before, 0 if that is not known. The recording does not have what the image allocated then.
    pub age_ns: u64,
    /// The path of its executable.
    pub executable: Vec<u8>,
    /// Its arguments.
    pub argv: Vec<Vec<u8>>,
    /// For an image that began before the recording did: the blocks that were live in it when the
    /// recording began. They are in a checkpoint of that moment, before the image's first events.
    pub carried: Option<Live>,
    /// The allocator that its malloc functions lead to.
    pub allocator: AllocatorKind,
    /// The allocator's version.
    pub allocator_version: AllocatorVersion,
}

/// The way in which an image began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageOrigin {
    /// Unspecified, or an origin that this version does not know.
    #[default]
    Unknown,
    /// The recorder launched it.
    Launched,
    /// The process called `exec`.
    Exec,
    /// A process forked.
    Fork,
    /// The recorder attached to it.
    Attached,
}

/// An image is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageEnd {
    /// The image.
    pub image: ImageId,
    /// The time of the end.
    pub time: Time,
    /// The reason for the end.
    pub reason: ImageEndReason,
    /// The exit status of the process, if known.
    pub exit: Option<ExitStatus>,
}

/// The reason why an image ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageEndReason {
    /// Unspecified, or a reason that this version does not know.
    #[default]
    Unknown,
    /// The process called `exec`.
    Exec,
    /// The process ended.
    Exit,
    /// It was still running when the recording ended.
    Detached,
    /// The recorder lost sight of it.
    Lost,
}

/// The way in which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// An executable or shared object. Named once per session, however many images map it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its id; never [`ModuleId::UNKNOWN`].
    pub module: ModuleId,
    /// Its path.
    pub path: Vec<u8>,
    /// Its GNU build id; empty if it has none.
    pub build_id: Vec<u8>,
}

/// A module is mapped into an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The image.
    pub image: ImageId,
    /// The module.
    pub module: ModuleId,
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// The number to subtract (wrapping) from an address to get the module's own ELF address.
    pub bias: u64,
    /// The time at which it was first seen.
    pub time: Time,
}

/// A thread of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// The image.
    pub image: ImageId,
    /// The thread's number within the image.
    pub thread: ThreadId,
    /// The kernel's id.
    pub tid: u32,
    /// Its name; empty if not known.
    pub name: Vec<u8>,
    /// The time at which it was first seen.
    pub start: Time,
    /// The time at which it ended, if it did.
    pub end: Option<Time>,
}

/// The totals of one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageCounts {
    /// The image.
    pub image: ImageId,
    /// Its totals.
    pub counts: Counts,
}

/// The totals of one process, over all its images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    /// The process's first image, which distinguishes it from others that had the same pid.
    pub first_image: ImageId,
    /// Its pid.
    pub pid: u32,
    /// Its totals.
    pub counts: Counts,
}

/// A time in which allocations were not recorded, though frees of recorded blocks were, because
/// somebody asked for it. Or a time in which the recorder stood still, and events for which there
/// was no room were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// The time at which it began, which identifies it.
    pub from: Time,
    /// The time at which it ended; `None` if it lasts to the end of the recording.
    pub until: Option<Time>,
    /// True if nobody asked for it: the recorder stood still.
    pub is_stall: bool,
}

/// A program that a recorded process started, or a process that it forked, which ran unrecorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Departure {
    /// The time at which it was started.
    pub time: Time,
    /// The image that started it.
    pub image: ImageId,
    /// The process id: the image's own, after an exec. 0: not known. If the process is in another
    /// pid namespace than the recorder, the number is that namespace's.
    pub pid: u32,
    /// The reason why it was not recorded: the number of an explanation in `heapledger explain`.
    pub reason: u32,
    /// The path of its program, as the image gave or found it.
    pub path: Vec<u8>,
    /// True if it is a forked process, not another program.
    pub is_fork: bool,
}

/// The rate at which blocks were sampled from a moment on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// The moment, which identifies the record.
    pub from: Time,
    /// The rate.
    pub rate: Rate,
}

/// A text that a program gave: the name or the value of a scope, the name of a heap, or a
/// [stamp](crate::StampText). Named once per session, however many images and nodes have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// Its id; never [`TextId::UNKNOWN`].
    pub text: TextId,
    /// The text: UTF-8, unless the program made a mistake.
    pub bytes: Vec<u8>,
    /// True if it names a task: a piece of work that goes from thread to thread.
    pub is_task: bool,
    /// The category that the program put it in; empty for none.
    pub category: Vec<u8>,
}

impl Text {
    /// Parses it as the text of a [stamp](crate::NodeKind::Stamp).
    pub fn stamp(&self) -> StampText<'_> {
        StampText::parse(&self.bytes)
    }
}

/// The functions at a place in a module, as another tool found them. It is for recordings made from
/// that tool's files, whose places can no longer be looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedLocation {
    /// The module.
    pub module: ModuleId,
    /// The place in it, as [nodes](crate::Node::offset) have it.
    pub offset: u64,
    /// The functions, the innermost first: [texts](ImportedLocation::functions) of their names,
    /// files and lines.
    pub functions: Vec<Vec<u8>>,
}

/// A function at a [place](ImportedLocation).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedFunction<'text> {
    /// Its name, with any types and parameters.
    pub name: Cow<'text, str>,
    /// The source file; `None`: not known.
    pub file: Option<Cow<'text, str>>,
    /// The line in it; 0: not known.
    pub line: u32,
}

impl NamedFunction<'_> {
    /// Returns the text for the function: that of a [stamp](StampText) whose type is the function.
    pub fn to_bytes(&self) -> Vec<u8> {
        let NamedFunction { name, file, line } = self;
        // A name is one line.
        let type_name = name.replace('\n', " ").into();
        StampText { type_name, file: file.as_deref().map(Cow::Borrowed), line: *line, label: None }.to_bytes()
    }
}

impl ImportedLocation {
    /// Returns its functions, the innermost first.
    pub fn functions(&self) -> impl Iterator<Item = NamedFunction<'_>> {
        self.functions.iter().map(|text| {
            let StampText { type_name: name, file, line, .. } = StampText::parse(text);
            NamedFunction { name, file, line }
        })
    }
}

/// An event that is not about a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotation {
    /// The image.
    pub image: ImageId,
    /// The thread.
    pub thread: ThreadId,
    /// The time.
    pub time: Time,
    /// The kind: its code in the ring protocol.
    pub code: u32,
    /// Its contents.
    pub payload: Vec<u8>,
}

/// Totals of an image, a process or a session, up to a moment.
///
/// Bytes are requested bytes. `live` excludes inherited blocks; those have fields of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that returned a block, reallocations included.
    pub allocations: Blocks,
    /// Reallocations that released a block and returned one: each is one of the allocations and one
    /// of the frees.
    pub reallocations: Blocks,
    /// Blocks of this image that were released, by reallocations too.
    pub frees: Blocks,
    /// Calls that returned no block though one was asked for.
    pub failed: Blocks,
    /// Bytes of all allocations.
    pub bytes_allocated: Bytes,
    /// The most bytes that were live at once: the peak.
    pub bytes_live_max: Bytes,
    /// The time of the peak (the first, if there are several).
    pub bytes_live_max_time: Time,
    /// The number of blocks live at that moment.
    pub blocks_at_bytes_max: Blocks,
    /// The most blocks that were live at once (at any moment).
    pub blocks_live_max: Blocks,
    /// Bytes live at the end.
    pub bytes_live_end: Bytes,
    /// Blocks live at the end.
    pub blocks_live_end: Blocks,
    /// Blocks that were freed before the same thread allocated again.
    pub temporary_allocations: Blocks,
    /// Frees of blocks that were never seen allocated.
    pub frees_unknown: Blocks,
    /// Blocks that were live when their address was handed out again: they count as freed then, by
    /// a missed free.
    pub frees_missed: Blocks,
    /// Frees of blocks that the image inherited.
    pub frees_inherited: Blocks,
    /// Bytes of inherited blocks still live at the end.
    pub bytes_inherited_live_end: Bytes,
    /// Inherited blocks still live at the end.
    pub blocks_inherited_live_end: Blocks,
    /// Events that were lost, from any cause, and are nowhere else in the file.
    pub events_lost: u64,
    /// Events that arrived after their moment had been passed, and were put in later than they
    /// happened.
    pub events_late: u64,
    /// Allocations whose stamp was before that of the free of their address by another thread, and
    /// that stand after it.
    pub events_reordered: u64,
    /// Threads that made an allocator call.
    pub threads: u64,
    /// Lost events that were dropped because a ring was full (`--on-full drop`, or the recorder
    /// stood still).
    pub events_lost_full: u64,
    /// Lost events that were calls from signal handlers that had interrupted the recorder.
    pub events_lost_nested: u64,
    /// Lost events that were calls from threads and processes for which there was no ring.
    pub events_lost_no_ring: u64,
    /// An estimate of the events that were lost because the program had written over its ring.
    pub events_lost_unreadable: u64,
    /// Lost events from user pools beyond the largest number of pools, or with addresses that are
    /// too large.
    pub events_lost_pools: u64,
    /// Stamps on addresses without a live block, or on blocks that were not seen allocated.
    pub stamps_unknown: u64,
    /// Frees of blocks that were allocated while recording was paused; not among `frees_unknown`.
    pub frees_paused: Blocks,
    /// The number of incomplete stacks, and the results of comparing stacks.
    pub stacks: StackCounts,
    /// The standard errors of the totals, if blocks were sampled.
    pub errors: Option<CountErrors>,
}

/// The standard errors of totals, which are estimates if blocks were sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountErrors {
    /// The errors of the allocations and their bytes.
    pub allocated: Live,
    /// The errors of the blocks and bytes live at the end.
    pub live_end: Live,
    /// The errors of the blocks and bytes live at the peak.
    pub live_at_peak: Live,
}

/// Incomplete stacks; and how stacks compare with those of the C library, if that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCounts {
    /// Captured stacks of which only the innermost frames were kept, because they were too deep.
    pub truncated: u64,
    /// Captured stacks without their outer frames, because a frame has no usable unwind
    /// information.
    pub dropped: u64,
    /// Captured stacks that are frame by frame what glibc's `backtrace` found at the same place.
    pub verified: u64,
    /// Captured stacks that differ from it.
    pub mismatched: u64,
    /// Captured stacks that were not compared, because glibc could not be asked.
    pub unasked: u64,
    /// Captured stacks that go on where glibc's end, and are the same up to there.
    pub outlasting: u64,
    /// Events without the stack that they should have: their threads had no ring of their own,
    /// because they were ending, or because a signal handler had interrupted the recorder.
    pub missing: u64,
    /// Events whose stacks or contexts lack inner parts: the recorder had no more memory in the
    /// program, or was to take no more.
    pub folded: u64,
    /// Allocations whose stacks go through frames that were left by their frame pointers:
    /// [`Node::is_unproven`](crate::Node::is_unproven).
    pub unproven: u64,
}

impl StackCounts {
    /// Adds the counts of another image or process.
    pub fn add(&mut self, other: &StackCounts) {
        let StackCounts { truncated, dropped, verified, mismatched, unasked, outlasting, missing, folded, unproven } =
            other;
        self.truncated = self.truncated.saturating_add(*truncated);
        self.dropped = self.dropped.saturating_add(*dropped);
        self.verified = self.verified.saturating_add(*verified);
        self.mismatched = self.mismatched.saturating_add(*mismatched);
        self.unasked = self.unasked.saturating_add(*unasked);
        self.outlasting = self.outlasting.saturating_add(*outlasting);
        self.missing = self.missing.saturating_add(*missing);
        self.folded = self.folded.saturating_add(*folded);
        self.unproven = self.unproven.saturating_add(*unproven);
    }

    /// True if stacks were compared, or were to be.
    pub fn were_verified(&self) -> bool {
        self.verified | self.mismatched | self.unasked | self.outlasting != 0
    }

    /// Returns the number of stacks that could not be compared with the C library's, if that was
    /// asked for.
    pub fn incomparable(&self) -> u64 {
        self.unasked.saturating_add(self.outlasting).saturating_add(self.missing)
    }
}

/// The totals of the session and what the recording itself cost. The last chunk of a complete file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// The end of the session.
    pub time: Time,
    /// True if the recorder saw everything to its end.
    pub complete: bool,
    /// The totals over all processes.
    pub counts: Counts,
    /// The exit status of the recorded command.
    pub exit: Option<ExitStatus>,
    /// The costs of the recording.
    pub costs: RunCosts,
    /// The lower bound of the peak, in a recording that is merged from totals; the peak in `counts`
    /// is then the upper bound. `None` if the peak is exact.
    pub peak_least: Option<Live>,
}

/// The costs of a recording, and what the program itself used. Absent if not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCosts {
    /// CPU time of the collector.
    pub collector_cpu_ns: Option<u64>,
    /// The largest resident size of the collector.
    pub collector_rss_max: Option<Bytes>,
    /// Ring memory shared with the recorded processes.
    pub ring_bytes: Option<Bytes>,
    /// Memory that the hook took inside the recorded processes.
    pub target_private_bytes: Option<Bytes>,
    /// An estimate of the time that the hook took in the recorded processes.
    pub hook_ns: Option<u64>,
    /// CPU time of the recorded processes, hook included.
    pub program_cpu_ns: Option<u64>,
    /// Wall-clock time of the recorded command.
    pub program_wall_ns: Option<u64>,
}
