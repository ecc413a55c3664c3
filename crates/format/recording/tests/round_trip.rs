//! Everything that is written is read again: each kind of chunk, and whole files.

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::*;
use proptest::prelude::*;

/// Returns a file of these chunks.
fn file(chunks: &[EncodedChunk], footer: &Footer) -> Vec<u8> {
    let mut writer = RecordingWriter::new();
    let mut file = Vec::new();
    for chunk in chunks {
        writer.push(chunk);
        file.extend_from_slice(writer.pending());
        writer.clear_pending();
        assert_eq!(writer.length(), file.len() as u64);
    }
    writer.finish(footer, &mut Compressor::new());
    file.extend_from_slice(writer.pending());
    file
}

const FOOTER: Footer = Footer {
    time: Time(1),
    complete: true,
    counts: Counts {
        allocations: Blocks(1),
        reallocations: Blocks(2),
        frees: Blocks(3),
        failed: Blocks(4),
        bytes_allocated: Bytes(5),
        bytes_live_max: Bytes(6),
        bytes_live_max_time: Time(7),
        blocks_at_bytes_max: Blocks(8),
        blocks_live_max: Blocks(9),
        bytes_live_end: Bytes(10),
        blocks_live_end: Blocks(11),
        temporary_allocations: Blocks(12),
        frees_unknown: Blocks(13),
        frees_inherited: Blocks(14),
        bytes_inherited_live_end: Bytes(15),
        blocks_inherited_live_end: Blocks(16),
        events_lost: 17,
        events_late: 18,
        threads: 19,
        events_lost_full: 20,
        events_lost_nested: 21,
        events_lost_no_ring: 22,
        events_lost_unreadable: 23,
        events_lost_pools: 31,
        stamps_unknown: 32,
        frees_missed: Blocks(34),
        events_reordered: 35,
        frees_paused: Blocks(24),
        stacks: StackCounts {
            truncated: 25,
            dropped: 26,
            verified: 27,
            mismatched: 28,
            unasked: 29,
            outlasting: 30,
            missing: 33,
            folded: 36,
        },
        errors: None,
    },
    exit: Some(ExitStatus::Code(-1)),
    costs: RunCosts {
        collector_cpu_ns: Some(1),
        collector_rss_max: Some(Bytes(2)),
        ring_bytes: None,
        target_private_bytes: Some(Bytes(0)),
        hook_ns: Some(5),
        program_cpu_ns: Some(6),
        program_wall_ns: Some(7),
    },
    peak_least: Some(Live { bytes: Bytes(5), blocks: Blocks(0) }),
};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..20)
}

fn many_bytes() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(bytes(), 0..4)
}

/// Returns numbers of all lengths.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..64).prop_map(|(number, shift)| number >> shift)
}

fn live() -> impl Strategy<Value = Live> {
    (number(), number()).prop_map(|(bytes, blocks)| Live { bytes: Bytes(bytes), blocks: Blocks(blocks) })
}

fn stack() -> impl Strategy<Value = StackId> {
    (0..=StackId::MAX.0).prop_map(StackId)
}

fn counts() -> impl Strategy<Value = Counts> {
    prop::collection::vec(number(), 36).prop_map(|n| Counts {
        allocations: Blocks(n[0]),
        reallocations: Blocks(n[1]),
        frees: Blocks(n[2]),
        failed: Blocks(n[3]),
        bytes_allocated: Bytes(n[4]),
        bytes_live_max: Bytes(n[5]),
        bytes_live_max_time: Time(n[6]),
        blocks_at_bytes_max: Blocks(n[7]),
        blocks_live_max: Blocks(n[8]),
        bytes_live_end: Bytes(n[9]),
        blocks_live_end: Blocks(n[10]),
        temporary_allocations: Blocks(n[11]),
        frees_unknown: Blocks(n[12]),
        frees_inherited: Blocks(n[13]),
        bytes_inherited_live_end: Bytes(n[14]),
        blocks_inherited_live_end: Blocks(n[15]),
        events_lost: n[16],
        events_late: n[17],
        threads: n[18],
        events_lost_full: n[19],
        events_lost_nested: n[20],
        events_lost_no_ring: n[21],
        events_lost_unreadable: n[22],
        events_lost_pools: n[30],
        stamps_unknown: n[31],
        frees_missed: Blocks(n[33]),
        events_reordered: n[34],
        frees_paused: Blocks(n[23]),
        stacks: StackCounts {
            truncated: n[24],
            dropped: n[25],
            verified: n[26],
            mismatched: n[27],
            unasked: n[28],
            outlasting: n[29],
            missing: n[32],
            folded: n[35],
        },
        errors: n[29].is_multiple_of(2).then_some(CountErrors {
            allocated: Live { bytes: Bytes(n[3]), blocks: Blocks(n[4]) },
            live_end: Live { bytes: Bytes(n[5]), blocks: Blocks(n[6]) },
            live_at_peak: Live { bytes: Bytes(n[7]), blocks: Blocks(n[8]) },
        }),
    })
}

