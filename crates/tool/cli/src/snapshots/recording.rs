//! The small recording whose answers the snapshots have.

use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{
    Compressor, Counts, Event, EventKind, EventsEncoder, ExitStatus, Extras, Footer, FreedBlock, ImageCounts, ImageEnd,
    ImageEndReason, ImageId, ImageOrigin, ImageStart, Live, MemoryEncoder, MemorySample, Module, ModuleId, Node,
    NodeKind, NodesEncoder, ProcessCounts, Record, RecordingWriter, Sampled, Session, Site, SiteErrors, SitesEncoder,
    Text, TextId, Thread, Time, encode_records,
};

const IMAGE: ImageId = ImageId(0);
const BLOCKS: u64 = 10;

/// Returns a recording in which a process allocates ten blocks of 1000 bytes from one stack and
/// frees half of them at once, and then allocates one of 3000 bytes from another, deeper stack,
/// which it keeps. No file of the modules exists, so no name is known.
///
/// If `is_declared`, the program allocates four of the ten blocks in one context, three in another,
/// and the rest in none; the last block belongs to a heap of its own, and is stamped.
pub(super) fn recording(is_declared: bool) -> Vec<u8> {
    let mut file = File { writer: RecordingWriter::new(), compressor: Compressor::new(), is_declared };
    file.beginning();
    file.nodes();
    file.events();
    file.memory();
    file.sites();
    file.end();
    file.writer.pending().to_vec()
}

/// The recording, as far as it is written.
struct File {
    writer: RecordingWriter,
    compressor: Compressor,
    is_declared: bool,
}

impl File {
    fn put(&mut self, records: &[Record]) {
        let chunks = encode_records(records, &mut self.compressor).unwrap();
        chunks.iter().for_each(|chunk| self.writer.push(chunk));
    }

    /// Writes the session, its process, modules and thread, and the texts that the program
    /// declares.
    fn beginning(&mut self) {
        let (start, end) = (Time(1_000_000), Time(2_500_000_000));
        let mut records = vec![
            Record::Session(Session {
                tool_version: "0.1.0".into(),
                start_unix_ns: 1_795_225_955_000_000_000,
                command: vec![b"./server".to_vec(), b"--port".to_vec(), b"80".to_vec()],
                directory: b"/srv".to_vec(),
                ..Session::default()
            }),
            Record::ImageStart(ImageStart {
                image: IMAGE,
                pid: 4411,
                how: ImageOrigin::Launched,
                time: start,
                executable: b"/nonexistent/server".to_vec(),
                argv: vec![b"./server".to_vec(), b"a\x1b[2Jb".to_vec()],
                ..ImageStart::default()
            }),
            Record::Module(Module {
                module: ModuleId(1),
                path: b"/nonexistent/server".to_vec(),
                build_id: vec![0xab; 20],
            }),
            Record::Module(Module { module: ModuleId(2), path: b"/nonexistent/libx.so".to_vec(), build_id: vec![] }),
            Record::Thread(Thread { image: IMAGE, tid: 4411, name: b"server".to_vec(), start, ..Thread::default() }),
            Record::ImageEnd(ImageEnd {
                image: IMAGE,
                time: end,
                reason: ImageEndReason::Exit,
                exit: Some(ExitStatus::Code(3)),
            }),
        ];
        if self.is_declared {
            let texts = ["request", "route=/a", "route=/b", "par\x1bse", "arena", "Page\nsrc/pages.rs:8\nspare"];
            records.extend((1..).zip(texts).map(|(text, bytes)| {
                let (bytes, category) = (bytes.into(), if text == 4 { b"cpu".to_vec() } else { vec![] });
                Record::Text(Text { text: TextId(text), bytes, is_task: text == 1, category })
            }));
        }
        self.put(&records);
    }

    /// Writes the tree of stacks.
    fn nodes(&mut self) {
        let mut nodes = NodesEncoder::new(IMAGE);
        for (id, parent, module, offset) in
            [(1, 0, 1, 0x10), (2, 1, 1, 0x20), (3, 1, 2, 0x30), (4, 3, 2, 0x40), (5, 4, 1, 0x50)]
        {
            let node = Node {
                id: StackId(id),
                parent: StackId(parent),
                kind: NodeKind::Frame,
                module: ModuleId(module),
                offset,
                is_unproven: false,
            };
            nodes.push(&node).unwrap();
        }
        let declared = [
            (10, 0, NodeKind::Scope, 1),
            (11, 10, NodeKind::Value, 2),
            (12, 10, NodeKind::Value, 3),
            (13, 12, NodeKind::Scope, 4),
            (14, 2, NodeKind::Context, 11),
            (15, 2, NodeKind::Context, 13),
            (17, 5, NodeKind::Heap, 5),
            (16, 17, NodeKind::Stamp, 6),
        ];
        for (id, parent, kind, offset) in declared.into_iter().filter(|_| self.is_declared) {
            let (id, parent, module) = (StackId(id), StackId(parent), ModuleId::UNKNOWN);
            nodes.push(&Node { id, parent, kind, module, offset, is_unproven: false }).unwrap();
        }
        self.writer.push(&nodes.finish(&mut self.compressor).unwrap());
    }

