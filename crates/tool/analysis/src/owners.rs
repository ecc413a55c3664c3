//! Owners: the program's own function that blocks are allocated for.

use heapledger_dmd::CodeClass;

use crate::functions::{Frame, FunctionId};
use crate::names::Names;
use crate::stacks::{NodeId, Stacks};

/// The owner of a stack, and the function through which it allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The innermost frame that is the program's own. If there is none, the innermost frame of a
    /// helper, else of a dependency, else the first useful frame.
    pub frame: Frame,
    /// The function that the owner called to allocate; `None` if it calls the allocator itself.
    pub via: Option<FunctionId>,
}

/// The function of Python in which a script's own functions run.
const EVALUATOR: &str = "_PyEval_EvalFrameDefault";

impl Names<'_, '_> {
    /// Returns the owner of a stack. Looks up only as many addresses as that needs.
    pub fn owner(&mut self, stacks: &Stacks, stack: NodeId) -> Owner {
        self.find_wrappers(stacks);
        let mut frames = Vec::new();
        for place in stacks.frames(stack) {
            frames.extend_from_slice(self.frames_at(place));
            if frames.iter().any(|frame| self.is_settled(frame.function)) {
                break;
            }
        }
        if frames.is_empty() {
            frames = self.frames(stacks, stack);
        }
        let (at, inside) = self.owner_at(&functions(&frames));
        Owner { frame: frames[at].clone(), via: self.via(&frames, inside) }
    }

    /// Returns the owner among functions that called each other, from the innermost to the
    /// outermost: all of a stack, or those up to one that [settles](Self::is_settled) it. Wrappers
    /// must have been found.
    pub(crate) fn owner_among(&self, functions: &[FunctionId]) -> FunctionId {
        functions[self.owner_at(functions).0]
    }

    /// Returns the frames of a stack from its owner on, and the function through which the owner
    /// allocates.
    pub fn own_frames(&mut self, stacks: &Stacks, stack: NodeId) -> (Vec<Frame>, Option<FunctionId>) {
        self.find_wrappers(stacks);
        let mut frames = self.frames(stacks, stack);
        let (at, inside) = self.owner_at(&functions(&frames));
        let via = self.via(&frames, inside);
        frames.drain(..at);
        (frames, via)
    }

    /// Returns a label for the source line of a frame, or its function if no line is known.
    pub(crate) fn line_of(&mut self, frame: &Frame) -> FunctionId {
        match &frame.location {
            Some(at) if at.line > 0 => self.label(&format!("{}:{}", at.file, at.line)).function,
            _ => frame.function,
        }
    }

    /// Returns a label for the source file of a frame, or for its module if no file is known.
    pub(crate) fn file_of(&mut self, frame: &Frame) -> FunctionId {
        let file = frame.location.as_ref().map(|at| at.file.to_string());
        let file = file.unwrap_or_else(|| self.module_path(self.function(frame.function).module));
        self.label(if file.is_empty() { "(unknown file)" } else { &file }).function
    }

    /// Returns the function that an owner called to allocate, if its name is known or it is a
    /// wrapper.
    fn via(&self, frames: &[Frame], inside: Option<usize>) -> Option<FunctionId> {
        let inside = frames[inside?].function;
        let called = self.function(inside);
        (called.known || called.wrapper).then_some(inside)
    }

    /// Returns the index of a stack's owner, never beyond its end, and the index of the frame
    /// through which it allocates.
    fn owner_at(&self, functions: &[FunctionId]) -> (usize, Option<usize>) {
        let whose = |function: &FunctionId| self.function(*function).whose;
        let best = functions.iter().enumerate().min_by_key(|(_, function)| whose(function));
        let at = match best {
            Some((at, function)) if whose(function) == CodeClass::Own => self.outside_of_helper(functions, at),
            Some((at, function)) if whose(function) != CodeClass::Library => at,
            _ => self.allocators(functions.iter().copied()),
        };
        match self.called_by_script(functions, at) {
            Some(called) => (called, Some(at)),
            None => (at, at.checked_sub(1)),
        }
    }

    /// True if this function is the program's own and none further out can be the owner instead.
    pub(crate) fn is_settled(&self, function: FunctionId) -> bool {
        let name = self.function(function);
        name.whose == CodeClass::Own && name.known && !self.roles().is_of_package(name)
    }

    /// Returns the innermost own frame outside of a helper. Functions without names that a named
    /// helper calls are taken for a part of it.
    fn outside_of_helper(&self, functions: &[FunctionId], mut at: usize) -> usize {
        let mut owner = at;
        while let Some(&function) = functions.get(at) {
            let name = self.function(function);
            match name.whose {
                CodeClass::Helper if name.known => {
                    let own = |function: &FunctionId| self.function(*function).whose == CodeClass::Own;
                    let Some(outside) = functions[at..].iter().position(own) else { break };
                    at += outside;
                    owner = at;
                    continue;
                }
                CodeClass::Own if name.known => break,
                _ => at += 1,
            }
        }
        owner
    }

    /// Returns the function that a script called, if the owner is a function of a package inside of
    /// it. Code between the two that belongs neither to the interpreter nor to a package comes
    /// first.
    fn called_by_script(&self, functions: &[FunctionId], at: usize) -> Option<usize> {
        let name = |at: usize| self.function(functions[at]);
        let mut outermost = (self.roles().is_of_package(name(at)) && name(at).whose == CodeClass::Own).then_some(at)?;
        for outside in at + 1..functions.len() {
            let name = name(outside);
            match name.whose {
                CodeClass::Own if self.roles().is_of_package(name) => outermost = outside,
                CodeClass::Own => return Some(outside),
                _ if *name.short == *EVALUATOR => return (outermost != at).then_some(outermost),
                _ => {}
            }
        }
        None
    }
}

fn functions(frames: &[Frame]) -> Vec<FunctionId> {
    frames.iter().map(|frame| frame.function).collect()
}
