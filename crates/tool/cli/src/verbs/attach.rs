//! `heapledger attach`, and `record --pid`: records programs that run without the library.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::{fs, process};

use heapledger_collect::{self as collect, ArmedProcess, AttachError, RecordError, TraceDenial};

use crate::args::RunningOptions;
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::launch::failure;
use crate::process::sockets_of;
use crate::sessions::recorder_of;
use crate::text::quoted;
use crate::verbs::{armed, running};

/// Records a process until it has ended or somebody asks for the end.
pub(crate) fn run(target: &str, arguments: &RunningOptions) -> Result<()> {
    let pid = find(target)?;
    if let Ok(process) = ArmedProcess::find(pid)
        && process.is_armed()
    {
        return armed::run(&process, arguments, false);
    }
    let mut options = running::options(arguments_of(pid), arguments);
    options.options_text = format!("attach {pid} by process {}", process::id());
    running::record(pid, arguments, |observer| {
        collect::attach_from_outside(pid, &options, observer).map_err(|error| match error {
            RecordError::AttachFromOutside { source } => refusal(source),
            error => failure(error),
        })
    })
}

/// Returns the process that is meant, unless it is recorded already.
fn find(target: &str) -> Result<u32> {
    let Ok(pid) = target.parse::<u32>() else {
        let what = format_args!("`{target}` is not the number of a process");
        return Err(Failure::new(Exit::Usage, what).hint(format_args!("pgrep {}", quoted(target))));
    };
    if Process::read(pid).is_none() {
        return Err(gone(pid));
    }
    if let Some(recorder) = recorder_of(target)? {
        let what = format_args!("process {pid} is being recorded already, by process {recorder}");
        return Err(Failure::new(Exit::Usage, what).hint(format_args!("heapledger status {pid}")));
    }
    Ok(pid)
}

fn gone(pid: u32) -> Failure {
    Failure::new(Exit::Usage, format_args!("there is no process {pid}"))
        .hint("`pgrep NAME` tells the numbers of the processes of a name")
}

/// Returns the failure of a request about a recording of a process that is not being recorded, with
/// the command that records it.
pub(crate) fn can_be_attached_to(target: &str) -> Failure {
    let pid = match find(target) {
        Ok(pid) => pid,
        Err(failure) => return failure,
    };
    let answers = sockets_of(pid).is_ok_and(|listed| !listed.is_empty());
    let what = format_args!("process {pid} is not being recorded");
    let own = if answers {
        format!("\nor turn on the ledger of its own, if it has one: heapledger start {pid}")
    } else {
        String::new()
    };
    Failure::new(Exit::NothingRecorded, what).hint(format_args!("heapledger attach {pid}{own}"))
}

