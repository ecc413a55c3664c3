//! The kernel's interface for debuggers, ptrace(2), as far as it is needed.
//!
//! Requests are accepted only from the thread that has seized the tracee, and only while the tracee
//! is in a stop, except [`seize`] and [`interrupt`]. Everything here fails with `ESRCH` otherwise.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// The registers of a thread.
pub(crate) type Registers = libc::user_regs_struct;

/// An event of a tracee. All but [`Event::Ended`] leave it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It has been interrupted, or is new, or stops together with its process (SIGSTOP).
    Stopped,
    /// A signal is about to be delivered. It is lost unless [`resume`] passes it on.
    Signal(i32),
    /// It enters or leaves a system call: see [`Step::Syscall`].
    Syscall,
    /// It has made a thread, or a process with the given number.
    Clone(u32),
    /// Its process has started another program, and is now this thread alone.
    Exec,
    /// It has ended.
    Ended,
}

/// The distance that a tracee goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To the next event.
    Continue,
    /// To the next event, or to the start or the end of a system call.
    Syscall,
}

/// The numbers of requests, options and events in linux/ptrace.h; C libraries give them various
/// types.
const CONT: usize = 7;
const GETREGS: usize = 12;
const SETREGS: usize = 13;
const DETACH: usize = 17;
const SYSCALL: usize = 24;
const GETEVENTMSG: usize = 0x4201;
const GETREGSET: usize = 0x4204;
const SETREGSET: usize = 0x4205;
const SEIZE: usize = 0x4206;
const INTERRUPT: usize = 0x4207;
const PEEKSIGINFO: usize = 0x4209;
const GETSIGMASK: usize = 0x420a;
const SETSIGMASK: usize = 0x420b;
const OPTION_SYSGOOD: usize = 1;
const OPTION_CLONE: usize = 1 << 3;
const OPTION_EXEC: usize = 1 << 4;
const EVENT_CLONE: i32 = 3;
const EVENT_EXEC: i32 = 4;
const EVENT_STOP: i32 = 128;
/// `struct ptrace_peeksiginfo_args`: the first signal, flags, and how many.
#[repr(C)]
struct Queued {
    offset: u64,
    flags: u32,
    count: i32,
}
/// The bytes of a signal mask in the kernel.
const MASK_LENGTH: usize = 8;
/// `NT_X86_XSTATE` of linux/elf.h: the vector registers.
const VECTOR_REGISTERS: usize = 0x202;
/// The most bytes of vector registers: AVX-512 and AMX take 11 KiB.
const VECTOR_REGISTERS_MAX: usize = 32 << 10;

/// Makes this thread the tracer of a thread. The thread goes on; threads that it makes are traced
/// as well.
pub(crate) fn seize(tid: u32) -> io::Result<()> {
    request(SEIZE, tid, 0, OPTION_CLONE | OPTION_EXEC | OPTION_SYSGOOD)
}

/// Asks a tracee to stop. It reports [`Event::Stopped`], or another event first.
pub(crate) fn interrupt(tid: u32) -> io::Result<()> {
    request(INTERRUPT, tid, 0, 0)
}

/// Lets a tracee go on, with the signal that it reported, or with none (0).
pub(crate) fn resume(tid: u32, step: Step, signal: i32) -> io::Result<()> {
    let number = match step {
        Step::Continue => CONT,
        Step::Syscall => SYSCALL,
    };
    request(number, tid, 0, signal as usize)
}

/// Lets a tracee go on untraced.
pub(crate) fn detach(tid: u32) -> io::Result<()> {
    request(DETACH, tid, 0, 0)
}

/// Returns the registers of a tracee.
pub(crate) fn registers(tid: u32) -> io::Result<Registers> {
    let mut registers = MaybeUninit::<Registers>::uninit();
    request(GETREGS, tid, 0, registers.as_mut_ptr().expose_provenance())?;
    // SAFETY: the kernel has written the whole structure, since the request succeeded.
    Ok(unsafe { registers.assume_init() })
}

