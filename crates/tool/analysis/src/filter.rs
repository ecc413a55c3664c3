//! Filters: the conditions by which a selection includes blocks.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::RangeInclusive;

use heapledger_core::ThreadId;
use heapledger_recording::{ImageId, ImageStart, Recording, Thread};

use crate::error::Error;
use crate::names::Names;
use crate::pattern::Pattern;
use crate::stacks::{NodeId, Stacks};

/// A filter of blocks. A block must meet all conditions that are set; with none set, all blocks
/// pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Processes, one of which must hold the block; all processes if empty.
    pub processes: Vec<ProcessPattern>,
    /// Names of functions. For each, some function of the stack must match, inlined ones included.
    pub functions: Vec<Pattern>,
    /// Names that no function of the stack may match.
    pub not_functions: Vec<Pattern>,
    /// Names of allocating functions. One must match the innermost function that is not an
    /// allocator, or the [owner](crate::Owner).
    pub allocated_by: Vec<Pattern>,
    /// Names that neither of these two functions may match.
    pub not_allocated_by: Vec<Pattern>,
    /// Paths or file names of modules. One must match the module of the function that allocates.
    pub modules: Vec<Pattern>,
    /// Paths or file names that the module of the function that allocates must not match.
    pub not_modules: Vec<Pattern>,
    /// Contexts, each of which must match a scope (as `name` or `name{value}`), or the whole
    /// context as [`Names::context`] returns it.
    pub contexts: Vec<Pattern>,
    /// Contexts, none of which may match.
    pub not_contexts: Vec<Pattern>,
    /// Names of heaps. One must match the block's heap.
    pub heaps: Vec<Pattern>,
    /// Names of types. One must match the block's type, its element or its container, by the short
    /// or the full name.
    pub types: Vec<Pattern>,
    /// Threads, one of which must have allocated the block.
    pub threads: Vec<ThreadPattern>,
    /// The requested sizes, in bytes.
    pub size: Option<RangeInclusive<u64>>,
    /// The lifetimes, in nanoseconds. A block that was never freed lived until the end of its
    /// image.
    pub lifetime: Option<RangeInclusive<u64>>,
    /// The times of allocation, in nanoseconds since the session began.
    pub allocated: Option<RangeInclusive<u64>>,
}

/// A pattern for processes: a pid, or the file name of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessPattern {
    /// This pid.
    Pid(u32),
    /// The program's name. Images of the same process that run another program do not match.
    Program(Pattern),
}

/// A pattern for threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadPattern {
    /// The thread's ordinal in its image.
    Number(u32),
    /// The kernel's id of the thread.
    Tid(u32),
    /// The thread's name.
    Name(Pattern),
}

impl Filter {
    /// Returns a filter for the process with this pid.
    pub fn process(pid: u32) -> Filter {
        Filter { processes: vec![ProcessPattern::Pid(pid)], ..Filter::default() }
    }

    /// True if only processes are filtered, not their blocks.
    pub fn is_of_all_blocks(&self) -> bool {
        *self == Filter { processes: self.processes.clone(), ..Filter::default() }
    }

    /// Returns the images that are selected, in ascending order of ids.
    pub fn images(&self, recording: &Recording<'_>) -> Result<Vec<ImageId>, Error> {
        let all = recording.images();
        if let Some(nobody) = self.processes.iter().find(|process| !all.iter().any(|image| process.is(image))) {
            return Err(Error::NoSuchProcess(nobody.to_string()));
        }
        let selected =
            all.iter().filter(|image| self.processes.is_empty() || self.processes.iter().any(|it| it.is(image)));
        Ok(selected.map(|image| image.image).collect())
    }

    /// True if the filter can only be applied to events.
    pub fn needs_events(&self) -> bool {
        !self.threads.is_empty() || self.size.is_some() || self.lifetime.is_some() || self.allocated.is_some()
    }

    /// Returns the filter without its conditions on stacks.
    pub(crate) fn without_stacks(&self) -> Filter {
        let Filter { processes, threads, size, lifetime, allocated, .. } = self.clone();
        Filter { processes, threads, size, lifetime, allocated, ..Filter::default() }
    }

    /// True if every stack passes.
    pub(crate) fn is_of_all_stacks(&self) -> bool {
        self.is_of_all_frames() && self.is_of_all_contexts() && self.types.is_empty()
    }

    pub(crate) fn is_of_all_frames(&self) -> bool {
        let lists = [&self.functions, &self.not_functions, &self.allocated_by, &self.not_allocated_by];
        lists.iter().all(|list| list.is_empty()) && self.modules.is_empty() && self.not_modules.is_empty()
    }

    pub(crate) fn is_of_all_contexts(&self) -> bool {
        [&self.contexts, &self.not_contexts, &self.heaps].iter().all(|list| list.is_empty())
    }
}

impl ProcessPattern {
    fn is(&self, image: &ImageStart) -> bool {
        match self {
            ProcessPattern::Pid(pid) => image.pid == *pid,
            ProcessPattern::Program(pattern) => {
                let path = String::from_utf8_lossy(&image.executable);
                pattern.matches(path.rsplit('/').next().unwrap_or_default())
            }
        }
    }
}

impl fmt::Display for ProcessPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessPattern::Pid(pid) => pid.fmt(f),
            ProcessPattern::Program(pattern) => pattern.fmt(f),
        }
    }
}

impl fmt::Display for ThreadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadPattern::Number(number) => write!(f, "#{number}"),
            ThreadPattern::Tid(tid) => tid.fmt(f),
            ThreadPattern::Name(pattern) => pattern.fmt(f),
        }
    }
}

