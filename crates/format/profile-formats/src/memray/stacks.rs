//! Stacks of Python functions and of native ones, and the stack that combines both.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::header::Header;
use super::lines;
use super::modules::Maps;
use crate::gather::{Gather, Loaded};
use crate::profile::{Frame, Location};

/// Returns true if an address of a module, as in its file, is in the function that runs Python
/// code.
pub type RunsPython<'r> = &'r mut dyn FnMut(&str, u64) -> bool;

/// A Python function and an instruction in it, before its line is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PythonFrame {
    /// The number of its code object.
    pub(super) code: u64,
    /// The offset of the instruction, in the unit of the version of Python.
    pub(super) instruction: i64,
    /// True if it is the outermost function run by a call of the interpreter.
    pub(super) is_entry: bool,
}

/// A code object: a function, as it was compiled.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) first_line: i32,
    /// The lines of instructions, in CPython's encoding.
    pub(super) table: Vec<u8>,
}

/// A node of the tree of Python stacks: a function and its caller.
#[derive(Clone, Copy, Debug)]
struct Node {
    caller: u32,
    frame: u32,
}

/// A node of the tree of native stacks: a return address and the caller's node, from 1; 0: none.
#[derive(Clone, Copy, Debug)]
struct NativeNode {
    returns_to: u64,
    caller: u64,
}

/// The code objects, frames and trees of stacks that have been read.
pub(super) struct Stacks {
    /// The version of Python; 0: code objects have one line and no table.
    python: u32,
    codes: HashMap<u64, Code>,
    frames: Vec<(PythonFrame, Option<usize>)>,
    frame_numbers: HashMap<PythonFrame, u32, RandomState>,
    /// The first node is the root.
    nodes: Vec<Node>,
    children: HashMap<(u32, u32), u32, RandomState>,
    native: Vec<NativeNode>,
    /// Steps by module and address.
    native_places: HashMap<(Option<usize>, u64), NativeStep, RandomState>,
}

/// The stack of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stack {
    /// The innermost node of the Python stack; 0: none.
    pub(super) python: u32,
    /// The innermost node of the native stack, from 1; 0: none.
    pub(super) native: u64,
    /// The number of outermost Python frames that are not shown.
    pub(super) skipped: u64,
}

/// The locations of a stack, the innermost first.
pub(super) struct Places {
    pub(super) places: Vec<usize>,
    /// True if the modules of all native frames are known.
    pub(super) are_known: bool,
}

impl Stacks {
    pub(super) fn new(header: &Header) -> Stacks {
        Stacks {
            python: header.python,
            codes: HashMap::new(),
            frames: Vec::new(),
            frame_numbers: HashMap::default(),
            nodes: vec![Node { caller: 0, frame: 0 }],
            children: HashMap::default(),
            native: Vec::new(),
            native_places: HashMap::default(),
        }
    }

    pub(super) fn add_code(&mut self, number: u64, code: Code) {
        self.codes.insert(number, code);
    }

    /// Returns the number of a Python frame.
    pub(super) fn frame(&mut self, frame: PythonFrame) -> u32 {
        let frames = &mut self.frames;
        *self.frame_numbers.entry(frame).or_insert_with(|| {
            frames.push((frame, None));
            frames.len() as u32 - 1
        })
    }

    /// Returns the node of a frame below a caller's node.
    pub(super) fn push(&mut self, caller: u32, frame: u32) -> u32 {
        let nodes = &mut self.nodes;
        *self.children.entry((caller, frame)).or_insert_with(|| {
            nodes.push(Node { caller, frame });
            nodes.len() as u32 - 1
        })
    }

    /// Returns the node with a number, as aggregated files refer to it.
    pub(super) fn has_node(&self, number: u64) -> Option<u32> {
        u32::try_from(number).ok().filter(|&at| (at as usize) < self.nodes.len())
    }

    pub(super) fn has_frame(&self, number: u64) -> Option<u32> {
        u32::try_from(number).ok().filter(|&at| (at as usize) < self.frames.len())
    }

