//! Profiles of OpenTelemetry: `ProfilesData`, whose bytes are those of a request to a collector's
//! `/v1development/profiles`.
//!
//! **Unstable**: the package is `v1development`, with the numbers of version 1.10 of the protocol;
//! 1.9 had others. A reader of one version may misread another.
//!
//! Each sample type is a profile of its own there. There are four, `alloc_objects`, `alloc_space`,
//! `inuse_objects` and `inuse_space`; the last comes first, since it is shown by default.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use prost::Message;

use crate::holds::Holds;
use crate::profile::{Amounts, Profile, Sample};

/// The live blocks at one moment, and all allocations.
pub const HOLDS: Holds = crate::pprof::HOLDS;

/// The media type of a request that has this as its body.
pub const MEDIA_TYPE: &str = "application/x-protobuf";

/// The key of a build id among the attributes of a mapping.
const BUILD_ID_KEY: &str = "process.executable.build_id.gnu";

/// Writes the file. Takes memory in proportion to the profile.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    write_of(profile, &[], out)
}

/// Writes the file with resource attributes, such as `service.name`.
///
/// # Errors
///
/// The errors of `out`.
pub fn write_of(profile: &Profile, resource: &[(&str, &str)], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&Builder::new().data(profile, resource).encode_to_vec())
}

/// A table whose first element is the default value, and in which equal elements are stored once.
struct Table<T>(HashMap<T, i32>);

impl<T: Clone + Eq + Hash> Table<T> {
    fn new(nothing: T) -> Table<T> {
        Table(HashMap::from([(nothing, 0)]))
    }

    fn index(&mut self, of: T) -> i32 {
        let next = self.0.len() as i32;
        *self.0.entry(of).or_insert(next)
    }

    /// Returns the elements in the order of their numbers.
    fn finish(self) -> Vec<T> {
        let mut all: Vec<(T, i32)> = self.0.into_iter().collect();
        all.sort_by_key(|(_, at)| *at);
        all.into_iter().map(|(of, _)| of).collect()
    }
}

struct Builder {
    strings: Table<String>,
    functions: Table<proto::Function>,
    stacks: Table<Vec<i32>>,
    /// The numbers of keys, with texts.
    attributes: Table<(i32, String)>,
}

/// A kind of values: its name, its unit, and the function that gets it from a sample's amounts.
type Kind = (&'static str, &'static str, fn(&Amounts) -> u64);

const KINDS: [Kind; 4] = [
    ("inuse_space", "bytes", |amounts| amounts.live.bytes),
    ("inuse_objects", "count", |amounts| amounts.live.blocks),
    ("alloc_space", "bytes", |amounts| amounts.allocated.bytes),
    ("alloc_objects", "count", |amounts| amounts.allocated.blocks),
];

impl Builder {
    fn new() -> Builder {
        Builder {
            strings: Table::new(String::new()),
            functions: Table::new(proto::Function::default()),
            stacks: Table::new(Vec::new()),
            attributes: Table::new((0, String::new())),
        }
    }

