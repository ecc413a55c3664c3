//! The findings: each kept once, with the number of times that it was found.

use core::cell::UnsafeCell;
use core::mem;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use heapledger_core::lock::Lock;
use heapledger_core::{StackId, ThreadId};
use heapledger_unwind::nodes;

use crate::call::Call;
pub use crate::canary::FoundBytes;

/// The number of different findings that are kept. Findings beyond are only counted.
pub const REPORTS_MAX: usize = 256;

/// The kind of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A block was freed that had been freed before, by `first`, at the stack `first_at`. The
    /// second free was not passed on to the allocator; a reallocation returned a new block.
    DoubleFree {
        /// The call that freed the block first.
        first: Call,
        /// The stack of that call.
        first_at: StackId,
    },
    /// The freed address is not a block: it lies in a live block, in one in quarantine, or in no
    /// known block. The free was passed on, unless the block is in quarantine.
    NotABlock {
        /// The number of bytes into the block that the report describes. `None`: there is no block
        /// around the address.
        inside: Option<u64>,
    },
    /// The block was allocated by a call that does not fit the call that freed it. The free was
    /// passed on.
    Mismatch,
    /// The block was freed with a size that is not its own. The free was passed on.
    WrongSize {
        /// The size that the free gave.
        declared: u64,
    },
    /// Bytes behind the block's end were written: from the first to behind the last, counted from
    /// the end.
    Overwrite {
        /// The range, as far as it can be seen.
        bytes: Range<u64>,
    },
    /// Bytes in front of the block were written: from the first to behind the last, as offsets from
    /// the block's beginning, all below 0 or, behind the last, 0.
    Underwrite {
        /// The range, as far as it can be seen.
        bytes: Range<i64>,
    },
    /// The program died of a fault at an address that is the contents of a block in quarantine: it
    /// read a pointer from a block after `freed` had freed it. The report has the block if a
    /// register pointed to it.
    FollowedFreed {
        /// The stack of the instruction that faulted.
        accessed_at: StackId,
    },
    /// The block was written to after it was freed by `freed`, at the stack `freed_at`: found when
    /// it left quarantine, or was inspected there. The range is from the first to behind the last
    /// changed byte, as offsets from the block's beginning, from 16 bytes in front of it to the
    /// end of the canary behind it.
    WriteAfterFree {
        /// The range, as far as it can be seen.
        bytes: Range<i64>,
    },
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The kind of the finding.
    pub kind: Kind,
    /// The pointer that was freed; for an overwrite, the block.
    pub address: u64,
    /// The requested size of the block.
    pub size: u64,
    /// The call that allocated the block. `None`: there is no block.
    pub allocated: Option<Call>,
    /// The stack of that call.
    pub allocated_at: StackId,
    /// The call that freed it now. `None`: the block is live, and was inspected.
    pub freed: Option<Call>,
    /// The stack of that call.
    pub freed_at: StackId,
    /// If the freed address lies in a block that is freed, but no block itself: the call that freed
    /// the block, and its stack.
    pub before: Option<(Call, StackId)>,
    /// The thread that made the call.
    pub thread: ThreadId,
    /// The first of the bytes that were found changed. They are those of the first time.
    pub found: FoundBytes,
}

impl Report {
    /// True if the report equals another one, but for the block.
    fn is_like(&self, other: &Report) -> bool {
        let kind = mem::discriminant(&self.kind) == mem::discriminant(&other.kind);
        let first = |report: &Report| match report.kind {
            Kind::DoubleFree { first_at, .. } => first_at,
            _ => StackId::ROOT,
        };
        kind && (self.allocated, self.allocated_at, self.freed, self.freed_at)
            == (other.allocated, other.allocated_at, other.freed, other.freed_at)
            && first(self) == first(other)
    }
}

/// Returns the frames of a stack in a report, innermost first: addresses in the instructions that
/// made the calls.
pub fn frames(stack: StackId) -> impl Iterator<Item = u64> {
    let mut at = stack;
    core::iter::from_fn(move || {
        let node = nodes::get(at).filter(|_| at != StackId::ROOT)?;
        at = node.parent;
        Some(node)
    })
    .filter(|node| node.is_frame())
    .map(|node| node.address)
}

