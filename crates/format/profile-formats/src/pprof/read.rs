//! Reading pprof's files.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::proto;
use crate::gather::Gather;
use crate::profile::{Amount, Amounts, Frame, Known, Location, Module, Profile};
use crate::read_error::ReadError;

/// The most bytes of an unpacked file.
const BYTES_MAX: u64 = 1 << 30;

/// True if a file may be one of pprof: a packed one, or the beginning of the message.
///
/// Writers choose the order of the fields: Go's begins with the kind of the period, others with the
/// kinds of samples.
pub fn detects(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b]) || begins_as_message(bytes)
}

/// The number of fields that are looked at.
const FIELDS_LOOKED_AT: usize = 8;

/// True if the first fields are those of the message, with the kind of a value (of samples or of
/// the period) first.
fn begins_as_message(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for at in 0..FIELDS_LOOKED_AT {
        if rest.is_empty() {
            return at > 0;
        }
        let Ok((field, kind)) = decode_key(&mut rest) else { return false };
        let expected = match field {
            1..=6 | 11 => WireType::LengthDelimited,
            7..=10 | 12 | 14 => WireType::Varint,
            // Numbers in a list are packed or one by one.
            13 if kind == WireType::Varint => WireType::Varint,
            13 => WireType::LengthDelimited,
            _ => return false,
        };
        if kind != expected || at == 0 && !matches!(field, 1 | 11) {
            return false;
        }
        let Ok(number) = decode_varint(&mut rest) else { return false };
        if kind == WireType::LengthDelimited {
            // The field may go on behind the bytes that are looked at.
            let Some(content) = usize::try_from(number).ok().and_then(|length| rest.get(..length)) else {
                return at > 0;
            };
            if matches!(field, 1 | 11) && proto::ValueType::decode(content).is_err() {
                return false;
            }
            rest = &rest[content.len()..];
        }
    }
    true
}

/// Reads a file, packed or not. It has the kinds of samples `alloc_objects`, `alloc_space`,
/// `inuse_objects` and `inuse_space`, like heap profiles, or else one in bytes.
///
/// # Errors
///
/// Fails if it is not such a file, or has no figures about memory.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    let mut unpacked = Vec::new();
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        let read = MultiGzDecoder::new(bytes).take(BYTES_MAX + 1).read_to_end(&mut unpacked);
        read.map_err(|error| ReadError::new(0, format!("it cannot be unpacked: {error}")))?;
        if unpacked.len() as u64 > BYTES_MAX {
            return Err(ReadError::new(0, format!("it has more than {} MiB unpacked", BYTES_MAX >> 20)));
        }
        &unpacked
    } else {
        bytes
    };
    let from = proto::Profile::decode(bytes).map_err(|error| ReadError::new(0, error.to_string()))?;
    let text = |at: i64| usize::try_from(at).ok().and_then(|at| from.string_table.get(at)).map_or("", String::as_str);
    let kinds = Kinds::of(from.sample_type.iter().map(|kind| (text(kind.kind), text(kind.unit))));
    if kinds == Kinds::default() {
        let names: Vec<&str> = from.sample_type.iter().map(|kind| text(kind.kind)).collect();
        return Err(ReadError::new(0, format!("it is no profile of memory: it has {}", names.join(", "))));
    }
    let mut gather = Gather::default();
    gather.profile.modules = from
        .mapping
        .iter()
        .map(|mapping| Module {
            path: text(mapping.filename).into(),
            build_id: text(mapping.build_id).into(),
            start: mapping.memory_start,
            end: mapping.memory_limit,
            file_offset: mapping.file_offset,
            bias: None,
        })
        .collect();
    let mappings: std::collections::HashMap<u64, usize> =
        from.mapping.iter().enumerate().map(|(at, mapping)| (mapping.id, at)).collect();
    let functions: std::collections::HashMap<u64, &proto::Function> =
        from.function.iter().map(|function| (function.id, function)).collect();
    let frame = |line: &proto::Line| {
        let function = functions.get(&line.function_id)?;
        let name = text(function.name);
        let system_name = text(function.system_name);
        Some(Frame {
            function: name.into(),
            full_name: if system_name.is_empty() { name } else { system_name }.into(),
            known: !name.is_empty(),
            file: text(function.filename).into(),
            line: u32::try_from(line.line).unwrap_or(0),
        })
    };
    let mut places = std::collections::HashMap::new();
    for location in &from.location {
        let place = Location {
            module: mappings.get(&location.mapping_id).copied(),
            address: location.address,
            frames: location.line.iter().filter_map(frame).collect(),
        };
        places.insert(location.id, gather.location(place));
    }
    for (number, sample) in from.sample.iter().enumerate() {
        let place = |id: &u64| {
            let place = places.get(id).copied();
            place.ok_or_else(|| ReadError::new(0, format!("sample {number} is at location {id}, which is not there")))
        };
        let stack = sample.location_id.iter().map(place).collect::<Result<Vec<usize>, _>>()?;
        let labels = sample.label.iter().filter(|label| label.text != 0);
        let labels = labels.map(|label| (text(label.key).to_owned().into(), text(label.text).to_owned())).collect();
        kinds.add(&sample.value, gather.amounts(stack, labels));
    }
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let profile = &mut gather.profile;
    profile.start_unix_ns = unsigned(from.time_nanos);
    profile.duration_ns = unsigned(from.duration_nanos);
    profile.sampling_bytes = Some(unsigned(from.period)).filter(|&period| period > 1);
    profile.comments = from.comment.iter().map(|&line| text(line).to_owned()).collect();
    profile.known = kinds.known();
    profile.moment = "when the profile was taken".into();
    Ok(gather.profile)
}

