//! A recording of the mappings of another one: each mapping is a block.
//!
//! So every question about blocks can be asked about mappings. A mapping that is unmapped in parts
//! is as many blocks from its beginning, so that the amounts are right at every moment. The use of
//! the memory is the heap of a block ([`MappedUse`]), and its file the stamp. A block whose use
//! changes is reattributed or reallocated.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Write;

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{
    Damage, Event, EventKind, EventsEncoder, Extras, Footer, FreedBlock, ImageId, ImageStart, Live, MemoryEncoder,
    ModuleId, Node, NodeCache, NodeKind, Record, Recording, RecordingError, Sampled, Session, StackTree, Text, TextId,
    Thread, Time,
};

use super::{Draft, Error};
use crate::error::Error as AnalysisError;

mod fragments;
#[cfg(test)]
mod tests;
mod totals;
mod uses;

use fragments::{CHANGES_MAX, Fragments, When};
pub use totals::{MappedTotals, mapped_totals};
pub use uses::MappedUse;

/// The resolution of times. Calls of different processes are this far apart.
const TICK_NS: u32 = 1_000;

/// A use that changes at most this long after another event counts from that event on.
///
/// [Reattributed](EventKind::Reattributed) blocks have the time of the event before. So memory
/// whose use changes later is reallocated, which counts it once more among all that was mapped.
const SOON_NS: u64 = 1_000_000;

/// Writes the mappings of a recording as blocks into a draft that is then to be
/// [counted](Draft::count_and_finish). Returns the footer to finish it with, and the damage that
/// opening the recording did not find.
///
/// Times, images, threads and modules are those of the recording; also of a sample, since all
/// mappings are recorded. Events without a thread get one of their own, with the name `(not seen)`.
///
/// Memory: some 100 bytes for each mapping and change of one image, and its nodes. A change of
/// memory that is unmapped in parts later counts for each part.
///
/// # Errors
///
/// Fails with [`NoMappings`](AnalysisError::NoMappings) if mappings were not recorded, if there are
/// more than 16 million changes of an image's mappings, or if writing fails.
pub fn mappings<W: Write>(recording: &Recording<'_>, draft: &mut Draft<W>) -> Result<(Footer, Vec<Damage>), Error> {
    if !recording.has_mapping_events() {
        return Err(AnalysisError::NoMappings.into());
    }
    let mut damage = Vec::new();
    draft.records(&descriptions(recording))?;
    let mut places = HashSet::new();
    let mut cache = NodeCache::default();
    let names_of_uses = names_of_uses(recording);
    for start in recording.images() {
        let mut image = MappedImage { recording, start, names_of_uses: &names_of_uses, damage: Vec::new() };
        image.write(draft, &mut cache, &mut places)?;
        damage.append(&mut image.damage);
    }
    let mut names = recording.names();
    draft.names(&names.iter().filter(|name| places.contains(&(name.module, name.offset))).collect::<Vec<_>>())?;
    let modules: HashSet<ModuleId> = places.iter().map(|(module, _)| *module).collect();
    draft.extents(&names.extents().filter(|extent| modules.contains(&extent.module)).collect::<Vec<_>>())?;
    damage.append(&mut names.damage);
    let last = recording.chunks().iter().map(|chunk| chunk.head.time_last).max().unwrap_or_default();
    let (time, exit) = recording.footer().map_or((last, None), |footer| (footer.time, footer.exit));
    let complete = recording.complete() && damage.is_empty();
    Ok((Footer { time, complete, exit, ..Footer::default() }, damage))
}

/// Returns the records about the session, its modules and texts.
fn descriptions(recording: &Recording<'_>) -> Vec<Record> {
    let session = recording.session().cloned().unwrap_or_default();
    let session = Session { begins: Time(0), segment: 0, samples: false, totals_only: false, ..session };
    let mut records = vec![Record::Session(session)];
    records.extend(recording.modules().iter().cloned().map(Record::Module));
    records.extend(recording.imported_locations().iter().cloned().map(Record::ImportedLocation));
    records.extend(recording.texts().iter().cloned().map(Record::Text));
    let names = names_of_uses(recording);
    records.extend(
        names
            .into_iter()
            .map(|(it, text)| Record::Text(Text { text, bytes: it.name().as_bytes().to_vec(), ..Text::default() })),
    );
    records
}

/// Returns the texts that get the names of the uses: the ids behind those that are taken.
fn names_of_uses(recording: &Recording<'_>) -> HashMap<MappedUse, TextId> {
    let last = recording.texts().iter().map(|text| text.text.0).max().unwrap_or(0);
    (1..).zip(MappedUse::ALL).map(|(number, it)| (it, TextId(last.saturating_add(number)))).collect()
}

