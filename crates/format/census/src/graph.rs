//! The graph of a heap: nodes with their properties, and named edges, in flat arrays.
//!
//! A graph is built once, with a [`GraphBuilder`], and does not change after that. Edges are stored
//! in compressed sparse rows: those of a node follow each other, in the order of the source.
//!
//! # Memory
//!
//! A node takes 29 bytes: its id (8), size (8), the position of its first edge (8), its type name
//! (4), and one byte for its coarse type and flags. Each optional property (class, label,
//! descriptive name, script file, stack) takes 4 bytes per node, and nothing if no node of the
//! graph has it. An edge takes 9 bytes: its target (4), its name or index (4), and its kind (1).
//! The look-up of nodes by id takes 8 to 16 bytes per node, and nothing if the ids are evenly
//! spaced. (SpiderMonkey's own traversal needs two words per node for the nodes that it has
//! visited, but it reads the properties from the live heap.)

mod builder;
mod frames;
mod ids;
mod names;
mod node_set;
mod retention;

pub use builder::{BuildError, EdgeData, GraphBuilder, NodeData};
pub(crate) use builder::{EdgeColumns, NodeColumns};
pub use frames::{Allocated, Frame, FrameIndex, Frames, STACK_FRAMES_MAX};
pub use names::{Name, Names};
pub use node_set::NodeSet;

use std::ops::Range;

use ids::IdTable;

/// A source of nodes and edges: a file, or a heap.
pub trait Source {
    /// The reason why the source cannot be read.
    type Error;

    /// Adds all nodes and edges of the source. The first node is the root, unless
    /// [`set_root`](GraphBuilder::set_root) names another.
    ///
    /// # Errors
    ///
    /// Fails if the source cannot be read, or if the builder refuses a node or an edge.
    fn fill(&mut self, builder: &mut GraphBuilder) -> Result<(), Self::Error>;
}

/// The exclusive maximum of node ids: larger numbers are not exact in JavaScript.
pub const ID_MAX: u64 = 1 << 53;

/// The position of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// The position as an index of arrays.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The id of a node, by which files name it; less than [`ID_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// The coarse type of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CoarseType {
    /// Everything else.
    #[default]
    Other,
    /// A JavaScript object.
    Object,
    /// JavaScript code: source, bytecode, machine code.
    Script,
    /// A JavaScript string.
    String,
    /// A node of the DOM.
    DomNode,
}

impl CoarseType {
    /// All coarse types, in the order of their numbers in Firefox's snapshots.
    pub const ALL: [CoarseType; 5] =
        [CoarseType::Other, CoarseType::Object, CoarseType::Script, CoarseType::String, CoarseType::DomNode];
}

/// The relation of a DOM node to its document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Detachedness {
    /// The source does not know.
    #[default]
    Unknown,
    /// It is part of a document.
    Attached,
    /// No document contains it, and something else still holds it.
    Detached,
}

impl Detachedness {
    /// All values, in the order of their numbers in V8's snapshots.
    pub const ALL: [Detachedness; 3] = [Detachedness::Unknown, Detachedness::Attached, Detachedness::Detached];
}

/// The stack that allocated a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocationStack {
    /// No function was running.
    Empty,
    /// The innermost frame of the stack; its parents are its callers.
    At(FrameIndex),
}

/// The kind of an edge, after V8's types of edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// The source has no kinds of edges: Firefox.
    #[default]
    Plain,
    /// A variable in the context of a closure.
    Context,
    /// An element of an array.
    Element,
    /// A property of an object.
    Property,
    /// A field of the engine that has a name.
    Internal,
    /// A field of the engine that has a number.
    Hidden,
    /// An additional edge, beside a path of others; it does not retain its target, unless it comes
    /// from the root.
    Shortcut,
    /// A reference that does not retain its target.
    Weak,
    /// An internal edge from the table of a `WeakMap` to the value of an entry. The entry's key has
    /// an edge to the value, too, and is the one that retains it.
    WeakMapTable,
}