/// The part of a filter that concerns stacks. Each stack is examined only once.
#[derive(Debug)]
pub(crate) struct StackFilter<'f> {
    filter: &'f Filter,
    is_of_all: bool,
    verdicts: HashMap<NodeId, bool>,
}

impl<'f> StackFilter<'f> {
    pub(crate) fn new(filter: &'f Filter) -> StackFilter<'f> {
        StackFilter { filter, is_of_all: filter.is_of_all_stacks(), verdicts: HashMap::new() }
    }

    pub(crate) fn passes(&mut self, names: &mut Names<'_, '_>, stacks: &Stacks, stack: NodeId) -> bool {
        if self.is_of_all {
            return true;
        }
        let filter = self.filter;
        *self.verdicts.entry(stack).or_insert_with(|| passes(filter, names, stacks, stack))
    }
}

fn passes(filter: &Filter, names: &mut Names<'_, '_>, stacks: &Stacks, stack: NodeId) -> bool {
    if !filter.is_of_all_contexts() && !passes_context(filter, names, stacks, stack) {
        return false;
    }
    (filter.is_of_all_frames() || passes_frames(filter, names, stacks, stack))
        && (filter.types.is_empty() || passes_types(filter, names, stacks, stack))
}

fn passes_frames(filter: &Filter, names: &mut Names<'_, '_>, stacks: &Stacks, stack: NodeId) -> bool {
    let allocates = names.useful_frame(stacks, stack).function;
    let module = names.module_path(names.function(allocates).module);
    let in_module = |pattern: &Pattern| in_module(&module, pattern);
    let is_asked = !filter.allocated_by.is_empty() || !filter.not_allocated_by.is_empty();
    let owner = is_asked.then(|| names.owner(stacks, stack).frame.function);
    let is_allocating =
        |pattern: &Pattern| [Some(allocates), owner].iter().flatten().any(|it| names.function(*it).matches(pattern));
    if !fits(&filter.modules, &filter.not_modules, &in_module)
        || !fits(&filter.allocated_by, &filter.not_allocated_by, &is_allocating)
    {
        return false;
    }
    if filter.functions.is_empty() && filter.not_functions.is_empty() {
        return true;
    }
    let frames = names.frames(stacks, stack);
    let is_there = |pattern: &Pattern| frames.iter().any(|frame| names.function(frame.function).matches(pattern));
    filter.functions.iter().all(is_there) && !filter.not_functions.iter().any(is_there)
}

/// True if a module with this path, or file name, matches.
pub(crate) fn in_module(path: &str, pattern: &Pattern) -> bool {
    pattern.matches(path) || pattern.matches(path.rsplit('/').next().unwrap_or_default())
}

/// True if one of the wanted patterns, or there are none, and no unwanted one is met.
pub(crate) fn fits(wanted: &[Pattern], unwanted: &[Pattern], is: &dyn Fn(&Pattern) -> bool) -> bool {
    (wanted.is_empty() || wanted.iter().any(is)) && !unwanted.iter().any(is)
}

fn passes_types(filter: &Filter, names: &mut Names<'_, '_>, stacks: &Stacks, stack: NodeId) -> bool {
    let typed = names.typed(stacks, stack);
    filter.types.iter().any(|pattern| typed.matches(pattern))
}

pub(crate) fn passes_context(filter: &Filter, names: &Names<'_, '_>, stacks: &Stacks, stack: NodeId) -> bool {
    let context = stacks.context(stack);
    let mut called = vec![names.context(stacks, context)];
    for scope in stacks.scopes(context) {
        called.extend([names.text(scope.name), names.scope(scope)]);
    }
    let is_there = |pattern: &Pattern| called.iter().any(|name| pattern.matches(name));
    let heap = names.heap(stacks.heap(stack));
    filter.contexts.iter().all(is_there)
        && !filter.not_contexts.iter().any(is_there)
        && (filter.heaps.is_empty() || filter.heaps.iter().any(|pattern| pattern.matches(&heap)))
}

/// The part of a filter that concerns threads.
#[derive(Debug)]
pub(crate) struct ThreadFilter {
    is_of_all: bool,
    /// Numbers that pass in any image: an unfinished recording does not list its threads, but its
    /// events have their numbers.
    numbers: HashSet<ThreadId>,
    threads: HashSet<(ImageId, ThreadId)>,
}

impl ThreadFilter {
    /// Fails if one of the patterns matches no thread of these images.
    pub(crate) fn new(filter: &Filter, recording: &Recording<'_>, images: &[ImageId]) -> Result<ThreadFilter, Error> {
        let (numbers, threads) = Default::default();
        let mut passing = ThreadFilter { is_of_all: filter.threads.is_empty(), numbers, threads };
        let known = || images.iter().flat_map(|image| recording.threads(*image));
        for pattern in &filter.threads {
            let is = |thread: &&Thread| match pattern {
                ThreadPattern::Number(number) => thread.thread.0 == *number,
                ThreadPattern::Tid(tid) => thread.tid == *tid,
                ThreadPattern::Name(pattern) => pattern.matches(&String::from_utf8_lossy(&thread.name)),
            };
            passing.threads.extend(known().filter(is).map(|thread| (thread.image, thread.thread)));
            match pattern {
                ThreadPattern::Number(number) if known().next().is_none() => {
                    _ = passing.numbers.insert(ThreadId(*number))
                }
                _ if !known().any(|thread| is(&thread)) => {
                    return Err(Error::NoSuchThread(pattern.to_string()));
                }
                _ => {}
            }
        }
        Ok(passing)
    }

    pub(crate) fn passes(&self, image: ImageId, thread: Option<ThreadId>) -> bool {
        let is_it = |thread| self.numbers.contains(&thread) || self.threads.contains(&(image, thread));
        self.is_of_all || thread.is_some_and(is_it)
    }
}
