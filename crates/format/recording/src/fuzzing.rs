//! One body for the fuzz target and the property tests, and the small recording that both start
//! from.
//!
//! Random bytes never get past a checksum, so [`exercise`] also seals its input: it wraps heads and
//! contents in chunks whose checksums fit, or changes the contents of a valid recording and seals
//! those.

use std::sync::OnceLock;

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};

use crate::frame::{self, ChunkFrame, TRAILER, Trailer, Unpacker};
use crate::*;

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

/// Calls all functions of the reader for a file.
pub fn read_everything(file: &[u8]) {
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
        let _ = (recording.memory(image), recording.carried(image).map(|carried| carried.len()));
        recording.annotations(image).for_each(drop);
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
    let mut extras = events.all_extras().iter().peekable();
    let mut marks = events.marks().iter().peekable();
    let mut time = head.time_first;
    for (index, event) in events.as_slice().iter().enumerate() {
        while let Some((_, mark)) = marks.next_if(|(at, _)| *at as usize == index) {
            encoder.push_mark(time, mark).expect("what was read can be written");
        }
        time = event.time;
        let extras = extras.next_if(|(at, _)| *at as usize == index).map_or(Extras::NONE, |(_, extras)| *extras);
        assert_eq!(extras, events.extras(index));
        encoder.push(event, &extras, Live::default()).expect("what was read can be written");
    }
    for (_, mark) in marks {
        encoder.push_mark(time, mark).expect("what was read can be written");
    }
    let Some(chunk) = encoder.finish_raw() else { return };
    let mut again = EventsBuffer::default();
    again.decoded.decode(&chunk.contents, &chunk.head).expect("what was written can be read");
    assert_eq!(again.decoded.events().as_slice(), events.as_slice());
    assert_eq!(again.decoded.events().all_extras(), events.all_extras());
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

/// Returns a small recording with a chunk of every kind: a program that forks, and then calls
/// `exec`.
pub fn sample() -> Vec<u8> {
    let mut compressor = Compressor::new();
    let mut writer = RecordingWriter::new();
    let counts = Counts { allocations: Blocks(3), frees: Blocks(1), bytes_live_max: Bytes(4096), ..Counts::default() };
    let image = |image: u32, pid, how, parent: Option<u32>| ImageStart {
        image: ImageId(image),
        pid,
        parent_image: parent.map(ImageId),
        how,
        time: Time(u64::from(image) * 1000),
        executable: b"/bin/sample".to_vec(),
        argv: vec![b"sample".to_vec(), b"--\xff".to_vec()],
        ..ImageStart::default()
    };
    let mut records = vec![
        Record::Session(Session {
            tool_version: "0.1.0".into(),
            start_unix_ns: 1_800_000_000_000_000_000,
            command: vec![b"sample".to_vec()],
            directory: b"/tmp".to_vec(),
            page_size: Bytes(4096),
            options: "--on-full wait".into(),
            clock: Clock::Tsc,
            begins: Time(0),
            segment: 1,
            totals_only: false,
            samples: false,
        }),
        Record::Pause(Pause { from: Time(10), until: Some(Time(20)), is_stall: false }),
        Record::Pause(Pause { from: Time(30), until: Some(Time(40)), is_stall: true }),
        Record::Departure(Departure {
            time: Time(30),
            image: ImageId(0),
            pid: 102,
            reason: 72,
            path: b"/usr/bin/su".to_vec(),
            is_fork: false,
        }),
        Record::ImageStart(image(0, 100, ImageOrigin::Launched, None)),
        Record::ImageStart(ImageStart {
            fork_node_base: StackId(4),
            inherited_blocks: Blocks(1),
            inherited_bytes: Bytes(10),
            inherited_exact: true,
            ..image(1, 101, ImageOrigin::Fork, Some(0))
        }),
        Record::ImageStart(ImageStart {
            carried: Some(Live { bytes: Bytes(600), blocks: Blocks(2) }),
            ..image(2, 100, ImageOrigin::Exec, Some(0))
        }),
        Record::Module(Module { module: ModuleId(1), path: b"/bin/sample".to_vec(), build_id: vec![0xab; 20] }),
        Record::Text(Text { text: TextId(1), bytes: b"request".to_vec(), is_task: true, category: b"net".to_vec() }),
        Record::Text(Text { text: TextId(2), bytes: b"route=/".to_vec(), ..Text::default() }),
    ];
    for id in 0..3 {
        let image = ImageId(id);
        let mapping = Mapping { start: 0x5555_0000, end: 0x5556_0000, bias: 0x5555_0000, ..Mapping::default() };
        records.push(Record::Mapping(Mapping { image, module: ModuleId(1), ..mapping }));
        records.push(Record::Thread(Thread { image, tid: 100, name: b"main".to_vec(), ..Thread::default() }));
        let exit = (id > 0).then_some(ExitStatus::Code(id as i32));
        records.push(Record::ImageEnd(ImageEnd { image, time: Time(9000), reason: ImageEndReason::Exit, exit }));
        records.push(Record::ImageCounts(ImageCounts { image, counts }));
    }
    records.push(Record::ProcessCounts(ProcessCounts { first_image: ImageId(0), pid: 100, counts }));
    let mut chunks = encode_records(&records, &mut compressor).expect("records");
    for id in 0..2 {
        chunks.extend(sample_image(ImageId(id), counts, &mut compressor));
    }
    let blocks = [1, 2].map(|serial| LiveBlock {
        serial: Serial(serial),
        size: Bytes(300),
        stack: StackId(1),
        rate: Rate::EXACT,
    });
    let checkpoint = CheckpointEncoder::new(ImageId(2), Time(0), Serial(3), counts);
    chunks.extend(checkpoint.encode(&blocks, &mut compressor).expect("a checkpoint"));
    let memory = [0, 70].map(|time| MemorySample {
        time: Time(time),
        resident: Bytes(4096 * (time + 2)),
        resident_anonymous: Bytes(4096),
        ..MemorySample::default()
    });
    chunks.extend(MemoryEncoder::encode(ImageId(0), &memory, &mut compressor).expect("samples of memory"));
    let samples = [(0, 0), (500, 4096), (9000, 30)].map(|(time, bytes)| {
        let live = Live { bytes: Bytes(bytes), blocks: Blocks(bytes / 10) };
        Sample { time: Time(time), live }
    });
    chunks.extend(TimelineEncoder::encode(None, &samples, &mut compressor).expect("a timeline"));
    chunks.extend(NamesEncoder::encode(&sample_names(), &mut compressor).expect("names"));
    let neighbours = [Some("start".into()), None];
    let extents = [CodeExtent { module: ModuleId(1), start: 0x1000, size: 0x20, neighbours }];
    chunks.extend(NamesEncoder::encode_extents(&extents, &mut compressor).expect("extents"));
    for chunk in &chunks {
        writer.push(chunk);
    }
    let footer = Footer {
        time: Time(10_000),
        complete: true,
        counts,
        exit: Some(ExitStatus::Signal(9)),
        costs: RunCosts { collector_cpu_ns: Some(77), ring_bytes: Some(Bytes(0)), ..RunCosts::default() },
        peak_least: Some(Live { bytes: Bytes(5), blocks: Blocks(0) }),
    };
    writer.finish(&footer, &mut compressor);
    writer.pending().to_vec()
}

fn sample_names() -> Vec<NamedLocation<'static>> {
    let function = |name: &'static str, file: Option<&'static str>, line| NamedFunction {
        name: name.into(),
        file: file.map(Into::into),
        line,
    };
    let location = |offset, functions| NamedLocation { module: ModuleId(1), offset, functions };
    let inlined = vec![function("_ZN4core3ptr4readE", Some("src/a.rs"), 5), function("main", Some("src/a.rs"), 9)];
    vec![location(0x1001, inlined), location(0x1002, vec![function("start", None, 0)])]
}

