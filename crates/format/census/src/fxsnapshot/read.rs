//! The reader.

use std::io::Read;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::wire::{Fields, Value, varint};
use crate::graph::{
    AllocationStack, CoarseType, Frame, FrameIndex, Graph, GraphBuilder, ID_MAX, Name, NodeData, NodeId, Origin, Source,
};
use crate::input::Input;
use crate::read_error::ReadError;
use crate::unpack::{UNPACKED_BYTES_MAX, Unpacked};

/// Reads a file, which is compressed. The graph is the largest part of the memory that it takes;
/// besides, 4 bytes per edge and the longest message.
///
/// A time or a size of 0 is not known. UTF-16 that is not well-formed becomes U+FFFD; texts
/// of single bytes that are not UTF-8 are read as Latin-1. Of stacks, the outermost 1,024 frames
/// are read.
///
/// # Errors
///
/// Fails if the stream fails, or if the file is damaged: data is missing or contradictory, an id is
/// not less than 2^53 or occurs twice, a reference leads nowhere. Fails if more than 8 GiB are
/// unpacked.
pub fn read(input: impl Read) -> Result<Graph, ReadError> {
    read_unpacked(Unpacked::new(input, UNPACKED_BYTES_MAX))
}

/// True if unpacked data begins as a file: a message of a time or of nothing, and then a node.
pub(crate) fn detects(head: &[u8]) -> bool {
    let mut rest = head;
    let length = varint(&mut rest).ok().and_then(|it| usize::try_from(it).ok());
    let Some((metadata, mut rest)) = length.and_then(|it| rest.split_at_checked(it)) else { return false };
    let mut fields = Fields::new(metadata);
    loop {
        match fields.next() {
            Ok(Some((1, Value::Number(_)))) => {}
            Ok(None) => break,
            Ok(Some(_)) | Err(_) => return false,
        }
    }
    let length = varint(&mut rest).unwrap_or(0);
    length > 0 && varint(&mut rest).is_ok_and(is_node_key)
}

/// True if a key has the number of a field of a node, and the encoding that this field has.
fn is_node_key(key: u64) -> bool {
    let encoding = match key >> 3 {
        1 | 3 | 4 | 8 | 9 | 11 | 13 => 0,
        2 | 5 | 6 | 7 | 10 | 12 => 2,
        _ => return false,
    };
    key & 7 == encoding
}

/// Reads the messages of a file, which are not compressed.
pub(crate) fn read_unpacked(mut input: impl Read) -> Result<Graph, ReadError> {
    let mut input = Input::new(&mut input);
    let mut builder = GraphBuilder::new();
    builder.about.origin = Origin::Firefox;
    Snapshot { input: &mut input }.fill(&mut builder)?;
    builder.finish().map_err(|error| input.error(error))
}

/// The unpacked file.
struct Snapshot<'a, 'b> {
    input: &'a mut Input<'b>,
}

impl Source for Snapshot<'_, '_> {
    type Error = ReadError;

    fn fill(&mut self, builder: &mut GraphBuilder) -> Result<(), ReadError> {
        let Some(length) = self.length()? else { return Err(self.input.error("the file is empty")) };
        let offset = self.input.offset();
        let at = |reason: String| ReadError::Malformed { offset, reason };
        builder.about.time_us = time(self.input.take(length)?).map_err(|reason| at(reason.to_owned()))?;
        let mut reader = Reader { builder, texts: Texts::default(), frames: HashMap::default(), stack: Vec::new() };
        while let Some(length) = self.length()? {
            let offset = self.input.offset();
            let message = self.input.take(length)?;
            reader.node(message).map_err(|reason| ReadError::Malformed { offset, reason })?;
        }
        Ok(())
    }
}

impl Snapshot<'_, '_> {
    /// Takes the length of a message, or nothing at the end of the file.
    #[inline]
    fn length(&mut self) -> Result<Option<usize>, ReadError> {
        let buffered = self.input.buffered();
        if let [low, high, ..] = *buffered
            && low.min(high) < 0x80
        {
            let mut rest = buffered;
            let length = varint(&mut rest).map_err(|reason| self.input.error(reason))?;
            let taken = buffered.len() - rest.len();
            self.input.consume(taken);
            return Ok(Some(length as usize));
        }
        self.rare_length()
    }

