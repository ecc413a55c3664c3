//! Captures of `memray run --aggregate`: the live blocks of each stack at the high-water mark and
//! at the end.

use std::collections::HashMap;

use super::allocator::{Heap, numbered, numbered_before_12};
use super::events::code;
use super::header::Header;
use super::modules::Maps;
use super::stacks::{Code, PythonFrame, RunsPython, Stack, Stacks};
use crate::gather::{Gather, Loaded};
use crate::input::{Input, Step, is_cut};
use crate::profile::{Amount, Known, Point, Profile};
use crate::read_error::ReadError;

mod kind {
    pub(super) const SNAPSHOT: u8 = 1;
    pub(super) const AMOUNTS: u8 = 2;
    pub(super) const STEP: u8 = 3;
    pub(super) const FRAME: u8 = 4;
    pub(super) const NATIVE_FRAME: u8 = 5;
    pub(super) const MAP: u8 = 6;
    pub(super) const MODULE: u8 = 7;
    pub(super) const THREAD_NAME: u8 = 10;
    pub(super) const THREAD: u8 = 12;
    pub(super) const OBJECT: u8 = 13;
    pub(super) const CODE: u8 = 14;
    pub(super) const END: u8 = 15;
}

struct Reader<'a, 't> {
    input: Input<'a>,
    header: Header,
    gather: Gather,
    stacks: Stacks,
    maps: Maps,
    /// The maps before the latest one, which is in `maps`. The first one is empty.
    before: Vec<Loaded>,
    last_returns_to: u64,
    last_native: u64,
    last_line: u64,
    /// Frames by number, in files before version 12.
    older_frames: HashMap<u64, u32>,
    runs_python: RunsPython<'t>,
}

/// Reads the records after the header.
pub(super) fn read(input: Input<'_>, header: Header, runs_python: RunsPython<'_>) -> Result<Profile, ReadError> {
    let mut reader = Reader {
        input,
        gather: Gather::default(),
        stacks: Stacks::new(&header),
        maps: Maps::default(),
        before: Vec::new(),
        last_returns_to: 0,
        last_native: 0,
        last_line: 0,
        older_frames: HashMap::new(),
        header,
        runs_python,
    };
    let is_cut = is_cut(reader.records())?;
    let mut profile = reader.gather.profile;
    profile.is_cut = is_cut;
    profile.known = Known { peak: true, end: true, ..Known::NONE };
    let most = profile.timeline.iter().max_by_key(|point| point.live.bytes);
    profile.peak_ns = most.map_or(0, |point| point.time_ns);
    Ok(profile)
}

impl Reader<'_, '_> {
    fn records(&mut self) -> Step<()> {
        loop {
            match self.input.byte()? {
                kind::SNAPSHOT => self.snapshot()?,
                kind::AMOUNTS => self.amounts()?,
                kind::STEP => self.step()?,
                kind::FRAME => self.frame()?,
                kind::NATIVE_FRAME => {
                    let returns_to = self.input.delta(&mut self.last_returns_to)?;
                    let caller = self.input.delta(&mut self.last_native)?;
                    let added = self.stacks.add_native(returns_to, caller);
                    added.or_else(|reason| self.input.wrong(reason))?;
                }
                kind::MAP => {
                    let before = self.maps.begin();
                    self.before.push(before);
                }
                kind::MODULE => self.maps.module(&mut self.input, &mut self.gather)?,
                kind::THREAD_NAME => _ = self.input.text()?,
                kind::THREAD => _ = self.input.u64()?,
                kind::OBJECT => {
                    self.input.varint()?;
                    if self.header.has_native {
                        self.input.varint()?;
                    }
                }
                kind::CODE if self.header.version >= 12 => {
                    let (number, code) = code(&mut self.input, &mut self.last_line)?;
                    self.stacks.add_code(number, code);
                }
                kind::END => return Ok(()),
                unknown => return self.input.wrong(format!("a record of the unknown kind {unknown}")),
            }
        }
    }

