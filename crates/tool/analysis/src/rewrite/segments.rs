//! Joins the consecutive segments of a session (`record --rotate`) into one recording.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io::Write;

use heapledger_core::StackId;
use heapledger_recording::{
    ChunkHead, Counts, Damage, EventChunk, EventKind, EventsBuffer, EventsEncoder, FreedBlock, ImageEnd, ImageId,
    ImageStart, Mapping, Mark, MarkedBlocks, Node, NodeCache, Recording, RecordingError, StackTree, Time,
};

use super::{Draft, Error};
use crate::overview::add_calls;

/// One session among those to be merged: its recording, or its segments in order.
pub(super) struct Joined<'r, 'a> {
    /// The recordings, each with its number among all recordings. At least one.
    pub(super) segments: Vec<(usize, &'r Recording<'a>)>,
}

/// Sorts recordings by session, in the order in which the first recording of each was given.
///
/// Fails if a segment is given twice, or if one is missing between two others.
pub(super) fn by_session<'r, 'a>(recordings: &[&'r Recording<'a>]) -> Result<Vec<Joined<'r, 'a>>, Error> {
    let mut sessions: Vec<Joined<'r, 'a>> = Vec::new();
    for (at, &recording) in recordings.iter().enumerate() {
        let same = |joined: &&mut Joined<'r, 'a>| joined.is_session_of(recording);
        match sessions.iter_mut().find(same) {
            Some(joined) => joined.segments.push((at, recording)),
            None => sessions.push(Joined { segments: vec![(at, recording)] }),
        }
    }
    for joined in &mut sessions {
        joined.segments.sort_by_key(|(_, recording)| number(recording));
        for pair in joined.segments.windows(2) {
            let [(before, _), (at, _)] = [pair[0], pair[1]];
            let [first, second] = [pair[0].1, pair[1].1].map(number);
            if first == second {
                return Err(Error::SegmentTwice { at, number: second });
            }
            if first + 1 != second {
                return Err(Error::SegmentMissing { before, at, number: first + 1 });
            }
        }
    }
    Ok(sessions)
}

/// Returns the number of a segment in its session, from 1; 0 for a recording of a whole session.
fn number(recording: &Recording<'_>) -> u32 {
    recording.session().map_or(0, |session| session.segment)
}

impl<'r, 'a> Joined<'r, 'a> {
    /// Returns the earliest recording.
    pub(super) fn first(&self) -> &'r Recording<'a> {
        self.segments[0].1
    }

    /// Returns the latest recording.
    pub(super) fn last(&self) -> &'r Recording<'a> {
        self.segments[self.segments.len() - 1].1
    }

    /// Returns the recordings in order.
    pub(super) fn recordings(&self) -> impl DoubleEndedIterator<Item = &'r Recording<'a>> + '_ {
        self.segments.iter().map(|&(_, recording)| recording)
    }

    /// True if a recording is another segment of the session.
    fn is_session_of(&self, other: &Recording<'_>) -> bool {
        let (Some(own), Some(other)) = (self.first().session(), other.session()) else { return false };
        own.segment > 0
            && other.segment > 0
            && (own.start_unix_ns, &own.command, &own.directory, &own.tool_version, own.clock)
                == (other.start_unix_ns, &other.command, &other.directory, &other.tool_version, other.clock)
    }

    /// Returns the time when the recording begins; 0 if it begins with its session.
    pub(super) fn begins(&self) -> Time {
        self.first().session().map_or(Time(0), |session| session.begins)
    }

    /// Returns the start of each image, in ascending order of ids. If several segments have an
    /// image, the first counts.
    pub(super) fn images(&self) -> Vec<&'r ImageStart> {
        let mut images = BTreeMap::new();
        for start in self.recordings().flat_map(|recording| recording.images()) {
            images.entry(start.image).or_insert(start);
        }
        images.into_values().collect()
    }

    /// Returns the end of an image. In earlier segments it only says that the image went on.
    pub(super) fn image_end(&self, image: ImageId) -> Option<&'r ImageEnd> {
        self.recordings().rfind(|recording| recording.image(image).is_some())?.image_end(image)
    }

    /// Returns the mappings of an image, without those that later segments repeat.
    pub(super) fn mappings(&self, image: ImageId) -> Vec<&'r Mapping> {
        let mut seen = HashSet::new();
        let all = self.recordings().flat_map(|recording| recording.mappings(image));
        all.filter(|it| seen.insert((it.module, it.start, it.end, it.bias, it.time))).collect()
    }

    /// Returns the totals of an image. Peaks are the highest of single segments.
    pub(super) fn image_counts(&self, image: ImageId) -> Option<Counts> {
        let all = self.recordings().filter_map(|recording| recording.image_counts(image));
        all.fold(None, |before, counts| Some(following(before.as_ref(), counts)))
    }

    /// Returns the nodes of an image from all segments. Adds damaged nodes to `damage`, by segment.
    pub(super) fn nodes(&self, start: &ImageStart, damage: &mut [Vec<Damage>]) -> BTreeMap<StackId, Node> {
        let mut nodes = BTreeMap::new();
        for &(at, recording) in &self.segments {
            let table = recording.nodes(start.image);
            damage[at].extend_from_slice(table.damage());
            // Later segments also repeat the nodes that the image has from its parent.
            for node in table.nodes().iter().filter(|node| node.id >= start.fork_node_base) {
                nodes.entry(node.id).or_insert(*node);
            }
        }
        nodes
    }
}

