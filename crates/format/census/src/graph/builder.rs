//! The builder of a graph.

use std::fmt;

use super::frames::{Allocated, Frame, FrameIndex, Frames, STACK_FRAMES_MAX, place};
use super::ids::{IdTable, SameId};
use super::names::{Interner, Name, Names};
use super::{
    ABSENT, About, AllocationStack, CoarseType, Column, Detachedness, EdgeKind, EdgeName, Graph, ID_MAX, Location,
    NodeId, NodeIndex, node_flags, retention, stack_value, tags,
};

/// The properties of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeData {
    /// The id.
    pub id: NodeId,
    /// The engine's name for its type.
    pub type_name: Name,
    /// The size in bytes, if it is known.
    pub size: Option<u64>,
    /// The coarse type.
    pub coarse_type: CoarseType,
    /// The class, if it is an object.
    pub class: Option<Name>,
    /// V8's text for it.
    pub label: Option<Name>,
    /// The name of a DOM node.
    pub descriptive_name: Option<Name>,
    /// The script's file.
    pub script_file: Option<Name>,
    /// The stack that allocated it.
    pub stack: Option<AllocationStack>,
    /// The relation of a DOM node to its document.
    pub detachedness: Detachedness,
}

impl NodeData {
    /// Returns a node of coarse type `Other` that has no more than an id, a type and a size.
    pub fn new(id: NodeId, type_name: Name, size: Option<u64>) -> NodeData {
        NodeData {
            id,
            type_name,
            size,
            coarse_type: CoarseType::Other,
            class: None,
            label: None,
            descriptive_name: None,
            script_file: None,
            stack: None,
            detachedness: Detachedness::Unknown,
        }
    }
}

/// The properties of an edge besides its target.
#[derive(Clone, Copy, Debug, Default)]
pub struct EdgeData {
    /// The name, if it has one.
    pub name: Option<EdgeName>,
    /// The kind.
    pub kind: EdgeKind,
}

/// The edges of all nodes as the graph has them. Each edge has a name or an index.
#[derive(Debug)]
pub(crate) struct EdgeColumns {
    /// The position of each node's first edge, and the number of edges.
    pub(crate) starts: Vec<u64>,
    pub(crate) targets: Vec<NodeIndex>,
    pub(crate) names: Vec<u32>,
    /// Made by [`edge_tag`](super::edge_tag).
    pub(crate) tags: Vec<u8>,
}

/// The properties of all nodes as the graph has them. Columns of optional properties have
/// [`ABSENT`] for nodes that lack it, and may end before the last node.
#[derive(Debug, Default)]
pub(crate) struct NodeColumns {
    pub(crate) ids: Vec<u64>,
    /// Sizes in bytes, all of which are known.
    pub(crate) sizes: Vec<u64>,
    pub(crate) type_names: Vec<u32>,
    /// Made by [`node_flags`](super::node_flags).
    pub(crate) flags: Vec<u8>,
    pub(crate) classes: Column,
    pub(crate) labels: Column,
    pub(crate) descriptive_names: Column,
    pub(crate) script_files: Column,
    /// Made by [`stack_value`](super::stack_value).
    pub(crate) stacks: Column,
}

