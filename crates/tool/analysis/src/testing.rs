//! Random sessions, written as recordings whose totals come from a simple model and not from the
//! ledger.

use std::collections::{BTreeMap, HashMap};

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{
    CheckpointEncoder, Compressor, Counts, EncodedChunk, Event, EventKind, EventsEncoder, ExitStatus, Extras, Footer,
    FreedBlock, ImageCounts, ImageEnd, ImageEndReason, ImageId, ImageOrigin, ImageStart, Live, LiveBlock, Module,
    ModuleId, Node, NodeKind, NodesEncoder, ProcessCounts, Record, RecordingWriter, Sampled, Session, Site,
    SitesEncoder, Text, TextId, Time, encode_records,
};
use proptest::prelude::*;

/// The next step of a session, and the image that takes it. Numbers are taken modulo the number of
/// candidates.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    image: usize,
    thread: u32,
    what: What,
}

impl Step {
    /// True if it reattributes a block to another stack.
    pub(crate) fn is_move(&self) -> bool {
        matches!(self.what, What::Move { .. })
    }
}

#[derive(Clone, Debug)]
enum What {
    Allocate { size: u64, stack: u32 },
    Free { block: usize },
    Reallocate { block: usize, size: u64, stack: u32 },
    ReallocateNothing { size: u64, stack: u32 },
    FreeInherited,
    FreeUnknown,
    Fail { size: u64, stack: u32 },
    Move { block: usize, stack: u32 },
    Checkpoint,
    Fork,
    Exec,
    Exit { code: i32 },
}

pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![4 => 0_u64..200, 1 => 0_u64..100_000];
    let stack = 0..STACKS + 3;
    let what = prop_oneof![
        30 => (size.clone(), stack.clone()).prop_map(|(size, stack)| What::Allocate { size, stack }),
        15 => any::<usize>().prop_map(|block| What::Free { block }),
        8 => (any::<usize>(), size.clone(), stack.clone())
            .prop_map(|(block, size, stack)| What::Reallocate { block, size, stack }),
        1 => (size.clone(), stack.clone()).prop_map(|(size, stack)| What::ReallocateNothing { size, stack }),
        2 => Just(What::FreeInherited),
        1 => Just(What::FreeUnknown),
        1 => (size, stack.clone()).prop_map(|(size, stack)| What::Fail { size, stack }),
        4 => (any::<usize>(), stack).prop_map(|(block, stack)| What::Move { block, stack }),
        2 => Just(What::Checkpoint),
        2 => Just(What::Fork),
        1 => Just(What::Exec),
        1 => (0..5).prop_map(|code| What::Exit { code }),
    ];
    let step = (any::<usize>(), 0_u32..3, what).prop_map(|(image, thread, what)| Step { image, thread, what });
    prop::collection::vec(step, 0..most)
}

/// Returns steps of one image: allocations, a checkpoint, and further allocations.
pub(crate) fn steps_around_a_checkpoint(before: u64, after: u64) -> Vec<Step> {
    let allocate = |size| What::Allocate { size: size + 1, stack: 0 };
    let whats = (0..before).map(allocate).chain([What::Checkpoint]).chain((0..after).map(allocate));
    whats.map(|what| Step { image: 0, thread: 1, what }).collect()
}

/// The number of stacks of an image, with ids from 1. Some of them are equal; 0 is the root.
const STACKS: u32 = 12;

/// The figures of a session according to the model.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) counts: Counts,
    /// The amounts that were live after each step, by stack name, with its time.
    pub(crate) history: Vec<(Time, BTreeMap<u64, Live>)>,
}

/// The texts of a session, by number from 1.
const TEXTS: [&str; 8] =
    ["request", "v=1", "parse", "parse", "arena", "Token\nmodel.rs:7", "Token\nmodel.rs:7", "Page\nmodel.rs:8\nlabel"];

/// Returns the innermost scope of a stack's context.
fn innermost_scope(stack: StackId) -> Option<u32> {
    match stack.0 {
        9 => Some(1062),
        10 => Some(1063),
        11 | 12 => Some(1061),
        _ => None,
    }
}