/// Sets the registers of a tracee.
pub(crate) fn set_registers(tid: u32, registers: &Registers) -> io::Result<()> {
    request(SETREGS, tid, 0, ptr::from_ref(registers).expose_provenance())
}

/// Returns the vector registers of a tracee, in the form in which the kernel takes them back.
pub(crate) fn vector_registers(tid: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; VECTOR_REGISTERS_MAX];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    request(GETREGSET, tid, VECTOR_REGISTERS, (&raw mut part).expose_provenance())?;
    bytes.truncate(part.iov_len);
    Ok(bytes)
}

/// Sets the vector registers of a tracee.
pub(crate) fn set_vector_registers(tid: u32, bytes: &[u8]) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    request(SETREGSET, tid, VECTOR_REGISTERS, (&raw mut part).expose_provenance())
}

/// Returns the signals that a tracee blocks: bit 0 is signal 1.
pub(crate) fn signal_mask(tid: u32) -> io::Result<u64> {
    let mut mask = 0_u64;
    request(GETSIGMASK, tid, MASK_LENGTH, (&raw mut mask).expose_provenance())?;
    Ok(mask)
}

/// Sets the signals that a tracee blocks.
pub(crate) fn set_signal_mask(tid: u32, mask: u64) -> io::Result<()> {
    request(SETSIGMASK, tid, MASK_LENGTH, (&raw const mask).expose_provenance())
}

/// True if a signal waits for the tracee or its process, blocked or not.
pub(crate) fn has_queued_signal(tid: u32) -> bool {
    // The thread's own, and those for the process.
    [0, 1].into_iter().any(|flags| {
        let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
        let which = Queued { offset: 0, flags, count: 1 };
        let (which, info) = ((&raw const which).expose_provenance(), info.as_mut_ptr().expose_provenance());
        request_value(PEEKSIGINFO, tid, which, info).is_ok_and(|count| count > 0)
    })
}

/// Returns the next event of any tracee of this thread. `None` if there is none at the moment.
pub(crate) fn next_event() -> io::Result<Option<(u32, Event)>> {
    let mut status = 0;
    let flags = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    // SAFETY: waitpid writes an int to the address that it is given, which is that of a live one.
    let tid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
    match tid {
        0 => Ok(None),
        1.. => Ok(Some((tid as u32, event(tid as u32, status)))),
        _ => Err(io::Error::last_os_error()),
    }
}

fn event(tid: u32, status: i32) -> Event {
    if !libc::WIFSTOPPED(status) {
        return Event::Ended;
    }
    match (status >> 16, libc::WSTOPSIG(status)) {
        (0, signal) if signal == libc::SIGTRAP | 0x80 => Event::Syscall,
        (0, signal) => Event::Signal(signal),
        (EVENT_CLONE, _) => Event::Clone(event_message(tid).unwrap_or(0) as u32),
        (EVENT_EXEC, _) => Event::Exec,
        (EVENT_STOP, _) => Event::Stopped,
        // No other event has been asked for.
        _ => Event::Stopped,
    }
}

fn event_message(tid: u32) -> io::Result<u64> {
    let mut message = 0_u64;
    request(GETEVENTMSG, tid, 0, (&raw mut message).expose_provenance())?;
    Ok(message)
}

fn request(number: usize, tid: u32, address: usize, data: usize) -> io::Result<()> {
    request_value(number, tid, address, data).map(drop)
}

/// Makes a request. The callers above pass addresses of live values of the request's type where
/// the kernel expects one, and numbers elsewhere.
fn request_value(number: usize, tid: u32, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: ptrace(2) reads and writes this process's memory only where the third and fourth
    // arguments point to, for the requests that say so: the functions of this module, the only
    // callers, pass pointers to live values of the type and size that their request documents. It
    // changes other processes, whose memory no reference of ours is into.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, number, tid as usize, address, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
