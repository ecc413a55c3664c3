//! Assigns places of other tools' files to modules, names and texts, which all images of a
//! recording have in common.

use std::collections::HashMap;
use std::path::Path;

use heapledger_profile_formats::{self as profiles, Location, Profile};
use heapledger_recording::{ImportedLocation, Module, ModuleId, NamedFunction, Record, Text, TextId};
use heapledger_symbols::Headers;

/// Records that all images have in common.
#[derive(Debug, Default)]
pub(super) struct Common {
    modules: Vec<Module>,
    module_ids: HashMap<(Vec<u8>, Vec<u8>), ModuleId>,
    /// The headers of modules' files, by path.
    headers: HashMap<String, Option<Headers>>,
    places: Vec<Record>,
    /// The names of the functions at each module and offset.
    named: HashMap<(ModuleId, u64), Vec<Vec<u8>>>,
    /// The next offset in the module `NOWHERE`.
    nowhere: u64,
    texts: Vec<Vec<u8>>,
    text_ids: HashMap<Vec<u8>, TextId>,
}

/// The modules and places of a profile.
#[derive(Debug)]
pub(super) struct Places {
    /// For each module, its id and the amount to subtract from its addresses.
    pub(super) modules: Vec<(ModuleId, u64)>,
    /// For each location, its module and its offset in the module.
    pub(super) locations: Vec<(ModuleId, u64)>,
}

/// The module of places that are in no module, and differ only by their names.
const NOWHERE: ModuleId = ModuleId(1);

impl Common {
    /// Adds the modules and places of a profile.
    pub(super) fn add(&mut self, profile: &Profile) -> Places {
        let modules: Vec<_> = profile.modules.iter().map(|module| self.module(module)).collect();
        let locations = profile.locations.iter().map(|location| self.place(location, &modules)).collect();
        Places { modules, locations }
    }

    /// Returns the id of a text.
    pub(super) fn text(&mut self, bytes: Vec<u8>) -> TextId {
        let texts = &mut self.texts;
        *self.text_ids.entry(bytes).or_insert_with_key(|bytes| {
            texts.push(bytes.clone());
            TextId(texts.len() as u32)
        })
    }

    /// Returns the records of all modules, places and texts.
    pub(super) fn records(self, source: &str) -> Vec<Record> {
        let mut records: Vec<Record> = self.modules.into_iter().map(Record::Module).collect();
        if self.nowhere > 0 {
            let path = format!("[{source}]").into_bytes();
            records.push(Record::Module(Module { module: NOWHERE, path, build_id: Vec::new() }));
        }
        records.extend(self.places);
        let texts = (1..).zip(self.texts);
        records.extend(texts.map(|(id, bytes)| Record::Text(Text { text: TextId(id), bytes, ..Text::default() })));
        records
    }

    fn module(&mut self, module: &profiles::Module) -> (ModuleId, u64) {
        let headers = self.headers.entry(module.path.clone()).or_insert_with_key(|path| {
            // A name that is not a path stands for something other than a file.
            if path.starts_with('/') { Headers::read(Path::new(path)) } else { None }
        });
        let mut build_id = bytes_of(&module.build_id);
        if build_id.is_empty() {
            // The file is assumed to be the one that the program ran. Should it be another one
            // later, the build id will differ.
            build_id = headers.as_ref().and_then(|it| it.build_id.as_ref()).map_or(build_id, |id| id.0.to_vec());
        }
        // Without the file, the module is assumed to be mapped at its own offsets.
        let bias = module
            .bias
            .or_else(|| headers.as_ref()?.bias(module.start, module.file_offset))
            .unwrap_or(module.start.wrapping_sub(module.file_offset));
        let (path, next) = (module.path.clone().into_bytes(), ModuleId(self.modules.len() as u32 + 2));
        let modules = &mut self.modules;
        let id = *self.module_ids.entry((path, build_id)).or_insert_with_key(|(path, build_id)| {
            modules.push(Module { module: next, path: path.clone(), build_id: build_id.clone() });
            next
        });
        (id, bias)
    }

    /// Returns the module and the offset of a location. A location with names is identified by
    /// them.
    fn place(&mut self, location: &Location, modules: &[(ModuleId, u64)]) -> (ModuleId, u64) {
        let own = location.module.and_then(|at| modules.get(at));
        let own = own.map(|&(module, bias)| (module, location.address.wrapping_sub(bias)));
        if !location.frames.iter().any(|frame| frame.known) {
            return own.unwrap_or((ModuleId::UNKNOWN, location.address));
        }
        let functions: Vec<Vec<u8>> = location.frames.iter().map(function).collect();
        if let Some(own) = own {
            let named = self.named.entry(own);
            let is_new = matches!(named, std::collections::hash_map::Entry::Vacant(_));
            // The same address with other names gets a place of its own.
            if *named.or_insert_with(|| functions.clone()) == functions {
                if is_new {
                    self.places.push(Record::ImportedLocation(ImportedLocation {
                        module: own.0,
                        offset: own.1,
                        functions,
                    }));
                }
                return own;
            }
        }
        let offset = self.nowhere;
        self.nowhere += 1;
        self.places.push(Record::ImportedLocation(ImportedLocation { module: NOWHERE, offset, functions }));
        (NOWHERE, offset)
    }
}

fn function(frame: &profiles::Frame) -> Vec<u8> {
    let name = if frame.full_name.is_empty() { &frame.function } else { &frame.full_name };
    let file = (!frame.file.is_empty()).then(|| frame.file.as_str().into());
    NamedFunction { name: name.as_str().into(), file, line: frame.line }.to_bytes()
}

/// Converts hexadecimal digits to bytes; empty if they are not all digits in pairs.
fn bytes_of(digits: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>().unwrap_or_default()
}
