//! Reports: what happened, to which block, and the stacks.

use core::fmt::{self, Write};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use heapledger_core::StackId;
use heapledger_core::lock::Lock;
use heapledger_core::print::Printer;
use heapledger_core::sys;
use heapledger_unwind::modules;

use crate::lookup::{PhcBlock, PhcLookup};
use crate::slots::{Overwritten, PhcEvent};
use crate::{record, stack};

/// The number of frames of each stack in a report.
pub const FRAMES_MAX: usize = 64;
/// The number of reports of a process: a program whose handler of faults goes on may fault for
/// ever.
const REPORTS_MAX: u32 = 64;

/// The time for which a thread waits for another's report.
pub(crate) const WAIT_MILLISECONDS: u32 = 1000;

/// The errors that the checker finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PhcError {
    /// An access to a block that was freed.
    UseAfterFree,
    /// An access behind a block.
    Overflow,
    /// An access before a block.
    Underflow,
    /// A free of a block that was freed.
    DoubleFree,
    /// A reallocation of a block that was freed.
    ReallocAfterFree,
    /// A free or reallocation of an address within a block.
    InvalidFree,
    /// A free or reallocation of an address at which there is no block.
    WildFree,
    /// A call of `malloc_usable_size` with an address at which there is no live block.
    InvalidUsableSize,
    /// An access to memory of the checker's in which there never was a block.
    WildAccess,
    /// An access to memory of the checker's about which nothing is known: another thread held the
    /// checker's lock for too long, as one that forks may.
    Unknown,
    /// Bytes of the block's pages, before or behind the block, were found changed when the block
    /// was freed or reallocated. The program goes on.
    Overwritten {
        /// The offset of the first changed byte from the block's beginning.
        first: isize,
        /// The offset of the last one.
        last: isize,
    },
}

impl PhcError {
    pub(crate) fn overwritten((first, last): Overwritten) -> PhcError {
        PhcError::Overwritten { first, last }
    }

    /// Returns the name in a report's file.
    pub fn name(self) -> &'static str {
        match self {
            PhcError::UseAfterFree => "use-after-free",
            PhcError::Overflow => "overflow",
            PhcError::Underflow => "underflow",
            PhcError::DoubleFree => "double-free",
            PhcError::ReallocAfterFree => "realloc-after-free",
            PhcError::InvalidFree => "invalid-free",
            PhcError::WildFree => "wild-free",
            PhcError::InvalidUsableSize => "invalid-usable-size",
            PhcError::WildAccess => "wild-access",
            PhcError::Unknown => "unknown",
            PhcError::Overwritten { .. } => "overwritten",
        }
    }
}

/// The way in which memory was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It was read.
    Read,
    /// It was written.
    Write,
    /// It was executed.
    Execute,
    /// It was passed to a malloc function.
    Call,
}

impl Access {
    /// Returns the name in a report's file.
    pub fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Execute => "execute",
            Access::Call => "call",
        }
    }
}

/// A report.
#[derive(Clone, Copy, Debug)]
pub struct PhcReport {
    /// The error.
    pub error: PhcError,
    /// The address that was accessed, or passed to a malloc function.
    pub address: usize,
    /// The access.
    pub access: Access,
    /// The stack and the thread of the access or call.
    pub at: PhcEvent,
    /// The memory at the address, as far as it is known.
    pub lookup: PhcLookup,
}

/// A function that is called with each report, in the thread whose access or call it is about, one
/// at a time. It may run in a signal handler, and must not allocate.
pub type ReportListener = fn(&PhcReport);

static LISTENER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
static PRINTS: AtomicBool = AtomicBool::new(true);
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Held while a report is printed.
static PRINTING: Lock = Lock::new();

/// Sets the listener. There is one, for the life of the process.
pub fn listen(listener: ReportListener) {
    LISTENER.store(listener as *mut (), Ordering::Release);
}

pub(crate) fn set_prints(prints: bool) {
    PRINTS.store(prints, Ordering::Relaxed);
}

/// Returns the number of reports so far.
pub fn reports() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Prints a report, and calls the listener.
pub(crate) fn note(report: &PhcReport) {
    if COUNT.fetch_add(1, Ordering::Relaxed) >= REPORTS_MAX {
        return;
    }
    // That thread may have been this one, which faulted while it printed.
    let guard = PRINTING.lock_within(WAIT_MILLISECONDS);
    record::write(|out| report.write_lines(out));
    if PRINTS.load(Ordering::Relaxed) {
        const STDERR: i32 = 2;
        let mut out = Printer::new(STDERR);
        // Nobody could be notified that printing failed.
        let _ = report.print(&mut out);
        out.finish();
    }
    let listener = LISTENER.load(Ordering::Acquire);
    if !listener.is_null() {
        // SAFETY: `transmute` requires that the pointer is a `ReportListener`. It is not null, so
        // `listen` stored it, which made it from one.
        unsafe { mem::transmute::<*mut (), ReportListener>(listener)(report) };
    }
    drop(guard);
}

