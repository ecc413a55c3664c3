//! `profile.proto`, compressed with gzip, which `go tool pprof FILE` reads.
//!
//! The four kinds of samples are those of Go's own heap profiles, in their order: `alloc_objects`,
//! `alloc_space`, `inuse_objects`, `inuse_space`. Readers begin with the [shown](Profile::shown)
//! figure.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

mod read;

use crate::holds::Holds;
use crate::profile::{Figure, Frame, Known, Module, Profile, Sample};

pub use read::{detects, read};

/// The live blocks at one moment, and all allocations.
pub const HOLDS: Holds = Holds {
    amounts: AMOUNTS,
    expected: AMOUNTS,
    blocks: true,
    labels: true,
    names: true,
    files: true,
    lines: true,
    modules: true,
    ..Holds::STACKS
};

const AMOUNTS: Known = Known { allocated: true, live: true, ..Known::NONE };

/// Writes the file. Takes memory in proportion to the profile.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    write_change(profile, &[], out)
}

/// Writes the change since these samples, which may be negative. Their indices refer to the same
/// locations.
///
/// # Errors
///
/// The errors of `out`.
pub fn write_change(profile: &Profile, before: &[Sample], out: &mut dyn Write) -> io::Result<()> {
    let message = Builder::default().profile(profile, before).encode_to_vec();
    let mut compressed = GzEncoder::new(out, Compression::default());
    compressed.write_all(&message)?;
    compressed.finish().map(drop)
}

/// The strings and functions that have a number already.
#[derive(Default)]
struct Builder {
    strings: Vec<String>,
    string_ids: HashMap<String, i64>,
    functions: Vec<proto::Function>,
    function_ids: HashMap<Frame, u64>,
}

impl Builder {
    fn profile(mut self, from: &Profile, before: &[Sample]) -> proto::Profile {
        // The empty string is always the first.
        self.string("");
        let sample_type = [
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
        ]
        .map(|(kind, unit)| proto::ValueType { kind: self.string(kind), unit: self.string(unit) });
        let modules = with_names(from);
        let mapping: Vec<_> =
            (1..).zip(from.modules.iter().zip(modules)).map(|(id, module)| self.mapping(id, module)).collect();
        let location: Vec<_> = (1..)
            .zip(&from.locations)
            .map(|(id, location)| proto::Location {
                id,
                // Ids are indices, counted from 1.
                mapping_id: location.module.filter(|&at| at < mapping.len()).map_or(0, |at| at as u64 + 1),
                address: location.address,
                line: location.frames.iter().map(|frame| self.line(frame)).collect(),
            })
            .collect();
        let changes = changes(&from.samples, before).into_iter().map(|(sample, value)| proto::Sample {
            location_id: sample.locations.iter().filter(|&&at| at < location.len()).map(|&at| at as u64 + 1).collect(),
            value: value.to_vec(),
            label: sample
                .labels
                .iter()
                .map(|(key, text)| proto::Label { key: self.string(key), text: self.string(text) })
                .collect(),
        });
        let sample = changes.collect();
        let comment = from.comments.iter().map(|line| self.string(line)).collect();
        let default = match from.shown {
            Figure::Allocations | Figure::Temporaries => sample_type[0],
            Figure::AllocatedBytes => sample_type[1],
            Figure::LiveBlocks => sample_type[2],
            Figure::LiveBytes => sample_type[3],
        };
        proto::Profile {
            period_type: Some(proto::ValueType { kind: self.string("space"), unit: self.string("bytes") }),
            // 1: every allocation was recorded.
            period: signed(from.sampling_bytes.unwrap_or(1)),
            default_sample_type: default.kind,
            sample_type: sample_type.to_vec(),
            sample,
            mapping,
            location,
            comment,
            time_nanos: signed(from.start_unix_ns),
            duration_nanos: signed(from.duration_ns),
            function: self.functions,
            string_table: self.strings,
        }
    }

    fn mapping(&mut self, id: u64, (module, named): (&Module, Named)) -> proto::Mapping {
        proto::Mapping {
            id,
            memory_start: module.start,
            memory_limit: module.end,
            file_offset: module.file_offset,
            filename: self.string(&module.path),
            build_id: self.string(&module.build_id),
            has_functions: named.functions,
            has_filenames: named.files,
            has_line_numbers: named.lines,
            has_inline_frames: named.files,
        }
    }

