//! Providers that can say which blocks are live: a register, or an allocator that can list its own.

use core::ops::ControlFlow;

use heapledger_core::{Blocks, Bytes};

use crate::details::LiveBlock;
use crate::shards::SharedRegister;
use crate::shared::SharedLedger;

/// A provider of live blocks.
///
/// An allocator that can walk over its own blocks needs no register, and no work at each call: it
/// implements [`Enumerate::visit`], and answers the same questions. It leaves empty what it does
/// not know about a block: the stack is the root, the stamp none, the serial zero.
pub trait Enumerate {
    /// Calls `visit` with each live block, until it breaks. The provider documents what it
    /// guarantees if blocks come and go meanwhile, as [`SharedRegister::blocks`] does. `visit` must
    /// not be called under a lock that allocating or freeing takes: it may do both.
    fn visit(&self, visit: &mut dyn FnMut(&LiveBlock) -> ControlFlow<()>);

    /// Returns the block around an address, the innermost one if a pool's blocks lie in a block.
    /// The default looks at all blocks.
    fn block_at(&self, address: u64) -> Option<LiveBlock> {
        let mut found: Option<LiveBlock> = None;
        self.visit(&mut |block| {
            let inner = found.is_none_or(|found| block.usable < found.usable);
            if block.contains(address) && inner {
                found = Some(*block);
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// Returns the number of live blocks, and their requested bytes. The default looks at all
    /// blocks.
    fn held(&self) -> (Blocks, Bytes) {
        let mut held = (Blocks(0), Bytes(0));
        self.visit(&mut |block| {
            held.0.0 += 1;
            held.1.0 = held.1.0.saturating_add(block.size.0);
            ControlFlow::Continue(())
        });
        held
    }
}

impl Enumerate for SharedRegister {
    fn visit(&self, visit: &mut dyn FnMut(&LiveBlock) -> ControlFlow<()>) {
        let _ = self.blocks().try_for_each(|block| visit(&block));
    }

    fn block_at(&self, address: u64) -> Option<LiveBlock> {
        SharedRegister::block_at(self, address)
    }
}

impl Enumerate for SharedLedger {
    fn visit(&self, visit: &mut dyn FnMut(&LiveBlock) -> ControlFlow<()>) {
        let _ = self.blocks().try_for_each(|block| visit(&block));
    }

    fn block_at(&self, address: u64) -> Option<LiveBlock> {
        SharedLedger::block_at(self, address)
    }

    fn held(&self) -> (Blocks, Bytes) {
        let live = self.live();
        (live.blocks_live, live.bytes_live)
    }
}
