//! Copies one session into the recording that several are merged into, with new numbers and times.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use heapledger_recording::{
    Annotation, AnnotationsEncoder, ChunkEntry, ChunkHead, ChunkKind, CodeExtent, Counts, Damage, Departure,
    ImageCounts, ImageEnd, ImageId, ImageStart, ImportedLocation, Mapping, MappingChange, MappingEvent, MemoryEncoder,
    MemorySample, Module, ModuleId, NamedLocation, Node, Record, Recording, RecordingError, ResidentEncoder,
    ResidentSnapshot, Sample, Site, Text, TextId, Thread, Time,
};

use super::segments::{self, Joined, Repeated};
use super::{Draft, Error, mappings};
use crate::error::Error as AnalysisError;

/// A session that is copied into another recording.
pub(super) struct Source<'r, 'a> {
    pub(super) joined: &'r Joined<'r, 'a>,
    starts: Vec<&'r ImageStart>,
    /// The nanoseconds to add to its times.
    shift: u64,
    images: HashMap<ImageId, ImageId>,
    modules: HashMap<ModuleId, ModuleId>,
    texts: HashMap<TextId, TextId>,
}

/// The modules and texts that have numbers already.
#[derive(Default)]
pub(super) struct Known {
    /// The number of modules.
    modules_count: u32,
    /// The modules, by path and build id.
    modules: HashMap<(Vec<u8>, Vec<u8>), ModuleId>,
    /// The texts, by their bytes, whether they name a task, and their category.
    texts: HashMap<(Vec<u8>, bool, Vec<u8>), TextId>,
}

impl<'r, 'a> Source<'r, 'a> {
    /// Assigns numbers to the images, modules and texts of a session.
    pub(super) fn new(
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
            // Modules with named places of another tool are numbered by each recording for itself;
            // generated code is that of one image.
            let is_own = named.contains(&module.module) || module.path == heapledger_core::GENERATED_CODE;
            let id = match is_own {
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
    pub(super) fn copy_names<W: Write>(
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

    pub(super) fn recordings(&self) -> impl DoubleEndedIterator<Item = &'r Recording<'a>> + '_ {
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

    fn mapping_event(&self, event: &MappingEvent) -> MappingEvent {
        let change = match event.change {
            MappingChange::Mapped { kind, protection, flags, file, offset } => {
                let file = self.texts.get(&file).copied().unwrap_or(TextId::UNKNOWN);
                MappingChange::Mapped { kind, protection, flags, file, offset }
            }
            change => change,
        };
        MappingEvent { time: self.time(event.time), change, ..*event }
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
    pub(super) fn end(&self) -> Time {
        let end = |recording: &Recording<'_>| {
            let end = recording.footer().map(|footer| footer.time);
            let last = || recording.chunks().iter().map(|chunk| chunk.head.time_last).max();
            end.or_else(last).unwrap_or_default()
        };
        self.recordings().map(end).max().unwrap_or_default()
    }

    pub(super) fn describe_images(&self, records: &mut Vec<Record>) {
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
    pub(super) fn copy<W: Write>(&self, draft: &mut Draft<W>, damage: &mut [Vec<Damage>]) -> Result<(), Error> {
        for &start in &self.starts {
            let image = self.images[&start.image];
            let nodes = self.joined.nodes(start, damage);
            draft.nodes(image, nodes.values().map(|node| self.node(node)))?;
            let mut samples: Vec<MemorySample> = Vec::new();
            let mut changes: Vec<MappingEvent> = Vec::new();
            for &(at, recording) in &self.joined.segments {
                self.copy_annotations(recording, start.image, draft, &mut damage[at])?;
                // A later segment begins with what is mapped already.
                let is_first = changes.is_empty();
                let of_segment = mappings::all(recording, start.image, &mut damage[at]);
                let news = of_segment.iter().filter(|event| is_first || !mappings::is_carried(event));
                changes.extend(news.map(|event| self.mapping_event(event)));
                let memory = recording.memory(start.image);
                damage[at].extend(memory.damage);
                let snapshots = recording.resident_snapshots(start.image);
                damage[at].extend(snapshots.damage);
                for snapshot in snapshots.rows {
                    let snapshot = ResidentSnapshot { time: self.time(snapshot.time), ..snapshot };
                    draft.put(|compressor| ResidentEncoder::encode(image, &snapshot, compressor))?;
                }
                samples.extend(memory.rows.iter().map(|it| MemorySample { time: self.time(it.time), ..*it }));
            }
            mappings::write(image, changes, draft)?;
            samples.sort_by_key(|sample| sample.time);
            draft.put(|compressor| MemoryEncoder::encode(image, &samples, compressor))?;
        }
        Ok(())
    }

    /// Copies events and checkpoints. Totals in a checkpoint count from the beginning of its
    /// segment, and the marks at the beginning of a segment repeat earlier ones; both are
    /// corrected.
    pub(super) fn copy_events<W: Write>(&self, draft: &mut Draft<W>, damage: &mut [Vec<Damage>]) -> Result<(), Error> {
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
                    Err(Error::Analysis(AnalysisError::Recording(RecordingError::Damaged(found)))) => {
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
