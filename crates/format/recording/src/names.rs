//! The functions at places in modules, as they were found on a machine that had the modules' files.
//!
//! The contents of a chunk are columns of places, columns of the functions at these places, columns
//! of the extents of functions' code, and the texts of the chunk, each once.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::columns::{self, CODEC_BYTES, CODEC_DELTA, CODEC_VARINT, Spec};
use crate::error::{Damage, Reason, RecordingError};
use crate::frame::{CHUNK_RAW_MAX, Compressor, EncodedChunk};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
use crate::ids::ModuleId;
use crate::messages::NamedFunction;
use crate::varint::{self, Varints};

/// The functions at one place: one that was called, and those that were inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedLocation<'text> {
    /// The module.
    pub module: ModuleId,
    /// The place in it, as [nodes](crate::Node::offset) have it.
    pub offset: u64,
    /// The functions, the innermost first. Mangled names are kept as the linker knows them.
    pub functions: Vec<NamedFunction<'text>>,
}

/// The position of a function's code in its module, from unwind information.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeExtent<'text> {
    /// The module.
    pub module: ModuleId,
    /// Its first byte, as [nodes](crate::Node::offset) have it.
    pub start: u64,
    /// The number of its bytes.
    pub size: u64,
    /// For a function without a name: the nearest named functions before and after it.
    pub neighbours: [Option<Cow<'text, str>>; 2],
}

const LOCATIONS: [Spec; 3] = [
    Spec { id: 1, codec: CODEC_DELTA },  // module
    Spec { id: 2, codec: CODEC_DELTA },  // offset
    Spec { id: 3, codec: CODEC_VARINT }, // number of functions
];

const FUNCTIONS: [Spec; 3] = [
    Spec { id: 4, codec: CODEC_VARINT }, // name: a text
    Spec { id: 5, codec: CODEC_VARINT }, // file: a text, counted from 1; 0: not known
    Spec { id: 6, codec: CODEC_VARINT }, // line; 0: not known
];

/// The length of each text in bytes.
const TEXT_LENGTHS: u16 = 7;
/// The texts, one behind the other, in UTF-8.
const TEXTS: u16 = 8;

const EXTENTS: [Spec; 5] = [
    Spec { id: 9, codec: CODEC_DELTA },            // module
    Spec { id: 10, codec: CODEC_DELTA },           // first byte
    Spec { id: EXTENT_SIZE, codec: CODEC_VARINT }, // number of bytes
    Spec { id: 12, codec: CODEC_VARINT },          // function before: a text, counted from 1; 0: none
    Spec { id: 13, codec: CODEC_VARINT },          // function after, likewise
];
const EXTENT_SIZE: u16 = 11;

/// The number of places in a chunk: few enough that little is unpacked for one of them, and enough
/// that texts seldom repeat.
const ROWS: usize = CHUNK_ROWS_MAX / 8;

/// Turns names into chunks.
#[derive(Debug)]
pub struct NamesEncoder;

impl NamesEncoder {
    /// Returns the chunks, to be appended one after the other. Places in ascending order of modules
    /// and offsets compress best.
    ///
    /// # Errors
    ///
    /// Fails if the names of one part of the places are larger than a chunk may be.
    pub fn encode(
        locations: &[NamedLocation<'_>],
        compressor: &mut Compressor,
    ) -> Result<Vec<EncodedChunk>, RecordingError> {
        let mut chunks = Vec::new();
        let mut rest = locations;
        while !rest.is_empty() {
            let mut rows = rest.len().min(ROWS);
            let contents = loop {
                let contents = contents(&rest[..rows], &[]);
                if contents.len() <= CHUNK_RAW_MAX {
                    break contents;
                }
                if rows == 1 {
                    return Err(RecordingError::Unwritable("the names of one place are larger than a chunk"));
                }
                rows /= 2;
            };
            let head = ChunkHead { rows: rows as u32, ..ChunkHead::default() };
            chunks.push(compressor.encode_chunk(ChunkKind::Names, &head, &contents)?);
            rest = &rest[rows..];
        }
        Ok(chunks)
    }

    /// Returns chunks with the extents of functions, which are separate from those with places.
    /// Extents in ascending order of modules and addresses compress best.
    ///
    /// # Errors
    ///
    /// Fails if the names of a function's neighbours are larger than a chunk may be.
    pub fn encode_extents(
        extents: &[CodeExtent<'_>],
        compressor: &mut Compressor,
    ) -> Result<Vec<EncodedChunk>, RecordingError> {
        // Readers without support for extents read a chunk without places.
        let encode = |extents: &[CodeExtent<'_>]| {
            compressor.encode_chunk(ChunkKind::Names, &ChunkHead::default(), &contents(&[], extents))
        };
        extents.chunks(ROWS).map(encode).collect()
    }
}

/// The texts of a chunk, each once.
#[derive(Default)]
struct Texts<'a> {
    numbers: HashMap<&'a str, u64>,
    lengths: Vec<u8>,
    bytes: Vec<u8>,
}

impl<'a> Texts<'a> {
    fn number(&mut self, text: &'a str) -> u64 {
        let next = self.numbers.len() as u64;
        *self.numbers.entry(text).or_insert_with(|| {
            varint::put(&mut self.lengths, text.len() as u64);
            self.bytes.extend_from_slice(text.as_bytes());
            next
        })
    }

