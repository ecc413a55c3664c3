//! The visitor of a replay, and the blocks that it is called with.

use heapledger_core::sample::Rate;
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{ImageId, Time};

use crate::amount::Amount;

/// A block about to be entered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) image: ImageId,
    pub(crate) serial: Serial,
    /// The thread that allocated it, and the time. `None` if the block comes from a checkpoint.
    pub(crate) call: Option<(ThreadId, Time)>,
    pub(crate) size: Bytes,
    /// The rate at which it was sampled.
    pub(crate) rate: Rate,
    pub(crate) stack: StackId,
    /// The usable size, if it was recorded.
    pub(crate) usable: Option<Bytes>,
}

impl Origin {
    /// Returns the block's bytes and its weight.
    pub(crate) fn amount(&self) -> Amount {
        Amount::of_block(self.size, Blocks(self.rate.weight(self.size, self.serial)))
    }
}

/// A block that is no longer live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockEnd {
    pub(crate) image: ImageId,
    pub(crate) serial: Serial,
    pub(crate) at: Time,
    /// The thread that allocated it, and the time, if the visitor
    /// [wants](BlockVisitor::wants_calls) to know. `None` if the block comes from a checkpoint.
    pub(crate) call: Option<(ThreadId, Time)>,
    /// The block's bytes and weight.
    pub(crate) amount: Amount,
    /// The group that it was counted under.
    pub(crate) group: StackId,
    pub(crate) reason: EndReason,
}

/// The reason why a block is no longer live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// It was freed by this thread.
    Freed(ThreadId),
    /// It is still live: it was reattributed, and is entered again at once under another group.
    Reattributed,
    /// Its image ended.
    ImageEnded,
    /// It is still live, but the replay is over.
    ReplayEnded,
}

/// A visitor of the replay that assigns each block to a group, and may be notified when blocks are
/// no longer live. A function that returns the group of a block is one.
pub(crate) trait BlockVisitor {
    /// Returns true if it is notified of blocks that are no longer live. Asked once for each image.
    fn wants_frees(&self) -> bool {
        false
    }

    /// Returns true if it is given the thread that allocated them, and the time. Asked once for
    /// each image.
    fn wants_calls(&self) -> bool {
        false
    }

    /// Returns the group that a block is counted under.
    fn on_alloc(&mut self, origin: Origin) -> StackId;

    /// Handles a block that is no longer live.
    fn on_free(&mut self, _: BlockEnd) {}

    /// Returns false to stop the replay. Called after each chunk of events is decoded.
    fn wants_more(&self) -> bool {
        true
    }
}

impl<F: FnMut(Origin) -> StackId> BlockVisitor for F {
    #[inline]
    fn on_alloc(&mut self, origin: Origin) -> StackId {
        self(origin)
    }
}
