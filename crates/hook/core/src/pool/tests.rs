extern crate std;

use std::collections::BTreeSet;
use std::vec::Vec;

use super::*;

static NAME: Name = Name::new("pool");

/// One test, because there is one table: numbers are distinct, all are given out, and they are
/// reused.
#[test]
fn numbers_are_given_out_and_taken_back() {
    let pools: Vec<Pool> = (0..ID_MAX).map(|_| Pool::new(&NAME)).collect();
    let ids: BTreeSet<u32> = std::thread::scope(|scope| {
        let parts = pools.chunks(20_000).map(|part| scope.spawn(move || part.iter().map(|pool| pool.id().unwrap())));
        parts.collect::<Vec<_>>().into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    assert_eq!((ids.len() as u32, ids.first(), ids.last()), (ID_MAX, Some(&1), Some(&ID_MAX)));
    let late = Pool::new(&NAME);
    assert_eq!(late.id(), None);
    let mut closed = 0;
    pools[7].close(|id| closed = id);
    assert_eq!((pools[7].known_id(), late.id()), (None, Some(closed)));
    pools.iter().for_each(|pool| pool.close(|_| {}));
    late.close(|_| {});
    assert_eq!(Pool::new(&NAME).id(), Some(1));
}

/// Checks the layout that `heapledger.h` declares.
#[test]
fn layout() {
    assert_eq!((size_of::<Pool>(), core::mem::offset_of!(Pool, id)), (16, 8));
}
