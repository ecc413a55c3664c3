//! What is said of a block after it was allocated.

use heapledger_core::stamp::{self, Place, Stamp};
use heapledger_core::{NodeKind, StackId, TypeId};
use heapledger_ledger::LiveBlock;
use heapledger_thread as thread;
use heapledger_unwind::{context, nodes};

use crate::block::{ThreadBlock, query};
use crate::{LEDGER, control};

/// Says what the live block at, or around, an address is. Whether there is such a block; if not, that is counted.
///
/// # Safety
///
/// See [`stamp::intern`].
pub unsafe fn stamp(address: u64, type_name: *const u8, length: u32, place: *const Place) -> bool {
    let found = query(|| {
        let block = LEDGER.block_at(address)?;
        // SAFETY: passed on.
        let number = unsafe { stamp::intern(type_name, length, place) }.number();
        Some(LEDGER.stamp(block.key, control::with_type(block.stamp, number.into())))
    });
    match found {
        Some(Some(is_stamped)) => is_stamped,
        Some(None) => {
            // SAFETY: null or the calling thread's, by the contract of `thread::bind`.
            if !unsafe { context::is_ignoring(thread::contexts()) } {
                control::count_unknown_stamp();
            }
            false
        }
        None => {
            control::count_lost();
            false
        }
    }
}

/// What a block with this entry in the ledger was stamped with; `None` where it was not.
pub fn stamp_of(stamp: TypeId) -> Option<&'static Stamp> {
    stamp::get(control::type_of(stamp) as u16)
}

/// Declares that the live block at, or around, an address was allocated in the context that the calling thread is in
/// now; the native stack stays. Whether there is one.
pub fn set_context(address: u64) -> bool {
    let Some(LiveBlock { key, stack, .. }) = query(|| LEDGER.block_at(address)).flatten() else { return false };
    let Some(to) = in_present_context(stack) else { return false };
    query(|| LEDGER.move_block(key, to) == Ok(true)).unwrap_or(false)
}

/// The site of a block, within the context that the calling thread is in now.
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
