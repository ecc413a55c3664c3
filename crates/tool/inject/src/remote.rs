//! A stopped thread of a process: its registers, its memory, and system calls that it is made to
//! make.

use std::ffi::c_void;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::error::{InjectError, Result};

/// The interval at which a thread is asked whether it has stopped: a few of its instructions.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// The general registers of a thread.
pub type Registers = libc::user_regs_struct;

/// The number of a request of ptrace(2): C libraries differ in its type.
#[cfg(not(target_env = "musl"))]
pub(crate) type RequestNumber = libc::c_uint;
#[cfg(target_env = "musl")]
pub(crate) type RequestNumber = libc::c_int;

/// A thread that is stopped, and that the calling thread traces.
#[derive(Debug)]
pub struct Tracee {
    pid: Pid,
    /// `/proc/PID/mem`; `None` if it cannot be opened.
    memory: Option<File>,
    /// The address of an instruction `syscall`; 0 until it is needed.
    syscall_at: u64,
    /// The signals that came meanwhile, which the thread has not got yet.
    signals: Vec<i32>,
}

/// The reason why a thread is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// The signal that is about to be delivered, if there is no event.
    pub(crate) signal: i32,
    /// An event of ptrace(2), or 0.
    pub(crate) event: i32,
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

    /// Returns the thread's registers.
    ///
    /// # Errors
    ///
    /// Fails if the thread is not stopped, or has ended.
    pub fn registers(&self) -> Result<Registers> {
        // SAFETY: `Registers` is a structure of integers, for which zeroes are valid.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        // SAFETY: the request requires a structure of this type to write to: it is live.
        unsafe { self.request(libc::PTRACE_GETREGS, 0, (&raw mut registers).cast()) }
            .map_err(InjectError::request("reading registers"))?;
        Ok(registers)
    }

    /// Sets the thread's registers.
    ///
    /// # Errors
    ///
    /// Fails if the thread is not stopped, or has ended.
    pub fn set_registers(&self, registers: &Registers) -> Result<()> {
        let data = ptr::from_ref(registers).cast_mut().cast();
        // SAFETY: the request requires a structure of this type to read: it is live, and not
        // written.
        unsafe { self.request(libc::PTRACE_SETREGS, 0, data) }.map_err(InjectError::request("setting registers"))
    }

    /// Makes the thread make a system call, and returns its result. The registers are as before
    /// afterwards. `what` completes "the process cannot …".
    ///
    /// The instruction is one of the vDSO's, so no code of the program changes. Signals that come
    /// meanwhile are kept for [`detach`](Tracee::detach).
    ///
    /// # Errors
    ///
    /// Fails if the call fails, or the thread ends.
    pub fn syscall(&mut self, what: &'static str, number: u64, arguments: [u64; 6]) -> Result<u64> {
        let before = self.registers()?;
        let mut registers = before;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = arguments;
        registers.rax = number;
        registers.rip = self.find_syscall()?;
        // Otherwise the kernel would restart a call that the stop has interrupted.
        registers.orig_rax = u64::MAX;
        self.set_registers(&registers)?;
        let done = self.step().and_then(|()| self.registers());
        self.set_registers(&before)?;
        let result = done?.rax.cast_signed();
        if (-4095..0).contains(&result) {
            let source = io::Error::from_raw_os_error(-result as i32);
            return Err(InjectError::Call { what, source });
        }
        Ok(result.cast_unsigned())
    }

    /// Runs one instruction.
    fn step(&mut self) -> Result<()> {
        loop {
            // SAFETY: the request has no pointer: the address is ignored, and the data is a signal,
            // of which there is none.
            unsafe { self.request(libc::PTRACE_SINGLESTEP, 0, ptr::null_mut()) }
                .map_err(InjectError::request("running an instruction"))?;
            let stopped = self.wait_for_stop()?;
            if stopped == libc::SIGTRAP {
                return Ok(());
            }
            // A signal that is about to be delivered, before the instruction has run.
            self.signals.push(stopped);
        }
    }

    /// Waits until the thread stops, and returns the signal by which it does.
    ///
    /// The thread is asked, not only waited for: if it is a child of this process, another thread
    /// that waits for the child's end may take the message of the stop.
    pub(crate) fn wait_for_stop(&mut self) -> Result<i32> {
        loop {
            if let Some(signal) = self.stopped_by() {
                let mut status = 0;
                // SAFETY: `waitpid` requires an integer to write to: it is live. It takes the
                // message of the stop, if that is still there.
                unsafe { libc::waitpid(self.pid.as_raw_pid(), &raw mut status, libc::__WALL | libc::WNOHANG) };
                return Ok(signal);
            }
            if has_ended(self.pid) {
                return Err(InjectError::Gone);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the signal by which the thread is stopped; `None` if it runs, or has ended.
    fn stopped_by(&self) -> Option<i32> {
        self.stop_now().map(|stop| stop.signal)
    }

    /// Takes the message of a stop, if the thread is stopped; `None` if it runs, or has ended.
    pub(crate) fn take_stop(&self) -> Option<Stop> {
        let stop = self.stop_now()?;
        let mut status = 0;
        // SAFETY: `waitpid` requires an integer to write to: it is live.
        unsafe { libc::waitpid(self.pid.as_raw_pid(), &raw mut status, libc::__WALL | libc::WNOHANG) };
        Some(stop)
    }

    fn stop_now(&self) -> Option<Stop> {
        // SAFETY: `siginfo_t` is a structure of integers, for which zeroes are valid.
        let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the request requires a structure of this type to write to: it is live.
        let asked = unsafe { self.request(libc::PTRACE_GETSIGINFO, 0, (&raw mut information).cast()) };
        let (signal, event) = (information.si_signo, information.si_code >> 8);
        match asked {
            Ok(()) => Some(Stop { signal, event: if signal == libc::SIGTRAP { event } else { 0 } }),
            // Stopped together with its process, by a signal that stops.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                Some(Stop { signal: 0, event: libc::PTRACE_EVENT_STOP })
            }
            Err(_) => None,
        }
    }

    /// Lets the thread go on, with a signal, or none.
    pub(crate) fn resume(&self, request: RequestNumber, signal: i32) -> Result<()> {
        // SAFETY: the request has no pointer: the data is a signal, or none.
        unsafe { self.request(request, 0, ptr::without_provenance_mut(signal as usize)) }
            .map_err(InjectError::request("letting the process run"))
    }

    /// Waits until the thread stops because it was interrupted. Signals that come before are kept.
    pub(crate) fn wait_for_event(&mut self) -> Result<()> {
        loop {
            let signal = self.wait_for_stop()?;
            if signal == libc::SIGTRAP || signal == 0 {
                return Ok(());
            }
            self.signals.push(signal);
            self.resume(libc::PTRACE_CONT, 0)?;
        }
    }

    /// Returns the address of an instruction `syscall` in the vDSO.
    fn find_syscall(&mut self) -> Result<u64> {
        if self.syscall_at != 0 {
            return Ok(self.syscall_at);
        }
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid.as_raw_pid()))
            .map_err(InjectError::request("reading the mappings of the process"))?;
        let line = maps.lines().find(|line| line.ends_with("[vdso]")).ok_or(InjectError::NoVdso)?;
        let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) =
            range.and_then(|(start, end)| Some((number(start)?, number(end)?))).ok_or(InjectError::NoVdso)?;
        // Two or four pages.
        let mut code = vec![0; end.saturating_sub(start).min(1 << 20) as usize];
        self.read(start, &mut code)?;
        let at = code.windows(2).position(|bytes| bytes == [0x0f, 0x05]).ok_or(InjectError::NoVdso)?;
        self.syscall_at = start + at as u64;
        Ok(self.syscall_at)
    }

    /// Reads memory of the process.
    ///
    /// # Errors
    ///
    /// Fails if not all of it is mapped.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let failed = |source| InjectError::Memory { done: "read", address, source };
        if let Some(memory) = &self.memory {
            return memory.read_exact_at(bytes, address).map_err(failed);
        }
        for (index, chunk) in bytes.chunks_mut(8).enumerate() {
            let word = self.peek(address + index as u64 * 8).map_err(failed)?;
            chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
        }
        Ok(())
    }

    /// Writes memory of the process, whether its pages are writable or not: private pages of files
    /// are copied. Where the kernel refuses that to `/proc/PID/mem` (`PROC_MEM_NO_FORCE`), the
    /// bytes are written word by word.
    ///
    /// # Errors
    ///
    /// Fails if not all of it is mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let failed = |source| InjectError::Memory { done: "written", address, source };
        if self.memory.as_ref().is_some_and(|memory| memory.write_all_at(bytes, address).is_ok()) {
            return Ok(());
        }
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let at = address + index as u64 * 8;
            let mut word = if chunk.len() == 8 { [0; 8] } else { self.peek(at).map_err(failed)?.to_ne_bytes() };
            word[..chunk.len()].copy_from_slice(chunk);
            let data: *mut c_void = ptr::without_provenance_mut(u64::from_ne_bytes(word) as usize);
            // SAFETY: the request's data is the word itself; memory of this process is not touched.
            unsafe { self.request(libc::PTRACE_POKEDATA, at, data) }.map_err(failed)?;
        }
        Ok(())
    }

    fn peek(&self, address: u64) -> io::Result<u64> {
        let mut word = 0_u64;
        // Not by the C library, whose function returns the word: a result of -1 is ambiguous there.
        // SAFETY: the kernel's call writes a word to `data`, which is live.
        let result = unsafe {
            libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKDATA, self.pid.as_raw_pid(), address, &raw mut word)
        };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(word) }
    }

    /// Lets the thread go on, untraced. It gets the signals that came meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if the thread has ended.
    pub fn detach(mut self) -> Result<()> {
        let first = if self.signals.is_empty() { 0 } else { self.signals.remove(0) };
        // SAFETY: the request has no pointer: the data is a signal, or none.
        let detached = unsafe { self.request(libc::PTRACE_DETACH, 0, ptr::without_provenance_mut(first as usize)) };
        for signal in self.signals {
            // SAFETY: `kill` takes numbers. If it fails, the process has ended.
            unsafe { libc::kill(self.pid.as_raw_pid(), signal) };
        }
        detached.map_err(InjectError::request("letting the process go"))
    }

    /// Makes a request of ptrace(2).
    ///
    /// # Safety
    ///
    /// `address` and `data` are what the request requires.
    pub(crate) unsafe fn request(&self, request: RequestNumber, address: u64, data: *mut c_void) -> io::Result<()> {
        let address: *mut c_void = ptr::without_provenance_mut(address as usize);
        // SAFETY: `ptrace` requires arguments that suit the request: this function's `# Safety`.
        // The address is one of the other process.
        let result = unsafe { libc::ptrace(request, self.pid.as_raw_pid(), address, data) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
