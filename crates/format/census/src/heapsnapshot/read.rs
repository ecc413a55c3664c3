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
    ABSENT, CoarseType, Column, Detachedness, EdgeColumns, EdgeKind, Graph, GraphBuilder, Location, Moment, Name,
    NodeColumns, NodeIndex, Origin, Source, edge_tag, node_flags, stack_value,
};
use crate::input::Input;
use crate::read_error::ReadError;

/// Reads a file, in one pass. Its arrays are kept until the strings are known, at the end: the
/// memory is some 10 bytes per node besides the graph.
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
    /// In the order of the file, until everything was read.
    locations: Vec<(NodeIndex, Location)>,
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
                parts.locations.push((node, location));
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
    let mut nodes = parts.nodes.take().ok_or("there are no `nodes`")?;
    let edges = parts.edges.take().ok_or("there are no `edges`")?;
    // The first of several locations of a node is kept.
    parts.locations.sort_by_key(|it| it.0);
    parts.locations.dedup_by_key(|it| it.0);
    let names = parts.names.as_deref().ok_or("there are no `strings`")?;
    let failed = |error: crate::graph::BuildError| error.to_string();
    let stacks = Stacks::add(&parts.functions, &parts.traces, names, builder)?;
    let files = script_files(layout, &nodes, &edges, names, builder.names());
    let edges = edge_columns(layout, parts, &mut nodes, edges, names)?;
    let columns = node_columns(layout, parts, nodes, names, files, &stacks, builder)?;
    builder.set_nodes(columns).map_err(failed)?;
    builder.set_edges(edges).map_err(failed)?;
    for &(node, location) in &parts.locations {
        builder.set_location(node, location).map_err(failed)?;
    }
    builder.set_root(NodeIndex(parts.root)).map_err(failed)
}

/// Makes the file's arrays of nodes those of the graph, most of them in place: there are many.
fn node_columns(
    layout: &Layout,
    parts: &Parts,
    nodes: RawNodes,
    names: &[Name],
    mut script_files: Column,
    stacks: &Stacks,
    builder: &mut GraphBuilder,
) -> Result<NodeColumns, String> {
    let meanings = meanings(layout, builder)?;
    let RawNodes { types, names: mut labels, ids, sizes, traces, detachedness: mut flags, .. } = nodes;
    let mut type_names = Vec::with_capacity(types.len());
    let mut classes = Vec::with_capacity(types.len());
    let mut descriptive_names = Column::new();
    let mut locations = parts.locations.iter().peekable();
    for (node, (&kind, label)) in types.iter().zip(&mut labels).enumerate() {
        let meaning = &meanings[usize::from(kind)];
        let name = *names.get(*label as usize).ok_or_else(|| no_string(*label))?;
        *label = name.0;
        type_names.push(meaning.type_name.0);
        classes.push(meaning.class.of(name).map_or(ABSENT, |it| it.0));
        // The location of an object is that of its constructor.
        if let Some((_, location)) = locations.next_if(|it| it.0.index() == node)
            && meaning.is_closure
            && script_files[node] == ABSENT
            && let Some(file) = stacks.script(location.script_id)
        {
            script_files[node] = file.0;
        }
        let detachedness = Detachedness::ALL[usize::from(flags[node])];
        let dom = if meaning.is_native { dom_node(name, detachedness, builder)? } else { None };
        flags[node] = match dom {
            Some((descriptive_name, detachedness)) => {
                descriptive_names.resize(node, ABSENT);
                descriptive_names.push(descriptive_name.0);
                node_flags(CoarseType::DomNode, true, detachedness)
            }
            None => node_flags(meaning.coarse_type, true, detachedness),
        };
    }
    if script_files.iter().all(|&file| file == ABSENT) {
        script_files = Column::new();
    }
    let stacks = stack_column(traces, stacks)?;
    Ok(NodeColumns { ids, sizes, type_names, flags, classes, labels, descriptive_names, script_files, stacks })
}

/// Makes the stacks of the nodes' ids of stacks, in place.
fn stack_column(mut traces: Vec<u32>, stacks: &Stacks) -> Result<Column, String> {
    if traces.iter().all(|&trace| trace == 0) {
        return Ok(Column::new());
    }
    for trace in &mut traces {
        *trace = stacks.stack(*trace)?.map_or(ABSENT, stack_value);
    }
    Ok(traces)
}

/// Makes the file's array of edges that of the graph, in place: there are many.
fn edge_columns(
    layout: &Layout,
    parts: &Parts,
    nodes: &mut RawNodes,
    edges: RawEdges,
    strings: &[Name],
) -> Result<EdgeColumns, String> {
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
    Ok(EdgeColumns { starts: std::mem::take(&mut nodes.edge_starts), targets, names, tags })
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

/// Returns the meanings of the types, by their numbers.
fn meanings(layout: &Layout, builder: &mut GraphBuilder) -> Result<Vec<Meaning>, String> {
    let failed = |error: crate::graph::BuildError| error.to_string();
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
    Ok(meanings)
}

/// Returns the name and the state of a node of the program around V8, if it is one of the DOM.
fn dom_node(
    label: Name,
    detachedness: Detachedness,
    builder: &mut GraphBuilder,
) -> Result<Option<(Name, Detachedness)>, String> {
    let text = builder.names().text(label);
    let plain = text.strip_prefix(DETACHED);
    // Node.js has detached objects that are no nodes of the DOM: the name decides.
    if !is_dom_node(plain.unwrap_or(text)) {
        return Ok(None);
    }
    let Some(plain) = plain.map(str::to_owned) else { return Ok(Some((label, detachedness))) };
    let name = builder.intern(&plain).map_err(|error| error.to_string())?;
    Ok(Some((name, Detachedness::Detached)))
}