impl EdgeKind {
    const ALL: [EdgeKind; 9] = [
        EdgeKind::Plain,
        EdgeKind::Context,
        EdgeKind::Element,
        EdgeKind::Property,
        EdgeKind::Internal,
        EdgeKind::Hidden,
        EdgeKind::Shortcut,
        EdgeKind::Weak,
        EdgeKind::WeakMapTable,
    ];

    /// True if edges of this kind retain their targets, by the rules of Chrome's DevTools. For an
    /// edge of a graph, see [`Graph::retains`].
    #[inline]
    pub fn retains(self, is_from_root: bool) -> bool {
        match self {
            EdgeKind::Weak | EdgeKind::WeakMapTable => false,
            EdgeKind::Shortcut => is_from_root,
            _ => true,
        }
    }
}

/// The name of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdgeName {
    /// A name.
    Name(Name),
    /// The index of an element, or the number of a field.
    Index(u32),
}

/// An edge of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The node to which the edge leads.
    pub target: NodeIndex,
    /// The name, if it has one.
    pub name: Option<EdgeName>,
    /// The kind.
    pub kind: EdgeKind,
    /// True if it retains its target; see [`Graph::retains`].
    pub retains: bool,
}

/// The position in a script at which a function was defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The engine's number of the script.
    pub script_id: u32,
    /// The line, from 0.
    pub line: u32,
    /// The column, from 0.
    pub column: u32,
}

/// A moment of a timeline: all nodes with higher ids are younger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// The time, in microseconds since the timeline began.
    pub time_us: u64,
    /// The highest id that had been given to a node.
    pub last_id: u64,
}

/// The program that made a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Neither of the others.
    #[default]
    Other,
    /// Firefox. Ids are the addresses of nodes: another node may get the id of one that was freed.
    Firefox,
    /// V8. Ids grow with time and belong to one node for ever.
    V8,
}

/// Facts about the whole snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The program that made the snapshot.
    pub origin: Origin,
    /// The time at which it was made, in microseconds since 1970.
    pub time_us: Option<u64>,
    /// The moments of its timeline, if it has one, in order.
    pub moments: Vec<Moment>,
}

/// Four bytes per node, or nothing if no node has the property.
pub(crate) type Column = Vec<u32>;

/// The value of nodes that do not have the property.
pub(crate) const ABSENT: u32 = u32::MAX;

/// The frozen graph of a heap. At most 2^32 - 2 nodes; see the [module](self) for its memory.
#[derive(Clone, Debug)]
pub struct Graph {
    about: About,
    root: NodeIndex,
    ids: Vec<u64>,
    id_table: IdTable,
    sizes: Vec<u64>,
    /// The position of each node's first edge, and the number of edges.
    edge_starts: Vec<u64>,
    type_names: Vec<u32>,
    /// The bits of [`flags`].
    flags: Vec<u8>,
    classes: Column,
    labels: Column,
    descriptive_names: Column,
    script_files: Column,
    /// The innermost frame plus one, or 0 for an empty stack.
    stacks: Column,
    targets: Vec<NodeIndex>,
    edge_names: Vec<u32>,
    /// The bits of [`tags`].
    edge_tags: Vec<u8>,
    /// True if all edges retain their targets, so that nobody needs to read their tags for it.
    all_retain: bool,
    names: Names,
    frames: Frames,
    /// Sorted by node.
    locations: Vec<(NodeIndex, Location)>,
    scripts: Vec<(u32, Name)>,
}

/// The bits of a node's flags: the number of its coarse type, and these.
mod flags {
    pub(super) const COARSE_TYPE: u8 = 7;
    pub(super) const IS_SIZE_KNOWN: u8 = 8;
    pub(super) const DETACHEDNESS_SHIFT: u8 = 4;
}

