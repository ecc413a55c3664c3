//! Damaged files, for tests of readers.

use proptest::prelude::*;

/// Returns files with a few of their bytes, or of their words, changed.
pub(crate) fn damaged(files: Vec<Vec<u8>>, words: Vec<&'static str>) -> impl Strategy<Value = Vec<u8>> {
    let change = (0..1000_usize, 0..6_usize, prop::sample::select(words));
    (prop::sample::select(files), prop::collection::vec(change, 0..4)).prop_map(|(mut file, changes)| {
        for (at, length, word) in changes {
            let at = at % (file.len() + 1);
            let end = (at + length).min(file.len());
            file.splice(at..end, word.bytes());
        }
        file
    })
}