    fn data(mut self, from: &Profile, resource: &[(&str, &str)]) -> proto::ProfilesData {
        let mut mapping_table = vec![proto::Mapping::default()];
        for module in &from.modules {
            let filename_strindex = self.string(&module.path);
            let build_id = (!module.build_id.is_empty()).then(|| self.attribute(BUILD_ID_KEY, &module.build_id));
            mapping_table.push(proto::Mapping {
                memory_start: module.start,
                memory_limit: module.end,
                file_offset: module.file_offset,
                filename_strindex,
                attribute_indices: build_id.into_iter().collect(),
            });
        }
        let mut location_table = vec![proto::Location::default()];
        for location in &from.locations {
            let module = location.module.filter(|&at| at < from.modules.len());
            let lines = location.frames.iter().map(|frame| {
                let function = proto::Function {
                    name_strindex: self.string(&frame.function),
                    system_name_strindex: self.string(&frame.full_name),
                    filename_strindex: self.string(&frame.file),
                };
                proto::Line { function_index: self.functions.index(function), line: i64::from(frame.line) }
            });
            let lines = lines.collect();
            // Ids are indices, counted from 1.
            let mapping_index = module.map_or(0, |at| at as i32 + 1);
            location_table.push(proto::Location { mapping_index, address: location.address, lines });
        }
        let samples: Vec<(proto::Sample, &Amounts)> =
            from.samples.iter().map(|sample| (self.sample(sample, location_table.len()), &sample.amounts)).collect();
        let profiles = KINDS.iter().map(|kind| self.profile(from, &samples, *kind)).collect();
        let scope = proto::Scope { name: "heapledger".into(), version: env!("CARGO_PKG_VERSION").into() };
        let resource = proto::Resource {
            attributes: resource
                .iter()
                .map(|(key, text)| proto::KeyValue { key: (*key).into(), value: Some(proto::AnyValue::of(text)) })
                .collect(),
        };
        let attributes = self.attributes.finish().into_iter().map(|(key_strindex, text)| proto::KeyValueAndUnit {
            key_strindex,
            // The first element is the default value.
            value: (key_strindex != 0).then(|| proto::AnyValue::of(&text)),
        });
        let stacks = self.stacks.finish().into_iter().map(|location_indices| proto::Stack { location_indices });
        proto::ProfilesData {
            resource_profiles: vec![proto::ResourceProfiles {
                resource: Some(resource),
                scope_profiles: vec![proto::ScopeProfiles { scope: Some(scope), profiles }],
            }],
            dictionary: Some(proto::Dictionary {
                mapping_table,
                location_table,
                function_table: self.functions.finish(),
                // The ids have the length that readers expect.
                link_table: vec![proto::Link { trace_id: vec![0; 16], span_id: vec![0; 8] }],
                attribute_table: attributes.collect(),
                stack_table: stacks.collect(),
                string_table: self.strings.finish(),
            }),
        }
    }

    fn profile(&mut self, from: &Profile, samples: &[(proto::Sample, &Amounts)], kind: Kind) -> proto::Profile {
        let (name, unit, of) = kind;
        let with = samples.iter().filter(|(_, amounts)| of(amounts) != 0);
        proto::Profile {
            sample_type: Some(proto::ValueType { type_strindex: self.string(name), unit_strindex: self.string(unit) }),
            samples: with
                .map(|(sample, amounts)| proto::Sample { values: vec![signed(of(amounts))], ..sample.clone() })
                .collect(),
            time_unix_nano: from.start_unix_ns,
            duration_nano: from.duration_ns,
            period_type: Some(proto::ValueType {
                type_strindex: self.string("space"),
                unit_strindex: self.string("bytes"),
            }),
            // 1: every allocation was recorded.
            period: signed(from.sampling_bytes.unwrap_or(1)),
        }
    }

    /// Returns a sample without its value.
    fn sample(&mut self, sample: &Sample, locations: usize) -> proto::Sample {
        let stack = sample.locations.iter().map(|&at| at + 1).filter(|&at| at < locations).map(|at| at as i32);
        proto::Sample {
            stack_index: self.stacks.index(stack.collect()),
            attribute_indices: sample.labels.iter().map(|(key, text)| self.attribute(key, text)).collect(),
            values: Vec::new(),
        }
    }

    fn attribute(&mut self, key: &str, text: &str) -> i32 {
        let key = self.string(key);
        self.attributes.index((key, text.to_owned()))
    }

