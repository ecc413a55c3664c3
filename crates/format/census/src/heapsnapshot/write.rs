//! The writer.

use std::io::{self, Write};

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use super::meaning::is_dom_node;
use super::meta::NODE_TYPES_MAX;
use crate::graph::{
    AllocationStack, CoarseType, Detachedness, Edge, EdgeKind, EdgeName, FrameIndex, Graph, Name, NodeIndex, Origin,
};

/// Writes a graph as a file that Chromium's DevTools and [`read`](super::read) read, and returns
/// the stream.
///
/// A graph that came from V8 is written as it was. In other graphs:
///
/// - The type of a node follows from its coarse type.
/// - Its name is its class, descriptive name, script file or type name, in this order. The name of
///   an element becomes a tag.
/// - An edge becomes a property if it has a name.
/// - The counts and sizes in the tree of calls are of live nodes.
///
/// There may be 256 types of nodes: further ones become `hidden`. See also
/// [`WrittenFormat::lost`](crate::convert::WrittenFormat::lost).
///
/// The memory is some 40 bytes per frame. For a graph that is not from V8, names of DOM nodes that
/// are written in another way are kept, too: some 60 bytes each, and their texts.
///
/// # Errors
///
/// Fails if the stream fails.
pub fn write<W: Write>(graph: &Graph, out: W) -> io::Result<W> {
    let mut out = Out { out, buffer: Vec::with_capacity(FLUSH_BYTES * 2) };
    let types = Types::new(graph);
    let tags = Tags::new(graph);
    header(graph, &types, &mut out)?;
    nodes(graph, &types, &tags, &mut out)?;
    edges(graph, &mut out)?;
    stacks(graph, &mut out)?;
    timeline_and_locations(graph, &mut out)?;
    strings(graph, &tags, &mut out)?;
    out.flush()?;
    Ok(out.out)
}

const FLUSH_BYTES: usize = 64 << 10;
const NODE_FIELDS: usize = 7;

/// The position of `hidden` in [`NODE_TYPES`].
const HIDDEN: usize = 0;

/// The types of all versions; the position is the number.
const NODE_TYPES: [&str; 16] = [
    "hidden",
    "array",
    "string",
    "object",
    "code",
    "closure",
    "regexp",
    "number",
    "native",
    "synthetic",
    "concatenated string",
    "sliced string",
    "symbol",
    "bigint",
    "object shape",
    "wasm object",
];

/// Returns the number of nodes whose types [`write`] cannot number, in a graph of V8.
pub(crate) fn types_lost(graph: &Graph) -> u64 {
    let types = Types::new(graph);
    let hidden = NODE_TYPES[HIDDEN];
    let is_lost = |node| types.number(graph, node) == HIDDEN as u64 && graph.text(graph.type_name(node)) != hidden;
    graph.nodes().filter(|&node| is_lost(node)).count() as u64
}

/// Text in a buffer.
struct Out<W> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> Out<W> {
    fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, mut value: u64) {
        let mut digits = [0; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.buffer.extend_from_slice(&digits[start..]);
    }

    /// Appends a row of numbers, after a comma if it is not the first.
    fn row<const N: usize>(&mut self, is_first: bool, numbers: [u64; N]) -> io::Result<()> {
        for (at, number) in numbers.into_iter().enumerate() {
            if at > 0 || !is_first {
                self.buffer.push(b',');
            }
            self.number(number);
        }
        self.buffer.push(b'\n');
        if self.buffer.len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn json_text(&mut self, text: &str) {
        self.buffer.push(b'"');
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => self.buffer.extend_from_slice(&[b'\\', byte]),
                b'\n' => self.text("\\n"),
                0..0x20 => {
                    const DIGITS: &[u8; 16] = b"0123456789abcdef";
                    self.text("\\u00");
                    self.buffer.push(DIGITS[usize::from(byte >> 4)]);
                    self.buffer.push(DIGITS[usize::from(byte & 15)]);
                }
                _ => self.buffer.push(byte),
            }
        }
        self.buffer.push(b'"');
    }
}

