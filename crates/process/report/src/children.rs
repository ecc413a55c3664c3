//! The reports of descendants.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::process;
use std::time::{Duration, Instant};

use heapledger_reports::request::{Request, sockets};
use heapledger_reports::{MAIN_PROCESS, Report, Reports};

use crate::collect::{Options, failed};
use crate::socket;

/// The longest file that a child may send.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Children that have been asked, and have not answered.
pub(crate) struct Asked {
    children: Vec<(u32, io::Result<UnixStream>)>,
    end: Instant,
}

/// Asks all descendants that listen, at once: they collect at the same time.
pub(crate) fn ask(options: &Options) -> Asked {
    let end = Instant::now() + options.deadline;
    // They should be ready while there is time to hear it.
    let deadline = options.deadline * 3 / 4;
    let request = Request { anonymous: options.anonymous, mark: options.mark, children: false, deadline };
    let line = request.to_line();
    let patience = options.deadline.clamp(Duration::from_millis(1), Duration::from_secs(2));
    let ask = |(pid, name): (u32, Vec<u8>)| (pid, socket::ask(&name, line.as_bytes(), patience));
    let found = sockets(&fs::read("/proc/net/unix").unwrap_or_default());
    let parents = parents();
    let is_ours = |pid: u32| is_descendant(pid, process::id(), &parents);
    Asked { children: found.into_iter().filter(|&(pid, _)| is_ours(pid)).map(ask).collect(), end }
}

impl Asked {
    /// What they say, and who did not in time.
    pub(crate) fn reports(self) -> Vec<Report> {
        let mut all = Vec::new();
        for (pid, socket) in self.children {
            let answer = socket.and_then(|socket| read(&socket, self.end));
            match answer.map(|file| Reports::parse(&file)) {
                Ok(Ok(mut reports)) => {
                    for report in &mut reports.reports {
                        report.process = child_name(&report.process, pid).into();
                    }
                    all.append(&mut reports.reports);
                }
                Ok(Err(error)) => {
                    all.push(failed(&format!("pid {pid}"), &format!("its answer cannot be read: {error}")))
                }
                // Gone meanwhile.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    all.push(failed(&format!("pid {pid}"), "it did not answer in time"));
                }
                Err(error) => all.push(failed(&format!("pid {pid}"), &format!("it did not answer: {error}"))),
            }
        }
        all
    }
}

fn read(mut socket: &UnixStream, end: Instant) -> io::Result<Vec<u8>> {
    let mut file = Vec::new();
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let count = match socket.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        if count == 0 {
            return Ok(file);
        }
        file.extend_from_slice(&buffer[..count]);
        if file.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other("its answer is too long"));
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
