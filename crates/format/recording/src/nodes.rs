//! The stack tree of an image.

use std::collections::HashMap;
use std::sync::Arc;

use heapledger_core::StackId;

use crate::columns::{self, CODEC_BYTES, CODEC_DELTA, CODEC_VARINT, Spec};
use crate::error::{Damage, Reason, RecordingError};
use crate::frame::{Compressor, EncodedChunk};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
use crate::ids::{ImageId, ModuleId, TextId};
use crate::sites;

/// A node of a stack tree: one frame, under the frame that called it; or something that the program
/// said about the stack.
///
/// Ids need not come in order, and several ids may have equal parent, module and offset: code that
/// shows stacks merges them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id; never [`StackId::ROOT`].
    pub id: StackId,
    /// The caller; [`StackId::ROOT`] for an outermost frame.
    pub parent: StackId,
    /// The meaning of the node.
    pub kind: NodeKind,
    /// The module of the frame's code, or [`ModuleId::UNKNOWN`].
    pub module: ModuleId,
    /// The address to look up: inside the call, in the module's own ELF addresses; absolute if the
    /// module is not known. For an epoch: its number. For a scope, a value, a heap and a stamp: the
    /// [text](Node::text). For a context: its innermost scope or value, a node of the same tree.
    pub offset: u64,
    /// True for a frame whose caller was found by its frame pointer, in code without unwind
    /// information: nothing proves that the frames outside of this one are right.
    pub is_unproven: bool,
}

impl Node {
    /// Returns the text of a scope, a value, a heap or a stamp.
    pub fn text(&self) -> Option<TextId> {
        match self.kind {
            NodeKind::Scope | NodeKind::Value | NodeKind::Heap | NodeKind::Stamp => {
                Some(u32::try_from(self.offset).map_or(TextId::UNKNOWN, TextId))
            }
            _ => None,
        }
    }
}

/// The meaning of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NodeKind {
    /// A frame.
    #[default]
    Frame,
    /// Not a frame: a root under which the stacks of one set of loaded modules grow.
    Epoch,
    /// Not a frame: stands in for outer frames that were cut off.
    Truncated,
    /// Not a frame: a root for stacks that were not the thread's own (a signal stack, a fiber).
    Foreign,
    /// Not a frame, and on no stack: a named scope of the program, under the scope around it or
    /// that scope's value.
    Scope,
    /// Not a frame, and on no stack: the value of the scope that it is under.
    Value,
    /// Not a frame: its parent is a stack, which was captured inside the scopes that this leads to.
    Context,
    /// Not a frame: its parent is a stack, which allocates from this heap of the program's own.
    Heap,
    /// Not a frame: its parent is a stack, and this has its blocks of one type, as declared by the
    /// program: the text is a [`StampText`](crate::StampText).
    Stamp,
    /// Something that a newer version added.
    Other(u8),
}

impl NodeKind {
    const fn number(self) -> u8 {
        match self {
            NodeKind::Frame => 0,
            NodeKind::Epoch => 1,
            NodeKind::Truncated => 2,
            NodeKind::Foreign => 3,
            NodeKind::Scope => 4,
            NodeKind::Value => 5,
            NodeKind::Context => 6,
            NodeKind::Heap => 7,
            NodeKind::Stamp => 8,
            NodeKind::Other(number) => number,
        }
    }

    const fn from_number(number: u8) -> NodeKind {
        match number {
            0 => NodeKind::Frame,
            1 => NodeKind::Epoch,
            2 => NodeKind::Truncated,
            3 => NodeKind::Foreign,
            4 => NodeKind::Scope,
            5 => NodeKind::Value,
            6 => NodeKind::Context,
            7 => NodeKind::Heap,
            8 => NodeKind::Stamp,
            other => NodeKind::Other(other),
        }
    }
}

const COLUMNS: [Spec; 5] = [
    Spec { id: 1, codec: CODEC_DELTA },  // id
    Spec { id: 2, codec: CODEC_DELTA },  // parent
    Spec { id: 3, codec: CODEC_BYTES },  // kind
    Spec { id: 4, codec: CODEC_VARINT }, // module
    Spec { id: 5, codec: CODEC_DELTA },  // offset
];

/// The nodes whose [`Node::is_unproven`] is set; absent if no node's is.
const UNPROVEN: Spec = Spec { id: 6, codec: CODEC_BYTES };

/// Gathers nodes of one image into chunks. Reused from chunk to chunk.
#[derive(Debug)]
pub struct NodesEncoder {
    image: ImageId,
    nodes: Vec<Node>,
}

impl NodesEncoder {
    /// Creates an encoder for one image.
    pub fn new(image: ImageId) -> NodesEncoder {
        NodesEncoder { image, nodes: Vec::new() }
    }

    /// Adds a node. Fails, and adds nothing, if the chunk is full or an id is out of range.
    pub fn push(&mut self, node: &Node) -> Result<(), RecordingError> {
        if self.is_full() {
            return Err(RecordingError::Unwritable("a node for which its chunk has no room"));
        }
        if node.id == StackId::ROOT || node.id > StackId::MAX || node.parent > StackId::MAX {
            return Err(RecordingError::Unwritable("a stack id out of range"));
        }
        self.nodes.push(*node);
        Ok(())
    }

