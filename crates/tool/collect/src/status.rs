//! The status of a recording in progress, as text with lines `NAME VALUE`.

use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use heapledger_core::sample::Rate;

/// The maximum length of a status in bytes; processes beyond it are left out.
pub(crate) const ANSWER_MAX: usize = 64 << 10;

/// The status of a recording in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The pid of `heapledger record`.
    pub recorder: u32,
    /// The pid of the recorded command.
    pub command: u32,
    /// The pids of recorded processes that have not ended.
    pub processes: Vec<u32>,
    /// True if the recorder has joined a program that ran already.
    pub is_attached: bool,
    /// True if allocations are recorded at present.
    pub is_on: bool,
    /// True if allocations have ever been recorded.
    pub has_begun: bool,
    /// The rate at which blocks are sampled, if the recording is of a sample; [`Rate::EXACT`] while
    /// all blocks are recorded.
    pub sampling: Option<Rate>,
    /// Nanoseconds since the session began.
    pub elapsed_ns: u64,
    /// The number of recorded calls that returned a block.
    pub allocations: u64,
    /// The number of bytes that are live.
    pub bytes_live: u64,
    /// The length of the file in bytes.
    pub bytes_written: u64,
    /// The absolute path of the file.
    pub output: PathBuf,
}

impl Status {
    /// True if a process is the recorded command, or another recorded process that has not ended.
    pub fn has_process(&self, pid: u32) -> bool {
        self.command == pid || self.processes.contains(&pid)
    }

    pub(crate) fn to_text(&self) -> Vec<u8> {
        let mut text = String::new();
        let mut line = |name: &str, value: u64| _ = writeln!(text, "{name} {value}");
        line("recorder", self.recorder.into());
        line("command", self.command.into());
        line("attached", self.is_attached.into());
        line("on", self.is_on.into());
        line("begun", self.has_begun.into());
        if let Some(rate) = self.sampling {
            line("rate", rate.logarithm().into());
        }
        line("elapsed_ns", self.elapsed_ns);
        line("allocations", self.allocations);
        line("bytes_live", self.bytes_live);
        line("bytes_written", self.bytes_written);
        let room = ANSWER_MAX - 8192;
        for pid in &self.processes {
            if text.len() < room {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "process {pid}");
            }
        }
        // The path comes last, because it may contain any bytes.
        [text.as_bytes(), b"output ", self.output.as_os_str().as_bytes()].concat()
    }

    pub(crate) fn from_text(text: &[u8]) -> Option<Status> {
        let mut status = Status::default();
        let mut rest = text;
        loop {
            let at = rest.iter().position(|&byte| byte == b' ')?;
            let (name, value) = (&rest[..at], &rest[at + 1..]);
            if name == b"output" {
                status.output = PathBuf::from(std::ffi::OsString::from_vec(value.to_vec()));
                return Some(status);
            }
            let end = value.iter().position(|&byte| byte == b'\n')?;
            let value: u64 = std::str::from_utf8(&value[..end]).ok()?.parse().ok()?;
            rest = &rest[at + 1 + end + 1..];
            match name {
                b"recorder" => status.recorder = u32::try_from(value).ok()?,
                b"command" => status.command = u32::try_from(value).ok()?,
                b"process" => status.processes.push(u32::try_from(value).ok()?),
                b"attached" => status.is_attached = value != 0,
                b"on" => status.is_on = value != 0,
                b"begun" => status.has_begun = value != 0,
                b"rate" => status.sampling = Some(Rate::from_logarithm(value)),
                b"elapsed_ns" => status.elapsed_ns = value,
                b"allocations" => status.allocations = value,
                b"bytes_live" => status.bytes_live = value,
                b"bytes_written" => status.bytes_written = value,
                // A field of a newer version.
                _ => {}
            }
        }
    }
}
