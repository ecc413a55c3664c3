//! Imports allocations and frees that another tool has recorded.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use heapledger_core::{Api, Blocks, Bytes, Serial, ThreadId};
use heapledger_profile_formats::{self as profiles, Profile};
use heapledger_recording::{
    Event, EventKind, EventsEncoder, Extras, Footer, FreedBlock, ImageId, Live, Record, Sampled, Thread, Time,
};

use crate::import::places::Common;
use crate::import::tree::{Tree, image_end, image_start, leaf, session};
use crate::rewrite::{Draft, Error};

/// A recording of events that is being written.
#[derive(Debug)]
pub struct ImportedEvents<'d, W> {
    draft: &'d mut Draft<W>,
    /// The processes, by the index that events have.
    processes: Vec<Process>,
    time: Time,
}

/// The state of a process so far.
#[derive(Debug)]
struct Process {
    encoder: EventsEncoder,
    /// The serial and the size of each live block, by address.
    live: HashMap<u64, (Serial, u64)>,
    live_sum: Live,
    threads: HashMap<u32, ThreadId>,
    /// The indices of the samples in which its blocks were allocated.
    samples: BTreeSet<usize>,
}

impl Process {
    fn new(image: ImageId) -> Process {
        let (live, threads, samples) = <(HashMap<_, _>, HashMap<_, _>, BTreeSet<_>)>::default();
        Process { encoder: EventsEncoder::new(image), live, live_sum: Live::default(), threads, samples }
    }
}

fn image(process: usize) -> ImageId {
    ImageId(process as u32 + 1)
}

impl<'d, W: Write> ImportedEvents<'d, W> {
    /// Begins a recording in which nothing has happened yet.
    pub fn new(draft: &'d mut Draft<W>) -> ImportedEvents<'d, W> {
        ImportedEvents { draft, processes: vec![Process::new(image(0))], time: Time(0) }
    }

    /// Adds the next event. A free of a block that is not live is left out.
    ///
    /// # Errors
    ///
    /// Fails if writing the recording fails.
    pub fn add(&mut self, event: &profiles::Event) -> Result<(), Error> {
        while self.processes.len() <= event.process {
            self.processes.push(Process::new(image(self.processes.len())));
        }
        self.time = self.time.max(Time(event.time_ns));
        let process = &mut self.processes[event.process];
        let next = ThreadId(process.threads.len() as u32);
        let thread = *process.threads.entry(event.thread).or_insert(next);
        let (api, kind) = match event.kind {
            profiles::EventKind::Allocated { bytes, sample } => {
                let serial = process.encoder.next_serial();
                process.live.insert(event.address, (serial, bytes));
                process.live_sum.bytes.0 = process.live_sum.bytes.0.saturating_add(bytes);
                process.live_sum.blocks = Blocks(process.live_sum.blocks.0 + 1);
                process.samples.insert(sample);
                (Api::Malloc, EventKind::Alloc { serial, size: Bytes(bytes), stack: leaf(sample) })
            }
            profiles::EventKind::Freed { .. } => {
                let Some((serial, bytes)) = process.live.remove(&event.address) else { return Ok(()) };
                process.live_sum.bytes.0 = process.live_sum.bytes.0.saturating_sub(bytes);
                process.live_sum.blocks.0 -= 1;
                (Api::Free, EventKind::Free { block: FreedBlock::Known(serial) })
            }
        };
        let event = Event { time: self.time, thread, call: api.into(), kind, sampled: Sampled::NOT };
        process.encoder.push(&event, &Extras::default(), process.live_sum)?;
        if process.encoder.is_full() { flush(self.draft, &mut process.encoder) } else { Ok(()) }
    }

    /// Adds the processes, modules and stacks of the events. The recording must then be
    /// [counted](Draft::count_and_finish), with the footer that is returned.
    ///
    /// # Errors
    ///
    /// Fails if writing the recording fails.
    pub fn finish(mut self, profile: &Profile, source: &str) -> Result<Footer, Error> {
        let time = self.time.max(Time(profile.duration_ns));
        let (mut common, mut records) = (Common::default(), vec![session(profile, source, false)]);
        let places = common.add(profile);
        let mut all_nodes = Vec::new();
        for (at, process) in self.processes.iter_mut().enumerate() {
            flush(self.draft, &mut process.encoder)?;
            let mut tree = Tree::new(profile, &places, profile.samples.len() as u32);
            process.samples.iter().for_each(|&sample| tree.add_leaf(sample, &mut common));
            let image = image(at);
            let known = profile.processes.get(at);
            let (pid, command) = known.map_or((profile.pid, &profile.command), |known| (known.pid, &known.name));
            records.push(image_start(image, pid, command, profile));
            records.extend(tree.mappings(image));
            let threads = process.threads.iter();
            records.extend(threads.map(|(&tid, &thread)| {
                let named = profile.threads.iter().find(|named| named.number == tid);
                let name = named.map(|named| named.name.clone().into_bytes()).unwrap_or_default();
                Record::Thread(Thread { image, thread, tid, name, ..Thread::default() })
            }));
            records.push(image_end(image, time));
            all_nodes.push((image, tree.nodes));
        }
        records.extend(common.records(source));
        self.draft.records(&records)?;
        for (image, nodes) in all_nodes {
            self.draft.nodes(image, nodes)?;
        }
        Ok(Footer { time, complete: !profile.is_cut, ..Footer::default() })
    }
}

fn flush<W: Write>(draft: &mut Draft<W>, encoder: &mut EventsEncoder) -> Result<(), Error> {
    draft.put(|compressor| Ok(encoder.finish(compressor)))
}
