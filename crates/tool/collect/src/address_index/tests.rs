use heapledger_core::{StackId, ThreadId};
use heapledger_ledger::{Session, Time};

use super::*;

#[test]
fn blocks_are_found_by_any_address_in_them() {
    let (mut ledger, mut session) = (Ledger::new(), Session::new());
    let mut address_index = AddressIndex::new();
    let mut enter = |ledger: &mut Ledger, address_index: &mut AddressIndex, key: Key, size: u64| {
        let entered = ledger.allocate(&mut session, Time(0), ThreadId(0), key, Bytes(size), StackId(1));
        assert_eq!(entered.unwrap().displaced, None);
        address_index.insert(key, Bytes(size));
    };
    enter(&mut ledger, &mut address_index, Key(0x1000), 24);
    enter(&mut ledger, &mut address_index, Key(0x10_0000), 1 << 20);
    let starts = |address_index: &mut AddressIndex, ledger: &Ledger, address| {
        address_index.find(ledger, address).map(|(key, _)| key.0)
    };
    for (address, expected) in [
        (0x1000, Some(0x1000)),
        (0x1017, Some(0x1000)),
        (0x1018, None),
        (0xfff, None),
        (0, None),
        (u64::MAX, None),
        (0x10_0000, Some(0x10_0000)),
        (0x10_0fff, Some(0x10_0000)),
        (0x1f_ffff, Some(0x10_0000)),
        (0x20_0000, None),
    ] {
        assert_eq!(starts(&mut address_index, &ledger, address), expected, "{address:#x}");
    }
    // A block entered after the first question; then a block of a pool inside of it.
    enter(&mut ledger, &mut address_index, Key(0x40_0000), 10_000);
    assert_eq!(starts(&mut address_index, &ledger, 0x40_2000), Some(0x40_0000));
    let pooled = Key::in_pool(3, 0x40_2000);
    enter(&mut ledger, &mut address_index, pooled, 5000);
    assert_eq!(starts(&mut address_index, &ledger, 0x40_2000), Some(pooled.0));
    assert_eq!(starts(&mut address_index, &ledger, 0x40_2000 + 4999), Some(pooled.0));
    assert_eq!(starts(&mut address_index, &ledger, 0x40_1000), Some(0x40_0000));
    // A block that was freed is not found.
    let _ = ledger.free(&mut Session::new(), ThreadId(0), Key(0x40_0000));
    assert_eq!(starts(&mut address_index, &ledger, 0x40_1000), None);
}
