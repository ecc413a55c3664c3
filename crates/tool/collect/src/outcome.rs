//! The reports of `record`: progress while it runs, and the outcome at the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heapledger_core::{Blocks, Bytes};
use heapledger_recording::{
    CountErrors, Counts, Departure, ExitStatus, Footer, ImageEndReason, ImageId, ImageOrigin, Live, Pause,
};

use crate::attachment::{AttachError, Stop};
use crate::error::RecordError;
use crate::placed::PlacementError;
use crate::roots::Roots;

/// The progress of a recording. Reported on the thread that called [`record`](crate::record), which
/// does nothing else meanwhile.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// The command has been started.
    Started {
        /// The pid of its process.
        pid: u32,
        /// The file that is being written.
        output: &'a Path,
    },
    /// The figures so far; about ten times a second.
    Running(Totals),
    /// One of several files is complete, and the next has begun.
    SegmentEnded {
        /// The file.
        path: &'a Path,
    },
    /// The program that was asked to join has joined.
    Joined,
    /// The recorder's library has been placed into the program, in this stop of its threads. The
    /// program joins by its next call.
    Attached(Stop),
    /// The library has been taken out of the program, in this stop; `None` if the process has ended
    /// or has started another program.
    Detached(Result<Option<&'a Stop>, &'a AttachError>),
    /// The command has ended.
    CommandEnded {
        /// Its exit status.
        exit: ExitStatus,
        /// The number of processes that it has left behind.
        running: u32,
        /// True if the recorder waits for them.
        waits: bool,
    },
    /// The time for recording is over. The command, if it still runs, continues unrecorded.
    TimeIsUp,
    /// The recording had to end before the command did, which continues unrecorded.
    Failed(&'a RecordError),
    /// Everything is recorded, and the file is being completed.
    Finishing,
}

/// The figures of a recording in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// The time since the session began.
    pub elapsed: Duration,
    /// The number of recorded events.
    pub events: u64,
    /// The number of calls that returned a block.
    pub allocations: Blocks,
    /// The amount that is live.
    pub live: Live,
    /// The most bytes that were live at once.
    pub bytes_live_max: Bytes,
    /// The number of processes seen.
    pub processes: u32,
    /// The number of processes that have not ended.
    pub processes_running: u32,
    /// The length of the file so far, in bytes.
    pub bytes_written: u64,
}

/// The outcome of a recording.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The file.
    pub output: PathBuf,
    /// Its length in bytes.
    pub bytes_written: u64,
    /// The number of files, of which this is the last; 0 if only one was asked for.
    pub segments: u32,
    /// The earlier files that were kept, the oldest first.
    pub earlier: Vec<PathBuf>,
    /// The command's process.
    pub command_pid: u32,
    /// The exit status of the command.
    pub exit: ExitStatus,
    /// The totals and costs: as in the file, or over all files.
    pub footer: Footer,
    /// The number of events for this file. Fewer are in it if it could not be written to its end.
    pub events_of_file: u64,
    /// The times at which the recorder stood still, and programs continued without it.
    pub stalls: Vec<Pause>,
    /// The recorded processes, in the order of their first contact; only those in the last file.
    pub processes: Vec<ProcessOutcome>,
    /// The number of programs and processes that ran unrecorded.
    pub departures_count: u64,
    /// The first of these departures.
    pub departures: Vec<Departure>,
    /// True if the processor's time stamp counter runs at one rate. If not, events of different
    /// threads may be in the wrong order.
    pub clock_reliable: bool,
    pub(crate) command_has_come: bool,
    /// True if allocations were recorded at any time.
    pub has_begun: bool,
    /// True if the recording ended because its time was over.
    pub time_is_up: bool,
    /// The texts of the heap checker's reports, one for each process that has written any.
    pub heap_reports: Vec<String>,
    /// The root directories of processes that had others than the recorder: the files of their
    /// modules are there.
    pub roots: Arc<Roots>,
    /// The files with names of generated code that are damaged or could not be read to their ends.
    pub code_files_damaged: Vec<DamagedCodeFile>,
    /// The reason why the recorder's library was not placed into the command, which is statically
    /// linked.
    pub not_placed: Option<PlacementError>,
    /// The reason why the recording ended before the command did. The file can be read up to there.
    pub problem: Option<RecordError>,
}

impl Outcome {
    /// True if the command itself was recorded. It is not if it never loaded the library:
    /// statically linked programs, and programs with the privileges of another user, do not.
    pub fn command_recorded(&self) -> bool {
        self.command_has_come
    }
}

