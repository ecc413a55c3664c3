//! Exports to formats that have a place for each allocation and each free.

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use flate2::write::GzEncoder;
use heapledger_analysis::{self as analysis, Filter, HeapEvent, HeapEventKind, Heaps, Moment, NodeId, Selection};
use heapledger_profile_formats::{Event, EventKind, EventWriter, Holds, Known, Process, Profile, firefox, heaptrack};
use heapledger_recording::{ImageId, Recording, Time};

use super::gather::{Gatherer, purges};
use super::history::timeline;
use crate::args::Export;
use crate::error::Result;
use crate::format::counted;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::progress::Progress;
use crate::question::Question;

/// A format that holds events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFormat {
    Heaptrack,
    Firefox,
}

impl EventFormat {
    pub(super) fn holds(self) -> Holds {
        match self {
            EventFormat::Heaptrack => heaptrack::HOLDS,
            EventFormat::Firefox => firefox::HOLDS,
        }
    }

    fn heaps(self) -> Heaps {
        match self {
            EventFormat::Heaptrack => Heaps::One,
            EventFormat::Firefox => Heaps::PerProcess,
        }
    }
}

/// Writes the file; returns what went into it, and sentences about what did not.
pub(super) fn export(
    mut question: Question<'_, '_>,
    format: EventFormat,
    arguments: &Export,
    target: NewFile,
    out: &mut Output,
) -> Result<(Profile, Vec<String>)> {
    let (recording, input) = (question.recording, question.input);
    let selection = question.selection.clone();
    let filter = &selection.filter;
    let images = filter.images(recording).map_err(|error| input.unanswered(error))?;
    if recording.session().is_some_and(|session| session.totals_only) {
        return Err(input.unanswered(analysis::Error::NoEvents));
    }
    let (mut processes, places) = processes(recording, &images);
    for process in processes.iter_mut().filter(|_| format == EventFormat::Firefox) {
        process.timeline = timeline(&mut question, selection.moment, Some(process.pid))?;
    }
    let purges = purges(&question)?;
    let mut gatherer = Gatherer::new(recording, purges, &mut question.labels);
    let profile = &mut gatherer.profile;
    profile.processes = processes;
    profile.known = Known { allocated: true, temporaries: true, peak: true, end: true, ..Known::default() };
    if let Moment::At(time) = selection.moment {
        profile.duration_ns = time.0;
    }

    let mut samples: Numbers<NodeId, usize> = Numbers::default();
    let (mut outcome, mut notices) = (Ok(analysis::HeapEvents::default()), Vec::new());
    let saved = target.write(out.stream(), |out| {
        let mut out = Compressed::new(&arguments.output, out)?;
        let mut writer: Box<dyn EventWriter + '_> = match format {
            EventFormat::Heaptrack => Box::new(heaptrack::Writer::new(&mut out, peak(recording, &selection))),
            EventFormat::Firefox => Box::new(firefox::Writer::new(&mut out, arguments.blocks_max)),
        };
        let (mut progress, mut written) = (Progress::new(), Ok(()));
        outcome = analysis::heap_events(
            &mut gatherer,
            &selection,
            format.heaps(),
            &mut |done, all| progress.events(done, all),
            |gatherer, stacks, event| {
                let sample = *samples.entry(event.stack).or_insert_with(|| gatherer.sample(stacks, event.stack));
                let profile = &mut gatherer.profile;
                profile.duration_ns = profile.duration_ns.max(event.time.0);
                let event_shown = shown(recording, &places, event, sample);
                if event.is_interrupted {
                    written = writer.interrupted(profile, event_shown.process, event_shown.thread);
                }
                if written.is_ok() {
                    written = writer.event(profile, &event_shown);
                }
                if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
        );
        drop(progress);
        written?;
        if outcome.is_err() {
            return Err(io::Error::other("it is not known what happened"));
        }
        writer.finish(&gatherer.profile)?;
        notices.extend(writer.merged());
        drop(writer);
        out.finish()
    });
    let outcome = outcome.map_err(|error| input.unanswered(error))?;
    saved?;
    input.warn_of(&outcome.damage);
    if outcome.ended_with_image > 0 && format.heaps() == Heaps::One {
        let blocks = counted(outcome.ended_with_image, "block that was", "blocks that were");
        notices.push(format!(
            "{blocks} live when a process was over, before others were, are freed there: --process exports one alone"
        ));
    }
    Ok((gatherer.profile, notices))
}

