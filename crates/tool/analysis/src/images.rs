//! The images of a process of which a figure is taken: the last one, and the one with the peak.

use std::collections::HashSet;

use heapledger_core::Bytes;
use heapledger_recording::{ImageId, Recording};

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
