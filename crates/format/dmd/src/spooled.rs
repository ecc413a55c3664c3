//! A log whose stacks and blocks are stored as they are read, and read again for each answer.
//! Memory is needed for the answer, not for the log.

use std::fmt;
use std::io::{self, Read};

use crate::block_source::BlockSource;
use crate::frames::{FrameTexts, LeadingWrappers, Replaced};
use crate::log::{Block, FrameId, Group, Log, NameId, Report, Size, TraceId};
use crate::read::{self, Names, Sink};
use crate::read_error::ReadError;
use crate::spool::{Numbers, Spool, Spooling};

/// A log whose stacks and blocks are stored in a compact form.
pub struct SpooledLog<'a> {
    /// The log without stacks, blocks and contents of blocks.
    log: Log,
    stored: Stored<'a>,
    names: Names,
    replaced: Option<Replaced>,
    leading: Option<LeadingWrappers>,
}

struct Stored<'a> {
    frames_max: usize,
    traces: Spool<'a>,
    blocks: Spool<'a>,
    has_addresses: bool,
}

impl<'a> SpooledLog<'a> {
    /// Reads a file as [`Log::read`] does, for an [`Analysis`](crate::Analysis), with at most
    /// `frames_max` frames of each stack, the innermost ones.
    ///
    /// # Errors
    ///
    /// As [`Log::read`], or if the file in which the log is stored fails.
    pub fn read(mut input: impl Read, frames_max: usize, spooling: Spooling<'a>) -> Result<SpooledLog<'a>, ReadError> {
        let [traces, blocks] = [Spool::new(spooling), Spool::new(spooling)];
        let mut stored = Stored { frames_max, traces, blocks, has_addresses: false };
        let (log, names) = read::read(&mut input, u64::MAX, &mut stored)?;
        Ok(SpooledLog { log, stored, names, replaced: None, leading: None })
    }
}

impl fmt::Debug for SpooledLog<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpooledLog").field("log", &self.log).finish_non_exhaustive()
    }
}

impl FrameTexts for SpooledLog<'_> {
    fn log(&self) -> &Log {
        &self.log
    }

    fn map_frames(&mut self, resolve: impl FnMut(&str) -> Vec<String>) {
        let new = Replaced::new(&mut self.log, resolve);
        self.replaced = Some(match self.replaced.take() {
            Some(before) => before.then(&new),
            None => new,
        });
        self.leading = None;
    }

    fn strip_wrappers(&mut self, is_wrapper: impl Fn(&str) -> bool, is_between: impl Fn(&str) -> bool) {
        self.leading = Some(LeadingWrappers::new(&self.log, is_wrapper, is_between));
    }
}

/// The fields of a block, as bits of a number; the fields follow in this order.
mod has {
    pub(super) const SLOP: u64 = 1;
    pub(super) const ALLOC: u64 = 1 << 1;
    pub(super) const REPORT: u64 = 1 << 2;
    pub(super) const SECOND_REPORT: u64 = 1 << 3;
    pub(super) const COUNT: u64 = 1 << 4;
    pub(super) const REPORTER: u64 = 1 << 5;
    pub(super) const SECOND_REPORTER: u64 = 1 << 6;
    pub(super) const TYPE: u64 = 1 << 7;
    pub(super) const CONTEXT: u64 = 1 << 8;
    pub(super) const WEIGHT: u64 = 1 << 9;
    pub(super) const ADDRESS: u64 = 1 << 10;
}

impl Sink for Stored<'_> {
    fn frames_max(&self) -> usize {
        self.frames_max
    }

    fn trace(&mut self, _: &mut Log, trace: TraceId, frames: &[FrameId]) -> io::Result<()> {
        self.traces.put(trace.0.into());
        self.traces.put(frames.len() as u64);
        frames.iter().for_each(|frame| self.traces.put(frame.0.into()));
        self.traces.end()
    }

    fn block(&mut self, _: &mut Log, block: &Block, scanned: Option<(u64, &[u64])>) -> io::Result<()> {
        let Block { requested, slop, count, weight, variance, alloc, reports, type_name, context } = *block;
        let [report, second] = reports;
        let reporter = |report: Option<Report>| Some(u64::from(report?.reporter?.0));
        let trace = |report: Option<Report>| Some(u64::from(report?.trace.0));
        let name = |name: Option<NameId>| Some(u64::from(name?.0));
        let parts = [
            (has::SLOP, (slop != 0).then_some(slop)),
            (has::ALLOC, alloc.map(|trace| trace.0.into())),
            (has::REPORT, trace(report)),
            (has::SECOND_REPORT, trace(second)),
            (has::COUNT, (count != 1).then_some(count)),
            (has::REPORTER, reporter(report)),
            (has::SECOND_REPORTER, reporter(second)),
            (has::TYPE, name(type_name)),
            (has::CONTEXT, name(context)),
            (has::ADDRESS, scanned.map(|(address, _)| address)),
        ];
        let is_sample = weight != 1.0 || variance != 0.0;
        let bits = parts.iter().filter(|(_, part)| part.is_some()).fold(0, |bits, (bit, _)| bits | bit);
        self.blocks.put(bits | if is_sample { has::WEIGHT } else { 0 });
        self.blocks.put(requested);
        parts.iter().filter_map(|(_, part)| *part).for_each(|part| self.blocks.put(part));
        if is_sample {
            [weight, variance].into_iter().for_each(|number| self.blocks.put(number.to_bits()));
        }
        self.has_addresses |= scanned.is_some();
        self.blocks.end()
    }
}

