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
    /// It stops together with its process: [`take_stop`] tells that apart if it has been seized.
    StoppedByJobControl,
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
const PEEKDATA: usize = 2;
const POKEDATA: usize = 5;
const CONT: usize = 7;
const GETREGS: usize = 12;
const SETREGS: usize = 13;
const DETACH: usize = 17;
const SYSCALL: usize = 24;
const SETOPTIONS: usize = 0x4200;
const GETEVENTMSG: usize = 0x4201;
const GETSIGINFO: usize = 0x4202;
const SEIZE: usize = 0x4206;
const INTERRUPT: usize = 0x4207;
const LISTEN: usize = 0x4208;
const PEEKSIGINFO: usize = 0x4209;
const GETSIGMASK: usize = 0x420a;
const SETSIGMASK: usize = 0x420b;
/// Since Linux 5.13.
const GET_RSEQ_CONFIGURATION: usize = 0x420f;
const OPTION_SYSGOOD: usize = 1;
const OPTION_VFORK: usize = 1 << 2;
const OPTION_CLONE: usize = 1 << 3;
const OPTION_EXEC: usize = 1 << 4;
const EVENT_VFORK: i32 = 2;
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
/// `struct ptrace_rseq_configuration`: where a thread has its `struct rseq`.
#[repr(C)]
#[derive(Default)]
struct SequenceConfiguration {
    address: u64,
    length: u32,
    signature: u32,
    flags: u32,
    padding: u32,
}
/// The bytes of a signal mask in the kernel.
const MASK_LENGTH: usize = 8;
/// Makes this thread the tracer of a thread. The thread goes on; threads that it makes are traced
/// as well.
pub(crate) fn seize(tid: u32) -> io::Result<()> {
    request(SEIZE, tid, 0, OPTION_CLONE | OPTION_EXEC | OPTION_SYSGOOD)
}

/// Makes this thread the tracer of a thread alone, until it executes a program. The thread goes on.
pub(crate) fn seize_until_exec(tid: u32) -> io::Result<()> {
    request(SEIZE, tid, 0, OPTION_EXEC | OPTION_SYSGOOD)
}

/// Makes this thread the tracer of a thread, and of the processes that it makes by vfork(2). The
/// thread goes on; each of those stops before it does anything ([`Event::Stopped`]), and has the
/// same options.
pub(crate) fn seize_until_vfork(tid: u32) -> io::Result<()> {
    request(SEIZE, tid, 0, OPTION_VFORK | OPTION_EXEC | OPTION_SYSGOOD)
}

/// Lets a tracee that is stopped, and was traced from its start on, have the options of one that is
/// traced alone until it executes a program.
pub(crate) fn trace_until_exec(tid: u32) -> io::Result<()> {
    request(SETOPTIONS, tid, 0, OPTION_EXEC | OPTION_SYSGOOD)
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

/// Leaves a tracee that stops together with its process stopped, until its process goes on.
pub(crate) fn listen(tid: u32) -> io::Result<()> {
    request(LISTEN, tid, 0, 0)
}

/// Lets a tracee go on untraced, with a signal, or with none (0).
pub(crate) fn detach(tid: u32, signal: i32) -> io::Result<()> {
    request(DETACH, tid, 0, signal as usize)
}

/// Returns the word at an address of a tracee.
pub(crate) fn peek(tid: u32, address: u64) -> io::Result<u64> {
    let mut word = 0_u64;
    request(PEEKDATA, tid, address as usize, (&raw mut word).expose_provenance())?;
    Ok(word)
}

/// Sets the word at an address of a tracee, whether its page is writable or not.
pub(crate) fn poke(tid: u32, address: u64, word: u64) -> io::Result<()> {
    request(POKEDATA, tid, address as usize, word as usize)
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

/// Returns the address at which a tracee goes on if the restartable sequence of its next
/// instruction is interrupted. `None` if it is in none, or the kernel does not tell.
pub(crate) fn sequence_abort(tid: u32, instruction: u64) -> Option<u64> {
    let mut configuration = SequenceConfiguration::default();
    let length = size_of::<SequenceConfiguration>();
    request(GET_RSEQ_CONFIGURATION, tid, length, (&raw mut configuration).expose_provenance()).ok()?;
    if configuration.address == 0 {
        return None;
    }
    let word = |address: u64| peek(tid, address).ok();
    // `rseq_cs` of `struct rseq`: the address of a `struct rseq_cs`, which has a version and flags,
    // the start, the length, and the address to go on at.
    let sequence = word(configuration.address.wrapping_add(8))?;
    if sequence == 0 {
        return None;
    }
    let [start, length, abort] = [8, 16, 24].map(|offset| word(sequence.wrapping_add(offset)));
    if instruction.wrapping_sub(start?) < length? { abort } else { None }
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

/// Returns the event by which a tracee is stopped, and takes its message. `None` if it runs, or has
/// ended.
///
/// The tracee is asked, not only waited for: if it is a child of this process, another thread that
/// waits for the child's end may take the message.
pub(crate) fn take_stop(tid: u32) -> Option<Event> {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    let asked = request(GETSIGINFO, tid, 0, information.as_mut_ptr().expose_provenance());
    // SAFETY: a structure of integers, for which zeroes are valid.
    let information = unsafe { information.assume_init() };
    let event = match asked {
        Ok(()) => stop_event(tid, information.si_signo, information.si_code),
        // Stopped together with its process, by a signal that stops; it has not been seized.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Event::Stopped,
        Err(_) => return None,
    };
    let mut status = 0;
    // SAFETY: waitpid writes an int to the address that it is given, which is that of a live one.
    unsafe { libc::waitpid(tid as i32, &raw mut status, libc::__WALL | libc::WNOHANG) };
    Some(event)
}

/// Tells the event by the signal of a stop. Its code is that of the signal's sender, or what
/// waitpid(2) reports above the stop's first byte.
fn stop_event(tid: u32, signal: i32, code: i32) -> Event {
    /// The code of a stop at a system call of a tracee without [`OPTION_SYSGOOD`], and with it.
    const CALL: [i32; 2] = [libc::SIGTRAP, libc::SIGTRAP | 0x80];
    match code >> 8 {
        EVENT_STOP if signal == libc::SIGTRAP => Event::Stopped,
        EVENT_STOP => Event::StoppedByJobControl,
        EVENT_EXEC => Event::Exec,
        EVENT_CLONE | EVENT_VFORK => Event::Clone(event_message(tid).unwrap_or(0) as u32),
        _ if signal == libc::SIGTRAP && CALL.contains(&code) => Event::Syscall,
        _ => Event::Signal(signal),
    }
}

/// Tells the event by the status that waitpid(2) returns.
pub(crate) fn event(tid: u32, status: i32) -> Event {
    if !libc::WIFSTOPPED(status) {
        return Event::Ended;
    }
    match (status >> 16, libc::WSTOPSIG(status)) {
        (0, signal) if signal == libc::SIGTRAP | 0x80 => Event::Syscall,
        (0, signal) => Event::Signal(signal),
        (EVENT_CLONE | EVENT_VFORK, _) => Event::Clone(event_message(tid).unwrap_or(0) as u32),
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