/// Returns the name of a stack's context.
pub(crate) fn context(stack: StackId) -> &'static str {
    match innermost_scope(stack) {
        None => "(no context)",
        Some(1061) => "request{v=1}",
        Some(_) => "request{v=1} > parse",
    }
}

/// Returns the heap that a stack allocates from.
pub(crate) fn heap(stack: StackId) -> Option<&'static str> {
    matches!(stack.0, 11 | 12).then_some("arena")
}

/// Returns the type in the stamp of a stack's blocks.
pub(crate) fn stamp(stack: StackId) -> Option<&'static str> {
    match stack.0 {
        7 | 8 => Some("Token"),
        11 | 12 => Some("Page"),
        _ => None,
    }
}

/// Returns the innermost frame of a stack of any image; it is equal for equal stacks. Ids without
/// nodes have no frames.
fn innermost(stack: StackId) -> u64 {
    match stack.0 {
        0 => 0,
        id if id > STACKS => 0,
        id => 100 + u64::from((id - 1) % STACKS) / 2,
    }
}

#[derive(Clone, Copy)]
struct Block {
    size: u64,
    stack: StackId,
    thread: u32,
}

struct Image {
    start: ImageStart,
    encoder: EventsEncoder,
    chunks: Vec<EncodedChunk>,
    live: BTreeMap<u64, Block>,
    /// The block that the latest event of each thread returned.
    latest: HashMap<u32, u64>,
    inherited: Vec<u64>,
    sites: BTreeMap<StackId, Site>,
    counts: Counts,
    threads: Vec<u32>,
    last_event: u64,
    end: Option<ImageEnd>,
}

struct Model {
    images: Vec<Image>,
    time: u64,
    pids: u32,
    /// The largest pid, which every process beyond has, too.
    pid_max: u32,
    truth: Truth,
    compressor: Compressor,
}

/// Returns the recording of a session in two forms: finished, and cut off where the recorder would
/// have written the totals.
pub(crate) fn write(steps: &[Step]) -> (Vec<u8>, Vec<u8>, Truth) {
    write_with_pids(steps, u32::MAX)
}

/// Returns steps of three processes, of which two end before the next begins: each child allocates
/// one block, of 10 and of 20 bytes.
pub(crate) fn steps_of_two_children() -> Vec<Step> {
    let step = |image, what| Step { image, thread: 1, what };
    let child =
        |size| [step(0, What::Fork), step(1, What::Allocate { size, stack: 1 }), step(1, What::Exit { code: 0 })];
    [child(10), child(20)].concat()
}

/// Does what [`write`] does, with pids up to a number.
pub(crate) fn write_with_pids(steps: &[Step], pid_max: u32) -> (Vec<u8>, Vec<u8>, Truth) {
    let (truth, compressor) = (Truth::default(), Compressor::new());
    let mut model = Model { images: vec![], time: 0, pids: 100, pid_max, truth, compressor };
    model.start(None, ImageOrigin::Launched);
    for step in steps {
        model.step(step);
    }
    model.write()
}

impl Model {
    fn start(&mut self, from: Option<usize>, how: ImageOrigin) {
        let parent = from.map(|at| &self.images[at]);
        let inherited: Vec<u64> = match (how, parent) {
            (ImageOrigin::Fork, Some(parent)) => parent.live.values().map(|block| block.size).collect(),
            _ => vec![],
        };
        let pid = match (how, parent) {
            (ImageOrigin::Exec, Some(parent)) => parent.start.pid,
            _ => {
                self.pids = (self.pids + 1).min(self.pid_max);
                self.pids
            }
        };
        let image = ImageId(self.images.len() as u32);
        let start = ImageStart {
            image,
            pid,
            parent_image: parent.map(|parent| parent.start.image),
            how,
            inherited_blocks: Blocks(inherited.len() as u64),
            inherited_bytes: Bytes(inherited.iter().sum()),
            inherited_exact: true,
            time: Time(self.time),
            executable: b"/bin/model".to_vec(),
            argv: vec![b"model".to_vec(), format!("{}", image.0).into_bytes()],
            ..ImageStart::default()
        };
        let counts = Counts {
            bytes_inherited_live_end: start.inherited_bytes,
            blocks_inherited_live_end: start.inherited_blocks,
            ..Counts::default()
        };
        self.images.push(Image {
            start,
            encoder: EventsEncoder::new(image).with_tick_ns(1),
            chunks: vec![],
            live: BTreeMap::new(),
            latest: HashMap::new(),
            inherited,
            sites: BTreeMap::new(),
            counts,
            threads: vec![],
            last_event: 0,
            end: None,
        });
    }

