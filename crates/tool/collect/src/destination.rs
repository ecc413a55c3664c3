//! The output file as the writer sees it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use heapledger_recording::{Compressor, EncodedChunk, Footer, RecordingWriter};

use crate::file_state::{FileState, WriteFailure};

/// The place that chunks are written to.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A file to which every chunk is appended; it is a recording up to the last one.
    Appended { file: File, recording: RecordingWriter, is_sample: bool },
    /// A file that is replaced by a complete recording from time to time.
    Replaced {
        /// The file at first, which is empty or not a regular file. One that is not regular is
        /// written once, at the end.
        file: File,
        /// The path to replace; `None` before it is known, and for a device or a pipe.
        path: Option<PathBuf>,
        is_regular: bool,
        is_sample: bool,
        /// The chunks that are in every version.
        chunks: Vec<EncodedChunk>,
    },
}

impl Destination {
    pub(crate) fn appended(file: File, is_sample: bool) -> Destination {
        Destination::Appended { file, recording: begun(is_sample), is_sample }
    }

    pub(crate) fn replaced(file: File, is_sample: bool) -> Destination {
        let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        Destination::Replaced { file, path: None, is_regular, is_sample, chunks: Vec::new() }
    }

    /// Returns the destination for the next file.
    pub(crate) fn next(&self, file: File) -> Destination {
        let (Destination::Appended { is_sample, .. } | Destination::Replaced { is_sample, .. }) = *self;
        Destination::appended(file, is_sample)
    }

    pub(crate) fn begin(&mut self, state: &FileState) -> Result<(), WriteFailure> {
        match self {
            Destination::Appended { file, recording, .. } => append(file, recording, state),
            Destination::Replaced { .. } => Ok(()),
        }
    }

    pub(crate) fn name(&mut self, name: PathBuf) {
        // A descriptor of the shell, such as /dev/fd/3, may be a file, but has no name to replace.
        let is_descriptor = name.starts_with("/dev") || name.starts_with("/proc");
        if let Destination::Replaced { path, is_regular: true, .. } = self
            && !is_descriptor
        {
            *path = Some(name);
        }
    }

    pub(crate) fn add(&mut self, new: Vec<EncodedChunk>, state: &FileState) -> Result<(), WriteFailure> {
        match self {
            Destination::Appended { file, recording, .. } => {
                new.iter().for_each(|chunk| recording.push(chunk));
                append(file, recording, state)
            }
            Destination::Replaced { chunks, .. } => {
                chunks.extend(new);
                Ok(())
            }
        }
    }

    /// Replaces the file by one with these chunks in addition. If it cannot be written, for example
    /// for want of space, it is skipped: the version before is still there, and the next one may
    /// succeed.
    pub(crate) fn snapshot(
        &mut self,
        additional: &[EncodedChunk],
        footer: &Footer,
        compressor: &mut Compressor,
        state: &FileState,
    ) {
        if let Destination::Replaced { path: Some(path), chunks, is_sample, .. } = self {
            let recording = whole(*is_sample, chunks.iter().chain(additional), footer, compressor);
            if replace(path, recording.pending(), state).is_ok() {
                state.bytes_written.store(recording.length(), Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn finish(
        &mut self,
        footer: &Footer,
        compressor: &mut Compressor,
        state: &FileState,
    ) -> Result<(), WriteFailure> {
        match self {
            Destination::Appended { file, recording, .. } => {
                recording.finish(footer, compressor);
                append(file, recording, state)
            }
            Destination::Replaced { file, path, chunks, is_sample, .. } => {
                let recording = whole(*is_sample, chunks.iter(), footer, compressor);
                match path {
                    Some(path) => replace(path, recording.pending(), state),
                    None => state.write(file, recording.pending()),
                }
                .map_err(WriteFailure::Write)?;
                state.bytes_written.store(recording.length(), Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

fn append(file: &mut File, recording: &mut RecordingWriter, state: &FileState) -> Result<(), WriteFailure> {
    state.write(file, recording.pending()).map_err(WriteFailure::Write)?;
    recording.clear_pending();
    state.bytes_written.store(recording.length(), Ordering::Relaxed);
    Ok(())
}

/// Returns an empty recording.
fn begun(is_sample: bool) -> RecordingWriter {
    if is_sample { RecordingWriter::of_sample() } else { RecordingWriter::new() }
}

fn whole<'a>(
    is_sample: bool,
    chunks: impl Iterator<Item = &'a EncodedChunk>,
    footer: &Footer,
    compressor: &mut Compressor,
) -> RecordingWriter {
    let mut recording = begun(is_sample);
    chunks.for_each(|chunk| recording.push(chunk));
    recording.finish(footer, compressor);
    recording
}

/// Replaces a file atomically: readers find either the old contents or the new ones.
fn replace(path: &Path, contents: &[u8], state: &FileState) -> io::Result<()> {
    let mut new = OsString::from(path);
    new.push(".new");
    // A file left behind by a recorder that was killed.
    let _ = std::fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    state.write(&mut file, contents).and_then(|()| std::fs::rename(&new, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests;