/// The reasons why a graph cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// There is no node, hence no root.
    Empty,
    /// An edge was added before the first node.
    EdgeWithoutNode,
    /// Two nodes have the same id.
    DuplicateId {
        /// The id.
        id: NodeId,
        /// The node that was added first.
        first: NodeIndex,
        /// The other.
        second: NodeIndex,
    },
    /// An id is not less than [`ID_MAX`].
    IdTooLarge {
        /// The id.
        id: u64,
    },
    /// An edge leads to an id that no node has.
    UnknownId {
        /// The node from which the edge comes.
        from: NodeId,
        /// The id to which it leads.
        id: u64,
    },
    /// An edge leads to a position that no node has.
    UnknownIndex {
        /// The node from which the edge comes.
        from: NodeId,
        /// The position to which it leads.
        index: u32,
    },
    /// A name was never interned by this builder.
    UnknownName,
    /// A frame was never added to this builder.
    UnknownFrame,
    /// The root, or the node of a location, was never added to this builder.
    UnknownNode,
    /// There are more of something than 32-bit numbers tell apart.
    TooMany {
        /// The name of the thing: nodes, names, frames.
        things: &'static str,
    },
    /// The sizes of all nodes add up to 2^64 bytes or more.
    TooManyBytes,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Empty => f.write_str("there is no node"),
            BuildError::EdgeWithoutNode => f.write_str("an edge comes before the first node"),
            BuildError::DuplicateId { id, .. } => write!(f, "two nodes have the id {}", id.0),
            BuildError::IdTooLarge { id } => write!(f, "the id {id} is not less than 2^53"),
            BuildError::UnknownId { from, id } => {
                write!(f, "an edge of node {} leads to node {id}, which is not in the snapshot", from.0)
            }
            BuildError::UnknownIndex { from, index } => {
                write!(f, "an edge of node {} leads to the node at index {index}, which does not exist", from.0)
            }
            BuildError::UnknownName => f.write_str("a name is not of this graph"),
            BuildError::UnknownNode => f.write_str("a node is not of this graph"),
            BuildError::UnknownFrame => f.write_str("a frame is not of this graph"),
            BuildError::TooMany { things } => write!(f, "there are too many {things}"),
            BuildError::TooManyBytes => f.write_str("the sizes of all nodes are more than 2^64 bytes"),
        }
    }
}

impl std::error::Error for BuildError {}

/// The targets of the edges so far.
#[derive(Debug)]
enum Targets {
    /// All edges were added by the positions of their targets.
    Indices(Vec<NodeIndex>),
    /// Ids, and with [`IS_INDEX`](Targets::IS_INDEX) set positions.
    Ids(Vec<u64>),
}

impl Targets {
    const IS_INDEX: u64 = 1 << 63;

    fn len(&self) -> usize {
        match self {
            Targets::Indices(it) => it.len(),
            Targets::Ids(it) => it.len(),
        }
    }

    fn push_index(&mut self, target: NodeIndex) {
        match self {
            Targets::Indices(it) => it.push(target),
            Targets::Ids(it) => it.push(Targets::IS_INDEX | u64::from(target.0)),
        }
    }

    #[inline]
    fn push_id(&mut self, target: u64) {
        match self {
            Targets::Ids(it) => it.push(target),
            Targets::Indices(indices) => {
                let mut ids: Vec<u64> = indices.iter().map(|it| Targets::IS_INDEX | u64::from(it.0)).collect();
                ids.push(target);
                *self = Targets::Ids(ids);
            }
        }
    }
}

/// A graph that is being built: nodes in any order, the root first, and after each node its edges.
///
/// Edges may lead to nodes that are added later. While edges are added by id, each takes 8 bytes
/// until the graph is finished instead of 4.
#[derive(Debug)]
pub struct GraphBuilder {
    /// Facts about the whole snapshot.
    pub about: About,
    root: NodeIndex,
    ids: Vec<u64>,
    sizes: Vec<u64>,
    size_total: u64,
    edge_starts: Vec<u64>,
    type_names: Vec<u32>,
    flags: Vec<u8>,
    classes: Column,
    labels: Column,
    descriptive_names: Column,
    script_files: Column,
    stacks: Column,
    targets: Targets,
    /// True if an edge was added by the position of its target.
    has_indices: bool,
    edge_names: Vec<u32>,
    edge_tags: Vec<u8>,
    names: Interner,
    frames: Vec<Frame>,
    /// The allocations of the empty stack, and then of each frame's, as far as they are known.
    allocated: Vec<Allocated>,
    /// The number of frames in the stack that each frame is the innermost of.
    frame_depths: Vec<u16>,
    locations: Vec<(NodeIndex, Location)>,
    scripts: Vec<(u32, Name)>,
}

impl Default for GraphBuilder {
    fn default() -> GraphBuilder {
        GraphBuilder::new()
    }
}

