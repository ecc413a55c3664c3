//! What was found of types, in a file of its own: few questions need it.
//!
//! Every string is there once, and so are functions with their type arguments, which many places have in common. What the
//! source text said is kept as it was when it was first asked; where there was no source then, and is one now, a place is
//! as if it had not been kept.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use prost::Message;

use super::{sealed, unsealed};
use crate::types::{Constructed, Language, Lazy, Parameter, Pointee, Received, TypeName, TypedFrame, Written};

/// Bytes of a file. The types of more places are not kept.
pub(super) const FILE_MAX: u64 = 32 << 20;
/// Frames in a file.
const FRAMES_MAX: usize = 1 << 20;

/// What is known of the types in a module from earlier; frames are made when they are asked for.
#[derive(Debug)]
pub(crate) struct Types {
    file: File,
    strings: Vec<Option<Arc<str>>>,
    functions: Vec<Option<Arc<Known>>>,
    /// Where in the file the frames of a place are.
    places: HashMap<u64, u32>,
    /// By the function and the source file.
    views: HashMap<(u32, Option<u32>), Lazy>,
    /// Whether source files that were not there are there now.
    there: HashMap<Arc<str>, bool>,
}

/// What frames in a function have in common.
#[derive(Debug)]
struct Known {
    name: Arc<str>,
    plain: Option<Arc<str>>,
    scope: Option<Arc<str>>,
    linkage: Option<Arc<str>>,
    parameters: Arc<[Parameter]>,
    returns: Option<Pointee>,
    language: Language,
}

impl Types {
    /// The addresses that were not asked for.
    pub(crate) fn offsets(&self) -> Vec<u64> {
        self.places.keys().copied().collect()
    }

    /// What is at this address, if that is known.
    pub(crate) fn take(&mut self, offset: u64) -> Option<Arc<[TypedFrame]>> {
        let at = self.places.remove(&offset)? as usize;
        let place = std::mem::take(self.file.places.get_mut(at)?);
        let last = place.frames.len().checked_sub(1)?;
        let aliases: Arc<[Arc<str>]> = place.aliases.iter().map(|&alias| self.string(alias)).collect::<Option<_>>()?;
        let called = self.optional(place.called)?;
        let constructed: Arc<[Constructed]> = place
            .constructed
            .iter()
            .map(|kept| {
                let class = self.type_name(kept.class)?;
                let KeptConstructed { size, distance, line, column, .. } = *kept;
                Some(Constructed { class, size, distance, line, column })
            })
            .collect::<Option<_>>()?;
        let received = match place.received {
            Some(KeptParameter { name, full, short, size, .. }) => Some(Received {
                variable: self.string(name)?,
                type_name: self.type_name(Some(KeptName { full, short }))?,
                size,
            }),
            None => None,
        };
        let mut frames = Vec::with_capacity(last + 1);
        for (at, frame) in place.frames.iter().enumerate() {
            let known = self.function(frame.function)?;
            let is_last = at == last;
            let source = self.optional(frame.file)?;
            if let Some(source) = source.as_ref().filter(|_| frame.lacks_source)
                && *self.there.entry(source.clone()).or_insert_with(|| Path::new(&**source).is_file())
            {
                return None;
            }
            let written: Option<Vec<Written>> = frame
                .written
                .iter()
                .map(|kept| {
                    let type_name = self.type_name(kept.type_name)?;
                    let KeptWritten { size, is_array, is_more, is_result, .. } = *kept;
                    Some(Written { type_name, size, is_array, is_more, is_result })
                })
                .collect();
            let written = written.filter(|written| !written.is_empty()).map(Arc::from).unwrap_or_default();
            frames.push(TypedFrame {
                name: known.name.clone(),
                plain: known.plain.clone(),
                scope: known.scope.clone(),
                linkage: known.linkage.clone(),
                parameters: known.parameters.clone(),
                language: known.language,
                file: source,
                line: frame.line,
                column: frame.column,
                inlined: !is_last,
                aliases: if is_last { aliases.clone() } else { Arc::default() },
                constructed: if is_last { constructed.clone() } else { Arc::default() },
                called: called.clone().filter(|_| is_last),
                received: received.clone().filter(|_| is_last),
                written,
                returns: known.returns.clone(),
                view: self.views.entry((frame.function, frame.file)).or_default().clone(),
            });
        }
        Some(frames.into())
    }

