//! The live blocks of resident snapshots, in groups: which of them keep the memory resident.

use std::cmp::Reverse;
use std::collections::HashMap;

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_recording::{Damage, ImageId, Recording, ResidentSnapshot, SnapshotSite, Time};
use heapledger_resident::{HeapUse, PartGroup, PartKind};

use crate::amount::Amount;
use crate::error::Error;
use crate::filter::Filter;
use crate::names::Names;
use crate::rank::{Key, Rank, RankBy, group};
use crate::stacks::{MergedStacks, Stacks};

/// The resident snapshots of some images.
#[derive(Clone, Debug, Default)]
pub struct ImageSnapshots {
    /// The snapshots with their images, in order of time.
    pub snapshots: Vec<(ImageId, ResidentSnapshot)>,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// A group of live blocks.
#[derive(Clone, Debug)]
pub struct ResidentGroup {
    /// Its key, its number of sites, and its requested bytes. The largest site is the one that
    /// keeps the most.
    pub rank: Rank,
    /// The sums over its sites; the stack means nothing.
    pub sum: SnapshotSite,
    /// The stacks of its sites.
    pub members: Vec<StackId>,
}

/// The live blocks of a snapshot in groups.
#[derive(Debug, Default)]
pub struct ResidentGroups {
    /// The stacks of the sites.
    pub stacks: Stacks,
    /// The groups, first the one that keeps the most resident memory.
    pub groups: Vec<ResidentGroup>,
    /// The sums over all groups.
    pub whole: SnapshotSite,
    /// Parts of the recording that could not be read.
    pub damage: Vec<Damage>,
}

impl ImageSnapshots {
    /// Returns the snapshots of the processes that a filter selects. Takes memory in proportion to
    /// the sites of all snapshots.
    ///
    /// # Errors
    ///
    /// Fails if the recording has no such process.
    pub fn load(names: &Names<'_, '_>, filter: &Filter) -> Result<ImageSnapshots, Error> {
        let recording = names.recording();
        let mut found = ImageSnapshots::default();
        for image in filter.images(recording)? {
            let rows = recording.resident_snapshots(image);
            found.damage.extend(rows.damage);
            found.snapshots.extend(rows.rows.into_iter().map(|snapshot| (image, snapshot)));
        }
        found.snapshots.sort_by_key(|(_, snapshot)| snapshot.time);
        Ok(found)
    }
}

impl ResidentGroups {
    /// Puts the sites of an image's snapshot into groups. [`RankBy::Part`] makes one group: blocks
    /// are not kept apart by what only events tell.
    pub fn of(names: &mut Names<'_, '_>, image: ImageId, snapshot: &ResidentSnapshot, by: RankBy) -> ResidentGroups {
        let mut merged = MergedStacks::new(names.recording());
        let nodes: Vec<_> = snapshot.sites.iter().map(|site| merged.node(image, site.stack)).collect();
        let (stacks, damage) = (merged.stacks, merged.damage);
        let mut groups: Vec<(ResidentGroup, Bytes)> = Vec::new();
        let mut places: HashMap<Key, usize> = HashMap::new();
        let mut whole = SnapshotSite::default();
        for (site, node) in snapshot.sites.iter().zip(nodes) {
            let (key, frame) = group(names, &stacks, (node, None), by);
            let at = *places.entry(key).or_insert(groups.len());
            if at == groups.len() {
                let rank = Rank { key, amount: Amount::default(), sites: 0, largest: node, frame };
                groups.push((ResidentGroup { rank, sum: SnapshotSite::default(), members: Vec::new() }, site.kept));
            } else if site.kept > groups[at].1 {
                groups[at].1 = site.kept;
                (groups[at].0.rank.largest, groups[at].0.rank.frame) = (node, frame);
            }
            let found = &mut groups[at].0;
            found.members.push(site.stack);
            found.rank.sites += 1;
            found.rank.amount += Amount { bytes: site.bytes, blocks: site.blocks, ..Amount::default() };
            add(&mut found.sum, site);
            add(&mut whole, site);
        }
        let mut groups: Vec<ResidentGroup> = groups.into_iter().map(|(group, _)| group).collect();
        groups.sort_by_key(|group| (Reverse(group.sum.kept), Reverse(group.sum.bytes), group.rank.key));
        ResidentGroups { stacks, groups, whole, damage }
    }
}

/// A part of resident memory over time, for all processes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResidentBand {
    /// The bytes of live blocks.
    LiveBlocks,
    /// Blocks of allocators in use, beside the live blocks of the recording: rounding, headers, and
    /// blocks that were not recorded.
    BesideBlocks,
    /// The free memory of allocators.
    Free,
    /// The bookkeeping of allocators.
    Bookkeeping,
    /// Parts of heaps that could not be walked: in use, free or bookkeeping.
    Unread,
    /// Private memory without a known allocator, beside live blocks in it.
    Private,
    /// Stacks.
    Stacks,
    /// Files.
    Files,
    /// Memory that processes share, and the kernel's pages.
    Shared,
}

