//! The messages from the broker to the collector.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::sample::Rate;
use heapledger_inject::Mapping;
use heapledger_recording::{ExitStatus, ImageEndReason, ImageId, ImageOrigin};

use crate::exiting::Exiting;
use crate::live_figures::AnsweredFigures;
use crate::live_pages::AgedBlock;
use crate::roots::Roots;
use crate::shared::SharedRing;

/// A message. Stamps are in units, as in events.
#[derive(Debug)]
pub(crate) enum Message {
    /// A new image. Its rings follow.
    Image(NewImage),
    /// Another ring of an image.
    Ring(NewRing),
    /// An image has ended: nothing more will come from it.
    Ended { image: ImageId, reason: ImageEndReason, stamp: u64 },
    /// The exit status of the process of an image that has ended; `None` if it will not be known.
    Exit { image: ImageId, exit: Option<ExitStatus> },
    /// Allocations are not recorded from now on.
    Paused { stamp: u64 },
    /// Allocations are recorded again.
    Resumed { stamp: u64 },
    /// Blocks are sampled at this rate from now on.
    Rated { stamp: u64, rate: Rate },
    /// A request to write everything before this stamp to the file, and to be notified then.
    Save { stamp: u64, done: SyncSender<()> },
    /// A request for a resident snapshot of a process after this stamp, and to be notified when it
    /// is in the file.
    Resident { pid: u32, stamp: u64, done: SyncSender<()> },
    /// A request for the live blocks of a process at this stamp.
    LiveBlocks { pid: u32, stamp: u64, done: SyncSender<Vec<AgedBlock>> },
    /// A request for the figures of the session after this stamp.
    Figures { stamp: u64, done: SyncSender<AnsweredFigures> },
    /// A process that is about to exit, and waits for a resident snapshot.
    Exiting(Exiting),
    /// The image's process had no room for what it was given, and continues unrecorded.
    Declined { image: ImageId, stamp: u64 },
    /// Entries of an allocator in the image's program were to be redirected, and were not.
    NotRedirected { image: ImageId, stamp: u64 },
    /// A process that was followed runs a program into which the library has been placed.
    Followed { pid: u32, stamp: u64 },
    /// A process that was followed runs a program into which the library could not be placed.
    NotFollowed { pid: u32 },
    /// A process or thread was refused for want of memory or descriptors, and continues unrecorded.
    Refused,
}

#[derive(Debug)]
pub(crate) struct NewImage {
    pub(crate) image: ImageId,
    pub(crate) stamp: u64,
    pub(crate) pid: u32,
    pub(crate) parent_pid: u32,
    pub(crate) parent_image: Option<ImageId>,
    /// By fork, or by exec.
    pub(crate) how: ImageOrigin,
    /// The time for which the program ran before it was recorded.
    pub(crate) age: Duration,
    pub(crate) fork: Option<NewFork>,
    pub(crate) executable: Vec<u8>,
    pub(crate) argv: Vec<Vec<u8>>,
    pub(crate) allocator: AllocatorKind,
    pub(crate) allocator_version: AllocatorVersion,
    /// The [identity](crate::process::image_identity) of the program that introduced itself.
    pub(crate) identity: Option<u64>,
    /// The regions that were mapped when the process introduced itself, if mappings are recorded.
    pub(crate) regions: Option<Vec<Mapping>>,
}

/// The data of a forked child about the fork.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFork {
    pub(crate) parent: ImageId,
    /// The number of the parent's fork event; 0 if there is none.
    pub(crate) sequence: u32,
    /// The first stack id that the child assigns itself.
    pub(crate) node_base: u32,
}

#[derive(Debug)]
pub(crate) struct NewRing {
    pub(crate) image: ImageId,
    pub(crate) ring: SharedRing,
    pub(crate) is_common: bool,
    /// The thread that asked for the ring.
    pub(crate) thread: u32,
}

/// A queue of messages from the broker's thread to the collector's.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    messages: Mutex<Vec<Message>>,
    /// The root directories of the processes.
    pub(crate) roots: Arc<Roots>,
    /// True if mappings are recorded. Fixed for the session.
    keeps_mappings: bool,
}

impl Inbox {
    /// Returns the inbox of a session.
    pub(crate) fn new(keeps_mappings: bool) -> Inbox {
        Inbox { keeps_mappings, ..Inbox::default() }
    }

    /// True if mappings are recorded.
    pub(crate) fn keeps_mappings(&self) -> bool {
        self.keeps_mappings
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Message>> {
        // The vector is consistent between any two calls.
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds messages. The messages of one call are taken together.
    pub(crate) fn post(&self, messages: impl IntoIterator<Item = Message>) {
        self.lock().extend(messages);
    }

    /// Moves all messages to `to`, which must be empty.
    pub(crate) fn take(&self, to: &mut Vec<Message>) {
        std::mem::swap(&mut *self.lock(), to);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}