/// The types of a graph's nodes.
struct Types {
    /// The numbers of type names, in a graph of V8.
    numbers: HashMap<Name, u64, RandomState>,
    /// The names of types that are not in [`NODE_TYPES`]; their numbers come after. There are at
    /// most [`NODE_TYPES_MAX`] with those.
    others: Vec<Name>,
}

impl Types {
    fn new(graph: &Graph) -> Types {
        let mut types = Types { numbers: HashMap::default(), others: Vec::new() };
        if graph.about().origin == Origin::V8 {
            for name in graph.nodes().map(|it| graph.type_name(it)) {
                let known = NODE_TYPES.iter().position(|&it| it == graph.text(name));
                types.numbers.entry(name).or_insert_with(|| {
                    let new = NODE_TYPES.len() + types.others.len();
                    let at = known.unwrap_or(if new < NODE_TYPES_MAX { new } else { HIDDEN });
                    if at == new {
                        types.others.push(name);
                    }
                    at as u64
                });
            }
        }
        types
    }

    fn number(&self, graph: &Graph, node: NodeIndex) -> u64 {
        if let Some(&number) = self.numbers.get(&graph.type_name(node)) {
            return number;
        }
        let name = match (graph.coarse_type(node), graph.class(node).map(|it| graph.text(it))) {
            (CoarseType::Object, Some("Function")) => "closure",
            (CoarseType::Object, Some("RegExp")) => "regexp",
            (CoarseType::Object, _) => "object",
            (CoarseType::Script, _) => "code",
            (CoarseType::String, _) => "string",
            (CoarseType::DomNode, _) => "native",
            (CoarseType::Other, _) if node == graph.root() => "synthetic",
            (CoarseType::Other, _) => "hidden",
        };
        NODE_TYPES.iter().position(|&it| it == name).unwrap_or(HIDDEN) as u64
    }
}

fn header<W: Write>(graph: &Graph, types: &Types, out: &mut Out<W>) -> io::Result<()> {
    out.text(
        "{\"snapshot\":{\"meta\":{\"node_fields\":[\"type\",\"name\",\"id\",\"self_size\",\"edge_count\",\
         \"trace_node_id\",\"detachedness\"],\"node_types\":[[",
    );
    for (at, name) in NODE_TYPES.into_iter().chain(types.others.iter().map(|&it| graph.text(it))).enumerate() {
        out.text(if at > 0 { "," } else { "" });
        out.json_text(name);
    }
    out.text(
        "],\"string\",\"number\",\"number\",\"number\",\"number\",\"number\"],\
         \"edge_fields\":[\"type\",\"name_or_index\",\"to_node\"],\
         \"edge_types\":[[\"context\",\"element\",\"property\",\"internal\",\"hidden\",\"shortcut\",\"weak\"],\
         \"string_or_number\",\"node\"],\
         \"trace_function_info_fields\":[\"function_id\",\"name\",\"script_name\",\"script_id\",\"line\",\"column\"],\
         \"trace_node_fields\":[\"id\",\"function_info_index\",\"count\",\"size\",\"children\"],\
         \"sample_fields\":[\"timestamp_us\",\"last_assigned_id\"],\
         \"location_fields\":[\"object_index\",\"script_id\",\"line\",\"column\"]},\"node_count\":",
    );
    out.number(graph.node_count() as u64);
    out.text(",\"edge_count\":");
    out.number(graph.edge_count() as u64);
    out.text(",\"trace_function_count\":");
    out.number(function_count(graph));
    if graph.root().0 != 0 {
        out.text(",\"root_index\":");
        out.number(offset(graph.root()));
    }
    out.text("},\n");
    out.flush()
}

/// The position of a node's first number.
fn offset(node: NodeIndex) -> u64 {
    (node.index() * NODE_FIELDS) as u64
}

