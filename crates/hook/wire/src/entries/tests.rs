use std::collections::HashSet;
use std::vec::Vec;

use super::*;

#[test]
fn numbers_are_told_from_hostile_ones() {
    let known: HashSet<u8> = EntryKind::ALL.iter().map(|kind| kind.number()).collect();
    assert_eq!(known.len(), EntryKind::ALL.len());
    assert!(EntryKind::ALL.is_sorted());
    for number in 0..=u8::MAX {
        let kind = EntryKind::from_number(number);
        assert_eq!(kind.map(EntryKind::number), known.contains(&number).then_some(number));
    }
}

#[test]
fn layouts_name_arguments_in_registers() {
    for kind in EntryKind::ALL {
        let layout = kind.layout();
        let places = [layout.block, layout.size, layout.count, layout.alignment, layout.out];
        let places: Vec<u8> = places.into_iter().flatten().collect();
        assert!(places.iter().all(|&place| place < ARGUMENTS_MAX), "{kind:?}");
        assert_eq!(places.iter().collect::<HashSet<_>>().len(), places.len(), "{kind:?} has one argument twice");
        let has_block = matches!(layout.effect, Effect::Allocate | Effect::AllocateOut);
        assert_eq!(layout.block.is_none(), has_block, "{kind:?}");
        assert_eq!(layout.out.is_some(), layout.effect == Effect::AllocateOut, "{kind:?}");
        assert_eq!(layout.size.is_none(), matches!(layout.effect, Effect::Free | Effect::UsableSize), "{kind:?}");
        assert_eq!(layout.throws, kind.nothrow().is_some(), "{kind:?}");
        if let Some(sibling) = kind.nothrow() {
            assert_eq!(sibling.layout(), Layout { throws: false, ..layout });
        }
    }
}

#[test]
fn requests_are_read_by_the_layout() {
    let arguments = [10, 20, 30, 40, 50, 60];
    let requested = |kind: EntryKind| kind.layout().requested(&arguments);
    assert_eq!(requested(EntryKind::Malloc), Some(10));
    assert_eq!(requested(EntryKind::Calloc), Some(200));
    assert_eq!(requested(EntryKind::ArenaCallocAligned), Some(600));
    assert_eq!(requested(EntryKind::RustRealloc), Some(40));
    assert_eq!(requested(EntryKind::Free), None);
    assert_eq!(EntryKind::Calloc.layout().requested(&[u64::MAX, 2, 0, 0, 0, 0]), None);
    assert_eq!(EntryKind::ArenaFree.layout().block_of(&arguments), Some(20));
    let alignment = |kind: EntryKind, flags| kind.layout().requested_alignment(&[0, flags, 0, 0, 0, 0]);
    assert_eq!(alignment(EntryKind::Mallocx, 0x40 | 6), Some(64));
    assert_eq!(alignment(EntryKind::Mallocx, 0x40), None);
    assert_eq!(alignment(EntryKind::MallocAligned, 32), Some(32));
    assert_eq!(alignment(EntryKind::Malloc, 32), None);
}

#[test]
fn sites_survive_the_handshake_and_hostile_bytes_do_not() {
    let site = PatchSite {
        at: 0x1234_5678_9abc,
        trampoline: 0x40,
        allocator: 3,
        nothrow: Some(7),
        kind: EntryKind::NewAligned,
        displaced: 8,
        original: [0x55, 0x48, 0x89, 0xe5, 0x53],
    };
    for site in [site, PatchSite { nothrow: None, kind: EntryKind::Malloc, displaced: 19, ..site }] {
        let bytes = site.to_bytes();
        assert_eq!(PatchSite::from_bytes(&bytes), Some(site));
        for (at, value) in [(16, 0), (16, 0xff), (17, 4), (17, 20), (23, 1)] {
            let mut changed = bytes;
            changed[at] = value;
            assert_eq!(PatchSite::from_bytes(&changed), None, "{at} {value}");
        }
    }
}
