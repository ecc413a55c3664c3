//! The data file of heaptrack, version 3, which `heaptrack_print` and `heaptrack_gui` open.
//!
//! Lines of text, each with a letter in front; all numbers are hexadecimal. Tables of strings
//! (`s`), places (`i`), stacks (`t`) and pairs of size and stack (`a`) are written when they are
//! needed first; `+` and `-` refer to such a pair. Readers tell from the file's name if it is
//! compressed (`.gz`, `.zst`); the output of this module is not.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufWriter, Write};

mod read;

use crate::calls::on_one_line;
use crate::events::EventWriter;
use crate::holds::Holds;
use crate::profile::{Event, EventKind, Frame, Known, Profile};

pub use read::{detects, read};

/// The format has a place for every event.
pub const HOLDS: Holds = Holds {
    amounts: Known { allocated: true, temporaries: true, peak: true, end: true, ..Known::NONE },
    blocks: true,
    names: true,
    files: true,
    lines: true,
    timeline: true,
    ..Holds::STACKS
};

/// The version of heaptrack that tools see as the writer of the file: 1.4.0.
const TOOL_VERSION: u32 = 0x01_04_00;
const FILE_VERSION: u32 = 3;
/// The interval at which the time is written, the same as heaptrack's.
const TICK_MS: u64 = 10;

/// Writes events. Takes memory in proportion to the stacks and their sizes, and to the threads.
///
/// # Temporary allocations
///
/// To readers an allocation is temporary if its free follows directly in the file; to us, if its
/// thread did nothing in between. So an allocation is held back, by 10 ms at most, until its thread
/// goes on, or until it would be missing in the peak. Readers see fewer of the temporary
/// allocations that live longer than that while other threads are at work.
pub struct Writer<'o> {
    lines: Lines<'o>,
    /// The latest event of each thread, if it was an allocation of a block that is live: its block.
    latest: Map<Thread, Block>,
    /// Allocations that are held back, with their place in the order.
    held_back: Map<Block, (u64, Pair)>,
    events: u64,
    /// The live bytes, including those held back.
    live: u64,
    /// The most live bytes so far; if the peak is known, that peak from the beginning.
    peak: u64,
}

/// A table that is looked up at every event.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
/// A process and a thread.
type Thread = (usize, u32);
/// A process and an address.
type Block = (usize, u64);
/// A size, and the allocating stack: an index of the profile's samples.
type Pair = (u64, usize);

impl<'o> Writer<'o> {
    /// Creates a writer into `out`. `peak`: the most bytes that will be live, or 0 if not known:
    /// then fewer allocations can be held back.
    pub fn new(out: &'o mut dyn Write, peak: u64) -> Self {
        let lines = Lines {
            out: BufWriter::with_capacity(BUFFER, out),
            tables: Tables::default(),
            has_begun: false,
            time_ms: 0,
            latest: None,
        };
        Writer { lines, latest: Map::default(), held_back: Map::default(), events: 0, live: 0, peak }
    }

    fn write_held_back(&mut self, profile: &Profile, block: Block) -> io::Result<()> {
        match self.held_back.remove(&block) {
            Some((_, pair)) => self.lines.allocation(profile, pair),
            None => Ok(()),
        }
    }

    fn write_all_held_back(&mut self, profile: &Profile) -> io::Result<()> {
        let mut all: Vec<(u64, Pair)> = self.held_back.drain().map(|(_, held)| held).collect();
        all.sort_unstable();
        all.into_iter().try_for_each(|(_, pair)| self.lines.allocation(profile, pair))
    }
}

