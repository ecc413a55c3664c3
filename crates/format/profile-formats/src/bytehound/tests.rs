//! Files as bytehound writes them, whole and damaged.

use super::*;
use crate::profile::EventKind;

/// A file that is being written.
#[derive(Default)]
struct Written(Vec<u8>);

const MAPS: &str = "1000-2000 r-xp 00000000 08:01 7 /bin/a\n5000-6000 r-xp 0 08:01 8 /lib/libbytehound.so\n";

impl Written {
    fn new() -> Written {
        let mut file = Written::default();
        file.header(1).file("/proc/self/maps", MAPS.as_bytes());
        file
    }

    /// Writes the header of process 77, which started 3 s before.
    fn header(&mut self, flags: u64) -> &mut Written {
        self.u32(kind::HEADER)
            .u64(0x1f2e_3d4c_5b6a_7988)
            .u64(0x8796_a5b4_c3d2_e1f0)
            .u64(7_000_000)
            .u64(10_000_000)
            .u64(50)
            .u64(9)
            .u32(77);
        self.sized(b"a\0--b\0").sized(b"/bin/a").sized(b"x86_64").u64(flags).0.push(8);
        self
    }

    fn u32(&mut self, number: u32) -> &mut Written {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn u64(&mut self, number: u64) -> &mut Written {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn sized(&mut self, bytes: &[u8]) -> &mut Written {
        self.u32(bytes.len() as u32).0.extend(bytes);
        self
    }

    fn file(&mut self, path: &str, contents: &[u8]) -> &mut Written {
        self.u32(kind::FILE_64).u64(0).sized(path.as_bytes()).u64(contents.len() as u64).0.extend(contents);
        self
    }

    fn backtrace(&mut self, number: u64, addresses: &[u64]) -> &mut Written {
        self.u32(kind::BACKTRACE).u64(number).u32(addresses.len() as u32);
        addresses.iter().for_each(|&address| _ = self.u64(address));
        self
    }

    /// Writes an allocation at a millisecond since the start, of the block with a number.
    fn allocate(&mut self, block: u64, ms: u64, bytes: u64, backtrace: u64) -> &mut Written {
        self.u32(kind::ALLOC_EX).u64(9).u64(block).u64(7_000_000 + ms * 1000).body(0x4000, bytes, backtrace)
    }

    fn reallocate(&mut self, block: u64, ms: u64, bytes: u64, backtrace: u64) -> &mut Written {
        self.u32(kind::REALLOC_EX).u64(9).u64(block).u64(7_000_000 + ms * 1000).u64(0x4000);
        self.body(0x4800, bytes, backtrace)
    }

    fn body(&mut self, address: u64, bytes: u64, backtrace: u64) -> &mut Written {
        self.u64(address).u64(bytes).u64(backtrace).u32(78).u32(0).u32(8).u64(0)
    }

    fn free(&mut self, block: u64, ms: u64) -> &mut Written {
        self.u32(kind::FREE_EX).u64(9).u64(block).u64(7_000_000 + ms * 1000).u64(0x4000).u64(0).u32(79)
    }

    /// Returns the file, in blocks of 100 bytes that are compressed or not.
    fn finish(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for (at, part) in self.0.chunks(100).enumerate() {
            let packed = if at % 2 == 0 { lz4_flex::block::compress(part) } else { part.to_vec() };
            file.push(if at % 2 == 0 { 1 } else { 2 });
            file.extend((packed.len() as u32).to_le_bytes());
            file.extend(packed);
        }
        file
    }

    fn example() -> Vec<u8> {
        let mut file = Written::new();
        // A block and its free come before an earlier block.
        file.backtrace(1, &[0x5010, 0x5020, 0x1010, 0x1020]).allocate(1, 20, 100, 1).free(1, 40);
        file.backtrace(2, &[0x1011, 0x9000]).allocate(2, 10, 50, 2).reallocate(2, 30, 80, 1).free(3, 50);
        file.finish()
    }
}

/// An event: milliseconds, the thread, the number of the block, its bytes, and its sample if it is
/// allocated.
type Seen = (u64, u32, u64, u64, Option<usize>);

fn events(file: &[u8]) -> (Profile, Vec<Seen>) {
    let mut seen = Vec::new();
    let profile = read(file, &mut |event| {
        let (bytes, sample) = match event.kind {
            EventKind::Allocated { bytes, sample } => (bytes, Some(sample)),
            EventKind::Freed { bytes, .. } => (bytes, None),
        };
        seen.push((event.time_ns / 1_000_000, event.thread, event.address, bytes, sample));
    });
    (profile.unwrap(), seen)
}

/// Returns the modules and addresses of a sample, the innermost first.
fn places(profile: &Profile, sample: usize) -> Vec<(&str, u64)> {
    let place = |&at: &usize| {
        let location = &profile.locations[at];
        (location.module.map_or("", |at| profile.modules[at].path.as_str()), location.address)
    };
    profile.samples[sample].locations.iter().map(place).collect()
}

#[test]
fn calls_are_sorted_by_time() {
    let file = Written::example();
    assert!(detects(&file) && !detects(&file[1..]) && !detects(b""));
    // A first block that is longer than what is looked at.
    let mut long = Written::new();
    (0..2000).for_each(|at| _ = long.u32(kind::STRING).u32(at).sized(format!("{}", at * 7919).as_bytes()));
    let packed = lz4_flex::block::compress(&long.0);
    let long = [&[1][..], &(packed.len() as u32).to_le_bytes(), &packed].concat();
    assert!(detects(&long) && detects(&long[..200]) && !detects(&long[..40]) && !detects(&long[..11]));
    assert_eq!(read(&long, &mut |_| {}).unwrap().pid, 77);
    let (profile, seen) = events(&file);
    let wanted = [
        (10, 78, 2, 50, Some(1)),
        (20, 78, 1, 100, Some(0)),
        (30, 78, 2, 50, None),
        (30, 78, 3, 80, Some(0)),
        (40, 79, 1, 100, None),
    ];
    assert_eq!(seen, wanted);
    assert_eq!(places(&profile, 0), [("/bin/a", 0x100f), ("/bin/a", 0x101f)]);
    assert_eq!(places(&profile, 1), [("/bin/a", 0x1010), ("", 0x8fff)]);
    assert_eq!((profile.command.as_str(), profile.pid, profile.is_cut), ("a --b", 77, false));
    assert_eq!((profile.start_unix_ns, profile.duration_ns), (47_000_000_009, 40_000_000));
}

#[test]
fn blocks_without_numbers_are_known_by_their_addresses() {
    let mut file = Written::new();
    file.backtrace(1, &[0x1010]);
    for ms in [1, 2] {
        file.u32(kind::ALLOC).u64(7_000_000 + ms * 1000).body(0x4000, ms, 1);
    }
    file.u32(kind::REALLOC).u64(7_003_000).u64(0x4000).body(0x4800, 3, 1);
    file.u32(kind::FREE).u64(7_004_000).u64(0x4000).u64(0).u32(1);
    file.u32(kind::FREE_EX).u64(0).u64(0).u64(7_005_000).u64(0x4800).u64(0).u32(1);
    let (_, seen) = events(&file.finish());
    // The second block at an address ends the first one, whose free was not seen.
    let calls: Vec<_> =
        seen.iter().map(|&(ms, _, block, bytes, sample)| (ms, block, bytes, sample.is_some())).collect();
    let wanted =
        [(1, 1, 1, true), (2, 1, 1, false), (2, 2, 2, true), (3, 2, 2, false), (3, 3, 3, true), (5, 3, 3, false)];
    assert_eq!(calls, wanted);
}

#[test]
fn stacks_of_all_kinds() {
    let mut file = Written::new();
    file.u32(kind::BACKTRACE_32).u64(1).u32(1).u32(0x1002);
    file.u32(kind::PARTIAL_BACKTRACE).u64(2).u32(7).u32(u32::MAX).u32(3).u64(0x1004).u64(0x1005).u64(0x1006);
    file.u32(kind::PARTIAL_BACKTRACE_32).u64(3).u32(7).u32(2).u32(1).u32(0x1008);
    file.allocate(1, 0, 1, 1).allocate(2, 0, 1, 2).allocate(3, 0, 1, 3);
    // Another program is mapped there.
    file.file("/proc/self/maps", b"1000-2000 r-xp 0 08:01 7 /bin/z\n");
    file.backtrace(4, &[0x1002]).allocate(4, 0, 1, 4);
    let (profile, _) = events(&file.finish());
    let found: Vec<_> = (0..4).map(|at| places(&profile, at)).collect();
    let a = |address| ("/bin/a", address);
    assert_eq!(
        found,
        [vec![a(0x1001)], vec![a(0x1003), a(0x1004), a(0x1005)], vec![a(0x1007), a(0x1005)], vec![("/bin/z", 0x1001)]]
    );
}

#[test]
fn names_of_postprocessed_files() {
    let mut file = Written::new();
    file.u32(kind::STRING).u32(4).sized(b"f(int)").u32(kind::STRING).u32(6).sized(b"a.c");
    file.u32(kind::DECODED_FRAME).u64(0x1001).u32(u32::MAX).u32(u32::MAX).u32(4).u32(6).u32(12).u32(u32::MAX).0.push(0);
    file.u32(kind::DECODED_FRAME).u64(0x1003);
    (0..6).for_each(|_| _ = file.u32(u32::MAX));
    file.0.push(1);
    file.u32(kind::STRING).u32(2).sized(b"libbytehound.so");
    file.u32(kind::DECODED_FRAME).u64(0x5001).u32(2);
    (0..5).for_each(|_| _ = file.u32(u32::MAX));
    file.0.push(0);
    file.u32(kind::DECODED_BACKTRACE).u32(1).u32(1).u32(kind::DECODED_BACKTRACE).u32(3).u32(2).u32(0).u32(1);
    file.allocate(1, 0, 8, 1);
    let (profile, seen) = events(&file.finish());
    assert_eq!(seen.len(), 1);
    let frames: Vec<_> = profile.samples[0].locations.iter().map(|&at| profile.locations[at].frames.first()).collect();
    let known = frames[0].unwrap();
    assert_eq!((known.function.as_str(), known.file.as_str(), known.line), ("f(int)", "a.c", 12));
    assert_eq!((frames.len(), frames[1], places(&profile, 0)[1]), (2, None, ("", 0x1003)));
}

#[test]
fn events_that_are_not_needed_are_passed_over() {
    let mut file = Written::new();
    file.u32(kind::MEMORY_DUMP).u64(0).u64(3).sized(b"abc");
    for (kind, length) in [
        (kind::MARKER, 4),
        (kind::MEMORY_MAP, 64),
        (kind::MEMORY_UNMAP, 36),
        (kind::MALLOPT, 32),
        (kind::WALL_CLOCK, 24),
        (kind::GROUP_STATISTICS, 56),
    ] {
        file.u32(kind).0.extend(vec![0xff; length]);
    }
    file.u32(kind::ENVIRON).sized(b"A=b");
    file.u32(kind::ADD_REGION).u64(1).0.extend([1; 10]);
    file.0.extend([0x81, 2].repeat(2));
    file.u64(0).u32(0).0.extend(*b"\x03abc");
    file.u32(kind::REMOVE_REGION).u64(1).0.push(1);
    file.u64(2).0.extend([3, 2]);
    for _ in 0..2 {
        file.u64(2).0.push(9);
        file.u64(2).0.push(9);
        file.u32(1);
    }
    file.u32(kind::UPDATE_REGION_USAGE).u64(1).0.push(1);
    file.u64(2).0.extend([1; 7]);
    file.u32(kind::MEMORY_MAP_EX).0.push(1);
    file.u64(2).0.extend([1, 2]);
    file.u64(1).u32(1).0.push(0);
    file.u64(5).0.push(1);
    file.u32(9);
    // The same header again.
    file.header(1).backtrace(1, &[0x1010]).allocate(1, 0, 8, 1);
    let (profile, seen) = events(&file.finish());
    assert_eq!((seen.len(), profile.is_cut), (1, false));
}

#[test]
fn programs_have_build_ids() {
    // A small one: of the test itself, most is debug information.
    let shell = std::fs::read("/bin/sh").unwrap();
    let mut file = Written::new();
    file.file("/bin/a", &shell).file("/lib/libbytehound.so", b"\x7fELF");
    file.backtrace(1, &[0x1010]).allocate(1, 0, 8, 1);
    let (profile, _) = events(&file.finish());
    let build_id = &profile.modules[0].build_id;
    assert_eq!((build_id.len(), profile.modules[1].build_id.as_str()), (40, ""), "{build_id}");
    let bytes: Vec<u8> = (0..20).map(|at| u8::from_str_radix(&build_id[at * 2..][..2], 16).unwrap()).collect();
    assert!(shell.windows(20).any(|part| part == bytes));
}

#[test]
fn files_that_are_cut_short_are_read_to_their_ends() {
    let file = Written::example();
    let (mut all, mut cut) = (0, 0);
    for length in 0..file.len() {
        match read(&file[..length], &mut |_| all += 1) {
            Ok(profile) => cut += usize::from(profile.is_cut),
            Err(error) => assert!(error.reason.contains("ends before") && length < 300, "{length}: {error}"),
        }
    }
    // An end between blocks that is an end between events, too, is not noticed.
    assert!(cut >= file.len() - 302 && all > 0, "{cut} {all}");
}

#[test]
fn damage_is_told() {
    let whole = Written::new();
    let start = whole.0.len() as u64;
    for (event, wanted) in [
        (&[28, 0, 0, 0][..], "unknown kind 28"),
        (&[20, 0, 0, 0], "stack that has not come"),
        (&[16, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0], "frame of a stack"),
        (&[11, 0, 0, 0], ""),
    ] {
        let mut file = Written(whole.0.clone());
        file.0.extend(event);
        file.0.extend([0; 90]);
        let read = read(&file.finish(), &mut |_| {});
        match read {
            Ok(_) => assert_eq!(wanted, ""),
            Err(error) => assert!(error.reason.contains(wanted) && error.offset > start, "{error}"),
        }
    }
    let big_endian = Written::default().header(0).finish();
    assert!(read(&big_endian, &mut |_| {}).unwrap_err().reason.contains("`x86_64`"));
    for at in 0..Written::example().len() {
        let mut damaged = Written::example();
        damaged[at] ^= 0x55;
        crate::fuzzing::bytehound(&damaged);
    }
}
