//! Truncated, flipped and contradictory files: nothing panics, and no data is ever silently wrong.

use heapledger_core::StackId;
use heapledger_recording::fuzzing::{read_everything, resealed, sample};
use heapledger_recording::*;

/// Returns everything that a file has, chunk by chunk: the contents of each, or the reason why it
/// cannot be read.
fn contents(recording: &Recording<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let mut buffer = EventsBuffer::default();
    let mut cache = NodeCache::default();
    all.push(format!("{:?} {:?} {:?}", recording.session(), recording.modules(), recording.process_counts()));
    for image in (0..3).map(ImageId) {
        all.push(format!("{:?} {:?}", recording.image(image), recording.image_end(image)));
        all.push(format!("{:?} {:?}", recording.mappings(image), recording.threads(image)));
        for chunk in recording.event_chunks(image) {
            all.extend(chunk.decode(&mut buffer).ok().map(|events| format!("{image:?} {events:?}")));
        }
        all.extend(recording.annotations(image).filter_map(Result::ok).map(|annotation| format!("{annotation:?}")));
        all.push(format!("{image:?} {:?}", recording.sites(image).rows));
        // Frame by frame: if the parent image is not known any more, a stack ends early.
        let tree = recording.stack_tree(image, &mut cache);
        all.extend(tree.frames(StackId(5)).map(|node| format!("{image:?} {node:?}")));
        for checkpoint in recording.checkpoints(image) {
            let mut blocks = Vec::new();
            if checkpoint.for_each_part(|part| blocks.extend_from_slice(part)).is_ok() {
                all.push(format!("{image:?} {:?} {blocks:?}", checkpoint.counts()));
            }
        }
    }
    all.push(format!("{:?}", recording.timeline().rows));
    all.push(format!("{:?}", recording.memory(ImageId(0)).rows));
    all.push(format!("{:?}", recording.resident_snapshots(ImageId(0)).rows));
    all
}

#[test]
fn the_sample_is_whole() {
    let file = sample();
    let recording = Recording::open(&file).unwrap();
    assert!(recording.complete(), "{:?}", recording.damage());
    assert_eq!(recording.verify(), []);
    assert_eq!(recording.images().len(), 3);
    let processes =
        [Process { pid: 100, images: vec![ImageId(0), ImageId(2)] }, Process { pid: 101, images: vec![ImageId(1)] }];
    assert_eq!(recording.processes(), processes);
    // The forked image sees its parent's nodes below its own.
    let tree = recording.stack_tree(ImageId(1), &mut NodeCache::default());
    let offsets: Vec<u64> = tree.frames(StackId(6)).map(|node| node.offset - 0x1000).collect();
    assert_eq!(offsets, [6, 5, 4, 3, 2, 1]);
    assert!(file.len() < 3200, "{} bytes: keep the sample small, tests flip each of its bits", file.len());
}

#[test]
fn a_file_cut_anywhere_yields_its_whole_chunks() {
    let file = sample();
    let whole = Recording::open(&file).unwrap();
    for length in 0..file.len() {
        let cut = Recording::open(&file[..length]);
        if length < 16 {
            assert!(cut.is_err());
            continue;
        }
        let cut = cut.unwrap();
        assert!(!cut.complete());
        let expected: Vec<_> =
            whole.chunks().iter().filter(|c| c.offset + u64::from(c.length) <= length as u64).copied().collect();
        assert_eq!(cut.chunks(), expected, "cut at {length}");
        let reasons: Vec<Reason> = cut.damage().iter().map(|damage| damage.reason).collect();
        assert!(reasons.contains(&Reason::NoTrailer));
        let end_of_chunks = whole.chunks().last().map_or(16, |c| c.offset + u64::from(c.length)) as usize;
        let at_a_boundary =
            length == 16 || expected.last().is_some_and(|c| c.offset + u64::from(c.length) == length as u64);
        if length < end_of_chunks && !at_a_boundary {
            assert!(reasons.contains(&Reason::Truncated), "cut at {length}: {reasons:?}");
        }
        read_everything(&file[..length]);
    }
}

#[test]
fn a_flipped_bit_is_never_silent() {
    let file = sample();
    let whole = contents(&Recording::open(&file).unwrap());
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut flipped = file.clone();
            flipped[at] ^= 1 << bit;
            let Ok(recording) = Recording::open(&flipped) else {
                assert!(at < 16);
                continue;
            };
            let damage = recording.verify();
            assert!(!damage.is_empty(), "bit {bit} of byte {at} went unnoticed");
            // Everything that can be read is what was written. A missing chunk leaves an empty
            // table or tree behind.
            for part in contents(&recording) {
                let known = whole.contains(&part)
                    || part.ends_with("[]")
                    || part.starts_with("None")
                    || part.contains("None None");
                assert!(known, "bit {bit} of byte {at}: {part}");
            }
        }
    }
}

#[test]
fn bytes_put_in_or_taken_out_cost_one_chunk() {
    let file = sample();
    let whole = Recording::open(&file).unwrap();
    for chunk in whole.chunks() {
        let middle = (chunk.offset + u64::from(chunk.length) / 2) as usize;
        let mut longer = file.clone();
        longer.splice(middle..middle, *b"five!");
        let mut shorter = file.clone();
        shorter.drain(middle..middle + 3);
        for changed in [longer, shorter] {
            let recording = Recording::open(&changed).unwrap();
            assert_eq!(recording.chunks().len(), whole.chunks().len() - 1);
            assert!(recording.damage().len() >= 2, "{:?}", recording.damage());
            assert!(!recording.complete());
            assert!(recording.footer().is_some());
        }
    }
}