fn session() -> impl Strategy<Value = Session> {
    let clock = prop_oneof![Just(Clock::Unknown), Just(Clock::Tsc), Just(Clock::Sequence), Just(Clock::Monotonic)];
    let span = (number(), any::<u32>(), any::<bool>());
    (".{0,9}", number(), many_bytes(), bytes(), number(), ".{0,9}", clock, span).prop_map(
        |(tool_version, start_unix_ns, command, directory, page_size, options, clock, span)| Session {
            tool_version,
            start_unix_ns,
            command,
            directory,
            page_size: Bytes(page_size),
            options,
            clock,
            begins: Time(span.0),
            segment: span.1,
            totals_only: span.2,
            samples: span.2,
        },
    )
}

fn image_start(image: u32) -> impl Strategy<Value = ImageStart> {
    let how = prop_oneof![
        Just(ImageOrigin::Unknown),
        Just(ImageOrigin::Launched),
        Just(ImageOrigin::Exec),
        Just(ImageOrigin::Fork),
        Just(ImageOrigin::Attached)
    ];
    let parent = if image == 0 { Just(None).boxed() } else { prop::option::of(0..image).boxed() };
    let numbers = (any::<u32>(), any::<u32>(), number(), number(), number());
    let carried = prop::option::of(live());
    (numbers, parent, how, stack(), any::<bool>(), bytes(), many_bytes(), carried).prop_map(
        move |(numbers, parent, how, fork_node_base, inherited_exact, executable, argv, carried)| {
            let (pid, parent_pid, inherited_blocks, inherited_bytes, time) = numbers;
            ImageStart {
                image: ImageId(image),
                pid,
                parent_pid,
                parent_image: parent.map(ImageId),
                how,
                fork_node_base,
                inherited_blocks: Blocks(inherited_blocks),
                inherited_bytes: Bytes(inherited_bytes),
                inherited_exact,
                time: Time(time),
                executable,
                argv,
                carried,
            }
        },
    )
}

fn image_end(image: u32) -> impl Strategy<Value = ImageEnd> {
    let reason = prop_oneof![
        Just(ImageEndReason::Unknown),
        Just(ImageEndReason::Exec),
        Just(ImageEndReason::Exit),
        Just(ImageEndReason::Detached),
        Just(ImageEndReason::Lost)
    ];
    let exit = prop_oneof![any::<i32>().prop_map(ExitStatus::Code), any::<i32>().prop_map(ExitStatus::Signal)];
    (number(), reason, prop::option::of(exit)).prop_map(move |(time, reason, exit)| ImageEnd {
        image: ImageId(image),
        time: Time(time),
        reason,
        exit,
    })
}

fn mapping(image: u32) -> impl Strategy<Value = Mapping> {
    (any::<u32>(), any::<[u64; 3]>(), number()).prop_map(move |(module, [start, end, bias], time)| Mapping {
        image: ImageId(image),
        module: ModuleId(module),
        start,
        end,
        bias,
        time: Time(time),
    })
}

fn thread(image: u32, thread: u32) -> impl Strategy<Value = Thread> {
    (any::<u32>(), bytes(), number(), prop::option::of(number())).prop_map(move |(tid, name, start, end)| Thread {
        image: ImageId(image),
        thread: ThreadId(thread),
        tid,
        name,
        start: Time(start),
        end: end.map(Time),
    })
}

fn extras() -> impl Strategy<Value = Extras> {
    let option = || prop::option::weighted(0.2, number());
    let bytes = || option().prop_map(|bytes| bytes.map(Bytes));
    let errno = prop::option::weighted(0.2, any::<u32>());
    let blocks = || option().prop_map(|blocks| blocks.map(Blocks));
    let some = (option(), option(), bytes(), blocks(), errno, bytes(), bytes()).prop_map(
        |(alignment, count, usable, weight, errno, freed_size, declared_size)| Extras {
            alignment,
            count,
            usable,
            weight,
            errno,
            freed_size,
            declared_size,
        },
    );
    prop_oneof![3 => Just(Extras::NONE), 1 => some]
}

/// Returns a relation to the sample that the event can have, for every other event.
fn sampled(kind: &EventKind, number: u64) -> Sampled {
    let rate = Rate::from_logarithm(number % 82);
    match kind {
        _ if number.is_multiple_of(2) => Sampled::NOT,
        EventKind::Alloc { .. } => Sampled { rate, after_unsampled: false },
        EventKind::Free { .. } => Sampled { rate: Rate::EXACT, after_unsampled: true },
        EventKind::Realloc { .. } => Sampled { rate, after_unsampled: number.is_multiple_of(3) },
        EventKind::Failed { .. } | EventKind::Reattributed { .. } => Sampled::NOT,
    }
}

/// An event whose serials are not yet right: released blocks count back from the next serial.
type Draft = (u64, u32, u8, u64, u64, StackId, Extras, Live);

fn draft() -> impl Strategy<Value = Draft> {
    (number(), 0u32..4, any::<u8>(), number(), number(), stack(), extras(), live())
}

