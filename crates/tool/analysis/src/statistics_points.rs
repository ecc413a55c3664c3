//! The points at which a program asked its allocator for statistics, which annotations hold.

use heapledger_core::{Serial, ThreadId};
use heapledger_recording::{Annotation, ImageId, Recording, Time};

/// The code of the annotation.
pub(crate) const STATISTICS: u32 = 270;

/// The place of a statistics point among the events of its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatisticsPoint {
    /// The serial of the next allocation.
    pub serial: Serial,
    /// The number of other events since the latest allocation: frees and failed calls.
    pub rows: u64,
}

impl StatisticsPoint {
    pub(crate) fn to_payload(self) -> Vec<u8> {
        [self.serial.0, self.rows].map(u64::to_le_bytes).concat()
    }

    fn from_payload(payload: &[u8]) -> Option<StatisticsPoint> {
        let (serial, rest) = payload.split_first_chunk()?;
        let (rows, _) = rest.split_first_chunk()?;
        Some(StatisticsPoint { serial: Serial(u64::from_le_bytes(*serial)), rows: u64::from_le_bytes(*rows) })
    }
}

/// Returns the statistics points of an image in their order, with their threads and times. Reads
/// all annotations of the image; malformed ones are left out.
pub fn statistics_points(recording: &Recording<'_>, image: ImageId) -> Vec<(ThreadId, Time, StatisticsPoint)> {
    let found = recording.annotations(image).filter_map(Result::ok).filter(|found| found.code == STATISTICS);
    let point = |found: Annotation| Some((found.thread, found.time, StatisticsPoint::from_payload(&found.payload)?));
    let mut points: Vec<_> = found.filter_map(point).collect();
    points.sort_by_key(|(.., point)| (point.serial, point.rows));
    points
}
