//! The file of this process's reports: `PID.RANDOM.reports`, in the directory of the library
//! itself.
//!
//! The file is opened for each report, and closed again: nothing stays open in the program. It is
//! text. A report is a line `report`, lines `NAME=VALUE`, a line `maps`, the mappings of the
//! process, and an empty line. `docs/phc.md` describes the names; those that begin with `PHC` are
//! those of Mozilla's crash reports, with numbers in decimal. Besides, there are these lines:
//!
//! ```text
//! end SAMPLED REFUSED
//! off memory|allocator|system
//! ```
//!
//! There may be more than one line `end`, of which the last one counts: a program may fail to
//! become another one, and go on.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::arch::{self, nr};
use heapledger_core::print::Printer;
use heapledger_core::{sandbox, sys};
use heapledger_dynsym::Directory;
use heapledger_phc::{self as phc, PhcReport};

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

/// Appends to the file.
fn append(write: impl FnOnce(&mut Printer) -> fmt::Result) {
    const O_WRONLY_CREAT_APPEND_CLOEXEC: usize = 1 | 0o100 | 0o2000 | 0o2000000;
    if sandbox::is_entered() {
        return;
    }
    let name = format_args!("{}.{:x}.reports", sys::process_id(), IMAGE.load(Ordering::Relaxed));
    let Ok(fd) = DIRECTORY.open(name, O_WRONLY_CREAT_APPEND_CLOEXEC, 0o600) else { return };
    let mut out = Printer::new(fd);
    // Nobody could be notified that writing failed.
    let _ = write(&mut out);
    out.finish();
    sys::close(fd);
}

/// Writes that the checker does not run in this process.
pub(crate) fn refuse(reason: &str) {
    append(|out| writeln!(out, "off {reason}"));
}

/// Writes the figures of this process up to now, when it may end. A child of vfork(2) has none: its
/// parent's are in the memory that they share.
pub(crate) fn end() {
    if phc::is_running() && phc::is_owner() {
        let stats = phc::stats();
        append(|out| writeln!(out, "end {} {}", stats.blocks_sampled, stats.blocks_refused));
    }
}

/// Writes a report.
pub(crate) fn write(report: &PhcReport) {
    append(|out| {
        report.write_lines(out)?;
        write!(out, "Program=")?;
        program(out)?;
        writeln!(out, "\nmaps")?;
        maps(out)?;
        writeln!(out)
    });
}

/// Writes the name of the first thread, which is the program's unless it has set another.
fn program(out: &mut Printer) -> fmt::Result {
    const O_CLOEXEC: usize = 0o2000000;
    let Ok(fd) = sys::open(c"/proc/self/comm", O_CLOEXEC, 0) else { return Ok(()) };
    let mut bytes = [0_u8; 64];
    // SAFETY: the kernel writes at most that many bytes to the live array.
    let read = unsafe { sys::call(nr::READ, [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0]) };
    sys::close(fd);
    for chunk in bytes.get(..sys::check(read).unwrap_or(0)).unwrap_or(&[]).utf8_chunks() {
        chunk.valid().split('\n').try_for_each(|part| out.write_str(part))?;
    }
    Ok(())
}

/// Writes which file is mapped where, as the kernel says.
fn maps(out: &mut Printer) -> fmt::Result {
    const O_CLOEXEC: usize = 0o2000000;
    let Ok(fd) = sys::open(c"/proc/self/maps", O_CLOEXEC, 0) else { return Ok(()) };
    let mut bytes = [0_u8; 1024];
    loop {
        // SAFETY: the kernel writes at most that many bytes to the live array.
        let read = unsafe { sys::call(nr::READ, [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0]) };
        let Ok(count @ 1..) = sys::check(read) else { break };
        for chunk in bytes.get(..count).unwrap_or(&[]).utf8_chunks() {
            out.write_str(chunk.valid())?;
            chunk.invalid().iter().try_for_each(|_| out.write_str("\u{fffd}"))?;
        }
    }
    sys::close(fd);
    Ok(())
}
