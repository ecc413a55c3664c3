use heapledger_core::StackId;

use super::*;

#[test]
fn every_live_block_has_its_own_usable_size() {
    let mut sizes = UsableSizes::default();
    let alloc = |serial, size| EventKind::Alloc { serial: Serial(serial), size: Bytes(size), stack: StackId(1) };
    let usable = [Some(24), Some(24), Some(40), None, Some(24)];
    for (serial, usable) in (0..).zip(usable) {
        sizes.on_event(&alloc(serial, 10), usable.map(Bytes));
    }
    for (serial, usable) in (0..).zip(usable) {
        assert_eq!(sizes.get(Serial(serial), Bytes(10)), usable.map(Bytes), "{serial}");
    }
    // Freed blocks take no memory.
    let (old, serial, size, stack) = (FreedBlock::Known(Serial(2)), Serial(5), Bytes(10), StackId(1));
    sizes.on_event(&EventKind::Realloc { old, serial, size, stack }, Some(Bytes(24)));
    sizes.on_event(&EventKind::Free { block: FreedBlock::Known(Serial(3)) }, None);
    assert!(sizes.others.is_empty());
}

#[test]
fn sizes_beyond_the_limit_are_kept_for_each_block() {
    let mut sizes = UsableSizes::default();
    let count = SIZES_MAX as u64 + 10;
    for serial in 0..count {
        let (size, stack) = (Bytes(serial), StackId(1));
        sizes.on_event(&EventKind::Alloc { serial: Serial(serial), size, stack }, Some(Bytes(serial + 8)));
    }
    assert_eq!((sizes.by_size.len(), sizes.others.len()), (SIZES_MAX, 10));
    for serial in 0..count {
        assert_eq!(sizes.get(Serial(serial), Bytes(serial)), Some(Bytes(serial + 8)));
    }
}
