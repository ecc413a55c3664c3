//! The names in a module.

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message;

use super::{CacheEntry, sealed, unsealed};
use crate::frame::{Function, NameSource, SymbolFrame};
use crate::state::DebugInfo;

/// The extension of the file: none.
const EXTENSION: &str = "";
/// The maximum bytes of a file: some 50,000 addresses. Further names are not kept.
const FILE_MAX: u64 = 4 << 20;
/// The maximum number of frames in a file.
const FRAMES_MAX: usize = 1 << 18;

/// The facts about a module from an earlier run.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The kind of debug information that the module has.
    pub(crate) debug: DebugInfo,
    /// Addresses, and the frames there; empty for an address without a name.
    pub(crate) places: HashMap<u64, Arc<[SymbolFrame]>>,
}

/// Reads the file of a module; `None` if there is none, or if it was made from something other than
/// `fingerprint`. Without a fingerprint, no file is there to make names from, and the old ones are
/// used.
pub(crate) fn read(cache: &CacheEntry, fingerprint: Option<&[u8]>) -> Option<Kept> {
    decode(&cache.read(EXTENSION, FILE_MAX)?, fingerprint)
}

/// Writes the facts about a module, as far as there is room.
pub(crate) fn write<'p>(
    cache: &CacheEntry,
    fingerprint: &[u8],
    debug: DebugInfo,
    places: impl Iterator<Item = (u64, &'p [SymbolFrame])>,
) {
    if let Some(bytes) = encode(fingerprint, debug, places) {
        cache.write(EXTENSION, &bytes);
    }
}

fn encode<'p>(
    fingerprint: &[u8],
    debug: DebugInfo,
    places: impl Iterator<Item = (u64, &'p [SymbolFrame])>,
) -> Option<Vec<u8>> {
    let mut file = Names { fingerprint: fingerprint.to_vec(), debug: debug as u32, ..Names::default() };
    let (mut functions, mut strings) = (HashMap::new(), HashMap::new());
    let mut count = 0;
    for (offset, frames) in places {
        count += frames.len();
        let frames = frames.iter().filter(|frame| frame.source != NameSource::None).map(|frame| {
            let function = *functions.entry(frame.function.clone()).or_insert_with_key(|function| {
                file.functions.push(NamedFunction {
                    full: function.full().to_owned(),
                    short: (function.short() != function.full()).then(|| function.short().to_owned()),
                    linkage: function.linkage().map(str::to_owned),
                });
                file.functions.len() as u32 - 1
            });
            let source_file = frame.file.as_ref().map(|name| {
                *strings.entry(name.clone()).or_insert_with(|| {
                    file.files.push(name.as_ref().to_owned());
                    file.files.len() as u32 - 1
                })
            });
            NamedFrame {
                function,
                file: source_file,
                line: frame.line,
                column: frame.column,
                source: frame.source as u32,
            }
        });
        let frames = frames.collect();
        file.places.push(NamedPlace { offset, frames });
    }
    let bytes = sealed(&file.encode_to_vec());
    (count <= FRAMES_MAX && bytes.len() as u64 <= FILE_MAX).then_some(bytes)
}

