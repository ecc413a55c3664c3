//! Selections: the blocks that a question is about, and the moment.

use heapledger_core::Bytes;
use heapledger_recording::{Recording, Time};

use crate::error::Error;
use crate::filter::Filter;
use crate::moment::Moment;

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
    /// True to find the [slop](crate::Amount::slop) of all amounts, too. Always a replay.
    pub counts_slop: bool,
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
        Selection {
            moment: Moment::default(),
            filter: Filter::default(),
            memory_max: Bytes(4 << 30),
            counts_slop: false,
        }
    }
}
