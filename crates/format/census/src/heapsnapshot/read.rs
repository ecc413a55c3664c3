//! The reader.

use std::io::Read;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::json::Json;
use super::meaning::{Class, DETACHED, is_dom_node, of_type, weak_map_table};
use super::meta::{Header, Layout};
use super::raw::{RawEdges, RawNodes, narrow, position, rows};
use super::script_files::script_files;
use super::traces::{self, Function, Stacks, Trace};
use crate::graph::{
    CoarseType, Detachedness, EdgeColumns, EdgeKind, Graph, GraphBuilder, Location, Moment, Name, NodeData, NodeId,
    NodeIndex, Origin, Source, edge_tag,
};
use crate::input::Input;
use crate::read_error::ReadError;

/// Reads a file, in one pass. Its arrays are kept until the strings are known, at the end: the
/// memory is 34 bytes per node besides the graph.
///
/// Surrogates that stand alone, and what is not UTF-8, become U+FFFD. What the nodes and edges say
/// about their own number is not used. Members that are not known are skipped. Of stacks, the
/// outermost 1,024 frames are read.
///
/// # Errors
///
/// Fails if the stream fails, or if the file is damaged: JSON that is not well-formed, fields that
/// every version has are missing, a number leads to something that does not exist, two nodes have
/// the same id.
pub fn read(mut input: impl Read) -> Result<Graph, ReadError> {
    let mut snapshot = Snapshot { json: Json { input: Input::new(&mut input) } };
    let mut builder = GraphBuilder::new();
    builder.about.origin = Origin::V8;
    snapshot.fill(&mut builder)?;
    builder.finish().map_err(|error| snapshot.json.input.error(error))
}

/// The file.
struct Snapshot<'a> {
    json: Json<'a>,
}

/// Everything that was read.
#[derive(Default)]
struct Parts {
    nodes: Option<RawNodes>,
    edges: Option<RawEdges>,
    functions: Vec<Function>,
    traces: Vec<Trace>,
    locations: HashMap<NodeIndex, Location, RandomState>,
    /// The names of the strings.
    names: Option<Vec<Name>>,
    /// True for strings that are names of edges to values of a `WeakMap`.
    names_weak_map: Vec<bool>,
    /// The tables in these names, by string.
    weak_map_tables: HashMap<u32, u64, RandomState>,
    root: u32,
}

impl Source for Snapshot<'_> {
    type Error = ReadError;

    fn fill(&mut self, builder: &mut GraphBuilder) -> Result<(), ReadError> {
        let mut layout = None;
        let mut parts = Parts::default();
        let mut key = Vec::new();
        self.json.expect(b'{')?;
        let mut is_first = true;
        while self.json.has_next(is_first, b'}')? {
            is_first = false;
            self.json.text(&mut key)?;
            self.json.expect(b':')?;
            match (key.as_slice(), &layout) {
                (b"snapshot", None) => layout = Some(self.header()?),
                (b"snapshot", Some(_)) => return Err(self.json.input.error("`snapshot` is there twice")),
                (b"strings", _) => self.strings(builder, &mut parts)?,
                (b"nodes" | b"edges" | b"trace_function_infos" | b"trace_tree" | b"samples" | b"locations", None) => {
                    return Err(self.json.input.error("`snapshot` must come first"));
                }
                (_, Some((layout, root_index))) => self.member(&key, layout, *root_index, builder, &mut parts)?,
                _ => self.json.value(None)?,
            }
        }
        self.json.end()?;
        let Some((layout, _)) = layout else { return Err(self.json.input.error("there is no `snapshot`")) };
        add(&layout, &mut parts, builder).map_err(|reason| self.json.input.error(reason))
    }
}

