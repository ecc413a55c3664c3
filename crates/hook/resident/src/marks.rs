//! What is said of a block after it was allocated.

use heapledger_core::{NodeKind, StackId};
use heapledger_ledger::LiveBlock;
use heapledger_thread as thread;
use heapledger_unwind::nodes;

use crate::block::{ThreadBlock, query};
use crate::{LEDGER, control, types};

/// Declares the type of the live block at, or around, an address. Whether there is one.
pub fn stamp(address: u64, name: &'static str) -> bool {
    let number = types::number(name);
    let stamp = || {
        let block = LEDGER.block_at(address)?;
        LEDGER.stamp(block.key, control::with_type(block.stamp, number)).then_some(())
    };
    query(stamp).flatten().is_some()
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
