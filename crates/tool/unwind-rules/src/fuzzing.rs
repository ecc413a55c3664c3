//! The bodies of the fuzz target: files with any contents, any code, and any table.

use std::path::Path;

use gimli::{BaseAddresses, EhFrame, EndianSlice, LittleEndian, UnwindContext, UnwindSection};
use heapledger_wire::module_table::{ModuleTable, search};

use crate::{FileRules, MappedModule, table};

/// Reads a file, and the table that is made of it.
pub fn module(data: &[u8]) {
    self::tables(data);
    let Ok(rules) = FileRules::from_bytes(Path::new("fuzzed"), data, &[]) else { return };
    for bias in [0, 0x7000_0000_0000, u64::MAX - 0xfff] {
        let bytes = table(&[MappedModule { bias, path: b"/fuzzed", rules: &rules }]);
        let read = ModuleTable::parse(&bytes).expect("a table that was made");
        for module in read.modules() {
            assert!(module.start < module.end);
            check(read.generated_frames(&module), read.pairs(&module.generated));
        }
    }
    self::tables(&table(&[MappedModule { bias: 0, path: b"", rules: &rules }]));
}

/// Checks that an index leads to descriptions whose rules can be read.
fn check(frames: &[u8], pairs: &[[u8; 8]]) {
    let section = EhFrame::from(EndianSlice::new(frames, LittleEndian));
    let bases = BaseAddresses::default().set_eh_frame(0);
    let mut context = UnwindContext::new();
    let starts = pairs.iter().map(|pair| u64::from_ne_bytes(*pair) & 0xffff_ffff);
    assert!(starts.is_sorted_by(|one, next| one < next), "one description for each start");
    for pair in pairs {
        let start = u64::from_ne_bytes(*pair) & 0xffff_ffff;
        let offset = search(pairs, start).expect("the pair itself") as usize;
        let description = section.fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset);
        let description = description.expect("a description that was made");
        assert_eq!(description.initial_address(), start);
        for address in [start, description.end_address() - 1] {
            let row = description.unwind_info_for_address(&section, &bases, &mut context, address);
            row.expect("a rule that was made");
        }
    }
}

/// Reads a table with any contents.
pub fn tables(data: &[u8]) {
    let Some(read) = ModuleTable::parse(data) else { return };
    for module in read.modules() {
        let _ = read.find(module.start);
        let _ = read.find(module.end.wrapping_sub(1));
        assert!(read.path(&module).len() <= data.len());
        assert!(read.generated_frames(&module).len() <= data.len());
        for index in [module.found, module.generated] {
            let pairs = read.pairs(&index);
            assert!(pairs.len() <= data.len() / 8);
            let _ = search(pairs, module.end.wrapping_sub(module.start));
        }
    }
}

/// Returns a small file with this code, which begins with a function.
pub fn with_code(code: &[u8]) -> Vec<u8> {
    const AT: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let names = b"\0.text\0.symtab\0.strtab\0f\0";
    let text_end = HEADERS + code.len() as u64;
    let (symbols, strings) = (text_end, text_end + 48);
    let sections = strings + names.len() as u64;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    file.extend([0, 64, sections].map(u64::to_le_bytes).concat());
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 4, 0, 3, 0]);
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    file.extend([0, AT, AT, text_end, text_end, 4096].map(u64::to_le_bytes).concat());
    file.extend(code);
    file.extend([0; 24]);
    file.extend([22, 0, 0, 0, 0x12, 0, 1, 0]);
    file.extend([AT + HEADERS, code.len() as u64].map(u64::to_le_bytes).concat());
    file.extend(names);
    let mut section = |name: u32, kind: u32, flags: u64, address: u64, at: u64, size: u64, link: u32, entry: u64| {
        file.extend([name, kind].map(u32::to_le_bytes).concat());
        file.extend([flags, address, at, size].map(u64::to_le_bytes).concat());
        file.extend([link, 1].map(u32::to_le_bytes).concat());
        file.extend([8, entry].map(u64::to_le_bytes).concat());
    };
    section(0, 0, 0, 0, 0, 0, 0, 0);
    section(1, 1, 6, AT + HEADERS, HEADERS, code.len() as u64, 0, 0);
    section(7, 2, 0, 0, symbols, 48, 3, 24);
    section(15, 3, 0, 0, strings, names.len() as u64, 0, 0);
    file
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// `push %rbp; mov %rsp,%rbp; sub $16,%rsp; call +0; add $16,%rsp; pop %rbp; ret`.
    const FUNCTION: &[u8] = &[
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xe8, 0xf3, 0xff, 0xff, 0xff, 0x48, 0x83, 0xc4, 0x10, 0x5d,
        0xc3,
    ];

    #[test]
    fn the_example_has_rules() {
        let rules = FileRules::from_bytes(Path::new("example"), &with_code(FUNCTION), &[]).unwrap();
        assert_eq!(rules.generated().unwrap().pairs.len(), 1);
        module(&with_code(FUNCTION));
    }

    proptest! {
        #[test]
        fn damaged_files_are_no_danger(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..12), cut in any::<Option<u16>>()) {
            let mut file = with_code(FUNCTION);
            for (at, byte) in changes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            file.truncate(cut.map_or(file.len(), usize::from));
            module(&file);
        }

        #[test]
        fn any_code_is_no_danger(code in vec(any::<u8>(), 1..600)) {
            module(&with_code(&code));
        }

        /// Code that goes on for longer: of instructions that move the stack, and jumps.
        #[test]
        fn jumping_code_is_no_danger(parts in vec((0_usize..9, any::<i8>()), 1..200)) {
            const PARTS: [&[u8]; 9] = [
                &[0x55], &[0x5d], &[0xc3], &[0x74, 0], &[0xeb, 0], &[0x48, 0x83, 0xec, 0],
                &[0x48, 0x83, 0xc4, 0], &[0xe8, 0, 0, 0, 0], &[0xc9],
            ];
            let code: Vec<u8> = parts.iter().flat_map(|&(part, number)| {
                let mut bytes = PARTS[part].to_vec();
                if bytes.len() == 2 || bytes.len() == 4 {
                    *bytes.last_mut().unwrap() = number.cast_unsigned();
                }
                bytes
            }).collect();
            module(&with_code(&code));
        }

        #[test]
        fn nor_is_anything_else(bytes in vec(any::<u8>(), 0..2000), modules in 0_u64..12) {
            module(&bytes);
            module(&[&with_code(FUNCTION)[..120], &bytes].concat());
            let mut table = [(16 + bytes.len() as u64).to_ne_bytes(), modules.to_ne_bytes()].concat();
            table.extend(bytes);
            tables(&table);
        }
    }
}