/// The bits of an edge's tag: the number of its kind, and these.
mod tags {
    pub(super) const KIND: u8 = 15;
    pub(super) const HAS_NAME: u8 = 16;
    pub(super) const HAS_INDEX: u8 = 32;
    pub(super) const DOES_NOT_RETAIN: u8 = 64;
}

/// Returns the flags of a node.
pub(crate) fn node_flags(coarse_type: CoarseType, is_size_known: bool, detachedness: Detachedness) -> u8 {
    let size = if is_size_known { flags::IS_SIZE_KNOWN } else { 0 };
    coarse_type as u8 | size | (detachedness as u8) << flags::DETACHEDNESS_SHIFT
}

/// Returns the value of a stack in a column: 0 if it is empty, else its innermost frame plus 1.
pub(crate) fn stack_value(stack: AllocationStack) -> u32 {
    match stack {
        AllocationStack::Empty => 0,
        AllocationStack::At(frame) => frame.0.saturating_add(1),
    }
}

/// Returns the tag of an edge that has an index, or a name.
pub(crate) fn edge_tag(kind: EdgeKind, is_index: bool) -> u8 {
    kind as u8 | if is_index { tags::HAS_INDEX } else { tags::HAS_NAME }
}

#[inline]
fn at(column: &Column, node: NodeIndex) -> Option<u32> {
    column.get(node.index()).copied().filter(|&it| it != ABSENT)
}

/// All functions panic if a node, an edge, a name or a frame is not of this graph.
impl Graph {
    /// Returns facts about the whole snapshot.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Returns the number of nodes, which is at least 1.
    #[inline]
    pub fn node_count(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of edges.
    #[inline]
    pub fn edge_count(&self) -> usize {
        self.targets.len()
    }

    /// Returns the root, from which everything that is live can be reached.
    #[inline]
    pub fn root(&self) -> NodeIndex {
        self.root
    }

    /// Iterates over all nodes, in the order of the source.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeIndex> + DoubleEndedIterator + use<> {
        (0..self.ids.len() as u32).map(NodeIndex)
    }

    /// Returns the id of a node.
    #[inline]
    pub fn id(&self, node: NodeIndex) -> NodeId {
        NodeId(self.ids[node.index()])
    }

    /// Returns the node with an id.
    pub fn find(&self, id: NodeId) -> Option<NodeIndex> {
        self.id_table.find(&self.ids, id.0)
    }

    /// Returns the size of the node itself, in bytes; 0 if it is not known.
    #[inline]
    pub fn size(&self, node: NodeIndex) -> u64 {
        self.sizes[node.index()]
    }

    /// True if the source knows the node's size.
    #[inline]
    pub fn is_size_known(&self, node: NodeIndex) -> bool {
        self.flags[node.index()] & flags::IS_SIZE_KNOWN != 0
    }

    /// Returns the engine's name for the node's type.
    #[inline]
    pub fn type_name(&self, node: NodeIndex) -> Name {
        Name(self.type_names[node.index()])
    }

    /// Returns the coarse type of a node.
    #[inline]
    pub fn coarse_type(&self, node: NodeIndex) -> CoarseType {
        CoarseType::ALL[usize::from(self.flags[node.index()] & flags::COARSE_TYPE)]
    }

    /// Returns the class of an object, such as `Array`.
    #[inline]
    pub fn class(&self, node: NodeIndex) -> Option<Name> {
        at(&self.classes, node).map(Name)
    }

    /// Returns the text that V8 gives a node: of a string its characters (long ones are cut), of a
    /// closure the function's name, of an object its constructor's.
    #[inline]
    pub fn label(&self, node: NodeIndex) -> Option<Name> {
        at(&self.labels, node).map(Name)
    }

    /// Returns the name of a DOM node, such as `#text`.
    #[inline]
    pub fn descriptive_name(&self, node: NodeIndex) -> Option<Name> {
        at(&self.descriptive_names, node).map(Name)
    }

