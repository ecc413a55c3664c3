use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn block(address: u64, size: u64, site: u32) -> PlacedBlock {
    PlacedBlock { address, size, site, slop: 0 }
}

/// Pages 0x10 to 0x1f, 0x20 and 0x22 are resident; the heap is pages 0x10 to 0x1f.
fn memory() -> (PresentPages, PartRanges) {
    let mut pages = PresentPages::default();
    [0x10_000..0x20_000, 0x20_000..0x21_000, 0x22_000..0x23_000].into_iter().for_each(|range| pages.push(range));
    let heaps = vec![(0x10_000..0x20_000, Some(0))];
    let mappings = vec![(0x10_000..0x20_000, None), (0x20_000..0x30_000, Some(1))];
    (pages, PartRanges { heaps, mappings, parts: 2 })
}

#[test]
fn pages_are_divided_among_their_blocks() {
    let (pages, ranges) = memory();
    let mut blocks = [
        // Alone on its page, and sparse.
        block(0x11_010, 400, 7),
        // Two sites share a page that is less than a quarter full.
        block(0x12_000, 300, 7),
        block(0x12_200, 100, 8),
        // Half of this one is on a page that is not resident.
        block(0x20_800, 0x1000, 9),
        // Nothing, in a pool.
        block(0x22_000, 0, 8),
        // From the middle of a page over three whole ones to the middle of the last.
        block(0x14_800, 0x4000, 9),
    ];
    let fold = fold(&pages, ranges, &mut blocks);
    let site = |site, blocks, bytes| SiteFold { site, blocks, bytes, ..SiteFold::default() };
    let expected = [
        SiteFold { resident: 700, kept: 4096 + 3072, pages_alone: 1, pages_sparse: 2, ..site(7, 2, 700) },
        SiteFold { resident: 101, kept: 1024 + 4096, pages_alone: 1, pages_sparse: 1, ..site(8, 2, 100) },
        SiteFold { resident: 0x4800, kept: 6 * 4096, pages_alone: 3, pages_sparse: 0, ..site(9, 2, 0x5000) },
    ];
    assert_eq!(fold.sites, expected);
    assert_eq!(fold.pages_by_fill, [3, 0, 3, 3]);
    assert_eq!(fold.pages_alone, 5);
    // All of the heap, and the two pages of the pool.
    assert_eq!(fold.heap_pages, 18);
    assert_eq!(fold.parts_live, [400 + 400 + 0x4000, 0x800 + 1]);
}

#[test]
fn overlapping_blocks_are_counted_once() {
    let (pages, ranges) = memory();
    let mut blocks = [block(0x10_000, 0x2000, 1), block(0x10_800, 100, 2), block(0x11_f00, 0x200, 2)];
    let fold = fold(&pages, ranges, &mut blocks);
    assert_eq!(fold.sites.iter().map(|site| site.resident).collect::<Vec<_>>(), [0x2000, 0x100]);
    assert_eq!(fold.parts_live, [0x2100, 0]);
    let hostile = &mut [block(u64::MAX, u64::MAX, 1), block(u64::MAX - 5, 3, 2), block(0, u64::MAX, 3)];
    assert_eq!(super::fold(&pages, memory().1, hostile).sites.len(), 3);
}

proptest! {
    /// The same figures come out as from a table of every byte.
    #[test]
    fn bytes_one_by_one(gaps in prop::collection::vec((0_u64..3000, 0_u64..9000, 0_u32..4), 0..40), holes in any::<u64>()) {
        let mut pages = PresentPages::default();
        for page in (0..64).filter(|page| holes & 1 << page != 0) {
            pages.push(page * PAGE..(page + 1) * PAGE);
        }
        let ranges = PartRanges { heaps: Vec::new(), mappings: vec![(0..1 << 40, Some(0))], parts: 1 };
        let (mut at, mut blocks) = (0, Vec::new());
        for (gap, size, site) in gaps {
            blocks.push(block(at + gap, size, site));
            at += gap + size.max(1);
        }
        // For each page, the bytes of each block.
        let mut table: BTreeMap<u64, Vec<(u32, u64)>> = BTreeMap::new();
        for block in &blocks {
            let mut at = block.address;
            while at < block.address + block.size.max(1) {
                let end = (at / PAGE * PAGE + PAGE).min(block.address + block.size.max(1));
                table.entry(at / PAGE).or_default().push((block.site, end - at));
                at = end;
            }
        }
        let is_there = |page: &u64| *page < 64 && holes & 1 << page != 0;
        let there: Vec<&Vec<(u32, u64)>> = table.iter().filter(|(page, _)| is_there(page)).map(|(_, on)| on).collect();
        let live = |on: &[(u32, u64)]| on.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let fold = fold(&pages, ranges, &mut blocks);
        prop_assert_eq!(fold.pages_by_fill.iter().sum::<u64>(), there.len() as u64);
        prop_assert_eq!(fold.pages_by_fill[0], there.iter().filter(|on| live(on) < 1024).count() as u64);
        prop_assert_eq!(fold.sites.iter().map(|site| site.pages_sparse).sum::<u64>(), fold.pages_by_fill[0]);
        prop_assert_eq!(fold.sites.iter().map(|site| site.kept).sum::<u64>(), there.len() as u64 * PAGE);
        let alone = there.iter().filter(|on| on.len() == 1 && live(on) < PAGE).count() as u64;
        prop_assert_eq!(fold.pages_alone, alone);
        prop_assert_eq!(fold.sites.iter().map(|site| site.pages_alone).sum::<u64>(), alone);
        prop_assert_eq!(fold.parts_live[0], there.iter().map(|on| live(on)).sum::<u64>());
        for site in &fold.sites {
            let held = there.iter().flat_map(|on| on.iter()).filter(|(of, _)| *of == site.site);
            prop_assert_eq!(site.resident, held.map(|(_, bytes)| bytes).sum::<u64>());
        }
    }
}
