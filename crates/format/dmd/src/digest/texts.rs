//! Stacks and names, as they are shown and as they are compared.

use std::sync::Arc;

use heapledger_report_format::escape;

use crate::advice::code_class::CodeClass;
use crate::advice::owner::{Owner, owner_in};
use crate::analysis::{DmdOptions, DmdStack, GroupBy};
use crate::block_source::BlockSource;
use crate::frames::is_alloc_fn;
use crate::hash::Map;
use crate::log::{FrameId, NameId, TraceId};
use crate::stacks::Stacks;
use crate::table_keys::put_at;

/// The text shown for the stack of blocks without one.
const NO_STACK: &str = "(no stack trace recorded due to --stacks=partial)";
/// The text shown for a stack through the detector itself.
const DETECTOR: &str = "... DMD.cpp ...";

/// The texts of a log, each once; and its stacks as they are compared, without the frames that are
/// left out.
pub(super) struct Texts {
    pub(super) names: Vec<Arc<str>>,
    frames: Vec<Arc<str>>,
    /// True for each frame that is a function that allocates.
    allocates: Vec<bool>,
    /// For each frame, the first one with the same text.
    first_of: Vec<FrameId>,
    /// The stack of each trace.
    pub(super) stack_of: Vec<u32>,
    stacks: Stacks,
    /// The stack for blocks without one.
    pub(super) none: u32,
    /// For each trace, the library of the innermost frame that does not allocate.
    modules: Vec<Option<NameId>>,
    /// For each trace, the function, line or file by which blocks are grouped; none if they are
    /// grouped by something else.
    code: Vec<Option<NameId>>,
}

impl Texts {
    /// Reads the stacks. Unless `keeps_stacks`, their frames are read again when they are
    /// [shown](Texts::show).
    pub(super) fn of<H: BlockSource>(
        heap: &mut H,
        options: &DmdOptions,
        keeps_stacks: bool,
    ) -> Result<Texts, H::Error> {
        let log = heap.log();
        let frames: Vec<Arc<str>> = log.frames.iter().map(|frame| Arc::from(escape(frame))).collect();
        let allocates: Vec<bool> = log.frames.iter().map(|frame| is_alloc_fn(frame)).collect();
        let libraries = log.libraries.clone();
        // The same text may be there under two numbers.
        let mut firsts: Map<&str, FrameId> = Map::default();
        let first_of: Vec<FrameId> = log
            .frames
            .iter()
            .enumerate()
            .map(|(at, frame)| *firsts.entry(frame).or_insert(FrameId(at as u32)))
            .collect();
        let mut texts = Texts {
            names: log.names.iter().map(|name| Arc::from(escape(name))).collect(),
            frames,
            allocates,
            first_of,
            stack_of: Vec::new(),
            stacks: if keeps_stacks { Stacks::default() } else { Stacks::without_frames() },
            none: 0,
            modules: Vec::new(),
            code: Vec::new(),
        };
        let mut code = CodeNames::new(options.by, &log.frames);
        let mut stack = Vec::new();
        heap.each_trace(|trace, all| {
            let at = |frame: &FrameId| frame.0 as usize;
            let innermost = all.iter().find(|frame| !texts.allocates[at(frame)]);
            let module = innermost.and_then(|frame| libraries.get(at(frame)).copied().flatten());
            texts.take_compared(all, options, &mut stack);
            put_at(&mut texts.modules, trace.0, module);
            if let Some(code) = &mut code {
                put_at(&mut texts.code, trace.0, code.name(all, innermost, &mut texts.names));
            }
            put_at(&mut texts.stack_of, trace.0, texts.stacks.number(&stack));
        })?;
        texts.none = texts.stacks.count();
        Ok(texts)
    }

    /// Sets `stack` to the frames of a stack by which it is compared and shown.
    fn take_compared(&self, all: &[FrameId], options: &DmdOptions, stack: &mut Vec<FrameId>) {
        let at = |frame: &FrameId| frame.0 as usize;
        let is_ignored = |frame: &FrameId| {
            options.ignore_alloc_fns && (self.allocates[at(frame)] || self.frames[at(frame)].contains("???"))
        };
        let compared = all.iter().skip_while(|frame| is_ignored(frame)).take(options.max_frames);
        stack.clear();
        stack.extend(compared.map(|frame| self.first_of[at(frame)]));
    }

