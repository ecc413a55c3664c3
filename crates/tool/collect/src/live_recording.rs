//! A recording in progress as its watchers read it: the figures that the recorder answers with, and
//! the stacks from the file that it writes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use heapledger_recording::{
    CHUNK_HEADER_LENGTH, ChunkHeader, ChunkKind, Compressor, Counts, EncodedChunk, FIRST_CHUNK, ImageCounts, ImageId,
    Record, Recording, RecordingError, RecordingWriter, Session, Time, encode_records,
};

use crate::control::RunningSession;
use crate::live_figures::LiveFigures;
use crate::process;

/// The maximum length in bytes of what is kept of the file: stacks, texts, modules, and totals of
/// processes that have ended.
const KEPT_MAX: u64 = 1 << 30;
/// The length of the end of a finished file, behind its last chunk.
const TRAILER: u64 = 32;
/// The number of further attempts to find the file: it is removed if other segments follow that
/// are to be kept in place of it.
const FILE_ATTEMPTS: u32 = 3;
/// The longest time after which the recorder is asked again: it may have ended meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The reason why there are no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The recorder has ended, or ends.
    #[error("the recorder (process {recorder}) has ended")]
    Ended {
        /// Its pid.
        recorder: u32,
    },
    /// The recorder does not answer, or not in a way that this version understands.
    #[error("the recorder (process {recorder}) does not answer")]
    Unanswered {
        /// Its pid.
        recorder: u32,
        /// The reason.
        source: io::Error,
    },
    /// The file that is being written cannot be read: it is a pipe, or in another place of the file
    /// system than its name says.
    #[error("cannot read `{}`, which is being written", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file, or the answer of the recorder, is damaged.
    #[error("cannot read what `{}` has so far", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The reason, with the offset.
        source: RecordingError,
    },
    /// The file has more stacks than can be kept.
    #[error("the stacks of `{}` take more than 1 GiB", path.display())]
    TooLarge {
        /// Its path.
        path: PathBuf,
    },
}

/// A recording in progress, read again and again.
///
/// Each [`refresh`](Self::refresh) makes a [`Recording`] of totals: all questions that need no
/// events can be asked of it, and *the end* is the moment of the refresh. Stacks are read once, as
/// the file grows: a refresh takes time in proportion to what is new, and to copy what is kept. The
/// recorded program pays nothing, and the recorder takes no events for
/// [`copy_time`](LiveFigures::copy_time), at most 5 % of its time.
#[derive(Debug)]
pub struct LiveRecording {
    session: RunningSession,
    file: Option<FollowedFile>,
    bytes: Vec<u8>,
}

impl LiveRecording {
    /// Watches this recording. Nothing is read yet.
    pub fn of(session: RunningSession) -> LiveRecording {
        LiveRecording { session, file: None, bytes: Vec::new() }
    }

    /// Returns the recording that is watched, with its status when it was found.
    pub fn session(&self) -> &RunningSession {
        &self.session
    }

