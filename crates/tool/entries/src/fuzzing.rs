//! The body of the fuzz target: files with any contents.

use std::path::Path;

use crate::{Module, find, plan_all, relocate};

/// Looks for allocators in a file, and makes their trampolines for two places.
pub fn module(data: &[u8]) {
    let Ok(module) = Module::from_bytes(Path::new("fuzzed"), data.to_vec()) else { return };
    let Ok(found) = find(&module) else { return };
    let plans = plan_all(&module, &found.allocators);
    assert_eq!(plans.len(), found.allocators.len());
    for (allocator, plan) in found.allocators.iter().zip(&plans) {
        assert!(allocator.entries.is_sorted_by(|a, b| a.at < b.at), "one entry for each address");
        let events = allocator.entries.iter().filter(|entry| entry.kind.is_event()).count();
        assert_eq!(plan.patches.len() + plan.refused.len(), events);
        for to in [0, 0x7fff_0000_0000, u64::MAX - 0xfff] {
            let mut length = 0;
            for patch in &plan.patches {
                assert!(patch.displaced.len() >= 5 && patch.displaced.len() < 20);
                let from = patch.at.wrapping_add(to).wrapping_sub(1 << 20);
                length += relocate(patch, from, to).map_or(0, |code| code.len());
            }
            assert!(length <= plan.code_length_max());
        }
    }
}

/// Returns a small file with an allocator: the seed of the fuzzer, and of the tests.
pub fn example() -> Vec<u8> {
    const AT: u64 = 0x40_0000;
    let names = ["", "_rjem_malloc", "_rjem_free", "_rjem_mallocx", "_rjem_sdallocx", "malloc", "free", "_Znwm"];
    let prologue = [0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x48, 0x8b, 0x05, 0x10, 0, 0, 0, 0x75, 0x01, 0xc3];
    let code = prologue.repeat(names.len());
    let (mut strings, mut symbols) = (vec![], vec![]);
    for (index, name) in names.iter().enumerate() {
        let [info, section] = if index == 0 { [0, 0] } else { [0x12, 1] };
        symbols.extend((strings.len() as u32).to_le_bytes());
        symbols.extend([info, 0, section, 0]);
        symbols.extend([AT + 120 + 16 * index as u64, 16].map(u64::to_le_bytes).concat());
        strings.extend(name.bytes().chain([0]));
    }
    let (text, table) = (120, 120 + code.len() as u64);
    let names_at = table + symbols.len() as u64;
    let headers = names_at + strings.len() as u64;

    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    file.extend([0, 64, headers].map(u64::to_le_bytes).concat());
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 4, 0, 3, 0]);
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    file.extend([0, AT, AT, table, table, 4096].map(u64::to_le_bytes).concat());
    file.extend([&code[..], &symbols, &strings].concat());
    let mut section = |kind: u32, flags: u64, address: u64, at: u64, size: usize, link: u32, entry: u64| {
        file.extend([0, kind].map(u32::to_le_bytes).concat());
        file.extend([flags, address, at, size as u64].map(u64::to_le_bytes).concat());
        file.extend([link, 1].map(u32::to_le_bytes).concat());
        file.extend([8, entry].map(u64::to_le_bytes).concat());
    };
    section(0, 0, 0, 0, 0, 0, 0);
    section(1, 6, AT + text, text, code.len(), 0, 0);
    section(2, 0, 0, table, symbols.len(), 3, 24);
    section(3, 0, 0, names_at, strings.len(), 0, 0);
    file
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::Family;

    #[test]
    fn the_example_has_an_allocator() {
        let module = Module::from_bytes(Path::new("example"), example()).unwrap();
        let found = find(&module).unwrap();
        let families: Vec<_> = found.allocators.iter().map(|one| (one.family, one.entries.len())).collect();
        assert_eq!(families, [(Family::Jemalloc, 4), (Family::Malloc, 2)]);
        let plans = plan_all(&module, &found.allocators);
        assert!(plans.iter().all(|plan| plan.refused.is_empty() && !plan.patches.is_empty()));
        super::module(&example());
    }

    proptest! {
        #[test]
        fn damaged_files_are_no_danger(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..12), cut in any::<Option<u16>>()) {
            let mut file = example();
            for (at, byte) in changes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            file.truncate(cut.map_or(file.len(), usize::from));
            super::module(&file);
        }

        /// Only the code and the places of the functions are any.
        #[test]
        fn any_code_is_no_danger(code in vec(any::<u8>(), 128), places in vec(0_u8..128, 7)) {
            let mut file = example();
            file[120..248].copy_from_slice(&code);
            for (index, place) in places.iter().enumerate() {
                file[248 + 24 * (index + 1) + 8] = 120 + place;
            }
            super::module(&file);
        }

        #[test]
        fn nor_is_anything_else(bytes in vec(any::<u8>(), 0..2000)) {
            super::module(&bytes);
            super::module(&[&example()[..120], &bytes].concat());
        }
    }
}