    /// Reads the live bytes at a time.
    fn snapshot(&mut self) -> Step<()> {
        let (ms, _resident, bytes) = (self.input.u64()?, self.input.u64()?, self.input.u64()?);
        let timeline = &mut self.gather.profile.timeline;
        let time_ns = ms.saturating_sub(self.header.start_ms).saturating_mul(1_000_000);
        let time_ns = timeline.last().map_or(time_ns, |last: &Point| last.time_ns.max(time_ns));
        timeline.push(Point { time_ns, live: Amount { blocks: 0, bytes } });
        Ok(())
    }

    fn frame(&mut self) -> Step<()> {
        if self.header.version < 12 {
            let number = self.input.u64()?;
            let (function, file) = (self.input.text()?, self.input.text()?);
            let (first_line, is_entry) = (self.input.u32()? as i32, self.input.flag()?);
            self.stacks.add_code(number, Code { function, file, first_line, table: Vec::new() });
            let frame = self.stacks.frame(PythonFrame { code: number, instruction: 0, is_entry });
            self.older_frames.insert(number, frame);
            return Ok(());
        }
        let (number, code, instruction) = (self.input.varint()?, self.input.varint()?, self.input.signed()?);
        let is_entry = self.input.flag()?;
        let frame = self.stacks.frame(PythonFrame { code, instruction, is_entry });
        if u64::from(frame) == number { Ok(()) } else { self.input.wrong("a frame has the number of another one") }
    }

    /// Reads a node of the tree of Python stacks.
    fn step(&mut self) -> Step<()> {
        let (frame, caller) = if self.header.version < 12 {
            let (number, caller) = (self.input.u64()?, self.input.u32()?);
            (self.older_frames.get(&number).copied(), caller.into())
        } else {
            let (number, caller) = (self.input.varint()?, self.input.varint()?);
            (self.stacks.has_frame(number), caller)
        };
        match (frame, self.stacks.has_node(caller)) {
            (Some(frame), Some(caller)) => _ = self.stacks.push(caller, frame),
            _ => return self.input.wrong("a step of a stack that has not come yet"),
        }
        Ok(())
    }

    /// Reads the totals of a stack.
    fn amounts(&mut self) -> Step<()> {
        let (thread, number) = (self.input.u64()?, self.input.byte()?);
        // The record has the layout of the structure in memory, padding included.
        self.input.bytes(7)?;
        let (native, python, generation) = (self.input.u64()?, self.input.u64()?, self.input.u64()?);
        let [peak_blocks, end_blocks] = [self.input.u64()?, self.input.u64()?];
        let [peak_bytes, end_bytes] = [self.input.u64()?, self.input.u64()?];
        let call = if self.header.version < 12 { numbered_before_12(number) } else { numbered(number) };
        let Some((_, heap)) = call else {
            return self.input.wrong(format!("a call of the unknown allocator {number}"));
        };
        let Some(python) = self.stacks.has_node(python) else {
            return self.input.wrong("a stack that has not come yet");
        };
        let skipped = if thread == self.header.main_thread { self.header.skipped } else { 0 };
        let generation = usize::try_from(generation).unwrap_or(usize::MAX);
        let loaded = self.before.get(generation).unwrap_or(&self.maps.loaded);
        let stack = Stack { python, native, skipped };
        let places = self.stacks.places(stack, loaded, &mut self.gather, self.runs_python);
        let places = places.or_else(|reason| self.input.wrong(reason))?.places;
        let amounts = self.gather.amounts(places, labels(heap));
        amounts.peak.add(Amount { blocks: peak_blocks, bytes: peak_bytes });
        amounts.end.add(Amount { blocks: end_blocks, bytes: end_bytes });
        Ok(())
    }
}

fn labels(heap: Heap) -> Vec<(std::borrow::Cow<'static, str>, String)> {
    heap.label().map(|heap| ("heap".into(), heap.into())).into_iter().collect()
}