/// Sets the value of a node; the column begins to exist with the first value.
fn set(column: &mut Column, node: usize, value: Option<u32>) {
    if let Some(value) = value {
        column.resize(node, ABSENT);
        column.push(value);
    }
}

impl GraphBuilder {
    /// Returns a builder that has nothing yet.
    pub fn new() -> GraphBuilder {
        GraphBuilder {
            about: About::default(),
            root: NodeIndex(0),
            ids: Vec::new(),
            sizes: Vec::new(),
            size_total: 0,
            edge_starts: Vec::new(),
            type_names: Vec::new(),
            flags: Vec::new(),
            classes: Column::new(),
            labels: Column::new(),
            descriptive_names: Column::new(),
            script_files: Column::new(),
            stacks: Column::new(),
            targets: Targets::Indices(Vec::new()),
            has_indices: false,
            edge_names: Vec::new(),
            edge_tags: Vec::new(),
            names: Interner::default(),
            frames: Vec::new(),
            allocated: Vec::new(),
            frame_depths: Vec::new(),
            locations: Vec::new(),
            scripts: Vec::new(),
        }
    }

    /// Returns the name of a text, which may be new.
    ///
    /// # Errors
    ///
    /// Fails if there are 2^32 - 1 names already.
    pub fn intern(&mut self, text: &str) -> Result<Name, BuildError> {
        self.names.intern(text).ok_or(BuildError::TooMany { things: "names" })
    }

    /// The names so far.
    pub fn names(&self) -> &Names {
        self.names.names()
    }

    /// The number of nodes so far.
    pub fn node_count(&self) -> usize {
        self.ids.len()
    }

    /// The number of edges so far.
    pub fn edge_count(&self) -> usize {
        self.targets.len()
    }

    /// Makes room for more nodes and edges, so that it need not be made bit by bit.
    pub fn reserve(&mut self, nodes: usize, edges: usize) {
        self.ids.reserve(nodes);
        self.sizes.reserve(nodes);
        self.edge_starts.reserve(nodes + 1);
        self.type_names.reserve(nodes);
        self.flags.reserve(nodes);
        self.edge_names.reserve(edges);
        self.edge_tags.reserve(edges);
        match &mut self.targets {
            Targets::Indices(it) => it.reserve(edges),
            Targets::Ids(it) => it.reserve(edges),
        }
    }

    /// Adds a frame of a stack, after its parent.
    ///
    /// Returns the parent if its stack has [`STACK_FRAMES_MAX`] frames already: deeper frames are
    /// left out.
    ///
    /// # Errors
    ///
    /// Fails if its parent or a name is not known, or if there are too many frames.
    pub fn add_frame(&mut self, frame: Frame) -> Result<FrameIndex, BuildError> {
        // The column of stacks needs a number for nodes without a stack, and one for empty stacks.
        let new = u32::try_from(self.frames.len()).ok().filter(|&it| it < u32::MAX - 1);
        let new = new.ok_or(BuildError::TooMany { things: "frames" })?;
        if frame.parent.is_some_and(|it| it.0 >= new) {
            return Err(BuildError::UnknownFrame);
        }
        self.check_names([frame.source, frame.function])?;
        let depth = frame.parent.map_or(0, |it| self.frame_depths[it.0 as usize]) + 1;
        if let Some(parent) = frame.parent.filter(|_| usize::from(depth) > STACK_FRAMES_MAX) {
            return Ok(parent);
        }
        self.frame_depths.push(depth);
        self.frames.push(frame);
        Ok(FrameIndex(new))
    }

    /// Adds to the allocations of a stack. Those of stacks that are never named here are 0 then.
    ///
    /// # Errors
    ///
    /// Fails if the frame is not known.
    pub fn add_allocated(&mut self, stack: AllocationStack, allocated: Allocated) -> Result<(), BuildError> {
        let at = place(stack);
        if at > self.frames.len() {
            return Err(BuildError::UnknownFrame);
        }
        if at >= self.allocated.len() {
            self.allocated.resize(at + 1, Allocated::default());
        }
        let sum = &mut self.allocated[at];
        sum.count = sum.count.saturating_add(allocated.count);
        sum.bytes = sum.bytes.saturating_add(allocated.bytes);
        Ok(())
    }

