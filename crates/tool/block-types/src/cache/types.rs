//! The types found at addresses, in a file of their own, because few questions need them.
//!
//! Functions with their type arguments are stored once, because many places share them. Results
//! from the source text are kept as they were at the first question.

use std::collections::HashMap;
use std::sync::Arc;

use heapledger_symbols::cache::CacheEntry;

use super::records::{Kept, Reader, Records, Writer, kept};
use crate::frame::{Constructed, Lazy, Parameter, Pointee, Received, TypedFrame, Written};
use crate::language::Language;
use crate::type_name::TypeName;

/// The extension of the file.
const EXTENSION: &str = "types";
/// The maximum bytes of a file. The types of further places are not kept.
const FILE_MAX: u64 = 32 << 20;
/// The maximum number of frames in a file.
const FRAMES_MAX: usize = 1 << 20;

/// The types in a module from an earlier run; frames are made on demand.
#[derive(Debug)]
pub(crate) struct Types {
    records: Records,
    functions: HashMap<u32, Arc<Known>>,
    /// Keyed by the function and the address of the source file's name.
    views: HashMap<(u32, usize), Lazy>,
    frames_left: usize,
}

/// The parts that frames in the same function share.
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

/// The frames at an address.
struct Place {
    frames: Vec<PlaceFrame>,
    aliases: Arc<[Arc<str>]>,
    constructed: Arc<[Constructed]>,
    called: Option<Arc<str>>,
    received: Option<Received>,
}

struct PlaceFrame {
    /// The number of a record.
    function: u32,
    file: Option<Arc<str>>,
    line: Option<u32>,
    column: Option<u32>,
    written: Arc<[Written]>,
}

kept! {
    Known { name, plain, scope, linkage, parameters, returns, language }
    Place { frames, aliases, constructed, called, received }
    PlaceFrame { function, file, line, column, written }
    Parameter { name, type_name, size, of_class }
    Pointee { type_name, size }
    Constructed { class, size, distance, line, column }
    Received { variable, type_name, size }
    Written { type_name, size, is_array, is_more, is_result }
}

impl Kept for TypeName {
    fn write(&self, to: &mut Writer) {
        let (full, short) = self.parts();
        full.write(to);
        short.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let full = Kept::read(from)?;
        Some(Self::shared(full, Kept::read(from)?))
    }
}

impl Kept for Language {
    fn write(&self, to: &mut Writer) {
        (*self as u32).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let number = u32::read(from)?;
        [Self::Rust, Self::Cxx, Self::C, Self::Other].into_iter().find(|&known| known as u32 == number)
    }
}

impl Types {
    /// Returns the addresses that were not asked for.
    pub(crate) fn offsets(&self) -> Vec<u64> {
        self.records.keys()
    }

    /// Returns the source files that were missing.
    pub(crate) fn lacking(&mut self) -> Vec<Arc<str>> {
        self.records.lacking().unwrap_or_default()
    }

    /// Returns the frames at this address, if they are known.
    pub(crate) fn take(&mut self, offset: u64) -> Option<Arc<[TypedFrame]>> {
        let record = self.records.take(offset)?;
        let place = Place::read(&mut self.records.read(record)?)?;
        let last = place.frames.len().checked_sub(1)?;
        self.frames_left = self.frames_left.checked_sub(place.frames.len())?;
        let Place { frames, mut aliases, mut constructed, mut called, mut received } = place;
        let mut typed = Vec::with_capacity(frames.len());
        for (at, frame) in frames.into_iter().enumerate() {
            let known = self.function(frame.function)?;
            let is_last = at == last;
            let view = (frame.function, frame.file.as_ref().map_or(0, |file| file.as_ptr().addr()));
            typed.push(TypedFrame {
                name: known.name.clone(),
                plain: known.plain.clone(),
                scope: known.scope.clone(),
                linkage: known.linkage.clone(),
                parameters: known.parameters.clone(),
                language: known.language,
                file: frame.file,
                line: frame.line,
                column: frame.column,
                inlined: !is_last,
                aliases: if is_last { std::mem::take(&mut aliases) } else { Arc::default() },
                constructed: if is_last { std::mem::take(&mut constructed) } else { Arc::default() },
                called: if is_last { called.take() } else { None },
                received: if is_last { received.take() } else { None },
                written: frame.written,
                returns: known.returns.clone(),
                view: self.views.entry(view).or_default().clone(),
            });
        }
        Some(typed.into())
    }

    fn function(&mut self, record: u32) -> Option<Arc<Known>> {
        if let Some(known) = self.functions.get(&record) {
            return Some(known.clone());
        }
        let known = Arc::new(Known::read(&mut self.records.read(record)?)?);
        self.functions.insert(record, known.clone());
        Some(known)
    }
}

/// Reads the types of a module; `None` if there are none, or if they were made from something other
/// than `fingerprint`. Without a fingerprint, no file is there to read types from, and the old ones
/// are used.
pub(crate) fn read(cache: &CacheEntry, fingerprint: Option<&[u8]>) -> Option<Types> {
    decode(&cache.read(EXTENSION, FILE_MAX)?, fingerprint)
}

