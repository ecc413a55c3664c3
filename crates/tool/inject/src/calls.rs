//! System calls in a stopped thread.

use std::io;
use std::marker::PhantomData;
use std::thread;
use std::time::Duration;

use rustix::process::Pid;

use crate::error::{InjectError, Result};
use crate::ptrace::{self, Event, Registers, Step};
use crate::remote::{Tracee, has_ended};
use crate::threads::Threads;

/// The pause between two looks for an event.
const PAUSE: Duration = Duration::from_micros(20);

/// A stopped thread in which system calls are made. Its signals are blocked meanwhile, and its
/// registers are as before when the value is dropped. The kernel then deals with a system call that
/// the stop has interrupted as if no other had been made: it is made again, or ends by a signal.
///
/// A *restartable sequence* (rseq(2)) in which the thread was begins again, as after any other
/// interruption: the kernel forgets it as soon as code outside of it runs.
///
/// Calls have no timeout: a thread that has been let go on with the registers of a call cannot be
/// left so.
///
/// The instruction that makes the calls is one that the process has, so no code changes. The thread
/// is stopped before and after each call by `PTRACE_SYSCALL`. A single step would end with a
/// SIGTRAP that the kernel forces on the thread, which resets how the program handles it.
#[derive(Debug)]
pub struct Caller<'a> {
    tid: u32,
    saved: Registers,
    mask: u64,
    /// The address of a `syscall` instruction.
    instruction: u64,
    /// True once a call has been made.
    has_called: bool,
    /// Nothing else may be done with the thread meanwhile, and only by the thread that traces it.
    tracer: PhantomData<&'a mut Threads>,
}

impl Tracee {
    /// Makes the thread make a system call as a [`Caller`] does, and returns its result. `what`
    /// completes "the process cannot …".
    ///
    /// # Errors
    ///
    /// Fails if the call fails, or the thread ends.
    pub fn syscall(&mut self, what: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64> {
        let instruction = self.find_syscall()?;
        Caller::of_thread(self.tid(), instruction)?.syscall(what, number, arguments)
    }
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
        Caller::of_thread(tid, instruction)
    }

    fn of_thread(tid: u32, instruction: u64) -> Result<Caller<'a>> {
        let failed = || InjectError::request("reading the registers of a thread");
        let mut saved = ptrace::registers(tid).map_err(failed())?;
        if let Some(abort) = ptrace::sequence_abort(tid, saved.rip) {
            saved.rip = abort;
        }
        let mask = ptrace::signal_mask(tid).map_err(failed())?;
        ptrace::set_signal_mask(tid, u64::MAX).map_err(InjectError::request("blocking signals"))?;
        Ok(Caller { tid, saved, mask, instruction, has_called: false, tracer: PhantomData })
    }

    /// Makes a system call, and returns its result.
    ///
    /// # Errors
    ///
    /// Fails with the error of the call, in which `what` names it, or if the thread is killed.
    pub fn syscall(&mut self, what: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let (rip, rax, orig_rax) = (self.instruction, number as u64, u64::MAX);
        let registers = Registers { rip, rax, orig_rax, rdi, rsi, rdx, r10, r8, r9, ..self.saved };
        let failed = InjectError::request("setting the registers of a thread");
        ptrace::set_registers(self.tid, &registers).map_err(failed)?;
        self.has_called = true;
        // To the start of the call, and to its end.
        self.run_to(Step::Syscall)?;
        self.run_to(Step::Syscall)?;
        let failed = InjectError::request("reading the registers of a thread");
        let result = ptrace::registers(self.tid).map_err(failed)?.rax.cast_signed();
        match result {
            -4095..0 => Err(InjectError::Call { what, source: io::Error::from_raw_os_error(-result as i32) }),
            _ => Ok(result.cast_unsigned()),
        }
    }

    /// Lets the thread go on to the start of the next system call, or to the end of the one that it
    /// is in; or, by [`Step::Continue`], until it stops because it has been asked to. Events of
    /// other threads stay for those who wait for them.
    fn run_to(&mut self, step: Step) -> Result<()> {
        let run = |signal| {
            let resumed = ptrace::resume(self.tid, step, signal);
            resumed.map_err(InjectError::request("a step of a thread"))
        };
        run(0)?;
        loop {
            match ptrace::take_stop(self.tid) {
                Some(Event::Syscall) if step == Step::Syscall => return Ok(()),
                Some(Event::Stopped | Event::StoppedByJobControl) if step == Step::Continue => return Ok(()),
                // All signals are blocked, so it is a fault, or a signal that was on its way: one
                // that is passed on waits until it is not blocked.
                Some(Event::Signal(signal)) => {
                    let is_fault = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
                    if is_fault.contains(&signal) {
                        return Err(InjectError::Call { what: "go on", source: io::Error::other("a fault") });
                    }
                    run(signal)?;
                }
                // It had been asked to stop, or the whole process is stopped.
                Some(_) => run(0)?,
                None if Pid::from_raw(self.tid.cast_signed()).is_none_or(has_ended) => return Err(InjectError::Gone),
                None => thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        // All of these fail only if the thread has been killed. A thread that has not been seized
        // cannot be interrupted; it has just executed its program, and was in no other call.
        if self.has_called && ptrace::interrupt(self.tid).is_ok() {
            // At the place where the kernel looks at an interrupted call.
            let _ = self.run_to(Step::Continue);
        }
        let _ = ptrace::set_registers(self.tid, &self.saved);
        let _ = ptrace::set_signal_mask(self.tid, self.mask);
    }
}
