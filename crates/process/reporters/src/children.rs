//! The reports of descendants.

use std::collections::HashMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::process;
use std::time::{Duration, Instant};

use heapledger_report_format::ask::{Connecting, ListedSocket};
use heapledger_report_format::request::{ReportsRequest, SOCKET_PREFIX};
use heapledger_report_format::{MAIN_PROCESS, Report, Reports};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::failure::failed;
use crate::path::variable;
use crate::report_options::ReportOptions;
use crate::socket;

/// The longest file that a child may send.
const FILE_BYTES_MAX: usize = 64 << 20;
/// The longest time of attempts to connect to a process whose queue is full. The process may not
/// even be the one that listens.
const CONNECTING_MAX: Duration = Duration::from_secs(2);

/// The reason of a process that is late.
const LATE: &str = "it did not answer in time";

/// Children that have been asked.
#[derive(Debug)]
pub struct PendingAnswers {
    line: String,
    children: Vec<Child>,
    end: Instant,
}

#[derive(Debug)]
struct Child {
    pid: u32,
    state: State,
    file: Vec<u8>,
}

#[derive(Debug)]
enum State {
    Connecting(Connecting),
    Answering(UnixStream),
    Done,
    Failed(String),
}

/// How much of the time for all of it descendants may take: they should be ready while there is
/// time to hear it.
pub fn descendants_deadline(deadline: Duration) -> Duration {
    deadline * 3 / 4
}

/// Asks all descendants that listen for their reports, at once: they collect at the same time.
pub(crate) fn ask(options: &ReportOptions) -> PendingAnswers {
    let ReportOptions { anonymous, mark, reporter_deadline, .. } = *options;
    let deadline = descendants_deadline(options.deadline);
    let request = ReportsRequest { anonymous, mark, children: false, reporter_deadline, deadline };
    ask_all(&request.to_line(), options.deadline)
}

/// Asks all descendants that listen, at once, by such a line; they are waited for as long as that.
pub fn ask_all(line: &str, deadline: Duration) -> PendingAnswers {
    let begun = Instant::now();
    let mut pending = PendingAnswers { line: line.to_owned(), children: Vec::new(), end: begun + deadline };
    let listed = ListedSocket::all(SOCKET_PREFIX).unwrap_or_default();
    if listed.is_empty() {
        return pending;
    }
    let parents = parents();
    let descendants = parents.keys().copied().filter(|&pid| is_descendant(pid, process::id(), &parents));
    for pid in descendants {
        let (sockets, end) = (ListedSocket::of(&listed, pid), begun + deadline.min(CONNECTING_MAX));
        let connecting = Connecting::new(sockets, Some(pid), end, socket::peer);
        pending.children.push(Child { pid, state: State::Connecting(connecting), file: Vec::new() });
    }
    pending.connect();
    pending
}

impl PendingAnswers {
    /// Returns the answers of the processes, or the reasons why they did not answer.
    pub fn answers(mut self) -> Vec<(u32, Result<Vec<u8>, String>)> {
        self.read_all();
        let answer = |Child { pid, state, file }| match state {
            State::Connecting(_) | State::Answering(_) => (pid, Err(LATE.to_owned())),
            State::Done => (pid, Ok(file)),
            State::Failed(reason) => (pid, Err(reason)),
        };
        self.children.into_iter().map(answer).collect()
    }

    /// Returns the reports of the processes, and a report of failure for each that did not answer
    /// in time.
    pub(crate) fn reports(self) -> Vec<Report> {
        let mut all = Vec::new();
        for (pid, answer) in self.answers() {
            let parsed =
                |file: Vec<u8>| Reports::parse(&file).map_err(|error| format!("its answer cannot be read: {error}"));
            match answer.and_then(parsed) {
                Ok(mut reports) => {
                    for report in &mut reports.reports {
                        report.process = child_name(&report.process, pid).into();
                    }
                    all.append(&mut reports.reports);
                }
                Err(reason) => all.push(failed(&format!("pid {}", variable(pid)), &reason, false)),
            }
        }
        all
    }

