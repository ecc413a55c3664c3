//! A process that is about to execute another program: it is traced until it has.

use std::time::Duration;

use rustix::process::Pid;

use crate::error::{InjectError, Result};
use crate::launch::ExecStop;
use crate::remote::{Tracee, has_ended};

/// The interval at which the process is asked whether it has executed the program.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// A process that is traced until it has executed a program. Nothing of that is visible to it: it
/// is not stopped, and signals are delivered as ever.
#[derive(Debug)]
pub struct Follower {
    process: Pid,
    tracee: Tracee,
}

/// The outcome of [`Follower::wait`].
#[derive(Debug)]
pub enum Followed {
    /// The process has executed the program, and stands before its first instruction.
    Executed(Box<ExecStop>),
    /// It was to be left; it is not traced any more.
    Left,
}

impl Follower {
    /// Traces a thread, which is about to call execve(2), of a process. Call in the thread that
    /// waits afterwards.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses (Yama), or somebody else traces it.
    pub fn seize(process: Pid, thread: Pid) -> Result<Follower> {
        let tracee = Tracee::new(thread);
        let options = std::ptr::without_provenance_mut(libc::PTRACE_O_TRACEEXEC as usize);
        // SAFETY: the request has no pointer: the address is 0, and the data are options.
        unsafe { tracee.request(libc::PTRACE_SEIZE, 0, options) }
            .map_err(InjectError::request("tracing the process"))?;
        Ok(Follower { process, tracee })
    }

    /// Waits until the process has executed a program. If `is_to_be_left` returns true before, the
    /// process is left.
    ///
    /// # Errors
    ///
    /// Fails if the process ends before.
    pub fn wait(self, mut is_to_be_left: impl FnMut() -> bool) -> Result<Followed> {
        let mut is_left = false;
        loop {
            if let Some(stop) = self.tracee.take_stop() {
                match stop.event {
                    libc::PTRACE_EVENT_EXEC => return executed(self.process),
                    libc::PTRACE_EVENT_STOP if is_left => {
                        self.tracee.resume(libc::PTRACE_DETACH, 0)?;
                        return Ok(Followed::Left);
                    }
                    // The process is to stay stopped, as without a tracer.
                    libc::PTRACE_EVENT_STOP => self.tracee.resume(libc::PTRACE_LISTEN, 0)?,
                    0 if is_left => {
                        self.tracee.resume(libc::PTRACE_DETACH, stop.signal)?;
                        return Ok(Followed::Left);
                    }
                    0 => self.tracee.resume(libc::PTRACE_CONT, stop.signal)?,
                    _ => self.tracee.resume(libc::PTRACE_CONT, 0)?,
                }
                continue;
            }
            // A thread that executes a program gets the id of its process.
            if self.tracee.pid() != self.process && Tracee::new(self.process).take_stop().is_some_and(is_exec) {
                return executed(self.process);
            }
            // Of the two, only the one that is traced can be asked about.
            if has_ended(self.tracee.pid()) && has_ended(self.process) {
                return Err(InjectError::Gone);
            }
            if !is_left && is_to_be_left() {
                is_left = true;
                self.tracee.resume(libc::PTRACE_INTERRUPT, 0)?;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Lets a process that has stopped in execve(2) return from it: only then can it be made to make
/// other calls.
fn executed(process: Pid) -> Result<Followed> {
    let mut tracee = Tracee::new(process);
    tracee.resume(libc::PTRACE_INTERRUPT, 0)?;
    tracee.resume(libc::PTRACE_CONT, 0)?;
    tracee.wait_for_event()?;
    Ok(Followed::Executed(Box::new(ExecStop::of(tracee)?)))
}

fn is_exec(stop: crate::remote::Stop) -> bool {
    stop.event == libc::PTRACE_EVENT_EXEC
}

#[cfg(test)]
mod tests;
