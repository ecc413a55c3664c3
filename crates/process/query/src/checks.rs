//! Misuse of the allocator, found in the program itself.

use std::fmt;
use std::ops::Range;

use heapledger_annotate::untracked;
use heapledger_core::{Bytes, StackId, ThreadId};
use heapledger_inprocess::query;
use heapledger_memcheck::report::{self, Kind, Report};

use crate::Stack;

pub use heapledger_memcheck::{Call, ChecksError};

/// Checks of how this process uses its allocator. They find blocks that are freed twice, writes in
/// front of a block and past its end, and, with a quarantine, writes to a freed block. Each finding
/// has the stack that allocated the block and those that freed it.
///
/// The checks see the same calls as the [`Ledger`](crate::Ledger), and need no ledger: in a Rust
/// program the calls of its `#[global_allocator]`, if that is Heapledger's. `heapledger check` does
/// the same, and more, for programs that link nothing.
///
/// While the checks run, each block is 32 bytes longer, for two canaries; aligned blocks are longer
/// by their alignment and 16 bytes. A block that is freed a second time is not passed on, since the
/// allocator would end the program or go wrong later. All other results of the allocator stay the
/// same.
///
/// A process has one set of checks, which run to its end. Methods may be called in any thread, at
/// any time, but not in a signal handler. Each allocation and each free costs a captured stack and
/// an entry in a register: about 80 bytes for each live block, and 3.5 MiB for the blocks freed
/// last.
///
/// ```
/// use heapledger_query::Checks;
/// # #[global_allocator]
/// # static ALLOCATOR: heapledger_allocator::Allocator = heapledger_allocator::Allocator::system();
///
/// let checks = Checks::start().unwrap();
/// // … what the program does …
/// checks.check_canaries();
/// for misuse in checks.misuses() {
///     eprintln!("{misuse}");
/// }
/// assert_eq!(checks.misuses().count(), 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Checks(());

impl Checks {
    /// Starts the checks. Blocks that were allocated before are not checked.
    ///
    /// # Errors
    ///
    /// [`ChecksError::Running`] if they run already, [`ChecksError::Hooks`] if the program's
    /// allocator cannot be replaced: Heapledger's around another one than the system's cannot.
    pub fn start() -> Result<Checks, ChecksError> {
        untracked::scope(heapledger_memcheck::start).map(|()| Checks(()))
    }

    /// Starts the checks with a quarantine: freed blocks are kept from the allocator, up to `bytes`
    /// of them with 96 bytes for each, and filled with the byte 0xe5. Writes to them are found when
    /// they are given back, the oldest first, or by [`Checks::check_canaries`].
    ///
    /// # Errors
    ///
    /// As for [`Checks::start`].
    pub fn start_with_quarantine(bytes: Bytes) -> Result<Checks, ChecksError> {
        heapledger_memcheck::set_quarantine(bytes.0);
        Checks::start()
    }

    /// Returns the checks, whether they run or not.
    pub fn get() -> Checks {
        Checks(())
    }

    /// True if the checks have been started.
    pub fn is_running(self) -> bool {
        heapledger_memcheck::is_running()
    }

    /// Checks the canaries of every live block, and the blocks in quarantine, so that a write is
    /// found now, and not only when the block is freed. Takes time in proportion to the number of
    /// live blocks, and to the bytes in quarantine.
    pub fn check_canaries(self) {
        heapledger_memcheck::inspect(heapledger_memcheck::ReadMode::Direct);
    }

    /// Returns the misuses that were found, each once, in the order in which they were first found.
    /// At most 256 different ones are kept.
    pub fn misuses(self) -> impl Iterator<Item = Misuse> {
        (0..report::REPORTS_MAX).map_while(|number| query(|| report::get(number)).flatten()).map(Misuse::new)
    }

    /// Returns how many findings are lost, because they are beyond the 256 misuses that are kept.
    pub fn misuses_lost(self) -> u64 {
        query(report::beyond).unwrap_or(0)
    }
}

/// A misuse of the allocator, with the first block that it was done to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Misuse {
    /// The kind of misuse.
    pub kind: MisuseKind,
    /// The address of the block, live or freed.
    pub address: u64,
    /// The requested size of the block.
    pub size: Bytes,
    /// The call that allocated the block, and its stack. `None` if the address is not in a block.
    pub allocated: Option<(Call, Stack)>,
    /// The call that freed the block now, and its stack. `None` if the block is live.
    pub freed: Option<(Call, Stack)>,
    /// The thread that freed the block.
    pub thread: ThreadId,
    /// The number of times that this misuse was found with the same stacks, for any blocks.
    pub times: u64,
}

