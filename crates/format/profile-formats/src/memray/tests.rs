//! Captures as memray writes them, whole and damaged.

use std::io::Write;

use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};

use super::header::VERSIONS;
use super::written::{MALLOC, Written};
use super::*;
use crate::profile::{Amount, EventKind, Thread};

/// Returns the profile, the live blocks at the end and at the peak, and all allocated bytes.
fn totals(bytes: &[u8]) -> (Profile, Amount, Amount, u64) {
    let (mut live, mut most, mut all) = (Amount::default(), Amount::default(), 0);
    let capture = Capture::open(bytes).unwrap();
    assert!(!capture.is_aggregated());
    let profile = capture.read_events(&mut runs_python, &mut |event| match event.kind {
        EventKind::Allocated { bytes, .. } => {
            all += bytes;
            live.add(Amount { blocks: 1, bytes });
            if live.bytes >= most.bytes {
                most = live;
            }
        }
        EventKind::Freed { bytes, .. } => {
            live = Amount { blocks: live.blocks - 1, bytes: live.bytes - bytes };
        }
    });
    (profile.unwrap(), live, most, all)
}

fn runs_python(path: &str, address: u64) -> bool {
    path == "/bin/python" && (0x100..0x200).contains(&address)
}

/// Returns the functions of a sample, the innermost first, and its heap.
fn names(profile: &Profile, sample: usize) -> (Vec<String>, String) {
    let sample = &profile.samples[sample];
    let name = |&at: &usize| {
        let place = &profile.locations[at];
        match (place.frames.first(), place.module.map(|at| &profile.modules[at])) {
            (Some(frame), _) => format!("{}:{}", frame.function, frame.line),
            (None, Some(module)) => format!("{}+{:x}", module.path, place.address - module.bias.unwrap()),
            (None, None) => format!("{:x}", place.address),
        }
    };
    let heap = sample.labels.first().map_or(String::new(), |(_, heap)| heap.clone());
    (sample.locations.iter().map(name).collect(), heap)
}

#[test]
fn calls_of_each_version() {
    for version in VERSIONS {
        let file = Written::example(version);
        assert!(detects(&file) && detects(&file[..8]) && !detects(&file[1..]));
        let (profile, end, peak, all) = totals(&file);
        assert_eq!((end, peak, all), (amount(3, 4360), amount(4, 9456), 13560), "{version}");
        let heaps: Vec<String> = (0..profile.samples.len()).map(|at| names(&profile, at).1).collect();
        assert_eq!(heaps, ["", "pymalloc", "mmap", ""], "{version}");
        // The outermost function of the main thread is memray's own.
        assert_eq!(names(&profile, 0).0, ["keep:12"], "{version}");
        assert_eq!(names(&profile, 1).0, ["/bin/libc.so+2f", "keep:12"], "{version}");
        assert_eq!(names(&profile, 3).0, ["work:30"], "{version}");
        let thread = Thread { number: 2, name: "worker".into() };
        assert_eq!((profile.command.as_str(), profile.pid, &profile.threads[..]), ("a.py --b", 77, &[thread][..]));
        assert_eq!((profile.start_unix_ns, profile.duration_ns), (5_000_000, 40_000_000));
        assert!(!profile.is_cut && profile.known.peak && profile.known.end);
    }
}

#[test]
fn sums_of_each_version() {
    for version in VERSIONS {
        let file = Written::aggregated_example(version);
        let capture = Capture::open(&file).unwrap();
        assert!(capture.is_aggregated());
        let profile = capture.read_totals(&mut runs_python).unwrap();
        let found: Vec<_> = (0..2)
            .map(|at| (names(&profile, at), profile.samples[at].amounts.peak, profile.samples[at].amounts.end))
            .collect();
        let native = ["/bin/libc.so+2f", "keep:12"].map(str::to_owned).to_vec();
        let wanted = [
            ((native, String::new()), amount(2, 500), amount(1, 100)),
            ((vec!["keep:12".to_owned()], "mmap".to_owned()), amount(1, 4096), amount(0, 0)),
        ];
        assert_eq!(found, wanted, "{version}");
        assert_eq!((profile.peak_ns, profile.timeline.len(), profile.is_cut), (20_000_000, 2, false));
    }
}

fn amount(blocks: u64, bytes: u64) -> Amount {
    Amount { blocks, bytes }
}

