//! The thread that reads a recording in progress and makes pictures of it, so that nobody who shows
//! them ever waits: neither for the recorder nor for names of functions.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use heapledger_collect::{LiveError, LiveRecording, RunningSession};
use heapledger_recording::Recording;

use super::picture::{LiveQuestion, Painter, Picture, Surroundings};
use crate::args::Symbols;
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::symbols::symbolizer;

/// The time between two looks for a recorder that starts, or that ends.
const POLL: Duration = Duration::from_millis(20);
/// The time between two pictures for each unit of time that one took: so names cost a fifth of a
/// processor at most.
const INTERVAL_PER_PICTURE: u32 = 5;

/// A message to those who show pictures.
#[derive(Debug)]
pub(super) enum News {
    Picture(Box<Picture>),
    /// No more pictures come of the program, except of its last state. With the last picture of a
    /// program that was started for this.
    #[cfg_attr(not(feature = "terminal"), expect(dead_code, reason = "only the terminal shows the reason"))]
    Ended(String, Option<Box<Picture>>),
    /// The recording cannot be watched.
    Failed(Failure),
}

/// The recording that is watched.
pub(super) enum Watched {
    /// Another process makes it.
    Other(RunningSession),
    /// This process makes it.
    Own(OwnRecording),
}

/// A recording that another thread of this process makes.
#[derive(Clone, Debug)]
pub(super) struct OwnRecording {
    pub(super) path: PathBuf,
    /// True when the file is complete, or nothing is recorded.
    pub(super) is_over: Arc<AtomicBool>,
}

impl OwnRecording {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits until it has begun. `None` if it ends before that.
    fn wait(&self) -> Option<RunningSession> {
        loop {
            let all = RunningSession::all().unwrap_or_default();
            let own = all.into_iter().find(|running| running.status.recorder == std::process::id());
            if own.is_some() || self.is_over() {
                return own;
            }
            thread::sleep(POLL);
        }
    }
}

/// Makes pictures, at most one in each `interval`, until the recording ends; then answers further
/// questions about its last state. Ends as soon as nobody asks any more or `tell` returns false.
pub(super) fn watch(
    watched: Watched,
    symbols: &Symbols,
    mut question: LiveQuestion,
    (questions, interval): (&Receiver<LiveQuestion>, Duration),
    mut tell: impl FnMut(News) -> bool,
) {
    let mut painter = Painter::new(symbols, Arc::new(symbolizer(&symbols.files)));
    let mut source = match &watched {
        Watched::Other(_) => None,
        Watched::Own(own) => own.wait().map(LiveRecording::of),
    };
    let own = match watched {
        Watched::Other(session) => {
            source = Some(LiveRecording::of(session));
            None
        }
        Watched::Own(own) => Some(own),
    };
    let mut last = Surroundings::default();
    let ended = loop {
        let Some(live) = &mut source else { break "the program has ended".to_owned() };
        let start = Instant::now();
        last = match live.refresh() {
            Ok(figures) => Surroundings {
                pid: figures.status.command,
                processes: figures.status.processes,
                is_on: figures.status.is_on,
                sites: figures.sites,
                sites_left_out: figures.sites_left_out,
                copy_time: figures.copy_time,
            },
            Err(error) if live.bytes().is_empty() && own.is_none() => {
                tell(News::Failed(failure(error)));
                return;
            }
            Err(LiveError::Ended { .. } | LiveError::Unanswered { .. }) => break end_of(live, own.is_some()),
            Err(error) => break error.to_string(),
        };
        let picture = |painter: &mut Painter<'_>, question: &LiveQuestion| {
            opened(live.bytes()).and_then(|recording| painter.picture(&recording, &last, question))
        };
        if !told(picture(&mut painter, &question), &mut tell) {
            return;
        }
        let until = start + interval.max(start.elapsed() * INTERVAL_PER_PICTURE);
        loop {
            match questions.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(next) => question = next,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !told(picture(&mut painter, &question), &mut tell) {
                return;
            }
        }
    };
    let bytes = source.as_ref().map_or(&[][..], LiveRecording::bytes);
    let state = LastState { own, bytes, last };
    let final_picture = state.own.is_some().then(|| state.picture(&mut painter, &question));
    if !tell(News::Ended(ended, final_picture.and_then(Result::ok).map(Box::new))) {
        return;
    }
    while let Ok(next) = questions.recv() {
        // Without a last state, what is shown stays.
        if let Ok(picture) = state.picture(&mut painter, &next)
            && !tell(News::Picture(Box::new(picture)))
        {
            return;
        }
    }
}

/// Tells about a picture. Returns false if nobody listens, or there is none.
fn told(picture: Result<Picture>, tell: &mut impl FnMut(News) -> bool) -> bool {
    match picture {
        Ok(picture) => tell(News::Picture(Box::new(picture))),
        Err(failure) => {
            tell(News::Failed(failure));
            false
        }
    }
}

/// The state of a program after its recording.
struct LastState<'b> {
    own: Option<OwnRecording>,
    /// The last answer of the recorder.
    bytes: &'b [u8],
    last: Surroundings,
}

impl LastState<'_> {
    /// Makes a picture of the finished file if it is our own, else of the last answer.
    fn picture(&self, painter: &mut Painter<'_>, question: &LiveQuestion) -> Result<Picture> {
        let Some(own) = &self.own else { return painter.picture(&opened(self.bytes)?, &self.last, question) };
        while !own.is_over() {
            thread::sleep(POLL);
        }
        let input = Input::map(&own.path)?;
        let recording = input.recording()?;
        let pid = recording.images().first().map_or(self.last.pid, |image| image.pid);
        let sites = recording.images().iter().map(|image| recording.sites(image.image).rows.len() as u64).sum();
        let at = Surroundings { pid, sites, ..Surroundings::default() };
        painter.picture(&recording, &at, question)
    }
}

fn opened(bytes: &[u8]) -> Result<Recording<'_>> {
    Recording::open(bytes).map_err(|error| Failure::caused(Exit::Unexpected, "the figures cannot be read", error))
}

/// Says why a recorder does not answer any more.
fn end_of(live: &LiveRecording, is_own: bool) -> String {
    let (recorder, command) = (live.session().status.recorder, live.session().status.command);
    let runs = |pid: u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
    match (is_own, runs(command)) {
        (_, false) => format!("process {command} has ended"),
        (true, true) => format!("process {command} is not recorded any more"),
        (false, true) => format!("the recorder (process {recorder}) has ended; process {command} runs on"),
    }
}

/// Returns the failure to watch a recording at all.
fn failure(error: LiveError) -> Failure {
    let hint = match &error {
        LiveError::Unanswered { .. } => {
            "it may be of an earlier version: end the recording, and begin another".to_owned()
        }
        LiveError::Ended { .. } => "`heapledger status` lists what is recorded".to_owned(),
        LiveError::File { .. } => "write to a file: heapledger record -o FILE -- COMMAND".to_owned(),
        _ => "heapledger info FILE".to_owned(),
    };
    let is_over = matches!(error, LiveError::Ended { .. });
    let failure = Failure::from_error(if is_over { Exit::NothingRecorded } else { Exit::Unreadable }, error).hint(hint);
    if is_over { failure.code(Code::NotBeingRecorded) } else { failure }
}
