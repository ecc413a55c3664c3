//! The state of the file that is being written, and the failure that ends it.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use heapledger_recording::RecordingError;

use crate::shared::Page;

/// The progress of the file.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    /// The page whose heartbeat shows that the file makes progress; none in tests.
    pub(crate) page: Option<Arc<Page>>,
    pub(crate) bytes_written: AtomicU64,
    /// The number of files that were begun after the first.
    pub(crate) segments: AtomicU32,
    pub(crate) has_snapshots_to_do: AtomicBool,
    pub(crate) has_failed: AtomicBool,
}

impl FileState {
    /// Writes all bytes, with a heartbeat after each piece: the collector may be waiting for the
    /// writer, and programs that wait for the collector must be able to tell a slow file from one
    /// that stands still. A pipe takes a piece only when there is room for all of it.
    pub(crate) fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        const PIECE: usize = 4096;
        for piece in bytes.chunks(PIECE) {
            file.write_all(piece)?;
            self.page.iter().for_each(|page| page.beat());
        }
        Ok(())
    }
}

/// The reason why the file could not be completed.
#[derive(Debug)]
pub(crate) enum WriteFailure {
    Write(io::Error),
    Encode(RecordingError),
}

impl From<RecordingError> for WriteFailure {
    fn from(error: RecordingError) -> WriteFailure {
        WriteFailure::Encode(error)
    }
}
