//! The reasons for which a process that runs cannot be recorded, found before anything is done.

use std::fs;
use std::io;
use std::path::Path;

use heapledger_inject::InjectError;

use crate::process;

/// The reason why a library was not placed into a process, or not taken out. The process goes on in
/// every case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// There is no such process, or it has ended.
    #[error("there is no process {pid}")]
    Gone {
        /// The process.
        pid: u32,
    },
    /// It is a thread of the kernel.
    #[error("process {pid} is a thread of the kernel")]
    Kernel {
        /// The process.
        pid: u32,
    },
    /// Another process debugs or traces it.
    #[error("process {pid} is being traced by process {tracer}")]
    Traced {
        /// The process.
        pid: u32,
        /// The one that traces it.
        tracer: u32,
    },
    /// The kernel does not let this process debug it.
    #[error("process {pid} cannot be traced")]
    Denied {
        /// The process.
        pid: u32,
        /// The cause, as far as it can be found.
        cause: TraceDenial,
        /// The kernel's answer, if it was asked.
        source: Option<io::Error>,
    },
    /// A system call that the recorder's library makes might end it.
    #[error("process {pid} is in a sandbox (seccomp)")]
    Sandboxed {
        /// The process.
        pid: u32,
    },
    /// Its mappings or its program cannot be read, or it has no room near its code.
    #[error("the program of process {pid} cannot be examined")]
    NotExamined {
        /// The process.
        pid: u32,
    },
    /// It has no allocator whose calls could be redirected.
    #[error("process {pid} has no allocator that can be redirected")]
    NoAllocator {
        /// The process.
        pid: u32,
    },
    /// Its code is not that of its files: another tool may have changed it.
    #[error("the code of process {pid} at {address:#x} is not that of its file")]
    OtherCode {
        /// The process.
        pid: u32,
        /// The address.
        address: u64,
    },
    /// Whenever its threads were stopped, one of them was at a place that was to be changed.
    #[error("process {pid} was at every moment in the instructions that were to be replaced")]
    Busy {
        /// The process.
        pid: u32,
    },
    /// A thread stays inside the recorder's library, or a word on its stack looks so. The library's
    /// memory stays mapped; nothing leads there any more.
    #[error("a thread of process {pid} may still return to the recorder's library")]
    Inside {
        /// The process.
        pid: u32,
    },
    /// A step failed.
    #[error("process {pid}: {source}")]
    Inject {
        /// The process.
        pid: u32,
        /// The reason.
        source: InjectError,
    },
}

impl AttachError {
    /// Returns the error with the process that it is about.
    pub(super) fn of(self, pid: u32) -> AttachError {
        match self {
            AttachError::Inject { source, .. } => of(pid, source),
            error => error,
        }
    }
}

impl From<InjectError> for AttachError {
    fn from(source: InjectError) -> AttachError {
        AttachError::Inject { pid: 0, source }
    }
}

/// The cause for which the kernel denies tracing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceDenial {
    /// It is another user's.
    OtherUser,
    /// Yama restricts tracing: the value of `kernel.yama.ptrace_scope`.
    Yama(u8),
    /// It has declared that its memory is private, or has more rights than this process.
    Protected,
    /// It is of a user namespace in which this process has no rights.
    OtherNamespace,
}

/// Checks whether anything about a process forbids to record it. Returns the thread by whose id its
/// memory is found: the first one, or another if that has ended before the others.
pub(crate) fn check(pid: u32) -> Result<u32, AttachError> {
    check_at(Path::new("/proc"), pid)
}

