//! The functions that the hook table calls: they register blocks that come and go, and check each
//! free.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use heapledger_core::hooks::{Caller, Observer, Pointer};
use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, Serial, StackId, ThreadId, TypeId};
use heapledger_inprocess::capture;
use heapledger_ledger::{Key, LiveBlock, Resolution, Time};

use crate::call::Call;
use crate::canary;
use crate::canary::{Changed, Front};
use crate::freed::{FREED, FreedBlock};
use crate::quarantine;
use crate::register::REGISTER;
use crate::report::{Kind, Report, is_stopped, note};
use crate::stamp::{Stamp, freed_at, guarded};
use crate::thread::{self, Freeing};

/// The observer, which is called before the program's ledger: the ledger must not see a block that
/// was freed twice as gone twice.
pub(crate) static OBSERVER: Observer = Observer {
    name: c"checks".as_ptr(),
    order: 50,
    calloc: Some(calloc),
    aligned: Some(aligned),
    free_sized: Some(free_sized),
    realloc_begins: Some(realloc_begins),
    realloc_ends: Some(realloc_ends),
    failed: Some(failed),
    ..Observer::new(malloc, free)
};

/// The number of calls that could not be handled: in signal handlers that interrupted a hook.
static MISSED: AtomicU64 = AtomicU64::new(0);
/// True if the checks have run since before the first block.
static KNOWS_ALL: AtomicBool = AtomicBool::new(true);

/// True once a block has been allocated.
static HAS_SEEN: AtomicBool = AtomicBool::new(false);

/// True if any block was ever allocated through the hook table.
pub fn has_seen_blocks() -> bool {
    HAS_SEEN.load(Ordering::Relaxed)
}

/// Returns the number of allocator calls that were not checked. From the first one on, frees of
/// unknown addresses say nothing, and are not reported.
pub fn missed() -> u64 {
    MISSED.load(Ordering::Relaxed)
}

/// Notes that there are blocks from before the checks started.
pub(crate) fn begin_late() {
    KNOWS_ALL.store(false, Ordering::Relaxed);
}

pub(crate) fn miss() {
    MISSED.fetch_add(1, Ordering::Relaxed);
}

// **Live caller**: the functions from here to `failed` are entered through `OBSERVER` only. By the
// contract of `Observer`, `caller` is the frame of this thread that made the call: it is live, and
// the intercepted function has yet to return to it.

unsafe extern "C" fn malloc(block: Pointer, size: usize, caller: Caller) {
    // SAFETY: `allocated` requires a live `caller`. Only `OBSERVER` leads here, so `caller` is a
    // *live caller*.
    unsafe { allocated(block, size, Call::Malloc, caller) };
}

unsafe extern "C" fn calloc(block: Pointer, count: usize, each: usize, caller: Caller) {
    // SAFETY: `allocated` requires a live `caller`. Only `OBSERVER` leads here, so `caller` is a
    // *live caller*.
    unsafe { allocated(block, count.wrapping_mul(each), Call::Calloc, caller) };
}

unsafe extern "C" fn aligned(_: u32, block: Pointer, _: usize, size: usize, caller: Caller) {
    // SAFETY: `allocated` requires a live `caller`. Only `OBSERVER` leads here, so `caller` is a
    // *live caller*.
    unsafe { allocated(block, size, Call::Aligned, caller) };
}

unsafe extern "C" fn free(block: Pointer, caller: Caller) {
    // SAFETY: `on_free` requires a live `caller`. Only `OBSERVER` leads here, so `caller` is a
    // *live caller*.
    unsafe { on_free(block, Call::Free, None, caller) };
}

unsafe extern "C" fn free_sized(api: u32, block: Pointer, size: usize, _: usize, caller: Caller) {
    // `cfree` gives no size.
    const CFREE: u32 = heapledger_core::Api::Cfree as u32;
    let (call, declared) = if api == CFREE { (Call::Free, None) } else { (Call::FreeSized, Some(size)) };
    // SAFETY: `on_free` requires a live `caller`. Only `OBSERVER` leads here, so `caller` is a
    // *live caller*.
    unsafe { on_free(block, call, declared, caller) };
}