    /// Reads the frames of these stacks and of the stacks of defects, so that they can be shown.
    pub(super) fn show<H: BlockSource>(
        &mut self,
        heap: &mut H,
        options: &DmdOptions,
        stacks: impl Iterator<Item = u32>,
    ) -> Result<(), H::Error> {
        let defects = heap.log().about.defects.iter().flat_map(|defect| [defect.trace, defect.alloc]).flatten();
        let of_defects = defects.filter_map(|trace| self.stack_of.get(trace.0 as usize));
        let wanted: Vec<u32> = stacks.chain(of_defects.copied()).collect();
        wanted.into_iter().for_each(|stack| self.stacks.want(stack));
        if !self.stacks.wants_any() {
            return Ok(());
        }
        let mut stack = Vec::new();
        heap.each_trace(|trace, all| {
            self.take_compared(all, options, &mut stack);
            self.stacks.give(self.stack_of[trace.0 as usize], &stack);
        })
    }

    pub(super) fn stack(&self, stack: u32) -> DmdStack {
        if stack == self.none {
            return vec![Arc::from(NO_STACK)];
        }
        self.stacks.frames(stack).iter().map(|frame| self.frames[frame.0 as usize].clone()).collect()
    }

    pub(super) fn module(&self, trace: Option<TraceId>) -> Option<NameId> {
        self.modules[trace?.0 as usize]
    }

    pub(super) fn code(&self, trace: Option<TraceId>) -> Option<NameId> {
        self.code[trace?.0 as usize]
    }

    pub(super) fn alloc(&self, trace: Option<TraceId>) -> DmdStack {
        self.stack(trace.map_or(self.none, |trace| self.stack_of[trace.0 as usize]))
    }

    pub(super) fn shown(&self, stack: u32, is_for_testing: bool) -> DmdStack {
        let stack = self.stack(stack);
        if is_for_testing && stack.iter().filter(|frame| frame.contains("DMD")).count() >= 3 {
            return vec![Arc::from(DETECTOR)];
        }
        stack
    }
}

/// The names by which blocks are grouped, if that is by a part of the program.
struct CodeNames {
    by: GroupBy,
    /// The class of each frame, and the owner that it would be.
    frames: Vec<(CodeClass, Owner)>,
    numbers: Map<String, NameId>,
}

impl CodeNames {
    fn new(by: GroupBy, frames: &[String]) -> Option<CodeNames> {
        let is_code = matches!(by, GroupBy::Owner | GroupBy::Line | GroupBy::File | GroupBy::Function);
        let known = |frame: &String| (CodeClass::of(frame), Owner::of(frame));
        is_code.then(|| CodeNames { by, frames: frames.iter().map(known).collect(), numbers: Map::default() })
    }

    /// Returns the name for a stack; a new name is added at the end of the names.
    fn name(&mut self, stack: &[FrameId], innermost: Option<&FrameId>, names: &mut Vec<Arc<str>>) -> Option<NameId> {
        let owner = if self.by == GroupBy::Function {
            self.frames.get(innermost?.0 as usize)?.1.clone()
        } else {
            let known: Vec<_> = stack.iter().map(|frame| self.frames.get(frame.0 as usize)).collect();
            owner_in(&known)?
        };
        let text = match self.by {
            GroupBy::Line => owner.location?,
            GroupBy::File => owner.file()?.to_owned(),
            _ => owner.function,
        };
        Some(*self.numbers.entry(text).or_insert_with_key(|text| {
            names.push(Arc::from(escape(text)));
            NameId(names.len() as u32 - 1)
        }))
    }
}

/// True if a stack passes all filters, which look at frames as they are printed.
pub(super) fn passes(stack: impl FnOnce() -> DmdStack, filters: &[String]) -> bool {
    if filters.is_empty() {
        return true;
    }
    let shown: Vec<String> =
        stack().iter().enumerate().map(|(at, frame)| format!("    #{:02}: {frame}", at + 1)).collect();
    let has = |part: &str| shown.iter().any(|frame| frame.contains(part));
    filters.iter().all(|filter| match (filter.strip_prefix('\\'), filter.strip_prefix('!')) {
        (Some(part), _) => has(part),
        (None, Some(part)) => !has(part),
        (None, None) => has(filter),
    })
}
