//! The threads of a process, stopped for a moment.
//!
//! [`Threads::seize`] makes the calling thread the tracer of all threads; they go on. They are
//! stopped by [`Threads::stop`], and go on untraced when the value is dropped. The program is not
//! to notice:
//!
//! - No signal is sent to it. Signals that come meanwhile are passed on as they came.
//! - A stop ends a system call that waits, such as `epoll_wait`, with `EINTR`. The call is then
//!   made again. Calls that the kernel itself makes again are left to it.
//! - A thread in `vfork` cannot be stopped: the kernel lets it wait for its child. It is not waited
//!   for, because it stops before its next instruction. Its child, which uses the same memory, is
//!   stopped, too.
//!
//! All calls must be made by the thread that called [`Threads::seize`], so the type is not `Send`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{InjectError, Result};
use crate::memory::{self, Memory};
use crate::ptrace::{self, Event, Registers, Step};
use crate::reaping::Reaping;

/// The time for which threads are waited for until they stop. A thread that is not at work stops at
/// once; one that is has to be run by a processor once.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two looks whether threads have stopped.
const PAUSE: Duration = Duration::from_micros(50);
/// The time after which a thread that has not stopped is looked at: it may be in `vfork`.
const LOOK_AFTER: Duration = Duration::from_millis(2);
/// The most passes over the list of threads until no new one is found.
const PASSES_MAX: usize = 1000;

/// The threads of one process, which this thread traces.
#[derive(Debug)]
pub struct Threads {
    pid: u32,
    threads: BTreeMap<u32, State>,
    /// Tracing belongs to a thread.
    not_send: PhantomData<*mut ()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It runs.
    Running,
    /// It has been asked to stop, or is new and will.
    Stopping,
    /// It is stopped, at a place where its registers may be changed.
    Stopped,
    /// It is stopped inside a system call, which ends when it goes on.
    InCall,
    /// It waits in the kernel, and stops before its next instruction.
    Waiting,
}

impl State {
    fn is_stopped(self) -> bool {
        matches!(self, State::Stopped | State::InCall)
    }
}

impl Threads {
    /// Becomes the tracer of all threads of a process. They go on until [`Threads::stop`].
    ///
    /// # Errors
    ///
    /// Fails if there is no such process, or if the kernel does not allow it.
    pub fn seize(pid: u32) -> Result<Threads> {
        let mut threads = Threads::none(pid);
        for _ in 0..PASSES_MAX {
            if !threads.seize_new()? {
                break;
            }
        }
        if threads.threads.is_empty() { Err(InjectError::Gone) } else { Ok(threads) }
    }

    /// Becomes the tracer of one thread of a process, and stops it. The others go on untouched.
    /// A thread that does not stop soon, since it waits for a device or in `vfork`, is left for
    /// another one.
    ///
    /// # Errors
    ///
    /// Fails as [`Threads::seize`] does, and if no thread stops.
    pub fn stop_one(pid: u32) -> Result<Threads> {
        let mut failure = InjectError::Gone;
        let until = Instant::now() + STOP_TIMEOUT;
        let mut timeout = Duration::from_millis(20);
        while Instant::now() < until {
            let mut has_seized = false;
            for tid in tids(pid)? {
                let mut threads = Threads::none(pid);
                // One that has been left before may be in the way of the next: see `reaping`.
                let reaping = start_reaping()?;
                let is_seized = threads.seize_thread(tid);
                for (tid, status) in reaping.finish() {
                    threads.handle(tid, ptrace::event(tid, status))?;
                }
                match is_seized {
                    Ok(true) => has_seized = true,
                    Ok(false) => continue,
                    Err(error) => return Err(error),
                }
                match threads.stop_within(timeout) {
                    Ok(()) if threads.stopped().next().is_some() => return Ok(threads),
                    // The thread has ended, or waits; the process may have others.
                    Ok(()) | Err(InjectError::Gone) => {}
                    Err(error @ InjectError::NotStopped { .. }) => {
                        failure = error;
                        // It is let go when this thread ends: it would be waited for in vain.
                        threads.threads.insert(tid, State::Waiting);
                    }
                    Err(error) => return Err(error),
                }
            }
            if !has_seized {
                return Err(failure);
            }
            timeout = (timeout * 2).min(STOP_TIMEOUT);
        }
        Err(failure)
    }

    fn none(pid: u32) -> Threads {
        Threads { pid, threads: BTreeMap::new(), not_send: PhantomData }
    }

