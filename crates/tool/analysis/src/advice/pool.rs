//! Blocks that live long between blocks that do not, and keep pages that are empty otherwise.

use heapledger_core::{Blocks, Bytes};
use heapledger_recording::{ImageId, ResidentSnapshot, Time};

use super::{Advice, AdviceList, Finding, is_part};
use crate::error::Error;
use crate::names::Names;
use crate::progress::Progress;
use crate::rank::RankBy;
use crate::resident::{ImageSnapshots, ResidentGroups};
use crate::selection::Selection;

pub(super) const NAME: &str = "pool";

/// The least bytes that a pool would save: this many, and this percentage of resident memory.
const BYTES_MIN: Bytes = Bytes(1 << 20);
const RESIDENT_PERCENT: u64 = 5;

/// Blocks of an owner that keep pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The process.
    pub process: u32,
    /// The moment of the snapshot that says so.
    pub time: Time,
    /// The owner's live blocks.
    pub blocks: Blocks,
    /// Their requested bytes.
    pub size: Bytes,
    /// The resident pages that are not full, and have one of these blocks and no other live block.
    pub pages_alone: u64,
    /// The bytes of these pages.
    pub kept: Bytes,
    /// Resident memory at that moment.
    pub resident: Bytes,
}

/// Finds owners whose blocks keep pages alone, in the snapshot of each process that has the most
/// such pages. Bytes at stake: those pages, less what all blocks of the owner take side by side.
pub(super) fn find(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    list: &mut AdviceList,
    _progress: Progress<'_>,
) -> Result<(), Error> {
    let found = ImageSnapshots::load(names, &selection.filter)?;
    list.damage.extend(found.damage);
    if found.snapshots.is_empty() {
        list.skip(NAME, "the recording has no resident snapshots");
        return Ok(());
    }
    if !selection.filter.is_of_all_blocks() {
        list.skip(NAME, "snapshots do not tell the selected blocks apart");
        return Ok(());
    }
    if !found.snapshots.iter().any(|(_, snapshot)| snapshot.figures.has_sites) {
        list.skip(NAME, "its resident snapshots have no live blocks: it is of a sample, or they were too many");
        return Ok(());
    }
    for (image, snapshot) in worst(&found.snapshots) {
        let groups = ResidentGroups::of(names, image, snapshot, RankBy::Owner);
        list.damage.extend(&groups.damage);
        let resident = snapshot.figures.resident;
        for group in &groups.groups {
            let sum = &group.sum;
            let kept = sum.pages_alone.saturating_mul(snapshot.figures.page_size.0);
            let saved = kept.saturating_sub(sum.resident.0.saturating_add(sum.slop.0));
            if saved < BYTES_MIN.0 || !is_part(saved, resident.0, RESIDENT_PERCENT) {
                continue;
            }
            let pool = Pool {
                process: names.recording().image(image).map_or(0, |start| start.pid),
                time: snapshot.time,
                blocks: sum.blocks,
                size: sum.bytes,
                pages_alone: sum.pages_alone,
                kept: Bytes(kept),
                resident,
            };
            let owner = Some(names.owner(&groups.stacks, group.rank.largest));
            list.advice.push(Advice { finding: Finding::Pool(pool), bytes: Bytes(saved), owner });
        }
    }
    Ok(())
}

/// Returns the snapshot of each image with the most pages that a block keeps alone.
fn worst(snapshots: &[(ImageId, ResidentSnapshot)]) -> Vec<(ImageId, &ResidentSnapshot)> {
    let alone = |snapshot: &ResidentSnapshot| snapshot.sites.iter().map(|site| site.pages_alone).sum::<u64>();
    let mut worst: Vec<(ImageId, &ResidentSnapshot)> = Vec::new();
    for (image, snapshot) in snapshots {
        match worst.iter_mut().find(|(of, _)| of == image) {
            Some((_, most)) if alone(snapshot) >= alone(most) => *most = snapshot,
            Some(_) => {}
            None => worst.push((*image, snapshot)),
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use heapledger_core::StackId;
    use heapledger_recording::{ResidentFigures, SnapshotSite};

    use super::*;

    #[test]
    fn the_worst_snapshot_of_each_process() {
        let snapshot = |time, pages_alone| ResidentSnapshot {
            time: Time(time),
            sites: vec![SnapshotSite { stack: StackId(1), pages_alone, ..SnapshotSite::default() }],
            figures: ResidentFigures::default(),
            parts: Vec::new(),
        };
        let all = [(0, snapshot(1, 5)), (1, snapshot(2, 0)), (0, snapshot(3, 5)), (0, snapshot(4, 4))];
        let all = all.map(|(image, snapshot)| (ImageId(image), snapshot));
        let found: Vec<(u32, u64)> = worst(&all).iter().map(|(image, it)| (image.0, it.time.0)).collect();
        assert_eq!(found, [(0, 3), (1, 2)]);
    }
}
