//! What the broker tells the collector.

use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use heapledger_core::sample::Rate;
use heapledger_recording::{ExitStatus, ImageEndReason, ImageId, ImageOrigin};

use crate::shared::SharedRing;

/// A piece of news. Stamps are in units, as in events.
#[derive(Debug)]
pub(crate) enum News {
    /// A new image. Its rings follow.
    Image(NewImage),
    /// One more ring of an image.
    Ring(NewRing),
    /// Nothing more will come from an image.
    Ended { image: ImageId, reason: ImageEndReason, stamp: u64 },
    /// How the process of an image that has ended did end, or that this will not be known.
    Exit { image: ImageId, exit: Option<ExitStatus> },
    /// Allocations are not recorded from now on.
    Paused { stamp: u64 },
    /// They are again.
    Resumed { stamp: u64 },
    /// They are sampled at this rate from now on.
    Rated { stamp: u64, rate: Rate },
    /// What was before this moment is to be in the file; when it is, that is to be said.
    Save { stamp: u64, done: SyncSender<()> },
    /// The image's process had no room for what it was given: it goes on unrecorded.
    Declined { image: ImageId, stamp: u64 },
    /// A process or thread was turned away for want of memory or descriptors: it goes on unrecorded.
    Refused,
}

#[derive(Debug)]
pub(crate) struct NewImage {
    pub(crate) image: ImageId,
    pub(crate) stamp: u64,
    pub(crate) pid: u32,
    pub(crate) parent_pid: u32,
    pub(crate) parent_image: Option<ImageId>,
    /// By fork, or else by exec.
    pub(crate) how: ImageOrigin,
    pub(crate) fork: Option<NewFork>,
    pub(crate) executable: Vec<u8>,
    pub(crate) argv: Vec<Vec<u8>>,
}

/// What a forked child says about the fork.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFork {
    pub(crate) parent: ImageId,
    /// The number of the parent's fork event; 0 where there is none.
    pub(crate) sequence: u32,
    /// The first stack id that the child makes itself.
    pub(crate) node_base: u32,
}

#[derive(Debug)]
pub(crate) struct NewRing {
    pub(crate) image: ImageId,
    pub(crate) ring: SharedRing,
    pub(crate) is_common: bool,
    /// The thread that asked for it.
    pub(crate) thread: u32,
}

/// News in order, from the broker's thread to the collector's.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Vec<News>>);

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Vec<News>> {
        // A vector of news is whole between any two calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds news. Those given in one call are taken in one call.
    pub(crate) fn post(&self, news: impl IntoIterator<Item = News>) {
        self.lock().extend(news);
    }

    /// Takes all news into `to`, which is empty.
    pub(crate) fn take(&self, to: &mut Vec<News>) {
        std::mem::swap(&mut *self.lock(), to);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}