/// Returns the totals of an image up to a moment in a segment, from the totals `before` the segment
/// and the `counts` of the segment alone.
pub(super) fn following(before: Option<&Counts>, counts: &Counts) -> Counts {
    let Some(before) = before else { return *counts };
    let mut sum = Counts {
        bytes_live_end: counts.bytes_live_end,
        blocks_live_end: counts.blocks_live_end,
        bytes_inherited_live_end: counts.bytes_inherited_live_end,
        blocks_inherited_live_end: counts.blocks_inherited_live_end,
        ..*before
    };
    add_calls(&mut sum, counts);
    // Threads that went on are counted in both segments.
    sum.threads = before.threads.max(counts.threads);
    sum.blocks_live_max = before.blocks_live_max.max(counts.blocks_live_max);
    if counts.bytes_live_max > before.bytes_live_max {
        sum.bytes_live_max = counts.bytes_live_max;
        sum.bytes_live_max_time = counts.bytes_live_max_time;
        sum.blocks_at_bytes_max = counts.blocks_at_bytes_max;
    }
    if let Some(errors) = &mut sum.errors {
        let later = counts.errors.unwrap_or_default();
        errors.live_end = later.live_end;
        if sum.bytes_live_max > before.bytes_live_max {
            errors.live_at_peak = later.live_at_peak;
        }
    }
    sum
}

/// The marks of memory reporters in an image, followed over all segments. Each segment begins by
/// repeating the marks that still hold; if these were kept, blocks would be marked twice.
pub(super) struct Repeated {
    marked: MarkedBlocks,
    /// The image's stacks, by which reporters are identified.
    tree: StackTree,
    /// The repeated marks with which the segment is still expected to begin.
    expected: VecDeque<Mark>,
    buffer: EventsBuffer,
}

impl Repeated {
    /// Returns `None` if no segment but the first has marks.
    pub(super) fn new(joined: &Joined<'_, '_>, image: ImageId) -> Option<Repeated> {
        let mut later = joined.recordings().skip(1);
        let has_marks = |recording: &Recording<'_>| recording.event_chunks(image).any(|chunk| chunk.head().marks > 0);
        later.any(has_marks).then(|| Repeated {
            marked: MarkedBlocks::default(),
            tree: StackTree::default(),
            expected: VecDeque::new(),
            buffer: EventsBuffer::default(),
        })
    }

    /// Begins a segment.
    pub(super) fn begin(&mut self, recording: &Recording<'_>, image: ImageId) {
        self.expected = self.marked.as_marks().into();
        self.tree = recording.stack_tree(image, &mut NodeCache::default());
    }

    /// Applies the marks of a chunk. Returns how many of the marks at its beginning are repeated
    /// ones.
    pub(super) fn follow(&mut self, chunk: &EventChunk<'_>) -> Result<usize, RecordingError> {
        let Repeated { marked, tree, expected, buffer } = self;
        let events = chunk.decode(buffer)?;
        let mut marks = events.marks().iter().peekable();
        let mut repeated = 0;
        while let Some((0, mark)) = marks.peek()
            && expected.front() == Some(mark)
        {
            expected.pop_front();
            marks.next();
            repeated += 1;
        }
        if marks.peek().is_some() || !events.as_slice().is_empty() {
            expected.clear();
        }
        let reporter = |by| tree.get(by).and_then(Node::text);
        for (index, event) in events.as_slice().iter().map(Some).chain([None]).enumerate() {
            while let Some((_, mark)) = marks.next_if(|(at, _)| *at as usize == index) {
                marked.apply(mark, |one, other| reporter(one) == reporter(other));
            }
            if let Some(EventKind::Free { block: FreedBlock::Known(block) })
            | Some(EventKind::Realloc { old: FreedBlock::Known(block), .. }) = event.map(|event| event.kind)
            {
                marked.free(block);
            }
        }
        Ok(repeated)
    }
}

/// Writes a chunk of events without its first `repeated` marks, under a changed head.
pub(super) fn without_marks<W: Write>(
    draft: &mut Draft<W>,
    chunk: &EventChunk<'_>,
    repeated: usize,
    change: impl FnOnce(ChunkHead) -> ChunkHead,
) -> Result<(), Error> {
    let mut buffer = EventsBuffer::default();
    let events = chunk.decode(&mut buffer)?;
    let head = chunk.head();
    let mut encoder = EventsEncoder::new(head.image.unwrap_or_default())
        .with_tick_ns(head.tick_ns)
        .starting_at(head.serial_first, head.live_before);
    let mut marks = events.marks().iter().skip(repeated).peekable();
    let mut time = head.time_first;
    for (index, event) in events.as_slice().iter().map(Some).chain([None]).enumerate() {
        while let Some((_, mark)) = marks.next_if(|(at, _)| *at as usize == index) {
            encoder.push_mark(time, mark)?;
        }
        let Some(event) = event else { break };
        time = event.time;
        // Only the head has live totals, and the old head is kept.
        encoder.push(event, &events.extras(index), head.live_before)?;
    }
    let Some(raw) = encoder.finish_raw() else { return Ok(()) };
    let (bytes_live_max, live_after) = (head.bytes_live_max, head.live_after);
    let head = change(ChunkHead { bytes_live_max, live_after, ..*raw.head() });
    draft.put(|compressor| Ok([raw.with_head(head).compress(compressor)]))
}
