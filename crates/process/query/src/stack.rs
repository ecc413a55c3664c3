//! Stacks and contexts, read from the stack tree.

use std::fmt;

use heapledger_annotate::untracked;
use heapledger_core::context::Name;
use heapledger_core::{NodeKind, StackId};
use heapledger_inprocess::control;
use heapledger_unwind::nodes;

/// The origin of an allocation: the native stack, the context that the program had declared, and
/// the heap.
///
/// Equal stacks are the same [`Stack`], except in rare cases in which two threads added a new stack
/// at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stack(StackId);

impl Stack {
    /// Returns the stack with this node of the tree as its leaf.
    #[doc(hidden)]
    pub fn of(id: StackId) -> Stack {
        Stack(id)
    }

    /// Returns the stack with this node, unless the stack was not taken.
    pub(crate) fn taken(id: StackId) -> Option<Stack> {
        let stack = Stack(id);
        (control::stack_probability().is_none() || stack.frames().next().is_some()).then_some(stack)
    }

    /// Returns the node of the stack tree.
    pub fn id(self) -> StackId {
        self.0
    }

    /// Returns the frames, innermost first. Allocates nothing. The first few are the allocator's
    /// own.
    pub fn frames(self) -> impl Iterator<Item = Frame> {
        self.nodes().filter(|node| node.is_frame()).map(|node| Frame { address: node.address })
    }

    /// Returns the scopes of the context, innermost first. Allocates nothing.
    pub fn context(self) -> impl Iterator<Item = Scope> {
        let leaf = self.nodes().find(|node| node.is(NodeKind::Context));
        let path = Stack(leaf.map_or(StackId::ROOT, |leaf| StackId(leaf.address as u32)));
        let mut value = None;
        path.nodes().filter_map(move |node| {
            if node.is(NodeKind::Value) {
                value = text(node.address);
                return None;
            }
            let name = node.is(NodeKind::Scope).then(|| text(node.address)).flatten()?;
            Some(Scope { name, value: value.take() })
        })
    }

    /// Returns the name of the heap that the block belongs to; `None` for the program's main heap.
    pub fn heap(self) -> Option<&'static str> {
        self.nodes().find(|node| node.is(NodeKind::Heap)).and_then(|node| text(node.address))
    }

    /// True if outer frames were cut off because the stack was too deep.
    pub fn is_cut(self) -> bool {
        self.nodes().any(|node| node.is(NodeKind::Truncated))
    }

    /// Returns the nodes, from the leaf to the root.
    fn nodes(self) -> impl Iterator<Item = nodes::Node> {
        let mut at = self.0;
        std::iter::from_fn(move || {
            let node = nodes::get(at).filter(|_| at != StackId::ROOT)?;
            at = node.parent;
            Some(node)
        })
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Stack({})", self.0.0)
    }
}

/// Prints the context in one line, if there is one; then the frames, one per line, indented,
/// innermost first, without the allocator's own: by name with the feature `symbols`, else by
/// address.
impl fmt::Display for Stack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(heap) = self.heap() {
            writeln!(out, "    in heap {heap}")?;
        }
        let scopes: Vec<Scope> = untracked::scope(|| self.context().collect());
        if !scopes.is_empty() {
            write!(out, "    in context ")?;
            for (at, scope) in scopes.iter().rev().enumerate() {
                write!(out, "{}{scope}", if at > 0 { " > " } else { "" })?;
            }
            writeln!(out)?;
        }
        #[cfg(feature = "symbols")]
        return crate::symbols::write(*self, out);
        #[cfg(not(feature = "symbols"))]
        self.frames().try_for_each(|frame| writeln!(out, "    {:#x}", frame.address))
    }
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// An address inside the instruction that made the call, or that a signal interrupted: the
    /// address to look up.
    pub address: u64,
}

/// A scope of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Its name.
    pub name: &'static str,
    /// Its value, such as `route=/users`.
    pub value: Option<&'static str>,
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(out, "{}{{{value}}}", self.name),
            None => out.write_str(self.name),
        }
    }
}

/// Returns the text of the name at an address that a node has.
fn text(address: u64) -> Option<&'static str> {
    let name = std::ptr::with_exposed_provenance::<Name>(address as usize);
    // SAFETY: nodes of contexts and heaps have addresses of names, which are static
    // (`heapledger_core::context`).
    let name = unsafe { name.as_ref() }?;
    std::str::from_utf8(name.bytes()).ok()
}
