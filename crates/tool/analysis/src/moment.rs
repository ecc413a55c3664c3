//! Of what, and when.

use std::collections::HashSet;

use heapledger_core::Bytes;
use heapledger_recording::{ImageId, Recording, Time};

use crate::error::Error;

/// When.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// When the most bytes were live: in the session, or in the process that was selected.
    #[default]
    Peak,
    /// At the end of each process. What was live when a process called `exec` is not part of it: that was gone then.
    End,
    /// At this time.
    At(Time),
    /// Not a moment: all that was ever allocated.
    Total,
}

/// Of what, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only of the process with this pid. `None`: of all processes.
    pub process: Option<u32>,
    /// When.
    pub moment: Moment,
}

impl Selection {
    /// Of all processes at a moment.
    pub fn at(moment: Moment) -> Selection {
        Selection { process: None, moment }
    }

    /// The images that are selected, in ascending order of ids.
    pub fn images(&self, recording: &Recording<'_>) -> Result<Vec<ImageId>, Error> {
        let all = recording.images().iter();
        match self.process {
            None => Ok(all.map(|start| start.image).collect()),
            Some(pid) => {
                let images: Vec<ImageId> = all.filter(|start| start.pid == pid).map(|start| start.image).collect();
                if images.is_empty() { Err(Error::NoSuchProcess(pid)) } else { Ok(images) }
            }
        }
    }
}

/// The last image of each process: the one that has an end of the process.
pub(crate) fn last_images(recording: &Recording<'_>) -> HashSet<ImageId> {
    recording.processes().iter().filter_map(|process| process.images.last().copied()).collect()
}

/// The image in which most bytes were live at once; the first of equals.
///
/// The images of one process follow each other, so the peak of that one is the peak of the process.
pub(crate) fn largest(images: impl IntoIterator<Item = (ImageId, Bytes)>) -> Option<ImageId> {
    let mut largest: Option<(ImageId, Bytes)> = None;
    for (image, bytes) in images {
        if largest.is_none_or(|(_, most)| bytes > most) {
            largest = Some((image, bytes));
        }
    }
    largest.map(|(image, _)| image)
}
