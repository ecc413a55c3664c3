//! Captures with every call: records of Python functions that are entered and left, and of
//! allocations and frees, in order.

use std::collections::HashMap;

use super::allocator::{Effect, Heap, numbered};
use super::blocks::{Blocks, Caller};
use super::header::Header;
use super::modules::Maps;
use super::stacks::{Code, PythonFrame, RunsPython, Samples, Stack, Stacks};
use crate::gather::Gather;
use crate::input::{Input, Step, Stop, is_cut};
use crate::profile::{Event, Profile, Thread};
use crate::read_error::ReadError;

mod older;

/// The number of recent addresses that a record can refer to by index.
const RECENT: usize = 15;

/// Kinds of records without flags. In records with flags the highest set bit is the kind.
mod kind {
    pub(super) const END: u8 = 1;
    pub(super) const TIME: u8 = 2;
    pub(super) const NATIVE_FRAME: u8 = 5;
    pub(super) const MAP: u8 = 6;
    pub(super) const MODULE: u8 = 7;
    pub(super) const THREAD_NAME: u8 = 10;
    pub(super) const THREAD: u8 = 12;
    pub(super) const CODE: u8 = 14;
}

/// The previous values, from which records store differences.
#[derive(Debug, Default)]
struct Last {
    thread: u64,
    returns_to: u64,
    address: u64,
    native: u64,
    line: u64,
    /// Used in files before version 12.
    frame: u64,
}

/// The state of a thread.
#[derive(Debug, Default)]
struct Known {
    /// Counts threads from 1, in the order of their first records.
    number: u32,
    /// The steps of its Python stack, the outermost first.
    stack: Vec<u32>,
}

struct Reader<'a, 't> {
    input: Input<'a>,
    header: Header,
    gather: Gather,
    stacks: Stacks,
    samples: Samples,
    maps: Maps,
    blocks: Blocks,
    last: Last,
    /// The recent addresses, the latest first.
    recent: [u64; RECENT],
    threads: HashMap<u64, Known>,
    /// Functions by number, in files before version 12.
    older_frames: HashMap<u64, PythonFrame>,
    runs_python: RunsPython<'t>,
    take: &'t mut dyn FnMut(Event),
}

/// Reads the records after the header.
pub(super) fn read(
    input: Input<'_>,
    header: Header,
    runs_python: RunsPython<'_>,
    take: &mut dyn FnMut(Event),
) -> Result<Profile, ReadError> {
    let mut reader = Reader {
        input,
        gather: Gather::default(),
        stacks: Stacks::new(&header),
        samples: Samples::new(),
        maps: Maps::default(),
        blocks: Blocks::default(),
        last: Last::default(),
        recent: [0; RECENT],
        threads: HashMap::new(),
        older_frames: HashMap::new(),
        header,
        runs_python,
        take,
    };
    let is_cut = is_cut(reader.records())?;
    let mut profile = reader.gather.profile;
    profile.is_cut = is_cut;
    profile.duration_ns = profile.duration_ns.max(reader.blocks.time_ns);
    Ok(profile)
}

impl Reader<'_, '_> {
    /// Reads all records up to the end marker.
    fn records(&mut self) -> Step<()> {
        loop {
            let kind = self.input.byte()?;
            if kind == 0 {
                return self.only_zeros();
            }
            let is_last = if self.header.version < 12 { self.older_record(kind)? } else { self.record(kind)? };
            if is_last {
                return Ok(());
            }
        }
    }

    /// Reads the unused end of a file that was allocated in advance: zeros only.
    fn only_zeros(&mut self) -> Step<()> {
        while let Some(byte) = self.input.byte_or_end()? {
            if byte != 0 {
                return self.input.wrong("a record of kind 0");
            }
        }
        Err(Stop::Cut)
    }

    /// Reads a record. Returns true if it is the last one.
    fn record(&mut self, kind: u8) -> Step<bool> {
        match kind {
            128.. => self.call(kind)?,
            64.. => {
                let is_entry = kind & 1 != 0;
                let (code, instruction) = (self.input.varint()?, self.input.signed()?);
                self.push(PythonFrame { code, instruction, is_entry })?;
            }
            32.. => {
                self.address(kind >> 1 & 15)?;
                if self.header.has_native && kind & 1 != 0 {
                    self.input.delta(&mut self.last.native)?;
                }
            }
            16.. => self.pop(kind & 15)?,
            kind::END => return Ok(true),
            kind::TIME => self.time()?,
            kind::CODE => {
                let (number, code) = code(&mut self.input, &mut self.last.line)?;
                self.stacks.add_code(number, code);
            }
            kind::NATIVE_FRAME => self.native_frame()?,
            kind::MAP => self.map(),
            kind::MODULE => self.maps.module(&mut self.input, &mut self.gather)?,
            kind::THREAD_NAME => self.thread_name()?,
            kind::THREAD => self.thread()?,
            _ => return self.input.wrong(format!("a record of the unknown kind {kind}")),
        }
        Ok(false)
    }

