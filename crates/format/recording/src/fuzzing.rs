//! One body for the fuzz target and the property tests, and the small recording that both start
//! from.
//!
//! Random bytes never get past a checksum, so [`exercise`] also seals its input: it wraps heads and
//! contents in chunks whose checksums fit, or changes the contents of a valid recording and seals
//! those.

use std::sync::OnceLock;

use heapledger_core::StackId;

use crate::frame::{self, ChunkFrame, TRAILER, Trailer, Unpacker};
use crate::*;

mod sample;

pub use sample::sample;

/// Reads any bytes, in one of three ways that the first byte chooses. Panics only if the reader
/// does, or if its results contradict each other.
pub fn exercise(data: &[u8]) {
    match data.split_first() {
        Some((0, file)) => read_everything(file),
        Some((1, chunks)) => read_everything(&sealed(chunks)),
        Some((_, changes)) => {
            static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
            let mut changes = changes.chunks_exact(4).peekable();
            let mut position = 0;
            let resealed = resealed(SAMPLE.get_or_init(sample), |_, head, contents| {
                while let Some(&[chunk, low, high, value]) = changes.next_if(|change| change[0] & 0x7f <= position) {
                    let at = usize::from(u16::from_le_bytes([low, high]));
                    // The top bit of the number tells if the change is in the head.
                    let target = if chunk & 0x80 != 0 { &mut *head } else { &mut *contents };
                    match target.get_mut(at) {
                        Some(byte) => *byte = value,
                        None => target.push(value),
                    }
                }
                position = position.saturating_add(1);
            });
            read_everything(&resealed);
        }
        None => read_everything(data),
    }
}

/// Goes through a file by the headers of its chunks, as the reader of a growing file does.
fn follow(file: &[u8]) {
    let mut at = FIRST_CHUNK as usize;
    while let Some(header) = file.get(at..).and_then(|rest| rest.first_chunk())
        && let Some(header) = ChunkHeader::parse(header)
        && let Some(bytes) = file.get(at..at + header.length as usize)
    {
        if let Ok(chunk) = EncodedChunk::from_bytes(bytes.to_vec(), at as u64) {
            assert!(chunk.kind() == header.kind && chunk.bytes() == bytes);
        }
        at += header.length as usize;
    }
}

/// Calls all functions of the reader for a file.
pub fn read_everything(file: &[u8]) {
    follow(file);
    let Ok(recording) = Recording::open_with(file, Limits::default().with_table_bytes(1 << 20)) else { return };
    let damage = recording.verify();
    assert!(damage.len() >= recording.damage().len());
    assert!(!recording.complete() || recording.damage().is_empty());
    for damage in &damage {
        assert!(damage.offset <= file.len() as u64 && !damage.to_string().is_empty());
    }
    let mut buffer = EventsBuffer::default();
    let mut cache = NodeCache::default();
    let names = recording.names();
    for location in names.iter().take(64) {
        assert_eq!(names.functions(location.module, location.offset), Some(location.functions));
    }
    for extent in names.extents().filter(|extent| extent.size > 0).take(64) {
        assert_eq!(names.extent(extent.module, extent.start), Some(extent));
    }
    for module in recording.modules() {
        assert_eq!(recording.module(module.module), Some(module));
    }
    for text in recording.texts() {
        assert_eq!(recording.text(text.text), Some(text));
    }
    assert_eq!(
        recording.processes().iter().map(|process| process.images.len()).sum::<usize>(),
        recording.images().len()
    );
    let mut images: Vec<ImageId> = recording.images().iter().map(|start| start.image).collect();
    images.extend(recording.chunks().iter().filter_map(|chunk| chunk.head.image));
    images.sort();
    images.dedup();
    for &image in images.iter().take(64) {
        let _ = (recording.image(image), recording.image_end(image), recording.image_counts(image));
        let _ = (recording.mappings(image), recording.threads(image), recording.image_timeline(image));
        for snapshot in recording.resident_snapshots(image).rows {
            assert!(snapshot.sites.iter().all(|site| site.stack <= StackId::MAX));
            let _ = (snapshot.found(), snapshot.pages_live());
        }
        let _ = (recording.memory(image), recording.carried(image).map(|carried| carried.len()));
        recording.annotations(image).for_each(drop);
        let mut space = AddressSpace::default();
        for event in recording.mapping_events(image).flatten().take(1000) {
            space.apply(&event);
            assert_eq!(space.bytes().0, space.pieces().map(|piece| piece.bytes.0).sum::<u64>());
        }
        recording.sites(image).rows.iter().for_each(|site| assert!(site.stack <= StackId::MAX));
        let tree = recording.stack_tree(image, &mut cache);
        let table = recording.nodes(image);
        for node in table.nodes().iter().take(64) {
            assert_eq!(table.get(node.id), Some(node));
            // This ends.
            tree.frames(node.id).for_each(drop);
            assert!(node.kind == NodeKind::Context || tree.path(node.id).next().is_none());
            tree.path(node.id).for_each(drop);
            let named = [NodeKind::Scope, NodeKind::Value, NodeKind::Heap, NodeKind::Stamp];
            assert_eq!(node.text().is_some(), named.contains(&node.kind));
        }
        for chunk in recording.event_chunks(image) {
            if let Ok(events) = chunk.decode(&mut buffer) {
                same_when_written_again(chunk.head(), events);
            }
        }
        for checkpoint in recording.checkpoints(image) {
            let mut blocks = 0;
            if checkpoint.for_each_part(|part| blocks += part.len()).is_ok() {
                assert_eq!(blocks, checkpoint.len());
            }
        }
    }
    let _ =
        (recording.pauses(), recording.session(), recording.footer(), recording.process_counts(), recording.timeline());
}

