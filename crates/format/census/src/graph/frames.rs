//! The frames of allocation stacks, as a tree.

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

/// The frames of all stacks of a graph: 48 bytes each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    pub(super) frames: Vec<Frame>,
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

    /// Iterates over a frame and its callers, innermost first.
    pub fn stack(&self, innermost: FrameIndex) -> impl Iterator<Item = FrameIndex> + '_ {
        std::iter::successors(Some(innermost), |&it| self.get(it).parent)
    }
}