    fn function(&mut self, number: u32) -> Option<Arc<Known>> {
        let at = number as usize;
        if let Some(known) = self.functions.get(at)? {
            return Some(known.clone());
        }
        let function = std::mem::take(self.file.functions.get_mut(at)?);
        let mut parameters = Vec::with_capacity(function.parameters.len());
        for &KeptParameter { name, full, short, size, of_class } in &function.parameters {
            let type_name = self.type_name(Some(KeptName { full, short }))?;
            parameters.push(Parameter { name: self.string(name)?, type_name, size, of_class });
        }
        let returns = match function.returns {
            Some(KeptParameter { full, short, size, .. }) => {
                Some(Pointee { type_name: self.type_name(Some(KeptName { full, short }))?, size })
            }
            None => None,
        };
        let languages = [Language::Rust, Language::Cxx, Language::C, Language::Other];
        let known = Arc::new(Known {
            name: self.string(function.name)?,
            plain: self.optional(function.plain)?,
            scope: self.optional(function.scope)?,
            linkage: self.optional(function.linkage)?,
            parameters: parameters.into(),
            returns,
            language: languages.into_iter().find(|&known| known as u32 == function.language)?,
        });
        self.functions[at] = Some(known.clone());
        Some(known)
    }

    fn type_name(&mut self, name: Option<KeptName>) -> Option<TypeName> {
        let KeptName { full, short } = name?;
        Some(TypeName::shared(self.string(full)?, self.string(short)?))
    }

    fn string(&mut self, number: u32) -> Option<Arc<str>> {
        let at = number as usize;
        if let Some(known) = self.strings.get(at)? {
            return Some(known.clone());
        }
        let text: Arc<str> = self.file.strings.get(at)?.as_str().into();
        self.strings[at] = Some(text.clone());
        Some(text)
    }

    /// Outer `None`: a number that leads nowhere.
    fn optional(&mut self, number: Option<u32>) -> Option<Option<Arc<str>>> {
        number.map_or(Some(None), |number| self.string(number).map(Some))
    }
}

/// True for a frame of a language whose source is looked at, if that is not there.
fn lacks_source(frame: &TypedFrame, there: &mut HashMap<Arc<str>, bool>) -> bool {
    let Some(file) = frame.file.as_ref().filter(|_| matches!(frame.language, Language::C | Language::Cxx)) else {
        return false;
    };
    !*there.entry(file.clone()).or_insert_with(|| Path::new(&**file).is_file())
}

pub(super) fn encode<'p>(fingerprint: &[u8], places: impl Iterator<Item = (u64, &'p [TypedFrame])>) -> Option<Vec<u8>> {
    let mut file = File { fingerprint: fingerprint.to_vec(), ..File::default() };
    let mut strings = Strings::default();
    let mut functions: HashMap<FunctionKey, u32> = HashMap::new();
    let mut there = HashMap::new();
    let mut count = 0;
    for (offset, frames) in places {
        if frames
            .iter()
            .any(|frame| !frame.constructed.is_empty() || frame.received.is_some() || !frame.written.is_empty())
        {
            continue;
        }
        count += frames.len();
        let mut place = KeptPlace { offset, ..KeptPlace::default() };
        for frame in frames {
            let number = *functions.entry(key(frame)).or_insert_with(|| {
                file.functions.push(strings.function(frame));
                file.functions.len() as u32 - 1
            });
            let source = frame.file.as_ref().map(|name| strings.number(name));
            let written = frame.written.iter().map(|written| KeptWritten {
                type_name: Some(strings.type_name(&written.type_name)),
                size: written.size,
                is_array: written.is_array,
                is_more: written.is_more,
                is_result: written.is_result,
            });
            let written = written.collect();
            let (line, column) = (frame.line, frame.column);
            let lacks_source = lacks_source(frame, &mut there);
            place.frames.push(KeptFrame { function: number, file: source, line, column, written, lacks_source });
        }
        let constructed = frames.last()?.constructed.iter().map(|constructed| KeptConstructed {
            class: Some(strings.type_name(&constructed.class)),
            size: constructed.size,
            distance: constructed.distance,
            line: constructed.line,
            column: constructed.column,
        });
        place.constructed = constructed.collect();
        place.received = frames.last()?.received.as_ref().map(|received| {
            let KeptName { full, short } = strings.type_name(&received.type_name);
            KeptParameter {
                name: strings.number(&received.variable),
                full,
                short,
                size: received.size,
                of_class: false,
            }
        });
        place.called = frames.last()?.called.as_ref().map(|called| strings.number(called));
        place.aliases = frames.last()?.aliases.iter().map(|alias| strings.number(alias)).collect();
        file.places.push(place);
    }
    file.strings = strings.texts;
    let bytes = sealed(&file.encode_to_vec());
    (count <= FRAMES_MAX && bytes.len() as u64 <= FILE_MAX).then_some(bytes)
}

