//! The terminal of the view: its modes, which are undone in any case, its keys, and its loop.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::panic;
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
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(BufWriter::new(out))));
        terminal.map(|terminal| Screen { terminal }).inspect_err(|_| restore())
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

/// Shows pictures until the user leaves, or they fail.
pub(super) fn run(
    mut state: LiveState,
    news: &Receiver<News>,
    questions: Sender<LiveQuestion>,
    colors: bool,
) -> Result<()> {
    let cannot = |error| Failure::caused(Exit::Unexpected, "cannot use the terminal", error);
    let mut screen = Screen::open().map_err(cannot)?;
    let mut is_changed = true;
    loop {
        if is_changed {
            screen.terminal.draw(|frame| draw(frame, &mut state, colors)).map_err(cannot)?;
        }
        is_changed = false;
        if event::poll(POLL).map_err(cannot)? {
            is_changed = true;
            let Some(key) = key_of(&event::read().map_err(cannot)?) else { continue };
            match state.key(key) {
                Action::Nothing => {}
                // A thread that has ended has told why.
                Action::Ask(question) => _ = questions.send(question),
                Action::Leave => return Ok(()),
                Action::EndProgram => end_program(&state),
                Action::EndRecording => end_recording(),
            }
        }
        loop {
            match news.try_recv() {
                Ok(News::Picture(picture)) => state.take(*picture),
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
fn end_program(state: &LiveState) {
    if let Some(picture) = state.picture() {
        end(picture.pid);
    }
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
    let all = RunningSession::all().unwrap_or_default();
    if let Some(own) = all.iter().find(|running| running.status.recorder == std::process::id()) {
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