fn same_when_written_again(head: &ChunkHead, events: Events<'_>) {
    let mut encoder = EventsEncoder::resuming(head);
    let mut marks = events.marks().iter().peekable();
    let mut time = head.time_first;
    for (index, event) in events.as_slice().iter().enumerate() {
        while let Some((_, mark)) = marks.next_if(|(at, _)| *at as usize == index) {
            encoder.push_mark(time, mark).expect("what was read can be written");
        }
        time = event.time;
        encoder.push(event, &events.extras(index), Live::default()).expect("what was read can be written");
    }
    for (_, mark) in marks {
        encoder.push_mark(time, mark).expect("what was read can be written");
    }
    let Some(chunk) = encoder.finish_raw() else { return };
    let mut again = EventsBuffer::default();
    again.decoded.decode(&chunk.contents, &chunk.head).expect("what was written can be read");
    assert_eq!(again.decoded.events().as_slice(), events.as_slice());
    for index in 0..events.as_slice().len() {
        assert_eq!(again.decoded.events().extras(index), events.extras(index));
    }
    assert_eq!(again.decoded.events().marks(), events.marks());
}

/// Returns a file whose chunks have these heads and contents, and correct checksums. The input is a
/// sequence of: kind 1, length of the head 1, head, length of the contents 2, contents. A trailer
/// points at the first index and the first footer.
fn sealed(mut chunks: &[u8]) -> Vec<u8> {
    let mut take = |length: usize| {
        let (taken, rest) = chunks.split_at(length.min(chunks.len()));
        chunks = rest;
        taken
    };
    let mut parts = Vec::new();
    while let &[kind, head] = take(2) {
        let head = take(usize::from(head));
        let length = take(2).iter().rfold(0, |length, &byte| length << 8 | usize::from(byte));
        parts.push((ChunkKind::from_number(u16::from(kind)), head.to_vec(), take(length).to_vec()));
    }
    assemble(&parts)
}

/// Returns a recording whose chunks, including index and footer, were changed by `change`, with
/// correct checksums.
pub fn resealed(file: &[u8], mut change: impl FnMut(ChunkKind, &mut Vec<u8>, &mut Vec<u8>)) -> Vec<u8> {
    let mut parts = Vec::new();
    let mut rest = &file[frame::FILE_HEADER..file.len() - TRAILER];
    while let Ok(frame) = ChunkFrame::parse(rest) {
        let mut head = frame.head_bytes().to_vec();
        let mut contents = Unpacker::default().unpack(&frame).expect("a sound recording").to_vec();
        rest = &rest[frame.length()..];
        change(frame.kind, &mut head, &mut contents);
        parts.push((frame.kind, head, contents));
    }
    assemble(&parts)
}

fn assemble(parts: &[(ChunkKind, Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut file = frame::file_header(0).to_vec();
    let mut trailer = Trailer { index: 0, footer: 0 };
    for (kind, head, contents) in parts {
        match kind {
            ChunkKind::Index if trailer.index == 0 => trailer.index = file.len() as u64,
            ChunkKind::Footer if trailer.footer == 0 => trailer.footer = file.len() as u64,
            _ => {}
        }
        file.extend_from_slice(&frame::unchecked_chunk(*kind, head, contents));
    }
    file.extend_from_slice(&trailer.to_bytes());
    file
}
