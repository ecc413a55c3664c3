//! Misuse of the allocator, found in the program itself.

use std::fmt;
use std::ops::Range;

use heapledger_checks::report::{self, Kind, Report};
use heapledger_context::untracked;
use heapledger_core::{Bytes, StackId, ThreadId};
use heapledger_resident::query;

use crate::Stack;

pub use heapledger_checks::{Call, Error as ChecksError};

/// Checks of how this process uses its allocator: blocks that are freed twice, and writes past the end of a block, each
/// told with the stack that allocated the block and those that freed it.
///
/// They see what the [`Ledger`](crate::Ledger) sees, and need none: in a Rust program what goes through its
/// `#[global_allocator]`, if that is Heapledger's. `heapledger check` does the same, and more, for programs that link
/// nothing.
///
/// While they run, each block is 16 bytes longer, for a canary; and a block that is freed a second time is not, since
/// the allocator would end the program or go wrong later. All other results stay as they are.
///
/// There is one of these, and it runs to the end of the process. Methods may be called in any thread, at any time, not
/// in a signal handler. Each allocation and each free costs a captured stack and an entry in a register: about 80 bytes
/// for each live block, and 3.5 MiB for the ones freed last.
///
/// ```
/// use heapledger_inspect::Checks;
/// # #[global_allocator]
/// # static ALLOCATOR: heapledger_allocator::Allocator = heapledger_allocator::Allocator::system();
///
/// let checks = Checks::start().unwrap();
/// // … what the program does …
/// checks.look();
/// for misuse in checks.misuses() {
///     eprintln!("{misuse}");
/// }
/// assert_eq!(checks.misuses().count(), 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Checks(());

impl Checks {
    /// Starts them. Blocks that were allocated before are not checked.
    ///
    /// # Errors
    ///
    /// [`ChecksError::Running`] if they run already, [`ChecksError::Hooks`] if the program's allocator cannot be
    /// replaced: Heapledger's around another one than the system's cannot.
    pub fn start() -> Result<Checks, ChecksError> {
        untracked::scope(heapledger_checks::start).map(|()| Checks(()))
    }

    /// The checks, whether they run or not.
    pub fn get() -> Checks {
        Checks(())
    }

    /// Whether they have been started.
    pub fn is_running(self) -> bool {
        heapledger_checks::is_running()
    }

    /// Looks behind every live block: what was written past its end is found now, and not only when it is freed. Takes
    /// time in proportion to their number.
    pub fn look(self) {
        heapledger_checks::look(heapledger_checks::Care::Plain);
    }

    /// What was found, each thing once, in the order of the first times. Of different things 256 are kept.
    pub fn misuses(self) -> impl Iterator<Item = Misuse> {
        (0..report::REPORTS_MAX).map_while(|number| query(|| report::get(number)).flatten()).map(Misuse::new)
    }

    /// How often something was found beyond the 256 that are kept.
    pub fn beyond(self) -> u64 {
        query(report::beyond).unwrap_or(0)
    }
}

/// A thing that the program did, with the block that it was first done to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Misuse {
    /// What was done.
    pub kind: MisuseKind,
    /// Where the block is, or was.
    pub address: u64,
    /// Its requested size.
    pub size: Bytes,
    /// What allocated it, and where. `None`: it is no block.
    pub allocated: Option<(Call, Stack)>,
    /// What freed it now, and where. `None`: it is live.
    pub freed: Option<(Call, Stack)>,
    /// The thread that freed it.
    pub thread: ThreadId,
    /// How often this was found: with the same stacks, of whichever blocks.
    pub times: u64,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MisuseKind {
    /// The block was freed that had been freed before, by this call, at this stack. The second free was not passed on.
    DoubleFree(Call, Stack),
    /// What was freed is no block: so many bytes into one, if there is one around the address. Passed on.
    NotABlock(Option<Bytes>),
    /// The call that freed it does not go with the one that allocated it.
    Mismatch,
    /// It was freed with this size, which is not its own.
    WrongSize(Bytes),
    /// Bytes past its end were written: as far as can be seen those from the first to behind the last of these, counted
    /// from the end.
    Overwrite(Range<u64>),
}

impl Misuse {
    fn new((report, times): (Report, u64)) -> Misuse {
        let call = |call: Option<Call>, at: StackId| call.map(|call| (call, Stack::of(at)));
        let Report { kind, address, size, allocated, allocated_at, freed, freed_at, thread } = report;
        let kind = match kind {
            Kind::DoubleFree { first, first_at } => MisuseKind::DoubleFree(first, Stack::of(first_at)),
            Kind::Mismatch => MisuseKind::Mismatch,
            Kind::WrongSize { said } => MisuseKind::WrongSize(Bytes(said)),
            Kind::Overwrite { bytes } => MisuseKind::Overwrite(bytes),
            Kind::NotABlock { inside } => MisuseKind::NotABlock(inside.map(Bytes)),
            _ => MisuseKind::NotABlock(None),
        };
        let (allocated, freed) = (call(allocated, allocated_at), call(freed, freed_at));
        Misuse { kind, address, size: Bytes(size), allocated, freed, thread, times }
    }
}

/// What it is, in a line; then each call with its stack.
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
                let (first, last) =
                    (size.saturating_add(bytes.start), size.saturating_add(bytes.end).saturating_sub(1));
                write!(out, "write past the end of a block of {size} bytes: ")?;
                match first == last {
                    true => write!(out, "byte {first}")?,
                    false => write!(out, "bytes {first} to {last}")?,
                }
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
