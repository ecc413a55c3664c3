//! Metadata records.

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::{Blocks, Bytes, ThreadId};
use heapledger_recording::*;
use proptest::prelude::*;

use crate::generate::{bytes, counts, live, many_bytes, number, stack};
use crate::{FOOTER, file};

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
                age_ns: time.rotate_left(32),
                executable,
                argv,
                carried,
                allocator: AllocatorKind::from_number(pid % 7),
                allocator_version: AllocatorVersion(parent_pid),
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
