//! The thread that reads a recording in progress and makes pictures of it, so that nobody who shows
//! them ever waits: neither for the recorder nor for names of functions.

use std::io::ErrorKind;
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

/// The number of pictures in a row that may fail.
const FAILURES_MAX: u32 = 5;

/// The longest time without a look at the recorder, which may have ended.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A message to those who show pictures.
#[derive(Debug)]
pub(super) enum News {
    Picture(Box<Picture>),
    /// There are no newer figures, for this reason, though the program runs.
    #[cfg_attr(not(feature = "terminal"), expect(dead_code, reason = "only the terminal shows the reason"))]
    Stalled(String),
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
/// questions about its last state. A recorder that does not answer is asked again. Ends as soon as
/// nobody asks any more or `tell` returns false.
pub(super) fn watch(
    watched: Watched,
    symbols: &Symbols,
    mut question: LiveQuestion,
    (questions, interval): (&Receiver<LiveQuestion>, Duration),
    mut tell: impl FnMut(News) -> bool,
) {
    let painter = Painter::new(symbols, Arc::new(symbolizer(&symbols.files)));
    let mut artist = Artist { painter, failures: 0 };
    let (own, mut source) = match watched {
        Watched::Other(session) => (None, Some(LiveRecording::of(session))),
        Watched::Own(own) => {
            let session = own.wait();
            (Some(own), session.map(LiveRecording::of))
        }
    };
    let mut last = Surroundings::default();
    let ended = loop {
        let Some(live) = &mut source else { break "the program has ended".to_owned() };
        let start = Instant::now();
        let until = match live.refresh() {
            Ok(figures) => {
                last = Surroundings::of(&figures);
                if !artist.show(live.bytes(), &last, &question, &mut tell) {
                    return;
                }
                let needed = (start.elapsed() * INTERVAL_PER_PICTURE).max(figures.next_copy.min(WAIT_MAX));
                start + interval.max(needed)
            }
            Err(error) if live.bytes().is_empty() && own.is_none() => {
                tell(News::Failed(failure(error)));
                return;
            }
            Err(LiveError::Unanswered { recorder, source }) if may_answer(&source, own.as_ref()) => {
                // On a loaded machine it may be late.
                if !tell(News::Stalled(format!("the recorder (process {recorder}) does not answer"))) {
                    return;
                }
                Instant::now() + interval
            }
            Err(LiveError::Ended { .. } | LiveError::Unanswered { .. }) => break end_of(live, own.is_some()),
            Err(error) => break error.to_string(),
        };
        loop {
            match questions.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(next) => question = next,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !artist.show(live.bytes(), &last, &question, &mut tell) {
                return;
            }
        }
    };
    let bytes = source.as_ref().map_or(&[][..], LiveRecording::bytes);
    if let Some(own) = own.as_ref().filter(|own| !own.is_over()) {
        // The program runs, and its last figures come when it has ended.
        if !tell(News::Stalled(ended.clone())) {
            return;
        }
        let show = |question: &LiveQuestion| artist.show(bytes, &last, question, &mut tell);
        if !wait_for_end(own, questions, &mut question, show) {
            return;
        }
    }
    let state = LastState { own, bytes, last };
    let final_picture = state.own.is_some().then(|| state.picture(&mut artist.painter, &question));
    if !tell(News::Ended(ended, final_picture.and_then(Result::ok).map(Box::new))) {
        return;
    }
    while let Ok(next) = questions.recv() {
        // Without a last state, what is shown stays.
        if let Ok(picture) = state.picture(&mut artist.painter, &next)
            && !tell(News::Picture(Box::new(picture)))
        {
            return;
        }
    }
}

/// Answers questions until the program has ended. Returns false if nobody asks any more, or `show`
/// returns false.
fn wait_for_end(
    own: &OwnRecording,
    questions: &Receiver<LiveQuestion>,
    question: &mut LiveQuestion,
    mut show: impl FnMut(&LiveQuestion) -> bool,
) -> bool {
    while !own.is_over() {
        match questions.recv_timeout(POLL) {
            Ok(next) => *question = next,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        if !show(question) {
            return false;
        }
    }
    true
}

/// True if a recorder that has not answered may answer the next time.
fn may_answer(reason: &std::io::Error, own: Option<&OwnRecording>) -> bool {
    let is_other_version = matches!(reason.kind(), ErrorKind::InvalidData | ErrorKind::Unsupported);
    !is_other_version && !own.is_some_and(OwnRecording::is_over)
}

/// Makes the pictures of a program that runs.
struct Artist<'s> {
    painter: Painter<'s>,
    /// The number of pictures that failed since the last one that did not.
    failures: u32,
}

impl Artist<'_> {
    /// Tells about a picture of these bytes; none if there are no bytes yet. Returns false if
    /// nobody listens, or pictures fail again and again.
    fn show(
        &mut self,
        bytes: &[u8],
        last: &Surroundings,
        question: &LiveQuestion,
        tell: &mut impl FnMut(News) -> bool,
    ) -> bool {
        if bytes.is_empty() {
            return true;
        }
        match opened(bytes).and_then(|recording| self.painter.picture(&recording, last, question)) {
            Ok(picture) => {
                self.failures = 0;
                tell(News::Picture(Box::new(picture)))
            }
            // The next one may succeed.
            Err(_) if self.failures < FAILURES_MAX => {
                self.failures += 1;
                tell(News::Stalled("no picture could be made of the latest figures".to_owned()))
            }
            Err(failure) => {
                tell(News::Failed(failure));
                false
            }
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
    /// Makes a picture of the finished file if it is our own, else of the last answer. Our own
    /// must be over.
    fn picture(&self, painter: &mut Painter<'_>, question: &LiveQuestion) -> Result<Picture> {
        let Some(own) = &self.own else { return painter.picture(&opened(self.bytes)?, &self.last, question) };
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
