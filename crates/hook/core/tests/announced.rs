//! Stamps that are announced to one reader after another. Its own program, because stamps are those
//! of the process.

use std::ptr;

use heapledger_core::stamp;

#[test]
fn stamps_are_announced_anew() {
    let names = ["alpha", "beta", "gamma"];
    // SAFETY: `intern` requires static texts of these lengths, and null or a static place.
    let interned = || names.map(|name| unsafe { stamp::intern(name.as_ptr(), name.len() as u32, ptr::null()) });
    let first = interned();
    first.iter().for_each(|stamp| stamp.mark_announced());
    assert!(interned().iter().all(|stamp| stamp.is_announced()));
    stamp::forget_announced();
    let again = interned();
    assert!(again.iter().all(|stamp| !stamp.is_announced()));
    assert_eq!(again.map(|stamp| stamp.number()), first.map(|stamp| stamp.number()));
}