impl EventWriter for Writer<'_> {
    fn event(&mut self, profile: &Profile, event: &Event) -> io::Result<()> {
        let (thread, block) = ((event.process, event.thread), (event.process, event.address));
        let time_ms = event.time_ns / 1_000_000;
        if time_ms >= self.lines.time_ms + TICK_MS {
            self.write_all_held_back(profile)?;
        }
        self.lines.time(profile, time_ms)?;
        self.events += 1;
        let latest = self.latest.remove(&thread);
        match event.kind {
            EventKind::Allocated { bytes, sample } => {
                if let Some(latest) = latest {
                    self.write_held_back(profile, latest)?;
                }
                // The address's earlier block was never freed.
                self.write_held_back(profile, block)?;
                self.latest.insert(thread, block);
                self.live = self.live.saturating_add(bytes);
                self.held_back.insert(block, (self.events, (bytes, sample)));
                if self.live >= self.peak {
                    self.peak = self.live;
                    self.write_all_held_back(profile)?;
                }
                Ok(())
            }
            EventKind::Freed { bytes, sample } => {
                let is_temporary = latest == Some(block);
                if let Some(latest) = latest {
                    self.write_held_back(profile, latest)?;
                }
                self.write_held_back(profile, block)?;
                self.live = self.live.saturating_sub(bytes);
                self.lines.free(profile, (bytes, sample), is_temporary)
            }
        }
    }

    fn interrupted(&mut self, profile: &Profile, process: usize, thread: u32) -> io::Result<()> {
        match self.latest.remove(&(process, thread)) {
            Some(block) => self.write_held_back(profile, block),
            None => Ok(()),
        }
    }

    fn finish(&mut self, profile: &Profile) -> io::Result<()> {
        self.write_all_held_back(profile)?;
        self.lines.begin(profile)?;
        self.lines.time(profile, (profile.duration_ns / 1_000_000).next_multiple_of(TICK_MS))?;
        self.lines.out.flush()
    }
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("events", &self.events).finish_non_exhaustive()
    }
}

/// The output. Not a type parameter: the users of this crate would compile all of this once more.
type Buffered<'o> = BufWriter<&'o mut dyn Write>;

/// The file.
struct Lines<'o> {
    out: Buffered<'o>,
    tables: Tables,
    has_begun: bool,
    time_ms: u64,
    /// The number in the previous line, if that was an allocation.
    latest: Option<u32>,
}

impl Lines<'_> {
    fn begin(&mut self, profile: &Profile) -> io::Result<()> {
        if !std::mem::replace(&mut self.has_begun, true) {
            writeln!(self.out, "v {TOOL_VERSION:x} {FILE_VERSION:x}")?;
            writeln!(self.out, "X {}", on_one_line(&profile.command))?;
            writeln!(self.out, "c 0")?;
        }
        Ok(())
    }

    fn time(&mut self, profile: &Profile, time_ms: u64) -> io::Result<()> {
        self.begin(profile)?;
        if time_ms >= self.time_ms + TICK_MS {
            self.time_ms = time_ms;
            writeln!(self.out, "c {time_ms:x}")?;
        }
        Ok(())
    }

    fn allocation(&mut self, profile: &Profile, pair: Pair) -> io::Result<()> {
        let number = self.tables.pair(&mut self.out, profile, pair, false)?;
        self.latest = Some(number);
        write_line(&mut self.out, b'+', [number.into()])
    }

    fn free(&mut self, profile: &Profile, pair: Pair, is_temporary: bool) -> io::Result<()> {
        let mut number = self.tables.pair(&mut self.out, profile, pair, false)?;
        // Another block of the same size and stack was allocated just now, or another thread frees
        // this one: the same number would mark it as temporary.
        if self.latest.take() == Some(number) && !is_temporary {
            number = self.tables.pair(&mut self.out, profile, pair, true)?;
        }
        write_line(&mut self.out, b'-', [number.into()])
    }
}

/// The size of the text buffer: most lines have a few bytes, and there is one for each event.
const BUFFER: usize = 64 << 10;

/// Writes a line of numbers.
#[inline]
fn write_line<const N: usize>(out: &mut Buffered<'_>, kind: u8, numbers: [u64; N]) -> io::Result<()> {
    // A space and sixteen digits for each number.
    let (mut line, mut length) = ([kind; 2 + 2 * 17], 1);
    for number in numbers {
        line[length] = b' ';
        length += 1;
        let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
        for at in (0..digits).rev() {
            line[length] = b"0123456789abcdef"[(number >> (4 * at)) as usize & 15];
            length += 1;
        }
    }
    line[length] = b'\n';
    out.write_all(&line[..=length])
}

/// The numbers that were given out. Those of strings, places and stacks begin with 1; those of
/// pairs with 0.
#[derive(Debug, Default)]
struct Tables {
    strings: HashMap<String, u32>,
    /// By index in the profile.
    places: HashMap<usize, u32>,
    /// By place and calling stack.
    stacks: HashMap<(u32, u32), u32>,
    /// By index in the profile.
    samples: Vec<Option<u32>>,
    pairs: Map<PairKey, u32>,
    /// The second numbers of pairs that have one.
    pairs_again: Map<PairKey, u32>,
}