    fn step(&mut self, step: &Step) {
        let running: Vec<usize> = (0..self.images.len()).filter(|&at| self.images[at].end.is_none()).collect();
        let Some(&at) = running.get(step.image % running.len().max(1)) else { return };
        if let What::Move { .. } = step.what {
            // A stamp has the time of the event before it.
            if self.images[at].last_event != self.time || self.images[at].encoder.is_empty() {
                return;
            }
        } else {
            self.time += 1 + step.image as u64 % 7;
        }
        match step.what {
            What::Fork => return self.start(Some(at), ImageOrigin::Fork),
            What::Exec => {
                self.end(at, ImageEndReason::Exec, None);
                return self.start(Some(at), ImageOrigin::Exec);
            }
            What::Exit { code } => return self.end(at, ImageEndReason::Exit, Some(ExitStatus::Code(code))),
            What::Checkpoint => return self.checkpoint(at),
            _ => {}
        }

        let image = &mut self.images[at];
        let known = |image: &Image, block: usize| image.live.keys().nth(block % image.live.len().max(1)).copied();
        let serial = image.encoder.next_serial();
        let mut extras = Extras::NONE;
        let (call, kind) = match step.what {
            What::Allocate { size, stack } => {
                (Api::Malloc, EventKind::Alloc { serial, size: Bytes(size), stack: StackId(stack) })
            }
            What::ReallocateNothing { size, stack } => {
                let (size, stack) = (Bytes(size), StackId(stack));
                (Api::Realloc, EventKind::Realloc { old: FreedBlock::None, serial, size, stack })
            }
            What::Free { block } => {
                let Some(block) = known(image, block) else { return };
                (Api::Free, EventKind::Free { block: FreedBlock::Known(Serial(block)) })
            }
            What::Reallocate { block, size, stack } => {
                let Some(block) = known(image, block) else { return };
                let (size, stack, old) = (Bytes(size), StackId(stack), FreedBlock::Known(Serial(block)));
                (Api::Realloc, EventKind::Realloc { old, serial, size, stack })
            }
            What::FreeInherited => {
                let Some(size) = image.inherited.pop() else { return };
                extras.freed_size = Some(Bytes(size));
                image.counts.bytes_inherited_live_end.0 -= size;
                image.counts.blocks_inherited_live_end.0 -= 1;
                (Api::Free, EventKind::Free { block: FreedBlock::Inherited })
            }
            What::FreeUnknown => (Api::Free, EventKind::Free { block: FreedBlock::Unknown }),
            What::Move { block, stack } => {
                let Some(block) = known(image, block) else { return };
                (Api::Malloc, EventKind::Reattributed { block: Serial(block), stack: StackId(stack) })
            }
            What::Fail { size, stack } => (Api::Malloc, EventKind::Failed { size: Bytes(size), stack: StackId(stack) }),
            What::Checkpoint | What::Fork | What::Exec | What::Exit { .. } => return,
        };
        let event = Event {
            time: Time(self.time),
            thread: ThreadId(step.thread),
            call: call.into(),
            sampled: Sampled::NOT,
            kind,
        };
        image.apply(&event);
        image.last_event = self.time;
        image.encoder.push(&event, &extras, image.live()).expect("an event that fits");
        if image.encoder.len() >= 9 {
            image.chunks.extend(image.encoder.finish(&mut self.compressor));
        }
        self.note();
    }

    fn end(&mut self, at: usize, reason: ImageEndReason, exit: Option<ExitStatus>) {
        let image = &mut self.images[at];
        image.end = Some(ImageEnd { image: image.start.image, time: Time(self.time), reason, exit });
        self.note();
    }