fn nodes<W: Write>(graph: &Graph, types: &Types, tags: &Tags, out: &mut Out<W>) -> io::Result<()> {
    out.text("\"nodes\":[");
    for node in graph.nodes() {
        let is_script = graph.coarse_type(node) == CoarseType::Script;
        let file = graph.script_file(node).filter(|_| is_script);
        let name = graph.label(node).or(graph.class(node)).or(graph.descriptive_name(node)).or(file);
        let name = name.unwrap_or(graph.type_name(node));
        let name = if graph.coarse_type(node) == CoarseType::DomNode { tags.string(name) } else { name.0 };
        let trace = match graph.stack(node) {
            None => 0,
            Some(AllocationStack::Empty) => ROOT_TRACE,
            Some(AllocationStack::At(frame)) => trace_id(frame),
        };
        let detachedness = Detachedness::ALL.iter().position(|&it| it == graph.detachedness(node));
        let row = [
            types.number(graph, node),
            u64::from(name),
            graph.id(node).0,
            graph.size(node),
            graph.edge_range(node).len() as u64,
            trace,
            detachedness.unwrap_or(0) as u64,
        ];
        out.row(node.0 == 0, row)?;
    }
    out.text("],\n");
    Ok(())
}

fn edges<W: Write>(graph: &Graph, out: &mut Out<W>) -> io::Result<()> {
    out.text("\"edges\":[");
    let mut is_first = true;
    for node in graph.nodes() {
        for (at, Edge { target, name, kind, .. }) in graph.edges(node).enumerate() {
            // The types in the order of the header. Elements and hidden fields have an index.
            let (number, has_index) = match (kind, name) {
                (EdgeKind::Context, _) => (0, false),
                (EdgeKind::Element, _) => (1, true),
                (EdgeKind::Property, _) => (2, false),
                (EdgeKind::Internal | EdgeKind::WeakMapTable, _) => (3, false),
                (EdgeKind::Hidden, _) => (4, true),
                (EdgeKind::Shortcut, _) => (5, false),
                (EdgeKind::Weak, _) => (6, false),
                (EdgeKind::Plain, Some(EdgeName::Name(_))) => (2, false),
                (EdgeKind::Plain, Some(EdgeName::Index(_))) => (1, true),
                (EdgeKind::Plain, None) => (4, true),
            };
            let (number, value) = match (name, has_index) {
                (Some(EdgeName::Index(index)), true) => (number, index),
                (Some(EdgeName::Name(name)), false) => (number, name.0),
                // Without a name, or with one of the other sort: the type that takes what there is.
                (Some(EdgeName::Name(name)), true) => (3, name.0),
                (Some(EdgeName::Index(index)), false) if kind.retains(false) => (1, index),
                (None, true) => (number, at as u32),
                (Some(EdgeName::Index(_)) | None, false) => (number, empty_name(graph)),
            };
            out.row(is_first, [number, u64::from(value), offset(target)])?;
            is_first = false;
        }
    }
    out.text("],\n");
    Ok(())
}

/// The id of the outermost call in the tree, which is no frame.
const ROOT_TRACE: u64 = 1;

fn trace_id(frame: FrameIndex) -> u64 {
    u64::from(frame.0) + ROOT_TRACE + 1
}

/// One function per frame, one for the root, and one for each script that is in no frame.
fn function_count(graph: &Graph) -> u64 {
    if !has_stacks(graph) {
        return 0;
    }
    let mut scripts = Scripts::new(graph);
    let frames = graph.frames();
    for source in (0..frames.count() as u32).filter_map(|it| frames.get(FrameIndex(it)).source) {
        scripts.id(source);
    }
    (frames.count() + scripts.unused().len()) as u64 + 1
}

fn has_stacks(graph: &Graph) -> bool {
    let has_frames = graph.frames().count() > 0 || !graph.scripts().is_empty();
    has_frames || graph.nodes().any(|it| graph.stack(it).is_some())
}

/// The numbers of scripts: those that locations have, and new ones.
struct Scripts<'a> {
    graph: &'a Graph,
    /// The numbers of the files that were asked for.
    ids: HashMap<Name, u32, RandomState>,
    /// The position of the first script of each file.
    known: HashMap<Name, usize, RandomState>,
    /// True for scripts whose number was asked for.
    is_used: Vec<bool>,
    /// The numbers that the graph has.
    taken: HashSet<u32, RandomState>,
    next: u32,
}

