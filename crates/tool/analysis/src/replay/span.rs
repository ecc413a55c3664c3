//! The part of a recording to replay, and what is wanted of it.

use heapledger_core::Bytes;
use heapledger_ledger as ledger;
use heapledger_recording::Time;

/// The part of a recording to replay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    /// Begins with the last checkpoints before this time. Only the figures of blocks allocated
    /// since then, and what is live at the end of the span, are right. `None`: from the beginning.
    pub(crate) from: Option<Time>,
    /// Ends at this time, inclusive. `None`: at the end of the recording.
    pub(crate) until: Option<Time>,
    /// Ends when this many bytes are live in all images together.
    pub(crate) stop_at: Option<Bytes>,
    /// True to return the blocks that are live at the end of the span. Blocks of images that ended
    /// before it are returned only if nothing limits the span.
    pub(crate) wants_blocks: bool,
    /// The handling of the marks of reporters.
    pub(crate) marks: Marks,
    /// True to return the blocks that were freed.
    pub(crate) wants_freed: bool,
    /// True to return the recorded usable sizes of blocks, also if nothing else needs them.
    pub(crate) wants_usable_sizes: bool,
}

/// The handling of the marks of reporters by a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Marks {
    /// They are ignored.
    #[default]
    Ignored,
    /// They are followed.
    Followed,
    /// They are followed, and the span of each image ends when its reporters have been asked for
    /// the last time.
    UpToTheLast,
}

impl Span {
    /// True if the span ends with this much live.
    #[inline]
    pub(super) fn is_over(&self, live: ledger::Live) -> bool {
        self.stop_at.is_some_and(|bytes| live.bytes_live >= bytes)
    }

    /// True if usable sizes are needed: for reports of blocks, or for freed blocks.
    pub(super) fn wants_usable(&self) -> bool {
        self.marks != Marks::Ignored || self.wants_freed || self.wants_usable_sizes
    }

    /// True if images that ended before the end of the span contribute the blocks that they had
    /// live.
    pub(super) fn reaches_the_end(&self) -> bool {
        self.until.is_none() && self.stop_at.is_none()
    }
}