    /// Returns the process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the number of threads, those of children of `vfork` included.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// Returns the threads that are stopped where their registers may be changed.
    pub fn stopped(&self) -> impl Iterator<Item = u32> {
        self.threads.iter().filter(|&(_, &state)| state == State::Stopped).map(|(&tid, _)| tid)
    }

    /// Seizes the threads that are not seized yet. Returns true if there were any.
    fn seize_new(&mut self) -> Result<bool> {
        let mut is_new = false;
        let reaping = start_reaping()?;
        for tid in tids(self.pid)? {
            if !self.threads.contains_key(&tid) {
                is_new |= self.seize_thread(tid)?;
            }
        }
        for (tid, status) in reaping.finish() {
            self.handle(tid, ptrace::event(tid, status))?;
        }
        Ok(is_new)
    }

    /// Seizes a thread. Returns false if it has ended, or is traced by this thread already because
    /// the thread that made it is.
    fn seize_thread(&mut self, tid: u32) -> Result<bool> {
        match ptrace::seize(tid) {
            Ok(()) => {
                self.threads.insert(tid, State::Running);
                Ok(true)
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(source) => match Status::of(self.pid, tid) {
                None => Ok(false),
                // A first thread that has ended stays in the list as long as there are others.
                Some(status) if matches!(status.state, 'Z' | 'X') => Ok(false),
                Some(status) if status.tracer == own_tid() => {
                    self.threads.insert(tid, State::Stopping);
                    Ok(true)
                }
                Some(Status { tracer: 0, .. }) => Err(InjectError::Denied { source }),
                Some(Status { tracer, .. }) => Err(InjectError::Traced { tracer }),
            },
        }
    }

    /// Stops all threads, also those that are made meanwhile. Returns when each is stopped, or
    /// waits in `vfork`.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended or has started another program, or if a thread does not stop
    /// within 10 s. Then those that have stopped go on when the value is dropped.
    pub fn stop(&mut self) -> Result<()> {
        for _ in 0..PASSES_MAX {
            self.stop_within(STOP_TIMEOUT)?;
            // One that was made by a thread that had not been seized yet.
            if !self.seize_new()? {
                break;
            }
        }
        Ok(())
    }

    fn stop_within(&mut self, timeout: Duration) -> Result<()> {
        for (&tid, state) in &mut self.threads {
            if *state == State::Running {
                // Fails if it has ended, which is reported.
                let _ = ptrace::interrupt(tid);
                *state = State::Stopping;
            }
        }
        let began = Instant::now();
        let mut look_at = began + LOOK_AFTER;
        loop {
            // An error says that nobody is traced any more.
            while let Some((tid, event)) = ptrace::next_event().map_err(|_| InjectError::Gone)? {
                self.handle(tid, event)?;
            }
            let Some(tid) = self.threads.iter().find(|&(_, &state)| state == State::Stopping).map(|(&tid, _)| tid)
            else {
                return if self.threads.is_empty() { Err(InjectError::Gone) } else { Ok(()) };
            };
            let now = Instant::now();
            if now >= began + timeout {
                let seconds = timeout.as_secs();
                return Err(InjectError::NotStopped { tid, seconds });
            }
            if now >= look_at {
                look_at = now + LOOK_AFTER;
                self.look_for_waiting();
            }
            thread::sleep(PAUSE);
        }
    }

    /// Notes an event. Signals are passed on: the thread stops afterwards.
    pub(crate) fn handle(&mut self, tid: u32, event: Event) -> Result<()> {
        match event {
            Event::Stopped | Event::StoppedByJobControl => drop(self.threads.insert(tid, State::Stopped)),
            Event::Syscall => drop(self.threads.insert(tid, State::InCall)),
            Event::Clone(new) => {
                self.threads.insert(tid, State::InCall);
                // The number of the new one is not known if the thread has been killed since.
                if new != 0 {
                    self.threads.entry(new).or_insert(State::Stopping);
                }
            }
            // Fails if it has been killed, which is reported.
            Event::Signal(signal) => drop(ptrace::resume(tid, Step::Continue, signal)),
            // A child of `vfork` that has another memory now.
            Event::Exec if tid != self.pid && self.is_other_process(tid) => {
                let _ = ptrace::detach(tid, 0);
                self.threads.remove(&tid);
            }
            Event::Exec => {
                self.threads.clear();
                self.threads.insert(tid, State::InCall);
                return Err(InjectError::OtherProgram);
            }
            Event::Ended => {
                self.threads.remove(&tid);
                // Threads that waited in `vfork` may go on now, and stop.
            }
        }
        Ok(())
    }

    /// Finds threads that cannot stop because they are in `vfork`, and stops their children.
    fn look_for_waiting(&mut self) {
        let stopping = self.threads.iter().filter(|&(_, &state)| state == State::Stopping).map(|(&tid, _)| tid);
        for tid in stopping.collect::<Vec<_>>() {
            if !is_in_vfork(self.pid, tid) {
                continue;
            }
            self.threads.insert(tid, State::Waiting);
            for child in children(self.pid, tid).into_iter().filter(|&child| shares_memory(self.pid, child)) {
                if !self.threads.contains_key(&child) && ptrace::seize(child).is_ok() {
                    let _ = ptrace::interrupt(child);
                    self.threads.insert(child, State::Stopping);
                }
            }
        }
    }

    fn is_other_process(&self, tid: u32) -> bool {
        fs::metadata(format!("/proc/{}/task/{tid}", self.pid)).is_err()
    }

    /// Returns the registers of the threads that are stopped, and the addresses at which those that
    /// wait go on, as far as the kernel tells.
    pub(crate) fn all_registers(&self) -> impl Iterator<Item = (u32, Registers)> {
        let stopped = self.threads.iter().filter(|(_, state)| state.is_stopped());
        stopped.filter_map(|(&tid, _)| Some((tid, ptrace::registers(tid).ok()?)))
    }

    /// Writes memory of the process, whose memory `memory` is, as
    /// [`Memory::write`] does; where the kernel refuses that, word by word,
    /// by a stopped thread.
    ///
    /// # Errors
    ///
    /// Fails if not all of it is mapped, or no thread is stopped.
    pub fn write(&self, memory: &Memory, address: u64, bytes: &[u8]) -> Result<()> {
        let Err(refused) = memory.write(address, bytes) else { return Ok(()) };
        let stopped = self.threads.iter().find(|(_, state)| state.is_stopped());
        let Some((&tid, _)) = stopped else { return Err(refused) };
        memory::write_words(tid, address, bytes)
    }

    /// Lets each stopped thread for which `is_there` says so, given the address of its next
    /// instruction, go on until it is elsewhere. Returns false if one stays for more than about
    /// 100 ms, or has been interrupted there by a signal.
    pub fn move_out(&mut self, mut is_there: impl FnMut(u64) -> bool) -> Result<bool> {
        let tids: Vec<u32> = self.stopped().collect();
        for tid in tids {
            let mut tries = 0;
            while self.threads.get(&tid) == Some(&State::Stopped)
                && ptrace::registers(tid).is_ok_and(|registers| is_there(registers.rip))
            {
                tries += 1;
                if tries > 1000 {
                    return Ok(false);
                }
                // An interrupted call has been made again before: it is not at such a place.
                if ptrace::resume(tid, Step::Continue, 0).is_ok() {
                    if tries > 10 {
                        thread::sleep(Duration::from_micros(100));
                    }
                    self.threads.insert(tid, State::Running);
                    self.stop_within(STOP_TIMEOUT)?;
                }
            }
        }
        Ok(true)
    }
}

impl Drop for Threads {
    /// Lets all threads go on untraced. Those that have not stopped are let go by the kernel when
    /// this thread ends, or stop here.
    fn drop(&mut self) {
        for (&tid, state) in &self.threads {
            if state.is_stopped() {
                restart_call(self.pid, tid);
                // Fails if it has been killed.
                let _ = ptrace::detach(tid, 0);
            }
        }
        self.threads.retain(|_, state| !state.is_stopped());
        // A tracee that runs cannot be let go. As above, for threads that stop late.
        let until = Instant::now() + STOP_TIMEOUT;
        for (&tid, state) in &self.threads {
            if *state == State::Running {
                let _ = ptrace::interrupt(tid);
            }
        }
        while self.threads.values().any(|&state| state != State::Waiting) && Instant::now() < until {
            match ptrace::next_event() {
                Ok(Some((tid, Event::Signal(signal)))) => drop(ptrace::resume(tid, Step::Continue, signal)),
                Ok(Some((tid, event))) => {
                    if let Event::Clone(new @ 1..) = event {
                        self.threads.entry(new).or_insert(State::Stopping);
                    }
                    if event != Event::Ended {
                        restart_call(self.pid, tid);
                        let _ = ptrace::detach(tid, 0);
                    }
                    self.threads.remove(&tid);
                }
                Ok(None) => thread::sleep(PAUSE),
                Err(_) => return,
            }
        }
    }
}

fn start_reaping() -> Result<Reaping> {
    Reaping::start().map_err(InjectError::request("making a timer"))
}

/// Makes a thread's system call begin again that the stop has ended with `EINTR`.
fn restart_call(pid: u32, tid: u32) {
    let Ok(mut registers) = ptrace::registers(tid) else { return };
    if !has_interrupted_call(&registers) {
        return;
    }
    // A signal ends the call anyway: the program may rely on that, to look what the handler did.
    if ptrace::has_queued_signal(tid) && Status::of(pid, tid).is_some_and(|status| status.has_deliverable_signal()) {
        return;
    }
    registers.rip = registers.rip.wrapping_sub(SYSCALL_LENGTH);
    registers.rax = registers.orig_rax;
    // It has to be without effect if it fails: the thread has ended.
    let _ = ptrace::set_registers(tid, &registers);
}

/// The length of the instructions that make a system call: `syscall`, and `int 0x80`.
pub(crate) const SYSCALL_LENGTH: u64 = 2;
const EINTR: i64 = -4;

/// True if a thread is about to return `EINTR` from a system call that can be made again.
fn has_interrupted_call(registers: &Registers) -> bool {
    // close(2) has closed the descriptor: another file may have its number when it is made again.
    let is_repeatable = registers.orig_rax as i64 >= 0 && registers.orig_rax as i64 != libc::SYS_close;
    is_repeatable && registers.rax as i64 == EINTR
}

fn tids(pid: u32) -> Result<Vec<u32>> {
    let entries = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(InjectError::Gone),
        Err(error) => return Err(InjectError::request("reading the list of threads")(error)),
    };
    let tids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(tids.filter(|&tid| !is_worker_of_kernel(pid, tid)).collect())
}