    /// Adds a node. The edges that are added from now on are its edges.
    ///
    /// # Errors
    ///
    /// Fails if the id is too large, if a name or a frame is not known, or
    /// if there are too many nodes or bytes. Then the node has not been added.
    pub fn add_node(&mut self, data: NodeData) -> Result<NodeIndex, BuildError> {
        self.add_node_with_edges(data, self.targets.len())
    }

    /// Adds a node, whose edges are those from position `first_edge` on, which came before it. The
    /// edges that are added from now on are its edges, too.
    pub(crate) fn add_node_with_edges(&mut self, data: NodeData, first_edge: usize) -> Result<NodeIndex, BuildError> {
        let NodeData { id, class, label, descriptive_name, script_file, stack, .. } = data;
        if id.0 >= ID_MAX {
            return Err(BuildError::IdTooLarge { id: id.0 });
        }
        let new = u32::try_from(self.ids.len()).ok().filter(|&it| it < u32::MAX - 1);
        let new = NodeIndex(new.ok_or(BuildError::TooMany { things: "nodes" })?);
        self.check_names([Some(data.type_name), class, label, descriptive_name, script_file])?;
        let stack = stack.map(stack_value);
        if stack.is_some_and(|it| it as usize > self.frames.len()) {
            return Err(BuildError::UnknownFrame);
        }
        let size = data.size.unwrap_or(0);
        let size_total = self.size_total.checked_add(size).ok_or(BuildError::TooManyBytes)?;
        self.ids.push(id.0);
        self.size_total = size_total;
        self.sizes.push(size);
        self.edge_starts.push(first_edge as u64);
        self.type_names.push(data.type_name.0);
        self.flags.push(node_flags(data.coarse_type, data.size.is_some(), data.detachedness));
        let at = new.index();
        set(&mut self.classes, at, class.map(|it| it.0));
        set(&mut self.labels, at, label.map(|it| it.0));
        set(&mut self.descriptive_names, at, descriptive_name.map(|it| it.0));
        set(&mut self.script_files, at, script_file.map(|it| it.0));
        set(&mut self.stacks, at, stack);
        Ok(new)
    }

    /// Adds an edge from the last node to the node at a position, which may be added later.
    ///
    /// # Errors
    ///
    /// Fails if there is no node yet, or if the name is not known.
    pub fn add_edge(&mut self, target: NodeIndex, edge: EdgeData) -> Result<(), BuildError> {
        self.add_edge_data(edge)?;
        self.has_indices = true;
        self.targets.push_index(target);
        Ok(())
    }

    /// Adds an edge from the last node to the node with an id, which may be added later.
    ///
    /// # Errors
    ///
    /// Fails if there is no node yet, if the name is not known, or if the id is too large.
    pub fn add_edge_to_id(&mut self, target: NodeId, edge: EdgeData) -> Result<(), BuildError> {
        if target.0 >= ID_MAX {
            return Err(BuildError::IdTooLarge { id: target.0 });
        }
        self.add_edge_data(edge)?;
        self.targets.push_id(target.0);
        Ok(())
    }

    /// Adds a plain edge to the node with an id. The name is of this builder, and the id less than
    /// [`ID_MAX`].
    #[inline]
    pub(crate) fn push_edge_to_id(&mut self, target: u64, name: Option<Name>) {
        debug_assert!(target < ID_MAX && name.is_none_or(|it| (it.0 as usize) < self.names.names().count()));
        self.targets.push_id(target);
        self.edge_names.push(name.map_or(0, |it| it.0));
        self.edge_tags.push(EdgeKind::Plain as u8 | if name.is_some() { tags::HAS_NAME } else { 0 });
    }