/// Checks with a root of proc(5).
fn check_at(root: &Path, pid: u32) -> Result<u32, AttachError> {
    let directory = root.join(pid.to_string());
    let unreadable = |source: io::Error| match process::is_gone(&source) {
        true => AttachError::Gone { pid },
        false => AttachError::Denied { pid, cause: denial(root, pid), source: Some(source) },
    };
    let first = process::text(directory.join("status")).map_err(unreadable)?;
    let mut alive = vec![(pid, first)];
    for thread in fs::read_dir(directory.join("task")).into_iter().flatten().flatten() {
        let Some(id) = thread.file_name().to_str().and_then(|id| id.parse::<u32>().ok()) else { continue };
        match process::text(thread.path().join("status")) {
            Ok(status) => alive.push((id, status)),
            Err(error) if process::is_gone(&error) => {}
            // It may be in a sandbox.
            Err(error) => return Err(unreadable(error)),
        }
    }
    alive.retain(|(_, status)| !matches!(state(status), None | Some('Z' | 'X')));
    let Some((thread, status)) = alive.first() else { return Err(AttachError::Gone { pid }) };
    // Threads of the kernel have no memory.
    if field(status, "VmSize").is_none() {
        return Err(AttachError::Kernel { pid });
    }
    match field(status, "TracerPid").and_then(|tracer| tracer.parse().ok()).unwrap_or(0) {
        0 => {}
        tracer => return Err(AttachError::Traced { pid, tracer }),
    }
    if alive.iter().any(|(_, status)| field(status, "Seccomp").is_some_and(|mode| mode != "0")) {
        return Err(AttachError::Sandboxed { pid });
    }
    Ok(*thread)
}

fn state(status: &str) -> Option<char> {
    field(status, "State")?.chars().next()
}

/// Returns the refusal that a failure of a step means.
pub(super) fn of(pid: u32, error: InjectError) -> AttachError {
    match error {
        InjectError::Gone => AttachError::Gone { pid },
        InjectError::Traced { tracer } => AttachError::Traced { pid, tracer },
        InjectError::Denied { source } => {
            AttachError::Denied { pid, cause: denial(Path::new("/proc"), pid), source: Some(source) }
        }
        source => AttachError::Inject { pid, source },
    }
}

/// Returns the cause for which the kernel denies it.
fn denial(root: &Path, pid: u32) -> TraceDenial {
    let own = process::text(root.join("self/status")).unwrap_or_default();
    let status = process::text(root.join(pid.to_string()).join("status")).unwrap_or_default();
    let user = field(&own, "Uid").and_then(|users| users.split_ascii_whitespace().nth(1)).unwrap_or_default();
    let users = field(&status, "Uid").unwrap_or_default();
    let scope = fs::read_to_string(root.join("sys/kernel/yama/ptrace_scope")).ok();
    let scope = scope.and_then(|scope| scope.trim().parse::<u8>().ok()).unwrap_or(0);
    let namespace = |of: &str| fs::read_link(root.join(of).join("ns/user")).ok();
    match scope {
        3 => TraceDenial::Yama(3),
        _ if user == "0" => match namespace(&pid.to_string()) {
            other if other.is_some() && other != namespace("self") => TraceDenial::OtherNamespace,
            _ if scope > 0 => TraceDenial::Yama(scope),
            _ => TraceDenial::Protected,
        },
        _ if !users.split_ascii_whitespace().all(|other| other == user) => TraceDenial::OtherUser,
        0 => TraceDenial::Protected,
        scope => TraceDenial::Yama(scope),
    }
}