/// True for the threads of io_uring(7): they run in the kernel only, and a stop would end the
/// requests that they wait for.
fn is_worker_of_kernel(pid: u32, tid: u32) -> bool {
    /// `PF_IO_WORKER` of linux/sched.h.
    const WORKER: u64 = 0x10;
    let Ok(stat) = fs::read(format!("/proc/{pid}/task/{tid}/stat")) else { return false };
    flags_of(&String::from_utf8_lossy(&stat)).is_some_and(|flags| flags & WORKER != 0)
}

/// Returns the flags of a thread: the ninth field of proc_pid_stat(5).
fn flags_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(6)?.parse().ok()
}

fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// The part of `/proc/PID/task/TID/status` that tracing depends on.
struct Status {
    state: char,
    tracer: u32,
    pending: u64,
    blocked: u64,
    /// The signals that have a handler.
    caught: u64,
}

impl Status {
    fn of(pid: u32, tid: u32) -> Option<Status> {
        let own = format!("/proc/{pid}/task/{tid}/status");
        let text = fs::read(own).or_else(|_| fs::read(format!("/proc/{tid}/status"))).ok()?;
        // The name of a thread may be any bytes.
        Status::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Option<Status> {
        let field = |name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()));
        let mask = |name| field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        Some(Status {
            state: field("State")?.chars().next()?,
            tracer: field("TracerPid")?.parse().ok()?,
            pending: mask("SigPnd") | mask("ShdPnd"),
            blocked: mask("SigBlk"),
            caught: mask("SigCgt"),
        })
    }

    /// True if a handler is about to run.
    fn has_deliverable_signal(&self) -> bool {
        self.pending & !self.blocked & self.caught != 0
    }
}

/// True if a thread waits for a child of `vfork`. The kernel gives the number of the call only of a
/// thread that is not running.
fn is_in_vfork(pid: u32, tid: u32) -> bool {
    let Some(Status { state: 'D', .. }) = Status::of(pid, tid) else { return false };
    let call = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
    let number = call.split(' ').next().and_then(|number| number.parse::<i64>().ok());
    number.is_some_and(|number| [libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3].contains(&number))
}

fn children(pid: u32, tid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// True if two processes use the same memory.
fn shares_memory(one: u32, other: u32) -> bool {
    /// `KCMP_VM` of linux/kcmp.h.
    const MEMORY: libc::c_int = 1;
    // SAFETY: kcmp(2) takes numbers only, and changes nothing.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, MEMORY, 0_usize, 0_usize) == 0 }
}

#[cfg(test)]
mod tests;
