//! The figures of a recording in progress, for those who watch it: what the collector copies, and
//! the answer that is made of it.
//!
//! The answer is eight bytes of magic with a version, six numbers of eight bytes (little-endian:
//! the length of the status; the number of sites, and of those left out; the nanoseconds that the
//! collector took for its copy, and those until it may make the next one; and 1 if the copy was
//! made after the request, else 0), the [`Status`] as text, and a recording: the sites, the totals
//! and the timeline, without the stacks. Those are in the file that is being written:
//! [`LiveRecording`](crate::LiveRecording) puts both together.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_recording::{
    Compressor, Counts, Footer, ImageCounts, ImageId, Live, Record, RecordingError, RecordingWriter, Sample, Site,
    SitesEncoder, TimelineEncoder, encode_records,
};

use crate::status::Status;

/// The first bytes of an answer.
const MAGIC: &[u8; 8] = b"HLLIVE2\n";
/// The length of the magic and the numbers.
const HEADER: usize = 8 + 6 * 8;
/// The maximum number of sites in an answer: the largest of all processes. They take some 30 bytes
/// each.
pub(crate) const SITES_MAX: usize = 20_000;
/// The maximum length of an answer in bytes: sites, and the totals of each process.
pub(crate) const ANSWER_MAX: usize = 64 << 20;

/// The figures of a session at one moment.
#[derive(Debug)]
pub(crate) struct FiguresCopy {
    /// The images that run, with their totals and sites.
    pub(crate) images: Vec<(ImageId, Counts, Vec<Site>)>,
    /// The sites of ended images that are not in the file yet.
    pub(crate) open: Vec<(ImageId, Vec<Site>)>,
    /// The totals of the processes.
    pub(crate) processes: Vec<Record>,
    /// The live bytes over time, at most 4,096 samples.
    pub(crate) timeline: Vec<Sample>,
    pub(crate) footer: Footer,
    pub(crate) is_sample: bool,
    /// The time that the collector took for the copy: it took no events meanwhile.
    pub(crate) copy_time: Duration,
    /// The file that has the stacks. Each segment of a rotated recording is another one.
    pub(crate) file: PathBuf,
}

/// The collector's answer to one who asks for figures.
#[derive(Debug)]
pub(crate) struct AnsweredFigures {
    pub(crate) copy: Arc<FiguresCopy>,
    /// True if the copy was made after the request. Else it is the last one, because the next one
    /// is not due.
    pub(crate) is_new: bool,
    /// The time until the next copy may be made.
    pub(crate) next_copy: Duration,
    /// Is notified when the stacks of all sites are in the file.
    pub(crate) written: Receiver<()>,
}

/// The figures of a recording in progress at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveFigures {
    /// The status of the recording.
    pub status: Status,
    /// The number of sites with figures of their own.
    pub sites: u64,
    /// The number of smaller sites whose figures are summed up as those of no stack.
    pub sites_left_out: u64,
    /// The time in which the recorder took no events for this answer.
    pub copy_time: Duration,
    /// The time after this answer from which on the recorder may have newer figures.
    pub next_copy: Duration,
    /// True if the figures are of a moment after the request.
    pub(crate) is_new: bool,
    /// The recording without stacks.
    pub(crate) recording: Vec<u8>,
}

/// Returns the answer for these figures. Fails if a stack id is out of range.
pub(crate) fn write(answered: &AnsweredFigures, status: &[u8], sites_max: usize) -> Result<Vec<u8>, RecordingError> {
    let AnsweredFigures { copy, is_new, next_copy, .. } = answered;
    let mut compressor = Compressor::new();
    let mut recording = if copy.is_sample { RecordingWriter::of_sample() } else { RecordingWriter::new() };
    let counts = |(image, counts, _): &(ImageId, Counts, Vec<Site>)| {
        Record::ImageCounts(ImageCounts { image: *image, counts: *counts })
    };
    let mut records: Vec<Record> = copy.images.iter().map(counts).collect();
    records.extend(copy.processes.iter().cloned());
    let Selected { images, sites, sites_left_out } = largest(copy, sites_max);
    let mut chunks = encode_records(&records, &mut compressor)?;
    for (image, sites) in &images {
        chunks.extend(SitesEncoder::encode(*image, sites, &mut compressor)?);
    }
    chunks.extend(TimelineEncoder::encode(None, &copy.timeline, &mut compressor)?);
    chunks.iter().for_each(|chunk| recording.push(chunk));
    recording.finish(&copy.footer, &mut compressor);

    let mut answer = MAGIC.to_vec();
    let [copy_ns, next_ns] = [copy.copy_time, *next_copy].map(|time| time.as_nanos() as u64);
    for number in [status.len() as u64, sites, sites_left_out, copy_ns, next_ns, u64::from(*is_new)] {
        answer.extend_from_slice(&number.to_le_bytes());
    }
    answer.extend_from_slice(status);
    answer.extend_from_slice(recording.pending());
    Ok(answer)
}