    fn line(&mut self, frame: &Frame) -> proto::Line {
        let key = Frame { line: 0, ..frame.clone() };
        let function_id = match self.function_ids.get(&key) {
            Some(&id) => id,
            None => {
                let id = self.functions.len() as u64 + 1;
                let name = self.string(&frame.function);
                let system_name = self.string(&frame.full_name);
                let filename = self.string(&frame.file);
                self.functions.push(proto::Function { id, name, system_name, filename });
                self.function_ids.insert(key, id);
                id
            }
        };
        proto::Line { function_id, line: i64::from(frame.line) }
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(&id) = self.string_ids.get(text) {
            return id;
        }
        let id = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.string_ids.insert(text.to_owned(), id);
        id
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the four values of a sample, in the file's order.
fn values(sample: &Sample) -> [i64; 4] {
    let amounts = &sample.amounts;
    [amounts.allocated.blocks, amounts.allocated.bytes, amounts.live.blocks, amounts.live.bytes].map(signed)
}

/// Returns the change of each stack since `before`; if that is empty, the values of `now`.
fn changes<'a>(now: &'a [Sample], before: &'a [Sample]) -> Vec<(&'a Sample, [i64; 4])> {
    if before.is_empty() {
        return now.iter().map(|sample| (sample, values(sample))).collect();
    }
    let mut places = HashMap::new();
    let mut changes: Vec<(&Sample, [i64; 4])> = Vec::new();
    let signs = [(now, 1), (before, -1)];
    for (sample, sign) in signs.into_iter().flat_map(|(samples, sign)| samples.iter().map(move |one| (one, sign))) {
        let at = *places.entry((&sample.locations, &sample.labels)).or_insert_with(|| {
            changes.push((sample, [0; 4]));
            changes.len() - 1
        });
        for (sum, value) in changes[at].1.iter_mut().zip(values(sample)) {
            *sum = sum.saturating_add(sign * value);
        }
    }
    changes.retain(|(_, values)| *values != [0; 4]);
    changes
}

/// The kinds of names that are known for a module's addresses: pprof looks the rest up itself, if
/// it has the file.
#[derive(Clone, Copy, Debug, Default)]
struct Named {
    functions: bool,
    files: bool,
    lines: bool,
}

/// Returns the kinds of names that are known for each module, from the frames in it.
fn with_names(profile: &Profile) -> Vec<Named> {
    let mut modules = vec![Named::default(); profile.modules.len()];
    for location in &profile.locations {
        let Some(named) = location.module.and_then(|at| modules.get_mut(at)) else { continue };
        for frame in &location.frames {
            named.functions |= frame.known;
            named.files |= !frame.file.is_empty();
            named.lines |= frame.line > 0;
        }
    }
    modules
}

/// The messages, with the numbers of `profile.proto`. Fields that we do not write are left out.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = 1)]
        pub(super) sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = 2)]
        pub(super) sample: Vec<Sample>,
        #[prost(message, repeated, tag = 3)]
        pub(super) mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = 4)]
        pub(super) location: Vec<Location>,
        #[prost(message, repeated, tag = 5)]
        pub(super) function: Vec<Function>,
        #[prost(string, repeated, tag = 6)]
        pub(super) string_table: Vec<String>,
        #[prost(int64, tag = 9)]
        pub(super) time_nanos: i64,
        #[prost(int64, tag = 10)]
        pub(super) duration_nanos: i64,
        #[prost(message, optional, tag = 11)]
        pub(super) period_type: Option<ValueType>,
        #[prost(int64, tag = 12)]
        pub(super) period: i64,
        #[prost(int64, repeated, tag = 13)]
        pub(super) comment: Vec<i64>,
        #[prost(int64, tag = 14)]
        pub(super) default_sample_type: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct ValueType {
        #[prost(int64, tag = 1)]
        pub(super) kind: i64,
        #[prost(int64, tag = 2)]
        pub(super) unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = 1)]
        pub(super) location_id: Vec<u64>,
        #[prost(int64, repeated, tag = 2)]
        pub(super) value: Vec<i64>,
        #[prost(message, repeated, tag = 3)]
        pub(super) label: Vec<Label>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Label {
        #[prost(int64, tag = 1)]
        pub(super) key: i64,
        #[prost(int64, tag = 2)]
        pub(super) text: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = 1)]
        pub(super) id: u64,
        #[prost(uint64, tag = 2)]
        pub(super) memory_start: u64,
        #[prost(uint64, tag = 3)]
        pub(super) memory_limit: u64,
        #[prost(uint64, tag = 4)]
        pub(super) file_offset: u64,
        #[prost(int64, tag = 5)]
        pub(super) filename: i64,
        #[prost(int64, tag = 6)]
        pub(super) build_id: i64,
        #[prost(bool, tag = 7)]
        pub(super) has_functions: bool,
        #[prost(bool, tag = 8)]
        pub(super) has_filenames: bool,
        #[prost(bool, tag = 9)]
        pub(super) has_line_numbers: bool,
        #[prost(bool, tag = 10)]
        pub(super) has_inline_frames: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Location {
        #[prost(uint64, tag = 1)]
        pub(super) id: u64,
        #[prost(uint64, tag = 2)]
        pub(super) mapping_id: u64,
        #[prost(uint64, tag = 3)]
        pub(super) address: u64,
        #[prost(message, repeated, tag = 4)]
        pub(super) line: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = 1)]
        pub(super) function_id: u64,
        #[prost(int64, tag = 2)]
        pub(super) line: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Function {
        #[prost(uint64, tag = 1)]
        pub(super) id: u64,
        #[prost(int64, tag = 2)]
        pub(super) name: i64,
        #[prost(int64, tag = 3)]
        pub(super) system_name: i64,
        #[prost(int64, tag = 4)]
        pub(super) filename: i64,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::profile::{Amount, Amounts, Location};

    fn decoded(profile: &Profile) -> proto::Profile {
        decoded_change(profile, &[])
    }

    fn decoded_change(profile: &Profile, before: &[Sample]) -> proto::Profile {
        let (mut file, mut bytes) = (Vec::new(), Vec::new());
        write_change(profile, before, &mut file).unwrap();
        flate2::read::GzDecoder::new(&*file).read_to_end(&mut bytes).unwrap();
        proto::Profile::decode(&*bytes).unwrap()
    }

    #[test]
    fn nothing_is_a_profile() {
        let profile = decoded(&Profile::default());
        assert_eq!((profile.sample_type.len(), profile.string_table[0].as_str()), (4, ""));
        assert_eq!(profile.string_table[profile.default_sample_type as usize], "inuse_space");
    }

    #[test]
    fn a_difference_has_what_came_and_what_went() {
        let sample = |location, allocated, live| Sample {
            locations: vec![location],
            labels: vec![],
            amounts: Amounts {
                allocated: Amount { blocks: 1, bytes: allocated },
                live: Amount { blocks: 1, bytes: live },
                ..Amounts::default()
            },
        };
        let before = [sample(0, 10, 10), sample(1, 5, 5), sample(2, 7, 7)];
        let from = Profile {
            locations: vec![Location::default(); 3],
            samples: vec![sample(0, 30, 4), sample(2, 7, 7)],
            shown: Figure::AllocatedBytes,
            ..Profile::default()
        };
        let profile = decoded_change(&from, &before);
        let samples = profile.sample.iter().map(|sample| (sample.location_id[0], sample.value.clone()));
        // A stack that is gone is there too; one that is unchanged is not.
        assert_eq!(samples.collect::<Vec<_>>(), [(1, vec![0, 20, 0, -6]), (2, vec![-1, -5, -1, -5])]);
        assert_eq!(profile.string_table[profile.default_sample_type as usize], "alloc_space");
    }

    #[test]
    fn ids_lead_to_what_they_stand_for() {
        let frame = |function: &str, line| Frame {
            function: function.into(),
            full_name: format!("{function}()"),
            known: true,
            file: "a.c".into(),
            line,
        };
        let from = Profile {
            modules: vec![Module {
                path: "/bin/a".into(),
                build_id: "ab".into(),
                start: 4096,
                end: 8192,
                ..Module::default()
            }],
            locations: vec![
                Location { module: Some(0), address: 5000, frames: vec![frame("inner", 3), frame("outer", 7)] },
                Location { module: Some(0), address: 6000, frames: vec![frame("outer", 9)] },
                Location { module: Some(5), address: 0, frames: vec![] },
            ],
            samples: vec![Sample {
                locations: vec![0, 1, 2, 77],
                labels: vec![("context".into(), "outer".into()), ("heap".into(), "a.c".into())],
                amounts: Amounts {
                    allocated: Amount { blocks: 1, bytes: u64::MAX },
                    live: Amount { blocks: 0, bytes: 3 },
                    ..Amounts::default()
                },
            }],
            ..Profile::default()
        };
        let profile = decoded(&from);
        let text = |at: i64| profile.string_table[at as usize].as_str();
        let function = |id: u64| text(profile.function[id as usize - 1].name);
        // A function has one number, whatever the line.
        assert_eq!(profile.function.len(), 2);
        let lines = |at: usize| profile.location[at].line.iter().map(|line| (function(line.function_id), line.line));
        assert_eq!(lines(0).collect::<Vec<_>>(), [("inner", 3), ("outer", 7)]);
        assert_eq!(lines(1).collect::<Vec<_>>(), [("outer", 9)]);
        assert_eq!(profile.location.iter().map(|location| location.mapping_id).collect::<Vec<_>>(), [1, 1, 0]);
        let [mapping] = &profile.mapping[..] else { panic!("{profile:?}") };
        assert_eq!((text(mapping.filename), text(mapping.build_id)), ("/bin/a", "ab"));
        assert!(mapping.has_functions && mapping.has_line_numbers);
        assert_eq!(profile.sample[0].location_id, [1, 2, 3]);
        let labels = profile.sample[0].label.iter().map(|label| (text(label.key), text(label.text)));
        assert_eq!(labels.collect::<Vec<_>>(), [("context", "outer"), ("heap", "a.c")]);
        assert_eq!(profile.sample[0].value, [1, i64::MAX, 0, 3]);
    }
}