/// Reads a block into a group of its own, and returns its address.
fn take_block(numbers: &mut Numbers<'_>, names: &Names, group: &mut Group) -> Option<u64> {
    let bits = numbers.take();
    let requested = numbers.take();
    let mut part = |bit: u64| (bits & bit != 0).then(|| numbers.take());
    let slop = part(has::SLOP).unwrap_or(0);
    group.alloc = part(has::ALLOC).map(|number| TraceId(number as u32));
    let [report, second] = [part(has::REPORT), part(has::SECOND_REPORT)];
    let count = part(has::COUNT).unwrap_or(1);
    // Few blocks have more fields.
    let (mut reporters, mut weight, mut variance, mut address) = ([None; 2], 1.0, 0.0, None);
    (group.type_name, group.context) = (None, None);
    if bits >= has::REPORTER {
        let mut name = |bit: u64| names.known(part(bit).map(|number| NameId(number as u32)));
        reporters = [name(has::REPORTER), name(has::SECOND_REPORTER)];
        (group.type_name, group.context) = (name(has::TYPE), name(has::CONTEXT));
        address = part(has::ADDRESS);
        if bits & has::WEIGHT != 0 {
            [weight, variance] = [numbers.take(), numbers.take()].map(f64::from_bits);
        }
    }
    let report_of = |trace: Option<u64>, reporter| trace.map(|trace| Report { trace: TraceId(trace as u32), reporter });
    group.reports = [report_of(report, reporters[0]), report_of(second, reporters[1])];
    let (weight, variance) = (count as f64 * weight, count as f64 * variance);
    group.sizes[0] = Size { requested, slop, count, rest: 0, weight, variance };
    address
}

impl SpooledLog<'_> {
    fn each_block(&mut self, mut visit: impl FnMut(&Group, Option<u64>)) -> io::Result<()> {
        let size = Size { requested: 0, slop: 0, count: 0, rest: 0, weight: 0.0, variance: 0.0 };
        let mut group = Group { alloc: None, reports: [None; 2], type_name: None, context: None, sizes: vec![size] };
        let names = &self.names;
        self.stored.blocks.each(|numbers| {
            let address = take_block(numbers, names, &mut group);
            visit(&group, address);
        })
    }
}

impl BlockSource for SpooledLog<'_> {
    type Error = io::Error;

    fn log(&self) -> &Log {
        &self.log
    }

    fn each_trace(&mut self, mut visit: impl FnMut(TraceId, &[FrameId])) -> io::Result<()> {
        let (mut frames, mut shown) = (Vec::new(), Vec::new());
        let (replaced, leading) = (&self.replaced, &self.leading);
        self.stored.traces.each(|numbers| {
            let trace = TraceId(numbers.take() as u32);
            frames.clear();
            frames.extend((0..numbers.take()).map(|_| FrameId(numbers.take() as u32)));
            if let Some(replaced) = replaced {
                shown.clear();
                shown.extend(replaced.frames(&frames));
                std::mem::swap(&mut frames, &mut shown);
            }
            let left_out = leading.as_ref().map_or(0, |leading| leading.count(&frames));
            visit(trace, &frames[left_out..]);
        })
    }

    fn each_group(&mut self, mut visit: impl FnMut(&Group)) -> io::Result<()> {
        self.each_block(|group, _| visit(group))
    }

    fn each_address(&mut self, mut visit: impl FnMut(&Group, u64)) -> io::Result<()> {
        if !self.stored.has_addresses {
            return Ok(());
        }
        self.each_block(|group, address| {
            if let Some(address) = address {
                visit(group, address);
            }
        })
    }
}
