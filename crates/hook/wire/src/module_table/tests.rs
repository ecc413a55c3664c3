use std::vec::Vec;

use super::*;

fn encoded(modules: &[ModuleRecord], rest: &[u8]) -> Vec<u8> {
    let length = ModuleTable::head_length(modules.len()) + rest.len();
    let words = modules.iter().flat_map(ModuleRecord::to_words);
    let head = [length as u64, modules.len() as u64].into_iter().chain(words);
    head.flat_map(u64::to_ne_bytes).chain(rest.iter().copied()).collect()
}

/// Returns two modules, the second one with a path and an index.
fn example() -> (Vec<ModuleRecord>, Vec<u8>) {
    let rest_at = ModuleTable::head_length(2) as u64;
    let rest = [&b"/lib/x.so"[..], &[0; 7], &pair(0x10, 0), &pair(0x30, 0x20), &[7; 8]].concat();
    let first = ModuleRecord { start: 0x1000, end: 0x3000, eh_frame_hdr: 0x2000, ..ModuleRecord::default() };
    let second = ModuleRecord {
        start: 0x7000,
        end: 0x9000,
        bias: 0x7000,
        path_at: rest_at,
        path_length: 9,
        generated: FramesIndex { pairs_at: rest_at + 16, pairs: 2, frames_at: rest_at + 32, frames_length: 8 },
        ..ModuleRecord::default()
    };
    (std::vec![first, second], rest)
}

#[test]
fn tables_are_read_as_they_were_written() {
    let (modules, rest) = example();
    let bytes = encoded(&modules, &rest);
    let table = ModuleTable::parse(&bytes).unwrap();
    assert_eq!(table.modules().collect::<Vec<_>>(), modules);
    let found = |address| table.find(address).map(|module| module.start);
    assert_eq!(
        [0xfff, 0x1000, 0x2fff, 0x3000, 0x7000, 0x8fff, 0x9000].map(found),
        [None, Some(0x1000), Some(0x1000), None, Some(0x7000), Some(0x7000), None]
    );
    assert_eq!((table.path(&modules[0]), table.path(&modules[1])), (&b""[..], &b"/lib/x.so"[..]));
    assert_eq!(table.generated_frames(&modules[1]), [7; 8]);
    assert!(table.pairs(&modules[1].found).is_empty());
    let pairs = table.pairs(&modules[1].generated);
    assert_eq!(
        [0xf, 0x10, 0x2f, 0x30, u64::MAX].map(|at| search(pairs, at)),
        [None, Some(0), Some(0), Some(0x20), Some(0x20)]
    );
    assert_eq!(ModuleTable::length(u64::from_ne_bytes(*bytes.first_chunk().unwrap())), bytes.len());
}

#[test]
fn impossible_tables_are_refused() {
    let (modules, rest) = example();
    let bytes = encoded(&modules, &rest);
    for length in 0..bytes.len() {
        assert!(ModuleTable::parse(&bytes[..length]).is_none(), "{length}");
    }
    for count in [MODULES_MAX as u64 + 1, 100, u64::MAX] {
        let mut bytes = bytes.clone();
        bytes[8..16].copy_from_slice(&count.to_ne_bytes());
        assert!(ModuleTable::parse(&bytes).is_none(), "{count}");
    }
}

#[test]
fn what_is_outside_of_a_table_is_empty() {
    let (mut modules, rest) = example();
    for far in [rest.len() as u64 + 1000, u64::MAX, u64::MAX - 7] {
        modules[1].path_at = far;
        modules[1].generated = FramesIndex { pairs_at: far, pairs: 2, frames_at: far, frames_length: 8 };
        modules[1].found = FramesIndex { pairs_at: 0, pairs: far, ..FramesIndex::default() };
        let bytes = encoded(&modules, &rest);
        let table = ModuleTable::parse(&bytes).unwrap();
        assert!(table.path(&modules[1]).is_empty() && table.generated_frames(&modules[1]).is_empty());
        assert!(table.pairs(&modules[1].generated).is_empty() && table.pairs(&modules[1].found).is_empty());
    }
}