/// An image whose mappings are being written.
struct MappedImage<'r, 'a> {
    recording: &'r Recording<'a>,
    start: &'r ImageStart,
    names_of_uses: &'r HashMap<MappedUse, TextId>,
    damage: Vec<Damage>,
}

/// The effect of an event on a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    End,
    Begin(MappedUse),
    Use(MappedUse),
}

impl MappedImage<'_, '_> {
    fn write<W: Write>(
        &mut self,
        draft: &mut Draft<W>,
        cache: &mut NodeCache,
        places: &mut HashSet<(ModuleId, u64)>,
    ) -> Result<(), Error> {
        let image = self.start.image;
        let fragments = fragments_of(self.recording, image, &mut self.damage)?;
        let known = self.recording.threads(image);
        let unseen = ThreadId(known.iter().map(|thread| thread.thread.0.saturating_add(1)).max().unwrap_or(0));
        draft.records(&self.records(unseen))?;
        let tree = self.recording.stack_tree(image, cache);
        self.damage.extend(tree.damage().copied());
        let mut stacks = Stacks::new(&tree, fragments.origins.iter().map(|origin| origin.stack));
        self.events(&fragments, &mut stacks, unseen, draft)?;
        let frames = stacks.nodes.values().filter(|node| node.kind == NodeKind::Frame);
        places.extend(frames.map(|node| (node.module, node.offset)));
        draft.nodes(image, stacks.nodes.into_values())?;
        let memory = self.recording.memory(image);
        self.damage.extend(memory.damage);
        draft.put(|compressor| MemoryEncoder::encode(image, &memory.rows, compressor))
    }

    fn records(&self, unseen: ThreadId) -> Vec<Record> {
        let (recording, image) = (self.recording, self.start.image);
        let mut records = vec![Record::ImageStart(ImageStart {
            carried: None,
            inherited_bytes: Bytes(0),
            inherited_blocks: Blocks(0),
            // Mappings have no usable sizes.
            allocator: AllocatorKind::Unknown,
            allocator_version: AllocatorVersion::default(),
            // All nodes that it needs are its own.
            fork_node_base: StackId::ROOT,
            ..self.start.clone()
        })];
        records.extend(recording.mappings(image).iter().copied().map(Record::Mapping));
        records.extend(recording.threads(image).iter().cloned().map(Record::Thread));
        records.push(Record::Thread(Thread {
            image,
            thread: unseen,
            name: b"(not seen)".to_vec(),
            start: self.start.time,
            ..Thread::default()
        }));
        records.extend(recording.image_end(image).copied().map(Record::ImageEnd));
        records
    }