unsafe extern "C" fn realloc_begins(_: u32, old: Pointer, caller: Caller) {
    // SAFETY: `on_free` requires a live `caller`. Only `OBSERVER` leads here, so `caller` is a
    // *live caller*.
    unsafe { on_free(old, Call::Realloc, None, caller) };
}

unsafe extern "C" fn realloc_ends(old: Pointer, block: Pointer, size: usize, caller: Caller) {
    if !block.is_null() {
        // SAFETY: `allocated` requires a live `caller`. Only `OBSERVER` leads here, so `caller` is
        // a *live caller*.
        unsafe { allocated(block, size, Call::Realloc, caller) };
    } else if !old.is_null() && size != 0 {
        // SAFETY: `restore` requires a live `caller`. Only `OBSERVER` leads here, so `caller` is a
        // *live caller*.
        unsafe { restore(old, caller) };
    }
}

unsafe extern "C" fn failed(_: u32, _: usize, _: usize, _: usize, _: Caller) {
    thread::refuse_new();
}

/// # Safety
///
/// `caller` is the live frame of this thread to which the intercepted function has yet to return.
unsafe fn allocated(block: Pointer, size: usize, call: Call, caller: Caller) {
    let call = thread::take_new(size).unwrap_or(call);
    let guarded = thread::take_guarded(block as usize).or_else(|| guarded_unseen(block));
    // A size that is rounded up has the canary further behind.
    let usable = guarded.map_or(size, |guarded| guarded.usable).max(size);
    let front = guarded.map_or(Front::NONE, |guarded| guarded.front);
    let stamp = Stamp::new(call, front, guarded.is_some_and(|guarded| guarded.usable >= size));
    let new = NewBlock { address: block as u64, size: size as u64, usable: usable as u64, stamp };
    // SAFETY: `capture::with_stack` requires the live frame of this thread to which the called
    // function has yet to return. This function's `# Safety` requires the same of `caller`.
    let is_seen = unsafe {
        capture::with_stack(caller, |stack, thread| {
            enter(&new, stack, thread);
        })
    };
    if !is_seen {
        miss();
    }
}

/// Returns the canaries of a new block if a signal handler, which has allocated another, came
/// between the replacement and the observer.
#[cold]
fn guarded_unseen(block: Pointer) -> Option<canary::Guarded> {
    if is_stopped() {
        return None;
    }
    canary::find(block as usize).filter(|&(_, is_freed)| !is_freed).map(|(guarded, _)| guarded)
}

struct NewBlock {
    address: u64,
    size: u64,
    /// The usable bytes, behind which the canary is, if the block has one.
    usable: u64,
    stamp: Stamp,
}

fn enter(new: &NewBlock, stack: StackId, thread: ThreadId) {
    if !has_seen_blocks() {
        HAS_SEEN.store(true, Ordering::Relaxed);
    }
    let block = LiveBlock {
        key: Key(new.address),
        size: Bytes(new.size),
        rate: Rate::EXACT,
        usable: Bytes(new.usable),
        stack,
        serial: Serial(0),
        stamp: TypeId(new.stamp.0),
        thread,
        time: Time(0),
        backs: None,
    };
    if REGISTER.insert(&block).is_err() {
        miss();
    }
}

/// Notes that a reallocation has failed: the block that counted as freed is live.
///
/// # Safety
///
/// `caller` is the live frame of this thread to which the intercepted function has yet to return.
unsafe fn restore(old: Pointer, caller: Caller) {
    // SAFETY: `capture::with_stack` requires the live frame of this thread to which the called
    // function has yet to return. This function's `# Safety` requires the same of `caller`.
    let is_seen = unsafe {
        capture::with_stack(caller, |_, thread| match FREED.take(old as u64) {
            Some(FreedBlock { address, size, usable, stamp, allocated_at, .. }) => {
                enter(&NewBlock { address, size, usable, stamp: Stamp(stamp) }, allocated_at, thread);
            }
            None => miss(),
        })
    };
    if !is_seen {
        miss();
    }
}

