//! `heapledger attach`: refuses to record programs that run without the library, and says what to
//! do instead.

use std::fs;

use heapledger_collect::ArmedProcess;

use crate::args::Attach;
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::process::sockets_of;
use crate::sessions::recorder_of;
use crate::text::quoted;

pub(crate) fn run(arguments: &Attach) -> Result<()> {
    Err(refuse(&arguments.pid))
}

/// Returns the failure to attach to a process, with the command that records the program from its
/// start.
pub(crate) fn refuse(target: &str) -> Failure {
    refusal(target).unwrap_or_else(|failure| failure)
}

fn refusal(target: &str) -> Result<Failure> {
    let Ok(pid) = target.parse::<u32>() else {
        let what = format_args!("`{target}` is not the number of a process");
        return Err(Failure::new(Exit::Usage, what).hint(format_args!("pgrep {}", quoted(target))));
    };
    let Some(process) = Process::read(pid) else {
        return Err(Failure::new(Exit::Usage, format_args!("there is no process {pid}"))
            .hint("`pgrep NAME` tells the numbers of the processes of a name"));
    };
    if let Some(recorder) = recorder_of(target)? {
        let what = format_args!("process {pid} is being recorded already, by process {recorder}");
        return Err(Failure::new(Exit::Usage, what).hint(format_args!("heapledger status {pid}")));
    }
    if ArmedProcess::find(pid).is_ok_and(|process| process.is_armed()) {
        let what = format_args!("process {pid} ({}) has the library, and need not be attached to", process.name);
        return Err(Failure::new(Exit::Usage, what).hint(format_args!("heapledger start {pid}")));
    }
    let answers = sockets_of(pid).is_ok_and(|listed| !listed.is_empty());
    let what = format_args!(
        "cannot record process {pid} ({}): attaching to a program that runs without the library is not there yet",
        process.name
    );
    Ok(Failure::caused(Exit::Usage, what, Reason).code(Code::NoAttaching).hint(process.hint(pid, answers)))
}

#[derive(Debug, thiserror::Error)]
#[error("recording begins with a library that the dynamic linker loads when a program starts")]
struct Reason;

/// A process, as the kernel has it.
struct Process {
    name: String,
    /// The command line, for a shell; empty for threads of the kernel.
    command: String,
    /// The systemd unit that it runs as.
    service: Option<String>,
}

impl Process {
    fn read(pid: u32) -> Option<Process> {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
        let name = String::from_utf8_lossy(&name).trim_end().to_owned();
        Some(Process { name, command: command(&read("cmdline")), service: service(&read("cgroup")) })
    }

    fn hint(&self, pid: u32, answers: bool) -> String {
        let command = match self.command.as_str() {
            "" => "COMMAND",
            command => command,
        };
        let mut hint = String::new();
        if answers {
            hint += &format!(
                "it answers: turn on the ledger of its own, if it has one, and ask it what it holds:\n\
                 heapledger start {pid}; heapledger dmd --mode live {pid}\n"
            );
        }
        hint += &match &self.service {
            Some(service) => format!(
                "it is a service: put the recorder before the command of its unit, ExecStart=, and restart it:\n\
                 sudo systemctl edit --full {unit}\n\
                 ExecStart=/usr/bin/heapledger record -o /tmp/{unit}.hl -- {command}\n\
                 sudo systemctl restart {unit}\n",
                unit = quoted(service),
            ),
            None => format!(
                "start it again under the recorder:\nheapledger record -- {command}\n\
                 or with the library, and record it while it runs (docs/services.md):\n\
                 LD_PRELOAD=$(heapledger lib record) {command}\n\
                 heapledger start PID\n"
            ),
        };
        if !answers {
            hint += "a program that links the library keeps a ledger of its own, which `heapledger start PID` turns on:\n\
                     see docs/library.md and, for C and C++, docs/c.md";
        }
        hint.trim_end().to_owned()
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
        let process = |service: Option<&str>| Process {
            name: "a".into(),
            command: "/usr/bin/a 'b c'".into(),
            service: service.map(str::to_owned),
        };
        let hint = process(None).hint(7, false);
        assert!(
            hint.starts_with("start it again under the recorder:\nheapledger record -- /usr/bin/a 'b c'\n"),
            "{hint}"
        );
        assert!(hint.contains("docs/library.md"), "{hint}");
        let hint = process(Some("a.service")).hint(7, false);
        let line = "\nExecStart=/usr/bin/heapledger record -o /tmp/a.service.hl -- /usr/bin/a 'b c'\n";
        assert!(hint.contains(line) && hint.contains("sudo systemctl restart a.service"), "{hint}");
        let hint = process(None).hint(7, true);
        assert!(hint.contains("heapledger start 7") && !hint.contains("docs/library.md"), "{hint}");
    }
}