fn events(drafts: &[Draft]) -> Vec<(Event, Extras, Live)> {
    let mut time = 0u64;
    let mut next = 0;
    let mut last = Live::default();
    let make = |&(step, thread, choice, size, back, stack, extras, live): &Draft| {
        // Steps of all sizes, but never near the end of time.
        time += step >> 10;
        let serial = Serial(next);
        let size = Bytes(size);
        let freed = match (choice >> 4) % 4 {
            0 => FreedBlock::Unknown,
            1 => FreedBlock::Inherited,
            _ if next == 0 => FreedBlock::None,
            _ => FreedBlock::Known(Serial(next - 1 - back % next)),
        };
        let (call, kind) = match choice % 4 {
            0 => (Api::Malloc.into(), EventKind::Alloc { serial, size, stack }),
            // Now and then between the others, on an existing block.
            2 if choice >= 0xe0 && next > 0 => {
                (Api::Malloc.into(), EventKind::Reattributed { block: Serial(next - 1 - back % next), stack })
            }
            1 => (Call::from_number(63).unwrap(), EventKind::Free { block: freed }),
            2 => (Api::Realloc.into(), EventKind::Realloc { old: freed, serial, size, stack }),
            _ => (Api::Calloc.into(), EventKind::Failed { size, stack }),
        };
        if matches!(kind, EventKind::Alloc { .. } | EventKind::Realloc { .. }) {
            next += 1;
        }
        let is_row = !matches!(kind, EventKind::Reattributed { .. });
        let (extras, live) = if is_row { (extras, live) } else { (Extras::NONE, last) };
        last = live;
        (Event { time: Time(time), thread: ThreadId(thread), call, sampled: sampled(&kind, time), kind }, extras, live)
    };
    drafts.iter().map(make).collect()
}

/// True if it is a call.
fn is_row((event, ..): &(Event, Extras, Live)) -> bool {
    !matches!(event.kind, EventKind::Reattributed { .. })
}

