//! What was found of types, in a file of its own: few questions need it.
//!
//! Every string is there once, and so are functions with their type arguments, which many places have in common. Places of which the code or the source text said something more are left out: source
//! files may change while the module does not.

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message;

use super::{sealed, unsealed};
use crate::types::{Language, Lazy, Parameter, Pointee, TypeName, TypedFrame};

/// Bytes of a file. The types of more places are not kept.
pub(super) const FILE_MAX: u64 = 32 << 20;
/// Frames in a file.
const FRAMES_MAX: usize = 1 << 20;

/// What is known of the types in a module from earlier; frames are made when they are asked for.
#[derive(Debug)]
pub(crate) struct Types {
    file: File,
    strings: Vec<Arc<str>>,
    functions: Vec<Option<Arc<Known>>>,
    /// Where in the file the frames of a place are.
    places: HashMap<u64, u32>,
    /// By the function and the source file.
    views: HashMap<(u32, Option<u32>), Lazy>,
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
        let aliases: Option<Arc<[Arc<str>]>> = place.aliases.iter().map(|&alias| self.string(alias)).collect();
        let called = self.optional(place.called)?;
        let mut frames = Vec::with_capacity(last + 1);
        for (at, frame) in place.frames.iter().enumerate() {
            let known = self.function(frame.function)?;
            let is_last = at == last;
            frames.push(TypedFrame {
                name: known.name.clone(),
                plain: known.plain.clone(),
                scope: known.scope.clone(),
                linkage: known.linkage.clone(),
                parameters: known.parameters.clone(),
                language: known.language,
                file: self.optional(frame.file)?,
                line: frame.line,
                column: frame.column,
                inlined: !is_last,
                aliases: if is_last { aliases.clone()? } else { Arc::new([]) },
                constructed: Arc::new([]),
                called: called.clone().filter(|_| is_last),
                received: None,
                written: Arc::new([]),
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
        let function = self.file.functions.get(at)?;
        let type_name = |full, short| Some(TypeName::shared(self.string(full)?, self.string(short)?));
        let parameter = |parameter: &KeptParameter| {
            Some(Parameter {
                name: self.string(parameter.name)?,
                type_name: type_name(parameter.full, parameter.short)?,
                size: parameter.size,
                of_class: parameter.of_class,
            })
        };
        let returns = match &function.returns {
            Some(pointee) => Some(Pointee { type_name: type_name(pointee.full, pointee.short)?, size: pointee.size }),
            None => None,
        };
        let languages = [Language::Rust, Language::Cxx, Language::C, Language::Other];
        let known = Arc::new(Known {
            name: self.string(function.name)?,
            plain: self.optional(function.plain)?,
            scope: self.optional(function.scope)?,
            linkage: self.optional(function.linkage)?,
            parameters: function.parameters.iter().map(parameter).collect::<Option<_>>()?,
            returns,
            language: languages.into_iter().find(|&known| known as u32 == function.language)?,
        });
        self.functions[at] = Some(known.clone());
        Some(known)
    }

    fn string(&self, number: u32) -> Option<Arc<str>> {
        self.strings.get(number as usize).cloned()
    }

    /// Outer `None`: a number that leads nowhere.
    fn optional(&self, number: Option<u32>) -> Option<Option<Arc<str>>> {
        number.map_or(Some(None), |number| self.string(number).map(Some))
    }
}

/// Whether this follows from the module alone.
pub(crate) fn is_lasting(frames: &[TypedFrame]) -> bool {
    let more =
        |frame: &TypedFrame| !frame.constructed.is_empty() || frame.received.is_some() || !frame.written.is_empty();
    !frames.iter().any(more)
}

pub(super) fn encode<'p>(fingerprint: &[u8], places: impl Iterator<Item = (u64, &'p [TypedFrame])>) -> Option<Vec<u8>> {
    let mut file = File { fingerprint: fingerprint.to_vec(), ..File::default() };
    let mut strings = Strings::default();
    let mut functions: HashMap<FunctionKey, u32> = HashMap::new();
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
            place.frames.push(KeptFrame { function: number, file: source, line: frame.line, column: frame.column });
        }
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
    let mut file = File::decode(unsealed(bytes, FILE_MAX)?).ok()?;
    let frames: usize = file.places.iter().map(|place| place.frames.len()).sum();
    if fingerprint.is_some_and(|made_from| file.fingerprint != made_from) || frames > FRAMES_MAX {
        return None;
    }
    let strings = std::mem::take(&mut file.strings).into_iter().map(Arc::from).collect();
    let places = file.places.iter().zip(0..).map(|(place, at)| (place.offset, at)).collect();
    let functions = file.functions.iter().map(|_| None).collect();
    Some(Types { file, strings, functions, places, views: HashMap::new() })
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
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct KeptFrame {
    #[prost(uint32, tag = 1)]
    function: u32,
    #[prost(uint32, optional, tag = 2)]
    file: Option<u32>,
    #[prost(uint32, optional, tag = 3)]
    line: Option<u32>,
    #[prost(uint32, optional, tag = 4)]
    column: Option<u32>,
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