    /// Reads from whoever has something to say, until all have said it or the time is over.
    fn read_all(&mut self) {
        loop {
            let now = Instant::now();
            self.connect();
            let is_connecting = self.children.iter().any(|child| matches!(child.state, State::Connecting(_)));
            let mut polled: Vec<PollFd<'_>> = Vec::new();
            for child in &self.children {
                if let State::Answering(socket) = &child.state {
                    polled.push(PollFd::new(socket, PollFlags::IN));
                }
            }
            let left = self.end.saturating_duration_since(now);
            if (polled.is_empty() && !is_connecting) || left.is_zero() {
                return;
            }
            let timeout = if is_connecting { left.min(Connecting::PAUSE) } else { left };
            // It fails for want of descriptors, say: a child that has not answered has not done so
            // in time.
            if poll(&mut polled, Timespec::try_from(timeout).ok().as_ref()).is_err_and(|error| error != Errno::INTR) {
                return;
            }
            let events: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
            let answering = self.children.iter_mut().filter(|child| matches!(child.state, State::Answering(_)));
            for (child, events) in answering.zip(events) {
                if !events.is_empty() {
                    child.read();
                }
            }
        }
    }

    /// Connects to the children that are not connected yet, and asks them.
    fn connect(&mut self) {
        let line = &self.line;
        self.children.retain_mut(|child| {
            let State::Connecting(connecting) = &mut child.state else { return true };
            let Some(attempt) = connecting.attempt() else { return true };
            // A line is shorter than what the kernel buffers. A child that has ended raises no
            // SIGPIPE in the program.
            let asked = attempt.and_then(|(socket, _)| {
                send(&socket, line.as_bytes(), SendFlags::NOSIGNAL)?;
                Ok(socket)
            });
            child.state = match asked {
                Ok(socket) => State::Answering(socket),
                Err(error) => match error.kind() {
                    // Nothing is said about a process that does not listen, or that has ended.
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied => return false,
                    ErrorKind::TimedOut => State::Failed(LATE.to_owned()),
                    _ => State::Failed(format!("it did not answer: {error}")),
                },
            };
            true
        });
    }
}

impl Child {
    /// Takes what there is.
    fn read(&mut self) {
        let State::Answering(socket) = &mut self.state else { return };
        let mut buffer = [0_u8; 16 << 10];
        match socket.read(&mut buffer) {
            Ok(0) => self.state = State::Done,
            Ok(count) if self.file.len() + count <= FILE_BYTES_MAX => self.file.extend_from_slice(&buffer[..count]),
            Ok(_) => self.state = State::Failed("it did not answer: its answer is too long".to_owned()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => self.state = State::Failed(format!("it did not answer: {error}")),
        }
    }
}

/// Each calls itself the first: `Main Process (NAME, pid N)`. Among others it is `NAME (pid N)`.
fn child_name(process: &str, pid: u32) -> String {
    let inner = process.strip_prefix(MAIN_PROCESS).and_then(|rest| rest.strip_prefix(" (")?.strip_suffix(')'));
    match inner.and_then(|inner| inner.rsplit_once(", ")) {
        Some((name, number)) => format!("{name} ({number})"),
        None if process.starts_with(MAIN_PROCESS) => format!("pid {pid}"),
        None => process.to_owned(),
    }
}

/// The parent of each process.
fn parents() -> HashMap<u32, u32> {
    let Ok(directory) = fs::read_dir("/proc") else { return HashMap::new() };
    let processes = directory.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes.filter_map(|pid| Some((pid, parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))).collect()
}

fn parent(stat: &str) -> Option<u32> {
    // The name in parentheses may have anything in it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn is_descendant(mut pid: u32, of: u32, parents: &HashMap<u32, u32>) -> bool {
    // Numbers may be given anew while they are read: there could be a circle.
    for _ in 0..parents.len() {
        match parents.get(&pid) {
            Some(&parent) if parent == of => return true,
            Some(&parent) => pid = parent,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_have_names_of_their_own() {
        assert_eq!(child_name("Main Process (a, b, pid 7)", 7), "a, b (pid 7)");
        assert_eq!(child_name("Main Process", 7), "pid 7");
        assert_eq!(child_name("worker (pid 9)", 7), "worker (pid 9)");
    }

    #[test]
    fn descent() {
        assert_eq!(parent("7 (a) b) S 5 1 2"), Some(5));
        let parents = HashMap::from([(1, 0), (2, 1), (3, 2), (4, 1), (8, 9), (9, 8)]);
        let of = |pid| is_descendant(pid, 2, &parents);
        assert_eq!([1, 2, 3, 4, 8, 77].map(of), [false, false, true, false, false, false]);
    }
}
