//! What was found: each thing once, and how often.

use core::cell::UnsafeCell;
use core::mem;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use heapledger_core::lock::Lock;
use heapledger_core::{NodeKind, StackId, ThreadId};
use heapledger_unwind::nodes;

use crate::call::Call;

/// How many different ones are kept. What is found beyond is counted only.
pub const REPORTS_MAX: usize = 256;

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A block was freed that had been freed before, by this call, at this stack. The second free was not passed on to
    /// the allocator, unless it was a reallocation.
    DoubleFree {
        /// What freed it first.
        first: Call,
        /// The stack of that call.
        first_at: StackId,
    },
    /// What was freed is no block: so many bytes into a live one, or none that is known. It was passed on.
    NotABlock {
        /// Bytes into the block that the report describes; `None`: there is no block around the address.
        inside: Option<u64>,
    },
    /// The block was allocated by a call that goes with another one than that which freed it. It was passed on.
    Mismatch,
    /// The block was freed with this size, which is not its own. It was passed on.
    WrongSize {
        /// The size that was said.
        said: u64,
    },
    /// Bytes behind the block's end were written: from the first to behind the last, counted from the end.
    Overwrite {
        /// As far as it can be seen.
        bytes: Range<u64>,
    },
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What was done.
    pub kind: Kind,
    /// The pointer that was freed; of an overwrite the block.
    pub address: u64,
    /// Requested bytes of the block.
    pub size: u64,
    /// What allocated it; `None`: there is no block.
    pub allocated: Option<Call>,
    /// The stack of that call.
    pub allocated_at: StackId,
    /// What freed it now; `None`: it is live, and was looked at.
    pub freed: Option<Call>,
    /// The stack of that call.
    pub freed_at: StackId,
    /// The thread that did this.
    pub thread: ThreadId,
}

impl Report {
    /// Whether it is the same as another one, but for the block.
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

/// The frames of a stack in a report, innermost first: addresses in the instructions that made the calls.
pub fn frames(stack: StackId) -> impl Iterator<Item = u64> {
    let mut at = stack;
    core::iter::from_fn(move || {
        let node = nodes::get(at).filter(|_| at != StackId::ROOT)?;
        at = node.parent;
        Some(node)
    })
    .filter(|node| node.is(NodeKind::Frame))
    .map(|node| node.address)
}

/// Called with each thing that is found, its number from 0, and how often it was found up to now; in the thread that
/// did it, within its call of the allocator, one at a time.
pub type Listener = fn(&Report, usize, u64);

struct Reports {
    lock: Lock,
    found: UnsafeCell<[Option<(Report, u64)>; REPORTS_MAX]>,
    beyond: UnsafeCell<u64>,
    listener: AtomicPtr<()>,
}

// SAFETY: the cells are reached under the lock only.
unsafe impl Sync for Reports {}

static REPORTS: Reports = Reports {
    lock: Lock::new(),
    found: UnsafeCell::new([const { None }; REPORTS_MAX]),
    beyond: UnsafeCell::new(0),
    listener: AtomicPtr::new(core::ptr::null_mut()),
};

/// Names who is told at once. One, for the life of the process.
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
    // SAFETY: under the lock.
    let (found, beyond) = unsafe { (&mut *REPORTS.found.get(), &mut *REPORTS.beyond.get()) };
    let known = |place: &Option<(Report, u64)>| place.as_ref().is_none_or(|(known, _)| known.is_like(&report));
    let Some(number) = found.iter().position(known) else {
        *beyond += 1;
        return;
    };
    let Some(place) = found.get_mut(number) else { return };
    let (report, times) = place.get_or_insert((report, 0));
    *times += 1;
    let listener = REPORTS.listener.load(Ordering::Acquire);
    if !listener.is_null() {
        // SAFETY: not null, hence stored by `listen`.
        let listener = unsafe { mem::transmute::<*mut (), Listener>(listener) };
        listener(report, number, *times);
    }
}

/// The report with this number, and how often that was found; `None` where there are not so many.
pub fn get(number: usize) -> Option<(Report, u64)> {
    let _guard = REPORTS.lock.lock();
    // SAFETY: under the lock.
    unsafe { &*REPORTS.found.get() }.get(number)?.clone()
}

/// How often something was found that there was no room for.
pub fn beyond() -> u64 {
    let _guard = REPORTS.lock.lock();
    // SAFETY: under the lock.
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
    // SAFETY: the caller's contract.
    unsafe { REPORTS.lock.unlock() };
}