    fn checkpoint(&mut self, at: usize) {
        let image = &mut self.images[at];
        let next = image.encoder.next_serial();
        image.chunks.extend(image.encoder.finish(&mut self.compressor));
        let block = |(&serial, block): (&u64, &Block)| LiveBlock {
            serial: Serial(serial),
            size: Bytes(block.size),
            stack: block.stack,
            rate: Rate::EXACT,
            usable: None,
        };
        let blocks: Vec<LiveBlock> = image.live.iter().map(block).collect();
        let checkpoint = CheckpointEncoder::new(image.start.image, Time(self.time), next, image.counts);
        image.chunks.extend(checkpoint.encode(&blocks, &mut self.compressor).expect("blocks that fit"));
    }

    /// Updates peaks and the history after each step.
    fn note(&mut self) {
        let time = Time(self.time);
        for image in &mut self.images {
            let live = image.live();
            if image.end.is_none() && image.counts.peak(live, time) {
                let shares = image.shares();
                image.sites.values_mut().for_each(|site| site.live_at_image_peak = shares(site.stack));
            }
        }
        let running = || self.images.iter().filter(|image| image.end.is_none());
        let mut all = Live::default();
        let mut by_stack: BTreeMap<u64, Live> = BTreeMap::new();
        for image in running() {
            for block in image.live.values() {
                all.add(block.size);
                by_stack.entry(innermost(block.stack)).or_default().add(block.size);
            }
        }
        if self.truth.counts.peak(all, time) {
            for image in &mut self.images {
                let over = image.end.is_some();
                let shares = image.shares();
                for site in image.sites.values_mut() {
                    site.live_at_session_peak = if over { Live::default() } else { shares(site.stack) };
                }
            }
        }
        self.truth.history.push((time, by_stack));
    }

    fn write(mut self) -> (Vec<u8>, Vec<u8>, Truth) {
        let compressor = &mut self.compressor;
        let mut head = vec![
            Record::Session(Session { command: vec![b"model".to_vec()], ..Session::default() }),
            Record::Module(Module { module: ModuleId(1), path: b"/bin/model".to_vec(), build_id: vec![] }),
        ];
        head.extend(TEXTS.iter().zip(1..).map(|(&bytes, text)| {
            let (bytes, is_task) = (bytes.as_bytes().to_vec(), text == 1);
            Record::Text(Text { text: TextId(text), bytes, is_task, category: vec![] })
        }));
        head.extend(self.images.iter().map(|image| Record::ImageStart(image.start.clone())));
        head.extend(self.images.iter().filter_map(|image| image.end).map(Record::ImageEnd));
        let mut chunks = encode_records(&head, compressor).expect("few records");
        for image in &mut self.images {
            chunks.extend(image.nodes(compressor));
            chunks.extend(std::mem::take(&mut image.chunks));
            chunks.extend(image.encoder.finish(compressor));
        }

        let mut records = vec![];
        let mut processes: Vec<ProcessCounts> = vec![];
        for image in &mut self.images {
            image.settle();
            records.push(Record::ImageCounts(ImageCounts { image: image.start.image, counts: image.counts }));
            let pid = image.start.pid;
            match processes.iter_mut().find(|process| process.pid == pid) {
                None => {
                    processes.push(ProcessCounts { first_image: image.start.image, pid, counts: image.counts });
                }
                Some(process) => {
                    let (sum, own) = (&mut process.counts, &image.counts);
                    // The blocks that were live at the exec are gone.
                    sum.bytes_live_end = Bytes(0);
                    sum.blocks_live_end = Blocks(0);
                    sum.bytes_inherited_live_end = Bytes(0);
                    sum.blocks_inherited_live_end = Blocks(0);
                    sum.add(own);
                    sum.blocks_live_max = sum.blocks_live_max.max(own.blocks_live_max);
                    if own.bytes_live_max > sum.bytes_live_max {
                        sum.bytes_live_max = own.bytes_live_max;
                        sum.bytes_live_max_time = own.bytes_live_max_time;
                        sum.blocks_at_bytes_max = own.blocks_at_bytes_max;
                    }
                }
            }
        }
        let totals = &mut self.truth.counts;
        processes.iter().for_each(|process| totals.add(&process.counts));
        records.extend(processes.into_iter().map(Record::ProcessCounts));
        let footer = Footer { time: Time(self.time), complete: true, counts: *totals, ..Footer::default() };

        let file = |finished: bool, compressor: &mut Compressor| {
            let mut writer = RecordingWriter::new();
            chunks.iter().for_each(|chunk| writer.push(chunk));
            if finished {
                for image in &self.images {
                    let sites: Vec<Site> = image.sites.values().copied().collect();
                    let sites = SitesEncoder::encode(image.start.image, &sites, compressor).expect("few sites");
                    sites.iter().for_each(|chunk| writer.push(chunk));
                }
                let records = encode_records(&records, compressor).expect("few records");
                records.iter().for_each(|chunk| writer.push(chunk));
                writer.finish(&footer, compressor);
            }
            writer.pending().to_vec()
        };
        let finished = file(true, compressor);
        let unfinished = file(false, compressor);
        (finished, unfinished, self.truth)
    }
}