/// Reads what [`write`] has written. The recording in it is not looked at.
///
/// # Errors
///
/// `Unsupported` if the recorder is of another version, `InvalidData` if the answer makes no sense.
pub(crate) fn read(answer: &[u8]) -> io::Result<LiveFigures> {
    let (header, rest) = answer.split_at_checked(HEADER).ok_or(io::ErrorKind::InvalidData)?;
    let (magic, numbers) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        let is_other_version = magic.starts_with(b"HLLIVE");
        return Err(if is_other_version { io::ErrorKind::Unsupported } else { io::ErrorKind::InvalidData }.into());
    }
    let mut numbers = numbers.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_le_bytes));
    let [length, sites, sites_left_out, copy_ns, next_ns, is_new] =
        [(); 6].map(|()| numbers.next().unwrap_or_default());
    let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidData)?;
    let (status, recording) = rest.split_at_checked(length).ok_or(io::ErrorKind::InvalidData)?;
    let status = Status::from_text(status).ok_or(io::ErrorKind::InvalidData)?;
    let [copy_time, next_copy] = [copy_ns, next_ns].map(Duration::from_nanos);
    let (is_new, recording) = (is_new != 0, recording.to_vec());
    Ok(LiveFigures { status, sites, sites_left_out, copy_time, next_copy, is_new, recording })
}

/// The sites that an answer has, by image and stack.
struct Selected {
    images: Vec<(ImageId, Vec<Site>)>,
    sites: u64,
    sites_left_out: u64,
}

/// Selects the sites with the most live bytes; of equals, those that have allocated the most. What
/// the others hold is added to the root of their stacks.
fn largest(copy: &FiguresCopy, sites_max: usize) -> Selected {
    let images = copy.images.iter().map(|(image, _, sites)| (*image, sites));
    let images: Vec<(ImageId, &Vec<Site>)> =
        images.chain(copy.open.iter().map(|(image, sites)| (*image, sites))).collect();
    let all = images.iter().map(|(_, sites)| sites.len()).sum::<usize>();
    let size = |site: &Site| (site.live_end.bytes, site.bytes_allocated, site.allocations);
    // The smallest of the selected: of its equals, only so many are selected.
    let mut least = None;
    if all > sites_max {
        let mut sizes: Vec<_> = images.iter().flat_map(|(_, sites)| sites.iter().map(size)).collect();
        let (larger, at, _) = sizes.select_nth_unstable_by(sites_max, |one, other| other.cmp(one));
        let bound = *at;
        let equals = sites_max - larger.iter().filter(|size| **size > bound).count();
        least = Some((bound, equals));
    }
    let mut is_selected = |site: &Site| match &mut least {
        None => true,
        Some((bound, equals)) => match size(site).cmp(bound) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal if *equals > 0 => {
                *equals -= 1;
                true
            }
            _ => false,
        },
    };
    let mut selected = Selected { images: Vec::new(), sites: 0, sites_left_out: 0 };
    for (image, sites) in images {
        let (mut kept, mut rest) = (Vec::new(), None);
        for site in sites {
            if is_selected(site) {
                kept.push(*site);
            } else {
                add(rest.get_or_insert(Site { stack: StackId::ROOT, ..Site::default() }), site);
                selected.sites_left_out += 1;
            }
        }
        selected.sites += kept.len() as u64;
        kept.extend(rest);
        kept.sort_unstable_by_key(|site| site.stack);
        selected.images.push((image, kept));
    }
    selected
}

/// Adds the figures of a site to another.
fn add(sum: &mut Site, site: &Site) {
    let add = |one: &mut Live, other: Live| {
        one.bytes = Bytes(one.bytes.0.saturating_add(other.bytes.0));
        one.blocks = Blocks(one.blocks.0.saturating_add(other.blocks.0));
    };
    sum.allocations = Blocks(sum.allocations.0.saturating_add(site.allocations.0));
    sum.bytes_allocated = Bytes(sum.bytes_allocated.0.saturating_add(site.bytes_allocated.0));
    sum.temporaries = Blocks(sum.temporaries.0.saturating_add(site.temporaries.0));
    add(&mut sum.live_end, site.live_end);
    add(&mut sum.live_at_image_peak, site.live_at_image_peak);
    add(&mut sum.live_at_session_peak, site.live_at_session_peak);
    let (errors, of) = (&mut sum.errors, &site.errors);
    errors.allocated = errors.allocated.with_error(of.allocated);
    errors.live_end = errors.live_end.with_error(of.live_end);
    errors.live_at_image_peak = errors.live_at_image_peak.with_error(of.live_at_image_peak);
    errors.live_at_session_peak = errors.live_at_session_peak.with_error(of.live_at_session_peak);
}

#[cfg(test)]
mod tests;