/// Returns the bytes live at the peak, if all blocks are selected and the moment is not before it;
/// 0 otherwise.
fn peak(recording: &Recording<'_>, selection: &Selection) -> u64 {
    let counts = recording.footer().map(|footer| &footer.counts).filter(|_| selection.filter == Filter::default());
    let is_reached = |at: &Time| selection.moment.time().is_none_or(|until| *at <= until);
    counts.filter(|counts| is_reached(&counts.bytes_live_max_time)).map_or(0, |counts| counts.bytes_live_max.0)
}

/// The index of each image's process, and the ordinal of the image in that process.
type Places = Numbers<ImageId, (usize, u64)>;

/// A map with a fast hash function, for look-ups at every event.
type Numbers<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

fn processes(recording: &Recording<'_>, images: &[ImageId]) -> (Vec<Process>, Places) {
    let (mut processes, mut places) = (Vec::new(), Places::default());
    for process in recording.processes() {
        let selected: Vec<ImageId> = process.images.iter().copied().filter(|image| images.contains(image)).collect();
        let (Some(&first), Some(&last)) = (selected.first(), selected.last()) else { continue };
        places.extend((0..).zip(selected).map(|(at, image)| (image, (processes.len(), at))));
        let path = recording.image(last).map_or(&[][..], |image| &image.executable);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        processes.push(Process {
            pid: process.pid,
            name: String::from_utf8_lossy(name).into_owned(),
            start_ns: recording.image(first).map_or(0, |image| image.time.0),
            end_ns: recording.image_end(last).map(|end| end.time.0),
            timeline: Vec::new(),
        });
    }
    (processes, places)
}

/// Returns an event for the formats. A number takes the place of the block's address: no two blocks
/// of a process get the same number.
fn shown(recording: &Recording<'_>, places: &Places, event: &HeapEvent, sample: usize) -> Event {
    const SERIAL_BITS: u32 = 37;
    let (process, number) = places.get(&event.image).copied().unwrap_or_default();
    let thread = event.thread.and_then(|thread| recording.thread(event.image, thread));
    let bytes = event.size.0;
    Event {
        time_ns: event.time.0,
        process,
        thread: thread.map_or(0, |thread| thread.tid),
        address: (number << SERIAL_BITS | event.serial.0) + 1,
        kind: match event.what {
            HeapEventKind::Allocated => EventKind::Allocated { bytes, sample },
            HeapEventKind::Freed | HeapEventKind::ImageEnded => EventKind::Freed { bytes, sample },
        },
    }
}

/// A writer that compresses as the file's name says, for readers that go by the name.
enum Compressed<'w> {
    Plain(&'w mut dyn Write),
    Gzip(GzEncoder<&'w mut dyn Write>),
    Zstd(zstd::Encoder<'static, &'w mut dyn Write>),
}

impl<'w> Compressed<'w> {
    fn new(path: &Path, out: &'w mut dyn Write) -> io::Result<Compressed<'w>> {
        Ok(match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Compressed::Gzip(GzEncoder::new(out, flate2::Compression::default())),
            Some("zst") => Compressed::Zstd(zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?),
            _ => Compressed::Plain(out),
        })
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Compressed::Plain(out) => out.flush(),
            Compressed::Gzip(out) => out.finish().map(drop),
            Compressed::Zstd(out) => out.finish().map(drop),
        }
    }

    fn inner(&mut self) -> &mut dyn Write {
        match self {
            Compressed::Plain(out) => out,
            Compressed::Gzip(out) => out,
            Compressed::Zstd(out) => out,
        }
    }
}

impl Write for Compressed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner().flush()
    }
}
