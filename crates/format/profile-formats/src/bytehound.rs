//! Files of bytehound (`memory-profiling_*.dat`): every allocation and free of a program.
//!
//! A file consists of blocks (`Input::blocks`) with events (`common/src/event.rs` of bytehound
//! 0.11). An event is a kind in 32 bits, and fields that depend on it, little-endian. Events of a
//! block of memory come in order, but those of different blocks do not: bytehound keeps an
//! allocation back for a while, to leave out short-lived ones if it is told to. They are sorted by
//! time here.
//!
//! Stacks are addresses. The list of mappings is in the file, and so are the programs and
//! libraries, of which the build IDs are read. Files of `bytehound postprocess` have names instead.
//!
//! Mappings (`--gather-maps`) are left out, and so are the groups of allocations that
//! `bytehound strip` removed.

use blocks::Blocks;
use header::Header;
use stacks::Stacks;

use crate::input::{Input, Step, is_cut};
use crate::profile::{Event, Known, Profile};
use crate::read_error::ReadError;

mod blocks;
mod header;
mod stacks;
#[cfg(test)]
mod tests;

/// Kinds of events, in the order in which bytehound declares them.
mod kind {
    pub(super) const HEADER: u32 = 0;
    pub(super) const ALLOC: u32 = 1;
    pub(super) const REALLOC: u32 = 2;
    pub(super) const FREE: u32 = 3;
    pub(super) const FILE: u32 = 4;
    pub(super) const BACKTRACE: u32 = 5;
    pub(super) const MEMORY_DUMP: u32 = 6;
    pub(super) const MARKER: u32 = 7;
    pub(super) const MEMORY_MAP: u32 = 8;
    pub(super) const MEMORY_UNMAP: u32 = 9;
    pub(super) const MALLOPT: u32 = 10;
    pub(super) const ENVIRON: u32 = 11;
    pub(super) const WALL_CLOCK: u32 = 12;
    pub(super) const PARTIAL_BACKTRACE: u32 = 13;
    pub(super) const STRING: u32 = 14;
    pub(super) const DECODED_FRAME: u32 = 15;
    pub(super) const DECODED_BACKTRACE: u32 = 16;
    pub(super) const GROUP_STATISTICS: u32 = 17;
    pub(super) const PARTIAL_BACKTRACE_32: u32 = 18;
    pub(super) const BACKTRACE_32: u32 = 19;
    pub(super) const ALLOC_EX: u32 = 20;
    pub(super) const REALLOC_EX: u32 = 21;
    pub(super) const FREE_EX: u32 = 22;
    pub(super) const FILE_64: u32 = 23;
    pub(super) const ADD_REGION: u32 = 24;
    pub(super) const REMOVE_REGION: u32 = 25;
    pub(super) const UPDATE_REGION_USAGE: u32 = 26;
    pub(super) const MEMORY_MAP_EX: u32 = 27;
}

/// True if a file begins as one: its first block begins with a header. The first 64 KiB of a file
/// are enough.
pub fn detects(bytes: &[u8]) -> bool {
    Header::read(&mut Input::blocks(bytes)).is_ok() || header::is_in_cut_block(bytes)
}

/// Reads a file. Passes each allocation and free to `take`, in the order of time, and returns the
/// profile with their stacks. A reallocation is a free and an allocation.
///
/// Takes memory in proportion to the events. A file that ends too early is read to its end, and the
/// profile [is cut](Profile::is_cut).
///
/// # Errors
///
/// The file is damaged, or it was recorded on a big-endian machine.
pub fn read(bytes: &[u8], take: &mut dyn FnMut(Event)) -> Result<Profile, ReadError> {
    let mut input = Input::blocks(bytes);
    let header = Header::read(&mut input)?;
    let mut reader = Reader { input, stacks: Stacks::default(), blocks: Blocks::default(), header };
    let is_cut = is_cut(reader.events())?;
    let Reader { header, stacks, blocks, .. } = reader;
    let mut profile = stacks.finish();
    profile.duration_ns = blocks.finish(header.start_us, take);
    profile.start_unix_ns = header.start_unix_ns;
    (profile.command, profile.pid) = (header.command, header.pid);
    profile.known = Known { allocated: true, temporaries: true, live: true, peak: true, end: true, ..Known::NONE };
    profile.is_cut = is_cut;
    Ok(profile)
}

struct Reader<'a> {
    input: Input<'a>,
    header: Header,
    stacks: Stacks,
    blocks: Blocks,
}

/// An address, or the number that bytehound gives a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Address(u64),
    Number { thread: u64, allocation: u64 },
}