    /// Adds all nodes at once, to a builder that has none.
    pub(crate) fn set_nodes(&mut self, nodes: NodeColumns) -> Result<(), BuildError> {
        let NodeColumns { ids, sizes, type_names, flags, .. } = &nodes;
        let count = ids.len();
        assert!(self.ids.is_empty(), "there are no nodes yet");
        assert_eq!([sizes.len(), type_names.len(), flags.len()], [count; 3], "each node has all of it");
        if u32::try_from(count).is_err() || count >= ABSENT as usize {
            return Err(BuildError::TooMany { things: "nodes" });
        }
        if let Some(&id) = ids.iter().find(|&&id| id >= ID_MAX) {
            return Err(BuildError::IdTooLarge { id });
        }
        let total = sizes.iter().try_fold(0_u64, |total, &size| total.checked_add(size));
        let names = self.names.names().count() as u32;
        let is_known = |column: &Column| column.iter().all(|&name| name < names || name == ABSENT);
        let optional = [&nodes.classes, &nodes.labels, &nodes.descriptive_names, &nodes.script_files];
        if !type_names.iter().all(|&name| name < names) || !optional.into_iter().all(is_known) {
            return Err(BuildError::UnknownName);
        }
        if nodes.stacks.iter().any(|&stack| stack != ABSENT && stack as usize > self.frames.len()) {
            return Err(BuildError::UnknownFrame);
        }
        self.size_total = total.ok_or(BuildError::TooManyBytes)?;
        (self.ids, self.sizes) = (nodes.ids, nodes.sizes);
        (self.type_names, self.flags) = (nodes.type_names, nodes.flags);
        (self.classes, self.labels, self.descriptive_names) = (nodes.classes, nodes.labels, nodes.descriptive_names);
        (self.script_files, self.stacks) = (nodes.script_files, nodes.stacks);
        Ok(())
    }

    /// Gives all nodes their edges, in place of those that were added.
    pub(crate) fn set_edges(&mut self, edges: EdgeColumns) -> Result<(), BuildError> {
        let EdgeColumns { mut starts, targets, names, tags } = edges;
        let count = self.names.names().count();
        let is_known = |(&name, &tag): (&u32, &u8)| tag & tags::HAS_NAME == 0 || (name as usize) < count;
        if !names.iter().zip(&tags).all(is_known) {
            return Err(BuildError::UnknownName);
        }
        // The last is added again when the graph is finished.
        let total = starts.pop();
        assert_eq!((starts.len(), total), (self.ids.len(), Some(targets.len() as u64)), "they are of these nodes");
        assert_eq!((names.len(), tags.len()), (targets.len(), targets.len()), "each edge has all of it");
        self.edge_starts = starts;
        self.targets = Targets::Indices(targets);
        self.has_indices = true;
        (self.edge_names, self.edge_tags) = (names, tags);
        Ok(())
    }

    /// Sets the position at which the function of a node was defined.
    ///
    /// # Errors
    ///
    /// Fails if there is no such node.
    pub fn set_location(&mut self, node: NodeIndex, location: Location) -> Result<(), BuildError> {
        if node.index() >= self.ids.len() {
            return Err(BuildError::UnknownNode);
        }
        self.locations.push((node, location));
        Ok(())
    }

    /// Adds the file of a script, by the number that locations have for it.
    ///
    /// # Errors
    ///
    /// Fails if the name is not known.
    pub fn add_script(&mut self, script_id: u32, file: Name) -> Result<(), BuildError> {
        self.check_names([Some(file)])?;
        self.scripts.push((script_id, file));
        Ok(())
    }

    /// Makes a node the root, which otherwise is the first.
    ///
    /// # Errors
    ///
    /// Fails if there is no such node yet.
    pub fn set_root(&mut self, root: NodeIndex) -> Result<(), BuildError> {
        if root.index() >= self.ids.len() {
            return Err(BuildError::UnknownNode);
        }
        self.root = root;
        Ok(())
    }