    fn number_from_1(&mut self, text: Option<&'a str>) -> u64 {
        text.map_or(0, |text| self.number(text) + 1)
    }
}

fn contents(locations: &[NamedLocation<'_>], extents: &[CodeExtent<'_>]) -> Vec<u8> {
    let mut texts = Texts::default();
    let functions: Vec<[u64; 3]> = locations
        .iter()
        .flat_map(|location| &location.functions)
        .map(|function| {
            let name = texts.number(&function.name);
            let file = texts.number_from_1(function.file.as_deref());
            [name, file, u64::from(function.line)]
        })
        .collect();
    let extents: Vec<[u64; 5]> = extents
        .iter()
        .map(|extent| {
            let [after, before] = extent.neighbours.each_ref().map(|name| texts.number_from_1(name.as_deref()));
            [extent.module.0.into(), extent.start, extent.size, after, before]
        })
        .collect();
    let rows =
        locations.iter().map(|location| [location.module.0.into(), location.offset, location.functions.len() as u64]);
    let mut contents = columns::encode_table(LOCATIONS, rows);
    contents.extend(columns::encode_table(FUNCTIONS, functions));
    columns::put(&mut contents, TEXT_LENGTHS, CODEC_VARINT, &texts.lengths);
    columns::put(&mut contents, TEXTS, CODEC_BYTES, &texts.bytes);
    if !extents.is_empty() {
        contents.extend(columns::encode_table(EXTENTS, extents));
    }
    contents
}

/// All names of a recording, by place.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// In ascending order of modules and offsets: each with the range of its functions.
    locations: Vec<(ModuleId, u64, [u32; 2])>,
    /// The innermost of each place first: the number of the name, the number of the file plus 1,
    /// the line.
    functions: Vec<[u32; 3]>,
    /// In ascending order of modules and first bytes.
    extents: Vec<Extent>,
    texts: String,
    /// The end of each text.
    ends: Vec<usize>,
    /// The places where names are missing, with the reasons.
    pub damage: Vec<Damage>,
}

/// A [`CodeExtent`], whose neighbours are numbers of texts plus 1.
#[derive(Clone, Copy, Debug)]
struct Extent {
    module: ModuleId,
    start: u64,
    size: u64,
    neighbours: [u32; 2],
}

impl Names {
    /// Returns the number of places.
    pub fn len(&self) -> usize {
        self.locations.len()
    }

    /// True if there are no places.
    pub fn is_empty(&self) -> bool {
        self.locations.is_empty()
    }

