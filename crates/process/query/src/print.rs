//! Printing to a descriptor without allocation.

use std::cmp::Reverse;
use std::fmt::{self, Write};
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd};

use heapledger_core::print::Printer;
use heapledger_core::{StackId, TypeId, sys};
use heapledger_inprocess::{LEDGER, query};
use heapledger_ledger::LiveBlock;

use crate::error::Estimated;
use crate::stamp::{Stamp, UNKNOWN};
use crate::{Block, Ledger, Site, SiteOrder, Stack, table};

/// The reason why nothing was printed, or not everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrintError {
    /// The call came from a signal handler that interrupted the ledger, which may hold a lock that
    /// is needed.
    Interrupted,
    /// Writing to the descriptor failed.
    Write,
    /// The system has no memory left.
    OutOfMemory,
}

impl fmt::Display for PrintError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            PrintError::Interrupted => "nothing was printed: the signal has interrupted the ledger",
            PrintError::Write => "not all was printed: the descriptor did not take it",
            PrintError::OutOfMemory => "nothing was printed: the system gives no memory",
        })
    }
}

impl std::error::Error for PrintError {}

impl From<fmt::Error> for PrintError {
    fn from(_: fmt::Error) -> PrintError {
        PrintError::Write
    }
}

/// A type with a file descriptor. On platforms without descriptors, any type; nothing is printed.
#[cfg(not(unix))]
pub trait AsFd {}

#[cfg(not(unix))]
impl<T> AsFd for T {}

/// The number of frames of a stack that are printed, at most.
const FRAMES_MAX: usize = 32;
/// The number of sites that can be printed at once, at most.
const SITES_MAX: usize = 64;

/// # Printing
///
/// These methods allocate nothing, take no lock of the C library, and may be called at exit, in a
/// signal handler (there they return [`PrintError::Interrupted`] if the ledger itself was
/// interrupted) and while other threads allocate. Stacks are printed as addresses.
impl Ledger {
    /// Prints every live block: address, sizes, type, source location of its stamp, thread, age and
    /// stack. A block without stamp is `[unknown]`, line 0.
    ///
    /// # Errors
    ///
    /// See [`PrintError`].
    pub fn print_blocks(self, to: impl AsFd) -> Result<(), PrintError> {
        print(to, |out| {
            writeln!(out, "address             bytes    usable  type at file:line, label; thread, age; allocated at")?;
            let mut blocks = LEDGER.blocks();
            while let Some(block) = query(|| blocks.next().map(Block::new)).ok_or(PrintError::Interrupted)? {
                let Block { address, size, usable, stamp, thread, age, stack, .. } = block;
                write!(out, "{address:#014x} {:>10} {:>9}  ", size.0, usable.0)?;
                match stamp {
                    Some(stamp) => write!(out, "{stamp}")?,
                    None => write!(out, "{UNKNOWN} at {UNKNOWN}:0")?,
                }
                writeln!(out, "; thread {}, {} ms", thread.0, age.as_millis())?;
                print_stack(out, stack)?;
            }
            Ok(())
        })
    }

    /// Prints the live blocks and bytes of each stamped type, the largest first, with their shares,
    /// and the totals; estimates in a sampled ledger. Blocks without stamp are `[unknown]`:
    /// `Ledger::types`, with the feature `types`, infers their types.
    ///
    /// # Errors
    ///
    /// See [`PrintError`].
    pub fn print_types(self, to: impl AsFd) -> Result<(), PrintError> {
        let mut table = Table::map().ok_or(PrintError::OutOfMemory)?;
        let mut blocks = LEDGER.blocks();
        while let Some(block) = query(|| blocks.next()).ok_or(PrintError::Interrupted)? {
            table.add(block);
        }
        let types = table.by_type().iter().map(|row| table::Row::new(row.name(), row.blocks, row.bytes));
        print(to, |out| Ok(table::write(out, "type", types)?))
    }

    /// Prints the largest sites, at most 64 of them, the largest first.
    ///
    /// # Errors
    ///
    /// See [`PrintError`].
    pub fn print_sites(self, to: impl AsFd, count: usize, by: SiteOrder) -> Result<(), PrintError> {
        let mut top = [const { None }; SITES_MAX];
        let top = top.get_mut(..count.min(SITES_MAX)).unwrap_or(&mut []);
        let mut sites = LEDGER.sites();
        while let Some(site) = query(|| sites.next()).ok_or(PrintError::Interrupted)? {
            enter(top, Site::of(site), by);
        }
        print(to, |out| {
            for site in top.iter().flatten() {
                writeln!(
                    out,
                    "{} bytes live in {} blocks, {} bytes allocated in {} blocks, at",
                    Estimated::bytes(site.bytes_live, site.live_standard_error),
                    Estimated::blocks(site.blocks_live, site.live_standard_error),
                    Estimated::bytes(site.bytes_allocated, site.allocated_standard_error),
                    Estimated::blocks(site.allocations, site.allocated_standard_error)
                )?;
                print_stack(out, site.stack)?;
            }
            Ok(())
        })
    }