    /// Takes a length near the end of the buffer, or one of more than two bytes.
    #[cold]
    fn rare_length(&mut self) -> Result<Option<usize>, ReadError> {
        let mut bytes = [0; 10];
        let mut count = 0;
        while let Some(byte) = self.input.peek()? {
            bytes[count] = byte;
            count += 1;
            if byte < 0x80 || count == bytes.len() {
                let length = varint(&mut &bytes[..count]).map_err(|reason| self.input.error(reason))?;
                let length = u32::try_from(length).map_err(|_| self.input.error("a message has over 4 GiB"))?;
                self.input.bump();
                return Ok(Some(length as usize));
            }
            self.input.bump();
        }
        if count == 0 { Ok(None) } else { Err(self.input.error("the file ends in the length of a message")) }
    }
}

fn time(metadata: &[u8]) -> Result<Option<u64>, &'static str> {
    let mut fields = Fields::new(metadata);
    let mut time = None;
    while let Some(field) = fields.next()? {
        if let (1, Value::Number(it)) = field {
            time = Some(it).filter(|&it| it > 0);
        }
    }
    Ok(time)
}

/// A text, or the position of one that came before.
#[derive(Clone, Copy)]
enum Text<'a> {
    New(&'a [u8]),
    Known(u64),
}

/// Returns the text in one of two fields.
fn text<'a>(field: u64, value: Value<'a>, new: u64) -> Result<Text<'a>, String> {
    match value {
        Value::Bytes(bytes) if field == new => Ok(Text::New(bytes)),
        Value::Number(at) if field == new + 1 => Ok(Text::Known(at)),
        _ => Err(format!("field {field} has the wrong encoding")),
    }
}

fn number(field: u64, value: Value<'_>) -> Result<u64, String> {
    let Value::Number(number) = value else { return Err(format!("field {field} has the wrong encoding")) };
    Ok(number)
}

fn bytes(field: u64, value: Value<'_>) -> Result<&[u8], String> {
    let Value::Bytes(bytes) = value else { return Err(format!("field {field} has the wrong encoding")) };
    Ok(bytes)
}

/// The texts so far, of each width.
#[derive(Default)]
struct Texts {
    wide: Vec<Name>,
    narrow: Vec<Name>,
    decoded: String,
}

impl Texts {
    fn wide(&mut self, text: Text<'_>, builder: &mut GraphBuilder) -> Result<Name, String> {
        let bytes = match text {
            Text::Known(at) => return known(&self.wide, at),
            Text::New(bytes) => bytes,
        };
        let (units, []) = bytes.as_chunks::<2>() else {
            return Err(format!("a text in UTF-16 has {} bytes", bytes.len()));
        };
        self.decoded.clear();
        let units = units.iter().map(|&it| u16::from_le_bytes(it));
        self.decoded.extend(char::decode_utf16(units).map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER)));
        let name = builder.intern(&self.decoded).map_err(|error| error.to_string())?;
        self.wide.push(name);
        Ok(name)
    }

    fn narrow(&mut self, text: Text<'_>, builder: &mut GraphBuilder) -> Result<Name, String> {
        let bytes = match text {
            Text::Known(at) => return known(&self.narrow, at),
            Text::New(bytes) => bytes,
        };
        let name = match std::str::from_utf8(bytes) {
            Ok(text) => builder.intern(text),
            Err(_) => {
                self.decoded.clear();
                self.decoded.extend(bytes.iter().map(|&byte| char::from(byte)));
                builder.intern(&self.decoded)
            }
        };
        let name = name.map_err(|error| error.to_string())?;
        self.narrow.push(name);
        Ok(name)
    }
}

fn known(names: &[Name], at: u64) -> Result<Name, String> {
    let name = usize::try_from(at).ok().and_then(|it| names.get(it)).copied();
    name.ok_or_else(|| format!("text {at} is used, and only {} came before", names.len()))
}

/// The data of a frame, before its callers are known.
struct FrameData {
    id: u64,
    line: u32,
    column: u32,
    source: Option<Name>,
    function: Option<Name>,
    is_system: bool,
    is_self_hosted: bool,
}

struct Reader<'a> {
    builder: &'a mut GraphBuilder,
    texts: Texts,
    frames: HashMap<u64, FrameIndex, RandomState>,
    /// The frames of the stack that is being read, innermost first.
    stack: Vec<FrameData>,
}

