//! The Firefox Profiler's processed profiles, which <https://profiler.firefox.com> opens.
//!
//! A thread for each process, with all its allocations and frees ("balanced native allocations",
//! from which the profiler shows the bytes retained in any range of time), and a counter with the
//! live bytes over time.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use crate::calls::on_one_line;
use crate::events::EventWriter;
use crate::holds::Holds;
use crate::profile::{Event, EventKind, Known, Process, Profile};

mod blocks;
mod json;
mod read;

use blocks::{Block, Blocks};
use json::Tables;
pub use read::{detects, read};

/// The format has a place for every event, in bytes.
pub const HOLDS: Holds = Holds {
    amounts: Known { allocated: true, peak: true, end: true, ..Known::NONE },
    names: true,
    files: true,
    lines: true,
    modules: true,
    timeline: true,
    ..Holds::STACKS
};

/// Gathers events, and writes the file at the end. Takes some 100 bytes for each block that is live
/// at once, and as much for each of `blocks_max` others.
///
/// # Long recordings
///
/// If there are more than `blocks_max` blocks, times become coarser, by as many steps as it takes:
/// blocks of the same stack that were allocated in the same interval, and freed in the same
/// interval, are written as one with the sum of their bytes. So all sums of bytes stay the same in
/// each range that begins and ends with an interval.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    blocks: Blocks,
    /// The live blocks, by process and address.
    live: HashMap<(usize, u64), Block>,
    /// The time of the previous event: times are made distinct.
    time_ns: u64,
}

impl<W: Write> Writer<W> {
    /// Creates a writer into `out`.
    pub fn new(out: W, blocks_max: usize) -> Self {
        Writer { out, blocks: Blocks::new(blocks_max), live: HashMap::new(), time_ns: 0 }
    }
}

impl<W: Write> EventWriter for Writer<W> {
    fn event(&mut self, _: &Profile, event: &Event) -> io::Result<()> {
        // Recordings round times, but the order of events is known.
        self.time_ns = event.time_ns.max(self.time_ns + 1);
        let key = (event.process, event.address);
        let before = match event.kind {
            EventKind::Allocated { bytes, sample } => {
                let (process, thread) = (event.process, event.thread);
                self.live.insert(key, Block { process, thread, sample, bytes, from_ns: self.time_ns, to_ns: None })
            }
            EventKind::Freed { .. } => self.live.remove(&key),
        };
        if let Some(block) = before {
            self.blocks.add(Block { to_ns: Some(self.time_ns), ..block });
        }
        Ok(())
    }

    fn finish(&mut self, profile: &Profile) -> io::Result<()> {
        let mut live: Vec<Block> = self.live.drain().map(|(_, block)| block).collect();
        live.sort_unstable_by_key(|block| (block.from_ns, block.process));
        live.into_iter().for_each(|block| self.blocks.add(block));
        let processes = processes(profile);
        let rows = rows(&mut self.blocks, processes.len());
        json::write(profile, &processes, &Tables::new(profile), &rows, &mut self.out)?;
        self.out.flush()
    }

    fn merged(&self) -> Option<String> {
        let interval = self.blocks.interval_ns()?;
        Some(format!(
            "more than {} blocks: blocks of one stack that were allocated in the same {} ms, and freed in the same, are written as one",
            self.blocks.most(),
            interval / 1_000_000
        ))
    }
}

/// Returns the processes of the profile; if it names none, its own process.
fn processes(profile: &Profile) -> Cow<'_, [Process]> {
    if !profile.processes.is_empty() {
        return (&profile.processes[..]).into();
    }
    let program = profile.modules.first().map_or(&profile.command, |program| &program.path);
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    vec![Process { pid: profile.pid, name, timeline: profile.timeline.clone(), ..Process::default() }].into()
}

/// A row of the table of allocations.
#[derive(Clone, Copy, Debug)]
struct Row {
    time_ns: u64,
    thread: u32,
    sample: usize,
    /// The bytes; negative for a free.
    bytes: i64,
    /// An address that no other block of the process has.
    address: u64,
}

/// Returns the rows of each process, in the order of time.
fn rows(blocks: &mut Blocks, processes: usize) -> Vec<Vec<Row>> {
    let interval = blocks.interval_ns();
    let mut rows: Vec<Vec<Row>> = vec![Vec::new(); processes];
    for (number, block) in (1..).zip(blocks.finish()) {
        let Some(rows) = rows.get_mut(block.process).filter(|_| block.bytes > 0) else { continue };
        let Block { thread, sample, .. } = block;
        let bytes = i64::try_from(block.bytes).unwrap_or(i64::MAX);
        // In an interval, earlier blocks are freed first, and then new ones are allocated.
        let (from, to) = match interval {
            None => (block.from_ns, block.to_ns),
            Some(interval) => {
                let part = if block.to_ns == Some(block.from_ns) { interval / 4 * 3 } else { interval / 4 };
                (block.from_ns + interval / 2, block.to_ns.map(|to| to + part))
            }
        };
        rows.push(Row { time_ns: from, thread, sample, bytes, address: number });
        rows.extend(to.map(|time_ns| Row { time_ns, thread, sample, bytes: -bytes, address: number }));
    }
    for rows in &mut rows {
        rows.sort_unstable_by_key(|row| (row.time_ns, Reverse(row.bytes), row.address));
    }
    rows
}

/// Returns the command without characters that would break a line.
fn command(profile: &Profile) -> String {
    on_one_line(&profile.command).into_owned()
}

#[cfg(test)]
mod tests;
