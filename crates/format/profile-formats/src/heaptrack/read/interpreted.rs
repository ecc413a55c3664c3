//! Files of `heaptrack_interpret`: places have names, blocks have no addresses.

use std::collections::HashMap;

use super::{Common, Result1, Words};
use crate::gather::Gather;
use crate::profile::{Event, EventKind, Frame, Location};

/// The tables so far. Strings and places are counted from 1, pairs of size and stack from 0.
#[derive(Default)]
pub(super) struct Interpreted {
    strings: Vec<String>,
    /// The locations of instruction pointers.
    places: Vec<usize>,
    /// The allocation of each number. A file may have several numbers for the same size and stack,
    /// as those of our [writer](super::super::Writer) do.
    numbers: Vec<usize>,
    allocations: Vec<Allocation>,
    /// The indices of allocations, by size and sample.
    known: HashMap<(u64, usize), usize>,
    next_address: u64,
}

/// Blocks of one size and stack.
struct Allocation {
    bytes: u64,
    sample: usize,
    live: Vec<u64>,
}

impl Interpreted {
    pub(super) fn line(
        &mut self,
        kind: u8,
        words: &mut Words<'_>,
        Common { gather, stacks, time_ns }: &mut Common,
        take: &mut dyn FnMut(Event),
    ) -> Result1<()> {
        match kind {
            b's' => {
                // The whole line is one text, whatever is in it.
                if words.have_lengths {
                    words.next()?;
                }
                let text = words.rest.strip_prefix(b" ").unwrap_or(words.rest);
                self.strings.push(String::from_utf8_lossy(text).into_owned());
            }
            b'i' => self.instruction(words, gather)?,
            b't' => {
                let (place, caller) = (words.next()?, words.next()?);
                let place = place.checked_sub(1).and_then(|at| self.places.get(usize::try_from(at).ok()?));
                stacks.push(*place.ok_or("a place that has not come yet")?, caller)?;
            }
            b'a' => {
                let (bytes, trace) = (words.next()?, words.next()?);
                let sample = stacks.sample(gather, trace)?;
                let at = *self.known.entry((bytes, sample)).or_insert(self.allocations.len());
                if at == self.allocations.len() {
                    self.allocations.push(Allocation { bytes, sample, live: Vec::new() });
                }
                self.numbers.push(at);
            }
            b'+' => {
                let address = self.next_address + 16;
                let allocation = self.allocation(words)?;
                allocation.live.push(address);
                let kind = EventKind::Allocated { bytes: allocation.bytes, sample: allocation.sample };
                self.next_address = address;
                take(Event { time_ns: *time_ns, process: 0, thread: 1, address, kind });
            }
            b'-' => {
                let allocation = self.allocation(words)?;
                let address = allocation.live.pop().ok_or("a free of what is not live")?;
                let kind = EventKind::Freed { bytes: allocation.bytes, sample: allocation.sample };
                take(Event { time_ns: *time_ns, process: 0, thread: 1, address, kind });
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the allocation that a line is about.
    fn allocation(&mut self, words: &mut Words<'_>) -> Result1<&mut Allocation> {
        let number = words.next()?;
        let at = usize::try_from(number).ok().and_then(|number| self.numbers.get(number));
        Ok(&mut self.allocations[*at.ok_or("an allocation that has not come yet")?])
    }

    fn instruction(&mut self, words: &mut Words<'_>, gather: &mut Gather) -> Result1<()> {
        let (address, module) = (words.next()?, words.next()?);
        let mut frames = Vec::new();
        while let Some(function) = words.optional()? {
            let (file, line) = (words.optional()?.unwrap_or(0), words.optional()?.unwrap_or(0));
            let name = self.string(function)?;
            frames.push(Frame {
                function: name.into(),
                full_name: name.into(),
                known: !name.is_empty(),
                file: self.string(file)?.into(),
                line: u32::try_from(line).unwrap_or(0),
            });
        }
        if frames.iter().all(|frame| !frame.known) {
            let module = self.string(module)?;
            let name = format!("{address:#x} in {}", if module.is_empty() { "an unknown library" } else { module });
            frames = vec![Frame { function: name.clone(), full_name: name, known: true, ..Frame::default() }];
        }
        let place = gather.location(Location { module: None, address, frames });
        self.places.push(place);
        Ok(())
    }

    /// Returns a string by its number; 0 is none.
    fn string(&self, number: u64) -> Result1<&str> {
        match number.checked_sub(1) {
            None => Ok(""),
            Some(at) => {
                let text = usize::try_from(at).ok().and_then(|at| self.strings.get(at));
                text.map(String::as_str).ok_or("a text that has not come yet")
            }
        }
    }
}
