use std::collections::BTreeMap;

use heapledger_core::Bytes;
use proptest::prelude::*;

use super::*;

/// Addresses of whole "pages" of 16 bytes, so that random ranges often meet.
const PAGE: u64 = 16;

/// One operation: its kind, the first page, the number of pages, and a target page.
type Operation = (u8, u64, u64, u64);

proptest! {
    /// An address space does the same as a table with an entry for each page.
    #[test]
    fn an_interval_map_is_a_table_of_pages(operations in prop::collection::vec((0_u8..4, 0..40_u64, 1..12_u64, 0..40_u64), 0..60)) {
        let mut space = AddressSpace::default();
        let mut pages: BTreeMap<u64, (u64, u8)> = BTreeMap::new();
        for (serial, operation) in (0..).zip(operations) {
            run(&mut space, &mut pages, serial, operation)?;
            let found: BTreeMap<u64, (u64, u8)> = space
                .pieces()
                .flat_map(|piece| pages_of(&piece).map(move |page| (page, (piece.serial.0, piece.protection.bits()))))
                .collect();
            prop_assert_eq!(&found, &pages);
            prop_assert_eq!(space.bytes().0, pages.len() as u64 * PAGE);
            prop_assert_eq!(space.is_empty(), pages.is_empty());
        }
    }

    /// A protection that is taken back leaves no piece more than before.
    #[test]
    fn equal_neighbours_are_joined(ranges in prop::collection::vec((0..20_u64, 1..20_u64), 1..20)) {
        let mut space = AddressSpace::default();
        space.map(0, Bytes(40 * PAGE), MappingSerial(0), Protection::READ);
        for (page, count) in ranges {
            space.protect(page * PAGE, Bytes(count * PAGE), Protection::NONE);
            space.protect(page * PAGE, Bytes(count * PAGE), Protection::READ);
            prop_assert_eq!(space.len(), 1);
        }
    }

    /// No range panics, wherever it ends.
    #[test]
    fn any_range_is_taken(ranges in prop::collection::vec((0_u8..4, any::<u64>(), any::<u64>(), any::<u64>()), 0..40)) {
        let mut space = AddressSpace::default();
        for (kind, start, bytes, to) in ranges {
            match kind {
                0 => drop(space.map(start, Bytes(bytes), MappingSerial(to), Protection::READ)),
                1 => drop(space.unmap(start, Bytes(bytes))),
                2 => drop(space.relocate(start, Bytes(bytes), to)),
                _ => drop(space.protect(start, Bytes(bytes), Protection::NONE)),
            }
            prop_assert_eq!(space.bytes().0, space.pieces().map(|piece| piece.bytes.0).sum::<u64>());
        }
    }
}

fn pages_of(piece: &MappedPiece) -> impl Iterator<Item = u64> + use<> {
    piece.start / PAGE..(piece.start + piece.bytes.0) / PAGE
}

/// Does an operation on both, and compares what it says about the pages that it met.
fn run(
    space: &mut AddressSpace,
    pages: &mut BTreeMap<u64, (u64, u8)>,
    serial: u64,
    (kind, page, count, to): Operation,
) -> Result<(), TestCaseError> {
    let (start, bytes) = (page * PAGE, Bytes(count * PAGE));
    let take = |pages: &mut BTreeMap<u64, (u64, u8)>, from: u64| {
        (from..from + count).filter_map(|page| pages.remove(&page).map(|kept| (page, kept))).collect::<Vec<_>>()
    };
    let mut changed: Vec<(u64, (u64, u8))>;
    let met = match kind {
        0 => {
            changed = take(pages, page);
            pages.extend((page..page + count).map(|page| (page, (serial, 1))));
            space.map(start, bytes, MappingSerial(serial), Protection::READ)
        }
        1 => {
            changed = take(pages, page);
            space.unmap(start, bytes)
        }
        2 => {
            let moved = take(pages, page);
            changed = take(pages, to);
            pages.extend(moved.into_iter().map(|(at, kept)| (at - page + to, kept)));
            space.relocate(start, bytes, to * PAGE)
        }
        _ => {
            let protection = (serial % 3) as u8;
            changed = pages.range(page..page + count).map(|(&page, &kept)| (page, kept)).collect();
            pages.range_mut(page..page + count).for_each(|(_, kept)| kept.1 = protection);
            changed.retain(|(_, kept)| kept.1 != protection);
            space.protect(start, bytes, Protection::from_bits(protection))
        }
    };
    let met: Vec<(u64, (u64, u8))> = met
        .iter()
        .flat_map(|piece| pages_of(piece).map(|page| (page, (piece.serial.0, piece.protection.bits()))))
        .collect();
    prop_assert_eq!(met, changed);
    Ok(())
}

#[test]
fn numbers_are_those_of_the_file() {
    for kind in MappingKind::ALL {
        assert_eq!(MappingKind::from_number(kind.number()), kind);
    }
    for number in 0..=u8::MAX {
        assert_eq!(MappingCall::from_number(number).number(), number);
    }
    assert_eq!(MappingKind::from_number(200), MappingKind::Unknown);
    assert!(Protection::READ.contains(Protection::NONE) && !Protection::READ.contains(Protection::WRITE));
    assert!(MappingFlags::FOUND.with(MappingFlags::SHARED).contains(MappingFlags::SHARED));
}