/// # Safety
///
/// `caller` is the live frame of this thread to which the intercepted function has yet to return.
unsafe fn on_free(block: Pointer, call: Call, declared: Option<usize>, caller: Caller) {
    if !quarantine::is_on() {
        // The memory arrives while the stack is captured.
        FREED.prefetch(block as u64);
    }
    let (call, declared, alignment) = thread::take_delete(block as usize).unwrap_or((call, declared, 0));
    // SAFETY: `capture::with_stack` requires the live frame of this thread to which the called
    // function has yet to return. This function's `# Safety` requires the same of `caller`.
    let is_seen = unsafe {
        capture::with_stack(caller, |stack, thread| {
            let free = Free { address: block as u64, call, declared, alignment, stack, thread };
            let freeing = match REGISTER.resolve(Key(free.address), |block| free.resolve(block)) {
                Some((block, State::Live)) => Some(Freeing::Known(free.check_known(&block, false))),
                Some((block, State::Kept)) => Some(Freeing::Known(free.check_known(&block, true))),
                Some((block, State::Quarantined)) => Some(free.check_quarantined(&block)),
                None => free.check_unknown(),
            };
            thread::set_freeing(block as usize, freeing);
        })
    };
    if !is_seen {
        miss();
    }
}

/// The parts of a live block's canaries that were written over.
pub(crate) struct Overwritten {
    in_front: Option<Changed>,
    behind: Option<Changed>,
}

impl Overwritten {
    /// Inspects the canaries of a block.
    ///
    /// # Safety
    ///
    /// The block is live, and stays so until this returns.
    pub(crate) unsafe fn inspect(block: &LiveBlock) -> Overwritten {
        let nothing = Overwritten { in_front: None, behind: None };
        // If a free has not been seen, the block may not be live after all.
        let Some(guarded) = guarded(block).filter(|_| missed() == 0) else { return nothing };
        // SAFETY: both require the contract of guarded blocks. `allocated` has entered the canaries
        // that the replacement has written, and the block is live.
        unsafe { Overwritten { in_front: guarded.changed_in_front(), behind: guarded.changed_behind() } }
    }

    /// Returns each finding, with the bytes that were found.
    pub(crate) fn kinds(self, size: u64) -> impl Iterator<Item = (Kind, canary::FoundBytes)> {
        let in_front = self.in_front.map(|changed| (Kind::Underwrite { bytes: changed.range }, changed.found));
        let behind = self.behind.map(|changed| {
            let from_end = |offset: i64| (offset as u64).saturating_sub(size);
            let bytes = from_end(changed.range.start)..from_end(changed.range.end);
            (Kind::Overwrite { bytes }, changed.found)
        });
        in_front.into_iter().chain(behind)
    }
}

/// A free that is about to happen.
struct Free {
    address: u64,
    call: Call,
    declared: Option<usize>,
    alignment: usize,
    stack: StackId,
    thread: ThreadId,
}

/// The state of a block that is being freed.
enum State {
    /// It was live, and has left the register.
    Live,
    /// It was live, and is in quarantine for the register.
    Kept,
    /// It was in quarantine before.
    Quarantined,
}

impl Free {
    /// Decides about a block of the register, under its lock. Returns it as it was, too.
    fn resolve(&self, block: &LiveBlock) -> (Resolution, (LiveBlock, State)) {
        if Stamp::of(block).is_quarantined() {
            return (Resolution::Keep, (*block, State::Quarantined));
        }
        // A reallocation may keep its block, or fail.
        let kept = match self.call {
            Call::Realloc => None,
            _ => quarantine::quarantined(block, self.call, self.stack, self.thread),
        };
        match kept {
            Some(kept) => (Resolution::Change(kept), (*block, State::Kept)),
            None => (Resolution::Remove, (*block, State::Live)),
        }
    }

