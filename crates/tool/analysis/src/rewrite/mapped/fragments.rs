//! The lives of mapped memory: each mapping in as many fragments as later calls cut it into.

use std::collections::BTreeMap;
use std::ops::Range;

use heapledger_core::{StackId, ThreadId};
use heapledger_recording::{MappingChange, MappingEvent, MappingFlags, MappingKind, TextId, Time};

use super::uses::MappedUse;

/// The most fragments and changes of them in an image: 40 bytes each. A program that maps much
/// makes some hundred thousand.
pub(super) const CHANGES_MAX: usize = if cfg!(test) { 1 << 16 } else { 1 << 24 };

/// The call that made a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) stack: StackId,
    /// The path of a file or the name of the memory, if it has one.
    pub(super) file: TextId,
    kind: MappingKind,
    flags: MappingFlags,
}

/// A moment in the order of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct When {
    pub(super) time: Time,
    /// The number of the event in its image.
    pub(super) event: u64,
}

/// A part of a mapping that is mapped, used and unmapped as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub(super) origin: u32,
    pub(super) bytes: u64,
    pub(super) begin: (When, Option<ThreadId>),
    pub(super) end: Option<(When, Option<ThreadId>)>,
    first_use: MappedUse,
    /// The latest change of its use.
    last: Option<u32>,
}

/// A change of the use of a fragment, or of several that were one then.
#[derive(Clone, Copy, Debug)]
struct Change {
    when: When,
    mapped_use: MappedUse,
    before: Option<u32>,
}

/// The fragments of all mappings of an image.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    pub(super) origins: Vec<Origin>,
    pub(super) fragments: Vec<Fragment>,
    changes: Vec<Change>,
    /// The fragments that are mapped at present, by first address: the end, and the fragment.
    mapped: BTreeMap<u64, (u64, u32)>,
    events: u64,
}

/// Too many changes of mappings to keep.
#[derive(Debug)]
pub(super) struct TooMany;

impl Fragments {
    /// Adds the next event of the image.
    pub(super) fn add(&mut self, event: &MappingEvent) -> Result<(), TooMany> {
        let when = When { time: event.time, event: self.events };
        self.events += 1;
        let range = event.start..event.start.saturating_add(event.bytes.0);
        match event.change {
            MappingChange::Mapped { kind, protection, flags, file, .. } => {
                self.unmap(range.clone(), (when, event.thread))?;
                self.room()?;
                let origin = self.origins.len() as u32;
                self.origins.push(Origin { stack: event.stack, file, kind, flags });
                let fragment = Fragment {
                    origin,
                    bytes: range.end - range.start,
                    begin: (when, event.thread),
                    end: None,
                    first_use: MappedUse::of(kind, flags, protection),
                    last: None,
                };
                self.mapped.insert(range.start, (range.end, self.fragments.len() as u32));
                self.fragments.push(fragment);
            }
            MappingChange::Unmapped => self.unmap(range, (when, event.thread))?,
            MappingChange::Moved { to } => {
                let moved = self.take_out(range.clone())?;
                self.unmap(to..to.saturating_add(event.bytes.0), (when, event.thread))?;
                for (start, end, fragment) in moved {
                    let at = |address: u64| to.saturating_add(address - range.start);
                    self.mapped.insert(at(start), (at(end), fragment));
                }
            }
            MappingChange::Protected { protection } => {
                for (start, end, fragment) in self.within(&range) {
                    let now = self.last_use(&self.fragments[fragment as usize]);
                    let Origin { kind, flags, .. } = self.origins[self.fragments[fragment as usize].origin as usize];
                    let next = now.next(kind, flags, protection);
                    if next != now {
                        for (.., fragment) in self.cut(start.max(range.start)..end.min(range.end))? {
                            self.change(fragment, when, next)?;
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the uses of a fragment in order, each with the moment from which it has it.
    pub(super) fn uses(&self, fragment: &Fragment) -> Vec<(When, MappedUse)> {
        let mut uses = Vec::new();
        let mut next = fragment.last;
        while let Some(change) = next.map(|at| self.changes[at as usize]) {
            uses.push((change.when, change.mapped_use));
            next = change.before;
        }
        uses.push((fragment.begin.0, fragment.first_use));
        uses.reverse();
        uses
    }

    /// Returns the last use of a fragment.
    pub(super) fn last_use(&self, fragment: &Fragment) -> MappedUse {
        fragment.last.map_or(fragment.first_use, |last| self.changes[last as usize].mapped_use)
    }

    fn change(&mut self, fragment: u32, when: When, mapped_use: MappedUse) -> Result<(), TooMany> {
        self.room()?;
        let before = self.fragments[fragment as usize].last.replace(self.changes.len() as u32);
        self.changes.push(Change { when, mapped_use, before });
        Ok(())
    }

    /// Ends the fragments in a range.
    fn unmap(&mut self, range: Range<u64>, end: (When, Option<ThreadId>)) -> Result<(), TooMany> {
        for (.., fragment) in self.take_out(range)? {
            self.fragments[fragment as usize].end = Some(end);
        }
        Ok(())
    }

    /// Returns the fragments in a range, and takes them out of the address space.
    fn take_out(&mut self, range: Range<u64>) -> Result<Vec<(u64, u64, u32)>, TooMany> {
        let found = self.cut(range)?;
        for (start, ..) in &found {
            self.mapped.remove(start);
        }
        Ok(found)
    }

    /// Cuts fragments at the ends of a range. Returns those inside.
    fn cut(&mut self, range: Range<u64>) -> Result<Vec<(u64, u64, u32)>, TooMany> {
        for at in [range.start, range.end] {
            let Some((&start, &(end, fragment))) =
                self.mapped.range(..at).next_back().filter(|(_, (end, _))| *end > at)
            else {
                continue;
            };
            self.room()?;
            let right = Fragment { bytes: end - at, ..self.fragments[fragment as usize] };
            self.fragments[fragment as usize].bytes = at - start;
            self.mapped.insert(start, (at, fragment));
            self.mapped.insert(at, (end, self.fragments.len() as u32));
            self.fragments.push(right);
        }
        Ok(self.within(&range))
    }

    /// Returns the fragments that a range touches, with their first addresses and ends.
    fn within(&self, range: &Range<u64>) -> Vec<(u64, u64, u32)> {
        if range.is_empty() {
            return Vec::new();
        }
        let before = self.mapped.range(..range.start).next_back().filter(|(_, (end, _))| *end > range.start);
        let others = self.mapped.range(range.clone());
        before.into_iter().chain(others).map(|(&start, &(end, fragment))| (start, end, fragment)).collect()
    }

    fn room(&self) -> Result<(), TooMany> {
        let all = self.fragments.len() + self.changes.len() + self.origins.len();
        if all < CHANGES_MAX { Ok(()) } else { Err(TooMany) }
    }
}
