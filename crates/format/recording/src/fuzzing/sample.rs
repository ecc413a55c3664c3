//! A small recording with a chunk of every kind.

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};

use crate::*;

/// Returns a small recording with a chunk of every kind: a program that forks, and then calls
/// `exec`.
pub fn sample() -> Vec<u8> {
    let mut compressor = Compressor::new();
    let mut writer = RecordingWriter::new();
    let counts = Counts { allocations: Blocks(3), frees: Blocks(1), bytes_live_max: Bytes(4096), ..Counts::default() };
    let mut chunks = encode_records(&records(counts), &mut compressor).expect("records");
    for id in 0..2 {
        chunks.extend(chunks_of_image(ImageId(id), counts, &mut compressor));
    }
    let blocks = [1, 2].map(|serial| LiveBlock {
        serial: Serial(serial),
        size: Bytes(300),
        stack: StackId(1),
        rate: Rate::EXACT,
        usable: Some(Bytes(312)),
    });
    let checkpoint = CheckpointEncoder::new(ImageId(2), Time(0), Serial(3), counts);
    chunks.extend(checkpoint.encode(&blocks, &mut compressor).expect("a checkpoint"));
    chunks.extend(mappings(ImageId(0), StackId(1), &mut compressor));
    let memory = [0, 70].map(|time| MemorySample {
        time: Time(time),
        resident: Bytes(4096 * (time + 2)),
        resident_anonymous: Bytes(4096),
        ..MemorySample::default()
    });
    chunks.extend(MemoryEncoder::encode(ImageId(0), &memory, &mut compressor).expect("samples of memory"));
    chunks.extend(ResidentEncoder::encode(ImageId(0), &snapshot(), &mut compressor).expect("a snapshot"));
    let samples = [(0, 0), (500, 4096), (9000, 30)].map(|(time, bytes)| {
        let live = Live { bytes: Bytes(bytes), blocks: Blocks(bytes / 10) };
        Sample { time: Time(time), live }
    });
    chunks.extend(TimelineEncoder::encode(None, &samples, &mut compressor).expect("a timeline"));
    chunks.extend(NamesEncoder::encode(&names(), &mut compressor).expect("names"));
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

/// Returns a resident snapshot.
fn snapshot() -> ResidentSnapshot {
    let part = |kind: &str, name: &str, live| SnapshotPart {
        kind: kind.into(),
        name: name.into(),
        resident: Bytes(4096),
        live: Bytes(live),
        ..SnapshotPart::default()
    };
    let site = SnapshotSite { stack: StackId(1), blocks: Blocks(1), kept: Bytes(4096), ..SnapshotSite::default() };
    ResidentSnapshot {
        time: Time(60),
        figures: ResidentFigures { cause: SnapshotCause::Growth, resident: Bytes(8192), ..Default::default() },
        parts: vec![part("glibc-used", "", 10), part("file", "/lib/c.so", 0)],
        sites: vec![site],
    }
}

/// Returns the metadata: each image has these totals.
fn records(counts: Counts) -> Vec<Record> {
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
    records
}

fn names() -> Vec<NamedLocation<'static>> {
    let function = |name: &'static str, file: Option<&'static str>, line| NamedFunction {
        name: name.into(),
        file: file.map(Into::into),
        line,
    };
    let location = |offset, functions| NamedLocation { module: ModuleId(1), offset, functions };
    let inlined = vec![function("_ZN4core3ptr4readE", Some("src/a.rs"), 5), function("main", Some("src/a.rs"), 9)];
    vec![location(0x1001, inlined), location(0x1002, vec![function("start", None, 0)])]
}

fn chunks_of_image(image: ImageId, counts: Counts, compressor: &mut Compressor) -> Vec<EncodedChunk> {
    let mut chunks = Vec::new();
    let mut nodes = NodesEncoder::new(image);
    let first = image.0 * 3 + 1;
    for id in (first..first + 3).map(StackId) {
        let parent = StackId(id.0 - 1);
        let (kind, module, offset) = (NodeKind::Frame, ModuleId(1), 0x1000 + u64::from(id.0));
        nodes.push(&Node { id, parent, kind, module, offset, is_unproven: false }).expect("a node");
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
        nodes.push(&Node { id, parent, kind, module: ModuleId::UNKNOWN, offset, is_unproven: false }).expect("a node");
    }
    chunks.extend(nodes.finish(compressor));

    chunks.extend(events(image, StackId(first)).finish(compressor));

    let mut annotations = AnnotationsEncoder::new(image);
    let marker = Annotation { image, thread: ThreadId(0), time: Time(1234), code: 262, payload: b"a marker".to_vec() };
    annotations.push(&marker).expect("an annotation");
    chunks.extend(annotations.finish(compressor));

    let stack = StackId(first);
    let blocks = [1, 2].map(|serial| LiveBlock {
        serial: Serial(serial),
        size: Bytes(300),
        stack,
        rate: Rate::EXACT,
        usable: None,
    });
    let checkpoint = CheckpointEncoder::new(image, Time(2000), Serial(3), counts);
    chunks.extend(checkpoint.encode(&blocks, compressor).expect("a checkpoint"));

    let live = Live { bytes: Bytes(300), blocks: Blocks(1) };
    let sites = [1, 2].map(|id| Site { stack: StackId(id), allocations: Blocks(2), live_end: live, ..Site::default() });
    chunks.extend(SitesEncoder::encode(image, &sites, compressor).expect("sites"));
    chunks
}

/// Returns the changes of an image's mappings: one of each kind.
fn mappings(image: ImageId, stack: StackId, compressor: &mut Compressor) -> Option<EncodedChunk> {
    let mapped = |kind, file| MappingChange::Mapped {
        kind,
        protection: Protection::READ,
        flags: MappingFlags::FOUND,
        file,
        offset: 0x3000,
    };
    let changes = [
        (0, 0x10_0000, 0x8000, mapped(MappingKind::File, TextId(1))),
        (1, 0x20_0000, 0x3000, mapped(MappingKind::Anonymous, TextId::UNKNOWN)),
        (0, 0x10_1000, 0x1000, MappingChange::Unmapped),
        (1, 0x20_0000, 0x3000, MappingChange::Moved { to: 0x30_0000 }),
        (0, 0x10_2000, 0x2000, MappingChange::Protected { protection: Protection::NONE }),
        (1, 0x30_0000, 0x1000, MappingChange::Advised { advice: 4 }),
    ];
    let mut encoder = MappingsEncoder::new(image);
    for (index, (serial, start, bytes, change)) in (0..).zip(changes) {
        let event = MappingEvent {
            time: Time(1000 + index),
            thread: (index > 0).then_some(ThreadId(0)),
            stack,
            call: MappingCall::ALL[index as usize],
            serial: MappingSerial(serial),
            start,
            bytes: Bytes(bytes),
            change,
        };
        encoder.push(&event).expect("an event of a mapping");
    }
    encoder.finish(compressor)
}

/// Returns the events of an image, whose blocks are allocated by this stack.
fn events(image: ImageId, stack: StackId) -> EventsEncoder {
    let mut events = EventsEncoder::new(image).with_tick_ns(100);
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
    events
}