    /// Returns the file that a script, or the function of a closure, comes from.
    #[inline]
    pub fn script_file(&self, node: NodeIndex) -> Option<Name> {
        at(&self.script_files, node).map(Name)
    }

    /// Returns the stack that allocated a node, if it was recorded.
    #[inline]
    pub fn stack(&self, node: NodeIndex) -> Option<AllocationStack> {
        let stack = at(&self.stacks, node)?;
        Some(stack.checked_sub(1).map_or(AllocationStack::Empty, |it| AllocationStack::At(FrameIndex(it))))
    }

    /// Returns the relation of a DOM node to its document.
    pub fn detachedness(&self, node: NodeIndex) -> Detachedness {
        Detachedness::ALL[usize::from(self.flags[node.index()] >> flags::DETACHEDNESS_SHIFT)]
    }

    /// Returns the position in a script at which a function was defined.
    pub fn location(&self, node: NodeIndex) -> Option<Location> {
        let at = self.locations.binary_search_by_key(&node, |it| it.0).ok()?;
        Some(self.locations[at].1)
    }

    /// Returns the positions of a node's edges, for [`edge`](Self::edge).
    #[inline]
    pub fn edge_range(&self, node: NodeIndex) -> Range<usize> {
        self.edge_starts[node.index()] as usize..self.edge_starts[node.index() + 1] as usize
    }

    /// Returns an edge by its position.
    #[inline]
    pub fn edge(&self, position: usize) -> Edge {
        let (tag, value) = (self.edge_tags[position], self.edge_names[position]);
        let name = match tag & (tags::HAS_NAME | tags::HAS_INDEX) {
            tags::HAS_NAME => Some(EdgeName::Name(Name(value))),
            tags::HAS_INDEX => Some(EdgeName::Index(value)),
            _ => None,
        };
        Edge { target: self.targets[position], name, kind: self.edge_kind(position), retains: self.retains(position) }
    }

    /// Returns the target of an edge by its position.
    #[inline]
    pub fn target(&self, position: usize) -> NodeIndex {
        self.targets[position]
    }

    /// Returns the kind of an edge by its position.
    #[inline]
    pub fn edge_kind(&self, position: usize) -> EdgeKind {
        EdgeKind::ALL[usize::from(self.edge_tags[position] & tags::KIND)]
    }

    /// True if an edge, by its position, retains its target: if the target would be freed with the
    /// last of such edges.
    ///
    /// In snapshots of V8 that depends on the [kind](EdgeKind::retains), and on both nodes: as in
    /// Chrome's DevTools, the engine's own nodes do not retain those that can be reached from the
    /// program's global objects and documents.
    #[inline]
    pub fn retains(&self, position: usize) -> bool {
        self.all_retain || self.edge_tags[position] & tags::DOES_NOT_RETAIN == 0
    }

    /// Returns the targets of a node's edges, in the order of the edges.
    #[inline]
    pub fn targets(&self, node: NodeIndex) -> &[NodeIndex] {
        &self.targets[self.edge_range(node)]
    }

    /// Iterates over the edges of a node, in the order of the source.
    pub fn edges(&self, node: NodeIndex) -> impl ExactSizeIterator<Item = Edge> + DoubleEndedIterator + '_ {
        self.edge_range(node).map(|position| self.edge(position))
    }

    /// Returns all names of the graph. Equal texts have equal names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the text of a name.
    #[inline]
    pub fn text(&self, name: Name) -> &str {
        self.names.text(name)
    }

    /// Returns the scripts of [locations](Self::location) whose files are known: their numbers, in
    /// ascending order, and their files.
    pub fn scripts(&self) -> &[(u32, Name)] {
        &self.scripts
    }

    /// Returns all frames of the stacks.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Returns a frame.
    pub fn frame(&self, frame: FrameIndex) -> &Frame {
        self.frames.get(frame)
    }
}

#[cfg(test)]
mod tests;
