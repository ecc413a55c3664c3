//! The file of this process's findings: `PID.RANDOM.reports`, in the directory of the library
//! itself.
//!
//! The file is opened for each finding, and closed again: nothing stays open in the program. It is
//! text, a line each:
//!
//! ```text
//! report NUMBER KIND ADDRESS SIZE DETAIL DETAIL THREAD
//! found BYTES
//! accessed|allocated|freed|first ADDRESS… by CALL
//! maps
//! (of /proc/self/maps)
//!
//! times NUMBER COUNT
//! begun PID NAME
//! end BEYOND MISSED
//! looked exit|exec|signal
//! stopped REASON LIBRARY
//! confined
//! unchecked
//! ```
//!
//! A `found` line has the first of the bytes that were found changed, in hexadecimal. The details
//! of `underwrite` and `after-free` are offsets, which may be negative.
//!
//! After the last `begun` there is a `looked` if the live blocks were looked at when the process
//! ended, or a `confined` if nothing was written any more because it had put itself in a sandbox.

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::arch::{self, nr, syscall};
use heapledger_core::print::Printer;
use heapledger_core::{StackId, sandbox, sys};
use heapledger_dynsym::Directory;
use heapledger_memcheck::report::{self, Kind, Report};

static DIRECTORY: Directory = Directory::new();
/// A number that tells the images of one process apart.
static IMAGE: AtomicU64 = AtomicU64::new(0);

/// Finds the directory that this library was loaded from. True if there is one.
pub(crate) fn find() -> bool {
    IMAGE.store(arch::ticks(), Ordering::Relaxed);
    DIRECTORY.find()
}

/// Opens a file beside this library for reading.
pub(crate) fn open_beside(name: fmt::Arguments<'_>) -> Option<i32> {
    const O_CLOEXEC: usize = 0o2000000;
    DIRECTORY.open(name, O_CLOEXEC, 0).ok()
}

/// Opens the file for appending. `None` if that fails.
fn open() -> Option<i32> {
    const O_WRONLY_CREAT_APPEND_CLOEXEC: usize = 1 | 0o100 | 0o2000 | 0o2000000;
    if sandbox::is_entered() {
        return None;
    }
    let name = format_args!("{}.{:x}.reports", sys::process_id(), IMAGE.load(Ordering::Relaxed));
    DIRECTORY.open(name, O_WRONLY_CREAT_APPEND_CLOEXEC, 0o600).ok()
}

/// The number of times that each finding is written at first. Later times are written at every
/// power of two, and the total at the end.
const TIMES_WRITTEN: u64 = 1000;

/// Writes a finding.
pub(crate) fn write(report: &Report, number: usize, times: u64) {
    if times > TIMES_WRITTEN && !times.is_power_of_two() {
        return;
    }
    let Some(fd) = open() else { return };
    let mut out = Printer::new(fd);
    if times == 1 {
        // Nobody could be notified that writing failed.
        let _ = write_report(&mut out, report, number);
    }
    let _ = writeln!(out, "times {number} {times}");
    out.finish();
    sys::close(fd);
}

fn write_report(out: &mut Printer, report: &Report, number: usize) -> core::fmt::Result {
    let (kind, details) = match &report.kind {
        Kind::DoubleFree { .. } => ("double-free", (0, 0)),
        Kind::NotABlock { inside } => ("no-block", (inside.unwrap_or(0) as i64, 0)),
        Kind::Mismatch => ("mismatch", (0, 0)),
        Kind::WrongSize { declared } => ("wrong-size", (*declared as i64, 0)),
        Kind::Overwrite { bytes } => ("overwrite", (bytes.start as i64, bytes.end as i64)),
        Kind::Underwrite { bytes } => ("underwrite", (bytes.start, bytes.end)),
        Kind::FollowedFreed { .. } => ("followed-freed", (0, 0)),
        Kind::WriteAfterFree { bytes } => ("after-free", (bytes.start, bytes.end)),
        _ => return Ok(()),
    };
    let Report { address, size, thread, .. } = report;
    writeln!(out, "report {number} {kind} {address} {size} {} {} {}", details.0, details.1, thread.0)?;
    if !report.found.as_slice().is_empty() {
        write!(out, "found ")?;
        report.found.as_slice().iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
        writeln!(out)?;
    }
    if let Kind::FollowedFreed { accessed_at } = report.kind {
        stack(out, "accessed", "the signal", accessed_at)?;
    }
    if let Some(call) = report.freed {
        stack(out, "freed", call.name(), report.freed_at)?;
    }
    if let Kind::DoubleFree { first, first_at } = report.kind {
        stack(out, "first", first.name(), first_at)?;
    }
    if let Some((first, first_at)) = report.before {
        stack(out, "first", first.name(), first_at)?;
    }
    if let Some(call) = report.allocated {
        stack(out, "allocated", call.name(), report.allocated_at)?;
    }
    writeln!(out, "maps")?;
    maps(out)?;
    writeln!(out)
}