    /// Adds a native frame, whose caller must have been added before.
    pub(super) fn add_native(&mut self, returns_to: u64, caller: u64) -> Result<(), &'static str> {
        if caller > self.native.len() as u64 {
            return Err("a native frame around which is one that has not come yet");
        }
        self.native.push(NativeNode { returns_to, caller });
        Ok(())
    }

    /// Returns the locations of a stack, with the modules in `loaded`.
    pub(super) fn places(
        &mut self,
        stack: Stack,
        loaded: &Loaded,
        gather: &mut Gather,
        runs_python: RunsPython<'_>,
    ) -> Result<Places, &'static str> {
        let python = self.python_steps(stack.python, gather)?;
        let skipped = usize::try_from(stack.skipped).unwrap_or(usize::MAX);
        let kept = python.len().saturating_sub(skipped);
        let python_only = || python[..kept].iter().map(|step| step.place).collect();
        if stack.native == 0 {
            return Ok(Places { places: python_only(), are_known: true });
        }
        let native = self.native_steps(stack.native, loaded, gather, runs_python)?;
        let are_known = native.iter().all(|step| step.is_known);
        let places = merged(&native, &python, skipped).unwrap_or_else(python_only);
        Ok(Places { places, are_known })
    }

    /// Returns the steps of a Python stack, the innermost first.
    fn python_steps(&mut self, node: u32, gather: &mut Gather) -> Result<Vec<PythonStep>, &'static str> {
        let nodes = &self.nodes;
        let step = |at: u32| (at != 0).then_some(at);
        let outwards = std::iter::successors(step(node), |&at| step(nodes.get(at as usize)?.caller));
        let frames = outwards.map_while(|at| Some(nodes.get(at as usize)?.frame as usize));
        let frames = gather.walk(frames)?;
        Ok(frames.into_iter().filter_map(|frame| self.python_step(frame, gather)).collect())
    }

    fn python_step(&mut self, at: usize, gather: &mut Gather) -> Option<PythonStep> {
        let (frame, place) = self.frames.get_mut(at)?;
        let place = *place.get_or_insert_with(|| {
            let Some(code) = self.codes.get(&frame.code) else { return gather.location(Location::default()) };
            let line = match self.python {
                0 => u32::try_from(code.first_line).unwrap_or(0),
                python => lines::line(python, &code.table, code.first_line, frame.instruction),
            };
            let frame = Frame {
                function: code.function.clone(),
                full_name: code.function.clone(),
                known: !code.function.is_empty(),
                file: code.file.clone(),
                line,
            };
            gather.location(Location { frames: vec![frame], ..Location::default() })
        });
        Some(PythonStep { place, is_entry: frame.is_entry })
    }

    /// Returns the steps of a native stack, the innermost first.
    fn native_steps(
        &mut self,
        number: u64,
        loaded: &Loaded,
        gather: &mut Gather,
        runs_python: RunsPython<'_>,
    ) -> Result<Vec<NativeStep>, &'static str> {
        let index = |number: u64| usize::try_from(number.checked_sub(1)?).ok();
        let native = &self.native;
        if index(number).is_none_or(|at| at >= native.len()) {
            return Err("a native stack that has not come yet");
        }
        let outwards = std::iter::successors(index(number), |&at| index(native.get(at)?.caller));
        let steps = gather.walk(outwards)?;
        let steps = steps.into_iter().map(|at| {
            let address = self.native[at].returns_to.wrapping_sub(1);
            let module = loaded.find(address);
            *self.native_places.entry((module, address)).or_insert_with(|| {
                let told = module.and_then(|at| gather.profile.modules.get(at));
                let runs_python =
                    told.is_some_and(|it| runs_python(&it.path, address.wrapping_sub(it.bias.unwrap_or(0))));
                let place = gather.location(Location { module, address, frames: Vec::new() });
                NativeStep { place, runs_python, is_known: module.is_some() }
            })
        });
        Ok(steps.collect())
    }
}

/// A function of a Python stack.
#[derive(Clone, Copy, Debug)]
struct PythonStep {
    place: usize,
    is_entry: bool,
}

/// A call of a native stack.
#[derive(Clone, Copy, Debug)]
struct NativeStep {
    place: usize,
    runs_python: bool,
    /// True if it is in a module.
    is_known: bool,
}

