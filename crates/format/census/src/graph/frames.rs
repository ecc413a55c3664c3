//! The frames of allocation stacks, as a tree.

use super::AllocationStack;
use super::names::Name;

/// The number of a frame in its graph. A parent has a lower number than its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameIndex(pub u32);

/// A frame of a stack, with the frames that called it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The engine's number of the frame: of two equal frames in two snapshots of one process,
    /// numbers may differ.
    pub id: u64,
    /// The frame that called it; none for the outermost.
    pub parent: Option<FrameIndex>,
    /// The script's address or path, if it is known.
    pub source: Option<Name>,
    /// The line, from 1; 0 if it is not known.
    pub line: u32,
    /// The column, from 1; 0 if it is not known.
    pub column: u32,
    /// The function's name; none if it has no name.
    pub function: Option<Name>,
    /// True if it is code of the browser itself.
    pub is_system: bool,
    /// True if it is a function of the language that is implemented in JavaScript.
    pub is_self_hosted: bool,
}

/// The maximum number of frames in a stack. Engines record fewer: V8 at most 64 and Firefox 60.
///
/// Frames beyond the outermost 1,024 are left out, so that the time and the memory that stacks take
/// stay in proportion to their number.
pub const STACK_FRAMES_MAX: usize = 1024;

/// The allocations of a stack since the engine began to track them, freed objects among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Allocated {
    /// The number of objects.
    pub count: u64,
    /// The sum of their sizes in bytes.
    pub bytes: u64,
}

/// The frames of all stacks of a graph: 48 bytes each, and 16 more if the source knows what each
/// stack allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    pub(super) frames: Vec<Frame>,
    /// The allocations of the empty stack, and then of each frame's; empty: not known.
    pub(super) allocated: Vec<Allocated>,
}

impl Frames {
    /// The number of frames; all numbers below are frames.
    pub fn count(&self) -> usize {
        self.frames.len()
    }

    /// Returns a frame. Panics if it is not one of these.
    pub fn get(&self, frame: FrameIndex) -> &Frame {
        &self.frames[frame.0 as usize]
    }

    /// Returns the allocations of a stack since the engine began to track them, without those of
    /// the functions that it called. None if the source does not know them.
    pub fn allocated(&self, stack: AllocationStack) -> Option<Allocated> {
        self.allocated.get(place(stack)).copied()
    }

    /// Iterates over all stacks with a frame, and the empty one, in the order of their frames.
    pub fn stacks(&self) -> impl Iterator<Item = AllocationStack> + use<> {
        let frames = (0..self.frames.len() as u32).map(|frame| AllocationStack::At(FrameIndex(frame)));
        std::iter::once(AllocationStack::Empty).chain(frames)
    }

    /// Iterates over a frame and its callers, innermost first.
    pub fn stack(&self, innermost: FrameIndex) -> impl Iterator<Item = FrameIndex> + '_ {
        std::iter::successors(Some(innermost), |&it| self.get(it).parent)
    }
}

/// Returns the place of a stack in lists that begin with the empty one.
pub(super) fn place(stack: AllocationStack) -> usize {
    match stack {
        AllocationStack::Empty => 0,
        AllocationStack::At(frame) => frame.0 as usize + 1,
    }
}
