//! A program between execve(2) and its first instruction.

use std::io;

use heapledger_wire::placed::PlacedModule;
use rustix::process::Pid;

use crate::error::{InjectError, Result};
use crate::image::Loaded;
use crate::module;
use crate::ptrace::{self, Event, Registers};
use crate::remote::Tracee;

/// Makes the thread that forked this process its tracer: the process stops when it has executed
/// another program. For a child of fork(2), just before its execve(2): allocates nothing.
///
/// All signals except SIGTRAP, by which it stops, are blocked until then: a process that stopped
/// before its execve(2) would be waited for for ever by the thread that forked it.
/// [`ExecStop::wait`] gives it the mask of its parent's thread, which it had at first.
///
/// # Errors
///
/// Fails if the kernel refuses (Yama), or the process is traced already.
pub fn trace_me() -> io::Result<()> {
    const ALL_BUT_TRAP: u64 = !(1 << (libc::SIGTRAP - 1));
    change_mask(Some(ALL_BUT_TRAP))?;
    // SAFETY: the request takes no other argument, and touches no memory.
    let result = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets the signals that this thread blocks, if there are any to set, and returns those that it
/// blocked before: bit 0 is signal 1.
fn change_mask(mask: Option<u64>) -> io::Result<u64> {
    let new = mask.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut before = 0_u64;
    // Not by the C library, which leaves signals of its own out.
    // SAFETY: rt_sigprocmask(2) reads a mask of 8 bytes, or none, and writes one: both are live.
    // The caller's C library keeps nothing about the mask.
    let done =
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, &raw mut before, size_of::<u64>()) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(before) }
}

/// A process that has executed a program, none of whose instructions has run yet.
#[derive(Debug)]
pub struct ExecStop {
    tracee: Tracee,
    registers: Registers,
}

impl ExecStop {
    /// Waits until a child that has called [`trace_me`] has executed its program. Call in the
    /// thread that made the child.
    ///
    /// # Errors
    ///
    /// Fails if the child ends before, for example because somebody kills it.
    pub fn wait(pid: Pid) -> Result<ExecStop> {
        let before = Tracee::new(pid);
        loop {
            match before.wait_for_stop()? {
                Event::Signal(libc::SIGTRAP) => break,
                Event::Signal(signal) => before.resume(signal)?,
                _ => before.resume(0)?,
            }
        }
        let failed = || InjectError::request("setting the mask of signals");
        let mask = change_mask(None).map_err(failed())?;
        ptrace::set_signal_mask(before.tid(), mask).map_err(failed())?;
        // Another image than before the stop: so is its memory.
        ExecStop::new(pid)
    }

    /// Takes a process that has stopped so, and that the calling thread traces.
    pub(crate) fn new(pid: Pid) -> Result<ExecStop> {
        ExecStop::of(Tracee::new(pid))
    }

    /// Does the same with signals that it has yet to get.
    pub(crate) fn of(tracee: Tracee) -> Result<ExecStop> {
        let registers = tracee.registers()?;
        Ok(ExecStop { tracee, registers })
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> Pid {
        self.tracee.pid()
    }

    /// Moves the stack pointer to another argument count.
    pub(crate) fn set_stack_top(&mut self, address: u64) -> Result<()> {
        let mut registers = self.tracee.registers()?;
        registers.rsp = address;
        self.tracee.set_registers(&registers)?;
        self.registers.rsp = address;
        Ok(())
    }

    /// Returns the stopped thread.
    pub fn tracee(&mut self) -> &mut Tracee {
        &mut self.tracee
    }

    /// Returns the stack pointer, which is the address of the argument count.
    pub fn stack_top(&self) -> u64 {
        self.registers.rsp
    }

    /// Reserves `length` bytes, in whole pages, at an address that the kernel chooses.
    ///
    /// # Errors
    ///
    /// Fails if there is no room.
    pub fn reserve(&mut self, length: u64) -> Result<u64> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        self.map(0, length, libc::PROT_NONE, flags)
    }

    /// Maps the segments of a library in the memory that was reserved for it, and fills them. No
    /// page is ever writable and executable.
    ///
    /// # Errors
    ///
    /// Fails if the process may not map code.
    pub fn place(&mut self, loaded: &Loaded) -> Result<()> {
        for segment in &loaded.segments {
            let mut protection = libc::PROT_READ;
            if segment.is_writable {
                protection |= libc::PROT_WRITE;
            }
            if segment.is_executable {
                protection |= libc::PROT_EXEC;
            }
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            self.map(segment.start, segment.length, protection, flags)?;
            self.tracee.write(segment.start, &segment.bytes)?;
        }
        Ok(())
    }

    /// Maps code at an address where nothing is mapped.
    ///
    /// # Errors
    ///
    /// Fails if something is mapped there, or the process may not map code.
    pub fn place_code(&mut self, address: u64, code: &[u8]) -> Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let length = (code.len() as u64).next_multiple_of(4096);
        let mapped = self.map(address, length, libc::PROT_READ | libc::PROT_EXEC, flags)?;
        if mapped != address {
            // Kernels before 4.17 take the address for a hint.
            self.unmap(mapped, length)?;
            return Err(InjectError::Call {
                what: "map code near its own",
                source: io::ErrorKind::AlreadyExists.into(),
            });
        }
        self.tracee.write(address, code)
    }

    fn map(&mut self, address: u64, length: u64, protection: i32, flags: i32) -> Result<u64> {
        let arguments = [address, length, protection as u64, flags as u64, u64::MAX, 0];
        self.tracee.syscall("map memory", libc::SYS_mmap, arguments)
    }

    /// Gives memory back that [`reserve`](ExecStop::reserve) has taken.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses.
    pub fn unmap(&mut self, address: u64, length: u64) -> Result<()> {
        let arguments = [address, length, 0, 0, 0, 0];
        self.tracee.syscall("give memory back", libc::SYS_munmap, arguments).map(drop)
    }

    /// True if these bytes are at an address.
    ///
    /// # Errors
    ///
    /// Fails if the memory cannot be read.
    pub fn has_code(&self, address: u64, expected: &[u8]) -> Result<bool> {
        let mut found = vec![0; expected.len()];
        self.tracee.read(address, &mut found)?;
        Ok(found == expected)
    }

    /// Returns the program itself as a module.
    ///
    /// # Errors
    ///
    /// Fails if its file cannot be read.
    pub fn module(&self) -> Result<[PlacedModule; 1]> {
        module::of_program(self.tracee.pid()).map(|module| [module])
    }

    /// Lets the program begin, untraced.
    ///
    /// # Errors
    ///
    /// Fails if it has ended.
    pub fn release(self) -> Result<()> {
        self.tracee.detach()
    }
}

#[cfg(test)]
mod tests;