    /// Writes what happened to all fragments, in the order of the events.
    fn events<W: Write>(
        &self,
        fragments: &Fragments,
        stacks: &mut Stacks<'_>,
        unseen: ThreadId,
        draft: &mut Draft<W>,
    ) -> Result<(), Error> {
        let mut effects: Vec<(When, Effect, u32)> = Vec::new();
        for (at, fragment) in (0..).zip(&fragments.fragments) {
            let uses = fragments.uses(fragment);
            // Fragments that were one have the same changes, each of which is an effect on each.
            if effects.len() + uses.len() > CHANGES_MAX {
                return Err(AnalysisError::MappingsLimit.into());
            }
            let effect = |(index, (when, it)): (usize, &(When, MappedUse))| match index {
                0 => (*when, Effect::Begin(*it), at),
                _ => (*when, Effect::Use(*it), at),
            };
            effects.extend(uses.iter().enumerate().map(effect));
            effects.extend(fragment.end.map(|(when, _)| (when, Effect::End, at)));
        }
        effects.sort_unstable();
        let mut encoder = EventsEncoder::new(self.start.image).with_tick_ns(TICK_NS);
        let mut serials: HashMap<u32, Serial> = HashMap::new();
        let mut live = Live::default();
        // The time of the latest event that is not a change of a use.
        let mut time = Time(0);
        for (when, effect, at) in effects {
            let fragment = &fragments.fragments[at as usize];
            let origin = &fragments.origins[fragment.origin as usize];
            // A mapping has none of the entry points of blocks: the plainest stand for them.
            let (api, kind, thread) = match effect {
                Effect::Begin(mapped_use) => {
                    let serial = encoder.next_serial();
                    serials.insert(at, serial);
                    live.bytes.0 = live.bytes.0.saturating_add(fragment.bytes);
                    live.blocks.0 += 1;
                    let stack = stacks.node(origin.stack, self.names_of_uses[&mapped_use], origin.file);
                    (Api::Malloc, EventKind::Alloc { serial, size: Bytes(fragment.bytes), stack }, fragment.begin.1)
                }
                Effect::Use(mapped_use) => {
                    let Some(&block) = serials.get(&at) else { continue };
                    let stack = stacks.node(origin.stack, self.names_of_uses[&mapped_use], origin.file);
                    let is_soon = when.time.0 - time.0 <= SOON_NS && !encoder.is_empty();
                    let kind = match is_soon {
                        true => EventKind::Reattributed { block, stack },
                        false => {
                            let (old, serial) = (FreedBlock::Known(block), encoder.next_serial());
                            serials.insert(at, serial);
                            EventKind::Realloc { old, serial, size: Bytes(fragment.bytes), stack }
                        }
                    };
                    (Api::Realloc, kind, fragment.begin.1)
                }
                Effect::End => {
                    let Some(serial) = serials.remove(&at) else { continue };
                    live.bytes.0 = live.bytes.0.saturating_sub(fragment.bytes);
                    live.blocks.0 -= 1;
                    let thread = fragment.end.and_then(|(_, thread)| thread);
                    (Api::Free, EventKind::Free { block: FreedBlock::Known(serial) }, thread)
                }
            };
            let thread = thread.unwrap_or(unseen);
            if encoder.is_full() {
                draft.put(|compressor| Ok(encoder.finish(compressor)))?;
            }
            let event = Event { time: when.time, thread, call: api.into(), kind, sampled: Sampled::NOT };
            encoder.push(&event, &Extras::NONE, live)?;
            if !matches!(kind, EventKind::Reattributed { .. }) {
                time = when.time;
            }
        }
        draft.put(|compressor| Ok(encoder.finish(compressor)))
    }
}

/// Returns the fragments of an image's mappings.
fn fragments_of(
    recording: &Recording<'_>,
    image: ImageId,
    damage: &mut Vec<Damage>,
) -> Result<Fragments, AnalysisError> {
    let mut fragments = Fragments::default();
    for event in recording.mapping_events(image) {
        match event {
            Ok(event) => fragments.add(&event).map_err(|_| AnalysisError::MappingsLimit)?,
            Err(RecordingError::Damaged(found)) => damage.push(found),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(fragments)
}

/// The nodes that are written: those of the stacks that map memory, and below each a heap for the
/// use of the memory and a stamp for its file.
struct Stacks<'t> {
    tree: &'t StackTree,
    nodes: BTreeMap<StackId, Node>,
    ids: HashMap<(StackId, NodeKind, TextId), StackId>,
    next: u32,
}

impl<'t> Stacks<'t> {
    fn new(tree: &'t StackTree, stacks: impl Iterator<Item = StackId>) -> Stacks<'t> {
        let mut nodes: BTreeMap<StackId, Node> = BTreeMap::new();
        for stack in stacks.collect::<BTreeSet<StackId>>() {
            let mut open = vec![stack];
            while let Some(id) = open.pop() {
                if let Some(node) = tree.get(id)
                    && nodes.insert(id, *node).is_none()
                {
                    open.push(node.parent);
                    open.extend(tree.path(id).next().map(|scope| scope.id));
                }
            }
        }
        let next = nodes.keys().next_back().map_or(1, |last| last.0 + 1);
        Stacks { tree, nodes, ids: HashMap::new(), next }
    }

    /// Returns the stack of memory with this use and this file. If there are more stacks than a
    /// recording can have, it is one without a use.
    fn node(&mut self, stack: StackId, mapped_use: TextId, file: TextId) -> StackId {
        let stack = if self.tree.get(stack).is_some() { stack } else { StackId::ROOT };
        let heap = self.child(stack, NodeKind::Heap, mapped_use);
        self.child(heap, NodeKind::Stamp, if file == TextId::UNKNOWN { mapped_use } else { file })
    }

    fn child(&mut self, parent: StackId, kind: NodeKind, text: TextId) -> StackId {
        let id = StackId(self.next);
        if id > StackId::MAX {
            return parent;
        }
        match self.ids.entry((parent, kind, text)) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(place) => {
                self.next += 1;
                let (module, offset) = (ModuleId::UNKNOWN, text.0.into());
                self.nodes.insert(id, Node { id, parent, kind, module, offset, is_unproven: false });
                *place.insert(id)
            }
        }
    }
}