/// Writes the types of a module. `lacking` are the source files that were missing.
pub(crate) fn write<'p, 'l>(
    cache: &CacheEntry,
    fingerprint: &[u8],
    lacking: impl Iterator<Item = &'l Arc<str>>,
    places: impl Iterator<Item = (u64, &'p [TypedFrame])>,
) {
    if let Some(bytes) = encode(fingerprint, lacking, places) {
        cache.write(EXTENSION, &bytes);
    }
}

/// Encodes the file.
fn encode<'p, 'l>(
    fingerprint: &[u8],
    lacking: impl Iterator<Item = &'l Arc<str>>,
    places: impl Iterator<Item = (u64, &'p [TypedFrame])>,
) -> Option<Vec<u8>> {
    let mut file = Writer::default();
    let mut functions = HashMap::new();
    let mut count = 0;
    for (offset, frames) in places {
        count += frames.len();
        let mut kept = Vec::with_capacity(frames.len());
        for frame in frames {
            let function = *functions.entry(key(frame)).or_insert_with(|| file.shared(|to| known(frame).write(to)));
            let TypedFrame { file, line, column, written, .. } = frame.clone();
            kept.push(PlaceFrame { function, file, line, column, written });
        }
        let TypedFrame { aliases, constructed, called, received, .. } = frames.last()?.clone();
        let place = Place { frames: kept, aliases, constructed, called, received };
        let record = file.record(|to| place.write(to));
        file.key(offset, record);
    }
    file.finish(fingerprint, lacking, FILE_MAX).filter(|_| count <= FRAMES_MAX)
}

fn known(frame: &TypedFrame) -> Known {
    let TypedFrame { name, plain, scope, linkage, parameters, returns, language, .. } = frame.clone();
    Known { name, plain, scope, linkage, parameters, returns, language }
}

/// Returns a key, mostly of addresses of shared strings: frames with equal keys are of the same
/// function.
fn key(frame: &TypedFrame) -> ([usize; 5], Option<&Pointee>, Language) {
    let address = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.as_ptr().addr());
    let TypedFrame { name, plain, scope, linkage, parameters, returns, language, .. } = frame;
    let parameters = parameters.as_ptr().addr();
    let addresses = [name.as_ptr().addr(), address(plain), address(scope), address(linkage), parameters];
    (addresses, returns.as_ref(), *language)
}

fn decode(bytes: &[u8], fingerprint: Option<&[u8]>) -> Option<Types> {
    let records = Records::new(bytes, fingerprint, FILE_MAX)?;
    Some(Types { records, functions: HashMap::new(), views: HashMap::new(), frames_left: FRAMES_MAX })
}

/// Decodes everything in a file.
pub(super) fn exercise(bytes: &[u8]) {
    let Some(mut types) = decode(bytes, None) else { return };
    for offset in types.offsets() {
        let _ = types.take(offset);
    }
}

#[cfg(test)]
mod tests {
    use heapledger_symbols::cache::{RULES, sealed, unsealed};

    use super::*;
    use crate::testing::for_each_damaged;

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
        let pointee = TypeName::new(Language::Cxx, "app::Point");
        let (variable, size) = (Arc::<str>::from("point"), Some(u64::MAX));
        let constructed = Constructed { class: pointee.clone(), size, distance: 5, line: Some(3), column: None };
        let (is_array, is_more, is_result) = (true, false, true);
        let outer = TypedFrame {
            inlined: false,
            called: Some("malloc".into()),
            aliases: ["app::main".into()].into(),
            constructed: [constructed].into(),
            received: Some(Received { variable, type_name: pointee.clone(), size }),
            written: [Written { type_name: pointee.clone(), size, is_array, is_more, is_result }].into(),
            ..frame.clone()
        };
        // The same name in another file.
        let other = TypedFrame { returns: Some(Pointee { type_name: pointee, size }), ..outer.clone() };
        let places = [(16, &[frame, outer.clone()][..]), (17, &[outer]), (u64::MAX, &[other])];
        let made_from = [RULES.as_bytes(), b"\nfile"].concat();
        let lacking = ["/nowhere/a.cc".into()];
        let encode = |made_from: &[u8]| encode(made_from, lacking.iter(), places.into_iter()).unwrap();
        let bytes = encode(&made_from);
        assert!(decode(&bytes, Some(b"something else")).is_none());
        assert!(decode(&encode(b"by other rules"), None).is_none());
        let mut types = decode(&bytes, Some(&made_from)).unwrap();
        assert_eq!(types.lacking(), lacking);
        for (offset, frames) in places {
            assert_eq!(types.take(offset).as_deref(), Some(frames));
            assert_eq!(types.take(offset), None);
        }
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], None).is_none());
        }
        // Damage that the checksum does not show.
        for_each_damaged(unsealed(&bytes, FILE_MAX).unwrap(), |bad| exercise(&sealed(bad)));
    }
}