impl ResidentBand {
    /// All of them, in the order in which they are stacked.
    pub const ALL: [ResidentBand; 9] = [
        ResidentBand::LiveBlocks,
        ResidentBand::BesideBlocks,
        ResidentBand::Free,
        ResidentBand::Bookkeeping,
        ResidentBand::Unread,
        ResidentBand::Private,
        ResidentBand::Stacks,
        ResidentBand::Files,
        ResidentBand::Shared,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            ResidentBand::LiveBlocks => "live blocks",
            ResidentBand::BesideBlocks => "in use, beside live blocks",
            ResidentBand::Free => "free memory of allocators",
            ResidentBand::Bookkeeping => "bookkeeping of allocators",
            ResidentBand::Unread => "heaps that could not be walked",
            ResidentBand::Private => "other private memory",
            ResidentBand::Stacks => "stacks",
            ResidentBand::Files => "files",
            ResidentBand::Shared => "shared memory",
        }
    }

    /// Returns the band that a kind of part is in, apart from its live blocks.
    fn of_kind(kind: &str) -> ResidentBand {
        // A kind of a later version is private memory of that name.
        let Some(kind) = PartKind::from_word(kind) else { return ResidentBand::Private };
        match kind.group() {
            PartGroup::Heap(_, HeapUse::Used) => ResidentBand::BesideBlocks,
            PartGroup::Heap(_, HeapUse::Free) => ResidentBand::Free,
            PartGroup::Heap(_, HeapUse::Bookkeeping) => ResidentBand::Bookkeeping,
            PartGroup::Heap(_, HeapUse::Unread) => ResidentBand::Unread,
            PartGroup::Private => ResidentBand::Private,
            PartGroup::Stacks => ResidentBand::Stacks,
            PartGroup::Files => ResidentBand::Files,
            PartGroup::Shared | PartGroup::Kernel => ResidentBand::Shared,
        }
    }
}

impl ImageSnapshots {
    /// Returns the resident bytes of each part at each of these ascending times: of each image that
    /// runs then, by its latest snapshot; 0 before its first one.
    pub fn over_time(&self, recording: &Recording<'_>, times: &[Time]) -> Vec<(ResidentBand, Vec<u64>)> {
        let mut bands = ResidentBand::ALL.map(|band| (band, vec![0_u64; times.len()]));
        for (at, (image, snapshot)) in self.snapshots.iter().enumerate() {
            let next = self.snapshots[at + 1..].iter().find(|(of, _)| of == image).map(|(_, next)| next.time);
            let end = recording.image_end(*image).map(|end| end.time);
            let until = [next, end].into_iter().flatten().min();
            // The moment of the end still shows what was there.
            let first = times.partition_point(|time| *time < snapshot.time);
            let last = until.map_or(times.len(), |until| times.partition_point(|time| *time < until));
            let span = first..last.max(first);
            for part in &snapshot.parts {
                let live = part.live.0.min(part.resident.0);
                let of_kind = ResidentBand::of_kind(&part.kind);
                for (band, bytes) in [(ResidentBand::LiveBlocks, live), (of_kind, part.resident.0 - live)] {
                    let row = bands.iter_mut().find(|(of, _)| *of == band).map(|(_, row)| &mut row[span.clone()]);
                    row.into_iter().flatten().for_each(|sum| *sum = sum.saturating_add(bytes));
                }
            }
        }
        bands.into_iter().filter(|(_, row)| row.iter().any(|bytes| *bytes > 0)).collect()
    }
}

fn add(sum: &mut SnapshotSite, site: &SnapshotSite) {
    let SnapshotSite { stack: _, blocks, bytes, resident, slop, kept, pages_alone, pages_sparse } = *site;
    let all = [
        (&mut sum.bytes.0, bytes.0),
        (&mut sum.resident.0, resident.0),
        (&mut sum.slop.0, slop.0),
        (&mut sum.kept.0, kept.0),
        (&mut sum.pages_alone, pages_alone),
        (&mut sum.pages_sparse, pages_sparse),
    ];
    all.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
    sum.blocks = Blocks(sum.blocks.0.saturating_add(blocks.0));
}

#[cfg(test)]
mod tests {
    use heapledger_recording::SnapshotPart;

    use super::*;

    #[test]
    fn parts_over_time() {
        let part = |kind: &str, resident, live| SnapshotPart {
            kind: kind.into(),
            resident: Bytes(resident),
            live: Bytes(live),
            ..SnapshotPart::default()
        };
        let snapshot = |time, parts| ResidentSnapshot { time: Time(time), parts, ..ResidentSnapshot::default() };
        let snapshots = vec![
            (ImageId(0), snapshot(10, vec![part("glibc-used", 100, 70), part("file", 5, 0)])),
            (ImageId(1), snapshot(20, vec![part("anonymous", 8, 9)])),
            (ImageId(0), snapshot(30, vec![part("glibc-free", 50, 0), part("main-stack", 1, 0)])),
        ];
        let recording = heapledger_recording::RecordingWriter::new().pending().to_vec();
        let recording = Recording::open(&recording).unwrap();
        let all = ImageSnapshots { snapshots, damage: Vec::new() };
        let bands = all.over_time(&recording, &[Time(5), Time(10), Time(25), Time(30), Time(40)]);
        let expected = [
            (ResidentBand::LiveBlocks, vec![0, 70, 78, 8, 8]),
            (ResidentBand::BesideBlocks, vec![0, 30, 30, 0, 0]),
            (ResidentBand::Free, vec![0, 0, 0, 50, 50]),
            (ResidentBand::Stacks, vec![0, 0, 0, 1, 1]),
            (ResidentBand::Files, vec![0, 5, 5, 0, 0]),
        ];
        assert_eq!(bands, expected);
    }

    #[test]
    fn kinds_are_in_the_bands_of_their_groups() {
        let bands = [
            ("allocator-used", ResidentBand::BesideBlocks),
            ("heapledger-unused", ResidentBand::Free),
            ("allocator-bookkeeping", ResidentBand::Bookkeeping),
            ("glibc-unread", ResidentBand::Unread),
            ("allocator-unread", ResidentBand::Unread),
            ("kernel", ResidentBand::Shared),
            // No version has this kind.
            ("glibc-pinned", ResidentBand::Private),
        ];
        for (kind, band) in bands {
            assert_eq!(ResidentBand::of_kind(kind), band, "{kind}");
        }
    }
}