    /// Freezes the graph. Of several locations of a node, or of several
    /// files of a script, the first is kept.
    ///
    /// # Errors
    ///
    /// Fails if there is no node, if two have the same id, or if an edge leads to a node that does
    /// not exist.
    pub fn finish(mut self) -> Result<Graph, BuildError> {
        if self.ids.is_empty() {
            return Err(BuildError::Empty);
        }
        self.edge_starts.push(self.targets.len() as u64);
        let id_table = IdTable::new(&self.ids).map_err(|SameId(first, second)| {
            let id = self.ids[first.index()];
            BuildError::DuplicateId { id: NodeId(id), first, second }
        })?;
        let targets = self.resolve(&id_table)?;
        self.locations.sort_by_key(|it| it.0);
        self.locations.dedup_by_key(|it| it.0);
        self.scripts.sort_by_key(|it| it.0);
        self.scripts.dedup_by_key(|it| it.0);
        if !self.allocated.is_empty() {
            self.allocated.resize(self.frames.len() + 1, Allocated::default());
        }
        let mut graph = Graph {
            about: self.about,
            root: self.root,
            ids: self.ids,
            id_table,
            sizes: self.sizes,
            edge_starts: self.edge_starts,
            type_names: self.type_names,
            flags: self.flags,
            classes: self.classes,
            labels: self.labels,
            descriptive_names: self.descriptive_names,
            script_files: self.script_files,
            stacks: self.stacks,
            targets,
            edge_names: self.edge_names,
            edge_tags: self.edge_tags,
            all_retain: false,
            names: self.names.finish(),
            frames: Frames { frames: self.frames, allocated: self.allocated },
            locations: self.locations,
            scripts: self.scripts,
        };
        retention::mark(&mut graph);
        Ok(graph)
    }

    /// Returns the positions of all targets.
    fn resolve(&mut self, id_table: &IdTable) -> Result<Vec<NodeIndex>, BuildError> {
        let count = self.ids.len();
        match std::mem::replace(&mut self.targets, Targets::Indices(Vec::new())) {
            Targets::Indices(indices) => {
                if let Some(edge) = indices.iter().position(|it| it.index() >= count) {
                    return Err(BuildError::UnknownIndex { from: self.owner(edge), index: indices[edge].0 });
                }
                Ok(indices)
            }
            Targets::Ids(ids) if self.has_indices => {
                let resolve = |(edge, &id): (usize, &u64)| {
                    if id & Targets::IS_INDEX == 0 {
                        let error = || BuildError::UnknownId { from: self.owner(edge), id };
                        return id_table.find(&self.ids, id).ok_or_else(error);
                    }
                    let index = id as u32;
                    let error = || BuildError::UnknownIndex { from: self.owner(edge), index };
                    ((index as usize) < count).then_some(NodeIndex(index)).ok_or_else(error)
                };
                ids.iter().enumerate().map(resolve).collect()
            }
            Targets::Ids(ids) => {
                let mut indices = Vec::with_capacity(ids.len());
                let found = id_table.find_all(&self.ids, &ids, &mut indices);
                found.map_err(|edge| BuildError::UnknownId { from: self.owner(edge), id: ids[edge] })?;
                Ok(indices)
            }
        }
    }

    /// Returns the node from which an edge comes.
    fn owner(&self, edge: usize) -> NodeId {
        let after = self.edge_starts.partition_point(|&start| start <= edge as u64);
        NodeId(self.ids[after - 1])
    }

    fn add_edge_data(&mut self, edge: EdgeData) -> Result<(), BuildError> {
        if self.ids.is_empty() {
            return Err(BuildError::EdgeWithoutNode);
        }
        let (value, form) = match edge.name {
            None => (0, 0),
            Some(EdgeName::Index(index)) => (index, tags::HAS_INDEX),
            Some(EdgeName::Name(name)) => {
                self.check_names([Some(name)])?;
                (name.0, tags::HAS_NAME)
            }
        };
        self.edge_names.push(value);
        self.edge_tags.push(edge.kind as u8 | form);
        Ok(())
    }

    fn check_names<const N: usize>(&self, names: [Option<Name>; N]) -> Result<(), BuildError> {
        let count = self.names.names().count();
        let is_known = |name: Option<Name>| name.is_none_or(|it| (it.0 as usize) < count);
        if names.into_iter().all(is_known) { Ok(()) } else { Err(BuildError::UnknownName) }
    }
}
