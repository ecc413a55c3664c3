//! Making a log.

use std::hash::Hash;

use crate::frames::Unresolved;
use crate::hash::Map;
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

/// Adds blocks up.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) groups: Vec<Group>,
    numbers: Map<Key, u32>,
    sizes: Map<(u32, u64, u64), u32>,
    /// Whether blocks of the same usable size count as of one size.
    pub(crate) is_merging: bool,
}

impl Groups {
    /// Adds blocks, and says to which group.
    pub(crate) fn add(&mut self, block: &Block) -> u32 {
        let Block { alloc, reports, type_name, context, requested, slop, count, .. } = *block;
        let groups = &mut self.groups;
        let at = *self.numbers.entry((alloc, reports, type_name, context)).or_insert_with(|| {
            groups.push(Group { alloc, reports, type_name, context, sizes: Vec::new() });
            groups.len() as u32 - 1
        });
        let sizes = &mut groups[at as usize].sizes;
        let key = if self.is_merging { (at, requested.saturating_add(slop), 0) } else { (at, requested, slop) };
        let place = *self.sizes.entry(key).or_insert_with(|| {
            sizes.push(Size { requested, slop, count: 0, rest: 0, weight: 0.0, variance: 0.0 });
            sizes.len() as u32 - 1
        });
        let size = &mut sizes[place as usize];
        size.count = size.count.saturating_add(count);
        if self.is_merging {
            let more = (i128::from(requested) - i128::from(size.requested)) * i128::from(count);
            let limits = i128::from(i64::MIN)..=i128::from(i64::MAX);
            let more = more.clamp(*limits.start(), *limits.end()) as i64;
            size.rest = size.rest.saturating_add(more);
        }
        size.weight += count as f64 * block.weight;
        size.variance += count as f64 * block.variance;
        at
    }
}

/// Makes a [`Log`]: gives numbers to frames, stacks and names, each once, and adds blocks up.
#[derive(Debug)]
pub struct Builder {
    log: Log,
    groups: Groups,
    traces: Map<Vec<FrameId>, u32>,
    frames: Map<String, u32>,
    names: Map<String, u32>,
}

impl Builder {
    /// Of an empty log.
    pub fn new(mode: Mode) -> Builder {
        let (groups, traces, frames, names) = <(Groups, Map<_, _>, Map<_, _>, Map<_, _>)>::default();
        Builder { log: Log::empty(mode), groups, traces, frames, names }
    }

    /// The frame with this text: see [`Log::frames`].
    pub fn frame(&mut self, text: &str) -> FrameId {
        let id = FrameId(number(&mut self.frames, &mut self.log.frames, text));
        if self.log.libraries.len() < self.log.frames.len() {
            let library = Unresolved::parse(text).map(|place| self.name(place.path));
            self.log.libraries.push(library);
        }
        id
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
        self.groups.add(block);
    }

    /// Adds a block with what is in it: all that was requested, without a last part of a word.
    pub fn add_scanned(&mut self, block: &Block, address: u64, contents: &[u64]) {
        let group = self.groups.add(block);
        self.log.scanned.push(block, group, address, contents);
    }

    /// What is known besides.
    pub fn about(&mut self) -> &mut About {
        &mut self.log.about
    }

    /// The log.
    pub fn finish(self) -> Log {
        Log { groups: self.groups.groups, ..self.log }
    }
}

/// The number of something in a list, to which it is added if it is new.
fn number<T, Q>(numbers: &mut Map<T, u32>, list: &mut Vec<T>, wanted: &Q) -> u32
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
