//! The writer.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use super::FIREFOX_FRAMES_MAX;
use super::wire::{put_bytes, put_number, put_varint};
use crate::graph::{AllocationStack, CoarseType, EdgeName, FrameIndex, Graph, Name, NodeIndex};

/// Writes a graph as a file that Firefox and [`read`](super::read) read, and returns the stream.
///
/// The format cannot hold labels, locations, kinds of edges, detachedness and timelines. Edges that
/// do not retain their target ([`Graph::retains`]) are left out, since in this format all edges do.
/// An index becomes the name of its edge. An unknown size or time becomes 0, an empty stack none,
/// and of a stack the innermost 60 frames are written. See also
/// [`WrittenFormat::lost`](crate::convert::WrittenFormat::lost).
///
/// The memory is 8 bytes per name, some 10 per frame and some 20 per different index.
///
/// # Errors
///
/// Fails if the stream fails.
pub fn write<W: Write>(graph: &Graph, out: W) -> io::Result<W> {
    let mut writer = Writer {
        graph,
        wide: vec![NOT_WRITTEN; graph.names().count()],
        wide_count: 0,
        narrow: vec![NOT_WRITTEN; graph.names().count()],
        narrow_count: 0,
        frames: HashSet::default(),
        message: Vec::new(),
        part: Vec::new(),
        indices: HashMap::default(),
    };
    let mut out = GzEncoder::new(out, Compression::default());
    let mut metadata = Vec::new();
    // Firefox refuses a message without fields.
    put_number(&mut metadata, 1, graph.about().time_us.unwrap_or(0));
    write_message(&mut out, &metadata)?;
    let root = graph.root();
    for node in std::iter::once(root).chain(graph.nodes().filter(|&it| it != root)) {
        writer.node(node);
        write_message(&mut out, &writer.message)?;
    }
    out.finish()
}

fn write_message(out: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let mut length = Vec::with_capacity(10);
    put_varint(&mut length, message.len() as u64);
    out.write_all(&length)?;
    out.write_all(message)
}

/// The position of a text that was not written yet.
const NOT_WRITTEN: u32 = u32::MAX;

struct Writer<'a> {
    graph: &'a Graph,
    /// The positions of names among the texts of each width.
    wide: Vec<u32>,
    wide_count: u32,
    narrow: Vec<u32>,
    narrow_count: u32,
    /// The frames that were written.
    frames: HashSet<FrameIndex, RandomState>,
    message: Vec<u8>,
    part: Vec<u8>,
    /// The positions of indices among the wide texts.
    indices: HashMap<u32, u32, RandomState>,
}

impl Writer<'_> {
    /// Makes the message of a node.
    fn node(&mut self, node: NodeIndex) {
        let graph = self.graph;
        let mut message = std::mem::take(&mut self.message);
        message.clear();
        put_number(&mut message, 1, graph.id(node).0);
        self.put_wide(&mut message, 2, graph.type_name(node));
        put_number(&mut message, 4, graph.size(node));
        for edge in graph.edge_range(node).filter(|&it| graph.retains(it)).map(|it| graph.edge(it)) {
            let mut part = std::mem::take(&mut self.part);
            part.clear();
            put_number(&mut part, 1, graph.id(edge.target).0);
            match edge.name {
                None => {}
                Some(EdgeName::Name(name)) => self.put_wide(&mut part, 2, name),
                Some(EdgeName::Index(index)) => self.put_index(&mut part, index),
            }
            put_bytes(&mut message, 5, &part);
            self.part = part;
        }
        if let Some(AllocationStack::At(innermost)) = graph.stack(node) {
            let stack = self.stack(innermost);
            put_bytes(&mut message, 6, &stack);
        }
        if let Some(class) = graph.class(node) {
            self.put_narrow(&mut message, 7, class);
        }
        let coarse_type = CoarseType::ALL.iter().position(|&it| it == graph.coarse_type(node));
        put_number(&mut message, 9, coarse_type.unwrap_or(0) as u64);
        if let Some(file) = graph.script_file(node) {
            self.put_narrow(&mut message, 10, file);
        }
        if let Some(name) = graph.descriptive_name(node) {
            self.put_wide(&mut message, 12, name);
        }
        self.message = message;
    }

    /// Returns the message of a stack. Texts are counted from the innermost frame outwards.
    fn stack(&mut self, innermost: FrameIndex) -> Vec<u8> {
        let graph = self.graph;
        let mut pieces = Vec::new();
        let mut message = None;
        for frame in graph.frames().stack(innermost).take(FIREFOX_FRAMES_MAX) {
            if self.frames.contains(&frame) {
                let mut known = Vec::new();
                put_number(&mut known, 2, u64::from(frame.0) + 1);
                message = Some(known);
                break;
            }
            self.frames.insert(frame);
            let data = graph.frame(frame);
            let mut texts = Vec::new();
            if let Some(source) = data.source {
                self.put_wide(&mut texts, 5, source);
            }
            if let Some(function) = data.function {
                self.put_wide(&mut texts, 7, function);
            }
            pieces.push((frame, texts));
        }
        while let Some((frame, texts)) = pieces.pop() {
            let data = graph.frame(frame);
            let mut part = Vec::new();
            put_number(&mut part, 1, u64::from(frame.0) + 1);
            if let Some(parent) = &message {
                put_bytes(&mut part, 2, parent);
            }
            put_number(&mut part, 3, u64::from(data.line));
            put_number(&mut part, 4, u64::from(data.column));
            part.extend_from_slice(&texts);
            put_number(&mut part, 9, u64::from(data.is_system));
            put_number(&mut part, 10, u64::from(data.is_self_hosted));
            let mut whole = Vec::new();
            put_bytes(&mut whole, 1, &part);
            message = Some(whole);
        }
        message.unwrap_or_default()
    }

    /// Appends a field that is a text in UTF-16, or refers to one.
    fn put_wide(&mut self, out: &mut Vec<u8>, field: u64, name: Name) {
        let known = &mut self.wide[name.0 as usize];
        if *known != NOT_WRITTEN {
            return put_number(out, field + 1, u64::from(*known));
        }
        *known = self.wide_count;
        self.wide_count += 1;
        let text: Vec<u8> = self.graph.text(name).encode_utf16().flat_map(u16::to_le_bytes).collect();
        put_bytes(out, field, &text);
    }

    /// Appends the name of an edge that has an index instead.
    fn put_index(&mut self, out: &mut Vec<u8>, index: u32) {
        if let Some(&known) = self.indices.get(&index) {
            return put_number(out, 3, u64::from(known));
        }
        self.indices.insert(index, self.wide_count);
        self.wide_count += 1;
        let text: Vec<u8> = index.to_string().bytes().flat_map(|digit| [digit, 0]).collect();
        put_bytes(out, 2, &text);
    }

    /// Appends a field that is a text of single bytes, or refers to one.
    fn put_narrow(&mut self, out: &mut Vec<u8>, field: u64, name: Name) {
        let known = &mut self.narrow[name.0 as usize];
        if *known != NOT_WRITTEN {
            return put_number(out, field + 1, u64::from(*known));
        }
        *known = self.narrow_count;
        self.narrow_count += 1;
        put_bytes(out, field, self.graph.text(name).as_bytes());
    }
}