fn stack(out: &mut Printer, name: &str, by: &str, stack: StackId) -> core::fmt::Result {
    write!(out, "{name}")?;
    report::frames(stack).try_for_each(|address| write!(out, " {address:x}"))?;
    writeln!(out, " by {by}")
}

/// Writes which file is mapped where, as the kernel says.
fn maps(out: &mut Printer) -> core::fmt::Result {
    const O_CLOEXEC: usize = 0o2000000;
    let Ok(fd) = sys::open(c"/proc/self/maps", O_CLOEXEC, 0) else { return Ok(()) };
    let mut bytes = [0_u8; 1024];
    loop {
        // SAFETY: the kernel writes at most that many bytes to the live array.
        let read = unsafe { syscall(nr::READ, [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0]) };
        let Ok(count @ 1..) = sys::check(read) else { break };
        for chunk in bytes.get(..count).unwrap_or(&[]).utf8_chunks() {
            out.write_str(chunk.valid())?;
            chunk.invalid().iter().try_for_each(|_| out.write_str("\u{fffd}"))?;
        }
    }
    sys::close(fd);
    Ok(())
}

/// Writes that this process is not checked.
pub(crate) fn refuse() {
    let Some(fd) = open() else { return };
    let mut out = Printer::new(fd);
    let _ = writeln!(out, "unchecked");
    out.finish();
    sys::close(fd);
}

/// A way for a process to end, or to become another program.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Exit,
    Exec,
    Signal,
}

/// Writes that this process runs; its live blocks have not been inspected.
pub(crate) fn begin() {
    let Some(fd) = open() else { return };
    let mut out = Printer::new(fd);
    let name = sys::thread_name();
    let name = name.split(|&byte| byte == 0).next().unwrap_or(&[]);
    let _ = write!(out, "begun {} ", sys::process_id());
    for chunk in name.utf8_chunks() {
        // A name can have any bytes.
        chunk.valid().split('\n').try_for_each(|part| out.write_str(part)).unwrap_or(());
    }
    let _ = writeln!(out);
    out.finish();
    sys::close(fd);
}

/// Writes that nothing is reported any more, since the program opens this library, whose calls are
/// not seen.
pub(crate) fn stop(reason: u64, library: &CStr) {
    let Some(fd) = open() else { return };
    let mut out = Printer::new(fd);
    let _ = write!(out, "stopped {reason} ");
    for chunk in library.to_bytes().utf8_chunks() {
        chunk.valid().split('\n').try_for_each(|part| out.write_str(part)).unwrap_or(());
    }
    let _ = writeln!(out);
    out.finish();
    sys::close(fd);
}

/// Writes that nothing is reported any more, because the program enters a sandbox.
pub(crate) fn confine() {
    let Some(fd) = open() else { return };
    let mut out = Printer::new(fd);
    let _ = writeln!(out, "confined");
    out.finish();
    sys::close(fd);
}

/// Writes how often each thing was found, and, with `inspected`, that all live blocks were
/// inspected before this end.
pub(crate) fn finish(inspected: Option<End>) {
    let Some(fd) = open() else { return };
    let mut out = Printer::new(fd);
    for number in 0..report::REPORTS_MAX {
        let Some((_, times)) = report::get(number) else { break };
        let _ = writeln!(out, "times {number} {times}");
    }
    let _ = writeln!(out, "end {} {}", report::beyond(), heapledger_memcheck::missed());
    if let Some(end) = inspected {
        let end = match end {
            End::Exit => "exit",
            End::Exec => "exec",
            End::Signal => "signal",
        };
        let _ = writeln!(out, "looked {end}");
    }
    out.finish();
    sys::close(fd);
}
