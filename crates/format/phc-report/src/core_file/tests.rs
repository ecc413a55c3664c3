use heapledger_core::crash_record::{HEADER, LENGTH, MAGIC, VERSION};
use proptest::prelude::*;

use super::*;
use crate::{PhcFile, fuzzing};

const REPORTS: &str = "report\nError=overflow\nAddress=4128\nAccess=read\nProcess=17\nThread=18\nStack=5,6\n\
    PHCKind=GuardPage\nPHCBaseAddress=4096\nPHCUsableSize=32\nRequestedSize=32\nAllocThread=17\nmaps\n\n";

/// A note: its size, its name, and its content, each filled up to a multiple of 4.
fn note(kind: u32, name: &[u8], content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [name.len() as u32, content.len() as u32, kind] {
        bytes.extend(number.to_le_bytes());
    }
    for part in [name, content] {
        bytes.extend(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

fn program_header(kind: u32, offset: u64, address: u64, bytes: u64) -> Vec<u8> {
    let mut header = [kind.to_le_bytes(), 6_u32.to_le_bytes()].concat();
    header.extend([offset, address, 0, bytes, bytes, 4].map(u64::to_le_bytes).concat());
    header
}

/// An ELF file of a type with segments: their kind, address and content.
fn elf_file(kind: u16, segments: &[(u32, u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    bytes.extend([kind.to_le_bytes(), 62_u16.to_le_bytes()].concat());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend([0_u64, 64, 0].map(u64::to_le_bytes).concat());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend([64, 56, segments.len() as u16, 64, 0, 0].map(u16::to_le_bytes).concat());
    let mut at = 64 + 56 * segments.len() as u64;
    for (kind, address, content) in segments {
        bytes.extend(program_header(*kind, at, *address, content.len() as u64));
        at += content.len() as u64;
    }
    segments.iter().for_each(|(_, _, content)| bytes.extend(content));
    bytes
}

/// A core file as the kernel writes it, with the mapping of the checker.
fn core_file(version: u32, reports: &str) -> Vec<u8> {
    let mut process = vec![0; 136];
    process[24..28].copy_from_slice(&17_u32.to_le_bytes());
    process[40..47].copy_from_slice(b"program");
    let mut status = vec![0; 336];
    status[12] = 11;
    let mut files = [2_u64, 4096, 0x1000, 0x2000, 0, 0x2000, 0x5000, 1].map(u64::to_le_bytes).concat();
    files.extend(b"/usr/bin/a program\0/usr/bin/a program\0");
    let notes = [
        note(elf::NT_PRSTATUS.0, b"CORE\0", &status),
        note(elf::NT_PRPSINFO.0, b"CORE\0", &process),
        note(elf::NT_FILE.0, b"CORE\0", &files),
    ];
    let module = elf_file(3, &[(4, 0, note(elf::NT_GNU_BUILD_ID.0, b"GNU\0", &[1, 2, 3, 4]))]);
    let mut checker = MAGIC.to_vec();
    checker.extend([version, reports.len() as u32, 0, 0].map(u32::to_le_bytes).concat());
    checker.extend(reports.as_bytes());
    checker.resize(LENGTH.min(4096), 0);
    elf_file(4, &[(4, 0, notes.concat()), (1, 0x1000, module), (1, 0x9000, vec![0; 64]), (1, 0xa000, checker)])
}

#[test]
fn a_core_file_has_the_reports_of_its_process() {
    let bytes = core_file(VERSION, REPORTS);
    let core = read_core(&bytes[..]).unwrap();
    assert_eq!((core.process, core.program.as_str(), core.signal), (17, "program", 11));
    assert_eq!(
        core.maps,
        ["1000-2000 r--p 0 00:00 0 /usr/bin/a program", "2000-5000 r--p 1000 00:00 0 /usr/bin/a program"]
    );
    assert_eq!(core.build_ids, [("/usr/bin/a program".to_owned(), vec![1, 2, 3, 4])]);
    let file = core.file().unwrap();
    let [report] = &file.reports[..] else { panic!("{file:?}") };
    assert_eq!((report.error, report.program, report.process, report.maps.len()), ("overflow", "program", 17, 2));
    assert_eq!(report.at.stack, [5, 6]);

    let none = core_file(VERSION, "");
    assert_eq!(read_core(&none[..]).unwrap().file().unwrap(), PhcFile::default());
}

#[test]
fn core_files_without_reports_say_why() {
    let error = |bytes: &[u8]| read_core(bytes).unwrap_err();
    assert_eq!(error(b""), PhcCoreError::NotCore);
    assert_eq!(error(b"report\nmaps\n\n"), PhcCoreError::NotCore);
    assert_eq!(error(&elf_file(3, &[])), PhcCoreError::NotCore);
    assert_eq!(error(&elf_file(4, &[(1, 0, vec![1; 4096])])), PhcCoreError::NoChecker);
    assert_eq!(error(&core_file(7, REPORTS)), PhcCoreError::Version(7));
    let whole = core_file(VERSION, REPORTS);
    // The end of the file is missing, and with it the mapping of the checker, or the segments.
    assert_eq!(error(&whole[..whole.len() - 4096]), PhcCoreError::NoChecker);
    assert_eq!(error(&whole[..100]), PhcCoreError::Cut(64));
    let cut = whole.len() - 4096 + HEADER + 3;
    assert!(matches!(error(&whole[..cut]), PhcCoreError::Cut(_)), "{:?}", error(&whole[..cut]));
    let mut other = whole;
    other[18] = 183;
    assert_eq!(error(&other), PhcCoreError::Machine);
}

#[test]
fn a_length_that_is_too_large_is_no_other_version() {
    let mut bytes = core_file(VERSION, REPORTS);
    let checker = bytes.len() - 4096;
    bytes[checker + 20..checker + 24].copy_from_slice(&(LENGTH as u32).to_le_bytes());
    assert_eq!(read_core(&bytes[..]), Err(PhcCoreError::Cut(checker as u64)));
}

#[test]
fn mappings_of_many_reports_are_bounded() {
    let core = |maps, reports| PhcCore {
        maps: vec!["1000-2000 r--p 0 00:00 0 /a".to_owned(); maps],
        reports: "report\n\n".repeat(reports),
        ..PhcCore::default()
    };
    let mappings = |core: &PhcCore| core.file().unwrap().reports.iter().map(|report| report.maps.len()).sum::<usize>();
    assert_eq!(mappings(&core(2048, 4096)), REPORT_MAPPINGS_MAX);
    // Reports that the checker itself can write have all of theirs.
    assert_eq!(mappings(&core(65_530, 60)), 65_530 * 60);
}

#[test]
fn notes_that_share_their_bytes_are_bounded_together() {
    let mut checker = MAGIC.to_vec();
    checker.extend([VERSION, 0, 0, 0].map(u32::to_le_bytes).concat());
    checker.resize(HEADER, 0);
    let large = note(0, b"CORE\0", &vec![0; NOTES_BYTES_MAX as usize / 2]);
    let mut bytes = elf_file(4, &[(4, 0, large), (4, 0, Vec::new()), (1, 0xa000, checker)]);
    assert!(read_core(&bytes[..]).is_ok());
    // The second segment has the bytes of the first.
    bytes.copy_within(64..120, 120);
    assert!(matches!(read_core(&bytes[..]), Err(PhcCoreError::Cut(_))));
}

proptest! {
    #[test]
    fn damaged_core_files_are_no_danger(
        changes in prop::collection::vec((0..1600_usize, any::<u8>()), 0..12),
        length in 0..8000_usize,
    ) {
        let mut bytes = core_file(VERSION, REPORTS);
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(length);
        fuzzing::core(&bytes);
    }
}
