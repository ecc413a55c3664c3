//! The writer: a thread that encodes large data that are not urgent, and appends chunks to the
//! file.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use heapledger_recording::{
    CheckpointEncoder, Compressor, EncodedChunk, Footer, ImageId, LiveBlock, MemoryEncoder, MemorySample, RawChunk,
    Record, ResidentEncoder, ResidentSnapshot, Sample, Site, SitesEncoder, TimelineEncoder, encode_records,
};

use crate::destination::Destination;
use crate::error::RecordError;
use crate::file_state::{FileState, WriteFailure};
use crate::shared::Page;

/// The maximum number of waiting jobs. A chunk has at most a few megabytes, and the collector waits
/// if the disk is slow.
const JOBS_MAX: usize = 16;

/// A job for the writer.
#[derive(Debug)]
pub(crate) enum Job {
    Chunk(EncodedChunk),
    Events(RawChunk),
    Records(Vec<Record>),
    Sites(ImageId, Vec<Site>),
    Timeline(Option<ImageId>, Vec<Sample>),
    Checkpoint(CheckpointEncoder, Vec<LiveBlock>),
    Memory(ImageId, Vec<MemorySample>),
    Resident(ImageId, Box<ResidentSnapshot>),
    /// The final name of the file.
    Name(PathBuf),
    /// The contents of the file until the next snapshot, in addition to its permanent contents. For
    /// a [replaced](Destination::Replaced) file only.
    Snapshot(Vec<Job>, Box<Footer>),
    /// The footer, which ends the file. Another file may follow.
    Finish(Box<Footer>),
    /// The next file, after a `Finish`.
    Next(File),
    /// A request to be notified when all jobs before this one are written.
    Written(SyncSender<()>),
}

/// A handle of the writer's thread.
#[derive(Debug)]
pub(crate) struct Writer {
    jobs: SyncSender<Job>,
    state: Arc<FileState>,
    thread: JoinHandle<Result<(), WriteFailure>>,
}

impl Writer {
    pub(crate) fn start(file: Destination, page: Option<Arc<Page>>) -> Result<Writer, RecordError> {
        let (jobs, receiver) = sync_channel(JOBS_MAX);
        let state = Arc::new(FileState { page, ..FileState::default() });
        let for_thread = Arc::clone(&state);
        let run = move || {
            let result = run(file, &receiver, &for_thread);
            if result.is_err() {
                for_thread.has_failed.store(true, Ordering::Release);
                // The collector must not wait for a writer that has failed.
                receiver.into_iter().for_each(drop);
            }
            result
        };
        let thread = std::thread::Builder::new().name("writer".into()).spawn(run);
        Ok(Writer { jobs, state, thread: thread.map_err(RecordError::session("the writer's thread"))? })
    }

    /// Sends a job. Waits while too many jobs are unfinished; without effect once the writer has
    /// failed.
    pub(crate) fn send(&self, job: Job) {
        // An error means that the thread has panicked, which `end` reports.
        let _ = self.jobs.send(job);
    }

    /// Sends a snapshot. Returns false if the one before is still being written.
    pub(crate) fn send_snapshot(&self, jobs: impl FnOnce() -> (Vec<Job>, Footer)) -> bool {
        if self.state.has_snapshots_to_do.swap(true, Ordering::AcqRel) {
            return false;
        }
        let (jobs, footer) = jobs();
        self.send(Job::Snapshot(jobs, Box::new(footer)));
        true
    }

    /// True while a snapshot is being written: until then, no other one can be sent.
    pub(crate) fn is_writing_snapshot(&self) -> bool {
        self.state.has_snapshots_to_do.load(Ordering::Acquire)
    }

    /// Makes the collector believe that a snapshot is being written.
    #[cfg(test)]
    pub(crate) fn pretend_snapshot(&self, is_being_written: bool) {
        self.state.has_snapshots_to_do.store(is_being_written, Ordering::Release);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state.has_failed.load(Ordering::Acquire)
    }

    /// Returns the number of files that were begun after the first.
    pub(crate) fn segments(&self) -> u32 {
        self.state.segments.load(Ordering::Acquire)
    }

    pub(crate) fn bytes_written(&self) -> u64 {
        self.state.bytes_written.load(Ordering::Relaxed)
    }

    /// Waits for all jobs, and returns the number of bytes written or the failure. Without a
    /// `Finish` among the jobs, the file stays without its end.
    pub(crate) fn end(self) -> Result<u64, (u64, WriteFailure)> {
        drop(self.jobs);
        let result = match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let bytes = self.state.bytes_written.load(Ordering::Relaxed);
        result.map(|()| bytes).map_err(|failure| (bytes, failure))
    }
}

fn run(mut file: Destination, jobs: &Receiver<Job>, state: &FileState) -> Result<(), WriteFailure> {
    let mut compressor = Compressor::new();
    file.begin(state)?;
    for job in jobs {
        match job {
            Job::Name(name) => file.name(name),
            Job::Snapshot(jobs, footer) => {
                let mut chunks = Vec::new();
                for job in jobs {
                    chunks.extend(encode(job, &mut compressor)?);
                }
                file.snapshot(&chunks, &footer, &mut compressor, state);
                state.has_snapshots_to_do.store(false, Ordering::Release);
            }
            Job::Finish(footer) => file.finish(&footer, &mut compressor, state)?,
            Job::Next(next) => {
                file = file.next(next);
                file.begin(state)?;
                state.segments.fetch_add(1, Ordering::Release);
            }
            // The requester may not be waiting any more.
            Job::Written(done) => _ = done.try_send(()),
            job => {
                let chunks = encode(job, &mut compressor)?;
                file.add(chunks, state)?;
            }
        }
    }
    Ok(())
}

/// Encodes a job with contents into chunks.
fn encode(job: Job, compressor: &mut Compressor) -> Result<Vec<EncodedChunk>, WriteFailure> {
    Ok(match job {
        Job::Chunk(chunk) => vec![chunk],
        Job::Events(chunk) => vec![chunk.compress(compressor)],
        Job::Records(records) => encode_records(&records, compressor)?,
        Job::Sites(image, mut sites) => {
            sites.sort_unstable_by_key(|site| site.stack);
            SitesEncoder::encode(image, &sites, compressor)?
        }
        Job::Timeline(image, samples) => TimelineEncoder::encode(image, &samples, compressor)?,
        Job::Checkpoint(checkpoint, mut blocks) => {
            blocks.sort_unstable_by_key(|block| block.serial);
            checkpoint.encode(&blocks, compressor)?
        }
        Job::Memory(image, samples) => MemoryEncoder::encode(image, &samples, compressor)?,
        Job::Resident(image, snapshot) => ResidentEncoder::encode(image, &snapshot, compressor)?,
        Job::Name(_) | Job::Snapshot(..) | Job::Finish(_) | Job::Next(_) | Job::Written(_) => Vec::new(),
    })
}
