//! A trace of Perfetto with a heap profile, as `heapprofd` writes it, and <https://ui.perfetto.dev>
//! and `trace_processor` read it.
//!
//! A trace is a sequence of packets. Names, modules, frames and stacks have numbers, which the
//! first packet gives out (*interned data*). Then come the samples, one for each stack, with all
//! its allocations and frees. The difference is the live amount at the moment, which readers call
//! *unreleased*.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use prost::Message;

use crate::calls::Call;
use crate::holds::Holds;
use crate::profile::{Amount, Known, Location, Profile};

/// The amounts live at one moment, and allocated in all.
pub const HOLDS: Holds = Holds {
    amounts: AMOUNTS,
    expected: AMOUNTS,
    blocks: true,
    names: true,
    files: true,
    lines: true,
    modules: true,
    ..Holds::STACKS
};

const AMOUNTS: Known = Known { allocated: true, live: true, ..Known::NONE };

/// Packets with the same number are in order, and share the interned data.
const SEQUENCE: u32 = 1;
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;
/// The most samples in one packet: heapprofd keeps its packets below half a megabyte.
const SAMPLES: usize = 10_000;

/// Writes the file. Takes memory in proportion to the profile.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut builder = Builder::default();
    let samples = builder.samples(profile);
    let packet = |data| proto::TracePacket {
        timestamp: Some(profile.moment_ns),
        trusted_packet_sequence_id: Some(SEQUENCE),
        sequence_flags: Some(NEEDS_STATE),
        ..data
    };
    let process = proto::Process { pid: profile.pid as i32, cmdline: vec![profile.command.clone()] };
    let first = proto::TracePacket {
        process_tree: Some(proto::ProcessTree { processes: vec![process] }),
        interned_data: Some(builder.interned),
        ..proto::TracePacket::default()
    };
    let mut packets = vec![proto::TracePacket { sequence_flags: Some(STATE_CLEARED | NEEDS_STATE), ..packet(first) }];
    let parts = samples.chunks(SAMPLES).count();
    for (index, samples) in (0..).zip(samples.chunks(SAMPLES)) {
        let dump = proto::ProcessHeapSamples {
            pid: profile.pid.into(),
            heap_name: "malloc".into(),
            sampling_interval_bytes: profile.sampling_bytes.unwrap_or(1),
            timestamp: profile.moment_ns,
            samples: samples.to_vec(),
        };
        let profile_packet =
            proto::ProfilePacket { process_dumps: vec![dump], continued: index + 1 < parts as u64, index };
        packets
            .push(packet(proto::TracePacket { profile_packet: Some(profile_packet), ..proto::TracePacket::default() }));
    }
    packets.into_iter().try_for_each(|packet| out.write_all(&proto::Trace { packet: vec![packet] }.encode_to_vec()))
}

/// The numbers of distinct values. They begin with 1: 0 is none.
struct Numbers<T>(HashMap<T, u64>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Numbers(HashMap::new())
    }
}

impl<T: Clone + Eq + Hash> Numbers<T> {
    /// Returns the number of a value, and calls `new` if the value is new.
    fn of(&mut self, key: T, new: impl FnOnce(u64, T)) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(key).or_insert_with_key(|key| {
            new(next, key.clone());
            next
        })
    }
}

#[derive(Default)]
struct Builder {
    interned: proto::InternedData,
    functions: Numbers<String>,
    files: Numbers<String>,
    paths: Numbers<String>,
    build_ids: Numbers<String>,
    /// Modules by index in the profile.
    mappings: Numbers<usize>,
    frames: Numbers<proto::Frame>,
    callstacks: Numbers<Vec<u64>>,
}

impl Builder {
    /// Returns one sample for each stack: stacks that differ only in labels are one.
    fn samples(&mut self, profile: &Profile) -> Vec<proto::HeapSample> {
        let mut sums: Vec<(Amount, Amount)> = Vec::new();
        for sample in &profile.samples {
            let calls = Call::of(profile, sample);
            let frames: Vec<u64> = calls.iter().rev().map(|call| self.frame(profile, call)).collect();
            let callstacks = &mut self.interned.callstacks;
            let number = self.callstacks.of(frames, |iid, frame_ids| {
                callstacks.push(proto::Callstack { iid, frame_ids });
                sums.push(Default::default());
            });
            let (allocated, live) = &mut sums[number as usize - 1];
            live.add(sample.amounts.live);
            allocated.add(sample.amounts.allocated);
        }
        let sample = |(callstack_id, (allocated, live)): (u64, (Amount, Amount))| {
            // Blocks that were live when recording began were allocated too.
            let (bytes, blocks) = (allocated.bytes.max(live.bytes), allocated.blocks.max(live.blocks));
            proto::HeapSample {
                callstack_id,
                self_allocated: bytes,
                self_freed: bytes - live.bytes,
                timestamp: profile.moment_ns,
                alloc_count: blocks,
                free_count: blocks - live.blocks,
            }
        };
        (1..).zip(sums).map(sample).collect()
    }

