//! Making a log.

use std::collections::HashMap;
use std::hash::Hash;

use crate::log::{About, FrameId, Group, Log, Mode, NameId, Report, Size, TraceId};

/// A block, or several that have all of this in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// What was asked for, in bytes.
    pub requested: u64,
    /// What may be used beyond it, in bytes.
    pub slop: u64,
    /// How many.
    pub count: u64,
    /// For how many blocks each stands: 1, unless it is of a sample.
    pub weight: f64,
    /// The variance of the number of blocks that each stands for: 0 for what is no sample.
    pub variance: f64,
    /// Where it was allocated; `None`: that was not recorded.
    pub alloc: Option<TraceId>,
    /// Who has reported it.
    pub reports: [Option<Report>; 2],
    /// What it is.
    pub type_name: Option<NameId>,
    /// In which context it was allocated.
    pub context: Option<NameId>,
}

type Key = (Option<TraceId>, [Option<Report>; 2], Option<NameId>, Option<NameId>);

/// Makes a [`Log`]: gives numbers to frames, stacks and names, each once, and adds blocks up.
#[derive(Debug)]
pub struct Builder {
    log: Log,
    groups: HashMap<Key, u32>,
    sizes: HashMap<(u32, u64, u64), u32>,
    traces: HashMap<Vec<FrameId>, u32>,
    frames: HashMap<String, u32>,
    names: HashMap<String, u32>,
}

impl Builder {
    /// Of an empty log.
    pub fn new(mode: Mode) -> Builder {
        let (groups, traces, frames, names) = <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
        let log = Log { mode, variable: None, groups, traces, frames, names, about: About::default() };
        Builder {
            log,
            groups: HashMap::new(),
            sizes: HashMap::new(),
            traces: HashMap::new(),
            frames: HashMap::new(),
            names: HashMap::new(),
        }
    }

    /// The frame with this text: see [`Log::frames`].
    pub fn frame(&mut self, text: &str) -> FrameId {
        FrameId(number(&mut self.frames, &mut self.log.frames, text))
    }

    /// The stack with these frames, innermost first.
    pub fn trace(&mut self, frames: &[FrameId]) -> TraceId {
        TraceId(number(&mut self.traces, &mut self.log.traces, frames))
    }

    /// A name of a type, a context or a reporter.
    pub fn name(&mut self, text: &str) -> NameId {
        NameId(number(&mut self.names, &mut self.log.names, text))
    }

    /// Adds blocks.
    pub fn add(&mut self, block: &Block) {
        let Block { alloc, reports, type_name, context, requested, slop, count, .. } = *block;
        let groups = &mut self.log.groups;
        let at = *self.groups.entry((alloc, reports, type_name, context)).or_insert_with(|| {
            groups.push(Group { alloc, reports, type_name, context, sizes: Vec::new() });
            groups.len() as u32 - 1
        });
        let sizes = &mut groups[at as usize].sizes;
        let place = *self.sizes.entry((at, requested, slop)).or_insert_with(|| {
            sizes.push(Size { requested, slop, count: 0, weight: 0.0, variance: 0.0 });
            sizes.len() as u32 - 1
        });
        let size = &mut sizes[place as usize];
        size.count += count;
        size.weight += count as f64 * block.weight;
        size.variance += count as f64 * block.variance;
    }

    /// What is known besides.
    pub fn about(&mut self) -> &mut About {
        &mut self.log.about
    }

    /// The log.
    pub fn finish(self) -> Log {
        self.log
    }
}

/// The number of something in a list, to which it is added if it is new.
fn number<T, Q>(numbers: &mut HashMap<T, u32>, list: &mut Vec<T>, wanted: &Q) -> u32
where
    T: Eq + Hash + Clone + std::borrow::Borrow<Q>,
    Q: Eq + Hash + ToOwned<Owned = T> + ?Sized,
{
    if let Some(&number) = numbers.get(wanted) {
        return number;
    }
    let number = list.len() as u32;
    list.push(wanted.to_owned());
    numbers.insert(wanted.to_owned(), number);
    number
}
