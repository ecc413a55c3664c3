//! Declarations about a block after it was allocated.

use core::ffi::c_int;
use core::ptr;

use heapledger_core::bridge::{Extent, Marking, mark as answer};
use heapledger_core::hooks::Caller;
use heapledger_core::stamp::{self, Place, Stamp};
use heapledger_core::{NodeKind, StackId, TypeId};
use heapledger_ledger::{Key, LiveBlock, Mark, Marked, OutOfMemory};
use heapledger_thread as thread;
use heapledger_unwind::{context, nodes};

use crate::block::{ThreadBlock, query};
use crate::{LEDGER, losses, mode};

/// Records the type that the program declares for the live block at, or around, an address. True if
/// there is such a block; if not, that is counted.
///
/// # Safety
///
/// See [`stamp::intern`].
pub unsafe fn stamp(address: u64, type_name: *const u8, length: u32, place: *const Place) -> bool {
    let found = query(|| {
        let block = LEDGER.block_at(address)?;
        // SAFETY: the name and the place are valid, by this function's contract, which is that of
        // `stamp::intern`.
        let number = unsafe { stamp::intern(type_name, length, place) }.number();
        Some(LEDGER.stamp(block.key, TypeId(number.into())))
    });
    match found {
        Some(Some(is_stamped)) => is_stamped,
        Some(None) => {
            // SAFETY: null or the calling thread's, by the contract of `thread::bind`.
            if !unsafe { context::is_ignoring(thread::contexts()) } {
                losses::count_unknown_stamp();
            }
            false
        }
        None => {
            losses::count_lost();
            false
        }
    }
}

/// Returns the stamp with this number in the ledger; `None` if the block was not stamped.
pub fn stamp_of(stamp: TypeId) -> Option<&'static Stamp> {
    stamp::get(stamp.0 as u16)
}

/// Marks the block that begins at an address as reported. Returns a number of [`answer`].
///
/// # Safety
///
/// The reporter's name is static: `reporter_length` bytes, UTF-8 if the program keeps to it.
/// `caller` is the live frame of this thread to which the called function has yet to return.
pub(crate) unsafe fn mark(address: u64, marking: &Marking, caller: Caller) -> c_int {
    let Marking { reporter, reporter_length: length, flags, measured } = *marking;
    if reporter.is_null() || !mode::is_running() {
        return answer::UNKNOWN;
    }
    let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) else {
        losses::count_lost();
        return answer::UNKNOWN;
    };
    // SAFETY: the name is static and `caller` is live, by this function's contract.
    let (reporter, stack) = unsafe { (stamp::intern(reporter, length, ptr::null()), state.capture(caller)) };
    let mark = Mark {
        reporter: TypeId(reporter.number().into()),
        stack: stack.unwrap_or(StackId::ROOT),
        is_kept: flags & answer::KEEP != 0,
    };
    let answer = match LEDGER.mark(Key(address), mark, measured) {
        Ok(Marked::Once) => answer::ONCE,
        Ok(Marked::Again) => answer::AGAIN,
        Ok(Marked::NoBlock) if flags & answer::AROUND != 0 => around(address, mark, measured),
        Ok(Marked::NoBlock) => no_block(address, mark, measured),
        Err(OutOfMemory) => answer::UNKNOWN,
    };
    state.head.leave();
    answer
}

/// Marks the block around an address.
#[cold]
fn around(address: u64, mark: Mark, measured: u64) -> c_int {
    let block = LEDGER.block_at(address).filter(|block| block.backs.is_none());
    match block.map(|block| LEDGER.mark(block.key, mark, measured)) {
        Some(Ok(Marked::Once)) => answer::ONCE,
        Some(Ok(Marked::Again)) => answer::AGAIN,
        _ => answer::UNKNOWN,
    }
}

/// Handles a mark on an address at which no block of the program's main heap begins.
#[cold]
fn no_block(address: u64, mark: Mark, measured: u64) -> c_int {
    let found = LEDGER.block_at(address);
    let misreport = |inside, answer| {
        LEDGER.misreport(address, mark, inside, measured);
        answer
    };
    match found {
        // A block of a pool.
        Some(block) if is_of_pool(&block, address) => match LEDGER.mark(block.key, mark, measured) {
            Ok(Marked::Once) => answer::ONCE,
            Ok(Marked::Again) => answer::AGAIN,
            _ => answer::UNKNOWN,
        },
        Some(block) if block.key.address() == address => answer::UNKNOWN,
        Some(block) => misreport(Some(block), answer::INSIDE),
        None if mode::is_sample() => answer::UNKNOWN,
        None => misreport(None, answer::NO_BLOCK),
    }
}

fn is_of_pool(block: &LiveBlock, address: u64) -> bool {
    block.key.address() == address && block.backs.is_none()
}

/// Takes a reporter's mark off the block that begins at an address. True if the block had one that
/// is to be kept.
///
/// # Safety
///
/// `reporter` points to `length` bytes that are static, UTF-8 if the program keeps to it.
pub(crate) unsafe fn unmark(address: u64, reporter: *const u8, length: u32) -> bool {
    let unmarked = query(|| {
        // SAFETY: `stamp::intern` requires that the name points to `length` static bytes, and that
        // the place is null or static. This function's `# Safety` requires the first of `reporter`,
        // and the place is null.
        let reporter = TypeId(unsafe { stamp::intern(reporter, length, ptr::null()) }.number().into());
        LEDGER.unmark(Key(address), reporter) || {
            let block = LEDGER.block_at(address).filter(|block| block.key.pool() != 0 && is_of_pool(block, address));
            block.is_some_and(|block| LEDGER.unmark(block.key, reporter))
        }
    });
    unmarked.unwrap_or_else(|| {
        losses::count_lost();
        false
    })
}

/// Returns the extent of the block around an address.
pub(crate) fn block_around(address: u64) -> Option<Extent> {
    let block = query(|| LEDGER.block_at(address)).flatten()?;
    Some(Extent { address: block.key.address(), bytes: block.size.0, bytes_usable: block.usable.0 })
}

/// Declares that the live block at, or around, an address was allocated in the context that the
/// calling thread is in now; the native stack stays. True if there is such a block.
pub fn set_context(address: u64) -> bool {
    let Some(block) = query(|| LEDGER.block_at(address)).flatten() else { return false };
    let Some(to) = in_present_context(block.stack) else { return false };
    query(|| LEDGER.reattribute_block(block.key, to) == Ok(true)).unwrap_or(false)
}

/// Returns the site of a block, within the context that the calling thread is in now.
fn in_present_context(stack: StackId) -> Option<StackId> {
    let mut native = stack;
    if let Some(node) = nodes::get(stack)
        && node.is(NodeKind::Context)
    {
        native = node.parent;
    }
    let frame = core::hint::black_box([0x6865_6170_6c65_6467_u64, 0]);
    let block = thread::enter::<ThreadBlock>(&raw const frame[1] as u64)?;
    let site = block.in_present_context(native);
    block.head.leave();
    core::hint::black_box(&frame);
    Some(site)
}