proptest! {
    #[test]
    fn records(
        session in session(),
        images in prop::collection::vec(any::<()>(), 1..5).prop_flat_map(|images| {
            (0..images.len() as u32).map(|image| (image_start(image), image_end(image), mapping(image), thread(image, 3), thread(image, 9), counts())).collect::<Vec<_>>()
        }),
        modules in prop::collection::vec((bytes(), bytes()), 0..5),
        texts in prop::collection::vec((bytes(), any::<bool>(), bytes()), 0..5),
    ) {
        let mut records = vec![Record::Session(session.clone())];
        for (start, end, mapping, first, second, counts) in images.iter().rev().cloned() {
            let image = start.image;
            records.push(Record::ProcessCounts(ProcessCounts { first_image: image, pid: start.pid, counts }));
            // Earlier records about the same thing do not count.
            records.push(Record::Thread(Thread { name: b"earlier".to_vec(), ..second.clone() }));
            records.push(Record::ImageStart(start));
            records.push(Record::ImageEnd(end));
            records.push(Record::Mapping(mapping));
            records.push(Record::Mapping(Mapping { start: 0, ..mapping }));
            records.push(Record::Thread(second));
            records.push(Record::Thread(first));
            records.push(Record::ImageCounts(ImageCounts { image, counts }));
        }
        let modules: Vec<Module> = (1..).zip(modules).map(|(id, (path, build_id))| Module { module: ModuleId(id), path, build_id }).collect();
        records.extend(modules.iter().cloned().map(Record::Module));
        let texts: Vec<Text> = (1..).zip(texts).map(|(id, (bytes, is_task, category))| Text { text: TextId(id), bytes, is_task, category }).collect();
        records.extend(texts.iter().rev().cloned().map(Record::Text));
        let file = file(&encode_records(&records, &mut Compressor::new()).unwrap(), &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert!(recording.complete());
        prop_assert_eq!(recording.footer(), Some(&FOOTER));
        prop_assert_eq!(recording.session(), Some(&session));
        prop_assert_eq!(recording.modules(), modules);
        prop_assert_eq!(recording.texts(), &texts[..]);
        for text in &texts {
            prop_assert_eq!(recording.text(text.text), Some(text));
        }
        prop_assert_eq!(recording.text(TextId::UNKNOWN), None);
        prop_assert_eq!(recording.process_counts().len(), images.len());
        for (start, end, mapping, first, second, counts) in &images {
            let image = start.image;
            prop_assert_eq!(recording.image(image), Some(start));
            prop_assert_eq!(recording.image_end(image), Some(end));
            prop_assert_eq!(recording.mappings(image), [*mapping, Mapping { start: 0, ..*mapping }]);
            prop_assert_eq!(recording.threads(image), [first.clone(), second.clone()]);
            prop_assert_eq!(recording.thread(image, ThreadId(9)), Some(second));
            prop_assert_eq!(recording.image_counts(image), Some(counts));
            prop_assert_eq!(&recording.process_counts()[image.0 as usize].counts, counts);
        }
    }

    #[test]
    fn event_chunks(drafts in prop::collection::vec(draft(), 1..200), tick_ns in prop_oneof![Just(1u32), Just(100_000), any::<u32>()], cut in 1usize..200) {
        let events = events(&drafts);
        let image = ImageId(7);
        let mut encoder = EventsEncoder::new(image).with_tick_ns(tick_ns);
        let mut compressor = Compressor::new();
        let mut chunks = Vec::new();
        for part in events.chunks(cut) {
            for (event, extras, live) in part {
                encoder.push(event, extras, *live).unwrap();
            }
            prop_assert_eq!(encoder.len(), part.iter().filter(|event| is_row(event)).count());
            chunks.extend(encoder.finish_raw().map(|chunk| chunk.compress(&mut compressor)));
        }
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert_eq!(recording.verify(), []);
        let mut buffer = EventsBuffer::default();
        let mut live_before = Live::default();
        let mut serial = 0;
        prop_assert_eq!(recording.event_chunks(image).count(), events.chunks(cut).len());
        for (chunk, part) in recording.event_chunks(image).zip(events.chunks(cut)) {
            let head = *chunk.head();
            let rows = part.iter().filter(|event| is_row(event));
            prop_assert_eq!((head.rows as usize, (head.rows + head.moves) as usize), (rows.clone().count(), part.len()));
            let last = rows.clone().next_back().map_or(part[0].0.time, |(event, ..)| event.time);
            prop_assert_eq!((head.time_first, head.time_last), (part[0].0.time, last));
            prop_assert_eq!((head.live_before, head.live_after), (live_before, part[part.len() - 1].2));
            prop_assert_eq!(head.bytes_live_max, rows.map(|(_, _, live)| live.bytes).max().unwrap_or_default());
            prop_assert_eq!(head.serial_first, Serial(serial));
            let decoded = chunk.decode(&mut buffer).unwrap();
            prop_assert_eq!(decoded.as_slice().len(), part.len());
            for (index, (event, extras, _)) in part.iter().enumerate() {
                let read = decoded.as_slice()[index];
                if !is_row(&part[index]) {
                    prop_assert_eq!(read.kind, event.kind);
                    prop_assert_eq!(decoded.extras(index), Extras::NONE);
                    continue;
                }
                prop_assert_eq!((read.thread, read.call, read.kind), (event.thread, event.call, event.kind));
                let tick = u64::from(tick_ns.max(1));
                prop_assert!(read.time <= event.time && event.time.0 - read.time.0 < tick);
                prop_assert_eq!((read.time.0 - head.time_first.0) % tick, 0);
                prop_assert_eq!(decoded.extras(index), *extras);
            }
            live_before = head.live_after;
            serial += u64::from(head.serials);
        }
        prop_assert_eq!(encoder.next_serial(), Serial(serial));
    }

    #[test]
    fn node_chunks(nodes in prop::collection::btree_map(1..=StackId::MAX.0, (0u8..14, any::<u32>(), any::<u64>(), any::<prop::sample::Index>()), 1..60), cut in 1usize..60) {
        let ids: Vec<u32> = nodes.keys().copied().collect();
        let mut nodes: Vec<Node> = nodes.iter().enumerate().map(|(at, (&id, &(kind, module, offset, parent)))| {
            let kind = match kind { 0 => NodeKind::Epoch, 1 => NodeKind::Truncated, 2 => NodeKind::Foreign, 3 => NodeKind::Other(200),
                4 => NodeKind::Scope, 5 => NodeKind::Value, 6 => NodeKind::Context, 7 => NodeKind::Heap, 8 => NodeKind::Stamp, _ => NodeKind::Frame };
            let parent = if at == 0 { StackId::ROOT } else { StackId(ids[parent.index(at)]) };
            Node { id: StackId(id), parent, kind, module: ModuleId(module), offset }
        }).collect();
        // Ids come in any order.
        nodes.reverse();
        let mut encoder = NodesEncoder::new(ImageId(0));
        let mut compressor = Compressor::new();
        let mut chunks = Vec::new();
        for part in nodes.chunks(cut) {
            part.iter().for_each(|node| encoder.push(node).unwrap());
            chunks.extend(encoder.finish(&mut compressor));
        }
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        nodes.reverse();
        let table = recording.nodes(ImageId(0));
        prop_assert_eq!(table.nodes(), &nodes[..]);
        prop_assert_eq!(table.damage(), []);
        let tree = recording.stack_tree(ImageId(0), &mut NodeCache::default());
        for node in &nodes {
            prop_assert_eq!(table.get(node.id), Some(node));
            let mut frames = tree.frames(node.id).copied();
            let mut at = node.id;
            while let Some(&node) = table.get(at) {
                at = node.parent;
                if node.kind != NodeKind::Epoch {
                    prop_assert_eq!(frames.next(), Some(node));
                }
            }
            prop_assert_eq!(frames.next(), None);
        }
    }

    #[test]
    fn site_chunks(sites in prop::collection::vec((stack(), number(), number(), number(), live(), live(), live()), 0..50)) {
        let site = |(stack, allocations, bytes_allocated, temporaries, live_end, live_at_image_peak, live_at_session_peak)| Site {
            stack,
            allocations: Blocks(allocations),
            bytes_allocated: Bytes(bytes_allocated),
            temporaries: Blocks(temporaries),
            live_end,
            live_at_image_peak,
            live_at_session_peak,
            errors: match allocations.is_multiple_of(4) {
                true => SiteErrors { allocated: live_end, live_at_session_peak: live_at_image_peak, ..SiteErrors::default() },
                false => SiteErrors::default(),
            },
        };
        let sites: Vec<Site> = sites.into_iter().map(site).collect();
        let file = file(&SitesEncoder::encode(ImageId(3), &sites, &mut Compressor::new()).unwrap(), &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert_eq!(recording.sites(ImageId(3)), Rows { rows: sites, damage: vec![] });
        prop_assert_eq!(recording.sites(ImageId(2)), Rows { rows: vec![], damage: vec![] });
    }

    #[test]
    fn timelines(samples in prop::collection::vec((number(), live()), 0..50), image in prop::option::of(Just(ImageId(4)))) {
        let mut samples: Vec<Sample> = samples.into_iter().map(|(time, live)| Sample { time: Time(time), live }).collect();
        samples.sort_by_key(|sample| sample.time);
        let file = file(&TimelineEncoder::encode(image, &samples, &mut Compressor::new()).unwrap(), &FOOTER);
        let recording = Recording::open(&file).unwrap();
        let (of_session, of_image) = (recording.timeline().rows, recording.image_timeline(ImageId(4)).rows);
        prop_assert_eq!(if image.is_some() { of_image } else { of_session }, samples);
    }

    #[test]
    fn memory_samples(samples in prop::collection::vec(prop::collection::vec(number(), 7), 0..50)) {
        let mut samples: Vec<MemorySample> = samples.into_iter().map(|n| MemorySample {
            time: Time(n[0]),
            resident: Bytes(n[1]),
            resident_anonymous: Bytes(n[2]),
            resident_file: Bytes(n[3]),
            heap: Bytes(n[4]),
            mappings: Bytes(n[5]),
            swapped: Bytes(n[6]),
        }).collect();
        samples.sort_by_key(|sample| sample.time);
        let file = file(&MemoryEncoder::encode(ImageId(4), &samples, &mut Compressor::new()).unwrap(), &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert_eq!(recording.memory(ImageId(4)), Rows { rows: samples, damage: vec![] });
        prop_assert_eq!(recording.memory(ImageId(3)).rows, vec![]);
    }

    #[test]
    fn annotation_chunks(annotations in prop::collection::vec((any::<u32>(), number(), any::<u32>(), bytes()), 0..50), cut in 1usize..50) {
        let image = ImageId(2);
        let annotation = |(thread, time, code, payload)| Annotation { image, thread: ThreadId(thread), time: Time(time), code, payload };
        let annotations: Vec<Annotation> = annotations.into_iter().map(annotation).collect();
        let mut encoder = AnnotationsEncoder::new(image);
        let mut chunks = Vec::new();
        for part in annotations.chunks(cut) {
            part.iter().for_each(|annotation| encoder.push(annotation).unwrap());
            chunks.extend(encoder.finish(&mut Compressor::new()));
        }
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        let read: Result<Vec<Annotation>, RecordingError> = recording.annotations(image).collect();
        prop_assert_eq!(read.unwrap(), annotations);
    }

    #[test]
    fn checkpoints(checkpoints in prop::collection::vec((number(), counts(), prop::collection::vec((number(), number(), stack()), 0..40)), 0..4)) {
        let image = ImageId(1);
        let mut compressor = Compressor::new();
        let next = Serial(u64::MAX);
        let mut chunks = Vec::new();
        for (time, counts, blocks) in &checkpoints {
            let encoder = CheckpointEncoder::new(image, Time(*time), next, *counts);
            chunks.extend(encoder.encode(&live_blocks(blocks), &mut compressor).unwrap());
        }
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert_eq!(recording.verify(), []);
        prop_assert_eq!(recording.checkpoints(image).len(), checkpoints.len());
        for (read, (time, counts, blocks)) in recording.checkpoints(image).iter().zip(&checkpoints) {
            prop_assert_eq!((read.time(), read.next_serial(), read.counts(), read.len()), (Time(*time), next, *counts, blocks.len()));
            let mut all = Vec::new();
            read.for_each_part(|part| all.extend_from_slice(part)).unwrap();
            prop_assert_eq!(all, live_blocks(blocks));
        }
        if let Some((_, counts, _)) = checkpoints.last() {
            prop_assert_eq!(recording.image_counts(image), Some(counts));
        }
    }
}

/// A child sees the scopes of its parent, and its own under the same ids as later ones of the
/// parent.
#[test]
fn contexts_lead_to_their_scopes_across_forks() {
    let node = |id: u32, parent: u32, kind, offset| {
        let (id, parent) = (StackId(id), StackId(parent));
        Node { id, parent, kind, module: ModuleId::UNKNOWN, offset }
    };
    let mut compressor = Compressor::new();
    let mut chunk = |image: u32, nodes: &[Node]| {
        let mut encoder = NodesEncoder::new(ImageId(image));
        nodes.iter().for_each(|node| encoder.push(node).unwrap());
        encoder.finish(&mut compressor).unwrap()
    };
    let (scope, context) = (NodeKind::Scope, NodeKind::Context);
    let parent = [node(1, 0, NodeKind::Frame, 7), node(2, 0, scope, 1), node(3, 1, context, 2), node(4, 0, scope, 8)];
    let child = [
        node(4, 0, scope, 5),
        node(5, 4, NodeKind::Value, 1 << 40),
        node(6, 1, context, 5),
        node(7, 6, NodeKind::Heap, 6),
        node(8, 1, context, 2),
        // Contexts that lead nowhere, to another context, and to themselves.
        node(9, 1, context, 1 << 40),
        node(10, 1, context, 99),
        node(11, 1, context, 11),
    ];
    let starts = [(0, None, 0), (1, Some(ImageId(0)), 4)].map(|(image, parent_image, base)| {
        let (image, fork_node_base) = (ImageId(image), StackId(base));
        Record::ImageStart(ImageStart { image, parent_image, fork_node_base, ..ImageStart::default() })
    });
    let mut chunks = vec![chunk(0, &parent), chunk(1, &child)];
    chunks.extend(encode_records(&starts, &mut Compressor::new()).unwrap());
    let file = file(&chunks, &FOOTER);
    let recording = Recording::open(&file).unwrap();
    let tree = recording.stack_tree(ImageId(1), &mut NodeCache::default());
    let path = |id: u32| tree.path(StackId(id)).filter_map(Node::text).map(|text| text.0).collect::<Vec<_>>();
    assert_eq!((path(6), path(8), path(3)), (vec![0, 5], vec![1], vec![1]));
    assert_eq!([7, 9, 10, 1, 0, 77].map(path), [const { Vec::new() }; 6]);
    // A context that leads to itself has no path of scopes, but the walk ends.
    assert_eq!(tree.path(StackId(11)).count(), 2);
    assert_eq!(tree.get(StackId(7)).and_then(Node::text), Some(TextId(6)));
    let before_fork = recording.stack_tree(ImageId(0), &mut NodeCache::default());
    assert_eq!(before_fork.path(StackId(3)).count(), 1);
}

fn live_blocks(blocks: &[(u64, u64, StackId)]) -> Vec<LiveBlock> {
    let below_max = |serial: u64| Serial(serial & (u64::MAX >> 1));
    blocks
        .iter()
        .map(|&(serial, size, stack)| LiveBlock {
            serial: below_max(serial),
            size: Bytes(size),
            stack,
            rate: Rate::from_logarithm(size % 41),
        })
        .collect()
}

#[test]
fn large_checkpoints_come_in_parts() {
    let mut compressor = Compressor::new();
    let block = |serial| LiveBlock {
        serial: Serial(serial),
        size: Bytes(serial * 7 % 1000),
        stack: StackId(1),
        rate: Rate::EXACT,
    };
    let blocks: Vec<LiveBlock> = (0..2 * CHUNK_ROWS_MAX as u64 + 1).map(block).collect();
    let encode = |time, compressor: &mut Compressor| {
        let encoder = CheckpointEncoder::new(ImageId(0), Time(time), Serial(blocks.len() as u64), Counts::default());
        encoder.encode(&blocks, compressor).unwrap()
    };
    let (first, second) = (encode(10, &mut compressor), encode(20, &mut compressor));
    assert_eq!(first.len(), 3);
    let whole = file(&[&first[..], &second[..]].concat(), &FOOTER);
    let recording = Recording::open(&whole).unwrap();
    let found = recording.checkpoint_before(ImageId(0), Time(19)).unwrap();
    assert_eq!((found.time(), found.len()), (Time(10), blocks.len()));
    assert!(recording.checkpoint_before(ImageId(0), Time(9)).is_none());
    let mut all = Vec::new();
    found.for_each_part(|part| all.extend_from_slice(part)).unwrap();
    assert_eq!(all, blocks);
    // A checkpoint without one of its parts is not a checkpoint.
    for missing in 0..3 {
        let mut chunks = first.clone();
        chunks.remove(missing);
        chunks.extend_from_slice(&second);
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        let times: Vec<Time> = recording.checkpoints(ImageId(0)).iter().map(Checkpoint::time).collect();
        assert_eq!(times, [Time(20)]);
    }
}

#[test]
fn replay_goes_on_with_the_chunks_after_a_checkpoint() {
    let mut compressor = Compressor::new();
    let mut encoder = EventsEncoder::new(ImageId(0));
    let mut chunks = Vec::new();
    for serial in 0..5 {
        let kind = EventKind::Alloc { serial: Serial(serial), size: Bytes(1), stack: StackId(1) };
        let event =
            Event { time: Time(serial), thread: ThreadId(0), call: Api::Malloc.into(), sampled: Sampled::NOT, kind };
        encoder.push(&event, &Extras::NONE, Live::default()).unwrap();
        chunks.extend(encoder.finish(&mut compressor));
        if serial == 2 {
            let checkpoint = CheckpointEncoder::new(ImageId(0), Time(2), Serial(3), Counts::default());
            chunks.extend(checkpoint.encode(&[], &mut compressor).unwrap());
        }
    }
    let file = file(&chunks, &FOOTER);
    let recording = Recording::open(&file).unwrap();
    let checkpoint = recording.checkpoint_before(ImageId(0), Time(4)).unwrap();
    assert!(checkpoint.is_empty());
    let serials: Vec<Serial> = checkpoint.event_chunks_after().map(|chunk| chunk.head().serial_first).collect();
    assert_eq!(serials, [Serial(3), Serial(4)]);
}

#[test]
fn encoders_refuse_what_cannot_be_recorded() {
    let mut encoder = EventsEncoder::new(ImageId(0));
    let mut push = |kind| {
        let event = Event { time: Time(0), thread: ThreadId(0), call: Api::Malloc.into(), sampled: Sampled::NOT, kind };
        encoder.push(&event, &Extras::NONE, Live::default()).is_ok()
    };
    let alloc = |serial, stack| EventKind::Alloc { serial: Serial(serial), size: Bytes(1), stack: StackId(stack) };
    let free = |serial| EventKind::Free { block: FreedBlock::Known(Serial(serial)) };
    assert!(!push(alloc(1, 0)));
    assert!(!push(alloc(0, StackId::MAX.0 + 1)));
    assert!(!push(free(0)));
    assert!(push(alloc(0, StackId::MAX.0)));
    assert!(!push(alloc(0, 0)));
    assert!(!push(free(1)));
    assert!(push(free(0)));
    assert_eq!(encoder.len(), 2);
    assert_eq!(encoder.finish(&mut Compressor::new()).unwrap().head().rows, 2);
    assert!(encoder.finish(&mut Compressor::new()).is_none());

    let node = Node { id: StackId::ROOT, parent: StackId::ROOT, kind: NodeKind::Frame, module: ModuleId(0), offset: 0 };
    assert!(NodesEncoder::new(ImageId(0)).push(&node).is_err());
    let backwards = [Time(2), Time(1)].map(|time| Sample { time, ..Sample::default() });
    assert!(TimelineEncoder::encode(None, &backwards, &mut Compressor::new()).is_err());
    let backwards = [Time(2), Time(1)].map(|time| MemorySample { time, ..MemorySample::default() });
    assert!(MemoryEncoder::encode(ImageId(0), &backwards, &mut Compressor::new()).is_err());
    let huge = Module { path: vec![b'x'; CHUNK_RAW_MAX], ..Module::default() };
    assert!(encode_records(&[Record::Module(huge)], &mut Compressor::new()).is_err());
}

/// A recording that begins in mid-run: see "Recordings that begin in mid-run" in FORMAT.md.
#[test]
fn carried_blocks_are_those_before_the_first_events() {
    let compressor = &mut Compressor::new();
    let carried = Some(Live { bytes: Bytes(30), blocks: Blocks(2) });
    let start =
        |image, carried| Record::ImageStart(ImageStart { image: ImageId(image), carried, ..Default::default() });
    let block = |serial| LiveBlock { serial: Serial(serial), size: Bytes(15), stack: StackId(1), rate: Rate::EXACT };
    let checkpoint = |image, compressor: &mut Compressor| {
        let counts = Counts { bytes_live_max: Bytes(30), ..Counts::default() };
        let checkpoint = CheckpointEncoder::new(ImageId(image), Time(500), Serial(1000), counts);
        checkpoint.encode(&[block(7), block(999)], compressor).unwrap()
    };
    let events = |image, compressor: &mut Compressor| {
        let live = Live { bytes: Bytes(30), blocks: Blocks(2) };
        let mut events = EventsEncoder::new(ImageId(image)).starting_at(Serial(1000), live);
        let freed = EventKind::Free { block: FreedBlock::Known(Serial(7)) };
        let event =
            Event { time: Time(600), thread: ThreadId(0), call: Api::Free.into(), sampled: Sampled::NOT, kind: freed };
        events.push(&event, &Extras::NONE, Live { bytes: Bytes(15), blocks: Blocks(1) }).unwrap();
        events.finish(compressor).unwrap()
    };
    let mut chunks = encode_records(&[start(0, carried), start(1, None), start(2, carried)], compressor).unwrap();
    chunks.extend(checkpoint(0, compressor));
    chunks.push(events(0, compressor));
    chunks.extend(checkpoint(1, compressor));
    chunks.push(events(2, compressor));
    chunks.extend(checkpoint(2, compressor));
    let file = file(&chunks, &FOOTER);
    let recording = Recording::open(&file).unwrap();
    let carried = recording.carried(ImageId(0)).unwrap();
    assert_eq!((carried.len(), carried.time(), carried.next_serial()), (2, Time(500), Serial(1000)));
    assert!(recording.carried(ImageId(1)).is_none(), "the image does not say that it carries blocks");
    assert!(recording.carried(ImageId(2)).is_none(), "a checkpoint behind the events is another one");
    let mut buffer = EventsBuffer::default();
    let first = recording.event_chunks(ImageId(0)).next().unwrap();
    assert_eq!((first.head().serial_first, first.head().live_before.bytes), (Serial(1000), Bytes(30)));
    let first = first.decode(&mut buffer).unwrap().as_slice()[0];
    assert_eq!(first.kind, EventKind::Free { block: FreedBlock::Known(Serial(7)) });
}

#[test]
fn a_full_chunk_of_events_takes_no_more() {
    let mut encoder = EventsEncoder::new(ImageId(0));
    let kind = EventKind::Failed { size: Bytes(u64::MAX), stack: StackId(0) };
    let event = |thread| Event {
        time: Time(thread << 32),
        thread: ThreadId(thread as u32),
        call: Api::Malloc.into(),
        sampled: Sampled::NOT,
        kind,
    };
    let most = Some(u64::MAX);
    let extras =
        Extras { alignment: most, count: most, usable: Some(Bytes(u64::MAX)), weight: Some(Blocks(0)), ..Extras::NONE };
    for extras in [Extras::NONE, extras] {
        let mut pushed = 0;
        while !encoder.is_full() {
            // Every field is as long as it can be, and still fits.
            encoder.push(&event(pushed % 2 + 0xffff_0000), &extras, Live::default()).unwrap();
            pushed += 1;
        }
        assert!(encoder.push(&event(0), &Extras::NONE, Live::default()).is_err());
        let chunk = encoder.finish(&mut Compressor::new()).expect("the contents fit a chunk");
        assert_eq!(chunk.head().rows as u64, pushed);
        let file = file(&[chunk], &FOOTER);
        assert_eq!(Recording::open(&file).unwrap().verify(), []);
    }
}

#[test]
fn many_chunks_need_several_index_chunks() {
    let mut compressor = Compressor::new();
    let chunk = encode_records(&[Record::Module(Module::default())], &mut compressor).unwrap().remove(0);
    let chunks = vec![chunk; CHUNK_ROWS_MAX + 10];
    let file = file(&chunks, &FOOTER);
    let recording = Recording::open(&file).unwrap();
    assert!(recording.complete());
    assert_eq!(recording.chunks().len(), chunks.len());
    let indexes = file.windows(10).filter(|window| window == b"\x89HLC\r\n\x1a\n\x08\0").count();
    assert!(indexes > 1, "{indexes}");
}

/// Returns a mark on anything that can have one before the next serial.
fn mark((choice, back, address, by, measured): (u8, u64, u64, StackId, u64), next: u64, time: Time) -> Mark {
    let (is_kept, measured) = (choice & 8 != 0, Bytes(measured));
    let reported = |what| Mark::Reported { what, by, is_kept, measured };
    match (choice % 7, next.checked_sub(1).map(|last| Serial(last - back % next))) {
        (0, Some(block)) => reported(Reported::Block(block)),
        (1, Some(block)) => reported(Reported::Inside { block, address }),
        (2, _) => reported(Reported::Nothing { address }),
        (3, _) => reported(Reported::NotHeap { address }),
        (4, Some(block)) => Mark::Removed { block, by },
        (5, _) => Mark::Cleared,
        _ => Mark::Complete { time },
    }
}

proptest! {
    #[test]
    fn marks_keep_their_positions(
        drafts in prop::collection::vec(draft(), 1..60),
        marks in prop::collection::vec((0usize..61, (any::<u8>(), number(), any::<u64>(), stack(), number())), 0..80),
        cut in 1usize..20,
    ) {
        let events = events(&drafts);
        let mut encoder = EventsEncoder::new(ImageId(0));
        let mut compressor = Compressor::new();
        let mut chunks = Vec::new();
        let mut expected = Vec::new();
        for (index, (event, extras, live)) in events.iter().enumerate() {
            encoder.push(event, extras, *live).unwrap();
            for (_, mark_of) in marks.iter().filter(|(at, _)| *at == index) {
                let mark = mark(*mark_of, encoder.next_serial().0, event.time);
                encoder.push_mark(event.time, &mark).unwrap();
                expected.push((index + 1, mark));
            }
            if index % cut == cut - 1 {
                chunks.extend(encoder.finish(&mut compressor));
            }
        }
        // A chunk with only marks.
        encoder.push_mark(Time(0), &Mark::Cleared).unwrap();
        expected.push((events.len(), Mark::Cleared));
        chunks.extend(encoder.finish(&mut compressor));
        let late = Mark::Removed { block: encoder.next_serial(), by: StackId::ROOT };
        prop_assert!(encoder.push_mark(Time(0), &late).is_err());
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert_eq!(recording.verify(), []);
        let (mut buffer, mut before, mut found) = (EventsBuffer::default(), 0, Vec::new());
        for chunk in recording.event_chunks(ImageId(0)) {
            let decoded = chunk.decode(&mut buffer).unwrap();
            prop_assert_eq!(decoded.marks().len(), chunk.head().marks as usize);
            found.extend(decoded.marks().iter().map(|(at, mark)| (before + *at as usize, *mark)));
            before += decoded.as_slice().len();
        }
        // The order of moves and marks at the same place is not defined.
        let is_move = |index: usize| events.get(index).is_some_and(|event| !is_row(event));
        let rows_end = |at: usize| (at..).find(|&index| !is_move(index)).unwrap_or(at);
        let placed = |marks: &[(usize, Mark)]| marks.iter().map(|&(at, mark)| (rows_end(at), mark)).collect::<Vec<_>>();
        prop_assert_eq!(placed(&found), placed(&expected));
    }
}

/// Two marks of a block count, until it is freed or they are cleared; permanent ones stay, and move
/// up.
#[test]
fn the_first_two_marks_of_a_block_count() {
    let report = |serial, by, is_kept| Mark::Reported {
        what: Reported::Block(Serial(serial)),
        by: StackId(by),
        is_kept,
        measured: Bytes(0),
    };
    let mut marked = MarkedBlocks::default();
    let apply = |marked: &mut MarkedBlocks, mark| marked.apply(&mark, |one, other| one == other);
    let who = |marked: &MarkedBlocks, serial| marked.of(Serial(serial)).map(|mark| mark.map(|mark| mark.by.0));
    for (by, is_kept) in [(1, false), (2, true), (3, true)] {
        apply(&mut marked, report(7, by, is_kept));
    }
    apply(&mut marked, report(8, 1, false));
    assert_eq!((who(&marked, 7), who(&marked, 8)), ([Some(1), Some(2)], [Some(1), None]));
    apply(&mut marked, Mark::Cleared);
    assert_eq!((who(&marked, 7), who(&marked, 8), marked.is_collecting()), ([Some(2), None], [None, None], true));
    apply(&mut marked, report(7, 4, false));
    let again = marked.as_marks();
    assert_eq!(again, [Mark::Cleared, report(7, 2, true), report(7, 4, false)]);
    // A mark that is not there any more, or is another reporter's, is not taken back.
    for by in [4, 9, 2] {
        apply(&mut marked, Mark::Removed { block: Serial(7), by: StackId(by) });
    }
    apply(&mut marked, Mark::Complete { time: Time(3) });
    assert_eq!((who(&marked, 7), marked.is_collecting()), ([Some(4), None], false));
    assert_eq!(marked.free(Serial(7)).unwrap()[0].unwrap().by, StackId(4));
    assert!(marked.is_empty() && marked.free(Serial(7)).is_none());
}
