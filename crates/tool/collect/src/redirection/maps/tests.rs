use std::path::Path;

use super::*;

fn parse(text: &[u8]) -> Mappings {
    Mappings::new(Mapping::parse_list(text))
}

const MAPS: &[u8] = b"\
555555554000-555555558000 r--p 00000000 08:01 77                         /usr/bin/pro gram\n\
555555558000-555555560000 r-xp 00004000 08:01 77                         /usr/bin/pro gram\n\
555555560000-555555562000 rw-p 0000c000 08:01 77                         /usr/bin/pro gram\n\
555555700000-555555721000 rw-p 00000000 00:00 0                          [heap]\n\
7ffff7c00000-7ffff7c28000 r--p 00000000 08:01 88                         /usr/lib/lib.so\n\
7ffff7c28000-7ffff7d00000 r-xp 00028000 08:01 88                         /usr/lib/lib.so\n\
7ffff7d00000-7ffff7e00000 r-xp 00000000 00:01 9                          /memfd:x (deleted)\n\
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]\n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n\
damaged line\n\
7fff-7ffe r-xp 00000000 08:01 5 /backwards\n";

#[test]
fn modules_are_those_with_code_in_a_file() {
    let modules = parse(MAPS).modules();
    let paths: Vec<&Path> = modules.iter().map(|module| module.path.as_path()).collect();
    assert_eq!(paths[..2], [Path::new("/usr/bin/pro gram"), Path::new("/usr/lib/lib.so")]);
    assert_eq!((modules[0].start, modules[0].offset, modules[0].inode), (0x5555_5555_8000, 0x4000, 77));
}

#[test]
fn gaps_are_free_near_and_taken_once() {
    let mut mappings = parse(MAPS);
    let modules = mappings.modules();
    for module in modules.iter().take(2).chain(modules.iter().take(2)) {
        let before = mappings.mapped.clone();
        let address = mappings.take_gap_near(module, 0x3000, false).unwrap();
        assert_eq!(address % 4096, 0);
        assert!(address < module.start && module.end - address < DISTANCE_MAX, "{address:x}");
        assert!(before.iter().all(|mapping| mapping.end <= address || mapping.start >= address + 0x3000));
    }
}

#[test]
fn a_program_at_a_fixed_address_has_room_below() {
    let mut mappings = parse(b"400000-401000 r-xp 00000000 08:01 7 /p\n");
    let module = mappings.modules().remove(0);
    let address = mappings.take_gap_near(&module, 0x2000, false).unwrap();
    assert!((ADDRESS_MIN..0x40_0000 - 0x2000).contains(&address), "{address:x}");
    // With nothing free below, above.
    let mut mappings = parse(b"10000-401000 r-xp 00000000 08:01 7 /p\n");
    let address = mappings.take_gap_near(&mappings.modules().remove(0), 0x2000, false).unwrap();
    assert!(address > 0x40_1000 && address < DISTANCE_MAX, "{address:x}");
}

/// The kernel may put the plan's own mapping into a small gap.
#[test]
fn small_gaps_are_the_last_resort() {
    let modules =
        "7f0000800000-7f0000900000 r-xp 00000000 08:01 7 /a\n7f0000904000-7f0000a00000 r-xp 00000000 08:01 8 /b\n";
    let mut mappings = parse(modules.as_bytes());
    let module = mappings.modules().remove(1);
    let address = mappings.take_gap_near(&module, 0x3000, false).unwrap();
    assert!(address + 0x3000 + CLEARANCE <= 0x7f00_0080_0000, "{address:x}");
    // Without any other room, it has to do.
    let full = format!(
        "10000-7f0000800000 r--p 00000000 08:01 9 /c\n{modules}7f0000a00000-7fffffffe000 r--p 00000000 08:01 9 /d\n"
    );
    let mut mappings = parse(full.as_bytes());
    let address = mappings.take_gap_near(&module, 0x3000, false);
    assert_eq!(address, Some(0x7f00_0090_1000));
}

#[test]
fn without_room_there_is_none() {
    let mut mappings = parse(b"10000-7ffffffff000 r-xp 00000000 08:01 7 /p\n");
    let module = mappings.modules().remove(0);
    assert_eq!(mappings.take_gap_near(&module, 0x2000, false), None);
}

/// A module that is opened later finds its place again when it has been closed.
#[test]
fn later_modules_keep_more_room() {
    let mut mappings = parse(b"7f0008000000-7f0008900000 r-xp 00000000 08:01 7 /a\n");
    let address = mappings.take_gap_near(&mappings.modules().remove(0), 0x1000, true).unwrap();
    assert!(address + 0x1000 + CLEARANCE_LATER <= 0x7f00_0800_0000, "{address:x}");
}
