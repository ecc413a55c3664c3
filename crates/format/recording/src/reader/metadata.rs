//! The metadata records of a file, gathered by kind and sorted.

use std::mem::size_of;

use crate::error::{Damage, Reason};
use crate::frame::Unpacker;
use crate::head::{ChunkEntry, ChunkKind};
use crate::ids::ImageId;
use crate::messages::{
    Departure, ImageCounts, ImageEnd, ImageOrigin, ImageStart, ImportedLocation, Mapping, Module, Pause, ProcessCounts,
    Record, Sampling, Session, Text, Thread,
};
use crate::reader::directory::read_chunk;
use crate::{proto, records};

/// A process of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// Its images in order: each but the first was started by `exec`.
    pub images: Vec<ImageId>,
}

/// All metadata records, by kind.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    pub(super) session: Option<Session>,
    pub(super) images: Vec<ImageStart>,
    pub(super) image_ends: Vec<ImageEnd>,
    pub(super) image_counts: Vec<ImageCounts>,
    pub(super) process_counts: Vec<ProcessCounts>,
    pub(super) modules: Vec<Module>,
    pub(super) mappings: Vec<Mapping>,
    pub(super) threads: Vec<Thread>,
    pub(super) pauses: Vec<Pause>,
    pub(super) sampling: Vec<Sampling>,
    pub(super) texts: Vec<Text>,
    pub(super) imported_locations: Vec<ImportedLocation>,
    pub(super) departures: Vec<Departure>,
    pub(super) processes: Vec<Process>,
    /// For each of `images`, the index of its process.
    pub(super) process_indices: Vec<usize>,
}

impl Metadata {
    /// Reads the metadata chunks, up to about `table_bytes` of memory.
    pub(super) fn read(file: &[u8], chunks: &[ChunkEntry], table_bytes: usize, damage: &mut Vec<Damage>) -> Metadata {
        let mut metadata = Metadata::default();
        let mut unpacker = Unpacker::default();
        let mut left = table_bytes;
        for chunk in chunks.iter().filter(|chunk| chunk.kind == ChunkKind::Metadata) {
            let read = read_chunk(file, chunk, &mut unpacker)
                .and_then(|contents| metadata.add_chunk(contents, chunk.head.rows, &mut left));
            if let Err(reason) = read {
                damage.push(Damage { offset: chunk.offset, reason });
            }
            if left == 0 {
                break;
            }
        }
        metadata.settle();
        metadata
    }

    fn add_chunk(&mut self, contents: &[u8], rows: u32, left: &mut usize) -> Result<(), Reason> {
        let mut taken = 0;
        let mut sound = Ok(());
        for record in records::read::<proto::Record>(contents) {
            taken += 1;
            let Some(record) = record?.known() else { continue };
            match left.checked_sub(record.memory()) {
                Some(rest) => *left = rest,
                None => {
                    *left = 0;
                    return Err(Reason::Limit);
                }
            }
            match record {
                Record::Session(session) => self.session = Some(session),
                Record::ImageStart(mut start) => {
                    if start.parent_image.is_some_and(|parent| parent >= start.image) {
                        start.parent_image = None;
                        sound = Err(Reason::Invalid("an image that is older than its parent"));
                    }
                    self.images.push(start);
                }
                Record::ImageEnd(end) => self.image_ends.push(end),
                Record::Module(module) => self.modules.push(module),
                Record::Mapping(mapping) => self.mappings.push(mapping),
                Record::Thread(thread) => self.threads.push(thread),
                Record::ImageCounts(counts) => self.image_counts.push(counts),
                Record::ProcessCounts(counts) => self.process_counts.push(counts),
                Record::Pause(pause) => self.pauses.push(pause),
                Record::Sampling(sampling) => self.sampling.push(sampling),
                Record::Text(text) => self.texts.push(text),
                Record::ImportedLocation(location) => self.imported_locations.push(location),
                Record::Departure(departure) => self.departures.push(departure),
            }
        }
        if taken == rows { sound } else { Err(records::WRONG_NUMBER) }
    }

    /// Sorts the records.
    fn settle(&mut self) {
        keep_last(&mut self.images, |start| start.image);
        keep_last(&mut self.image_ends, |end| end.image);
        keep_last(&mut self.image_counts, |counts| counts.image);
        keep_last(&mut self.process_counts, |counts| counts.first_image);
        keep_last(&mut self.pauses, |pause| pause.from);
        keep_last(&mut self.sampling, |sampling| sampling.from);
        keep_last(&mut self.texts, |text| text.text);
        keep_last(&mut self.imported_locations, |location| (location.module, location.offset));
        keep_last(&mut self.modules, |module| module.module);
        keep_last(&mut self.threads, |thread| (thread.image, thread.thread));
        self.departures.sort();
        self.mappings.sort_by_key(|mapping| mapping.image);
        (self.processes, self.process_indices) = processes(&self.images);
    }
}

/// Orders by key; the last of several items with the same key stays.
fn keep_last<T, K: Ord>(items: &mut Vec<T>, key_of: impl Fn(&T) -> K) {
    items.sort_by_key(&key_of);
    items.dedup_by(|later, earlier| {
        let same = key_of(later) == key_of(earlier);
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
}

/// Returns the processes, and the index of each image's process.
fn processes(images: &[ImageStart]) -> (Vec<Process>, Vec<usize>) {
    let mut processes: Vec<Process> = Vec::new();
    let mut indices: Vec<usize> = Vec::with_capacity(images.len());
    for start in images {
        let before = start
            .parent_image
            .filter(|_| start.how == ImageOrigin::Exec)
            .and_then(|parent| images.binary_search_by_key(&parent, |start| start.image).ok())
            .map(|parent| indices[parent])
            .filter(|&index| processes[index].pid == start.pid);
        let index = before.unwrap_or(processes.len());
        match processes.get_mut(index) {
            Some(process) => process.images.push(start.image),
            None => processes.push(Process { pid: start.pid, images: vec![start.image] }),
        }
        indices.push(index);
    }
    (processes, indices)
}

impl Record {
    /// Returns roughly how much memory a record takes.
    fn memory(&self) -> usize {
        let many =
            |strings: &[Vec<u8>]| -> usize { strings.iter().map(|string| size_of::<Vec<u8>>() + string.len()).sum() };
        let behind = match self {
            Record::Session(Session { tool_version, command, directory, options, .. }) => {
                tool_version.len() + many(command) + directory.len() + options.len()
            }
            Record::ImageStart(ImageStart { executable, argv, .. }) => executable.len() + many(argv),
            Record::Module(Module { path, build_id, .. }) => path.len() + build_id.len(),
            Record::Thread(Thread { name, .. }) => name.len(),
            Record::Text(Text { bytes, category, .. }) => bytes.len() + category.len(),
            Record::ImportedLocation(ImportedLocation { functions, .. }) => many(functions),
            Record::Departure(Departure { path, .. }) => path.len(),
            Record::ImageEnd(_)
            | Record::Mapping(_)
            | Record::ImageCounts(_)
            | Record::ProcessCounts(_)
            | Record::Pause(_)
            | Record::Sampling(_) => 0,
        };
        size_of::<Record>() + behind
    }
}