    /// Reads an address, unless `at` is the index of a recent one.
    fn address(&mut self, at: u8) -> Step<u64> {
        if let Some(&address) = self.recent.get(usize::from(at)) {
            return Ok(address);
        }
        let address = self.input.delta(&mut self.last.address)? << 3;
        self.recent.rotate_right(1);
        self.recent[0] = address;
        Ok(address)
    }

    fn call(&mut self, kind: u8) -> Step<()> {
        let address = self.address(kind >> 3 & 15)?;
        let number = match kind & 7 {
            0 => self.input.byte()?,
            number => number,
        };
        let Some((effect, heap)) = numbered(number) else {
            return self.input.wrong(format!("a call of the unknown allocator {number}"));
        };
        if effect == Effect::Frees {
            return self.take(effect, heap, address, 0, 0);
        }
        let native = if self.header.has_native { self.input.delta(&mut self.last.native)? } else { 0 };
        let bytes = self.input.varint()?;
        self.take(effect, heap, address, bytes, native)
    }

    fn take(&mut self, effect: Effect, heap: Heap, address: u64, bytes: u64, native: u64) -> Step<()> {
        let Some(thread) = self.threads.get(&self.last.thread) else { return self.no_thread() };
        let sample = match effect {
            Effect::Frees | Effect::Unmaps => 0,
            Effect::Allocates | Effect::Maps => {
                let is_main = self.last.thread == self.header.main_thread;
                let skipped = if is_main { self.header.skipped } else { 0 };
                let stack = Stack { python: thread.stack.last().copied().unwrap_or(0), native, skipped };
                let (stacks, maps, gather) = (&mut self.stacks, &self.maps, &mut self.gather);
                let sample = self.samples.sample((stack, heap.label()), stacks, maps, gather, self.runs_python);
                sample.or_else(|reason| self.input.wrong(reason))?
            }
        };
        let caller = Caller { thread: thread.number, take: &mut *self.take };
        self.blocks.call(effect, address, bytes, sample, caller);
        Ok(())
    }

    fn push(&mut self, frame: PythonFrame) -> Step<()> {
        let Some(thread) = self.threads.get_mut(&self.last.thread) else { return self.no_thread() };
        let frame = self.stacks.frame(frame);
        let caller = thread.stack.last().copied().unwrap_or(0);
        thread.stack.push(self.stacks.push(caller, frame));
        Ok(())
    }

    /// Leaves one function, and `more` of its callers.
    fn pop(&mut self, more: u8) -> Step<()> {
        let Some(thread) = self.threads.get_mut(&self.last.thread) else { return self.no_thread() };
        match thread.stack.len().checked_sub(usize::from(more) + 1) {
            Some(left) => thread.stack.truncate(left),
            None => return self.input.wrong("more functions are left than were entered"),
        }
        Ok(())
    }

    fn no_thread<T>(&self) -> Step<T> {
        self.input.wrong("a record of no thread")
    }

    fn time(&mut self) -> Step<()> {
        let (_resident, ms) = (self.input.varint()?, self.input.varint()?);
        self.blocks.time_ns = self.blocks.time_ns.max(ms.saturating_mul(1_000_000));
        Ok(())
    }

    fn native_frame(&mut self) -> Step<()> {
        let returns_to = self.input.delta(&mut self.last.returns_to)?;
        let caller = self.input.delta(&mut self.last.native)?;
        self.stacks.add_native(returns_to, caller).or_else(|reason| self.input.wrong(reason))
    }

    fn map(&mut self) {
        let before = self.maps.begin();
        self.samples.replaced(before);
    }

    fn thread(&mut self) -> Step<()> {
        self.last.thread = self.input.u64()?;
        let number = self.threads.len() as u32 + 1;
        self.threads.entry(self.last.thread).or_insert(Known { number, stack: Vec::new() });
        Ok(())
    }

    fn thread_name(&mut self) -> Step<()> {
        let name = self.input.text()?;
        let Some(thread) = self.threads.get(&self.last.thread) else { return self.no_thread() };
        let number = thread.number;
        let threads = &mut self.gather.profile.threads;
        threads.retain(|thread: &Thread| thread.number != number);
        threads.push(Thread { number, name });
        Ok(())
    }
}

/// Reads a code object and its number.
pub(super) fn code(input: &mut Input<'_>, last_line: &mut u64) -> Step<(u64, Code)> {
    let number = input.varint()?;
    let (function, file) = (input.text()?, input.text()?);
    let first_line = input.delta(last_line)? as i32;
    let length = input.varint()?;
    let table = input.bytes(length)?;
    Ok((number, Code { function, file, first_line, table }))
}
