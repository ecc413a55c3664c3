//! The terminal of the view: its modes, which are undone in any case, its keys, and its loop.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use heapledger_collect::{ControlRequest, RunningSession};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag::register_usize;

use super::picture::LiveQuestion;
use super::screen::draw;
use super::state::{Action, LiveKey, LiveState};
use super::watcher::News;
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// The time between two pictures.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);
/// The longest time that a key waits for a picture.
const POLL: Duration = Duration::from_millis(50);

/// The terminal with its modes set for the view. They are undone when it is dropped, and before a
/// panic is printed.
struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<File>>>,
    tty: File,
}

impl Screen {
    /// Takes the terminal over. Standard output may be something else meanwhile.
    fn open() -> io::Result<Screen> {
        let mut out = tty()?;
        enable_raw_mode()?;
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            hook(info);
        }));
        let entered = execute!(out, EnterAlternateScreen, Hide);
        let watched = out.try_clone();
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(BufWriter::new(out))));
        let watched = watched.inspect_err(|_| restore())?;
        terminal.map(|terminal| Screen { terminal, tty: watched }).inspect_err(|_| restore())
    }

    /// True if the terminal was closed. Its events would never come, and take a processor.
    fn is_gone(&self) -> bool {
        let mut polled = [PollFd::new(&self.tty, PollFlags::empty())];
        let polled = poll(&mut polled, Some(&Timespec::default())).map(|_| polled[0].revents());
        polled.is_ok_and(|events| events.intersects(PollFlags::HUP | PollFlags::ERR))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.terminal.backend_mut().flush();
        restore();
    }
}

fn tty() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}

/// Undoes all that was done to the terminal. There is nobody to tell that it failed.
fn restore() {
    let _ = disable_raw_mode();
    if let Ok(mut out) = tty() {
        // A terminal that was resized meanwhile may keep a part of what it does not clear.
        let _ = execute!(out, Clear(ClearType::All), Show, LeaveAlternateScreen);
    }
}

/// Has the number of a signal to end noted from now on, in place of its effect: the terminal must
/// be put back first. A recorder in this process takes such signals while it records.
pub(super) fn note_signals(noted: &Arc<AtomicUsize>) -> io::Result<()> {
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        register_usize(signal, Arc::clone(noted), signal as usize)?;
    }
    Ok(())
}

/// Shows pictures until the user leaves, a signal to end is noted, or they fail.
pub(super) fn run(
    mut state: LiveState,
    news: &Receiver<News>,
    questions: Sender<LiveQuestion>,
    colors: bool,
    signal: &AtomicUsize,
) -> Result<()> {
    let cannot = |error| Failure::caused(Exit::Unexpected, "cannot use the terminal", error);
    let mut screen = Screen::open().map_err(cannot)?;
    let mut is_changed = true;
    loop {
        if is_changed {
            screen.terminal.draw(|frame| draw(frame, &mut state, colors)).map_err(cannot)?;
        }
        is_changed = false;
        if screen.is_gone() {
            return Ok(());
        }
        if signal.load(Ordering::SeqCst) != 0 {
            // It came before the recorder passed signals to the program, or after the program.
            if state.is_owner && state.ended.is_none() {
                end_program(&mut state);
            }
            return Ok(());
        }
        if event::poll(POLL).map_err(cannot)? {
            is_changed = true;
            let Some(key) = key_of(&event::read().map_err(cannot)?) else { continue };
            match state.key(key) {
                Action::Nothing => {}
                // A thread that has ended has told why.
                Action::Ask(question) => _ = questions.send(question),
                Action::Leave => return Ok(()),
                Action::EndProgram => end_program(&mut state),
                Action::EndRecording => end_recording(),
            }
        }
        loop {
            match news.try_recv() {
                Ok(News::Picture(picture)) => state.take(*picture),
                Ok(News::Stalled(why)) => state.stall(why),
                Ok(News::Ended(why, picture)) => {
                    picture.into_iter().for_each(|picture| state.take(*picture));
                    state.end(why);
                }
                Ok(News::Failed(failure)) => return Err(failure),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    // The thread has panicked, or the program was not started.
                    if state.ended.is_none() {
                        return Ok(());
                    }
                    break;
                }
            }
            is_changed = true;
        }
        // Without a picture there is nothing to look at: the program was not started, or ended at
        // once.
        if state.ended.is_some() && state.picture().is_none() {
            return Ok(());
        }
    }
}

/// Asks the program that was started for the view to end. A recorder that has not begun, or that
/// has ended, has no program.
fn end_program(state: &mut LiveState) {
    let pid = state.picture().map(|picture| picture.pid);
    match pid.or_else(|| Some(own_session()?.status.command)) {
        Some(pid) => end(pid),
        None => state.stall("there is no program to end".to_owned()),
    }
}

/// Returns the recording that this process makes.
fn own_session() -> Option<RunningSession> {
    let all = RunningSession::all().unwrap_or_default();
    all.into_iter().find(|running| running.status.recorder == std::process::id())
}

/// Asks a process to end.
fn end(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        // A process that has ended needs no request.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// Ends the recording that this process makes; the program goes on.
fn end_recording() {
    if let Some(own) = own_session() {
        // The recorder tells how it ended.
        let _ = own.ask(ControlRequest::End);
    }
}

/// Returns the key of an event. Releases of keys are none.
fn key_of(event: &Event) -> Option<LiveKey> {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return None };
    if *kind == KeyEventKind::Release {
        return None;
    }
    Some(match code {
        KeyCode::Up => LiveKey::Up,
        KeyCode::Down => LiveKey::Down,
        KeyCode::PageUp => LiveKey::PageUp,
        KeyCode::PageDown => LiveKey::PageDown,
        KeyCode::Home => LiveKey::Home,
        KeyCode::End => LiveKey::End,
        KeyCode::Enter | KeyCode::Right => LiveKey::Enter,
        KeyCode::Backspace | KeyCode::Left => LiveKey::Backspace,
        KeyCode::Esc => LiveKey::Escape,
        KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => LiveKey::Interrupt,
        KeyCode::Char(_) if modifiers.contains(KeyModifiers::CONTROL) => return None,
        KeyCode::Char(character) => LiveKey::Char(*character),
        _ => return None,
    })
}