impl Snapshot<'_> {
    /// Takes the member `snapshot`. Returns the layout and the position of the root.
    fn header(&mut self) -> Result<(Layout, u64), ReadError> {
        let mut text = Vec::new();
        self.json.peek()?;
        let offset = self.json.input.offset();
        self.json.value(Some(&mut text))?;
        let at = |reason: String| ReadError::Malformed { offset, reason };
        let header: Header = serde_json::from_slice(&text).map_err(|error| at(format!("`snapshot`: {error}")))?;
        let root_index = header.root_index;
        Ok((header.layout().map_err(at)?, root_index))
    }

    /// Takes a member that has rows.
    fn member(
        &mut self,
        key: &[u8],
        layout: &Layout,
        root_index: u64,
        builder: &mut GraphBuilder,
        parts: &mut Parts,
    ) -> Result<(), ReadError> {
        let json = &mut self.json;
        let node_length = layout.node.length as u64;
        match (key, &parts.nodes) {
            (b"nodes", None) => {
                let nodes = RawNodes::read(json, &layout.node, layout.node_types.len())?;
                let root = position(root_index, node_length, nodes.count());
                parts.root = root.map_err(|reason| json.input.error(format_args!("the root: {reason}")))?;
                parts.nodes = Some(nodes);
            }
            (b"edges", Some(nodes)) if parts.edges.is_none() => {
                let types = layout.edge_types.len();
                parts.edges = Some(RawEdges::read(json, &layout.edge, types, nodes, layout.node.length)?);
            }
            (b"nodes" | b"edges", Some(_)) => return Err(json.input.error("`nodes` or `edges` are there twice")),
            (b"edges" | b"locations", None) => return Err(json.input.error("`nodes` must come before")),
            (b"trace_function_infos", _) => parts.functions = traces::functions(json, &layout.function)?,
            (b"trace_tree", _) => parts.traces = traces::tree(json, &layout.trace)?,
            (b"samples", _) => rows(json, &layout.sample, |[time_us, last_id]| {
                builder.about.moments.push(Moment { time_us, last_id });
                Ok(())
            })?,
            (b"locations", Some(nodes)) => rows(json, &layout.location, |[offset, script_id, line, column]| {
                let location = Location {
                    script_id: narrow(script_id, "script_id")?,
                    line: narrow(line, "line")?,
                    column: narrow(column, "column")?,
                };
                let node = NodeIndex(position(offset, node_length, nodes.count())?);
                parts.locations.entry(node).or_insert(location);
                Ok(())
            })?,
            _ => json.value(None)?,
        }
        Ok(())
    }

    /// Takes the strings.
    fn strings(&mut self, builder: &mut GraphBuilder, parts: &mut Parts) -> Result<(), ReadError> {
        if parts.names.is_some() {
            return Err(self.json.input.error("`strings` is there twice"));
        }
        let mut names = Vec::new();
        let mut bytes = Vec::new();
        self.json.expect(b'[')?;
        while self.json.has_next(names.is_empty(), b']')? {
            self.json.text(&mut bytes)?;
            let text = std::str::from_utf8(&bytes).map_err(|error| self.json.input.error(error))?;
            let at = narrow(names.len() as u64, "strings").map_err(|reason| self.json.input.error(reason))?;
            let table = weak_map_table(text);
            parts.names_weak_map.push(table.is_some());
            if let Some(table) = table {
                parts.weak_map_tables.insert(at, table);
            }
            names.push(builder.intern(text).map_err(|error| self.json.input.error(error))?);
        }
        parts.names = Some(names);
        Ok(())
    }
}

