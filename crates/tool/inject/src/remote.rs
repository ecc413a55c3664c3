//! A stopped thread of a process: its registers, and its memory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::error::{InjectError, Result};
use crate::memory;
use crate::ptrace::{self, Event, Registers, Step};

/// The interval at which a thread is asked whether it has stopped.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// A thread that is stopped, and that the calling thread traces.
#[derive(Debug)]
pub struct Tracee {
    pid: Pid,
    /// `/proc/PID/mem`; `None` if it cannot be opened.
    pub(crate) memory: Option<File>,
    /// The address of a `syscall` instruction; 0 until it is needed.
    syscall_at: u64,
    /// The signals that came meanwhile, which the thread has not got yet.
    signals: Vec<i32>,
}

impl Tracee {
    /// Takes a stopped thread of this id, which the calling thread traces.
    pub fn new(pid: Pid) -> Tracee {
        let path = format!("/proc/{}/mem", pid.as_raw_pid());
        let memory = OpenOptions::new().read(true).write(true).open(path).ok();
        Tracee { pid, memory, syscall_at: 0, signals: Vec::new() }
    }

    /// Returns the thread's id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn tid(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// Returns the thread's registers.
    ///
    /// # Errors
    ///
    /// Fails if the thread is not stopped, or has ended.
    pub(crate) fn registers(&self) -> Result<Registers> {
        ptrace::registers(self.tid()).map_err(InjectError::request("reading registers"))
    }

    /// Sets the thread's registers.
    ///
    /// # Errors
    ///
    /// Fails if the thread is not stopped, or has ended.
    pub(crate) fn set_registers(&self, registers: &Registers) -> Result<()> {
        ptrace::set_registers(self.tid(), registers).map_err(InjectError::request("setting registers"))
    }

    /// Waits until the thread stops, and returns the reason.
    pub(crate) fn wait_for_stop(&self) -> Result<Event> {
        loop {
            if let Some(event) = ptrace::take_stop(self.tid()) {
                return Ok(event);
            }
            if has_ended(self.pid) {
                return Err(InjectError::Gone);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the thread stops because it was interrupted. Signals that come before are kept
    /// for [`detach`](Tracee::detach).
    pub(crate) fn wait_for_interruption(&mut self) -> Result<()> {
        while let Event::Signal(signal) = self.wait_for_stop()? {
            self.signals.push(signal);
            self.resume(0)?;
        }
        Ok(())
    }

    /// Lets the thread go on, with a signal, or none.
    pub(crate) fn resume(&self, signal: i32) -> Result<()> {
        let resumed = ptrace::resume(self.tid(), Step::Continue, signal);
        resumed.map_err(InjectError::request("letting the process run"))
    }

    /// Returns the address of a `syscall` instruction in the process.
    pub(crate) fn find_syscall(&mut self) -> Result<u64> {
        if self.syscall_at == 0 {
            let mappings = memory::mappings(self.tid())?;
            let read = |address, bytes: &mut [u8]| if self.read(address, bytes).is_ok() { bytes.len() } else { 0 };
            self.syscall_at = memory::syscall_instruction(&mappings, read).ok_or(InjectError::NoVdso)?;
        }
        Ok(self.syscall_at)
    }

    /// Reads memory of the process.
    ///
    /// # Errors
    ///
    /// Fails if not all of it is mapped.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let failed = |source| InjectError::Memory { done: "read", address, source };
        match &self.memory {
            Some(memory) => memory.read_exact_at(bytes, address).map_err(failed),
            None => memory::read_words(self.tid(), address, bytes),
        }
    }

    /// Writes memory of the process, whether its pages are writable or not: private pages of files
    /// are copied. Where the kernel refuses that to `/proc/PID/mem` (`PROC_MEM_NO_FORCE`), the
    /// bytes are written word by word.
    ///
    /// # Errors
    ///
    /// Fails if not all of it is mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        match &self.memory {
            Some(memory) if memory.write_all_at(bytes, address).is_ok() => Ok(()),
            _ => memory::write_words(self.tid(), address, bytes),
        }
    }

    /// Lets the thread go on, untraced. It gets the signals that came meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if the thread has ended.
    pub fn detach(mut self) -> Result<()> {
        let first = if self.signals.is_empty() { 0 } else { self.signals.remove(0) };
        let detached = ptrace::detach(self.tid(), first);
        for signal in self.signals {
            // SAFETY: `kill` takes numbers. If it fails, the process has ended.
            unsafe { libc::kill(self.pid.as_raw_pid(), signal) };
        }
        detached.map_err(InjectError::request("letting the process go"))
    }
}

/// True if a traced process has ended. Its end is left for whoever waits for it.
pub(crate) fn has_ended(pid: Pid) -> bool {
    let what = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), what) {
        // A stop of a traced process is reported, too, whatever is asked for.
        Ok(Some(status)) => status.exited() || status.killed() || status.dumped(),
        Ok(None) => false,
        Err(error) => error == rustix::io::Errno::CHILD,
    }
}