impl Image {
    fn live(&self) -> Live {
        let mut live = Live::default();
        self.live.values().for_each(|block| live.add(block.size));
        live
    }

    fn shares(&self) -> impl Fn(StackId) -> Live + use<> {
        let mut shares: HashMap<StackId, Live> = HashMap::new();
        for block in self.live.values() {
            shares.entry(block.stack).or_default().add(block.size);
        }
        move |stack| shares.get(&stack).copied().unwrap_or_default()
    }

    fn apply(&mut self, event: &Event) {
        let thread = event.thread.0;
        if !self.threads.contains(&thread) && !matches!(event.kind, EventKind::Reattributed { .. }) {
            self.threads.push(thread);
            self.counts.threads += 1;
        }
        match event.kind {
            EventKind::Alloc { serial, size, stack } => self.allocate(thread, serial, size, stack),
            EventKind::Free { block } => self.free(thread, block),
            EventKind::Realloc { old, serial, size, stack } => {
                self.allocate_after(thread, old, serial, size, stack);
            }
            EventKind::Failed { .. } => self.counts.failed.0 += 1,
            EventKind::Reattributed { block, stack } => {
                let moved = self.live.get_mut(&block.0).expect("a live block");
                let from = std::mem::replace(&mut moved.stack, stack);
                let size = moved.size;
                self.site(from).allocations.0 -= 1;
                self.site(from).bytes_allocated.0 -= size;
                self.site(stack).allocations.0 += 1;
                self.site(stack).bytes_allocated.0 += size;
            }
        }
    }

    fn allocate_after(&mut self, thread: u32, old: FreedBlock, serial: Serial, size: Bytes, stack: StackId) {
        if old == FreedBlock::None {
            return self.allocate(thread, serial, size, stack);
        }
        self.free(thread, old);
        self.allocate(thread, serial, size, stack);
        self.counts.reallocations.0 += 1;
    }

    fn allocate(&mut self, thread: u32, serial: Serial, size: Bytes, stack: StackId) {
        self.live.insert(serial.0, Block { size: size.0, stack, thread });
        self.latest.insert(thread, serial.0);
        self.counts.allocations.0 += 1;
        self.counts.bytes_allocated.0 += size.0;
        let site = self.site(stack);
        site.allocations.0 += 1;
        site.bytes_allocated.0 += size.0;
    }

    fn site(&mut self, stack: StackId) -> &mut Site {
        self.sites.entry(stack).or_insert(Site { stack, ..Site::default() })
    }

    fn free(&mut self, thread: u32, block: FreedBlock) {
        let latest = self.latest.remove(&thread);
        match block {
            FreedBlock::Known(serial) => {
                let block = self.live.remove(&serial.0).expect("a live block");
                self.counts.frees.0 += 1;
                if latest == Some(serial.0) && block.thread == thread {
                    self.counts.temporary_allocations.0 += 1;
                    self.sites.get_mut(&block.stack).expect("its site").temporaries.0 += 1;
                }
            }
            FreedBlock::Inherited => self.counts.frees_inherited.0 += 1,
            FreedBlock::Unknown | FreedBlock::None => self.counts.frees_unknown.0 += 1,
        }
    }

    fn settle(&mut self) {
        let (live, shares) = (self.live(), self.shares());
        self.counts.bytes_live_end = live.bytes;
        self.counts.blocks_live_end = live.blocks;
        self.sites.values_mut().for_each(|site| site.live_end = shares(site.stack));
    }