/// The fields of a node except its edges.
#[derive(Default)]
struct NodeFields<'a> {
    id: Option<u64>,
    type_name: Option<Text<'a>>,
    size: Option<u64>,
    stack: Option<&'a [u8]>,
    class: Option<Text<'a>>,
    coarse_type: u64,
    script_file: Option<Text<'a>>,
    descriptive_name: Option<Text<'a>>,
}

impl<'a> NodeFields<'a> {
    /// Takes a field that is not an edge.
    #[inline]
    fn take(&mut self, field: u64, value: Value<'a>) -> Result<(), String> {
        match field {
            1 => self.id = Some(number(field, value)?),
            2 | 3 => self.type_name = Some(text(field, value, 2)?),
            4 => self.size = Some(number(field, value)?),
            6 => self.stack = Some(bytes(field, value)?),
            7 | 8 => self.class = Some(text(field, value, 7)?),
            9 => self.coarse_type = number(field, value)?,
            10 | 11 => self.script_file = Some(text(field, value, 10)?),
            12 | 13 => self.descriptive_name = Some(text(field, value, 12)?),
            _ => {}
        }
        Ok(())
    }

    /// Takes the type name from the fields after an edge, if it does not come before all edges.
    #[cold]
    fn look_for_type_name(&mut self, mut rest: Fields<'a>) -> Result<(), String> {
        while self.type_name.is_none()
            && let Some((field, value)) = rest.next()?
        {
            if matches!(field, 2 | 3) {
                self.take(field, value)?;
            }
        }
        Ok(())
    }
}

/// An edge as nearly all are: of a target that is a number, with a known name or none.
struct UsualEdge {
    target: u64,
    name: Option<u64>,
    /// The bytes of the field.
    length: usize,
}

impl UsualEdge {
    /// Reads the field at the beginning of `bytes`. Returns nothing if it is another field, or is
    /// written in another way.
    #[inline]
    fn read(bytes: &[u8]) -> Option<UsualEdge> {
        let [0x2a, length, message @ ..] = bytes else { return None };
        let length = usize::from(*length);
        // A longer length has more than one byte. Bytes after the message are at hand for varints.
        let [0x08, rest @ ..] = message else { return None };
        if length >= 0x80 || length > message.len() {
            return None;
        }
        let mut rest = rest;
        let target = varint(&mut rest).ok().filter(|&it| it < ID_MAX)?;
        let mut name = None;
        if message.len() - rest.len() < length
            && let [0x18, after @ ..] = rest
        {
            rest = after;
            name = Some(varint(&mut rest).ok()?);
        }
        (message.len() - rest.len() == length).then_some(UsualEdge { target, name, length: 2 + length })
    }
}

/// Reads the message of an edge: its target and its name.
fn edge(message: &[u8]) -> Result<(u64, Option<Text<'_>>), String> {
    let mut fields = Fields::new(message);
    let (mut target, mut name) = (None, None);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => target = Some(number(field, value)?),
            2 | 3 => name = Some(text(field, value, 2)?),
            _ => {}
        }
    }
    let target = target.ok_or("an edge leads nowhere")?;
    if target >= ID_MAX {
        return Err(format!("an edge leads to {target}, which is not less than 2^53"));
    }
    Ok((target, name))
}