    /// Returns the functions at a place, the innermost first; `None` if it has no names here.
    pub fn functions(&self, module: ModuleId, offset: u64) -> Option<Vec<NamedFunction<'_>>> {
        let found = self.locations.binary_search_by_key(&(module, offset), |&(module, offset, _)| (module, offset));
        found.ok().map(|at| self.at(self.locations[at].2))
    }

    /// Returns all places in ascending order of modules and offsets.
    pub fn iter(&self) -> impl Iterator<Item = NamedLocation<'_>> {
        self.locations.iter().map(|&(module, offset, range)| NamedLocation {
            module,
            offset,
            functions: self.at(range),
        })
    }

    /// Returns the function whose code is at an address of a module, if the recording tells.
    pub fn extent(&self, module: ModuleId, offset: u64) -> Option<CodeExtent<'_>> {
        let behind = self.extents.partition_point(|extent| (extent.module, extent.start) <= (module, offset));
        let extent = self.extents.get(behind.checked_sub(1)?)?;
        let is_inside = extent.module == module && offset - extent.start < extent.size;
        is_inside.then(|| self.with_names(extent))
    }

    /// Returns the extents of all functions that are known.
    pub fn extents(&self) -> impl Iterator<Item = CodeExtent<'_>> {
        self.extents.iter().map(|extent| self.with_names(extent))
    }

    fn with_names(&self, extent: &Extent) -> CodeExtent<'_> {
        let name = |number: u32| Some(self.text(number.checked_sub(1)?).into());
        let Extent { module, start, size, neighbours } = *extent;
        CodeExtent { module, start, size, neighbours: neighbours.map(name) }
    }

    fn at(&self, [start, end]: [u32; 2]) -> Vec<NamedFunction<'_>> {
        let functions = self.functions[start as usize..end as usize].iter();
        let function = |&[name, file, line]: &[u32; 3]| NamedFunction {
            name: self.text(name).into(),
            file: file.checked_sub(1).map(|file| self.text(file).into()),
            line,
        };
        functions.map(function).collect()
    }

    fn text(&self, number: u32) -> &str {
        let number = number as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.texts[start..self.ends[number]]
    }

    /// Returns roughly how many bytes of memory the names take.
    pub(crate) fn memory(&self) -> usize {
        let tables = self.locations.len() * 24 + self.functions.len() * 12 + self.extents.len() * size_of::<Extent>();
        tables + self.texts.len() + self.ends.len() * 8
    }

    /// Adds the names of a chunk; none of them if it is invalid.
    pub(crate) fn add(&mut self, contents: &[u8], rows: u32) -> Result<(), Reason> {
        let before = (self.locations.len(), self.functions.len(), self.texts.len(), self.ends.len());
        let extents = self.extents.len();
        let added = self.add_parts(contents, rows);
        if added.is_err() {
            self.locations.truncate(before.0);
            self.functions.truncate(before.1);
            self.texts.truncate(before.2);
            self.ends.truncate(before.3);
            self.extents.truncate(extents);
        }
        added
    }

    fn add_parts(&mut self, contents: &[u8], rows: u32) -> Result<(), Reason> {
        let first_text = self.ends.len();
        let [lengths, texts] = columns::find(contents, [TEXT_LENGTHS, TEXTS])?;
        let mut texts = Varints::new(texts.with_codec(CODEC_BYTES)?);
        let mut lengths = Varints::new(lengths.with_codec(CODEC_VARINT)?);
        while !lengths.is_empty() {
            let text = lengths.next().and_then(|length| texts.take(length)).ok_or(columns::TOO_SHORT)?;
            self.texts.push_str(&String::from_utf8_lossy(text));
            self.ends.push(self.texts.len());
        }
        if !texts.is_empty() {
            return Err(columns::TOO_LONG);
        }
        let count = self.ends.len() - first_text;
        let number = |number: u64| match usize::try_from(number) {
            Ok(number) if number < count => u32::try_from(first_text + number).map_err(|_| Reason::Limit),
            _ => Err(Reason::Invalid("a text that is not there")),
        };

        let number_from_1 = |text: u64| match text.checked_sub(1) {
            None => Ok(0),
            Some(text) => number(text)?.checked_add(1).ok_or(Reason::Limit),
        };

        let first_function = self.functions.len() as u64;
        let mut functions = 0_u64;
        columns::decode_table(contents, LOCATIONS, rows, |[module, offset, count]| {
            let module = u32::try_from(module).map_err(|_| Reason::Invalid("a module"))?;
            let start = first_function + functions;
            functions = functions.saturating_add(count);
            let end = first_function.saturating_add(functions);
            let range = [start, end].map(u32::try_from);
            let [Ok(start), Ok(end)] = range else { return Err(Reason::Invalid("more functions than there can be")) };
            self.locations.push((ModuleId(module), offset, [start, end]));
            Ok(())
        })?;
        let functions = u32::try_from(functions).map_err(|_| Reason::Invalid("more functions than there can be"))?;
        columns::decode_table(contents, FUNCTIONS, functions, |[name, file, line]| {
            self.functions.push([number(name)?, number_from_1(file)?, u32::try_from(line).unwrap_or(0)]);
            Ok(())
        })?;

        // There are as many extents as sizes. Files of earlier versions have none.
        let Some(sizes) = columns::find_optional(contents, EXTENT_SIZE)? else { return Ok(()) };
        let mut sizes = Varints::new(sizes.with_codec(CODEC_VARINT)?);
        let mut extents = 0_u32;
        while !sizes.is_empty() {
            sizes.next().ok_or(columns::TOO_SHORT)?;
            extents += 1;
            if extents as usize > CHUNK_ROWS_MAX {
                return Err(Reason::Limit);
            }
        }
        columns::decode_table(contents, EXTENTS, extents, |[module, start, size, after, before]| {
            let module = ModuleId(u32::try_from(module).map_err(|_| Reason::Invalid("a module"))?);
            let neighbours = [number_from_1(after)?, number_from_1(before)?];
            self.extents.push(Extent { module, start, size, neighbours });
            Ok(())
        })
    }

    /// Sorts places and extents; the last of several with the same place or beginning counts.
    pub(crate) fn settle(&mut self) {
        self.locations.sort_by_key(|&(module, offset, _)| (module, offset));
        keep_last(&mut self.locations, |a, b| (a.0, a.1) == (b.0, b.1));
        self.extents.sort_by_key(|extent| (extent.module, extent.start));
        keep_last(&mut self.extents, |a, b| (a.module, a.start) == (b.module, b.start));
    }
}

fn keep_last<T>(rows: &mut Vec<T>, is_same: impl Fn(&T, &T) -> bool) {
    rows.dedup_by(|later, earlier| {
        let is_same = is_same(later, earlier);
        if is_same {
            std::mem::swap(later, earlier);
        }
        is_same
    });
}

#[cfg(test)]
mod tests;