    /// Encodes the nodes. Stack `n` has a frame of its own under a common `main`; pairs of stacks
    /// are equal, under different epochs.
    fn nodes(&self, compressor: &mut Compressor) -> Option<EncodedChunk> {
        let mut encoder = NodesEncoder::new(self.start.image);
        let mut push = |id: u32, parent: u32, kind, offset| {
            let module = if kind == NodeKind::Frame { ModuleId(1) } else { ModuleId::UNKNOWN };
            let node = Node { id: StackId(id), parent: StackId(parent), kind, module, offset, is_unproven: false };
            encoder.push(&node).expect("few nodes");
        };
        for epoch in 0..2 {
            push(1000 + epoch, 0, NodeKind::Epoch, epoch.into());
            push(1010 + epoch, 1000 + epoch, NodeKind::Frame, 1);
        }
        for id in 1..=STACKS {
            let (parent, frame) = (1010 + id % 2, innermost(StackId(id)));
            let mut nodes = vec![(NodeKind::Frame, frame)];
            nodes.extend(innermost_scope(StackId(id)).map(|scope| (NodeKind::Context, scope.into())));
            nodes.extend(heap(StackId(id)).map(|_| (NodeKind::Heap, 5)));
            // Numbers 6 and 7 have equal texts, which count as one.
            nodes.extend(
                stamp(StackId(id)).map(|stamp| (NodeKind::Stamp, if stamp == "Page" { 8 } else { u64::from(id) - 1 })),
            );
            let mut above = parent;
            for (at, &(kind, offset)) in nodes.iter().enumerate() {
                // The innermost node is the stack.
                let own = if at + 1 == nodes.len() { id } else { 1100 + id * 10 + at as u32 };
                push(own, above, kind, offset);
                above = own;
            }
        }
        // request{v=1} > parse; the node of `parse` exists twice.
        push(1060, 0, NodeKind::Scope, 1);
        push(1061, 1060, NodeKind::Value, 2);
        push(1062, 1061, NodeKind::Scope, 3);
        push(1063, 1061, NodeKind::Scope, 4);
        encoder.finish(compressor)
    }
}

trait Add {
    fn add(&mut self, size: u64);
}

impl Add for Live {
    fn add(&mut self, size: u64) {
        self.bytes.0 += size;
        self.blocks.0 += 1;
    }
}

trait Sums {
    fn add(&mut self, other: &Counts);
    fn peak(&mut self, live: Live, time: Time) -> bool;
}

impl Sums for Counts {
    fn add(&mut self, other: &Counts) {
        let maxima = *self;
        *self = Counts {
            allocations: Blocks(self.allocations.0 + other.allocations.0),
            reallocations: Blocks(self.reallocations.0 + other.reallocations.0),
            frees: Blocks(self.frees.0 + other.frees.0),
            failed: Blocks(self.failed.0 + other.failed.0),
            bytes_allocated: Bytes(self.bytes_allocated.0 + other.bytes_allocated.0),
            bytes_live_end: Bytes(self.bytes_live_end.0 + other.bytes_live_end.0),
            blocks_live_end: Blocks(self.blocks_live_end.0 + other.blocks_live_end.0),
            temporary_allocations: Blocks(self.temporary_allocations.0 + other.temporary_allocations.0),
            frees_unknown: Blocks(self.frees_unknown.0 + other.frees_unknown.0),
            frees_inherited: Blocks(self.frees_inherited.0 + other.frees_inherited.0),
            bytes_inherited_live_end: Bytes(self.bytes_inherited_live_end.0 + other.bytes_inherited_live_end.0),
            blocks_inherited_live_end: Blocks(self.blocks_inherited_live_end.0 + other.blocks_inherited_live_end.0),
            threads: self.threads + other.threads,
            ..maxima
        };
    }

    fn peak(&mut self, live: Live, time: Time) -> bool {
        self.blocks_live_max = self.blocks_live_max.max(live.blocks);
        let higher = live.bytes > self.bytes_live_max;
        if higher {
            self.bytes_live_max = live.bytes;
            self.bytes_live_max_time = time;
            self.blocks_at_bytes_max = live.blocks;
        }
        higher
    }
}