impl Reader<'_> {
    /// Adds a node and its edges.
    ///
    /// Texts are counted in the order of the fields' numbers: the type name, the names of edges,
    /// the stack, and so on. Writers put fields into this order, so edges are added as they come.
    /// All other fields are kept until the message ends.
    fn node(&mut self, message: &[u8]) -> Result<(), String> {
        let first_edge = self.builder.edge_count();
        let mut fields = Fields::new(message);
        let mut node = NodeFields::default();
        let mut type_name = None;
        loop {
            if type_name.is_none() {
                type_name = node.type_name.map(|it| self.texts.wide(it, self.builder)).transpose()?;
            }
            while type_name.is_some()
                && let Some(UsualEdge { target, name, length }) = UsualEdge::read(fields.rest())
            {
                let name = name.map(|at| known(&self.texts.wide, at)).transpose()?;
                self.builder.push_edge_to_id(target, name);
                fields.skip(length);
            }
            let Some((field, value)) = fields.next()? else { break };
            if field != 5 {
                node.take(field, value)?;
                continue;
            }
            if type_name.is_none() {
                node.look_for_type_name(fields)?;
                type_name = node.type_name.map(|it| self.texts.wide(it, self.builder)).transpose()?;
            }
            let (target, name) = edge(bytes(field, value)?)?;
            let name = name.map(|it| self.texts.wide(it, self.builder)).transpose()?;
            self.builder.push_edge_to_id(target, name);
        }
        let id = node.id.ok_or("a node has no id")?;
        let size = node.size.ok_or_else(|| format!("node {id} has no size"))?;
        let type_name = type_name.ok_or_else(|| format!("node {id} has no type name"))?;
        let coarse_type = usize::try_from(node.coarse_type).ok().and_then(|it| CoarseType::ALL.get(it));
        let coarse_type = coarse_type.ok_or_else(|| format!("node {id} has the coarse type {}", node.coarse_type))?;
        let stack = node.stack.map(|it| self.allocation_stack(it)).transpose()?;
        let class = node.class.map(|it| self.texts.narrow(it, self.builder)).transpose()?;
        let script_file = node.script_file.map(|it| self.texts.narrow(it, self.builder)).transpose()?;
        let descriptive_name = node.descriptive_name.map(|it| self.texts.wide(it, self.builder)).transpose()?;
        let data = NodeData {
            coarse_type: *coarse_type,
            stack: stack.map(AllocationStack::At),
            class,
            script_file,
            descriptive_name,
            ..NodeData::new(NodeId(id), type_name, Some(size).filter(|&it| it > 0))
        };
        self.builder.add_node_with_edges(data, first_edge).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Adds the frames of a stack that are new, and returns the innermost.
    fn allocation_stack(&mut self, message: &[u8]) -> Result<FrameIndex, String> {
        self.stack.clear();
        let mut message = Some(message);
        let mut parent = None;
        while let Some(frame) = message {
            match frame_content(frame)? {
                FrameContent::Known(id) => {
                    let known = self.frames.get(&id).copied();
                    parent = Some(known.ok_or_else(|| format!("frame {id} is used before it is described"))?);
                    message = None;
                }
                FrameContent::Data(data) => message = self.frame_data(data)?,
            }
        }
        while let Some(data) = self.stack.pop() {
            let FrameData { id, line, column, source, function, is_system, is_self_hosted } = data;
            let frame = Frame { id, parent, source, line, column, function, is_system, is_self_hosted };
            let added = self.builder.add_frame(frame).map_err(|error| error.to_string())?;
            self.frames.insert(id, added);
            parent = Some(added);
        }
        parent.ok_or_else(|| "a stack has no frame".to_owned())
    }

    /// Adds a frame to the stack that is being read, and returns the message of its parent.
    fn frame_data<'m>(&mut self, message: &'m [u8]) -> Result<Option<&'m [u8]>, String> {
        let mut fields = Fields::new(message);
        let (mut id, mut parent, mut line, mut column) = (None, None, 0, 0);
        let (mut source, mut function, mut is_system, mut is_self_hosted) = (None, None, false, false);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => id = Some(number(field, value)?),
                2 => parent = Some(bytes(field, value)?),
                3 => line = number(field, value)?,
                4 => column = number(field, value)?,
                5 | 6 => source = Some(text(field, value, 5)?),
                7 | 8 => function = Some(text(field, value, 7)?),
                9 => is_system = number(field, value)? != 0,
                10 => is_self_hosted = number(field, value)? != 0,
                _ => {}
            }
        }
        let source = source.map(|it| self.texts.wide(it, self.builder)).transpose()?;
        let function = function.map(|it| self.texts.wide(it, self.builder)).transpose()?;
        self.stack.push(FrameData {
            id: id.ok_or("a frame has no id")?,
            line: u32::try_from(line).map_err(|_| format!("a frame is in line {line}"))?,
            column: u32::try_from(column).map_err(|_| format!("a frame is in column {column}"))?,
            source,
            function,
            is_system,
            is_self_hosted,
        });
        Ok(parent)
    }
}

enum FrameContent<'a> {
    Data(&'a [u8]),
    Known(u64),
}

fn frame_content(message: &[u8]) -> Result<FrameContent<'_>, String> {
    let mut fields = Fields::new(message);
    let mut content = None;
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => content = Some(FrameContent::Data(bytes(field, value)?)),
            2 => content = Some(FrameContent::Known(number(field, value)?)),
            _ => {}
        }
    }
    content.ok_or_else(|| "a frame has neither data nor a reference".to_owned())
}