    fn frame(&mut self, profile: &Profile, call: &Call<'_>) -> u64 {
        let mapping_id = call.location.module.map_or(0, |at| self.mapping(profile, at));
        let names = &mut self.interned.function_names;
        let function_name_id = self.functions.of(call.name().into_owned(), |iid, name| names.push(string(iid, name)));
        let source_path_iid = match &*call.frame.file {
            "" => 0,
            file => self.files.of(file.to_owned(), |iid, file| self.interned.source_paths.push(string(iid, file))),
        };
        let frame = proto::Frame {
            iid: 0,
            function_name_id,
            mapping_id,
            rel_pc: own_address(profile, call.location),
            source_path_iid,
            line_number: call.frame.line,
        };
        self.frames.of(frame, |iid, frame| self.interned.frames.push(proto::Frame { iid, ..frame }))
    }

    fn mapping(&mut self, profile: &Profile, at: usize) -> u64 {
        let Some(module) = profile.modules.get(at) else { return 0 };
        let paths = module.path.split('/').filter(|part| !part.is_empty());
        let path_string_ids = paths
            .map(|part| self.paths.of(part.to_owned(), |iid, part| self.interned.mapping_paths.push(string(iid, part))))
            .collect();
        let build_id = match &*module.build_id {
            "" => 0,
            id => self.build_ids.of(id.to_owned(), |iid, id| {
                self.interned.build_ids.push(proto::InternedString { iid, str: bytes_of(&id) });
            }),
        };
        let mapping = proto::Mapping {
            iid: 0,
            build_id,
            start_offset: 0,
            start: module.start,
            end: module.end,
            load_bias: 0,
            path_string_ids,
            exact_offset: module.file_offset,
        };
        self.mappings.of(at, |iid, _| self.interned.mappings.push(proto::Mapping { iid, ..mapping }))
    }
}

fn string(iid: u64, text: String) -> proto::InternedString {
    proto::InternedString { iid, str: text.into_bytes() }
}

