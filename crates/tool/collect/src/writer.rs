//! The writer: a thread that encodes what is bulky and not urgent, and appends chunks to the file.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use heapledger_recording::{
    CheckpointEncoder, Compressor, EncodedChunk, Footer, ImageId, LiveBlock, MemoryEncoder, MemorySample, RawChunk,
    Record, RecordingWriter, Sample, Site, SitesEncoder, TimelineEncoder, encode_records,
};

use crate::error::Error;

/// How many jobs may wait: a chunk has at most a few megabytes, and the collector waits when the disk is slow.
const JOBS_MAX: usize = 16;

/// Something for the file.
#[derive(Debug)]
pub(crate) enum Job {
    Chunk(EncodedChunk),
    Events(RawChunk),
    Records(Vec<Record>),
    Sites(ImageId, Vec<Site>),
    Timeline(Option<ImageId>, Vec<Sample>),
    Checkpoint(CheckpointEncoder, Vec<LiveBlock>),
    Memory(ImageId, Vec<MemorySample>),
    Finish(Box<Footer>),
}

/// The thread, seen from outside.
#[derive(Debug)]
pub(crate) struct Writer {
    jobs: SyncSender<Job>,
    state: Arc<State>,
    thread: JoinHandle<Result<(), Failure>>,
}

/// Why the file did not come to its end.
#[derive(Debug)]
pub(crate) enum Failure {
    Write(io::Error),
    Encode(heapledger_recording::Error),
}

impl From<heapledger_recording::Error> for Failure {
    fn from(error: heapledger_recording::Error) -> Failure {
        Failure::Encode(error)
    }
}

#[derive(Debug, Default)]
struct State {
    bytes_written: AtomicU64,
    has_failed: AtomicBool,
}

impl Writer {
    pub(crate) fn start(file: File) -> Result<Writer, Error> {
        let (jobs, receiver) = sync_channel(JOBS_MAX);
        let state = Arc::new(State::default());
        let for_thread = Arc::clone(&state);
        let run = move || {
            let result = run(file, &receiver, &for_thread);
            if result.is_err() {
                for_thread.has_failed.store(true, Ordering::Release);
                // The collector must not wait for us.
                receiver.into_iter().for_each(drop);
            }
            result
        };
        let thread = std::thread::Builder::new().name("writer".into()).spawn(run);
        Ok(Writer { jobs, state, thread: thread.map_err(Error::session("the writer's thread"))? })
    }

    /// Waits while too many jobs are unfinished. Without effect once the writer has failed.
    pub(crate) fn send(&self, job: Job) {
        // An error means that the thread panicked, which `end` reports.
        let _ = self.jobs.send(job);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state.has_failed.load(Ordering::Acquire)
    }

    pub(crate) fn bytes_written(&self) -> u64 {
        self.state.bytes_written.load(Ordering::Relaxed)
    }

    /// Waits for all jobs, then says how they went, with the bytes written. Without a `Finish` among them the file
    /// stays without its end.
    pub(crate) fn end(self) -> Result<u64, (u64, Failure)> {
        drop(self.jobs);
        let result = match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let bytes = self.state.bytes_written.load(Ordering::Relaxed);
        result.map(|()| bytes).map_err(|failure| (bytes, failure))
    }
}

fn run(mut file: File, jobs: &Receiver<Job>, state: &State) -> Result<(), Failure> {
    let mut compressor = Compressor::new();
    let mut recording = RecordingWriter::new();
    let mut flush = |recording: &mut RecordingWriter| {
        file.write_all(recording.pending()).map_err(Failure::Write)?;
        recording.clear_pending();
        state.bytes_written.store(recording.length(), Ordering::Relaxed);
        Ok(())
    };
    flush(&mut recording)?;
    for job in jobs {
        let chunks = match job {
            Job::Chunk(chunk) => vec![chunk],
            Job::Events(chunk) => vec![chunk.compress(&mut compressor)],
            Job::Records(records) => encode_records(&records, &mut compressor)?,
            Job::Sites(image, mut sites) => {
                sites.sort_unstable_by_key(|site| site.stack);
                SitesEncoder::encode(image, &sites, &mut compressor)?
            }
            Job::Timeline(image, samples) => TimelineEncoder::encode(image, &samples, &mut compressor)?,
            Job::Checkpoint(checkpoint, mut blocks) => {
                blocks.sort_unstable_by_key(|block| block.serial);
                checkpoint.encode(&blocks, &mut compressor)?
            }
            Job::Memory(image, samples) => MemoryEncoder::encode(image, &samples, &mut compressor)?,
            Job::Finish(footer) => {
                recording.finish(&footer, &mut compressor);
                return flush(&mut recording);
            }
        };
        for chunk in &chunks {
            recording.push(chunk);
        }
        flush(&mut recording)?;
    }
    Ok(())
}