    /// Returns the stack that allocates a block.
    fn stack_of(&self, block: u64) -> StackId {
        match block {
            0..4 if self.is_declared => StackId(14),
            4..7 if self.is_declared => StackId(15),
            BLOCKS if self.is_declared => StackId(16),
            BLOCKS => StackId(5),
            _ => StackId(2),
        }
    }

    /// Writes all allocations and frees.
    fn events(&mut self) {
        let mut events = EventsEncoder::new(IMAGE);
        let mut live = Live::default();
        let mut push = |events: &mut EventsEncoder, milliseconds: u64, kind: EventKind| {
            match kind {
                EventKind::Alloc { size, .. } => {
                    live.bytes.0 += size.0;
                    live.blocks.0 += 1;
                }
                _ => {
                    live.bytes.0 -= 1000;
                    live.blocks.0 -= 1;
                }
            }
            let call = if matches!(kind, EventKind::Free { .. }) { Api::Free } else { Api::Malloc };
            let event = Event {
                time: Time(milliseconds * 1_000_000),
                thread: ThreadId(0),
                call: call.into(),
                sampled: Sampled::NOT,
                kind,
            };
            events.push(&event, &Extras::NONE, live).unwrap();
        };
        for block in 0..BLOCKS {
            let serial = Serial(block);
            push(&mut events, 10 + block, EventKind::Alloc { serial, size: Bytes(1000), stack: self.stack_of(block) });
            if block % 2 == 0 {
                push(&mut events, 10 + block, EventKind::Free { block: FreedBlock::Known(serial) });
            }
        }
        push(
            &mut events,
            2000,
            EventKind::Alloc { serial: Serial(BLOCKS), size: Bytes(3000), stack: self.stack_of(BLOCKS) },
        );
        self.writer.push(&events.finish(&mut self.compressor).unwrap());
    }

    /// Writes what the system counted.
    fn memory(&mut self) {
        let memory = [(10, 700_000), (1_000, 9_000)].map(|(milliseconds, resident)| MemorySample {
            time: Time(milliseconds * 1_000_000),
            resident: Bytes(resident),
            resident_anonymous: Bytes(resident / 2),
            heap: Bytes(135_168),
            ..MemorySample::default()
        });
        MemoryEncoder::encode(IMAGE, &memory, &mut self.compressor)
            .unwrap()
            .iter()
            .for_each(|chunk| self.writer.push(chunk));
    }

    /// Writes the totals of each stack.
    fn sites(&mut self) {
        let holds = |bytes, blocks| Live { bytes: Bytes(bytes), blocks: Blocks(blocks) };
        let site = |stack, allocations, bytes, temporaries, live: Live| Site {
            stack: StackId(stack),
            allocations: Blocks(allocations),
            bytes_allocated: Bytes(bytes),
            temporaries: Blocks(temporaries),
            live_end: live,
            live_at_image_peak: live,
            live_at_session_peak: live,
            errors: SiteErrors::default(),
        };
        let sites = match self.is_declared {
            false => vec![site(2, BLOCKS, 10_000, 5, holds(5000, 5)), site(5, 1, 3000, 0, holds(3000, 1))],
            true => vec![
                site(14, 4, 4000, 2, holds(2000, 2)),
                site(15, 3, 3000, 2, holds(1000, 1)),
                site(2, 3, 3000, 1, holds(2000, 2)),
                site(16, 1, 3000, 0, holds(3000, 1)),
            ],
        };
        SitesEncoder::encode(IMAGE, &sites, &mut self.compressor)
            .unwrap()
            .iter()
            .for_each(|chunk| self.writer.push(chunk));
    }

    /// Writes the totals of the process and of the session.
    fn end(&mut self) {
        let counts = Counts {
            allocations: Blocks(11),
            frees: Blocks(5),
            bytes_allocated: Bytes(13_000),
            bytes_live_max: Bytes(8000),
            bytes_live_max_time: Time(2_000_000_000),
            blocks_at_bytes_max: Blocks(6),
            blocks_live_max: Blocks(6),
            bytes_live_end: Bytes(8000),
            blocks_live_end: Blocks(6),
            temporary_allocations: Blocks(5),
            threads: 1,
            ..Counts::default()
        };
        let records = [
            Record::ImageCounts(ImageCounts { image: IMAGE, counts }),
            Record::ProcessCounts(ProcessCounts { first_image: IMAGE, pid: 4411, counts }),
        ];
        self.put(&records);
        let footer = Footer {
            time: Time(2_600_000_000),
            complete: true,
            counts,
            exit: Some(ExitStatus::Code(3)),
            ..Footer::default()
        };
        self.writer.finish(&footer, &mut self.compressor);
    }
}
