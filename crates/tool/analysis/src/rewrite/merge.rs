//! Merges several recordings into one.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use heapledger_core::Bytes;
use heapledger_recording::{
    Annotation, AnnotationsEncoder, ChunkEntry, ChunkHead, ChunkKind, CodeExtent, Counts, Damage, Departure, Footer,
    ImageCounts, ImageEnd, ImageId, ImageStart, ImportedLocation, Mapping, MemoryEncoder, MemorySample, Module,
    ModuleId, NamedLocation, Node, Pause, Record, Recording, RecordingError, RunCosts, Sample, Sampling, Session, Site,
    Text, TextId, Thread, Time,
};

use super::segments::{self, Joined, Repeated};
use super::totals::{self, Totals};
use super::{Draft, Error};

/// The outcome of [`merge`], which has written a draft.
#[derive(Debug)]
pub struct Merged {
    /// The footer to finish the draft with.
    pub footer: Footer,
    /// True if the draft has all totals, and is to be [finished](Draft::finish). If not, it is to
    /// be [counted](Draft::count_and_finish).
    pub is_counted: bool,
    /// For each recording, the damage that opening it did not find.
    pub damage: Vec<Vec<Damage>>,
}

/// Writes the recordings side by side into one draft.
///
/// Consecutive segments of a session are joined first, in whatever order they are given. The result
/// has everything that happened since the beginning of the earliest segment.
///
/// Times are counted from the beginning of the earliest session, by the clocks of the machines that
/// recorded. Images and modules are numbered anew; modules with the same path and build id become
/// one, and so do equal texts. Pids are kept, so two processes may have the same. A pause of one
/// recording counts for all. Chunks of a newer version are left out.
///
/// If one of them has no events, the new one has none either. The totals of all are added up; if
/// that does not tell how much was live at once, the footer has [bounds](Footer::peak_least).
///
/// Fails if a segment is missing between others, if one of several sessions begins in mid-run, if a
/// segment is merged with a recording without events, or if a recording without events has no end.
pub fn merge<W: Write>(recordings: &[&Recording<'_>], draft: &mut Draft<W>) -> Result<Merged, Error> {
    let sessions = segments::by_session(recordings)?;
    let is_without_events = |recording: &&Recording<'_>| recording.session().is_some_and(|session| session.totals_only);
    let totals_only = recordings.iter().any(is_without_events);
    let begins_in_mid_run = |joined: &&Joined<'_, '_>| joined.begins() > Time(0);
    if let Some(joined) = sessions.iter().find(begins_in_mid_run)
        && sessions.len() > 1
    {
        return Err(Error::BeginsInMidRun(joined.segments[0].0));
    }
    let totals = if totals_only { Some(totals_of(&sessions)?) } else { None };
    let start = |joined: &Joined<'_, '_>| joined.first().session().map_or(0, |session| session.start_unix_ns);
    let first = sessions.iter().min_by_key(|joined| start(joined));
    let earliest = first.map_or(0, start);

    let mut records = Vec::new();
    if let Some(session) = first.and_then(|joined| joined.first().session()) {
        let options = match &sessions[..] {
            [joined] => {
                let merged = format!("merged from {} segments", joined.segments.len());
                if session.options.is_empty() { merged } else { format!("{}, {merged}", session.options) }
            }
            _ => format!("merged from {} recordings", recordings.len()),
        };
        let samples = recordings.iter().any(|recording| recording.is_sample());
        draft.begin(samples);
        records.push(Record::Session(Session { options, samples, segment: 0, totals_only, ..session.clone() }));
    }
    let mut known = Known::default();
    let mut images = 0;
    let sources: Vec<Source<'_, '_>> = sessions
        .iter()
        .map(|joined| {
            let shift = start(joined).saturating_sub(earliest);
            Source::new(joined, shift, &mut images, &mut known, &mut records)
        })
        .collect();
    for source in &sources {
        source.describe_images(&mut records);
        for pause in source.recordings().flat_map(|recording| recording.pauses()) {
            let (from, until) = (source.time(pause.from), pause.until.unwrap_or(source.end()));
            records.push(Record::Pause(Pause { from, until: Some(source.time(until)), is_stall: pause.is_stall }));
        }
    }
    for source in &sources {
        let sampling = source.recordings().flat_map(|recording| recording.sampling());
        records.extend(sampling.map(|one| Record::Sampling(Sampling { from: source.time(one.from), ..*one })));
    }
    draft.records(&records)?;

    let mut footer = Footer { complete: true, ..Footer::default() };
    let mut damage = vec![Vec::new(); recordings.len()];
    for source in &sources {
        source.copy(draft, &mut damage)?;
        if !totals_only {
            source.copy_events(draft, &mut damage)?;
        }
        footer.time = footer.time.max(source.time(source.end()));
        for own in source.recordings().filter_map(|recording| recording.footer()) {
            footer.costs = sum(footer.costs, own.costs);
        }
    }
    let mut named = [HashSet::new(), HashSet::new()];
    for source in &sources {
        source.copy_names(&mut named, draft, &mut damage)?;
    }
    if let Some(totals) = totals {
        totals::write(&sources, totals, &mut footer, draft, &mut damage)?;
    }
    let is_whole = |recording: &&Recording<'_>| recording.complete();
    footer.complete = recordings.iter().all(is_whole) && damage.iter().all(Vec::is_empty);
    if let [source] = &sources[..] {
        footer.exit = source.joined.last().footer().and_then(|own| own.exit);
    }
    Ok(Merged { footer, is_counted: totals_only, damage })
}

/// Returns the totals of each session. Fails if a session has several segments.
fn totals_of(sessions: &[Joined<'_, '_>]) -> Result<Vec<Totals>, Error> {
    let of = |joined: &Joined<'_, '_>| match joined.segments[..] {
        [(at, recording)] => Totals::of(at, recording),
        _ => Err(Error::SegmentsBesideTotals(joined.segments[0].0)),
    };
    sessions.iter().map(of).collect()
}

/// A session that is copied into another recording.
pub(super) struct Source<'r, 'a> {
    joined: &'r Joined<'r, 'a>,
    starts: Vec<&'r ImageStart>,
    /// The nanoseconds to add to its times.
    shift: u64,
    images: HashMap<ImageId, ImageId>,
    modules: HashMap<ModuleId, ModuleId>,
    texts: HashMap<TextId, TextId>,
}

/// The modules and texts that have numbers already.
#[derive(Default)]
struct Known {
    /// The number of modules.
    modules_count: u32,
    /// The modules, by path and build id.
    modules: HashMap<(Vec<u8>, Vec<u8>), ModuleId>,
    /// The texts, by their bytes, whether they name a task, and their category.
    texts: HashMap<(Vec<u8>, bool, Vec<u8>), TextId>,
}

impl<'r, 'a> Source<'r, 'a> {
    /// Assigns numbers to the images, modules and texts of a session.
    fn new(
        joined: &'r Joined<'r, 'a>,
        shift: u64,
        next_image: &mut u32,
        known: &mut Known,
        records: &mut Vec<Record>,
    ) -> Source<'r, 'a> {
        let starts = joined.images();
        let mut images = HashMap::new();
        for start in &starts {
            images.insert(start.image, ImageId(*next_image));
            *next_image += 1;
        }
        let mut source = Source { joined, starts, shift, images, modules: HashMap::new(), texts: HashMap::new() };
        for recording in joined.recordings() {
            source.take_modules(recording, known, records);
            source.take_texts(recording, known, records);
        }
        source
    }

    fn take_modules(&mut self, recording: &Recording<'_>, known: &mut Known, records: &mut Vec<Record>) {
        let named: HashSet<ModuleId> = recording.imported_locations().iter().map(|place| place.module).collect();
        for module in recording.modules() {
            // An earlier segment has it.
            if self.modules.contains_key(&module.module) {
                continue;
            }
            let next = ModuleId(known.modules_count + 1);
            // Modules with named places of another tool are numbered by each recording for itself.
            let id = match named.contains(&module.module) {
                true => next,
                false => *known.modules.entry((module.path.clone(), module.build_id.clone())).or_insert(next),
            };
            if id == next {
                known.modules_count += 1;
                records.push(Record::Module(Module { module: id, ..module.clone() }));
            }
            self.modules.insert(module.module, id);
        }
        for place in recording.imported_locations() {
            records.push(Record::ImportedLocation(ImportedLocation {
                module: self.module(place.module),
                ..place.clone()
            }));
        }
    }

    fn take_texts(&mut self, recording: &Recording<'_>, known: &mut Known, records: &mut Vec<Record>) {
        for text in recording.texts() {
            let next = TextId(known.texts.len() as u32 + 1);
            let key = (text.bytes.clone(), text.is_task, text.category.clone());
            let id = *known.texts.entry(key).or_insert(next);
            if id == next {
                records.push(Record::Text(Text { text: id, ..text.clone() }));
            }
            self.texts.insert(text.text, id);
        }
    }

    /// Copies the names and extents of functions that the draft does not have yet.
    fn copy_names<W: Write>(
        &self,
        [named, functions]: &mut [HashSet<(ModuleId, u64)>; 2],
        draft: &mut Draft<W>,
        damage: &mut [Vec<Damage>],
    ) -> Result<(), Error> {
        for &(at, recording) in &self.joined.segments {
            let names = recording.names();
            let here = names.iter().map(|place| NamedLocation { module: self.module(place.module), ..place });
            let mut new: Vec<_> = here.filter(|place| named.insert((place.module, place.offset))).collect();
            new.sort_by_key(|place| (place.module, place.offset));
            draft.names(&new)?;
            let here = names.extents().map(|extent| CodeExtent { module: self.module(extent.module), ..extent });
            let mut new: Vec<_> = here.filter(|extent| functions.insert((extent.module, extent.start))).collect();
            new.sort_by_key(|extent| (extent.module, extent.start));
            draft.extents(&new)?;
            damage[at].extend(names.damage);
        }
        Ok(())
    }

    fn recordings(&self) -> impl DoubleEndedIterator<Item = &'r Recording<'a>> + '_ {
        self.joined.recordings()
    }

    /// Converts a time of the session to one of the new recording.
    pub(super) fn time(&self, time: Time) -> Time {
        Time(time.0.saturating_add(self.shift))
    }

    fn module(&self, module: ModuleId) -> ModuleId {
        self.modules.get(&module).copied().unwrap_or(ModuleId::UNKNOWN)
    }

    fn node(&self, node: &Node) -> Node {
        let offset = match node.text() {
            Some(text) => self.texts.get(&text).copied().unwrap_or(TextId::UNKNOWN).0.into(),
            None => node.offset,
        };
        Node { module: self.module(node.module), offset, ..*node }
    }

    /// Returns totals with the time of their peak converted.
    pub(super) fn counts(&self, counts: &Counts) -> Counts {
        Counts { bytes_live_max_time: self.time(counts.bytes_live_max_time), ..*counts }
    }

    /// Returns the number of an image in the new recording.
    pub(super) fn image(&self, old: ImageId) -> ImageId {
        self.images[&old]
    }

    /// Returns the sites and the timeline of an image as the recorder left them.
    pub(super) fn recorded_rows(&self, image: ImageId, damage: &mut Vec<Damage>) -> (Vec<Site>, Vec<Sample>) {
        let recording = self.joined.first();
        let (sites, timeline) = (recording.sites(image), recording.image_timeline(image));
        damage.extend(sites.damage);
        damage.extend(timeline.damage);
        (sites.rows, timeline.rows)
    }

    /// Returns the time in which the session may have had live blocks, in times of the new
    /// recording. A process without a recorded end has them forever.
    pub(super) fn span(&self) -> (Time, Time) {
        let runs_on = self.starts.iter().any(|start| self.joined.image_end(start.image).is_none());
        (self.time(Time(0)), if runs_on { Time(u64::MAX) } else { self.time(self.end()) })
    }

    /// Returns the time when the session ended, by its own clock.
    fn end(&self) -> Time {
        let end = |recording: &Recording<'_>| {
            let end = recording.footer().map(|footer| footer.time);
            let last = || recording.chunks().iter().map(|chunk| chunk.head.time_last).max();
            end.or_else(last).unwrap_or_default()
        };
        self.recordings().map(end).max().unwrap_or_default()
    }

    fn describe_images(&self, records: &mut Vec<Record>) {
        for &old in &self.starts {
            let image = self.images[&old.image];
            records.push(Record::ImageStart(ImageStart {
                image,
                parent_image: old.parent_image.and_then(|parent| self.images.get(&parent).copied()),
                time: self.time(old.time),
                ..old.clone()
            }));
            records.extend(self.joined.mappings(old.image).into_iter().map(|mapping| {
                let (module, time) = (self.module(mapping.module), self.time(mapping.time));
                Record::Mapping(Mapping { image, module, time, ..*mapping })
            }));
            // If a thread is in several segments, the latest one has the most about it.
            let threads = self.recordings().flat_map(|recording| recording.threads(old.image));
            records.extend(threads.map(|thread| {
                let (start, end) = (self.time(thread.start), thread.end.map(|end| self.time(end)));
                Record::Thread(Thread { image, start, end, ..thread.clone() })
            }));
            if let Some(end) = self.joined.image_end(old.image) {
                records.push(Record::ImageEnd(ImageEnd { image, time: self.time(end.time), ..*end }));
            }
            // The later count takes over what only these totals have (lost events).
            if let Some(counts) = self.joined.image_counts(old.image) {
                records.push(Record::ImageCounts(ImageCounts { image, counts: self.counts(&counts) }));
            }
        }
        let departures = self.recordings().flat_map(|recording| recording.departures());
        records.extend(departures.filter_map(|departure| {
            // An image of an earlier segment has no number here: any image of this recording takes
            // its place.
            let image = *self.images.get(&departure.image).or_else(|| self.images.values().min())?;
            Some(Record::Departure(Departure { image, time: self.time(departure.time), ..departure.clone() }))
        }));
    }

    /// Copies everything except events, checkpoints and totals. `damage` has a list for each
    /// recording.
    fn copy<W: Write>(&self, draft: &mut Draft<W>, damage: &mut [Vec<Damage>]) -> Result<(), Error> {
        for &start in &self.starts {
            let image = self.images[&start.image];
            let nodes = self.joined.nodes(start, damage);
            draft.nodes(image, nodes.values().map(|node| self.node(node)))?;
            let mut samples: Vec<MemorySample> = Vec::new();
            for &(at, recording) in &self.joined.segments {
                self.copy_annotations(recording, start.image, draft, &mut damage[at])?;
                let memory = recording.memory(start.image);
                damage[at].extend(memory.damage);
                samples.extend(memory.rows.iter().map(|it| MemorySample { time: self.time(it.time), ..*it }));
            }
            samples.sort_by_key(|sample| sample.time);
            draft.put(|compressor| MemoryEncoder::encode(image, &samples, compressor))?;
        }
        Ok(())
    }

    /// Copies events and checkpoints. Totals in a checkpoint count from the beginning of its
    /// segment, and the marks at the beginning of a segment repeat earlier ones; both are
    /// corrected.
    fn copy_events<W: Write>(&self, draft: &mut Draft<W>, damage: &mut [Vec<Damage>]) -> Result<(), Error> {
        let mut before: HashMap<ImageId, Counts> = HashMap::new();
        let repeated = |start: &&ImageStart| Some((start.image, Repeated::new(self.joined, start.image)?));
        let mut repeated: HashMap<ImageId, Repeated> =
            self.starts.iter().copied().filter_map(|it| repeated(&it)).collect();
        for &(at, recording) in &self.joined.segments {
            for (&image, repeated) in &mut repeated {
                repeated.begin(recording, image);
            }
            for chunk in recording.chunks() {
                let Some(image) = chunk.head.image.filter(|image| self.images.contains_key(image)) else { continue };
                let copied = match chunk.kind {
                    ChunkKind::Events => self.copy_event_chunk(recording, chunk, repeated.get_mut(&image), draft),
                    ChunkKind::Checkpoint => self.copy_chunk(recording, chunk, before.get(&image), draft),
                    _ => Ok(()),
                };
                match copied {
                    Err(Error::Analysis(crate::Error::Recording(RecordingError::Damaged(found)))) => {
                        damage[at].push(found)
                    }
                    other => other?,
                }
            }
            for start in recording.images() {
                if let Some(counts) = recording.image_counts(start.image) {
                    before.insert(start.image, segments::following(before.get(&start.image), counts));
                }
            }
        }
        Ok(())
    }

    /// Copies a chunk of events, without the marks that its segment only repeats.
    fn copy_event_chunk<W: Write>(
        &self,
        recording: &Recording<'_>,
        chunk: &ChunkEntry,
        repeated: Option<&mut Repeated>,
        draft: &mut Draft<W>,
    ) -> Result<(), Error> {
        if let (Some(repeated), Some(events)) = (repeated, recording.event_chunk(chunk)) {
            let count = repeated.follow(&events)?;
            if count > 0 {
                return segments::without_marks(draft, &events, count, |head| self.head(&head, None));
            }
        }
        self.copy_chunk(recording, chunk, None, draft)
    }

    fn copy_chunk<W: Write>(
        &self,
        recording: &Recording<'_>,
        chunk: &ChunkEntry,
        before: Option<&Counts>,
        draft: &mut Draft<W>,
    ) -> Result<(), Error> {
        draft.chunk(&recording.copy_chunk(chunk, &self.head(&chunk.head, before))?)
    }

    /// Returns the head of a chunk in the new file. Its times are the only absolute ones in chunks
    /// of events and checkpoints.
    fn head(&self, old: &ChunkHead, before: Option<&Counts>) -> ChunkHead {
        ChunkHead {
            image: old.image.and_then(|image| self.images.get(&image).copied()),
            time_first: self.time(old.time_first),
            time_last: self.time(old.time_last),
            counts: old.counts.as_ref().map(|counts| self.counts(&segments::following(before, counts))),
            ..*old
        }
    }

    fn copy_annotations<W: Write>(
        &self,
        recording: &Recording<'_>,
        old: ImageId,
        draft: &mut Draft<W>,
        damage: &mut Vec<Damage>,
    ) -> Result<(), Error> {
        let image = self.images[&old];
        let mut encoder = AnnotationsEncoder::new(image);
        for annotation in recording.annotations(old) {
            match annotation {
                Ok(annotation) => {
                    if encoder.is_full() {
                        draft.put(|compressor| Ok(encoder.finish(compressor)))?;
                    }
                    let time = self.time(annotation.time);
                    encoder.push(&Annotation { image, time, ..annotation })?;
                }
                Err(RecordingError::Damaged(found)) => damage.push(found),
                Err(error) => return Err(error.into()),
            }
        }
        draft.put(|compressor| Ok(encoder.finish(compressor)))
    }
}

/// Adds up the costs of several recordings.
fn sum(a: RunCosts, b: RunCosts) -> RunCosts {
    let add = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a.saturating_add(b.unwrap_or(0))));
    let bytes = |a: Option<Bytes>, b: Option<Bytes>| add(a.map(|a| a.0), b.map(|b| b.0)).map(Bytes);
    RunCosts {
        collector_cpu_ns: add(a.collector_cpu_ns, b.collector_cpu_ns),
        // The recorders belong to different runs, so the largest of them counts.
        collector_rss_max: a.collector_rss_max.max(b.collector_rss_max),
        ring_bytes: bytes(a.ring_bytes, b.ring_bytes),
        target_private_bytes: bytes(a.target_private_bytes, b.target_private_bytes),
        hook_ns: add(a.hook_ns, b.hook_ns),
        program_cpu_ns: add(a.program_cpu_ns, b.program_cpu_ns),
        program_wall_ns: a.program_wall_ns.max(b.program_wall_ns),
    }
}
