//! System calls and calls of functions in a stopped thread.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{InjectError, Result};
use crate::ptrace::{self, Event, Registers, Step};
use crate::threads::{SYSCALL_LENGTH, Threads, resumed};

/// The time within which a call in a tracee has to end.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two looks for an event.
const PAUSE: Duration = Duration::from_micros(20);

/// A stopped thread in which calls are made. Its signals are blocked meanwhile, and its registers
/// are as before when the value is dropped: a system call that the stop has interrupted is made
/// again.
#[derive(Debug)]
pub struct Caller<'a> {
    threads: &'a mut Threads,
    tid: u32,
    saved: Registers,
    mask: u64,
    /// The address of a `syscall` instruction.
    instruction: u64,
    /// The vector registers, once a function has been called.
    vector_registers: Option<Vec<u8>>,
}

impl<'a> Caller<'a> {
    /// Prepares a thread for calls. `instruction` is the address of a `syscall` instruction in the
    /// process: see [`Memory::syscall_instruction`](crate::Memory::syscall_instruction).
    ///
    /// # Errors
    ///
    /// Fails if no thread is stopped where its registers may be changed, or it is killed.
    pub fn new(threads: &'a mut Threads, instruction: u64) -> Result<Caller<'a>> {
        let tid = threads.stopped().next().ok_or(InjectError::Gone)?;
        let failed = || InjectError::request("reading the registers of a thread");
        let saved = ptrace::registers(tid).map_err(failed())?;
        let mask = ptrace::signal_mask(tid).map_err(failed())?;
        ptrace::set_signal_mask(tid, u64::MAX).map_err(InjectError::request("blocking signals"))?;
        Ok(Caller { threads, tid, saved, mask, instruction, vector_registers: None })
    }

    /// Makes a system call, and returns its result.
    ///
    /// # Errors
    ///
    /// Fails with the error of the call, in which `what` names it, or if the thread is killed.
    pub fn syscall(&mut self, what: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let (rip, rax, orig_rax) = (self.instruction, number as u64, u64::MAX);
        self.set(&Registers { rip, rax, orig_rax, rdi, rsi, rdx, r10, r8, r9, ..self.saved })?;
        self.run_to_call()?;
        self.run_to_call()?;
        let result = self.registers()?.rax as i64;
        match result {
            -4095..0 => Err(self.failed(what, io::Error::from_raw_os_error(-result as i32))),
            _ => Ok(result as u64),
        }
    }

    /// Calls a function of C's calling convention on the stack that ends at `stack_end`, a multiple
    /// of 16, and returns its result. The function may make system calls that do not wait; it must
    /// not need a signal.
    ///
    /// # Errors
    ///
    /// Fails if the function ends by a fault, or does not return within 10 s, or the thread is
    /// killed. `what` names the call.
    pub fn call(&mut self, what: &'static str, function: u64, arguments: [u64; 4], stack_end: u64) -> Result<u64> {
        let pid = self.threads.pid();
        if self.vector_registers.is_none() {
            let before = ptrace::vector_registers(self.tid);
            self.vector_registers = Some(before.map_err(InjectError::request("reading the vector registers"))?);
        }
        // The function returns to a `syscall` instruction: the thread stops there, before the call.
        let rsp = stack_end - 8;
        crate::Memory::open(pid)?.write(rsp, &self.instruction.to_ne_bytes())?;
        let [rdi, rsi, rdx, rcx] = arguments;
        // Flags as at the start of a program: the direction flag is clear.
        let (rip, rax, orig_rax, eflags) = (function, 0, u64::MAX, 0x202);
        self.set(&Registers { rip, rsp, rax, orig_rax, rdi, rsi, rdx, rcx, eflags, ..self.saved })?;
        let until = Instant::now() + TIMEOUT;
        loop {
            self.run_to_call()?;
            let at = self.registers()?;
            let has_returned = at.rip == self.instruction + SYSCALL_LENGTH && at.rsp == stack_end;
            if has_returned {
                // The number of no call, so that none is made.
                let result = at.orig_rax;
                self.set(&Registers { orig_rax: u64::MAX, ..at })?;
                self.run_to_call()?;
                return Ok(result);
            }
            // The end of the function's own call.
            self.run_to_call()?;
            if Instant::now() > until {
                return Err(self.failed(what, io::ErrorKind::TimedOut.into()));
            }
        }
    }

    fn failed(&self, what: &'static str, source: io::Error) -> InjectError {
        InjectError::Call { what, source }
    }

    fn registers(&self) -> Result<Registers> {
        let failed = InjectError::request("reading the registers of a thread");
        ptrace::registers(self.tid).map_err(failed)
    }

    fn set(&self, registers: &Registers) -> Result<()> {
        let failed = InjectError::request("setting the registers of a thread");
        ptrace::set_registers(self.tid, registers).map_err(failed)
    }

    /// Lets the thread go on to the start of the next system call, or to the end of the one that it
    /// is in.
    fn run_to_call(&mut self) -> Result<()> {
        let run = |tid| {
            let resumed = ptrace::resume(tid, Step::Syscall, 0);
            resumed.map_err(InjectError::request("a step of a thread"))
        };
        run(self.tid)?;
        let until = Instant::now() + TIMEOUT;
        loop {
            match ptrace::next_event() {
                Ok(Some((tid, Event::Syscall))) if tid == self.tid => return Ok(()),
                // It had been asked to stop, or the whole process is stopped.
                Ok(Some((tid, Event::Stopped))) if tid == self.tid => run(tid)?,
                // All signals are blocked, so it is a fault, or a signal that was on its way.
                Ok(Some((tid, Event::Signal(signal)))) if tid == self.tid => {
                    let is_fault = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
                    if is_fault.contains(&signal) {
                        return Err(self.failed("run code of the recorder", io::Error::other("a fault")));
                    }
                    ptrace::resume(tid, Step::Syscall, signal).map_err(InjectError::request("passing a signal on"))?;
                }
                Ok(Some((tid, event))) => {
                    self.threads.handle(tid, event)?;
                    if tid == self.tid && event == Event::Ended {
                        return Err(InjectError::Gone);
                    }
                }
                Ok(None) if Instant::now() > until => {
                    return Err(self.failed("go on", io::ErrorKind::TimedOut.into()));
                }
                Ok(None) => thread::sleep(PAUSE),
                Err(_) => return Err(InjectError::Gone),
            }
        }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        // All of these fail only if the thread has been killed.
        if let Some(registers) = &self.vector_registers {
            let _ = ptrace::set_vector_registers(self.tid, registers);
        }
        let _ = ptrace::set_registers(self.tid, &resumed(&self.saved));
        let _ = ptrace::set_signal_mask(self.tid, self.mask);
    }
}
