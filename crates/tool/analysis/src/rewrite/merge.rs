//! Several recordings as one.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use heapledger_core::Bytes;
use heapledger_recording::{
    Annotation, AnnotationsEncoder, ChunkEntry, ChunkHead, ChunkKind, Counts, Damage, Error as RecordingError, Footer,
    ImageCounts, ImageEnd, ImageId, ImageStart, Mapping, MemoryEncoder, MemorySample, Module, ModuleId, Node, Pause,
    Place, Record, Recording, RunCosts, Sampling, Session, Text, TextId, Thread, Time,
};

use super::{Draft, Error};

/// Writes the recordings side by side into one draft, to be [counted](Draft::count_and_finish): with the footer to finish
/// it with and, of each recording, what could not be read beyond what opening the recordings found.
///
/// Times are counted from the beginning of the earliest, by the clocks of the machines that recorded. Images and modules
/// are numbered anew; modules with the same path and build id are one, and so are equal texts. Pids stay as they are, so two processes may have
/// the same. A pause in one of them is one of all. Chunks of a newer version are left out.
///
/// Fails for recordings that begin in mid-run, and for those without events.
pub fn merge<W: Write>(
    recordings: &[&Recording<'_>],
    draft: &mut Draft<W>,
) -> Result<(Footer, Vec<Vec<Damage>>), Error> {
    for (at, session) in recordings.iter().enumerate().filter_map(|(at, one)| Some((at, one.session()?))) {
        if session.begins > Time(0) {
            return Err(Error::BeginsInMidRun(at));
        }
        if session.totals_only {
            return Err(Error::WithoutEvents(at));
        }
    }
    let start = |recording: &Recording<'_>| recording.session().map_or(0, |session| session.start_unix_ns);
    let first = recordings.iter().min_by_key(|recording| start(recording));
    let earliest = first.map_or(0, |recording| start(recording));

    let mut records = Vec::new();
    if let Some(session) = first.and_then(|recording| recording.session()) {
        let options = format!("merged from {} recordings", recordings.len());
        let samples = recordings.iter().any(|recording| recording.is_sample());
        draft.begin(samples);
        records.push(Record::Session(Session { options, samples, ..session.clone() }));
    }
    let mut known = Known::default();
    let mut images = 0;
    let sources: Vec<Source<'_, '_>> = recordings
        .iter()
        .map(|recording| {
            let shift = start(recording).saturating_sub(earliest);
            Source::new(recording, shift, &mut images, &mut known, &mut records)
        })
        .collect();
    for source in &sources {
        source.describe_images(&mut records);
        records.extend(source.recording.pauses().iter().map(|pause| {
            let (from, until) = (source.time(pause.from), pause.until.unwrap_or(source.recording_end()));
            Record::Pause(Pause { from, until: Some(source.time(until)) })
        }));
    }
    for source in &sources {
        let sampling = source.recording.sampling().iter();
        records.extend(sampling.map(|one| Record::Sampling(Sampling { from: source.time(one.from), ..*one })));
    }
    draft.records(&records)?;

    let mut footer = Footer { complete: true, ..Footer::default() };
    let mut damages = Vec::new();
    for source in &sources {
        let mut damage = Vec::new();
        source.copy(draft, &mut damage)?;
        footer.time = footer.time.max(source.time(source.recording_end()));
        footer.complete &= source.recording.complete() && damage.is_empty();
        damages.push(damage);
        if let Some(own) = source.recording.footer() {
            footer.costs = sum(footer.costs, own.costs);
        }
    }
    Ok((footer, damages))
}

/// A recording on its way into another.
struct Source<'r, 'a> {
    recording: &'r Recording<'a>,
    /// Nanoseconds to add to its times.
    shift: u64,
    images: HashMap<ImageId, ImageId>,
    modules: HashMap<ModuleId, ModuleId>,
    texts: HashMap<TextId, TextId>,
}

/// What has a number already.
#[derive(Default)]
struct Known {
    /// How many there are.
    modules_count: u32,
    /// By path and build id.
    modules: HashMap<(Vec<u8>, Vec<u8>), ModuleId>,
    /// By the text, whether it names a task, and its category.
    texts: HashMap<(Vec<u8>, bool, Vec<u8>), TextId>,
}

impl<'r, 'a> Source<'r, 'a> {
    /// Gives numbers to its images, modules and texts.
    fn new(
        recording: &'r Recording<'a>,
        shift: u64,
        next_image: &mut u32,
        known: &mut Known,
        records: &mut Vec<Record>,
    ) -> Source<'r, 'a> {
        let mut images = HashMap::new();
        for start in recording.images() {
            images.insert(start.image, ImageId(*next_image));
            *next_image += 1;
        }
        let named: HashSet<ModuleId> = recording.places().iter().map(|place| place.module).collect();
        let mut modules = HashMap::new();
        for module in recording.modules() {
            let next = ModuleId(known.modules_count + 1);
            // Places with names of another tool's are numbered by each recording for itself.
            let id = match named.contains(&module.module) {
                true => next,
                false => *known.modules.entry((module.path.clone(), module.build_id.clone())).or_insert(next),
            };
            if id == next {
                known.modules_count += 1;
                records.push(Record::Module(Module { module: id, ..module.clone() }));
            }
            modules.insert(module.module, id);
        }
        for place in recording.places() {
            let module = modules.get(&place.module).copied().unwrap_or(ModuleId::UNKNOWN);
            records.push(Record::Place(Place { module, ..place.clone() }));
        }
        let mut texts = HashMap::new();
        for text in recording.texts() {
            let next = TextId(known.texts.len() as u32 + 1);
            let key = (text.bytes.clone(), text.is_task, text.category.clone());
            let id = *known.texts.entry(key).or_insert(next);
            if id == next {
                records.push(Record::Text(Text { text: id, ..text.clone() }));
            }
            texts.insert(text.text, id);
        }
        Source { recording, shift, images, modules, texts }
    }

    fn time(&self, time: Time) -> Time {
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

    fn counts(&self, counts: &Counts) -> Counts {
        Counts { bytes_live_max_time: self.time(counts.bytes_live_max_time), ..*counts }
    }

    /// When it ended, by its own clock.
    fn recording_end(&self) -> Time {
        let end = self.recording.footer().map(|footer| footer.time);
        let last = || self.recording.chunks().iter().map(|chunk| chunk.head.time_last).max();
        end.or_else(last).unwrap_or_default()
    }

    fn describe_images(&self, records: &mut Vec<Record>) {
        for (old, &image) in self.recording.images().iter().map(|start| (start, &self.images[&start.image])) {
            records.push(Record::ImageStart(ImageStart {
                image,
                parent_image: old.parent_image.and_then(|parent| self.images.get(&parent).copied()),
                time: self.time(old.time),
                ..old.clone()
            }));
            records.extend(self.recording.mappings(old.image).iter().map(|mapping| {
                let (module, time) = (self.module(mapping.module), self.time(mapping.time));
                Record::Mapping(Mapping { image, module, time, ..*mapping })
            }));
            records.extend(self.recording.threads(old.image).iter().map(|thread| {
                let (start, end) = (self.time(thread.start), thread.end.map(|end| self.time(end)));
                Record::Thread(Thread { image, start, end, ..thread.clone() })
            }));
            if let Some(end) = self.recording.image_end(old.image) {
                records.push(Record::ImageEnd(ImageEnd { image, time: self.time(end.time), ..*end }));
            }
            // What only these tell (lost events) is taken over by the count.
            if let Some(counts) = self.recording.image_counts(old.image) {
                records.push(Record::ImageCounts(ImageCounts { image, counts: self.counts(counts) }));
            }
        }
    }

    fn copy<W: Write>(&self, draft: &mut Draft<W>, damage: &mut Vec<Damage>) -> Result<(), Error> {
        for start in self.recording.images() {
            let image = self.images[&start.image];
            let table = self.recording.nodes(start.image);
            damage.extend_from_slice(table.damage());
            draft.nodes(image, table.nodes().iter().map(|node| self.node(node)))?;
            self.copy_annotations(start.image, image, draft, damage)?;
            let memory = self.recording.memory(start.image);
            damage.extend(memory.damage);
            let shifted = |sample: &MemorySample| MemorySample { time: self.time(sample.time), ..*sample };
            let samples: Vec<MemorySample> = memory.rows.iter().map(shifted).collect();
            draft.put(|compressor| MemoryEncoder::encode(image, &samples, compressor))?;
        }
        for chunk in self.recording.chunks() {
            let is_copied = matches!(chunk.kind, ChunkKind::Events | ChunkKind::Checkpoint);
            let Some(head) = self.head(chunk).filter(|_| is_copied) else { continue };
            match self.recording.copy_chunk(chunk, &head) {
                Ok(copy) => draft.chunk(&copy)?,
                Err(RecordingError::Damaged(found)) => damage.push(found),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The head of a chunk in the new file; its times are the only ones in events and checkpoints that are absolute.
    fn head(&self, chunk: &ChunkEntry) -> Option<ChunkHead> {
        let old = &chunk.head;
        Some(ChunkHead {
            image: Some(*self.images.get(&old.image?)?),
            time_first: self.time(old.time_first),
            time_last: self.time(old.time_last),
            counts: old.counts.as_ref().map(|counts| self.counts(counts)),
            ..*old
        })
    }

    fn copy_annotations<W: Write>(
        &self,
        old: ImageId,
        image: ImageId,
        draft: &mut Draft<W>,
        damage: &mut Vec<Damage>,
    ) -> Result<(), Error> {
        let mut encoder = AnnotationsEncoder::new(image);
        for annotation in self.recording.annotations(old) {
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

/// What several recordings cost.
fn sum(a: RunCosts, b: RunCosts) -> RunCosts {
    let add = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a.saturating_add(b.unwrap_or(0))));
    let bytes = |a: Option<Bytes>, b: Option<Bytes>| add(a.map(|a| a.0), b.map(|b| b.0)).map(Bytes);
    RunCosts {
        collector_cpu_ns: add(a.collector_cpu_ns, b.collector_cpu_ns),
        // Recorders of different runs: the largest is the largest.
        collector_rss_max: a.collector_rss_max.max(b.collector_rss_max),
        ring_bytes: bytes(a.ring_bytes, b.ring_bytes),
        target_private_bytes: bytes(a.target_private_bytes, b.target_private_bytes),
        hook_ns: add(a.hook_ns, b.hook_ns),
        program_cpu_ns: add(a.program_cpu_ns, b.program_cpu_ns),
        program_wall_ns: a.program_wall_ns.max(b.program_wall_ns),
    }
}
