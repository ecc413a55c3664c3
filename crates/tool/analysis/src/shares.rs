//! Which groups of sites grow: what each held over time.

use std::collections::HashMap;

use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, Serial, StackId};
use heapledger_recording::{Damage, Event, EventKind, FreedBlock, ImageEndReason, ImageId, Time};

use crate::amount::Metric;
use crate::error::Error;
use crate::events::{bytes_of, events_in, expect_events, for_each_chunk};
use crate::moment::{Moment, Selection};
use crate::names::Names;
use crate::profile::Profile;
use crate::rank::{Key, Rank, RankBy, group, rank};
use crate::replay::Progress;
use crate::stacks::MergedStacks;

/// What the largest groups of sites held at certain times.
#[derive(Debug, Default)]
pub struct Shares {
    /// Those that hold the most at the peak, the largest first, and the bytes that each held at each time.
    pub groups: Vec<(Rank, Vec<u64>)>,
    /// What all others held.
    pub others: Vec<u64>,
    /// The profile of the peak.
    pub profile: Profile,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

impl Shares {
    /// What the `most` largest groups at the peak of the selected processes held at these times, which are in order: a
    /// pass over all events. Memory: an entry of 24 bytes in a hash table for each block of one image that is live at once.
    pub fn load(
        names: &mut Names<'_, '_>,
        selection: &Selection,
        by: RankBy,
        most: usize,
        times: &[Time],
        progress: Progress<'_>,
    ) -> Result<Shares, Error> {
        let recording = names.recording();
        expect_events(recording)?;
        let mut profile = Profile::load(names, &selection.moved(Moment::Peak), progress)?;
        let mut ranks = rank(&profile, names, by, Metric::Bytes);
        ranks.truncate(most);
        let numbers: HashMap<Key, usize> = ranks.iter().enumerate().map(|(at, rank)| (rank.key, at)).collect();

        let images = selection.filter.images(recording)?;
        let (mut done, all) = (0, events_in(recording, &images));
        let mut merged = MergedStacks::new(recording);
        merged.stacks = std::mem::take(&mut profile.stacks);
        let mut sums = vec![vec![0_u64; times.len()]; ranks.len() + 1];
        let mut damage = Vec::new();
        for image in images {
            let mut known: HashMap<StackId, usize> = HashMap::new();
            let mut group = |stack: StackId| {
                *known.entry(stack).or_insert_with(|| {
                    let node = merged.node(image, stack);
                    let (key, _) = group(names, &merged.stacks, node, by);
                    numbers.get(&key).copied().unwrap_or(ranks.len())
                })
            };
            let mut course =
                Course { times, next: 0, live: HashMap::new(), held: vec![0; sums.len()], sums: &mut sums };
            if let Some(carried) = recording.carried(image) {
                // What cannot be read is missing, as with events.
                let read = carried.for_each_part(|blocks| {
                    blocks.iter().for_each(|block| {
                        let bytes = stands_for(block.rate, block.size, block.serial);
                        course.enter(block.serial, bytes, group(block.stack));
                    });
                });
                if let Err(heapledger_recording::Error::Damaged(found)) = read {
                    damage.push(found);
                }
            }
            for_each_chunk(recording, image, &mut damage, |events| {
                events.iter().for_each(|event| course.event(event, &mut group));
                done += events.len() as u64;
                progress(done, all);
                let is_too_much = bytes_of(&course.live) > selection.memory_max.0;
                if is_too_much { Err(Error::MemoryLimit(selection.memory_max)) } else { Ok(()) }
            })?;
            course.finish(ended(recording, image));
            merged.forget(image);
        }
        profile.stacks = std::mem::take(&mut merged.stacks);
        damage.append(&mut merged.damage);
        let others = sums.pop().unwrap_or_default();
        Ok(Shares { groups: ranks.into_iter().zip(sums).collect(), others, profile, damage })
    }
}

/// For how many bytes a block of this size counts.
fn stands_for(rate: Rate, size: Bytes, serial: Serial) -> Bytes {
    Bytes(size.0.saturating_mul(rate.stands_for(size, serial)))
}

/// When what an image had live was gone.
fn ended(recording: &heapledger_recording::Recording<'_>, image: ImageId) -> Time {
    let end = recording.image_end(image).filter(|end| end.reason != ImageEndReason::Detached);
    end.map_or(Time(u64::MAX), |end| end.time)
}

/// What the groups hold in one image as time goes on.
struct Course<'t> {
    times: &'t [Time],
    /// The next of the times.
    next: usize,
    live: HashMap<Serial, (Bytes, usize)>,
    held: Vec<u64>,
    sums: &'t mut [Vec<u64>],
}

impl Course<'_> {
    fn event(&mut self, event: &Event, group: &mut impl FnMut(StackId) -> usize) {
        // Nearly always none is passed.
        if self.times.get(self.next).is_some_and(|&time| time < event.time) {
            self.pass(event.time);
        }
        let bytes = |size, serial| stands_for(event.sampled.rate, size, serial);
        match event.kind {
            EventKind::Alloc { serial, size, stack } => self.enter(serial, bytes(size, serial), group(stack)),
            EventKind::Free { block } => self.release(block),
            EventKind::Realloc { old, serial, size, stack } => {
                self.release(old);
                self.enter(serial, bytes(size, serial), group(stack));
            }
            EventKind::Failed { .. } => {}
            EventKind::Move { block, stack } => {
                if let Some(&(size, _)) = self.live.get(&block) {
                    self.release(FreedBlock::Known(block));
                    self.enter(block, size, group(stack));
                }
            }
        }
    }

    /// Notes what is held at the times before this one.
    fn pass(&mut self, until: Time) {
        while self.times.get(self.next).is_some_and(|&time| time < until) {
            for (sums, held) in self.sums.iter_mut().zip(&self.held) {
                sums[self.next] = sums[self.next].saturating_add(*held);
            }
            self.next += 1;
        }
    }

    fn enter(&mut self, serial: Serial, size: Bytes, group: usize) {
        self.held[group] = self.held[group].saturating_add(size.0);
        self.live.insert(serial, (size, group));
    }

    fn release(&mut self, block: FreedBlock) {
        let FreedBlock::Known(serial) = block else { return };
        if let Some((size, group)) = self.live.remove(&serial) {
            self.held[group] = self.held[group].saturating_sub(size.0);
        }
    }

    fn finish(mut self, end: Time) {
        self.pass(end);
    }
}
