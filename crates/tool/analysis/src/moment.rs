//! Selections: the blocks that a question is about, and the moment.

use std::collections::HashSet;

use heapledger_core::Bytes;
use heapledger_recording::{ImageId, Recording, Time};

use crate::error::Error;
use crate::filter::Filter;

/// The moment that a question is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// The moment with the most bytes live in the session, or in the process that was selected.
    #[default]
    Peak,
    /// The end of each process. Blocks that were live when a process called `exec` are not
    /// included, because they were gone by then.
    End,
    /// This time.
    At(Time),
    /// Not a moment: everything that was ever allocated.
    Total,
}

impl Moment {
    /// Returns the time, if the moment is one.
    pub fn time(self) -> Option<Time> {
        match self {
            Moment::At(time) => Some(time),
            Moment::Peak | Moment::End | Moment::Total => None,
        }
    }
}

/// The blocks that a question is about, and the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The moment.
    pub moment: Moment,
    /// The filter of blocks. Peaks are those of the selected processes with all their blocks: other
    /// conditions do not change the moment.
    pub filter: Filter,
    /// The most memory that a replay may take. 4 GiB by default.
    pub memory_max: Bytes,
}

impl Selection {
    /// Returns a selection of all blocks at a moment.
    pub fn at(moment: Moment) -> Selection {
        Selection { moment, ..Selection::default() }
    }

    /// Returns a selection of the same blocks at another moment.
    pub fn with_moment(&self, moment: Moment) -> Selection {
        Selection { moment, ..self.clone() }
    }

    /// Fails if the selection asks for a time that is not in the recording.
    pub(crate) fn expect_time(&self, recording: &Recording<'_>) -> Result<(), Error> {
        let begins = recording.session().map_or(Time(0), |session| session.begins);
        if self.moment.time().is_some_and(|time| time < begins) {
            return Err(Error::BeforeBeginning(begins));
        }
        let start = self.filter.allocated.as_ref().map(|time| Time(*time.start()));
        let latest = [start, self.moment.time()].into_iter().flatten().max();
        let is_there = |time: Time| recording.footer().is_none_or(|footer| time <= footer.time);
        if latest.is_none_or(is_there) { Ok(()) } else { Err(Error::AfterEnd) }
    }
}

impl Default for Selection {
    fn default() -> Selection {
        Selection { moment: Moment::default(), filter: Filter::default(), memory_max: Bytes(4 << 30) }
    }
}

/// Returns the last image of each process: the one that has the end of the process.
pub(crate) fn last_images(recording: &Recording<'_>) -> HashSet<ImageId> {
    recording.processes().iter().filter_map(|process| process.images.last().copied()).collect()
}

/// Returns the image in which the most bytes were live at once; the first of equals.
///
/// The images of one process follow each other, so the peak of that image is the peak of the
/// process.
pub(crate) fn largest(images: impl IntoIterator<Item = (ImageId, Bytes)>) -> Option<ImageId> {
    let mut largest: Option<(ImageId, Bytes)> = None;
    for (image, bytes) in images {
        if largest.is_none_or(|(_, most)| bytes > most) {
            largest = Some((image, bytes));
        }
    }
    largest.map(|(image, _)| image)
}