/// The low and the high half of a size, and the number of a stack: an entry of the table, of which
/// a file may have millions, takes 16 bytes.
type PairKey = (u32, u32, u32);

/// The index for a stack about which nothing is known.
const NO_PLACE: usize = usize::MAX;

impl Tables {
    /// Returns the number of a pair; `again`: its second one, other than its first.
    fn pair(
        &mut self,
        out: &mut Buffered<'_>,
        profile: &Profile,
        (bytes, sample): Pair,
        again: bool,
    ) -> io::Result<u32> {
        let stack = self.sample(out, profile, sample)?;
        let next = (self.pairs.len() + self.pairs_again.len()) as u32 + 1;
        let numbers = if again { &mut self.pairs_again } else { &mut self.pairs };
        let number = *numbers.entry((bytes as u32, (bytes >> 32) as u32, stack)).or_insert(next);
        if number != next {
            return Ok(number);
        }
        // Readers take a free of number 0 for a temporary one if it follows another free, so no
        // pair gets number 0.
        if next == 1 {
            write_line(out, b'a', [0, stack.into()])?;
        }
        write_line(out, b'a', [bytes, stack.into()])?;
        Ok(number)
    }

    fn sample(&mut self, out: &mut Buffered<'_>, profile: &Profile, sample: usize) -> io::Result<u32> {
        if let Some(&Some(known)) = self.samples.get(sample) {
            return Ok(known);
        }
        let locations = profile.samples.get(sample).map_or(&[][..], |sample| &sample.locations);
        let mut stack = 0;
        for &location in locations.iter().rev().filter(|&&at| at < profile.locations.len()) {
            stack = self.stack(out, profile, location, stack)?;
        }
        if stack == 0 {
            stack = self.stack(out, profile, NO_PLACE, 0)?;
        }
        if sample < profile.samples.len() {
            self.samples.resize(self.samples.len().max(sample + 1), None);
            self.samples[sample] = Some(stack);
        }
        Ok(stack)
    }

    fn stack(&mut self, out: &mut Buffered<'_>, profile: &Profile, location: usize, outside: u32) -> io::Result<u32> {
        let place = self.place(out, profile, location)?;
        if let Some(&number) = self.stacks.get(&(place, outside)) {
            return Ok(number);
        }
        let number = self.stacks.len() as u32 + 1;
        self.stacks.insert((place, outside), number);
        write_line(out, b't', [place.into(), outside.into()])?;
        Ok(number)
    }

    fn place(&mut self, out: &mut Buffered<'_>, profile: &Profile, location: usize) -> io::Result<u32> {
        if let Some(&number) = self.places.get(&location) {
            return Ok(number);
        }
        let unknown = [Frame { full_name: "[no stack]".to_owned(), known: true, ..Frame::default() }];
        let (address, module, frames) = match profile.locations.get(location) {
            Some(it) => (it.address, it.module.and_then(|module| profile.modules.get(module)), &it.frames[..]),
            None => (0, None, &unknown[..]),
        };
        let module = self.string(out, module.map_or("", |module| &module.path))?;
        let mut line = format!("i {address:x} {module:x}");
        // The innermost first. If no name is known, readers show the address.
        for frame in frames.iter().filter(|frame| frame.known || address == 0) {
            let function = self.string(out, &frame.full_name)?;
            let file = self.string(out, &frame.file)?;
            line.push_str(&format!(" {function:x} {file:x} {:x}", frame.line));
        }
        writeln!(out, "{line}")?;
        let number = self.places.len() as u32 + 1;
        self.places.insert(location, number);
        Ok(number)
    }

    fn string(&mut self, out: &mut Buffered<'_>, text: &str) -> io::Result<u32> {
        if text.is_empty() {
            return Ok(0);
        }
        if let Some(&number) = self.strings.get(text) {
            return Ok(number);
        }
        let line = on_one_line(text);
        writeln!(out, "s {:x} {line}", line.len())?;
        let number = self.strings.len() as u32 + 1;
        self.strings.insert(text.to_owned(), number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests;