/// The indices of a sample's values, by their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Kinds {
    allocated: [Option<usize>; 2],
    live: [Option<usize>; 2],
}

impl Kinds {
    fn of<'a>(kinds: impl Iterator<Item = (&'a str, &'a str)>) -> Kinds {
        let (mut found, mut last_bytes) = (Kinds::default(), None);
        for (at, (kind, unit)) in kinds.enumerate() {
            match kind {
                "alloc_objects" | "alloc_samples" => found.allocated[0] = Some(at),
                "alloc_space" => found.allocated[1] = Some(at),
                "inuse_objects" | "objects" => found.live[0] = Some(at),
                "inuse_space" | "space" => found.live[1] = Some(at),
                _ if unit == "bytes" => last_bytes = Some(at),
                _ => {}
            }
        }
        if found == Kinds::default() {
            found.live[1] = last_bytes;
        }
        found
    }

    fn known(self) -> Known {
        let is_known = |of: [Option<usize>; 2]| of.iter().any(Option::is_some);
        Known { allocated: is_known(self.allocated), live: is_known(self.live), ..Known::default() }
    }

    fn add(self, values: &[i64], amounts: &mut Amounts) {
        let value =
            |at: Option<usize>| at.and_then(|at| values.get(at)).map_or(0, |&value| u64::try_from(value).unwrap_or(0));
        let amount = |of: [Option<usize>; 2]| Amount { blocks: value(of[0]), bytes: value(of[1]) };
        amounts.allocated.add(amount(self.allocated));
        amounts.live.add(amount(self.live));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Sample;

    #[test]
    fn what_was_written_comes_back() {
        let frame =
            Frame { function: "f".into(), full_name: "f(int)".into(), known: true, file: "a.c".into(), line: 3 };
        let amounts = Amounts {
            allocated: Amount { blocks: 3, bytes: 30 },
            live: Amount { blocks: 1, bytes: 10 },
            ..Amounts::default()
        };
        let written = Profile {
            modules: vec![Module {
                path: "/bin/a".into(),
                build_id: "ab".into(),
                start: 1,
                end: 9,
                file_offset: 4,
                bias: None,
            }],
            locations: vec![Location { module: Some(0), address: 5, frames: vec![frame] }],
            samples: vec![Sample { locations: vec![0], labels: vec![("type".into(), "T".into())], amounts }],
            comments: vec!["a b".into()],
            sampling_bytes: Some(512),
            ..Profile::default()
        };
        let mut file = Vec::new();
        super::super::write(&written, &mut file).unwrap();
        assert!(detects(&file));
        let read = read(&file).unwrap();
        assert_eq!(
            (&read.samples, &read.locations, &read.modules),
            (&written.samples, &written.locations, &written.modules)
        );
        assert_eq!((read.sampling_bytes, read.known.live, read.known.allocated), (Some(512), true, true));
    }

    #[test]
    fn fields_are_in_any_order() {
        let kind = |at: u8| [0x08, at, 0x10, at + 1];
        let file = |fields: &[(u8, &[u8])]| {
            let one = |&(field, content): &(u8, &[u8])| [&[field << 3 | 2, content.len() as u8], content].concat();
            fields.iter().flat_map(one).collect::<Vec<u8>>()
        };
        let strings: [(u8, &[u8]); 5] =
            [(6, b""), (6, b"inuse_objects"), (6, b"count"), (6, b"inuse_space"), (6, b"bytes")];
        let ours = [(1, &kind(1)[..]), (1, &kind(3)), (11, &kind(3))];
        let of_go = [(11, &kind(3)[..]), (1, &kind(1)), (1, &kind(3))];
        for first in [ours, of_go] {
            let file = file(&[&first[..], &strings].concat());
            assert!(detects(&file) && detects(&file[..20]), "{file:?}");
            assert!(read(&file).unwrap().known.live);
        }
        // Text, and messages of other kinds.
        for other in [&b""[..], b"\n", b"\n\n{}", b"\n\x05words and more words", b"[]", b"\x0a\x04\x08\x01\x10\x02\x07"]
        {
            assert!(!detects(other), "{other:?}");
        }
    }

    #[test]
    fn what_is_none_is_told() {
        assert!(read(b"").is_err());
        assert!(read(&[0x1f, 0x8b, 0]).is_err());
        assert!(read(&[0x0a, 0xff]).is_err());
    }
}