#[test]
fn unknown_chunks_fields_and_columns_are_skipped() {
    let file = sample();
    let newer = resealed(&file, |kind, head, contents| match kind {
        // Field 100 of a head, of the messages' list, and of a footer's list; columns 1000 and
        // 1001.
        ChunkKind::Index | ChunkKind::Footer => contents.extend([0xa0, 6, 1]),
        ChunkKind::Metadata | ChunkKind::Annotations => contents.extend([0xa2, 6, 2, 1, 2]),
        _ => {
            head.extend([0xa0, 6, 1]);
            contents.splice(0..0, [0xe8, 3, 9, 0, 1, 0, 0, 0, 0xff, 0xe9, 3, 1, 0, 0, 0, 0, 0]);
        }
    });
    // Lengths in the index are wrong now, so the scan has to find the chunks.
    let recording = Recording::open(&newer).unwrap();
    let whole = Recording::open(&file).unwrap();
    assert_eq!(contents(&recording), contents(&whole));
    assert!(recording.damage().iter().all(|damage| damage.reason == Reason::BadIndex), "{:?}", recording.damage());
}

#[test]
fn unknown_extras_are_ignored() {
    let extras = |file: &[u8]| {
        let recording = Recording::open(file).unwrap();
        let mut buffer = EventsBuffer::default();
        let chunk = recording.event_chunks(ImageId(0)).next().unwrap();
        chunk.decode(&mut buffer).unwrap().all_extras().to_vec()
    };
    let file = sample();
    let known = extras(&file);
    let newer = resealed(&file, |kind, _, contents| {
        if kind == ChunkKind::Events {
            // The last column: two more triples, for the last event (the one before says something
            // already), tag 100.
            let at = (0..contents.len()).find(|&at| contents[at..].starts_with(&[13, 0, 1, 0])).unwrap();
            contents[at + 4] += 6;
            contents.extend([1, 100, 5, 0, 100, 6]);
        }
    });
    assert_eq!(extras(&newer), known);
    assert_eq!(known.len(), 2);
}

#[test]
fn hostile_trees_come_to_an_end() {
    let mut compressor = Compressor::new();
    let mut nodes = NodesEncoder::new(ImageId(0));
    let node = |id, parent| {
        let (id, parent) = (StackId(id), StackId(parent));
        Node { id, parent, kind: NodeKind::Frame, module: ModuleId::UNKNOWN, offset: 0, is_unproven: false }
    };
    // A cycle of two, its own caller, a tail into the cycle, a parent that is not there, an id
    // twice.
    for (id, parent) in [(1, 2), (2, 1), (3, 3), (4, 1), (5, 60_000_000), (67_108_863, 5), (4, 4)] {
        nodes.push(&node(id, parent)).unwrap();
    }
    let mut writer = RecordingWriter::new();
    writer.push(&nodes.finish(&mut compressor).unwrap());
    writer.finish(&Footer { complete: true, ..Footer::default() }, &mut compressor);
    let recording = Recording::open(writer.pending()).unwrap();
    let tree = recording.stack_tree(ImageId(0), &mut NodeCache::default());
    let depths: Vec<usize> = [1, 2, 3, 4, 5, 67_108_863, 9].map(|id| tree.frames(StackId(id)).count()).into();
    assert_eq!(depths, [2, 1, 1, 3, 1, 2, 0]);
    let reasons: Vec<Reason> = tree.damage().map(|damage| damage.reason).collect();
    assert_eq!(reasons, [Reason::Invalid("a node id was used twice"), Reason::Invalid("a stack is its own caller")]);
}

#[test]
fn tables_stop_at_the_limit() {
    let mut compressor = Compressor::new();
    let mut writer = RecordingWriter::new();
    let sites = vec![Site::default(); 3 * CHUNK_ROWS_MAX];
    let chunks = SitesEncoder::encode(ImageId(0), &sites, &mut compressor).unwrap();
    assert_eq!(chunks.len(), 3);
    assert!(chunks.iter().all(|chunk| chunk.bytes().len() < 1000), "a table this regular is a decompression bomb");
    chunks.iter().for_each(|chunk| writer.push(chunk));
    let modules: Vec<Record> =
        (1..1000).map(|id| Record::Module(Module { module: ModuleId(id), ..Module::default() })).collect();
    encode_records(&modules, &mut compressor).unwrap().iter().for_each(|chunk| writer.push(chunk));
    writer.finish(&Footer::default(), &mut compressor);
    let limits = Limits::default().with_table_bytes(2 * CHUNK_ROWS_MAX * size_of::<Site>());
    let recording = Recording::open_with(writer.pending(), limits).unwrap();
    let sites = recording.sites(ImageId(0));
    assert_eq!(sites.rows.len(), 2 * CHUNK_ROWS_MAX);
    assert_eq!(sites.damage, [Damage { offset: recording.chunks()[2].offset, reason: Reason::Limit }]);
    assert_eq!(recording.modules().len(), 999);
    let recording = Recording::open_with(writer.pending(), Limits::default().with_table_bytes(10_000)).unwrap();
    assert!(!recording.modules().is_empty() && recording.modules().len() < 100);
    assert_eq!(recording.damage()[0].reason, Reason::Limit);
}