/// Decodes a file. The memory taken is bounded by a multiple of the length, which is bounded.
fn decode(bytes: &[u8], fingerprint: Option<&[u8]>) -> Option<Kept> {
    let file = Names::decode(unsealed(bytes, FILE_MAX)?).ok()?;
    let frames: usize = file.places.iter().map(|place| place.frames.len()).sum();
    if fingerprint.is_some_and(|made_from| file.fingerprint != made_from) || frames > FRAMES_MAX {
        return None;
    }
    let debug = [DebugInfo::Missing, DebugInfo::ExportsOnly, DebugInfo::SymbolsOnly, DebugInfo::Full];
    let debug = debug.into_iter().find(|&known| known as u32 == file.debug)?;
    let functions: Vec<Function> = file
        .functions
        .iter()
        .map(|name| Function::new(&name.full, name.short.as_ref().unwrap_or(&name.full), name.linkage.as_deref()))
        .collect();
    let files: Vec<Arc<str>> = file.files.iter().map(|name| name.as_str().into()).collect();
    let place = |place: NamedPlace| {
        let last = place.frames.len().saturating_sub(1);
        let frame = |(at, frame): (usize, &NamedFrame)| {
            let sources = [NameSource::Debug, NameSource::SymbolTable, NameSource::Nearest];
            Some(SymbolFrame {
                function: functions.get(frame.function as usize)?.clone(),
                file: frame.file.map(|file| files.get(file as usize).cloned().ok_or(())).transpose().ok()?,
                line: frame.line,
                column: frame.column,
                inlined: at < last,
                source: sources.into_iter().find(|&known| known as u32 == frame.source)?,
            })
        };
        let frames: Option<Arc<[SymbolFrame]>> = place.frames.iter().enumerate().map(frame).collect();
        Some((place.offset, frames?))
    };
    let places = file.places.into_iter().map(place).collect::<Option<_>>()?;
    Some(Kept { debug, places })
}

/// Implements the fuzz target: reads the bytes as a file, and as the message in a file with a valid
/// checksum.
pub fn exercise(data: &[u8]) {
    let _ = decode(data, None);
    let _ = decode(&sealed(data), None);
}

#[derive(Clone, PartialEq, prost::Message)]
struct Names {
    #[prost(bytes = "vec", tag = 1)]
    fingerprint: Vec<u8>,
    #[prost(uint32, tag = 2)]
    debug: u32,
    #[prost(message, repeated, tag = 3)]
    functions: Vec<NamedFunction>,
    #[prost(string, repeated, tag = 4)]
    files: Vec<String>,
    #[prost(message, repeated, tag = 5)]
    places: Vec<NamedPlace>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NamedFunction {
    #[prost(string, tag = 1)]
    full: String,
    #[prost(string, optional, tag = 2)]
    short: Option<String>,
    #[prost(string, optional, tag = 3)]
    linkage: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NamedPlace {
    #[prost(uint64, tag = 1)]
    offset: u64,
    #[prost(message, repeated, tag = 2)]
    frames: Vec<NamedFrame>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct NamedFrame {
    #[prost(uint32, tag = 1)]
    function: u32,
    #[prost(uint32, optional, tag = 2)]
    file: Option<u32>,
    #[prost(uint32, optional, tag = 3)]
    line: Option<u32>,
    #[prost(uint32, optional, tag = 4)]
    column: Option<u32>,
    #[prost(uint32, tag = 5)]
    source: u32,
}

#[cfg(test)]
mod tests {
    use heapledger_core::sample::Random;

    use super::*;

    fn sample() -> Vec<u8> {
        let frame = |name: &str, source, inlined| SymbolFrame {
            function: Function::new(&format!("{name}<int>(int)"), name, Some("_Z1x")),
            file: Some("a.cc".into()),
            line: Some(7),
            column: None,
            inlined,
            source,
        };
        let inlined = [frame("inner", NameSource::Debug, true), frame("outer", NameSource::Debug, false)];
        let unnamed = [frame("lib+0x1", NameSource::None, false)];
        let places = [(16, &inlined[..]), (u64::MAX, &unnamed[..])];
        let bytes = encode(b"made from", DebugInfo::Full, places.into_iter()).unwrap();
        let kept = decode(&bytes, Some(b"made from")).unwrap();
        assert_eq!(kept.debug, DebugInfo::Full);
        assert_eq!((&*kept.places[&16], kept.places[&u64::MAX].len()), (&inlined[..], 0));
        bytes
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let bytes = sample();
        assert!(decode(&bytes, None).is_some() && decode(&bytes, Some(b"something else")).is_none());
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], None).is_none());
        }
        // Damage that the checksum does not show: nothing panics, and invalid references are
        // refused.
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let mut bad = bytes[12..].to_vec();
            random.damage(&mut bad, 3);
            exercise(&bad);
        }
    }
}