    fn string(&mut self, text: &str) -> i32 {
        self.strings.index(text.to_owned())
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The messages, with the numbers of version 1.10 of `opentelemetry-proto`. Fields that we do not
/// write are left out.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ProfilesData {
        #[prost(message, repeated, tag = 1)]
        pub(super) resource_profiles: Vec<ResourceProfiles>,
        #[prost(message, optional, tag = 2)]
        pub(super) dictionary: Option<Dictionary>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Dictionary {
        #[prost(message, repeated, tag = 1)]
        pub(super) mapping_table: Vec<Mapping>,
        #[prost(message, repeated, tag = 2)]
        pub(super) location_table: Vec<Location>,
        #[prost(message, repeated, tag = 3)]
        pub(super) function_table: Vec<Function>,
        #[prost(message, repeated, tag = 4)]
        pub(super) link_table: Vec<Link>,
        #[prost(string, repeated, tag = 5)]
        pub(super) string_table: Vec<String>,
        #[prost(message, repeated, tag = 6)]
        pub(super) attribute_table: Vec<KeyValueAndUnit>,
        #[prost(message, repeated, tag = 7)]
        pub(super) stack_table: Vec<Stack>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ResourceProfiles {
        #[prost(message, optional, tag = 1)]
        pub(super) resource: Option<Resource>,
        #[prost(message, repeated, tag = 2)]
        pub(super) scope_profiles: Vec<ScopeProfiles>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Resource {
        #[prost(message, repeated, tag = 1)]
        pub(super) attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ScopeProfiles {
        #[prost(message, optional, tag = 1)]
        pub(super) scope: Option<Scope>,
        #[prost(message, repeated, tag = 2)]
        pub(super) profiles: Vec<Profile>,
    }

    /// `InstrumentationScope`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Scope {
        #[prost(string, tag = 1)]
        pub(super) name: String,
        #[prost(string, tag = 2)]
        pub(super) version: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Profile {
        #[prost(message, optional, tag = 1)]
        pub(super) sample_type: Option<ValueType>,
        #[prost(message, repeated, tag = 2)]
        pub(super) samples: Vec<Sample>,
        #[prost(fixed64, tag = 3)]
        pub(super) time_unix_nano: u64,
        #[prost(uint64, tag = 4)]
        pub(super) duration_nano: u64,
        #[prost(message, optional, tag = 5)]
        pub(super) period_type: Option<ValueType>,
        #[prost(int64, tag = 6)]
        pub(super) period: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct ValueType {
        #[prost(int32, tag = 1)]
        pub(super) type_strindex: i32,
        #[prost(int32, tag = 2)]
        pub(super) unit_strindex: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Sample {
        #[prost(int32, tag = 1)]
        pub(super) stack_index: i32,
        #[prost(int32, repeated, tag = 2)]
        pub(super) attribute_indices: Vec<i32>,
        #[prost(int64, repeated, tag = 4)]
        pub(super) values: Vec<i64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = 1)]
        pub(super) memory_start: u64,
        #[prost(uint64, tag = 2)]
        pub(super) memory_limit: u64,
        #[prost(uint64, tag = 3)]
        pub(super) file_offset: u64,
        #[prost(int32, tag = 4)]
        pub(super) filename_strindex: i32,
        #[prost(int32, repeated, tag = 5)]
        pub(super) attribute_indices: Vec<i32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Stack {
        #[prost(int32, repeated, tag = 1)]
        pub(super) location_indices: Vec<i32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Location {
        #[prost(int32, tag = 1)]
        pub(super) mapping_index: i32,
        #[prost(uint64, tag = 2)]
        pub(super) address: u64,
        #[prost(message, repeated, tag = 3)]
        pub(super) lines: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Line {
        #[prost(int32, tag = 1)]
        pub(super) function_index: i32,
        #[prost(int64, tag = 2)]
        pub(super) line: i64,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
    pub(super) struct Function {
        #[prost(int32, tag = 1)]
        pub(super) name_strindex: i32,
        #[prost(int32, tag = 2)]
        pub(super) system_name_strindex: i32,
        #[prost(int32, tag = 3)]
        pub(super) filename_strindex: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Link {
        #[prost(bytes = "vec", tag = 1)]
        pub(super) trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = 2)]
        pub(super) span_id: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct KeyValueAndUnit {
        #[prost(int32, tag = 1)]
        pub(super) key_strindex: i32,
        #[prost(message, optional, tag = 2)]
        pub(super) value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct KeyValue {
        #[prost(string, tag = 1)]
        pub(super) key: String,
        #[prost(message, optional, tag = 2)]
        pub(super) value: Option<AnyValue>,
    }

    /// A text, which is the first of the variants.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct AnyValue {
        #[prost(string, optional, tag = 1)]
        pub(super) string_value: Option<String>,
    }

    impl AnyValue {
        pub(super) fn of(text: &str) -> AnyValue {
            AnyValue { string_value: Some(text.to_owned()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Amount, Frame, Location, Module};

    #[test]
    fn indices_lead_to_what_they_stand_for() {
        let frame = Frame { function: "f".into(), full_name: "f()".into(), known: true, file: "a.c".into(), line: 3 };
        let sample = |allocated, live, labels: &[(&'static str, &str)]| Sample {
            locations: vec![1, 0, 77],
            labels: labels.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect(),
            amounts: Amounts {
                allocated: Amount { blocks: 2, bytes: allocated },
                live: Amount { blocks: 1, bytes: live },
                ..Amounts::default()
            },
        };
        let from = Profile {
            sampling_bytes: Some(524_288),
            modules: vec![Module { path: "/bin/a".into(), build_id: "ab".into(), ..Module::default() }],
            locations: vec![
                Location { module: Some(0), address: 5000, frames: vec![frame.clone()] },
                Location { module: Some(9), address: 6000, frames: vec![frame] },
            ],
            samples: vec![sample(100, 0, &[("type", "T")]), sample(u64::MAX, 7, &[])],
            ..Profile::default()
        };
        let mut file = Vec::new();
        write_of(&from, &[("service.name", "s")], &mut file).unwrap();
        let data = proto::ProfilesData::decode(&*file).unwrap();
        let dictionary = data.dictionary.unwrap();
        let text = |at: i32| dictionary.string_table[at as usize].as_str();
        let profiles = &data.resource_profiles[0].scope_profiles[0].profiles;
        let kinds: Vec<_> = profiles.iter().map(|profile| text(profile.sample_type.unwrap().type_strindex)).collect();
        assert_eq!(kinds, ["inuse_space", "inuse_objects", "alloc_space", "alloc_objects"]);
        let values = |at: usize| profiles[at].samples.iter().map(|sample| sample.values[0]).collect::<Vec<_>>();
        // A sample without a value of that kind is left out.
        assert_eq!((values(0), values(2)), (vec![7], vec![100, i64::MAX]));
        assert!(profiles.iter().all(|profile| profile.period == 524_288 && profile.period_type.is_some()));
        let sample = &profiles[2].samples[0];
        let stack = &dictionary.stack_table[sample.stack_index as usize].location_indices;
        assert_eq!(*stack, [2, 1]);
        let location = &dictionary.location_table[stack[1] as usize];
        assert_eq!((location.address, location.mapping_index), (5000, 1));
        assert_eq!(dictionary.location_table[stack[0] as usize].mapping_index, 0);
        let function = &dictionary.function_table[location.lines[0].function_index as usize];
        assert_eq!((text(function.name_strindex), text(function.system_name_strindex)), ("f", "f()"));
        let said = |at: i32| {
            let attribute = &dictionary.attribute_table[at as usize];
            (text(attribute.key_strindex), attribute.value.clone().unwrap().string_value.unwrap())
        };
        assert_eq!(said(sample.attribute_indices[0]), ("type", "T".to_owned()));
        assert_eq!(said(dictionary.mapping_table[1].attribute_indices[0]), (BUILD_ID_KEY, "ab".to_owned()));
        // The first of each table is the default value.
        assert_eq!((text(0), dictionary.stack_table[0].location_indices.len()), ("", 0));
        assert_eq!(dictionary.function_table[0], proto::Function::default());
        assert_eq!(dictionary.mapping_table[0], proto::Mapping::default());
        assert_eq!(dictionary.location_table[0], proto::Location::default());
        assert_eq!(dictionary.attribute_table[0], proto::KeyValueAndUnit::default());
        assert_eq!((dictionary.link_table.len(), data.resource_profiles[0].resource.is_some()), (1, true));
    }
}
