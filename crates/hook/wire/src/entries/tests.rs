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
        let is_new = matches!(layout.effect, Effect::Allocate | Effect::AllocateOut | Effect::AllocateText);
        assert_eq!(layout.block.is_none(), is_new, "{kind:?}");
        assert_eq!(layout.out.is_some(), layout.effect == Effect::AllocateOut, "{kind:?}");
        let has_no_size = matches!(layout.effect, Effect::Free | Effect::UsableSize | Effect::AllocateText);
        assert_eq!(layout.size.is_none(), has_no_size, "{kind:?}");
        if let Some(sibling) = kind.nothrow() {
            assert!(layout.throws, "{kind:?}");
            assert_eq!(sibling.layout(), Layout { throws: false, ..layout });
        }
    }
}

/// A sibling has the same arguments and a `nothrow_t` behind them. A kind of several functions is
/// none: the third argument of `mi_ucalloc` is a place to write to.
#[test]
fn siblings_are_the_nothrow_forms_of_operators() {
    let siblings: Vec<_> = EntryKind::ALL.into_iter().filter_map(|kind| Some((kind, kind.nothrow()?))).collect();
    let operators = [
        (EntryKind::New, EntryKind::NewNothrow),
        (EntryKind::NewArray, EntryKind::NewArrayNothrow),
        (EntryKind::NewAligned, EntryKind::NewAlignedNothrow),
        (EntryKind::NewArrayAligned, EntryKind::NewArrayAlignedNothrow),
    ];
    assert_eq!(siblings, operators);
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