/// The kinds of misuse.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MisuseKind {
    /// The block had been freed before, by this call, at this stack. The second free was not passed
    /// on.
    DoubleFree(Call, Stack),
    /// The freed address is not the beginning of a block: the offset into a block, if there is one
    /// around the address. The free was passed on.
    NotABlock(Option<Bytes>),
    /// The block was freed by a call that does not match the one that allocated it.
    Mismatch,
    /// The block was freed with this size, which is not its own.
    WrongSize(Bytes),
    /// Bytes past the block's end were written. The range is from the first to behind the last
    /// changed byte that can be seen, counted from the end of the block.
    Overwrite(Range<u64>),
    /// Bytes in front of the block were written. The range is from the first to behind the last
    /// changed byte that can be seen, as offsets from the block's beginning, which are negative.
    Underwrite(Range<i64>),
    /// The block was written to after it was freed. The range is from the first to behind the last
    /// changed byte, as offsets from the block's beginning. It is found with a
    /// [quarantine](Checks::start_with_quarantine).
    WriteAfterFree(Range<i64>),
}

impl Misuse {
    fn new((report, times): (Report, u64)) -> Misuse {
        let call = |call: Option<Call>, at: StackId| call.map(|call| (call, Stack::of(at)));
        let Report { kind, address, size, allocated, allocated_at, freed, freed_at, thread, .. } = report;
        let kind = match kind {
            Kind::DoubleFree { first, first_at } => MisuseKind::DoubleFree(first, Stack::of(first_at)),
            Kind::Mismatch => MisuseKind::Mismatch,
            Kind::WrongSize { declared } => MisuseKind::WrongSize(Bytes(declared)),
            Kind::Overwrite { bytes } => MisuseKind::Overwrite(bytes),
            Kind::Underwrite { bytes } => MisuseKind::Underwrite(bytes),
            Kind::WriteAfterFree { bytes } => MisuseKind::WriteAfterFree(bytes),
            Kind::NotABlock { inside } => MisuseKind::NotABlock(inside.map(Bytes)),
            _ => MisuseKind::NotABlock(None),
        };
        let (allocated, freed) = (call(allocated, allocated_at), call(freed, freed_at));
        Misuse { kind, address, size: Bytes(size), allocated, freed, thread, times }
    }
}

/// Prints one line about the misuse, then each call with its stack.
impl fmt::Display for Misuse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.size.0;
        match &self.kind {
            MisuseKind::DoubleFree(..) => write!(out, "double free of a block of {size} bytes")?,
            MisuseKind::NotABlock(Some(Bytes(inside))) => {
                write!(out, "free of no block: {inside} bytes into a block of {size} bytes")?;
            }
            MisuseKind::NotABlock(None) => write!(out, "free of no block: {:#x}", self.address)?,
            MisuseKind::Mismatch => write!(out, "mismatched free of a block of {size} bytes")?,
            MisuseKind::WrongSize(said) => write!(out, "free of a block of {size} bytes as one of {}", said.0)?,
            MisuseKind::Overwrite(bytes) => {
                let offset = |from_end: u64| size.saturating_add(from_end) as i64;
                write!(out, "write past the end of a block of {size} bytes: ")?;
                write_range(out, offset(bytes.start)..offset(bytes.end))?;
            }
            MisuseKind::Underwrite(bytes) => {
                write!(out, "write in front of a block of {size} bytes: ")?;
                write_range(out, bytes.clone())?;
            }
            MisuseKind::WriteAfterFree(bytes) => {
                write!(out, "write after the free of a block of {size} bytes: ")?;
                write_range(out, bytes.clone())?;
            }
        }
        writeln!(out, "{}", if self.times > 1 { format!(", {} times", self.times) } else { String::new() })?;
        let mut stack = |what: &str, call: Call, stack: Stack| write!(out, "  {what} by {} at\n{stack}", call.name());
        if let Some((call, at)) = self.freed {
            stack("freed", call, at)?;
        }
        if let MisuseKind::DoubleFree(call, at) = self.kind {
            stack("freed before", call, at)?;
        }
        self.allocated.map_or(Ok(()), |(call, at)| stack("allocated", call, at))
    }
}

/// Writes a range of offsets, of which the last is left out.
fn write_range(out: &mut fmt::Formatter<'_>, bytes: Range<i64>) -> fmt::Result {
    let (first, last) = (bytes.start, bytes.end.saturating_sub(1));
    if first == last { write!(out, "byte {first}") } else { write!(out, "bytes {first} to {last}") }
}