/// Adds everything to a graph.
fn add(layout: &Layout, parts: &mut Parts, builder: &mut GraphBuilder) -> Result<(), String> {
    let nodes = parts.nodes.as_ref().ok_or("there are no `nodes`")?;
    let edges = parts.edges.as_ref().ok_or("there are no `edges`")?;
    let names = parts.names.as_deref().ok_or("there are no `strings`")?;
    let failed = |error: crate::graph::BuildError| error.to_string();
    let stacks = Stacks::add(&parts.functions, &parts.traces, names, builder)?;
    let mut meanings = Vec::new();
    for type_name in &layout.node_types {
        let (coarse_type, class) = of_type(type_name);
        let class = match class {
            Class::Fixed(name) => FixedClass::Name(builder.intern(name).map_err(failed)?),
            Class::Name => FixedClass::Label,
            Class::None => FixedClass::None,
        };
        meanings.push(Meaning {
            type_name: builder.intern(type_name).map_err(failed)?,
            coarse_type,
            class,
            is_native: type_name == "native",
            is_closure: type_name == "closure",
        });
    }
    builder.reserve(nodes.count(), 0);
    let files = script_files(layout, nodes, edges, names, builder.names());
    for node in 0..nodes.count() {
        let meaning = &meanings[usize::from(nodes.types[node])];
        let label = *names.get(nodes.names[node] as usize).ok_or_else(|| no_string(nodes.names[node]))?;
        // The location of an object is that of its constructor.
        let file = files[node].or_else(|| {
            let location = meaning.is_closure.then(|| parts.locations.get(&NodeIndex(node as u32)))??;
            stacks.script(location.script_id)
        });
        let size = Some(nodes.sizes[node]);
        let mut data = NodeData {
            coarse_type: meaning.coarse_type,
            class: meaning.class.of(label),
            label: Some(label),
            script_file: file,
            stack: stacks.stack(nodes.traces[node])?,
            detachedness: Detachedness::ALL[usize::from(nodes.detachedness[node])],
            ..NodeData::new(NodeId(nodes.ids[node]), meaning.type_name, size)
        };
        if meaning.is_native {
            native(&mut data, label, builder)?;
        }
        builder.add_node(data).map_err(failed)?;
    }
    add_edges(layout, parts, builder)?;
    for (&node, &location) in &parts.locations {
        builder.set_location(node, location).map_err(failed)?;
    }
    builder.set_root(NodeIndex(parts.root)).map_err(failed)
}

/// Makes the file's array of edges that of the graph, in place: there are many.
fn add_edges(layout: &Layout, parts: &mut Parts, builder: &mut GraphBuilder) -> Result<(), String> {
    let (Some(nodes), Some(edges), Some(strings)) = (&mut parts.nodes, parts.edges.take(), &parts.names) else {
        return Err("there are no `nodes`, `edges` or `strings`".to_owned());
    };
    let RawEdges { types: mut tags, mut names, targets } = edges;
    let kinds: Vec<u8> = layout.edge_types.iter().map(|&(kind, is_index)| edge_tag(kind, is_index)).collect();
    for node in 0..nodes.count() {
        for edge in nodes.edges(node) {
            let (kind, is_index) = layout.edge_types[usize::from(tags[edge])];
            tags[edge] = kinds[usize::from(tags[edge])];
            if is_index {
                continue;
            }
            let at = names[edge];
            names[edge] = strings.get(at as usize).ok_or_else(|| no_string(at))?.0;
            if kind == EdgeKind::Internal
                && parts.names_weak_map[at as usize]
                && parts.weak_map_tables.get(&at) == Some(&nodes.ids[node])
            {
                tags[edge] = edge_tag(EdgeKind::WeakMapTable, false);
            }
        }
    }
    let starts = std::mem::take(&mut nodes.edge_starts);
    builder.set_edges(EdgeColumns { starts, targets, names, tags }).map_err(|error| error.to_string())
}

fn no_string(at: u32) -> String {
    format!("a name is string {at}, which does not exist")
}

/// The class of the nodes of a type.
#[derive(Clone, Copy)]
enum FixedClass {
    None,
    Label,
    Name(Name),
}

impl FixedClass {
    fn of(self, label: Name) -> Option<Name> {
        match self {
            FixedClass::None => None,
            FixedClass::Label => Some(label),
            FixedClass::Name(name) => Some(name),
        }
    }
}

/// The meaning of a type of nodes.
struct Meaning {
    type_name: Name,
    coarse_type: CoarseType,
    class: FixedClass,
    is_native: bool,
    is_closure: bool,
}

/// Completes a node that belongs to the program around V8, which may be a node of the DOM.
fn native(data: &mut NodeData, label: Name, builder: &mut GraphBuilder) -> Result<(), String> {
    let text = builder.names().text(label);
    let plain = text.strip_prefix(DETACHED);
    // Node.js has detached objects that are no nodes of the DOM: the name decides.
    if !is_dom_node(plain.unwrap_or(text)) {
        return Ok(());
    }
    data.coarse_type = CoarseType::DomNode;
    data.descriptive_name = Some(label);
    if let Some(plain) = plain.map(str::to_owned) {
        data.descriptive_name = Some(builder.intern(&plain).map_err(|error| error.to_string())?);
        data.detachedness = Detachedness::Detached;
    }
    Ok(())
}
