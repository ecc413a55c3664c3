//! The reports of descendants.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process;
use std::time::{Duration, Instant};

use heapledger_reports::request::{Request, sockets};
use heapledger_reports::{MAIN_PROCESS, Report, Reports};

use crate::collect::{Options, failed};
use crate::path::variable;
use crate::socket;

/// The longest file that a child may send.
const FILE_BYTES_MAX: usize = 64 << 20;

/// Children that have been asked.
#[derive(Debug)]
pub struct Asked {
    children: Vec<Child>,
    end: Instant,
}

#[derive(Debug)]
struct Child {
    pid: u32,
    /// While it answers.
    socket: Option<UnixStream>,
    file: Vec<u8>,
    failure: Option<io::Error>,
}

/// How much of the time for all of it descendants may take: they should be ready while there is time to hear it.
pub fn deadline_of_others(deadline: Duration) -> Duration {
    deadline * 3 / 4
}

/// Asks all descendants that listen for their reports, at once: they collect at the same time.
pub(crate) fn ask(options: &Options) -> Asked {
    let Options { anonymous, mark, reporter_deadline, .. } = *options;
    let deadline = deadline_of_others(options.deadline);
    let request = Request { anonymous, mark, children: false, reporter_deadline, deadline };
    ask_all(&request.to_line(), options.deadline)
}

/// Asks all descendants that listen, at once, by such a line; they are waited for as long as that.
pub fn ask_all(line: &str, deadline: Duration) -> Asked {
    let end = Instant::now() + deadline;
    let patience = deadline.clamp(Duration::from_millis(1), Duration::from_secs(2));
    let ask = |(pid, name): (u32, Vec<u8>)| {
        let socket = socket::ask(&name, line.as_bytes(), patience);
        let (socket, failure) = match socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket)) {
            Ok(socket) => (Some(socket), None),
            Err(error) => (None, Some(error)),
        };
        Child { pid, socket, file: Vec::new(), failure }
    };
    let found = sockets(&fs::read("/proc/net/unix").unwrap_or_default());
    let parents = parents();
    let is_ours = |pid: u32| is_descendant(pid, process::id(), &parents);
    Asked { children: found.into_iter().filter(|&(pid, _)| is_ours(pid)).map(ask).collect(), end }
}

impl Asked {
    /// What they answer, and why some did not.
    pub fn answers(mut self) -> Vec<(u32, Result<Vec<u8>, String>)> {
        self.read_all();
        let mut all = Vec::new();
        for Child { pid, socket, file, failure } in self.children {
            let answer = match (failure, socket) {
                // Gone meanwhile.
                (Some(error), _) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                (Some(error), _) if error.kind() != io::ErrorKind::WouldBlock => {
                    Err(format!("it did not answer: {error}"))
                }
                (Some(_), _) | (None, Some(_)) => Err("it did not answer in time".to_owned()),
                (None, None) => Ok(file),
            };
            all.push((pid, answer));
        }
        all
    }

    /// What they say, and who did not in time.
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
            let left = self.end.saturating_duration_since(Instant::now()).as_millis();
            let mut waiting: Vec<&mut Child> =
                self.children.iter_mut().filter(|child| child.socket.is_some()).collect();
            let descriptor = |child: &&mut Child| child.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd);
            let mut polled: Vec<libc::pollfd> = waiting
                .iter()
                .map(|child| libc::pollfd { fd: descriptor(child), events: libc::POLLIN, revents: 0 })
                .collect();
            if polled.is_empty() {
                return;
            }
            // SAFETY: so many of them, of which `revents` is written.
            let count =
                unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, left.min(60_000) as i32) };
            if count == 0 && left == 0 {
                return;
            }
            for (child, polled) in waiting.iter_mut().zip(&polled) {
                if count > 0 && polled.revents != 0 {
                    child.read();
                }
            }
        }
    }
}

impl Child {
    /// Takes what there is.
    fn read(&mut self) {
        let Some(mut socket) = self.socket.as_ref() else { return };
        let mut buffer = [0_u8; 16 << 10];
        match socket.read(&mut buffer) {
            Ok(0) => self.socket = None,
            Ok(count) if self.file.len() + count <= FILE_BYTES_MAX => self.file.extend_from_slice(&buffer[..count]),
            Ok(_) => {
                self.failure = Some(io::Error::other("its answer is too long"));
                self.socket = None;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                self.failure = Some(error);
                self.socket = None;
            }
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
