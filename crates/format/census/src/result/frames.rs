//! The frames of the stacks in a result.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};

use crate::graph::{FrameIndex, Graph, Name};

/// A stack of a result: the number of its innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub(crate) u32);

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportFrame<'a> {
    /// The script's address or path, if it is known.
    pub source: Option<&'a str>,
    /// The line, from 1; 0 if it is not known.
    pub line: u32,
    /// The column, from 1; 0 if it is not known.
    pub column: u32,
    /// The function's name; none if it has no name.
    pub function: Option<&'a str>,
    /// True if it is code of the browser itself.
    pub is_system: bool,
    /// True if it is a function of the language that is implemented in JavaScript.
    pub is_self_hosted: bool,
}

/// The frames of a result, as a tree. Two frames with equal properties and callers are the same.
#[derive(Clone, Debug, Default)]
pub struct ReportFrames {
    frames: Vec<StoredFrame>,
    frame_table: HashTable<u32>,
    texts: Vec<Box<str>>,
    text_table: HashTable<u32>,
    hasher: RandomState,
}

/// A frame whose texts are numbers of `texts`, so that long ones are stored and compared once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StoredFrame {
    caller: Option<StackId>,
    source: Option<u32>,
    line: u32,
    column: u32,
    function: Option<u32>,
    is_system: bool,
    is_self_hosted: bool,
}

impl ReportFrames {
    /// The number of frames.
    pub fn count(&self) -> usize {
        self.frames.len()
    }

    /// Returns the innermost frame of a stack.
    ///
    /// # Panics
    ///
    /// Panics if the stack is not of this result.
    pub fn get(&self, stack: StackId) -> ReportFrame<'_> {
        let text = |number: u32| &*self.texts[number as usize];
        let frame = &self.frames[stack.0 as usize];
        ReportFrame {
            source: frame.source.map(text),
            line: frame.line,
            column: frame.column,
            function: frame.function.map(text),
            is_system: frame.is_system,
            is_self_hosted: frame.is_self_hosted,
        }
    }

    /// Returns the stack of the frame's caller: `None` if the frame is the outermost.
    ///
    /// # Panics
    ///
    /// Panics if the stack is not of this result.
    pub fn caller(&self, stack: StackId) -> Option<StackId> {
        self.frames[stack.0 as usize].caller
    }

    /// Iterates over the frames of a stack, innermost first.
    ///
    /// # Panics
    ///
    /// Panics if the stack is not of this result.
    pub fn stack(&self, stack: StackId) -> impl Iterator<Item = ReportFrame<'_>> {
        std::iter::successors(Some(stack), |&it| self.caller(it)).map(|it| self.get(it))
    }

    /// Returns the number of a frame, which may be new.
    ///
    /// A result has at most as many frames as its graph, and a difference as two of them, whose
    /// arrays would be too large for memory before numbers are.
    fn intern(&mut self, frame: StoredFrame) -> StackId {
        let ReportFrames { frames, frame_table, hasher, .. } = self;
        let hash = hasher.hash_one(frame);
        if let Some(&known) = frame_table.find(hash, |&it| frames[it as usize] == frame) {
            return StackId(known);
        }
        let new = frames.len() as u32;
        frames.push(frame);
        frame_table.insert_unique(hash, new, |&it| hasher.hash_one(frames[it as usize]));
        StackId(new)
    }

    /// Returns the number of a text, which may be new.
    fn intern_text(&mut self, text: &str) -> u32 {
        let ReportFrames { texts, text_table, hasher, .. } = self;
        let hash = hasher.hash_one(text);
        if let Some(&known) = text_table.find(hash, |&it| &*texts[it as usize] == text) {
            return known;
        }
        let new = texts.len() as u32;
        texts.push(Box::from(text));
        text_table.insert_unique(hash, new, |&it| hasher.hash_one(&*texts[it as usize]));
        new
    }
}

/// The numbers in a result of the frames of a graph, or of another result.
#[derive(Debug)]
pub(crate) struct FrameNumbers(Vec<StackId>);

impl FrameNumbers {
    /// Adds all frames of a graph to those of a result.
    pub(crate) fn of(graph: &Graph, frames: &mut ReportFrames) -> FrameNumbers {
        let all = graph.frames();
        let mut texts: HashMap<Name, u32, RandomState> = HashMap::default();
        let mut numbers: Vec<StackId> = Vec::with_capacity(all.count());
        for index in 0..all.count() as u32 {
            let frame = all.get(FrameIndex(index));
            let mut text = |name| *texts.entry(name).or_insert_with(|| frames.intern_text(graph.text(name)));
            let (source, function) = (frame.source.map(&mut text), frame.function.map(&mut text));
            let copy = StoredFrame {
                // A parent has a lower number than its children.
                caller: frame.parent.map(|it| numbers[it.0 as usize]),
                source,
                line: frame.line,
                column: frame.column,
                function,
                is_system: frame.is_system,
                is_self_hosted: frame.is_self_hosted,
            };
            numbers.push(frames.intern(copy));
        }
        FrameNumbers(numbers)
    }

    /// Adds all frames of another result.
    pub(crate) fn of_result(other: &ReportFrames, frames: &mut ReportFrames) -> FrameNumbers {
        let texts: Vec<u32> = other.texts.iter().map(|text| frames.intern_text(text)).collect();
        let text = |number: u32| texts[number as usize];
        let mut numbers: Vec<StackId> = Vec::with_capacity(other.count());
        for &frame in &other.frames {
            let caller = frame.caller.map(|it| numbers[it.0 as usize]);
            let (source, function) = (frame.source.map(text), frame.function.map(text));
            numbers.push(frames.intern(StoredFrame { caller, source, function, ..frame }));
        }
        FrameNumbers(numbers)
    }

    /// Returns the stack of a frame of the graph.
    pub(crate) fn of_frame(&self, frame: FrameIndex) -> StackId {
        self.0[frame.0 as usize]
    }

    /// Returns the stack of a stack of the other result.
    pub(crate) fn of_stack(&self, stack: StackId) -> StackId {
        self.0[stack.0 as usize]
    }
}
