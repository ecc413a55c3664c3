//! Contexts: maps the scopes that a thread is in to a leaf of the stack tree.
//!
//! A context is a path of nodes for scopes and values, in the same tree as the stacks but separate
//! from them. A stack within it is a leaf under the stack's innermost frame; its address is the id
//! of the path's innermost node. So events, sites and all figures by stack carry their contexts
//! without further provisions.
//!
//! A thread remembers its previous context, frame by frame, and compares: unchanged frames, from
//! the outside, have their nodes already.

use heapledger_core::context::{self, DEPTH_MAX, ScopeFrame, ScopeStack};
use heapledger_core::{NodeKind, StackId};

use crate::nodes::NodeRef;
use crate::{Sink, modules, tree};

/// A thread's memory of its previous context. Zeroed memory is a valid one.
#[derive(Debug)]
#[repr(C)]
pub struct Contexts {
    /// The module epoch of all fields below, plus one; 0 for none. In another epoch the same
    /// addresses may be other names.
    epoch: u32,
    /// The number of remembered frames.
    depth: u32,
    /// The last stack within a context, the context, and the leaf for both.
    stack: StackId,
    context: StackId,
    leaf: StackId,
    root: NodeRef,
    frames: [ScopeFrame; DEPTH_MAX],
    /// For each frame, the path up to it.
    nodes: [NodeRef; DEPTH_MAX],
}

/// True if the calling thread wants its allocations ignored. False if `stack` is null.
///
/// # Safety
///
/// `stack` is null or the calling thread's own.
#[inline(always)]
pub unsafe fn is_ignoring(stack: *const ScopeStack) -> bool {
    // SAFETY: `context::is_ignoring` requires the calling thread's own stack; this function's
    // `# Safety` requires the same of `stack`, unless it is null.
    !stack.is_null() && unsafe { context::is_ignoring(stack) }
}

impl Contexts {
    /// Forgets everything, because an interning was interrupted and will not be continued.
    pub fn forget(&mut self) {
        self.epoch = 0;
    }

    /// Returns the leaf for a stack within the context that the thread is in; the stack itself if
    /// it is in none.
    ///
    /// # Safety
    ///
    /// `stack` is the calling thread's own, and everything that its frames refer to is static: see
    /// [`heapledger_core::context`].
    pub unsafe fn leaf(&mut self, stack: *const ScopeStack, id: StackId, sink: &mut dyn Sink) -> StackId {
        // SAFETY: `context::depth` requires the calling thread's own stack; this function's
        // `# Safety` requires the same of `stack`.
        let depth = unsafe { context::depth(stack) };
        if depth == 0 {
            return id;
        }
        if self.epoch != modules::epoch().wrapping_add(1) {
            self.start_epoch(sink);
        }
        // SAFETY: `path` requires what this function does, and the stack's depth: `depth` was read
        // above, and scopes that a signal handler enters are left again before we go on.
        let context = unsafe { self.path(stack, depth, sink) }.id();
        if context == self.root.id() {
            return id;
        }
        if (self.stack, self.context) != (id, context) {
            let leaf = tree::child(NodeRef::of(id), NodeKind::Context, u64::from(context.0), sink).id();
            (self.stack, self.context, self.leaf) = (id, context, leaf);
        }
        self.leaf
    }

    /// Returns the context that a thread is in, as a path.
    ///
    /// # Safety
    ///
    /// As in [`Contexts::leaf`], and `depth` is the stack's.
    unsafe fn path(&mut self, stack: *const ScopeStack, depth: usize, sink: &mut dyn Sink) -> NodeRef {
        let mut node = self.root;
        let mut index = 0;
        let known = depth.min(self.depth as usize);
        for (remembered, reached) in self.frames.iter().zip(&self.nodes).take(known) {
            // SAFETY: `context::frame` requires the calling thread's own stack, as this function
            // does, and an index below its depth: `index` is below `known`, which is at most
            // `depth`.
            if unsafe { context::frame(stack, index) } != *remembered {
                break;
            }
            node = *reached;
            index += 1;
        }
        if index < depth {
            // If a jump leaves the code below, nothing new is remembered, though some of it may be
            // written already.
            self.depth = index as u32;
            // SAFETY: `extend` requires what this function does; `stack` and `depth` are the same.
            node = unsafe { self.extend(stack, index, depth, node, sink) };
        }
        self.depth = depth as u32;
        node
    }

    /// Interns the frames from an index on.
    ///
    /// # Safety
    ///
    /// As in [`Contexts::path`].
    #[inline(never)]
    unsafe fn extend(
        &mut self,
        stack: *const ScopeStack,
        from: usize,
        depth: usize,
        mut node: NodeRef,
        sink: &mut dyn Sink,
    ) -> NodeRef {
        for (index, (remembered, reached)) in
            self.frames.iter_mut().zip(&mut self.nodes).enumerate().take(depth).skip(from)
        {
            // SAFETY: `context::frame` requires the calling thread's own stack, as this function
            // does, and an index below its depth: `take(depth)` ends before `depth`.
            let frame = unsafe { context::frame(stack, index) };
            let step = |node, kind, name: *const context::Name, sink: &mut dyn Sink| {
                tree::child(node, kind, name.expose_provenance() as u64, sink)
            };
            if frame.name.is_null() {
                node = self.root;
            } else {
                node = step(node, NodeKind::Scope, frame.name, sink);
                if !frame.value.is_null() {
                    node = step(node, NodeKind::Value, frame.value, sink);
                }
            }
            (*remembered, *reached) = (frame, node);
        }
        node
    }

    #[cold]
    #[inline(never)]
    fn start_epoch(&mut self, sink: &mut dyn Sink) {
        let epoch = modules::epoch();
        (self.depth, self.stack, self.context, self.leaf) = (0, StackId::ROOT, StackId::ROOT, StackId::ROOT);
        self.root = tree::root(epoch, sink);
        self.epoch = epoch.wrapping_add(1);
    }
}