    /// True if the chunk must be finished before the next node.
    pub fn is_full(&self) -> bool {
        self.nodes.len() == CHUNK_ROWS_MAX
    }

    /// Returns the chunk of the nodes pushed so far; the encoder goes on with the next. `None` if
    /// there are none.
    pub fn finish(&mut self, compressor: &mut Compressor) -> Option<EncodedChunk> {
        if self.nodes.is_empty() {
            return None;
        }
        let head = ChunkHead { rows: self.nodes.len() as u32, ..ChunkHead::of(self.image) };
        let is_any_unproven = self.nodes.iter().any(|node| node.is_unproven);
        let unproven: Vec<u8> = self.nodes.iter().map(|node| u8::from(node.is_unproven)).collect();
        let rows = self.nodes.drain(..).map(|node| {
            let Node { id, parent, kind, module, offset, .. } = node;
            [u64::from(id.0), u64::from(parent.0), u64::from(kind.number()), u64::from(module.0), offset]
        });
        let mut contents = columns::encode_table(COLUMNS, rows);
        if is_any_unproven {
            columns::put(&mut contents, UNPROVEN.id, UNPROVEN.codec, &unproven);
        }
        // At most 30 bytes a row: never too large for a chunk.
        Some(compressor.seal(ChunkKind::Nodes, &head, &contents))
    }
}