/// Returns a native stack in which Python functions replace the calls that run them, as in memray's
/// hybrid stacks; the innermost frame comes first. `None` if the native stack has too few such
/// calls: the interpreter's symbols are missing then.
fn merged(native: &[NativeStep], python: &[PythonStep], skipped: usize) -> Option<Vec<usize>> {
    let mut inwards = Vec::with_capacity(native.len());
    let mut rest = python.iter().rev().enumerate().peekable();
    for step in native.iter().rev() {
        if !step.runs_python || rest.peek().is_none() {
            inwards.push(step.place);
            continue;
        }
        while let Some((at, step)) = rest.next() {
            if skipped != 0 && at == skipped {
                inwards.clear();
            }
            inwards.push(step.place);
            // The next call of the interpreter runs the next entry.
            if rest.peek().is_none_or(|(_, next)| next.is_entry) {
                break;
            }
        }
    }
    if rest.peek().is_some() {
        return None;
    }
    inwards.reverse();
    Some(inwards)
}

/// A cache of the samples of stacks, valid as long as modules stay at their addresses.
pub(super) struct Samples {
    known: HashMap<(Stack, Option<&'static str>), Known, RandomState>,
    /// Counts the maps in which modules were missing or had moved.
    epoch: u32,
    /// The last map that the current one has not been compared with yet.
    before: Option<Loaded>,
}

struct Known {
    sample: usize,
    epoch: u32,
    /// The map that was used, if frames were unknown in it that a later one may have.
    generation: Option<u32>,
}

impl Samples {
    pub(super) fn new() -> Samples {
        Samples { known: HashMap::default(), epoch: 0, before: None }
    }

    /// Keeps a map that a new one replaces, for comparison.
    pub(super) fn replaced(&mut self, before: Loaded) {
        self.before.get_or_insert(before);
    }

    /// Returns the sample of a stack.
    pub(super) fn sample(
        &mut self,
        (stack, heap): (Stack, Option<&'static str>),
        stacks: &mut Stacks,
        maps: &Maps,
        gather: &mut Gather,
        runs_python: RunsPython<'_>,
    ) -> Result<usize, &'static str> {
        if self.before.take().is_some_and(|before| !maps.loaded.has_all_of(&before)) {
            self.epoch += 1;
        }
        let known = self.known.get(&(stack, heap)).filter(|known| {
            known.epoch == self.epoch && known.generation.is_none_or(|generation| generation == maps.generation)
        });
        if let Some(known) = known {
            return Ok(known.sample);
        }
        let Places { places, are_known } = stacks.places(stack, &maps.loaded, gather, runs_python)?;
        let labels = heap.map(|heap| ("heap".into(), heap.into())).into_iter().collect();
        let sample = gather.sample(places, labels);
        let generation = (!are_known).then_some(maps.generation);
        self.known.insert((stack, heap), Known { sample, epoch: self.epoch, generation });
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::{NativeStep, PythonStep, merged};

    #[test]
    fn python_takes_the_place_of_what_runs_it() {
        // Innermost first: malloc, a loop, a builtin, a loop, main.
        let native = [(1, false), (2, true), (3, false), (4, true), (5, false)];
        let native = native.map(|(place, runs_python)| NativeStep { place, runs_python, is_known: true });
        // `inner` and `middle` are run by the inner loop.
        let python = [(10, false), (11, true), (12, true)];
        let python = python.map(|(place, is_entry)| PythonStep { place, is_entry });
        assert_eq!(merged(&native, &python, 0), Some(vec![1, 10, 11, 3, 12, 5]));
        assert_eq!(merged(&native, &python, 1), Some(vec![1, 10, 11]));
        assert_eq!(merged(&native, &python, 2), Some(vec![1, 10]));
        assert_eq!(merged(&native, &python[1..2], 0), Some(vec![1, 2, 3, 11, 5]));
        assert_eq!(merged(&native[..3], &python, 0), None);
        assert_eq!(merged(&native, &[], 0), Some(vec![1, 2, 3, 4, 5]));
    }
}
