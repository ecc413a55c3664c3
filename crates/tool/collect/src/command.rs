//! The running command: waits for its end, and stops and continues together with it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heapledger_recording::ExitStatus;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, waitid,
    waitpid,
};

use crate::error::RecordError;
use crate::process::is_stopped;
use crate::shared::Page;
use crate::{signals, unix};

/// The time for which orphans are not looked for after none were found.
const ORPHANS_PAUSE: Duration = Duration::from_millis(50);

/// The exit status of the command, and when it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) exit: ExitStatus,
    pub(crate) at: Instant,
}

/// A child process, and the thread that waits for it.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    pidfd: Arc<OwnedFd>,
    ended: Arc<OnceLock<Ended>>,
    thread: JoinHandle<()>,
    /// True once it is not waited for any more.
    is_left: Arc<AtomicBool>,
    _orphans: Option<Orphans>,
}

/// The interval at which the thread that waits for a process which is not our child looks whether
/// it is still wanted.
const FOLLOW_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl RunningCommand {
    /// Waits for the child in a thread of its own, which wakes the collector. If `stops_us`, this
    /// process stops when the child is stopped from the keyboard, and the child continues when this
    /// process does.
    pub(crate) fn watch(pid: Pid, page: Arc<Page>, stops_us: bool) -> Result<RunningCommand, RecordError> {
        let failed = "a handle of the command";
        let pidfd = Arc::new(pidfd_open(pid, PidfdFlags::empty()).map_err(RecordError::session(failed))?);
        let ended = Arc::new(OnceLock::new());
        let (thread_pidfd, thread_ended) = (Arc::clone(&pidfd), Arc::clone(&ended));
        let run = move || {
            let exit = wait(pid, &thread_pidfd, stops_us);
            // Nobody else sets it.
            let _ = thread_ended.set(Ended { exit, at: Instant::now() });
            wake(&page);
        };
        let thread = std::thread::Builder::new().name("waiter".into()).spawn(run);
        let thread = thread.map_err(RecordError::session("the waiting thread"))?;
        let _orphans = Orphans::reap(stops_us, pid, Arc::clone(&ended));
        Ok(RunningCommand { pidfd, ended, thread, is_left: Arc::default(), _orphans })
    }

    /// Waits in a thread for the end of a process that is not our child, until it is
    /// [left](RunningCommand::leave).
    pub(crate) fn follow(pid: Pid, page: Arc<Page>) -> Result<RunningCommand, RecordError> {
        let failed = "a handle of the process";
        let pidfd = Arc::new(pidfd_open(pid, PidfdFlags::empty()).map_err(RecordError::session(failed))?);
        let (ended, is_left) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::new(false)));
        let (thread_pidfd, thread_ended, thread_left) = (Arc::clone(&pidfd), Arc::clone(&ended), Arc::clone(&is_left));
        let run = move || {
            while !thread_left.load(Ordering::Acquire) {
                let mut entry = [PollFd::from_borrowed_fd(thread_pidfd.as_fd(), PollFlags::IN)];
                if poll(&mut entry, Some(&FOLLOW_INTERVAL)).is_ok_and(|ready| ready > 0) {
                    let exit = unix::exit_of(thread_pidfd.as_fd()).unwrap_or(UNKNOWN);
                    // Nobody else sets it.
                    let _ = thread_ended.set(Ended { exit, at: Instant::now() });
                    return wake(&page);
                }
            }
        };
        let thread = std::thread::Builder::new().name("waiter".into()).spawn(run);
        let thread = thread.map_err(RecordError::session("the waiting thread"))?;
        Ok(RunningCommand { pidfd, ended, thread, is_left, _orphans: None })
    }

    /// Stops waiting for a process that is not our child.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    pub(crate) fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended.get().copied()
    }

    /// Waits for the end of the command.
    pub(crate) fn wait(self) -> Ended {
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
        self.ended.get().copied().unwrap_or(Ended { exit: UNKNOWN, at: Instant::now() })
    }
}

/// Kills the command and reaps it: without a handle it cannot be waited for.
pub(crate) fn give_up(pid: Pid) {
    // It is our child and has not been reaped, so the pid is still its own.
    let _ = kill_process(pid, Signal::KILL);
    let _ = waitpid(Some(pid), WaitOptions::empty());
}

/// Wakes the collector after an event that it checks for before it sleeps.
pub(crate) fn wake(page: &Page) {
    // The event must be visible before the collector's sleep is checked.
    fence(Ordering::SeqCst);
    page.ring_doorbell();
}

/// Reaps orphans that were reparented to this process, as long as it lives. Used only in the first
/// process of a container: other processes have no children except those that they made.
#[derive(Debug)]
pub(crate) struct Orphans(Arc<AtomicBool>);

impl Orphans {
    /// Starts to reap. Returns `None` if no orphans are reparented to this process, or if reaping
    /// them is not our task. Until the command has `ended`, it is left to the thread that waits for
    /// it.
    pub(crate) fn reap(is_ours: bool, command: Pid, ended: Arc<OnceLock<Ended>>) -> Option<Orphans> {
        if !is_ours || !signals::is_first_process() {
            return None;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let orphans = Orphans(Arc::clone(&is_over));
        let run = move || {
            let is_reaped = |pid| pid != command || ended.get().is_some();
            while !is_over.load(Ordering::Acquire) {
                // The child is checked before it is reaped: it may be the command, and children
                // that this process makes later are not to be reaped here.
                match unix::wait_for_any_end().filter(|&pid| is_reaped(pid)) {
                    Some(pid) if !is_over.load(Ordering::Acquire) => {
                        // Without waiting: if it has been reaped meanwhile, a new child may have
                        // its pid.
                        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
                    }
                    // The command, for a moment; or there are no children at present.
                    _ => std::thread::sleep(ORPHANS_PAUSE),
                }
            }
        };
        // Without the thread, orphans are not reaped.
        std::thread::Builder::new().name("orphans".into()).spawn(run).ok()?;
        Some(orphans)
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The exit status if something else in this process has waited for the command.
const UNKNOWN: ExitStatus = ExitStatus::Code(255);

/// Waits for the child in the calling thread: see [`RunningCommand::watch`].
pub(crate) fn wait(pid: Pid, pidfd: &OwnedFd, stops_us: bool) -> ExitStatus {
    let what = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
    loop {
        let status = match waitid(WaitId::Pid(pid), what) {
            Ok(Some(status)) => status,
            Ok(None) | Err(Errno::INTR) => continue,
            Err(_) => return unix::exit_of(pidfd.as_fd()).unwrap_or(UNKNOWN),
        };
        if let Some(code) = status.exit_status() {
            return ExitStatus::Code(code);
        }
        if let Some(signal) = status.terminating_signal() {
            return ExitStatus::Signal(signal);
        }
        // SIGSTOP is left out: it comes from a program, which continues the command without knowing
        // about this process.
        let keyboard = [Signal::TSTP, Signal::TTIN, Signal::TTOU].map(Signal::as_raw);
        if let Some(signal) = status.stopping_signal()
            && stops_us
            && keyboard.contains(&signal)
            && is_stopped(pid.as_raw_pid() as u32)
        {
            signals::stop_by(signal);
            // The command may have been continued together with this process.
            let _ = pidfd_send_signal(pidfd, Signal::CONT);
        }
    }
}
