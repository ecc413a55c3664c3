//! `heapledger live`: shows a program while it is recorded.

mod command;
pub(crate) mod json;
mod picture;
#[cfg(feature = "terminal")]
mod screen;
#[cfg(feature = "terminal")]
mod state;
#[cfg(feature = "terminal")]
mod terminal;
mod watcher;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(feature = "terminal")]
use std::sync::mpsc::TryRecvError;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use heapledger_collect::{RunningSession, die_by};

use self::command::{Diverted, RecordingFile};
use self::json::LiveJson;
use self::picture::{LiveQuestion, Picture};
use self::watcher::{News, OwnRecording, Watched, watch};
use crate::args::{Color, Live};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::json::document;
use crate::sessions::{is_meant, running};
use crate::verbs::{attach, record};

/// The time between two lines of JSON.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(arguments: &Live, color: Color) -> Result<ExitCode> {
    if !arguments.json {
        expect_terminal()?;
    }
    if !arguments.command.is_empty() {
        return run_command(arguments, color);
    }
    let session = find(arguments.target.as_deref())?;
    if arguments.json {
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        print_lines(Watched::Other(session), arguments, File::from(stdout))?;
    } else {
        let signal = Arc::new(AtomicUsize::new(0));
        note_signals(&signal)?;
        show(Watched::Other(session), arguments, color, &signal)?;
        if let signal @ 1.. = signal.load(Ordering::SeqCst) {
            die_by(signal as i32);
        }
    }
    Ok(Exit::Ok.into())
}

/// Fails if there is no terminal, or this command cannot use it.
fn expect_terminal() -> Result<()> {
    if !cfg!(feature = "terminal") {
        let what = "this heapledger was built without the feature `terminal`";
        return Err(Failure::new(Exit::Usage, what).hint("heapledger live --json PID"));
    }
    if !io::stdout().is_terminal() {
        let what = "standard output is no terminal: there is nowhere to show a table";
        return Err(Failure::new(Exit::Usage, what).hint("add --json"));
    }
    Ok(())
}

/// Returns the recording that is meant: that of the named process, or the only one.
fn find(target: Option<&str>) -> Result<RunningSession> {
    let mut all = running()?;
    if let Some(target) = target {
        let Some(at) = all.iter().position(|running| is_meant(&running.status, target)) else {
            let failure = attach::can_be_attached_to(target);
            let is_unrecorded = failure.exit == Exit::NothingRecorded;
            return Err(if is_unrecorded { failure.code(Code::NotBeingRecorded) } else { failure });
        };
        return Ok(all.swap_remove(at));
    }
    match (all.pop(), all.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => Err(Failure::new(Exit::NothingRecorded, "nothing is being recorded")
            .code(Code::NotBeingRecorded)
            .hint("begin with: heapledger live -- COMMAND")),
        _ => Err(Failure::new(Exit::Usage, "several programs are being recorded")
            .hint("say which, by its process id; `heapledger status` lists them")),
    }
}

/// Records the command while it is watched. Ends as it does.
fn run_command(arguments: &Live, color: Color) -> Result<ExitCode> {
    let file = RecordingFile::new(arguments)?;
    let record = file.record(arguments)?;
    let diverted = if arguments.json { Diverted::to_stderr()? } else { Diverted::to_file()? };
    let is_over = Arc::new(AtomicBool::new(false));
    let watched = Watched::Own(OwnRecording { path: file.path.clone(), is_over: Arc::clone(&is_over) });
    let stdout = diverted.stdout()?;
    let signal = Arc::new(AtomicUsize::new(0));
    if !arguments.json {
        note_signals(&signal)?;
    }
    let (exit, shown) = thread::scope(|scope| {
        let shown = scope.spawn(move || match arguments.json {
            true => print_lines(watched, arguments, stdout),
            false => show(watched, arguments, color, &signal),
        });
        let exit = record::run_command(&record);
        is_over.store(true, Ordering::Release);
        (exit, shown.join())
    });
    let ended = diverted.end();
    let exit = exit?;
    shown.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    ended?;
    record::end_as(exit)
}

/// Prints a line of JSON for each picture.
fn print_lines(watched: Watched, arguments: &Live, mut out: File) -> Result<()> {
    // Nobody asks for other rows; without the sender, nobody could.
    let (_asker, questions) = channel();
    let question = LiveQuestion { by: arguments.by, path: Vec::new() };
    let is_own = matches!(watched, Watched::Own(_));
    let mut outcome = Ok(());
    watch(watched, &arguments.symbols, question, (&questions, LINE_INTERVAL), |news| {
        let mut print = |picture: &Picture, ended| -> Result<()> {
            let line = document::line(&LiveJson::new(picture, ended, arguments.rows))?;
            Ok(writeln!(out, "{line}")?)
        };
        let goes_on;
        (outcome, goes_on) = match news {
            News::Picture(_) if arguments.once && is_own => (Ok(()), true),
            News::Picture(picture) => (print(&picture, false), !arguments.once),
            News::Ended(_, Some(picture)) => (print(&picture, true), false),
            News::Stalled(_) => (Ok(()), true),
            News::Ended(_, None) => (Ok(()), false),
            News::Failed(failure) => (Err(failure), false),
        };
        goes_on && outcome.is_ok()
    });
    outcome
}

/// Shows the recording in the terminal.
#[cfg(feature = "terminal")]
fn show(watched: Watched, arguments: &Live, color: Color, signal: &AtomicUsize) -> Result<()> {
    let is_own = matches!(watched, Watched::Own(_));
    let colors = crate::output::use_colors(color, true);
    let question = LiveQuestion { by: arguments.by, path: Vec::new() };
    let (teller, news) = channel();
    let (asker, questions) = channel();
    let symbols = arguments.symbols.clone();
    let watcher = thread::spawn(move || {
        let timing = (&questions, terminal::INTERVAL);
        watch(watched, &symbols, question, timing, |news| teller.send(news).is_ok());
    });
    let state = state::LiveState::new(arguments.by, is_own);
    let shown = terminal::run(state, &news, asker, colors, signal);
    // The thread ends with the sender of questions. Nobody waits for that: it may wait for the
    // recorder, or read names. One that has ended before may have panicked.
    while news.try_recv().is_ok() {}
    if matches!(news.try_recv(), Err(TryRecvError::Disconnected))
        && let Err(panic) = watcher.join()
    {
        std::panic::resume_unwind(panic);
    }
    shown
}

#[cfg(feature = "terminal")]
fn note_signals(noted: &Arc<AtomicUsize>) -> Result<()> {
    let cannot = |error| Failure::caused(Exit::Unexpected, "cannot handle signals", error);
    terminal::note_signals(noted).map_err(cannot)
}

#[cfg(not(feature = "terminal"))]
fn note_signals(_: &Arc<AtomicUsize>) -> Result<()> {
    Ok(())
}

#[cfg(not(feature = "terminal"))]
fn show(_: Watched, _: &Live, _: Color, _: &AtomicUsize) -> Result<()> {
    expect_terminal()
}