/// Addresses of what is shared: equal ones are the same function. Others are kept twice.
type FunctionKey = (usize, usize, usize, Language);

fn key(frame: &TypedFrame) -> FunctionKey {
    let plain = frame.plain.as_ref().map_or(0, |plain| plain.as_ptr().addr());
    (frame.name.as_ptr().addr(), plain, frame.parameters.as_ptr().addr(), frame.language)
}

#[derive(Default)]
struct Strings {
    texts: Vec<String>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Strings {
    fn number(&mut self, text: &Arc<str>) -> u32 {
        *self.numbers.entry(text.clone()).or_insert_with(|| {
            self.texts.push(text.as_ref().to_owned());
            self.texts.len() as u32 - 1
        })
    }

    fn type_name(&mut self, name: &TypeName) -> KeptName {
        let (full, short) = name.parts();
        KeptName { full: self.number(full), short: self.number(short) }
    }

    fn function(&mut self, frame: &TypedFrame) -> KeptFunction {
        let optional = |strings: &mut Self, text: &Option<Arc<str>>| text.as_ref().map(|text| strings.number(text));
        let mut parameter = |parameter: &Parameter| KeptParameter {
            name: self.number(&parameter.name),
            full: self.number(parameter.type_name.parts().0),
            short: self.number(parameter.type_name.parts().1),
            size: parameter.size,
            of_class: parameter.of_class,
        };
        let parameters = frame.parameters.iter().map(&mut parameter).collect();
        let returns = frame.returns.as_ref().map(|pointee| KeptParameter {
            full: self.number(pointee.type_name.parts().0),
            short: self.number(pointee.type_name.parts().1),
            size: pointee.size,
            ..KeptParameter::default()
        });
        KeptFunction {
            name: self.number(&frame.name),
            plain: optional(self, &frame.plain),
            scope: optional(self, &frame.scope),
            linkage: optional(self, &frame.linkage),
            parameters,
            returns,
            language: frame.language as u32,
        }
    }
}

/// The memory taken is bounded by a multiple of the length, which is bounded.
pub(super) fn decode(bytes: &[u8], fingerprint: Option<&[u8]>) -> Option<Types> {
    let file = File::decode(unsealed(bytes, FILE_MAX)?).ok()?;
    let frames: usize = file.places.iter().map(|place| place.frames.len()).sum();
    if fingerprint.is_some_and(|made_from| file.fingerprint != made_from) || frames > FRAMES_MAX {
        return None;
    }
    let strings = file.strings.iter().map(|_| None).collect();
    let places = file.places.iter().zip(0..).map(|(place, at)| (place.offset, at)).collect();
    let functions = file.functions.iter().map(|_| None).collect();
    Some(Types { file, strings, functions, places, views: HashMap::new(), there: HashMap::new() })
}

/// Asks a file for all that is in it.
pub(super) fn exercise(bytes: &[u8]) {
    let Some(mut types) = decode(bytes, None) else { return };
    for offset in types.offsets() {
        let _ = types.take(offset);
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct File {
    #[prost(bytes = "vec", tag = 1)]
    fingerprint: Vec<u8>,
    #[prost(string, repeated, tag = 2)]
    strings: Vec<String>,
    #[prost(message, repeated, tag = 3)]
    functions: Vec<KeptFunction>,
    #[prost(message, repeated, tag = 4)]
    places: Vec<KeptPlace>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeptFunction {
    #[prost(uint32, tag = 1)]
    name: u32,
    #[prost(uint32, optional, tag = 2)]
    plain: Option<u32>,
    #[prost(uint32, optional, tag = 3)]
    scope: Option<u32>,
    #[prost(uint32, optional, tag = 4)]
    linkage: Option<u32>,
    #[prost(message, repeated, tag = 5)]
    parameters: Vec<KeptParameter>,
    #[prost(message, optional, tag = 6)]
    returns: Option<KeptParameter>,
    #[prost(uint32, tag = 7)]
    language: u32,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct KeptParameter {
    #[prost(uint32, tag = 1)]
    name: u32,
    #[prost(uint32, tag = 2)]
    full: u32,
    #[prost(uint32, tag = 3)]
    short: u32,
    #[prost(uint64, optional, tag = 4)]
    size: Option<u64>,
    #[prost(bool, tag = 5)]
    of_class: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeptPlace {
    #[prost(uint64, tag = 1)]
    offset: u64,
    #[prost(message, repeated, tag = 2)]
    frames: Vec<KeptFrame>,
    #[prost(uint32, repeated, tag = 3)]
    aliases: Vec<u32>,
    #[prost(uint32, optional, tag = 4)]
    called: Option<u32>,
    #[prost(message, repeated, tag = 5)]
    constructed: Vec<KeptConstructed>,
    #[prost(message, optional, tag = 6)]
    received: Option<KeptParameter>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct KeptName {
    #[prost(uint32, tag = 1)]
    full: u32,
    #[prost(uint32, tag = 2)]
    short: u32,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct KeptConstructed {
    #[prost(message, optional, tag = 1)]
    class: Option<KeptName>,
    #[prost(uint64, optional, tag = 2)]
    size: Option<u64>,
    #[prost(uint32, tag = 3)]
    distance: u32,
    #[prost(uint32, optional, tag = 4)]
    line: Option<u32>,
    #[prost(uint32, optional, tag = 5)]
    column: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct KeptWritten {
    #[prost(message, optional, tag = 1)]
    type_name: Option<KeptName>,
    #[prost(uint64, optional, tag = 2)]
    size: Option<u64>,
    #[prost(bool, tag = 3)]
    is_array: bool,
    #[prost(bool, tag = 4)]
    is_more: bool,
    #[prost(bool, tag = 5)]
    is_result: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeptFrame {
    #[prost(uint32, tag = 1)]
    function: u32,
    #[prost(uint32, optional, tag = 2)]
    file: Option<u32>,
    #[prost(uint32, optional, tag = 3)]
    line: Option<u32>,
    #[prost(uint32, optional, tag = 4)]
    column: Option<u32>,
    #[prost(message, repeated, tag = 5)]
    written: Vec<KeptWritten>,
    #[prost(bool, tag = 6)]
    lacks_source: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let type_name = TypeName::new(Language::Rust, "app::Foo");
        let parameter = Parameter { name: "T".into(), type_name, size: Some(24), of_class: false };
        let frame = TypedFrame {
            name: "<alloc::vec::Vec<app::Foo>>::push".into(),
            plain: Some("push<app::Foo>".into()),
            scope: None,
            linkage: Some("_RNv".into()),
            parameters: [parameter].into(),
            language: Language::Rust,
            file: Some("/rust/library/alloc/src/vec/mod.rs".into()),
            line: Some(7),
            column: None,
            inlined: true,
            aliases: [].into(),
            constructed: [].into(),
            called: None,
            received: None,
            written: [].into(),
            returns: None,
            view: Lazy::default(),
        };
        let outer = TypedFrame {
            inlined: false,
            called: Some("malloc".into()),
            aliases: ["app::main".into()].into(),
            ..frame.clone()
        };
        let places = [(16, &[frame, outer.clone()][..]), (u64::MAX, &[outer])];
        let bytes = encode(b"made from", places.into_iter()).unwrap();
        assert!(decode(&bytes, Some(b"something else")).is_none());
        let mut types = decode(&bytes, Some(b"made from")).unwrap();
        for (offset, frames) in places {
            assert_eq!(types.take(offset).as_deref(), Some(frames));
            assert_eq!(types.take(offset), None);
        }
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], None).is_none());
        }
        // Damage that the checksum does not show.
        let mut random = 0x1234_5678_9abc_def1_u64;
        for _ in 0..20_000 {
            let mut bad = unsealed(&bytes, FILE_MAX).unwrap().to_vec();
            for _ in 0..3 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = random as usize % bad.len();
                bad[at] = (random >> 32) as u8;
            }
            exercise(&sealed(&bad));
        }
    }
}