/// Returns the bytes of hexadecimal digits: readers show build ids in digits.
fn bytes_of(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Returns the address in the module's own file.
fn own_address(profile: &Profile, location: &Location) -> u64 {
    let module = location.module.and_then(|at| profile.modules.get(at));
    let bias = module.map_or(0, |module| module.bias.unwrap_or(module.start.wrapping_sub(module.file_offset)));
    location.address.wrapping_sub(bias)
}

/// The fields of Perfetto's messages that are written.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Trace {
        #[prost(message, repeated, tag = 1)]
        pub(super) packet: Vec<TracePacket>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct TracePacket {
        #[prost(message, optional, tag = 2)]
        pub(super) process_tree: Option<ProcessTree>,
        #[prost(uint64, optional, tag = 8)]
        pub(super) timestamp: Option<u64>,
        #[prost(uint32, optional, tag = 10)]
        pub(super) trusted_packet_sequence_id: Option<u32>,
        #[prost(message, optional, tag = 12)]
        pub(super) interned_data: Option<InternedData>,
        #[prost(uint32, optional, tag = 13)]
        pub(super) sequence_flags: Option<u32>,
        #[prost(message, optional, tag = 37)]
        pub(super) profile_packet: Option<ProfilePacket>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ProcessTree {
        #[prost(message, repeated, tag = 1)]
        pub(super) processes: Vec<Process>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Process {
        #[prost(int32, tag = 1)]
        pub(super) pid: i32,
        #[prost(string, repeated, tag = 3)]
        pub(super) cmdline: Vec<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct InternedData {
        #[prost(message, repeated, tag = 5)]
        pub(super) function_names: Vec<InternedString>,
        #[prost(message, repeated, tag = 6)]
        pub(super) frames: Vec<Frame>,
        #[prost(message, repeated, tag = 7)]
        pub(super) callstacks: Vec<Callstack>,
        #[prost(message, repeated, tag = 16)]
        pub(super) build_ids: Vec<InternedString>,
        #[prost(message, repeated, tag = 17)]
        pub(super) mapping_paths: Vec<InternedString>,
        #[prost(message, repeated, tag = 18)]
        pub(super) source_paths: Vec<InternedString>,
        #[prost(message, repeated, tag = 19)]
        pub(super) mappings: Vec<Mapping>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct InternedString {
        #[prost(uint64, tag = 1)]
        pub(super) iid: u64,
        #[prost(bytes = "vec", tag = 2)]
        pub(super) str: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = 1)]
        pub(super) iid: u64,
        #[prost(uint64, tag = 2)]
        pub(super) build_id: u64,
        #[prost(uint64, tag = 3)]
        pub(super) start_offset: u64,
        #[prost(uint64, tag = 4)]
        pub(super) start: u64,
        #[prost(uint64, tag = 5)]
        pub(super) end: u64,
        #[prost(uint64, tag = 6)]
        pub(super) load_bias: u64,
        // One by one, which is the default of proto2.
        #[prost(uint64, repeated, packed = "false", tag = 7)]
        pub(super) path_string_ids: Vec<u64>,
        #[prost(uint64, tag = 8)]
        pub(super) exact_offset: u64,
    }

    #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
    pub(super) struct Frame {
        #[prost(uint64, tag = 1)]
        pub(super) iid: u64,
        #[prost(uint64, tag = 2)]
        pub(super) function_name_id: u64,
        #[prost(uint64, tag = 3)]
        pub(super) mapping_id: u64,
        #[prost(uint64, tag = 4)]
        pub(super) rel_pc: u64,
        #[prost(uint64, tag = 5)]
        pub(super) source_path_iid: u64,
        #[prost(uint32, tag = 6)]
        pub(super) line_number: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Callstack {
        #[prost(uint64, tag = 1)]
        pub(super) iid: u64,
        #[prost(uint64, repeated, packed = "false", tag = 2)]
        pub(super) frame_ids: Vec<u64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ProfilePacket {
        #[prost(message, repeated, tag = 5)]
        pub(super) process_dumps: Vec<ProcessHeapSamples>,
        #[prost(bool, tag = 6)]
        pub(super) continued: bool,
        #[prost(uint64, tag = 7)]
        pub(super) index: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ProcessHeapSamples {
        #[prost(uint64, tag = 1)]
        pub(super) pid: u64,
        #[prost(message, repeated, tag = 2)]
        pub(super) samples: Vec<HeapSample>,
        #[prost(uint64, tag = 9)]
        pub(super) timestamp: u64,
        #[prost(string, tag = 11)]
        pub(super) heap_name: String,
        #[prost(uint64, tag = 12)]
        pub(super) sampling_interval_bytes: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct HeapSample {
        #[prost(uint64, tag = 1)]
        pub(super) callstack_id: u64,
        #[prost(uint64, tag = 2)]
        pub(super) self_allocated: u64,
        #[prost(uint64, tag = 3)]
        pub(super) self_freed: u64,
        #[prost(uint64, tag = 4)]
        pub(super) timestamp: u64,
        #[prost(uint64, tag = 5)]
        pub(super) alloc_count: u64,
        #[prost(uint64, tag = 6)]
        pub(super) free_count: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, written};

    #[test]
    fn what_is_allocated_less_what_is_freed_is_live() {
        let profile = example();
        let trace = proto::Trace::decode(&*written(write, &profile)).unwrap();
        let interned = trace.packet[0].interned_data.as_ref().unwrap();
        let dumps: Vec<_> = trace.packet.iter().filter_map(|packet| packet.profile_packet.as_ref()).collect();
        let samples: Vec<_> = dumps.iter().flat_map(|dump| &dump.process_dumps[0].samples).collect();
        let sum = |of: fn(&proto::HeapSample) -> u64| samples.iter().map(|sample| of(sample)).sum::<u64>();
        let expected = |of: fn(&crate::Sample) -> u64| profile.samples.iter().map(of).sum::<u64>();
        assert_eq!(sum(|it| it.self_allocated), expected(|it| it.amounts.allocated.bytes));
        assert_eq!(sum(|it| it.self_allocated - it.self_freed), expected(|it| it.amounts.live.bytes));
        assert_eq!(sum(|it| it.alloc_count - it.free_count), expected(|it| it.amounts.live.blocks));
        // The outermost function is first, and inlined ones have frames of their own.
        let names = |sample: &proto::HeapSample| -> Vec<String> {
            let stack = &interned.callstacks[sample.callstack_id as usize - 1];
            let frames = stack.frame_ids.iter().map(|&id| &interned.frames[id as usize - 1]);
            let names = frames.map(|frame| &interned.function_names[frame.function_name_id as usize - 1].str);
            names.map(|name| String::from_utf8(name.clone()).unwrap()).collect()
        };
        assert_eq!(names(samples[0]), ["main", "outer", "inner"]);
        assert_eq!(samples.len(), interned.callstacks.len());
    }

    #[test]
    fn many_samples_are_several_packets() {
        let mut profile = Profile::default();
        for at in 0..SAMPLES + 1 {
            profile.locations.push(Location { address: at as u64 + 1, ..Location::default() });
            profile.samples.push(crate::Sample { locations: vec![at], ..crate::Sample::default() });
        }
        let trace = proto::Trace::decode(&*written(write, &profile)).unwrap();
        let parts = trace.packet.iter().filter_map(|packet| packet.profile_packet.as_ref());
        let parts: Vec<_> = parts.map(|it| (it.index, it.continued, it.process_dumps[0].samples.len())).collect();
        assert_eq!(parts, [(0, true, SAMPLES), (1, false, 1)]);
    }
}