/// Returns a field of a `status` of proc(5).
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root of proc(5) with one process.
    struct Root(tempfile::TempDir);

    impl Root {
        fn new(status: &str, own_user: u32, scope: Option<u8>) -> Root {
            let root = tempfile::tempdir().expect("there is room");
            let process = root.path().join("7");
            fs::create_dir_all(process.join("task/8")).expect("it is ours");
            fs::create_dir_all(root.path().join("self")).expect("it is ours");
            fs::write(process.join("status"), status).expect("it is ours");
            fs::write(process.join("task/8/status"), status).expect("it is ours");
            let own = format!("Uid:\t{own_user}\t{own_user}\t{own_user}\t{own_user}\n");
            fs::write(root.path().join("self/status"), own).expect("it is ours");
            if let Some(scope) = scope {
                fs::create_dir_all(root.path().join("sys/kernel/yama")).expect("it is ours");
                fs::write(root.path().join("sys/kernel/yama/ptrace_scope"), format!("{scope}\n")).expect("it is ours");
            }
            Root(root)
        }
    }

    fn status(changed: &str) -> String {
        let mut text = String::new();
        let usual = ["State:\tS (sleeping)", "TracerPid:\t0", "Uid:\t5\t5\t5\t5", "VmSize:\t100 kB", "Seccomp:\t0"];
        for line in usual {
            let is_changed = changed.split(':').next() == line.split(':').next();
            text += if is_changed { changed } else { line };
            text += "\n";
        }
        text
    }

    #[test]
    fn processes_are_refused_by_their_state() {
        let refused = |changed: &str| {
            let root = Root::new(&status(changed), 5, None);
            check_at(root.0.path(), 7).map_err(|error| error.to_string())
        };
        assert_eq!(refused(""), Ok(7));
        let error = |text: &str| Err(text.to_owned());
        assert_eq!(refused("State:\tZ (zombie)"), error("there is no process 7"));
        // The first thread has ended, and another goes on.
        let root = Root::new(&status("State:\tZ (zombie)").replace("VmSize:\t100 kB\n", ""), 5, None);
        fs::write(root.0.path().join("7/task/8/status"), status("")).expect("it is ours");
        assert_eq!(check_at(root.0.path(), 7).map_err(|error| error.to_string()), Ok(8));
        assert_eq!(refused("TracerPid:\t99"), error("process 7 is being traced by process 99"));
        assert_eq!(refused("Seccomp:\t2"), error("process 7 is in a sandbox (seccomp)"));
        let kernel = Root::new(&status("").replace("VmSize:\t100 kB\n", ""), 5, None);
        assert!(matches!(check_at(kernel.0.path(), 7), Err(AttachError::Kernel { pid: 7 })));
        assert!(matches!(check_at(kernel.0.path(), 9), Err(AttachError::Gone { pid: 9 })));
        // A program chooses the names of its threads.
        let root = Root::new(&status(""), 5, None);
        let named = |name: &[u8], rest: &str| [b"Name:\t", name, b"\n", rest.as_bytes()].concat();
        fs::write(root.0.path().join("7/status"), named(b"caf\xe9", &status(""))).expect("it is ours");
        fs::write(root.0.path().join("7/task/8/status"), named(b"\xff", &status("Seccomp:\t2"))).expect("it is ours");
        assert!(matches!(check_at(root.0.path(), 7), Err(AttachError::Sandboxed { pid: 7 })));
        // A thread that is there, and cannot be asked.
        let root = Root::new(&status(""), 5, None);
        fs::remove_file(root.0.path().join("7/task/8/status")).expect("it is ours");
        assert_eq!(check_at(root.0.path(), 7).map_err(|error| error.to_string()), Ok(7));
        fs::create_dir(root.0.path().join("7/task/8/status")).expect("it is ours");
        assert!(matches!(check_at(root.0.path(), 7), Err(AttachError::Denied { pid: 7, source: Some(_), .. })));
        // The filter of one thread alone.
        let root = Root::new(&status(""), 5, None);
        fs::write(root.0.path().join("7/task/8/status"), status("Seccomp:\t2")).expect("it is ours");
        assert!(matches!(check_at(root.0.path(), 7), Err(AttachError::Sandboxed { pid: 7 })));
    }

    #[test]
    fn denials_have_their_causes() {
        let cause = |users: &str, own, scope| denial(Root::new(&status(users), own, scope).0.path(), 7);
        assert_eq!(cause("", 5, None), TraceDenial::Protected);
        assert_eq!(cause("", 5, Some(0)), TraceDenial::Protected);
        assert_eq!(cause("", 5, Some(1)), TraceDenial::Yama(1));
        assert_eq!(cause("", 0, Some(2)), TraceDenial::Yama(2));
        assert_eq!(cause("", 6, Some(1)), TraceDenial::OtherUser);
        assert_eq!(cause("", 6, Some(3)), TraceDenial::Yama(3));
        // set-user-id: not all of its users are the caller.
        assert_eq!(cause("Uid:\t5\t0\t0\t0", 5, None), TraceDenial::OtherUser);
        assert_eq!(cause("", 0, None), TraceDenial::Protected);
    }
}
