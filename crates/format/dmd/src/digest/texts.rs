//! Stacks and names as they are shown, and as they count.

use std::sync::Arc;

use heapledger_reports::escape;

use super::Sum;
use crate::analysis::{Options, Stack, is_alloc_fn};
use crate::hash::Map;
use crate::log::{FrameId, Log, NameId, TraceId};
use crate::stacks::Stacks;

/// What stands for the stack of blocks that have none.
const NO_STACK: &str = "(no stack trace recorded due to --stacks=partial)";
/// What stands for a stack through the detector itself.
const DETECTOR: &str = "... DMD.cpp ...";

/// The texts of a log, each once; stacks as they count: without what is left out.
pub(super) struct Texts {
    pub(super) names: Vec<Arc<str>>,
    frames: Vec<Arc<str>>,
    /// The stack of each trace.
    pub(super) stack_of: Vec<u32>,
    stacks: Stacks,
    /// That of blocks without one.
    pub(super) none: u32,
    /// The library of the innermost frame that does not allocate, of each trace.
    modules: Vec<Option<NameId>>,
}

impl Texts {
    pub(super) fn of(log: &Log, options: &Options) -> Texts {
        let frames: Vec<Arc<str>> = log.frames.iter().map(|frame| Arc::from(escape(frame))).collect();
        let allocates: Vec<bool> = log.frames.iter().map(|frame| is_alloc_fn(frame)).collect();
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
            stack_of: Vec::with_capacity(log.traces.len()),
            stacks: Stacks::default(),
            none: 0,
            modules: Vec::with_capacity(log.traces.len()),
        };
        let mut stack = Vec::new();
        for trace in &log.traces {
            let at = |frame: &FrameId| frame.0 as usize;
            let innermost = trace.iter().find(|frame| !allocates[at(frame)]);
            texts.modules.push(innermost.and_then(|frame| log.libraries.get(at(frame)).copied().flatten()));
            let is_ignored = |frame: &FrameId| {
                options.ignore_alloc_fns && (allocates[at(frame)] || texts.frames[at(frame)].contains("???"))
            };
            let counted = trace.iter().skip_while(|frame| is_ignored(frame)).take(options.max_frames);
            stack.clear();
            stack.extend(counted.map(|frame| first_of[at(frame)]));
            let number = texts.stacks.number(&stack);
            texts.stack_of.push(number);
        }
        texts.none = texts.stacks.count();
        texts
    }

    pub(super) fn stack(&self, stack: u32) -> Stack {
        if stack == self.none {
            return vec![Arc::from(NO_STACK)];
        }
        self.stacks.frames(stack).iter().map(|frame| self.frames[frame.0 as usize].clone()).collect()
    }

    pub(super) fn module(&self, trace: Option<TraceId>) -> Option<NameId> {
        self.modules[trace?.0 as usize]
    }

    /// Whether a record of stacks passes the filters.
    pub(super) fn sum_passes(&self, sum: &Sum, options: &Options) -> bool {
        let shown = sum.stacks[0].map(|stack| self.shown(stack, options.filter_stacks_for_testing));
        passes(&shown.unwrap_or_default(), &options.filters)
    }

    pub(super) fn alloc(&self, trace: Option<TraceId>) -> Stack {
        self.stack(trace.map_or(self.none, |trace| self.stack_of[trace.0 as usize]))
    }

    pub(super) fn shown(&self, stack: u32, is_for_testing: bool) -> Stack {
        let stack = self.stack(stack);
        if is_for_testing && stack.iter().filter(|frame| frame.contains("DMD")).count() >= 3 {
            return vec![Arc::from(DETECTOR)];
        }
        stack
    }
}

/// Whether a stack passes all filters, which look at frames as they are printed.
pub(super) fn passes(stack: &Stack, filters: &[String]) -> bool {
    if filters.is_empty() {
        return true;
    }
    let shown: Vec<String> =
        stack.iter().enumerate().map(|(at, frame)| format!("    #{:02}: {frame}", at + 1)).collect();
    let has = |part: &str| shown.iter().any(|frame| frame.contains(part));
    filters.iter().all(|filter| match (filter.strip_prefix('\\'), filter.strip_prefix('!')) {
        (Some(part), _) => has(part),
        (None, Some(part)) => !has(part),
        (None, None) => has(filter),
    })
}
