//! Of which blocks: what a selection leaves out.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::RangeInclusive;

use heapledger_core::ThreadId;
use heapledger_recording::{ImageId, ImageStart, ModuleId, Recording, Thread};

use crate::error::Error;
use crate::names::Names;
use crate::pattern::Pattern;
use crate::stacks::{NodeId, Stacks};

/// Of which blocks. All that is set must hold of a block; nothing set: of all blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of these processes: any one of them. Empty: of all.
    pub processes: Vec<ProcessPattern>,
    /// With each of these as the name of some function of the stack, those that were inlined included.
    pub functions: Vec<Pattern>,
    /// Without any of these as the name of any function of the stack.
    pub not_functions: Vec<Pattern>,
    /// Allocated by a function with one of these as its name: the innermost one that is no
    /// allocator, or the [owner](crate::Owner).
    pub allocated_by: Vec<Pattern>,
    /// Allocated where neither of these two functions has one of these as its name.
    pub not_allocated_by: Vec<Pattern>,
    /// Allocated by a function of a module with one of these as its path or file name.
    pub modules: Vec<Pattern>,
    /// Not allocated by a function of a module with one of these as its path or file name.
    pub not_modules: Vec<Pattern>,
    /// Allocated in each of these contexts: with it as a scope, as `name` or `name{value}`, or as the whole of them, as
    /// [`Names::context`] says it.
    pub contexts: Vec<Pattern>,
    /// Allocated in none of these contexts.
    pub not_contexts: Vec<Pattern>,
    /// From a heap of one of these names.
    pub heaps: Vec<Pattern>,
    /// With one of these as the name of their type, of its element or of their container, in short or in full.
    pub types: Vec<Pattern>,
    /// Allocated by one of these threads.
    pub threads: Vec<ThreadPattern>,
    /// Of these requested sizes, in bytes.
    pub size: Option<RangeInclusive<u64>>,
    /// That lived so long, in nanoseconds. What was never freed lived until the end of its image.
    pub lifetime: Option<RangeInclusive<u64>>,
    /// Allocated in this time, in nanoseconds since the session began.
    pub allocated: Option<RangeInclusive<u64>>,
}

/// Which process: by its pid, or by the file name of what it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessPattern {
    /// This pid.
    Pid(u32),
    /// A program's name: images of a process that run something else are not meant.
    Program(Pattern),
}

/// Which thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadPattern {
    /// By its ordinal in its image.
    Number(u32),
    /// By the kernel's id.
    Tid(u32),
    /// By its name.
    Name(Pattern),
}

impl Filter {
    /// Only of the process with this pid.
    pub fn process(pid: u32) -> Filter {
        Filter { processes: vec![ProcessPattern::Pid(pid)], ..Filter::default() }
    }

    /// Whether anything but the process is asked for.
    pub fn is_of_all_blocks(&self) -> bool {
        *self == Filter { processes: self.processes.clone(), ..Filter::default() }
    }

    /// The images that are selected, in ascending order of ids.
    pub fn images(&self, recording: &Recording<'_>) -> Result<Vec<ImageId>, Error> {
        let all = recording.images();
        if let Some(nobody) = self.processes.iter().find(|process| !all.iter().any(|image| process.is(image))) {
            return Err(Error::NoSuchProcess(nobody.to_string()));
        }
        let selected =
            all.iter().filter(|image| self.processes.is_empty() || self.processes.iter().any(|it| it.is(image)));
        Ok(selected.map(|image| image.image).collect())
    }

    /// Whether only the events tell.
    pub(crate) fn needs_events(&self) -> bool {
        !self.threads.is_empty() || self.size.is_some() || self.lifetime.is_some() || self.allocated.is_some()
    }

    /// Whether the stacks tell nothing.
    pub(crate) fn is_of_all_stacks(&self) -> bool {
        self.is_of_all_frames() && self.is_of_all_contexts() && self.types.is_empty()
    }

    fn is_of_all_frames(&self) -> bool {
        let lists = [&self.functions, &self.not_functions, &self.allocated_by, &self.not_allocated_by];
        lists.iter().all(|list| list.is_empty()) && self.modules.is_empty() && self.not_modules.is_empty()
    }

    fn is_of_all_contexts(&self) -> bool {
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

/// Which stacks a filter lets pass: each is looked at once.
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
    let file = module.rsplit('/').next().unwrap_or_default();
    let in_module = |pattern: &Pattern| pattern.matches(&module) || pattern.matches(file);
    let is_asked = !filter.allocated_by.is_empty() || !filter.not_allocated_by.is_empty();
    let owner = is_asked.then(|| names.owner(stacks, stack).frame.function);
    let is_allocating =
        |pattern: &Pattern| [Some(allocates), owner].iter().flatten().any(|it| names.function(*it).matches(pattern));
    let fits = |wanted: &[Pattern], unwanted: &[Pattern], is: &dyn Fn(&Pattern) -> bool| {
        (wanted.is_empty() || wanted.iter().any(is)) && !unwanted.iter().any(is)
    };
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

fn passes_types(filter: &Filter, names: &mut Names<'_, '_>, stacks: &Stacks, stack: NodeId) -> bool {
    let typed = names.typed(stacks, stack);
    filter.types.iter().any(|pattern| typed.matches(pattern))
}

fn passes_context(filter: &Filter, names: &Names<'_, '_>, stacks: &Stacks, stack: NodeId) -> bool {
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

/// Which threads a filter lets pass.
#[derive(Debug)]
pub(crate) struct ThreadFilter {
    is_of_all: bool,
    /// In any image: what was not finished does not know its threads, but events have their numbers.
    numbers: HashSet<ThreadId>,
    threads: HashSet<(ImageId, ThreadId)>,
}

impl ThreadFilter {
    /// Fails if one of the patterns is none of a thread of these images.
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

impl crate::names::FunctionName {
    /// Whether it is called so, in short or in full.
    pub fn matches(&self, pattern: &Pattern) -> bool {
        pattern.matches(&self.short) || pattern.matches(&self.full)
    }
}

impl Names<'_, '_> {
    /// The path of a module; empty if it is not known.
    pub fn module_path(&self, module: ModuleId) -> String {
        let module = self.recording().module(module);
        module.map_or(String::new(), |module| String::from_utf8_lossy(&module.path).into_owned())
    }
}