impl Scripts<'_> {
    fn new(graph: &Graph) -> Scripts<'_> {
        let scripts = graph.scripts();
        let mut known = HashMap::default();
        for (at, &(_, file)) in scripts.iter().enumerate() {
            known.entry(file).or_insert(at);
        }
        let in_locations = graph.nodes().filter_map(|it| graph.location(it)).map(|it| it.script_id);
        // Number 0 is that of functions without a script.
        let taken = in_locations.chain(scripts.iter().map(|it| it.0)).chain([0]).collect();
        let is_used = vec![false; scripts.len()];
        Scripts { graph, ids: HashMap::default(), known, is_used, taken, next: 0 }
    }

    /// Returns the number of the script in a file, which may be new.
    fn id(&mut self, file: Name) -> u64 {
        if let Some(&id) = self.ids.get(&file) {
            return id.into();
        }
        let id = match self.known.get(&file) {
            Some(&at) => {
                self.is_used[at] = true;
                self.graph.scripts()[at].0
            }
            None => {
                while self.taken.contains(&self.next) {
                    self.next += 1;
                }
                self.taken.insert(self.next);
                self.next
            }
        };
        self.ids.insert(file, id);
        id.into()
    }

    /// Returns the scripts whose number was not asked for.
    fn unused(&self) -> Vec<(u32, Name)> {
        let all = self.graph.scripts().iter().zip(&self.is_used);
        all.filter(|it| !it.1).map(|it| *it.0).collect()
    }
}

/// The names of elements as V8 writes them: Firefox has `UL` for what is `<ul>` there.
struct Tags {
    /// The strings that take the places of names.
    strings: HashMap<Name, u32, RandomState>,
    /// Their texts, which come after the names and two others.
    texts: Vec<String>,
}

impl Tags {
    /// Makes tags of the DOM nodes' names that V8 would not take for such names.
    fn new(graph: &Graph) -> Tags {
        let mut tags = Tags { strings: HashMap::default(), texts: Vec::new() };
        if graph.about().origin == Origin::V8 {
            return tags;
        }
        for node in graph.nodes().filter(|&node| graph.coarse_type(node) == CoarseType::DomNode) {
            let Some(name) = graph.descriptive_name(node) else { continue };
            if !is_dom_node(graph.text(name)) && !tags.strings.contains_key(&name) {
                tags.strings.insert(name, root_name(graph) as u32 + 1 + tags.texts.len() as u32);
                tags.texts.push(format!("<{}>", graph.text(name).to_lowercase()));
            }
        }
        tags
    }

    /// Returns the string of a DOM node's name.
    fn string(&self, name: Name) -> u32 {
        self.strings.get(&name).copied().unwrap_or(name.0)
    }
}

/// The strings after the names: one without characters, and the name of the outermost call.
fn empty_name(graph: &Graph) -> u32 {
    graph.names().count() as u32
}

fn root_name(graph: &Graph) -> u64 {
    graph.names().count() as u64 + 1
}

