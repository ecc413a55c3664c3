//! A process that is about to execute another program, or to make a child that does: it is traced
//! until then.

use std::mem;
use std::time::Duration;

use rustix::process::Pid;

use crate::error::{InjectError, Result};
use crate::launch::ExecStop;
use crate::ptrace::{self, Event, Step};
use crate::remote::{Tracee, has_ended};

/// The interval at which the process is asked whether it has executed the program.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// A process that is traced until it has executed a program. Nothing of that is visible to it: it
/// is not stopped, and signals are delivered as ever.
#[derive(Debug)]
pub struct Follower {
    process: Pid,
    tracee: Tracee,
    /// True until the first stop of a process that has been traced since its start: it has the
    /// options of the thread that made it.
    is_new: bool,
}

/// The outcome of [`Follower::wait`].
#[derive(Debug)]
pub enum Followed {
    /// The process has executed the program, and stands before its first instruction.
    Executed(Box<ExecStop>),
    /// It was to be left; it is not traced any more.
    Left,
}

/// A thread that is traced until it has made a process by vfork(2), as posix_spawn(3) does. It is
/// not stopped before, signals are delivered as ever, and it goes on untraced then.
#[derive(Debug)]
pub struct ChildFollower {
    process: Pid,
    thread: Pid,
}

impl ChildFollower {
    /// Traces a thread, which is about to make a process, of a process. Call in the thread that
    /// waits afterwards.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses (Yama), or somebody else traces it.
    pub fn seize(process: Pid, thread: Pid) -> Result<ChildFollower> {
        let tid = thread.as_raw_pid().cast_unsigned();
        ptrace::seize_until_vfork(tid).map_err(InjectError::request("tracing the process"))?;
        Ok(ChildFollower { process, thread })
    }

    /// Waits until the thread has made a process, which is traced from its first instruction on. If
    /// `is_to_be_left` returns true before, the thread is left: `None`.
    ///
    /// # Errors
    ///
    /// Fails if the thread ends before.
    pub fn wait(self, mut is_to_be_left: impl FnMut() -> bool) -> Result<Option<Follower>> {
        let mut is_left = false;
        let tid = self.thread.as_raw_pid().cast_unsigned();
        let going = || InjectError::request("letting the process run");
        loop {
            if let Some(event) = ptrace::take_stop(tid) {
                let signal = if let Event::Signal(signal) = event { signal } else { 0 };
                match event {
                    Event::Clone(child) => {
                        ptrace::detach(tid, 0).map_err(going())?;
                        let child = Pid::from_raw(child.cast_signed()).ok_or(InjectError::Gone)?;
                        return Ok(Some(Follower { process: child, tracee: Tracee::new(child), is_new: true }));
                    }
                    Event::Stopped | Event::StoppedByJobControl | Event::Signal(_) if is_left => {
                        ptrace::detach(tid, signal).map_err(going())?;
                        return Ok(None);
                    }
                    // The process is to stay stopped, as without a tracer.
                    Event::StoppedByJobControl => ptrace::listen(tid).map_err(going())?,
                    _ => ptrace::resume(tid, Step::Continue, signal).map_err(going())?,
                }
                continue;
            }
            if has_ended(self.thread) && has_ended(self.process) {
                return Err(InjectError::Gone);
            }
            if !is_left && is_to_be_left() {
                is_left = true;
                ptrace::interrupt(tid).map_err(going())?;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
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
        ptrace::seize_until_exec(tracee.tid()).map_err(InjectError::request("tracing the process"))?;
        Ok(Follower { process, tracee, is_new: false })
    }

    /// Waits until the process has executed a program. If `is_to_be_left` returns true before, the
    /// process is left.
    ///
    /// # Errors
    ///
    /// Fails if the process ends before.
    pub fn wait(mut self, mut is_to_be_left: impl FnMut() -> bool) -> Result<Followed> {
        let mut is_left = false;
        let (process, tid) = (self.process.as_raw_pid().cast_unsigned(), self.tracee.tid());
        let going = || InjectError::request("letting the process run");
        loop {
            if let Some(event) = ptrace::take_stop(tid) {
                let signal = if let Event::Signal(signal) = event { signal } else { 0 };
                if mem::take(&mut self.is_new) && event != Event::Ended {
                    // Otherwise the processes that it makes by vfork(2) would be traced, too, and
                    // wait for ever.
                    ptrace::trace_until_exec(tid).map_err(going())?;
                }
                match event {
                    Event::Exec => return executed(self.process),
                    Event::Stopped | Event::StoppedByJobControl | Event::Signal(_) if is_left => {
                        ptrace::detach(tid, signal).map_err(going())?;
                        return Ok(Followed::Left);
                    }
                    // The process is to stay stopped, as without a tracer.
                    Event::StoppedByJobControl => ptrace::listen(tid).map_err(going())?,
                    _ => self.tracee.resume(signal)?,
                }
                continue;
            }
            // A thread that executes a program gets the id of its process.
            if self.tracee.pid() != self.process && ptrace::take_stop(process) == Some(Event::Exec) {
                return executed(self.process);
            }
            // Only the one of the two that is traced can be asked about.
            if has_ended(self.tracee.pid()) && has_ended(self.process) {
                return Err(InjectError::Gone);
            }
            if !is_left && is_to_be_left() {
                is_left = true;
                ptrace::interrupt(tid).map_err(going())?;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Lets a process that has stopped in execve(2) return from it: only then can it be made to make
/// other calls.
fn executed(process: Pid) -> Result<Followed> {
    let mut tracee = Tracee::new(process);
    ptrace::interrupt(tracee.tid()).map_err(InjectError::request("stopping the process"))?;
    tracee.resume(0)?;
    tracee.wait_for_interruption()?;
    Ok(Followed::Executed(Box::new(ExecStop::of(tracee)?)))
}

#[cfg(test)]
mod tests;
