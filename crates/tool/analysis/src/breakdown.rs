//! What threads, processes or sizes hold: questions that only the events answer.

use heapledger_core::{Bytes, ThreadId};
use heapledger_recording::{Damage, ImageId, Recording};

use crate::amount::Holding;
use crate::error::Error;
use crate::moment::Selection;
use crate::names::Names;
use crate::replay::{Origin, Progress};
use crate::stacks::MergedStacks;
use crate::tally::{Needs, tally};

/// What blocks are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The thread that allocated them.
    Thread,
    /// The process that allocated them.
    Process,
    /// Their requested size.
    Size,
    /// Their size class: requested sizes between two powers of two.
    SizeClass,
}

impl By {
    /// Returns the part that a block belongs to; `None` if that is not known.
    pub(crate) fn part(self, recording: &Recording<'_>, origin: &Origin) -> Option<Part> {
        match (self, origin.call) {
            (By::Process, _) => recording.image(origin.image).map(|image| Part::Process(image.pid)),
            (By::Size, _) => Some(Part::Size(origin.size)),
            (By::SizeClass, _) => Some(Part::SizeClass(size_class(origin.size))),
            (By::Thread, Some((thread, _))) => Some(Part::Thread(origin.image, thread)),
            (By::Thread, None) => None,
        }
    }
}

/// Returns the most that a block of the size class has that this size is in.
pub(crate) fn size_class(size: Bytes) -> Bytes {
    Bytes(size.0.checked_next_power_of_two().unwrap_or(u64::MAX))
}

/// Blocks that have something in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// A thread of an image allocated them.
    Thread(ImageId, ThreadId),
    /// The process with this number allocated them.
    Process(u32),
    /// They have this requested size.
    Size(Bytes),
    /// They have at most so many bytes, and more than half of that: a power of two. Of 1: one byte or none.
    SizeClass(Bytes),
    /// They are of a thread, process or size beyond those that can be told apart (4 million).
    Rest,
}

/// What threads, processes or sizes hold.
#[derive(Debug, Default)]
pub struct Breakdown {
    /// Those that hold something at some moment, in no particular order.
    pub parts: Vec<(Part, Holding)>,
    /// Their sum.
    pub whole: Holding,
    /// What the selection leaves out of what its processes hold. Without what was allocated at another time, if the
    /// selection asks for a time of allocation.
    pub left_out: Holding,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// Breaks a selection down by thread, process or size: a replay of its events. [`Holding::live`] is what is live at the
/// selection's time if its moment is one, else at the end.
pub fn breakdown(
    names: &mut Names<'_, '_>,
    by: By,
    selection: &Selection,
    progress: Progress<'_>,
) -> Result<Breakdown, Error> {
    let recording = names.recording();
    let part = |origin: &Origin| by.part(recording, origin);
    let needs = Needs { thread: by == By::Thread, ..Needs::default() };
    let mut merged = MergedStacks::new(recording);
    let tally = tally(names, &mut merged, selection, needs, |origin, _, _| part(origin), None, progress)?;
    let mut breakdown = Breakdown { left_out: tally.left_out, damage: tally.damage, ..Breakdown::default() };
    breakdown.damage.append(&mut merged.damage);
    for (part, holding) in tally.groups {
        breakdown.whole += holding;
        breakdown.parts.push((part.unwrap_or(Part::Rest), holding));
    }
    Ok(breakdown)
}