fn sample_image(image: ImageId, counts: Counts, compressor: &mut Compressor) -> Vec<EncodedChunk> {
    let mut chunks = Vec::new();
    let mut nodes = NodesEncoder::new(image);
    let first = image.0 * 3 + 1;
    for id in (first..first + 3).map(StackId) {
        let parent = StackId(id.0 - 1);
        let (kind, module, offset) = (NodeKind::Frame, ModuleId(1), 0x1000 + u64::from(id.0));
        nodes.push(&Node { id, parent, kind, module, offset }).expect("a node");
    }
    // A scope with a value, and a block of a heap that was allocated in it, and stamped.
    let (scope, value, context, heap) = (StackId(20), StackId(21), StackId(22), StackId(23));
    for (id, parent, kind, offset) in [
        (scope, StackId::ROOT, NodeKind::Scope, 1),
        (value, scope, NodeKind::Value, 2),
        (context, StackId(first), NodeKind::Context, value.0.into()),
        (heap, context, NodeKind::Heap, 1),
        (StackId::MAX, heap, NodeKind::Stamp, 2),
    ] {
        nodes.push(&Node { id, parent, kind, module: ModuleId::UNKNOWN, offset }).expect("a node");
    }
    chunks.extend(nodes.finish(compressor));

    let mut events = EventsEncoder::new(image).with_tick_ns(100);
    let stack = StackId(first);
    let alloc = |serial, size| EventKind::Alloc { serial: Serial(serial), size: Bytes(size), stack };
    let realloc = EventKind::Realloc { old: FreedBlock::None, serial: Serial(2), size: Bytes(9000), stack };
    let happenings = [
        (0, Api::Malloc, alloc(0, 10)),
        (0, Api::Calloc, alloc(1, 300)),
        (1, Api::Free, EventKind::Free { block: FreedBlock::Known(Serial(0)) }),
        (1, Api::Free, EventKind::Free { block: FreedBlock::Inherited }),
        (0, Api::Realloc, realloc),
        (0, Api::PosixMemalign, EventKind::Failed { size: Bytes(1 << 60), stack: StackId::ROOT }),
        (7, Api::Cfree, EventKind::Free { block: FreedBlock::Unknown }),
        (7, Api::Cfree, EventKind::Reattributed { block: Serial(1), stack: StackId(23) }),
        (7, Api::Free, EventKind::Free { block: FreedBlock::Known(Serial(1)) }),
        (7, Api::Free, EventKind::Reattributed { block: Serial(2), stack: StackId(22) }),
        (7, Api::Free, EventKind::Reattributed { block: Serial(2), stack: StackId::MAX }),
    ];
    for (index, (thread, api, kind)) in (0..).zip(happenings) {
        let extras = match api {
            Api::Calloc => Extras { count: Some(3), usable: Some(Bytes(312)), ..Extras::NONE },
            Api::PosixMemalign => Extras { alignment: Some(64), errno: Some(12), ..Extras::NONE },
            _ => Extras::NONE,
        };
        let event = Event {
            time: Time(1000 + index * 130),
            thread: ThreadId(thread),
            call: api.into(),
            sampled: Sampled::NOT,
            kind,
        };
        let live = Live { bytes: Bytes(10 * index), blocks: Blocks(index) };
        events.push(&event, &extras, live).expect("an event");
        // The second block is reported, and an address inside it, before it is freed.
        let reported = |what| Mark::Reported { what, by: StackId::MAX, is_kept: index == 2, measured: Bytes(index) };
        let marks = match index {
            1 => vec![Mark::Cleared, reported(Reported::Block(Serial(1)))],
            2 => vec![
                reported(Reported::Inside { block: Serial(1), address: 0x1234 }),
                reported(Reported::Nothing { address: 1 << 46 }),
                reported(Reported::NotHeap { address: 0 }),
            ],
            3 => vec![Mark::Removed { block: Serial(0), by: StackId::MAX }],
            10 => vec![Mark::Complete { time: event.time }],
            _ => Vec::new(),
        };
        marks.iter().for_each(|mark| events.push_mark(event.time, mark).expect("a mark"));
    }
    chunks.extend(events.finish(compressor));

    let mut annotations = AnnotationsEncoder::new(image);
    let marker = Annotation { image, thread: ThreadId(0), time: Time(1234), code: 262, payload: b"a marker".to_vec() };
    annotations.push(&marker).expect("an annotation");
    chunks.extend(annotations.finish(compressor));

    let blocks = [1, 2].map(|serial| LiveBlock { serial: Serial(serial), size: Bytes(300), stack, rate: Rate::EXACT });
    let checkpoint = CheckpointEncoder::new(image, Time(2000), Serial(3), counts);
    chunks.extend(checkpoint.encode(&blocks, compressor).expect("a checkpoint"));

    let live = Live { bytes: Bytes(300), blocks: Blocks(1) };
    let sites = [1, 2].map(|id| Site { stack: StackId(id), allocations: Blocks(2), live_end: live, ..Site::default() });
    chunks.extend(SitesEncoder::encode(image, &sites, compressor).expect("sites"));
    chunks
}