impl PhcReport {
    /// Returns the distance from the beginning of the block, if there is one.
    fn offset(&self, block: &PhcBlock) -> isize {
        self.address.wrapping_sub(block.base) as isize
    }

    /// Writes the report as the beginning of an entry of a file, up to the name of the program and
    /// the mappings: lines of text, which `docs/phc.md` describes. Allocates nothing.
    ///
    /// # Errors
    ///
    /// The errors of the writer.
    pub fn write_lines(&self, out: &mut dyn Write) -> fmt::Result {
        let PhcReport { error, address, access, at, lookup } = *self;
        writeln!(out, "report\nError={}\nAddress={address}\nAccess={}", error.name(), access.name())?;
        if let PhcError::Overwritten { first, last } = error {
            writeln!(out, "Overwritten={first},{last}")?;
        }
        writeln!(out, "Process={}\nThread={}", sys::process_id(), at.thread)?;
        write_context(out, "Context", &at)?;
        write_stack(out, "Stack", at.stack)?;
        writeln!(out, "PHCKind={}", lookup.kind.name())?;
        if let Some(block) = lookup.block {
            writeln!(out, "PHCBaseAddress={}\nPHCUsableSize={}", block.base, block.size)?;
            writeln!(out, "RequestedSize={}\nAllocThread={}", block.size, block.allocated.thread)?;
            write_context(out, "AllocContext", &block.allocated)?;
            write_stack(out, "PHCAllocStack", block.allocated.stack)?;
            if let Some(freed) = block.freed {
                writeln!(out, "FreeThread={}", freed.thread)?;
                write_context(out, "FreeContext", &freed)?;
                write_stack(out, "PHCFreeStack", freed.stack)?;
            }
        }
        Ok(())
    }

    fn print(&self, out: &mut dyn Write) -> fmt::Result {
        write!(out, "heapledger: heap error in process {}, thread {}: ", sys::process_id(), self.at.thread)?;
        match (self.error, self.access) {
            (PhcError::Overwritten { first, last }, _) => {
                writeln!(out, "bytes {first} to {last} of a block were written, which are not its own")?;
            }
            (error, Access::Call) => writeln!(out, "{} of {:#x}", error.name(), self.address)?,
            (error, access) => writeln!(out, "{} ({} at {:#x})", error.name(), access.name(), self.address)?,
        }
        if let Some(block) = &self.lookup.block {
            let state = if block.freed.is_some() { "freed" } else { "live" };
            let PhcBlock { base, size, .. } = *block;
            write!(out, "  {state} block of {size} bytes (usable {size}) at {base:#x}: ")?;
            match self.offset(block) {
                before @ ..0 => writeln!(out, "{} bytes before it", before.unsigned_abs())?,
                at if at.unsigned_abs() >= size => writeln!(out, "{} bytes behind its end", at.unsigned_abs() - size)?,
                at => writeln!(out, "{at} bytes into it")?,
            }
        }
        let here = if self.access == Access::Call { "called" } else { "accessed" };
        print_stack(out, here, &self.at)?;
        if let Some(block) = &self.lookup.block {
            if let Some(freed) = &block.freed {
                print_stack(out, "freed", freed)?;
            }
            print_stack(out, "allocated", &block.allocated)?;
        }
        Ok(())
    }
}

/// Writes a context as a line of a file; nothing if there is none.
fn write_context(out: &mut dyn Write, name: &str, event: &PhcEvent) -> fmt::Result {
    if event.context == StackId::ROOT {
        return Ok(());
    }
    write!(out, "{name}=")?;
    stack::write_context(out, event.context)?;
    writeln!(out)
}

/// Writes a stack as a line of a file, innermost frame first; nothing if it is empty.
fn write_stack(out: &mut dyn Write, name: &str, stack: StackId) -> fmt::Result {
    if stack == StackId::ROOT {
        return Ok(());
    }
    write!(out, "{name}=")?;
    for (index, address) in stack::frames(stack).take(FRAMES_MAX).enumerate() {
        let separator = if index == 0 { "" } else { "," };
        write!(out, "{separator}{address}")?;
    }
    writeln!(out)
}

/// Prints a stack. Names of functions need the debug information, which is read afterwards.
fn print_stack(out: &mut dyn Write, role: &str, event: &PhcEvent) -> fmt::Result {
    write!(out, "  {role} in thread {}", event.thread)?;
    if event.context != StackId::ROOT {
        out.write_str(", in ")?;
        stack::write_context(out, event.context)?;
    }
    writeln!(out, " at")?;
    if event.stack == StackId::ROOT {
        return writeln!(out, "    (no stack)");
    }
    for address in stack::frames(event.stack).take(FRAMES_MAX) {
        write!(out, "    {address:#x}")?;
        if let Some(module) = modules::find(address) {
            let (bias, path) = module.bias_and_path();
            out.write_str("  ")?;
            if path.is_empty() {
                out.write_str("(program)")?;
            }
            for chunk in path.utf8_chunks() {
                out.write_str(chunk.valid())?;
            }
            write!(out, "+{:#x}", address.wrapping_sub(bias))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
