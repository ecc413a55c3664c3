//! Running a command with hooks, without recording it.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;

use heapledger_recording::ExitStatus;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::error::Error;
use crate::launch::Launch;
use crate::session::Library;
use crate::unix::Signals;
use crate::{command, give_up_command};

/// Runs a command with the preload library and these hook libraries in it and in what it starts, and waits for its end.
/// Hooks are absolute paths. What still runs then goes on as it is; what it starts later has no hooks.
///
/// Signals are handled as [`Options::handle_signals`](crate::Options::handle_signals) says.
///
/// # Errors
///
/// The command was not started.
pub fn run(command: &[OsString], library: &[u8], hooks: &[PathBuf]) -> Result<ExitStatus, Error> {
    let launch = Launch::find(command)?;
    let signals = Signals::handle();
    let library = Library::place(library, hooks)?;
    let pid = launch.start(&library, None)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(Error::session("a handle of the command"));
    let pidfd = pidfd.inspect_err(|_| give_up_command(pid))?;
    if let Some(signals) = &signals {
        signals.command_runs(pidfd.as_fd());
    }
    let exit = command::wait(pid, &pidfd, signals.is_some());
    if let Some(signals) = &signals {
        signals.command_ended();
    }
    Ok(exit)
}