/// A function that is called with each finding, its number from 0, and how often it was found up to
/// now. It runs in the thread whose call was found, within its call of the allocator, one at a
/// time.
pub type Listener = fn(&Report, usize, u64);

/// The findings, and the function that is called with each.
///
/// **Guarded cells**: `found` and `beyond` are accessed in this module only, and only while `lock`
/// is held.
struct Reports {
    lock: Lock,
    found: UnsafeCell<[Option<(Report, u64)>; REPORTS_MAX]>,
    beyond: UnsafeCell<u64>,
    listener: AtomicPtr<()>,
}

// SAFETY: `Sync` demands that threads which share the value make no data race. The two cells are
// *guarded cells*, and hold plain values, which any thread may use. The other fields are `Sync`
// themselves.
unsafe impl Sync for Reports {}

static REPORTS: Reports = Reports {
    lock: Lock::new(),
    found: UnsafeCell::new([const { None }; REPORTS_MAX]),
    beyond: UnsafeCell::new(0),
    listener: AtomicPtr::new(core::ptr::null_mut()),
};

/// Sets the listener that is called at once. There is one, for the life of the process.
pub fn listen(listener: Listener) {
    REPORTS.listener.store(listener as *mut (), Ordering::Release);
}

/// True if nothing is reported any more.
static IS_STOPPED: AtomicBool = AtomicBool::new(false);

pub(crate) fn stop() {
    IS_STOPPED.store(true, Ordering::Relaxed);
}

pub(crate) fn is_stopped() -> bool {
    IS_STOPPED.load(Ordering::Relaxed)
}

pub(crate) fn note(report: Report) {
    if is_stopped() {
        return;
    }
    let _guard = REPORTS.lock.lock();
    // SAFETY: no other reference to either of the *guarded cells* exists: `_guard` holds the lock
    // until this function returns.
    let (found, beyond) = unsafe { (&mut *REPORTS.found.get(), &mut *REPORTS.beyond.get()) };
    let known = |slot: &Option<(Report, u64)>| slot.as_ref().is_none_or(|(known, _)| known.is_like(&report));
    let Some(number) = found.iter().position(known) else {
        *beyond += 1;
        return;
    };
    let Some(slot) = found.get_mut(number) else { return };
    let (report, times) = slot.get_or_insert((report, 0));
    *times += 1;
    let listener = REPORTS.listener.load(Ordering::Acquire);
    if !listener.is_null() {
        // SAFETY: `transmute` requires that the pointer is a `Listener`. It is not null, so
        // `listen` stored it, which made it from a `Listener`.
        let listener = unsafe { mem::transmute::<*mut (), Listener>(listener) };
        listener(report, number, *times);
    }
}

/// Returns the report with this number, and how often it was found; `None` if there are fewer.
pub fn get(number: usize) -> Option<(Report, u64)> {
    let _guard = REPORTS.lock.lock();
    // SAFETY: nobody writes to `found`, one of the *guarded cells*, while this reference exists:
    // `_guard` holds the lock until this function returns.
    unsafe { &*REPORTS.found.get() }.get(number)?.clone()
}

/// Returns how often something was found that there was no room for.
pub fn beyond() -> u64 {
    let _guard = REPORTS.lock.lock();
    // SAFETY: nobody writes to `beyond`, one of the *guarded cells*, meanwhile: `_guard` holds the
    // lock until this function returns.
    unsafe { *REPORTS.beyond.get() }
}

/// For a fork: see `SharedRegister::before_fork`.
pub(crate) fn hold() {
    mem::forget(REPORTS.lock.lock());
}

/// # Safety
///
/// This thread called `hold`, or is a copy of the one that did.
pub(crate) unsafe fn release() {
    // SAFETY: `Lock::unlock` requires that this thread, or the one that it was copied from by a
    // fork, took the lock and forgot the guard. `hold` does both, and this function's `# Safety`
    // requires that call.
    unsafe { REPORTS.lock.unlock() };
}