    /// Asks the recorder for its figures of this moment or a later one, and reads what is new in
    /// the file. Waits until the recorder makes its next copy, at most four times a second: see
    /// [`next_copy`](LiveFigures::next_copy).
    ///
    /// # Errors
    ///
    /// The bytes of the previous refresh stay.
    pub fn refresh(&mut self) -> Result<LiveFigures, LiveError> {
        let recorder = self.session.status.recorder;
        let mut attempts = FILE_ATTEMPTS;
        loop {
            let figures = self.new_figures()?;
            let path = &figures.status.output;
            match FollowedFile::follow(self.file.take(), path, recorder) {
                Ok(file) => {
                    let file = self.file.insert(file);
                    file.read_new()?;
                    self.bytes = file.with_figures(&figures.recording)?;
                    return Ok(figures);
                }
                // An old segment of a rotated recording, which has been removed since.
                Err(LiveError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound && attempts > 0 => {
                    attempts -= 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns figures of this moment or a later one.
    fn new_figures(&self) -> Result<LiveFigures, LiveError> {
        let recorder = self.session.status.recorder;
        let mut old = None;
        loop {
            let figures = self.session.live_figures().map_err(|source| match source.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::Unsupported => LiveError::Unanswered { recorder, source },
                _ if !process::is_running(recorder) => LiveError::Ended { recorder },
                _ => LiveError::Unanswered { recorder, source },
            })?;
            if figures.is_new {
                return Ok(figures);
            }
            // A copy that is newer than the last one was at the first request.
            let time = moment(&figures);
            if old.is_some_and(|old| old < time) {
                return Ok(figures);
            }
            old = old.or(Some(time));
            thread::sleep(figures.next_copy.min(WAIT_MAX));
        }
    }

    /// Returns the bytes of a finished recording with the figures of the last
    /// [`refresh`](Self::refresh); none before the first. Sites that the figures leave out are
    /// summed up as sites of the root of the stacks.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the moment of figures.
fn moment(figures: &LiveFigures) -> Time {
    let recording = Recording::open(&figures.recording).ok();
    recording.and_then(|recording| recording.footer().map(|footer| footer.time)).unwrap_or_default()
}

/// The file of a recording in progress, as far as it has been read.
#[derive(Debug)]
struct FollowedFile {
    path: PathBuf,
    file: File,
    /// The device and the number of the file, which tell if another one has taken its name.
    identity: (u64, u64),
    /// The offset of the next chunk.
    next: u64,
    /// The chunks that are kept, and their bytes.
    chunks: Vec<EncodedChunk>,
    kept: u64,
    /// The session's record, once it has been read.
    session: Option<Session>,
    /// The images that the file has the start of, and those among them with totals.
    begun: BTreeSet<ImageId>,
    counted: BTreeSet<ImageId>,
}

impl FollowedFile {
    /// Returns the file with this path, to be read on where it was left, or from its beginning if
    /// it is another one.
    fn follow(known: Option<FollowedFile>, path: &Path, recorder: u32) -> Result<FollowedFile, LiveError> {
        let failed = |source| LiveError::File { path: path.to_owned(), source };
        // The recorder may have another root directory.
        let there =
            |path: &Path| Path::new(&format!("/proc/{recorder}/root")).join(path.strip_prefix("/").unwrap_or(path));
        let file = File::open(path).or_else(|error| File::open(there(path)).map_err(|_| error)).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::other("it is not a regular file")));
        }
        let identity = (metadata.dev(), metadata.ino());
        match known {
            Some(known) if known.identity == identity && known.next <= metadata.len() => Ok(known),
            _ => Ok(FollowedFile {
                path: path.to_owned(),
                file,
                identity,
                next: FIRST_CHUNK,
                chunks: Vec::new(),
                kept: 0,
                session: None,
                begun: BTreeSet::new(),
                counted: BTreeSet::new(),
            }),
        }
    }

    /// Reads the chunks that have been added, apart from events and others that figures do not
    /// need.
    fn read_new(&mut self) -> Result<(), LiveError> {
        let known = self.chunks.len();
        let read = self.read_chunks();
        for at in known..self.chunks.len() {
            self.note(at);
        }
        read
    }

    fn read_chunks(&mut self) -> Result<(), LiveError> {
        let failed = |source| LiveError::File { path: self.path.clone(), source };
        let damaged = |source| LiveError::Damaged { path: self.path.clone(), source };
        let length = self.file.metadata().map_err(failed)?.len();
        loop {
            let mut header = [0; CHUNK_HEADER_LENGTH];
            if length.saturating_sub(self.next) < header.len() as u64 {
                return Ok(());
            }
            self.file.read_exact_at(&mut header, self.next).map_err(failed)?;
            let Some(header) = ChunkHeader::parse(&header) else {
                // The end of a finished file.
                if length - self.next <= TRAILER {
                    return Ok(());
                }
                let reason = heapledger_recording::Reason::ChunkHeader;
                let damage = heapledger_recording::Damage { offset: self.next, reason };
                return Err(damaged(RecordingError::Damaged(damage)));
            };
            if length - self.next < u64::from(header.length) {
                // It is being written.
                return Ok(());
            }
            if matches!(header.kind, ChunkKind::Metadata | ChunkKind::Nodes | ChunkKind::Sites) {
                self.kept += u64::from(header.length);
                if self.kept > KEPT_MAX {
                    return Err(LiveError::TooLarge { path: self.path.clone() });
                }
                let mut bytes = vec![0; header.length as usize];
                self.file.read_exact_at(&mut bytes, self.next).map_err(failed)?;
                self.chunks.push(EncodedChunk::from_bytes(bytes, self.next).map_err(damaged)?);
            }
            self.next += u64::from(header.length);
        }
    }

    /// Notes what a chunk says about the session and its images.
    fn note(&mut self, at: usize) {
        let Some(chunk) = self.chunks.get(at).filter(|chunk| chunk.kind() == ChunkKind::Metadata) else { return };
        let mut writer = RecordingWriter::new();
        writer.push(chunk);
        let Ok(recording) = Recording::open(writer.pending()) else { return };
        if let Some(session) = recording.session().filter(|_| self.session.is_none()) {
            // The figures take the place of all events.
            self.session = Some(Session { totals_only: true, ..session.clone() });
        }
        self.begun.extend(recording.images().iter().map(|image| image.image));
        let is_counted = |image: &&ImageId| recording.image_counts(**image).is_some();
        self.counted.extend(self.begun.iter().filter(is_counted));
    }

    /// Returns totals of nothing for images that the file has without totals, or with totals but
    /// without sites: they began after the figures. Without these records, analysis would take the
    /// recording for an unfinished one.
    fn counts_of_new_images(&self, figures: &Recording<'_>, sites: &BTreeSet<ImageId>) -> Vec<Record> {
        let of_file: BTreeSet<ImageId> = self.chunks.iter().filter_map(image_of_sites).collect();
        let is_new = |image: &&ImageId| {
            figures.image_counts(**image).is_none()
                && !sites.contains(image)
                && !(self.counted.contains(image) && of_file.contains(image))
        };
        let counts = |&image: &ImageId| Record::ImageCounts(ImageCounts { image, counts: Counts::default() });
        self.begun.iter().filter(is_new).map(counts).collect()
    }

    /// Returns the bytes of a recording with what the file has, and these figures.
    fn with_figures(&mut self, figures: &[u8]) -> Result<Vec<u8>, LiveError> {
        let damaged = |source| LiveError::Damaged { path: self.path.clone(), source };
        let figures = Recording::open(figures).map_err(damaged)?;
        let chunks = figures.chunks().iter().map(|chunk| figures.copy_chunk(chunk, &chunk.head));
        let new: Vec<EncodedChunk> = chunks.collect::<Result<_, _>>().map_err(damaged)?;
        let images: BTreeSet<ImageId> = new.iter().filter_map(image_of_sites).collect();
        let footer = figures.footer().copied().unwrap_or_default();
        let mut compressor = Compressor::new();
        // The writer may not have begun the file of the next segment.
        let session = self.session.clone().unwrap_or_else(|| Session { totals_only: true, ..Session::default() });
        let is_sample = figures.footer().is_some() && session.samples;
        let mut records = vec![Record::Session(session)];
        records.extend(self.counts_of_new_images(&figures, &images));
        let records = encode_records(&records, &mut compressor).map_err(damaged)?;
        let mut writer = if is_sample { RecordingWriter::of_sample() } else { RecordingWriter::new() };
        // The file may have sites of the same images: those of an aggregate that was written whole,
        // or of an image that has ended since the answer.
        let is_outdated = |chunk: &EncodedChunk| {
            let image = image_of_sites(chunk);
            image.is_some_and(|image| images.contains(&image) || figures.image_counts(image).is_some())
        };
        let kept = self.chunks.iter().filter(|chunk| !is_outdated(chunk));
        // The last of several records about one thing counts.
        kept.chain(&records).chain(&new).for_each(|chunk| writer.push(chunk));
        writer.finish(&footer, &mut compressor);
        Ok(writer.pending().to_vec())
    }
}

/// Returns the image whose sites a chunk has; `None` if it has something else.
fn image_of_sites(chunk: &EncodedChunk) -> Option<ImageId> {
    chunk.head().image.filter(|_| chunk.kind() == ChunkKind::Sites)
}

#[cfg(test)]
mod tests;