    /// Checks the free of a live block, which has left the register, or is in quarantine there from
    /// now on.
    fn check_known(&self, block: &LiveBlock, is_kept: bool) -> FreedBlock {
        let stamp = Stamp::of(block);
        let found = |kind, bytes| self.report_with(kind, block.size.0, stamp.allocated_by(), block.stack, None, bytes);
        // SAFETY: the block was live until now, and the free is ours to pass on.
        let overwritten = unsafe { Overwritten::inspect(block) };
        overwritten.kinds(block.size.0).for_each(|(kind, bytes)| found(kind, bytes));
        let none = canary::FoundBytes::default();
        let allocated = stamp.allocated_by().unwrap_or(Call::Malloc);
        if allocated.allocation_type() != self.call.allocation_type() {
            if thread::trusts_operators() {
                found(Kind::Mismatch, none);
            }
        } else if let Some(declared) = self.declared
            && !self.fits(declared as u64, block.size.0)
            && thread::trusts_operators()
        {
            found(Kind::WrongSize { declared: declared as u64 }, none);
        }
        let freed = FreedBlock {
            address: self.address,
            size: block.size.0,
            usable: block.usable.0,
            stamp: if is_kept { stamp.quarantined(self.call as u8).0 } else { stamp.0 },
            freed_by: self.call as u8,
            allocated_at: block.stack,
            freed_at: self.stack,
            freed_in: self.thread,
        };
        if !is_kept {
            FREED.put(freed);
        }
        freed
    }

    /// Reports the free of a block that is in quarantine.
    fn check_quarantined(&self, block: &LiveBlock) -> Freeing {
        let stamp = Stamp::of(block);
        let (first, first_at) = (stamp.freed_by().unwrap_or(Call::Free), freed_at(block));
        self.report(Kind::DoubleFree { first, first_at }, block.size.0, stamp.allocated_by(), block.stack);
        Freeing::Second
    }

    /// True if `declared` may be given as the size of a block of `size` bytes. The operators ask
    /// for one byte rather than none, and for whole multiples of the alignment.
    fn fits(&self, declared: u64, size: u64) -> bool {
        let alignment = (self.alignment as u64).max(1);
        declared == size || declared.max(1).checked_next_multiple_of(alignment) == Some(size)
    }

    /// Checks the free of an address that is not a live block. `None` if it may be one after all.
    fn check_unknown(&self) -> Option<Freeing> {
        if missed() != 0 {
            return None;
        }
        if is_stopped() {
            return Some(Freeing::Unknown);
        }
        if let Some(block) = FREED.get(self.address) {
            let first = Call::from_number(block.freed_by).unwrap_or(Call::Free);
            let kind = Kind::DoubleFree { first, first_at: block.freed_at };
            self.report(kind, block.size, Stamp(block.stamp).allocated_by(), block.allocated_at);
            return Some(Freeing::Second);
        }
        if let Some(block) = REGISTER.block_at(self.address) {
            let (inside, stamp) = (Some(self.address - block.key.address()), Stamp::of(&block));
            let before = stamp.freed_by().filter(|_| stamp.is_quarantined());
            let before = before.map(|call| (call, freed_at(&block)));
            let none = canary::FoundBytes::default();
            let kind = Kind::NotABlock { inside };
            self.report_with(kind, block.size.0, stamp.allocated_by(), block.stack, before, none);
            if before.is_some() {
                // The allocator would take the bytes of the filled block for its own data.
                return Some(Freeing::Second);
            }
        } else if KNOWS_ALL.load(Ordering::Relaxed) {
            self.report(Kind::NotABlock { inside: None }, 0, None, StackId::ROOT);
        } else {
            // Another thread may have allocated it while the checks started, when there was the
            // replacement but not the observer: the canary in front says.
            return None;
        }
        Some(Freeing::Unknown)
    }

    fn report(&self, kind: Kind, size: u64, allocated: Option<Call>, allocated_at: StackId) {
        self.report_with(kind, size, allocated, allocated_at, None, canary::FoundBytes::default());
    }

    fn report_with(
        &self,
        kind: Kind,
        size: u64,
        allocated: Option<Call>,
        allocated_at: StackId,
        before: Option<(Call, StackId)>,
        found: canary::FoundBytes,
    ) {
        note(Report {
            kind,
            address: self.address,
            size,
            allocated,
            allocated_at,
            freed: Some(self.call),
            freed_at: self.stack,
            before,
            thread: self.thread,
            found,
        });
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