/// Appends the nodes of a chunk.
pub(crate) fn decode(contents: &[u8], rows: u32, nodes: &mut Vec<Node>) -> Result<(), Reason> {
    let first = nodes.len();
    columns::decode_table(contents, COLUMNS, rows, |[id, parent, kind, module, offset]| {
        let id = sites::stack(id)?;
        if id == StackId::ROOT {
            return Err(Reason::Invalid("a node with the root's id"));
        }
        nodes.push(Node {
            id,
            parent: sites::stack(parent)?,
            kind: NodeKind::from_number(u8::try_from(kind).map_err(|_| Reason::Invalid("a node's kind"))?),
            module: ModuleId(u32::try_from(module).map_err(|_| Reason::Invalid("a module id"))?),
            offset,
            is_unproven: false,
        });
        Ok(())
    })?;
    if columns::find_optional(contents, UNPROVEN.id)?.is_some() {
        let mut added = nodes.iter_mut().skip(first);
        columns::decode_table(contents, [UNPROVEN], rows, |[is_unproven]| {
            if let Some(node) = added.next() {
                node.is_unproven = is_unproven != 0;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The nodes that one image added, by id. Free of cycles.
#[derive(Debug)]
pub struct NodeTable {
    /// In ascending order of ids, each once.
    nodes: Vec<Node>,
    /// The ids that programs give out, and those from [`StackId::PROGRAM_END`] on.
    runs: [Run; 2],
    damage: Vec<Damage>,
}

impl NodeTable {
    /// Creates a table of these nodes, in any order. Ids below `base` are not this image's own:
    /// nodes with such ids are damage, and parents below `base` lead out of the table.
    pub(crate) fn new(mut nodes: Vec<Node>, base: StackId, damage: Vec<Damage>, offset: u64) -> NodeTable {
        let mut damage = damage;
        nodes.sort_by_key(|node| node.id);
        let mut contradiction = false;
        nodes.dedup_by(|later, earlier| {
            contradiction |= later.id == earlier.id && later != earlier;
            later.id == earlier.id
        });
        if contradiction {
            damage.push(Damage { offset, reason: Reason::Invalid("a node id was used twice") });
        }
        // A tree would look for them on another level.
        let foreign = nodes.partition_point(|node| node.id < base);
        if foreign > 0 {
            nodes.drain(..foreign);
            damage.push(Damage { offset, reason: Reason::Invalid("a node with an id of another image") });
        }
        let (lower, upper) = nodes.split_at(nodes.partition_point(|node| node.id < StackId::PROGRAM_END));
        let runs = [Run::new(lower, 0), Run::new(upper, lower.len() as u32)];
        let mut table = NodeTable { runs, nodes, damage };
        if table.cut_cycles(base) {
            table.damage.push(Damage { offset, reason: Reason::Invalid("a stack is its own caller") });
        }
        table
    }

    /// Returns the nodes in ascending order of ids.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the node with this id, if this image added it.
    pub fn get(&self, id: StackId) -> Option<&Node> {
        self.nodes.get(self.index_of(id)?)
    }

    /// Returns the damage that was found in the nodes.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    fn index_of(&self, id: StackId) -> Option<usize> {
        let run = &self.runs[usize::from(id >= StackId::PROGRAM_END)];
        if run.indices.is_empty() {
            return self.nodes.binary_search_by_key(&id, |node| node.id).ok();
        }
        let from_first = id.0.checked_sub(run.first.0)?;
        (*run.indices.get(from_first as usize)? as usize).checked_sub(1)
    }

    /// Puts one node of each cycle under the root. Returns true if there was any.
    fn cut_cycles(&mut self, base: StackId) -> bool {
        // 0: not seen; otherwise the number of the walk that saw the node first.
        let mut seen_by = vec![0u32; self.nodes.len()];
        let mut any = false;
        for start in 0..self.nodes.len() {
            // There are fewer nodes than ids, and ids have 26 bits.
            let walk = start as u32 + 1;
            let mut at = start;
            while seen_by[at] == 0 {
                seen_by[at] = walk;
                let parent = self.nodes[at].parent;
                let Some(next) = (if parent < base { None } else { self.index_of(parent) }) else { break };
                if seen_by[next] == walk {
                    self.nodes[at].parent = StackId::ROOT;
                    any = true;
                    break;
                }
                at = next;
            }
        }
        any
    }
}

/// Nodes with ids that are dense.
#[derive(Debug)]
struct Run {
    first: StackId,
    /// For each id from the first on, its index among all nodes plus one; 0 for none. Empty if ids
    /// are not dense.
    indices: Vec<u32>,
}

impl Run {
    /// Creates a run of nodes in the order of their ids, before which there are `before` others.
    fn new(nodes: &[Node], before: u32) -> Run {
        let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else {
            return Run { first: StackId::ROOT, indices: Vec::new() };
        };
        let span = (last.id.0 - first.id.0) as usize + 1;
        // No table is made if it would be much larger than the nodes themselves.
        let mut indices = vec![0; if span > nodes.len() * 4 { 0 } else { span }];
        if !indices.is_empty() {
            for (index, node) in (before + 1..).zip(nodes) {
                indices[(node.id.0 - first.id.0) as usize] = index;
            }
        }
        Run { first: first.id, indices }
    }
}

/// Node tables already unpacked; see [`Recording::stack_tree`](crate::Recording::stack_tree).
#[derive(Debug, Default)]
pub struct NodeCache {
    pub(crate) tables: HashMap<ImageId, Arc<NodeTable>>,
}

impl NodeCache {
    /// Forgets the nodes of an image, if neither it nor images forked from it will be asked for
    /// again.
    pub fn forget(&mut self, image: ImageId) {
        self.tables.remove(&image);
    }
}

/// All stacks of an image, those from before a fork included.
#[derive(Clone, Debug, Default)]
pub struct StackTree {
    /// The image's own level first, then the levels it was forked from.
    levels: Vec<Level>,
}

#[derive(Clone, Debug)]
struct Level {
    /// Ids below this belong to the next level.
    base: StackId,
    table: Arc<NodeTable>,
}

impl StackTree {
    pub(crate) fn push_level(&mut self, base: StackId, table: Arc<NodeTable>) {
        self.levels.push(Level { base, table });
    }

    /// Returns the node with this id. `None` for the root, and for an id that the recording does
    /// not explain.
    pub fn get(&self, id: StackId) -> Option<&Node> {
        self.find(0, id).map(|(_, node)| node)
    }

    /// Returns the nodes of a stack from the innermost to the outermost, without epochs. Ends early
    /// if a parent is missing.
    pub fn frames(&self, id: StackId) -> Frames<'_> {
        Frames { tree: self, level: 0, next: id }
    }

    /// Returns the scopes and values that a [context](NodeKind::Context) leads to, from the
    /// innermost to the outermost. Empty if the node is not a context. In a damaged file there may
    /// be nodes of other kinds among them.
    pub fn path(&self, context: StackId) -> Frames<'_> {
        let found = self.find(0, context).filter(|(_, node)| node.kind == NodeKind::Context);
        let path = found.and_then(|(level, node)| Some((level, u32::try_from(node.offset).ok()?)));
        let (level, next) = path.map_or((0, StackId::ROOT), |(level, id)| (level, StackId(id)));
        Frames { tree: self, level, next }
    }

    /// Returns the damage that was found in the nodes.
    pub fn damage(&self) -> impl Iterator<Item = &Damage> {
        self.levels.iter().flat_map(|level| &level.table.damage)
    }

    /// Returns the node with this id as seen from a level, and the level that it is on.
    fn find(&self, from: usize, id: StackId) -> Option<(usize, &Node)> {
        let level = (from..self.levels.len()).find(|&level| id >= self.levels[level].base)?;
        Some((level, self.levels[level].table.get(id)?))
    }
}

/// The nodes of a stack, from the innermost to the outermost.
#[derive(Clone, Debug)]
pub struct Frames<'t> {
    tree: &'t StackTree,
    level: usize,
    next: StackId,
}

impl<'t> Iterator for Frames<'t> {
    type Item = &'t Node;

    fn next(&mut self) -> Option<&'t Node> {
        // Ends, because within a level there are no cycles, and levels only go outwards.
        loop {
            let (level, node) = self.tree.find(self.level, self.next)?;
            self.level = level;
            self.next = node.parent;
            if node.kind != NodeKind::Epoch {
                return Some(node);
            }
        }
    }
}