/// A file with names of generated code of which only the beginning was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedCodeFile {
    /// The file, as its process names it.
    pub path: PathBuf,
    /// The pid of that process.
    pub pid: u32,
    /// The offset in the file, and the reason.
    pub error: String,
}

/// A process of a recording.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessOutcome {
    /// Its pid.
    pub pid: u32,
    /// The pid of its parent when it introduced itself.
    pub parent_pid: u32,
    /// Its images: each but the first was started by `exec`.
    pub images: Vec<ImageOutcome>,
    /// Its exit status, if it is known.
    pub exit: Option<ExitStatus>,
    /// True if it was still running when the recording ended.
    pub running: bool,
}

/// An image of a process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ImageOutcome {
    /// Its number in the file.
    pub image: ImageId,
    /// The way in which it came to be.
    pub how: ImageOrigin,
    /// The reason why it ended.
    pub end: ImageEndReason,
    /// The path of its executable.
    pub executable: Vec<u8>,
    /// Its arguments.
    pub argv: Vec<Vec<u8>>,
    /// Its totals.
    pub counts: Counts,
}

/// Adds an image to the totals of its process. Images follow each other, so the largest peak
/// counts, and the live figures are those of the last image.
pub(crate) fn add_image(process: &mut Counts, image: &Counts) {
    add_flows(process, image);
    let errors = image.errors.unwrap_or_default();
    let mut sum = process.errors.unwrap_or_default();
    if image.bytes_live_max > process.bytes_live_max {
        sum.live_at_peak = errors.live_at_peak;
        process.bytes_live_max = image.bytes_live_max;
        process.bytes_live_max_time = image.bytes_live_max_time;
        process.blocks_at_bytes_max = image.blocks_at_bytes_max;
    }
    sum.live_end = errors.live_end;
    process.errors = (sum != CountErrors::default()).then_some(sum);
    process.blocks_live_max = process.blocks_live_max.max(image.blocks_live_max);
    process.bytes_live_end = image.bytes_live_end;
    process.blocks_live_end = image.blocks_live_end;
    process.bytes_inherited_live_end = image.bytes_inherited_live_end;
    process.blocks_inherited_live_end = image.blocks_inherited_live_end;
}

/// Adds a process to the totals of the session, except the peaks, which are at different times.
pub(crate) fn add_process(session: &mut Counts, process: &Counts) {
    add_flows(session, process);
    if let Some(errors) = process.errors {
        let sum = session.errors.get_or_insert_default();
        sum.live_end = sum.live_end.with_error(errors.live_end);
    }
    session.bytes_live_end.0 += process.bytes_live_end.0;
    session.blocks_live_end.0 += process.blocks_live_end.0;
    session.bytes_inherited_live_end.0 += process.bytes_inherited_live_end.0;
    session.blocks_inherited_live_end.0 += process.blocks_inherited_live_end.0;
}

/// Adds a later segment to the totals of a session. The largest peak counts, and the live figures
/// are those of the last segment.
pub(crate) fn add_segment(session: &mut Counts, segment: &Counts) {
    let threads = session.threads.max(segment.threads);
    add_image(session, segment);
    session.threads = threads;
}

/// Adds the totals that are sums over calls.
fn add_flows(total: &mut Counts, counts: &Counts) {
    total.allocations.0 += counts.allocations.0;
    total.reallocations.0 += counts.reallocations.0;
    total.frees.0 += counts.frees.0;
    total.failed.0 += counts.failed.0;
    total.bytes_allocated.0 = total.bytes_allocated.0.wrapping_add(counts.bytes_allocated.0);
    total.temporary_allocations.0 += counts.temporary_allocations.0;
    total.frees_unknown.0 += counts.frees_unknown.0;
    total.frees_inherited.0 += counts.frees_inherited.0;
    let lost = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
    lost(&mut total.events_lost, counts.events_lost);
    lost(&mut total.events_lost_full, counts.events_lost_full);
    lost(&mut total.events_lost_nested, counts.events_lost_nested);
    lost(&mut total.events_lost_no_ring, counts.events_lost_no_ring);
    lost(&mut total.events_lost_unreadable, counts.events_lost_unreadable);
    lost(&mut total.events_lost_pools, counts.events_lost_pools);
    lost(&mut total.stamps_unknown, counts.stamps_unknown);
    total.frees_paused.0 += counts.frees_paused.0;
    total.frees_missed.0 += counts.frees_missed.0;
    total.events_late += counts.events_late;
    total.events_reordered += counts.events_reordered;
    total.threads += counts.threads;
    total.stacks.add(&counts.stacks);
    if let Some(errors) = counts.errors {
        let sum = total.errors.get_or_insert_default();
        sum.allocated = sum.allocated.with_error(errors.allocated);
    }
}