/// Returns the failure to record a process from outside, with what to do.
pub(crate) fn refusal(error: AttachError) -> Failure {
    let again = |pid| Process::read(pid).map(|process| process.hint());
    let (exit, code, hint) = match &error {
        AttachError::Gone { pid } => return gone(*pid),
        AttachError::Kernel { .. } => (Exit::Usage, None, Some("it has no allocator".to_owned())),
        AttachError::Denied { pid, cause, .. } => {
            (Exit::Unexpected, Some(Code::TracingDenied), Some(denial(*pid, *cause)))
        }
        AttachError::Traced { tracer, .. } => {
            let hint = format!("end the debugger first, or detach it: ps -o pid,args -p {tracer}");
            (Exit::Usage, Some(Code::TracedAlready), Some(hint))
        }
        AttachError::Sandboxed { pid } => (Exit::Usage, Some(Code::SandboxedProcess), again(*pid)),
        AttachError::NoAllocator { pid } | AttachError::NotExamined { pid } => {
            (Exit::Usage, Some(Code::NoAttaching), again(*pid))
        }
        AttachError::OtherCode { pid, .. } => (Exit::Unexpected, Some(Code::NoAttaching), again(*pid)),
        _ => (Exit::Unexpected, None, Some("try it again".to_owned())),
    };
    let mut failure = Failure::from_error(exit, error);
    if let Some(code) = code {
        failure = failure.code(code);
    }
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Says what to do about a denial.
fn denial(pid: u32, cause: TraceDenial) -> String {
    match cause {
        TraceDenial::OtherUser => format!("it is another user's: sudo heapledger attach {pid}"),
        TraceDenial::Yama(1 | 2) => format!(
            "this system lets root alone trace processes (kernel.yama.ptrace_scope):\n\
             sudo heapledger attach {pid}\n\
             or, until the next boot, for all users: sudo sysctl kernel.yama.ptrace_scope=0"
        ),
        TraceDenial::Yama(_) => "this system lets nobody trace processes until the next boot\n\
             (kernel.yama.ptrace_scope is 3): heapledger record -- COMMAND"
            .to_owned(),
        TraceDenial::OtherNamespace => {
            format!(
                "it is in a user namespace: sudo nsenter -t {pid} -U heapledger attach PID, or run the command inside"
            )
        }
        _ => format!(
            "it has declared that its memory is private (PR_SET_DUMPABLE), or has more rights than you;\n\
             or CAP_SYS_PTRACE is missing in this container (--cap-add SYS_PTRACE): sudo heapledger attach {pid}"
        ),
    }
}

/// Returns the arguments of a process.
fn arguments_of(pid: u32) -> Vec<OsString> {
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = cmdline.strip_suffix(&[0]).unwrap_or(&cmdline).split(|&byte| byte == 0);
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// A process, as the kernel has it.
struct Process {
    /// The command line, for a shell; empty for threads of the kernel.
    command: String,
    /// The systemd unit that it runs as.
    service: Option<String>,
}

impl Process {
    fn read(pid: u32) -> Option<Process> {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        fs::metadata(format!("/proc/{pid}")).ok()?;
        Some(Process { command: command(&read("cmdline")), service: service(&read("cgroup")) })
    }

    /// Returns the command that records the program from its start.
    fn hint(&self) -> String {
        let command = match self.command.as_str() {
            "" => "COMMAND",
            command => command,
        };
        match &self.service {
            Some(service) => format!(
                "it is a service: put the recorder before the command of its unit, ExecStart=, and restart it:\n\
                 sudo systemctl edit --full {unit}\n\
                 ExecStart=/usr/bin/heapledger record -o /tmp/{unit}.hl -- {command}\n\
                 sudo systemctl restart {unit}",
                unit = quoted(service),
            ),
            None => format!("start it again under the recorder:\nheapledger record -- {command}"),
        }
    }
}

/// Returns a command line for a shell, from `/proc/PID/cmdline`.
fn command(cmdline: &[u8]) -> String {
    let words = cmdline.strip_suffix(&[0]).unwrap_or(cmdline).split(|&byte| byte == 0);
    let words = words.map(|word| quoted(&String::from_utf8_lossy(word)));
    if cmdline.is_empty() { String::new() } else { words.collect::<Vec<_>>().join(" ") }
}

/// Returns the unit of a system service, from `/proc/PID/cgroup`.
fn service(cgroup: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(cgroup);
    let path = text.lines().find_map(|line| line.split(':').nth(2)?.strip_prefix("/system.slice/"))?;
    let unit = path.split('/').next_back().filter(|unit| unit.ends_with(".service"))?;
    Some(unit.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_can_be_pasted() {
        assert_eq!(command(b"/usr/bin/a\0b c\0\0-x\0"), "/usr/bin/a 'b c' '' -x");
        assert_eq!(command(b"title it gave itself"), "'title it gave itself'");
        assert_eq!(command(b""), "");
    }

    #[test]
    fn services_are_units_of_the_system() {
        assert_eq!(service(b"0::/system.slice/redis-server.service\n").as_deref(), Some("redis-server.service"));
        let template = b"0::/system.slice/system-postgresql.slice/postgresql@15-main.service\n";
        assert_eq!(service(template).as_deref(), Some("postgresql@15-main.service"));
        for other in ["0::/user.slice/user-0.slice/user@0.service/app.slice/a.service\n", "0::/\n", "", "x"] {
            assert_eq!(service(other.as_bytes()), None);
        }
    }

    #[test]
    fn the_hint_is_of_the_process() {
        let process =
            |service: Option<&str>| Process { command: "/usr/bin/a 'b c'".into(), service: service.map(str::to_owned) };
        let hint = process(None).hint();
        assert_eq!(hint, "start it again under the recorder:\nheapledger record -- /usr/bin/a 'b c'");
        let hint = process(Some("a.service")).hint();
        let line = "\nExecStart=/usr/bin/heapledger record -o /tmp/a.service.hl -- /usr/bin/a 'b c'\n";
        assert!(hint.contains(line) && hint.contains("sudo systemctl restart a.service"), "{hint}");
    }
}