impl Reader<'_> {
    fn events(&mut self) -> Step<()> {
        while let Some(first) = self.input.byte_or_end()? {
            let rest = self.input.bytes(3)?;
            self.event(u32::from_le_bytes([first, rest[0], rest[1], rest[2]]))?;
        }
        Ok(())
    }

    fn event(&mut self, kind: u32) -> Step<()> {
        let Reader { input, stacks, .. } = self;
        match kind {
            // The same header again, after `bytehound` has merged parts of a stream.
            kind::HEADER => Header::parse(input).map(drop),
            kind::ALLOC | kind::REALLOC | kind::ALLOC_EX | kind::REALLOC_EX => self.allocation(kind),
            kind::FREE | kind::FREE_EX => self.free(kind),
            kind::FILE => stacks.file(input, false),
            kind::FILE_64 => stacks.file(input, true),
            kind::BACKTRACE => stacks.backtrace(input, size_of::<u64>()),
            kind::BACKTRACE_32 => stacks.backtrace(input, size_of::<u32>()),
            kind::PARTIAL_BACKTRACE => stacks.partial_backtrace(input, size_of::<u64>()),
            kind::PARTIAL_BACKTRACE_32 => stacks.partial_backtrace(input, size_of::<u32>()),
            kind::STRING => stacks.string(input),
            kind::DECODED_FRAME => stacks.decoded_frame(input),
            kind::DECODED_BACKTRACE => stacks.decoded_backtrace(input),
            kind::MEMORY_DUMP => {
                input.skip(16)?;
                skip_sized(input)
            }
            kind::MARKER => input.skip(4),
            kind::MEMORY_MAP => input.skip(64),
            kind::MEMORY_UNMAP => input.skip(36),
            kind::MALLOPT => input.skip(32),
            kind::ENVIRON => skip_sized(input),
            kind::WALL_CLOCK => input.skip(24),
            kind::GROUP_STATISTICS => input.skip(56),
            kind::ADD_REGION => mappings::added(input),
            kind::REMOVE_REGION => mappings::removed(input),
            kind::UPDATE_REGION_USAGE => mappings::used(input),
            kind::MEMORY_MAP_EX => mappings::mapped(input),
            _ => input.wrong(format!("an event of the unknown kind {kind}")),
        }
    }

    /// Reads an allocation, or a reallocation.
    fn allocation(&mut self, kind: u32) -> Step<()> {
        let input = &mut self.input;
        let number = if matches!(kind, kind::ALLOC_EX | kind::REALLOC_EX) { number(input)? } else { None };
        let time_us = input.u64()?;
        let is_reallocation = matches!(kind, kind::REALLOC | kind::REALLOC_EX);
        let old_address = if is_reallocation { Some(input.u64()?) } else { None };
        let (address, bytes, backtrace) = (input.u64()?, input.u64()?, input.u64()?);
        let (thread, _flags, _extra) = (input.u32()?, input.u32()?, input.u32()?);
        let _preceding_free = input.u64()?;
        let Some(sample) = self.stacks.sample(backtrace) else {
            return self.input.wrong("an allocation by a stack that has not come yet");
        };
        let key = |address| number.unwrap_or(Key::Address(address));
        if let Some(old) = old_address {
            self.blocks.free(key(old), time_us, thread);
        }
        self.blocks.allocate(key(address), time_us, thread, bytes, sample);
        Ok(())
    }

    fn free(&mut self, kind: u32) -> Step<()> {
        let input = &mut self.input;
        let number = if kind == kind::FREE_EX { number(input)? } else { None };
        let (time_us, address, _backtrace, thread) = (input.u64()?, input.u64()?, input.u64()?, input.u32()?);
        self.blocks.free(number.unwrap_or(Key::Address(address)), time_us, thread);
        Ok(())
    }
}

/// Reads the number of a block; `None` if bytehound did not give it one.
fn number(input: &mut Input<'_>) -> Step<Option<Key>> {
    let (thread, allocation) = (input.u64()?, input.u64()?);
    let has_none = matches!((thread, allocation), (0, 0) | (u64::MAX, u64::MAX));
    Ok((!has_none).then_some(Key::Number { thread, allocation }))
}

/// Passes over bytes that are preceded by their number.
fn skip_sized(input: &mut Input<'_>) -> Step<()> {
    let length = input.u32()?;
    input.skip(length.into())
}

/// Passes over events about the mappings of the process.
mod mappings {
    use super::{Input, Step};

    pub(super) fn added(input: &mut Input<'_>) -> Step<()> {
        region(input)?;
        numbers(input, 2)?;
        input.skip(12)?;
        let name = input.prefix_varint()?;
        input.skip(name)
    }

    pub(super) fn removed(input: &mut Input<'_>) -> Step<()> {
        region(input)?;
        let sources = input.prefix_varint()?;
        (0..sources).try_for_each(|_| {
            input.skip(8)?;
            numbers(input, 1)?;
            source(input)
        })
    }

    pub(super) fn used(input: &mut Input<'_>) -> Step<()> {
        region(input)?;
        numbers(input, 6)
    }

    pub(super) fn mapped(input: &mut Input<'_>) -> Step<()> {
        numbers(input, 1)?;
        input.skip(8)?;
        numbers(input, 2)?;
        input.skip(12)?;
        numbers(input, 1)?;
        source(input)
    }

    /// Passes over a time, a number, an address and a length.
    fn region(input: &mut Input<'_>) -> Step<()> {
        for _ in 0..2 {
            input.skip(8)?;
            numbers(input, 1)?;
        }
        Ok(())
    }

    /// Passes over a time, the number of a stack, and a thread.
    fn source(input: &mut Input<'_>) -> Step<()> {
        input.skip(8)?;
        numbers(input, 1)?;
        input.skip(4)
    }

    fn numbers(input: &mut Input<'_>, count: u32) -> Step<()> {
        (0..count).try_for_each(|_| input.prefix_varint().map(drop))
    }
}