/// Compresses a file as memray does.
fn packed(file: &[u8]) -> Vec<u8> {
    let blocks = FrameInfo::new().block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(blocks, Vec::new());
    encoder.write_all(file).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn packed_files_and_files_with_room_at_their_ends() {
    let file = Written::example(13);
    let (whole, ..) = totals(&file);
    let lz4 = packed(&file);
    assert!(detects(&lz4) && detects(&lz4[..32]) && !detects(&lz4[..12]) && lz4 != file);
    assert_eq!(totals(&lz4).0, whole);
    // Room behind the last record.
    let mut with_room = file.clone();
    with_room.extend([0; 9000]);
    assert_eq!(totals(&with_room).0, whole);
    // The process was killed before the last record.
    let mut killed = file[..file.len() - 1].to_vec();
    killed.extend([0; 9000]);
    for killed in [killed.clone(), packed(&killed)] {
        assert_eq!(totals(&killed).0, Profile { is_cut: true, ..whole.clone() });
    }
}

#[test]
fn files_that_are_cut_short_are_read_to_their_ends() {
    for version in VERSIONS {
        let file = Written::example(version);
        let (mut was, records) = (0, Written::records_start(version));
        assert!(Capture::open(&file[..records - 1]).unwrap_err().reason.contains("ends before"));
        for length in records + 1..file.len() {
            let (profile, _, _, all) = totals(&file[..length]);
            assert!(profile.is_cut && all >= was, "{version} {length}");
            was = all;
        }
        assert_eq!(was, 13560);
    }
    // A compressed file is read up to its last whole block.
    let mut long = Written::new(13, true, false);
    long.thread(1);
    (1..40_000).for_each(|count| _ = long.call(MALLOC, count * 16, count, 0));
    let lz4 = packed(&long.finish());
    let (whole, _, _, all) = totals(&lz4);
    let (profile, _, _, of_cut) = totals(&lz4[..lz4.len() - 9]);
    assert!(!whole.is_cut && profile.is_cut && of_cut > all / 4 && of_cut < all, "{of_cut} {all}");
}

#[test]
fn damage_is_told() {
    let file = Written::example(13);
    let start = Written::records_start(13);
    for (record, wanted) in [
        (&[9][..], "unknown kind 9"),
        (&[0, 7], "a record of kind 0"),
        (&[0x40, 1, 1], "no thread"),
        (&[0xfe, 1, 1, 1], "no thread"),
        (&[0xf8, 1, 99], "unknown allocator 99"),
        (&[5, 2, 4], "around which"),
        (&[12, 1, 0, 0, 0, 0, 0, 0, 0, 0x10], "more functions are left"),
        (&[12, 1, 0, 0, 0, 0, 0, 0, 0, 0xfe, 1, 18, 1], "native stack that has not come"),
        (&[7, b'a', 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 9], "fewer parts"),
    ] {
        let mut damaged = file[..start].to_vec();
        damaged.extend(record);
        damaged.push(1);
        let error = Capture::open(&damaged).unwrap().read_events(&mut runs_python, &mut |_| {}).unwrap_err();
        assert!(error.reason.contains(wanted) && error.offset > start as u64, "{record:?}: {error}");
    }
    let mut newer = file.clone();
    newer[7] = 99;
    let error = Capture::open(&newer).unwrap_err();
    assert_eq!((error.offset, error.reason.contains("version 99")), (11, true), "{error}");
    assert!(error.reason.contains("versions 11 to 13 are read"), "{error}");
    let lz4 = packed(&file);
    for at in 0..lz4.len() {
        let mut damaged = lz4.clone();
        damaged[at] ^= 0x55;
        crate::fuzzing::memray(&damaged);
    }
}

#[test]
fn libraries_may_come_and_go() {
    let mut file = Written::new(13, true, false);
    let allocate = |file: &mut Written, address, bytes, native| _ = file.call(MALLOC, address, bytes, native);
    file.thread(2).function(1, "f", 10).map(&[("/a.so", 0x1000)]).native_frame(0x1010, 0).push(1);
    allocate(&mut file, 0x10, 1, 1);
    // Another one is loaded: what is there already stays where it is.
    file.map(&[("/a.so", 0x1000), ("/b.so", 0x3000)]);
    allocate(&mut file, 0x20, 2, 1);
    file.native_frame(0x5010, 1);
    allocate(&mut file, 0x30, 4, 2);
    file.map(&[("/c.so", 0x1000), ("/d.so", 0x5000)]);
    allocate(&mut file, 0x40, 8, 1);
    allocate(&mut file, 0x50, 16, 2);
    let file = file.finish();
    let mut found = Vec::new();
    let capture = Capture::open(&file).unwrap();
    let mut no = |_: &str, _: u64| false;
    let profile = capture.read_events(&mut no, &mut |event| {
        if let EventKind::Allocated { bytes, sample } = event.kind {
            found.push((bytes, sample));
        }
    });
    let profile = profile.unwrap();
    // There is no call that runs Python's code: then there is nowhere to put native frames.
    assert_eq!(found, [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0)]);
    let mut modules: Vec<&str> = profile.modules.iter().map(|module| module.path.as_str()).collect();
    modules.sort_unstable();
    assert_eq!(modules, ["/a.so", "/b.so", "/c.so", "/d.so"]);
    // Each of them runs it.
    let capture = Capture::open(&file).unwrap();
    let mut asked = Vec::new();
    let mut yes = |path: &str, address: u64| {
        asked.push((path.to_owned(), address));
        path == "/a.so"
    };
    let profile = capture.read_events(&mut yes, &mut |_| {}).unwrap();
    assert_eq!(names(&profile, 0).0, ["f:10"]);
    assert_eq!(names(&profile, 1).0, ["500f", "f:10"]);
    let asked: Vec<_> = asked.iter().map(|(path, address)| (path.as_str(), *address)).collect();
    assert_eq!(asked, [("/a.so", 15), ("/c.so", 15), ("/d.so", 15)]);
}
