//! Amounts by a property that only the events can tell. Breakdowns by a property of the stack are
//! in `rank.rs`.

use heapledger_core::{Bytes, ThreadId};
use heapledger_recording::{Damage, ImageId, Recording};

use crate::amount::MomentAmounts;
use crate::error::Error;
use crate::group_totals::{Needs, group_totals};
use crate::names::Names;
use crate::progress::Progress;
use crate::replay::visitor::Origin;
use crate::selection::Selection;

/// The property by which blocks are told apart, if only events tell it. The properties of stacks
/// are in [`RankBy`](crate::RankBy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartBy {
    /// The thread that allocated them.
    Thread,
    /// The process that allocated them.
    Process,
    /// Their requested size.
    Size,
    /// Their size class: requested sizes between two powers of two.
    SizeClass,
}

impl PartBy {
    /// Returns the part that a block belongs to; `None` if that is not known.
    pub(crate) fn part(self, recording: &Recording<'_>, origin: &Origin) -> Option<Part> {
        match (self, origin.call) {
            (PartBy::Process, _) => recording
                .process_of(origin.image)
                .and_then(|process| process.images.first())
                .copied()
                .map(Part::Process),
            (PartBy::Size, _) => Some(Part::Size(origin.size)),
            (PartBy::SizeClass, _) => Some(Part::SizeClass(size_class(origin.size))),
            (PartBy::Thread, Some((thread, _))) => Some(Part::Thread(origin.image, thread)),
            (PartBy::Thread, None) => None,
        }
    }

    /// True if the part of a block depends on the call that allocated it ([`Origin::call`]).
    pub(crate) fn needs_call(self) -> bool {
        match self {
            PartBy::Thread => true,
            PartBy::Process | PartBy::Size | PartBy::SizeClass => false,
        }
    }
}

/// Returns the largest size in the size class of this size.
pub(crate) fn size_class(size: Bytes) -> Bytes {
    Bytes(size.0.checked_next_power_of_two().unwrap_or(u64::MAX))
}

/// Blocks that have something in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The blocks that this thread of an image allocated.
    Thread(ImageId, ThreadId),
    /// The blocks that the process allocated whose first image this is.
    Process(ImageId),
    /// The blocks of this requested size.
    Size(Bytes),
    /// The blocks of at most this many bytes (a power of two), and more than half of it; for 1, of
    /// one byte or none.
    SizeClass(Bytes),
    /// Blocks of a thread that is not known, such as blocks that were allocated before the
    /// recording begins; and blocks of the parts beyond the number that can be told apart (4
    /// million).
    Rest,
}

/// The amounts that parts hold.
#[derive(Debug, Default)]
pub struct Parts {
    /// The parts that hold something at some moment, in no particular order.
    pub parts: Vec<(Part, MomentAmounts)>,
    /// The sum of all parts.
    pub whole: MomentAmounts,
    /// The blocks of the selected processes that the selection leaves out. Blocks allocated at
    /// another time do not count here if the selection asks for a time of allocation.
    pub left_out: MomentAmounts,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// Breaks a selection down into parts, by a replay of its events. [`MomentAmounts::live`] is the
/// amount at the selection's time if its moment is a time, otherwise at the end.
pub fn parts(
    names: &mut Names<'_, '_>,
    by: PartBy,
    selection: &Selection,
    progress: Progress<'_>,
) -> Result<Parts, Error> {
    let recording = names.recording();
    let needs = Needs { call: by.needs_call(), ..Needs::default() };
    let part = |origin: &Origin, _, _| by.part(recording, origin);
    let group_totals = group_totals(names, selection, needs, part, progress)?;
    let mut parts = Parts { left_out: group_totals.left_out, damage: group_totals.damage, ..Parts::default() };
    for (part, moment_amounts) in group_totals.groups {
        parts.whole += moment_amounts;
        parts.parts.push((part.unwrap_or(Part::Rest), moment_amounts));
    }
    Ok(parts)
}