    /// Prints the totals.
    ///
    /// # Errors
    ///
    /// See [`PrintError`].
    pub fn print_totals(self, to: impl AsFd) -> Result<(), PrintError> {
        query(|| ()).ok_or(PrintError::Interrupted)?;
        let totals = self.totals();
        print(to, |out| Ok(writeln!(out, "{totals}")?))
    }
}

#[cfg(not(unix))]
fn print(_: impl AsFd, _: impl FnOnce(&mut Printer) -> Result<(), PrintError>) -> Result<(), PrintError> {
    Ok(())
}

#[cfg(unix)]
fn print(to: impl AsFd, write: impl FnOnce(&mut Printer) -> Result<(), PrintError>) -> Result<(), PrintError> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Ok(());
    }
    let mut out = Printer::new(to.as_fd().as_raw_fd());
    let written = write(&mut out);
    if out.finish() { written } else { Err(PrintError::Write) }
}

fn print_stack(out: &mut Printer, stack: Stack) -> Result<(), PrintError> {
    if let Some(heap) = stack.heap() {
        writeln!(out, "    in heap {heap}")?;
    }
    for scope in stack.context() {
        writeln!(out, "    in context {scope}")?;
    }
    for frame in stack.frames().take(FRAMES_MAX) {
        writeln!(out, "    {:#x}", frame.address)?;
    }
    if stack.id() == StackId::ROOT {
        writeln!(out, "    (no stack)")?;
    }
    Ok(())
}

/// Inserts a site among the largest, in place of the smallest.
fn enter(top: &mut [Option<Site>], site: Site, by: SiteOrder) {
    let amount = |site: &Option<Site>| site.as_ref().map_or(0, |site| site.amount(by));
    let new = site.amount(by);
    if let Some(last) = top.last_mut()
        && new > amount(last)
    {
        *last = Some(site);
        top.sort_unstable_by_key(|site| Reverse(amount(site)));
    }
}

/// Live blocks by type. The table has a mapping of its own: it is too large for the stack of a
/// signal handler.
struct Table(*mut [Row; Table::LENGTH]);

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Row {
    number: u32,
    blocks: u64,
    bytes: u64,
}

impl Table {
    const LENGTH: usize = 4096;

    fn map() -> Option<Table> {
        sys::map_private(size_of::<[Row; Table::LENGTH]>()).ok().map(|memory| Table(memory.cast()))
    }

    fn rows(&mut self) -> &mut [Row; Table::LENGTH] {
        // SAFETY: mapped in `map` with this size, zeroed, which is valid for integers, and ours
        // alone.
        unsafe { &mut *self.0 }
    }

    fn add(&mut self, block: LiveBlock) {
        let number = block.stamp.0;
        if let Some(row) = self.rows().get_mut(number as usize) {
            let blocks = block.weight().0;
            row.number = number;
            row.blocks = row.blocks.wrapping_add(blocks);
            row.bytes = row.bytes.wrapping_add(blocks.wrapping_mul(block.size.0));
        }
    }

    /// Merges and sorts the rows: each type once, the one with the most bytes first.
    fn by_type(&mut self) -> &[Row] {
        let rows = self.rows();
        // A type has a row for each source location of its stamps.
        rows.sort_unstable_by(|one, other| (one.blocks == 0, one.name()).cmp(&(other.blocks == 0, other.name())));
        let mut count = 0_usize;
        for at in 0..rows.len() {
            let Some(row) = rows.get(at).copied().filter(|row| row.blocks > 0) else { break };
            match rows.get_mut(count.wrapping_sub(1)) {
                Some(last) if last.name() == row.name() => {
                    last.blocks += row.blocks;
                    last.bytes += row.bytes;
                }
                _ => {
                    if let Some(place) = rows.get_mut(count) {
                        *place = row;
                    }
                    count += 1;
                }
            }
        }
        let types = rows.get_mut(..count).unwrap_or(&mut []);
        types.sort_unstable_by_key(|row| Reverse((row.bytes, row.blocks)));
        types
    }
}

impl Row {
    fn name(&self) -> &'static str {
        Stamp::of(TypeId(self.number)).map_or(UNKNOWN, |stamp| stamp.type_name)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this size, and not referred to any more.
        unsafe { sys::unmap(self.0.cast(), size_of::<[Row; Table::LENGTH]>()) };
    }
}