/// Writes the functions and the tree of calls, with the allocations of each; if they are not known,
/// with its live nodes.
fn stacks<W: Write>(graph: &Graph, out: &mut Out<W>) -> io::Result<()> {
    let empty = u64::from(empty_name(graph));
    if !has_stacks(graph) {
        out.text("\"trace_function_infos\":[],\n\"trace_tree\":[],\n");
        return Ok(());
    }
    let frames = graph.frames();
    out.text("\"trace_function_infos\":[");
    out.row(true, [0, root_name(graph), empty, 0, 0, 0])?;
    let mut scripts = Scripts::new(graph);
    for at in 0..frames.count() as u32 {
        let frame = frames.get(FrameIndex(at));
        let name = |name: Option<Name>| name.map_or(empty, |it| u64::from(it.0));
        let script = frame.source.map_or(0, |it| scripts.id(it));
        let (line, column) = (u64::from(frame.line), u64::from(frame.column));
        out.row(false, [u64::from(at) + 1, name(frame.function), name(frame.source), script, line, column])?;
    }
    for (at, (script, file)) in scripts.unused().into_iter().enumerate() {
        out.row(false, [(frames.count() + at) as u64 + 1, empty, u64::from(file.0), script.into(), 0, 0])?;
    }
    out.text("],\n\"trace_tree\":[");
    let tree = Tree::new(graph);
    out.row(true, [ROOT_TRACE, 0, tree.amounts[0].0, tree.amounts[0].1])?;
    // The rest of each open array of children: the next child in it, and whether it is the first.
    let mut open = vec![(tree.first_children[0], true)];
    out.text(",[");
    while let Some((next, is_first)) = open.last_mut() {
        if *next == NO_FRAME {
            out.text("]");
            open.pop();
            continue;
        }
        let (frame, was_first) = (FrameIndex(*next), *is_first);
        let at = frame.0 as usize;
        (*next, *is_first) = (tree.next_siblings[at], false);
        let (count, size) = tree.amounts[at + 1];
        out.row(was_first, [trace_id(frame), u64::from(frame.0) + 1, count, size])?;
        out.text(",[");
        open.push((tree.first_children[at + 1], true));
    }
    out.text("],\n");
    Ok(())
}

const NO_FRAME: u32 = u32::MAX;

/// The frames by their callers. The first place of each list is the root's.
struct Tree {
    first_children: Vec<u32>,
    /// By frame, without the root.
    next_siblings: Vec<u32>,
    /// The number and the bytes of allocations, or of live nodes.
    amounts: Vec<(u64, u64)>,
}

impl Tree {
    fn new(graph: &Graph) -> Tree {
        let count = graph.frames().count();
        let mut tree = Tree {
            first_children: vec![NO_FRAME; count + 1],
            next_siblings: vec![NO_FRAME; count],
            amounts: vec![(0, 0); count + 1],
        };
        // Backwards, so that children are in the order of the frames.
        for at in (0..count as u32).rev() {
            let parent = graph.frame(FrameIndex(at)).parent.map_or(0, |it| it.0 as usize + 1);
            tree.next_siblings[at as usize] = tree.first_children[parent];
            tree.first_children[parent] = at;
        }
        let frames = graph.frames();
        if frames.allocated(AllocationStack::Empty).is_some() {
            let allocated = frames.stacks().filter_map(|stack| frames.allocated(stack));
            tree.amounts = allocated.map(|it| (it.count, it.bytes)).collect();
            return tree;
        }
        for node in graph.nodes() {
            let at = match graph.stack(node) {
                None => continue,
                Some(AllocationStack::Empty) => 0,
                Some(AllocationStack::At(frame)) => frame.0 as usize + 1,
            };
            tree.amounts[at].0 += 1;
            tree.amounts[at].1 += graph.size(node);
        }
        tree
    }
}

fn timeline_and_locations<W: Write>(graph: &Graph, out: &mut Out<W>) -> io::Result<()> {
    out.text("\"samples\":[");
    for (at, moment) in graph.about().moments.iter().enumerate() {
        out.row(at == 0, [moment.time_us, moment.last_id])?;
    }
    out.text("],\n\"locations\":[");
    let mut is_first = true;
    for node in graph.nodes() {
        if let Some(it) = graph.location(node) {
            out.row(is_first, [offset(node), it.script_id.into(), it.line.into(), it.column.into()])?;
            is_first = false;
        }
    }
    out.text("],\n");
    Ok(())
}

fn strings<W: Write>(graph: &Graph, tags: &Tags, out: &mut Out<W>) -> io::Result<()> {
    out.text("\"strings\":[");
    let tags = tags.texts.iter().map(String::as_str);
    for (at, text) in graph.names().iter().map(|it| it.1).chain(["", "(root)"]).chain(tags).enumerate() {
        out.text(if at > 0 { ",\n" } else { "" });
        out.json_text(text);
        if out.buffer.len() >= FLUSH_BYTES {
            out.flush()?;
        }
    }
    out.text("]}\n");
    Ok(())
}
