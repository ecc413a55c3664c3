use super::*;
use proptest::prelude::*;

fn names(wanted: &Wanted) -> Vec<(u64, &str)> {
    wanted.names().map(|(address, name)| (address, &**name)).collect()
}

/// Each line of a hostile file may cover all addresses.
#[test]
fn functions_that_cover_each_other_end_the_reading() {
    let lines = 100;
    let addresses = || Wanted { found_left: lines << 12, ..Wanted::new((0..1 << 12).map(|at| (at, 0))) };
    assert_eq!(Wanted::new([]).found_left, FOUND_MAX);
    let (line, lines) = (b"0 ffffffffffffffff x\n", lines as usize);
    let read = |count: usize, wanted: &mut Wanted| perf_map::read(&line.repeat(count)[..], wanted);
    assert_eq!(read(lines, &mut addresses()).unwrap(), 0);
    let mut wanted = addresses();
    let error = read(lines + 9, &mut wanted).unwrap_err();
    assert_eq!((error.offset, wanted.names().count()), ((lines * line.len()) as u64, 1 << 12));
    assert!(matches!(error.reason, CodeMapReason::TooManyNames));
}

#[test]
fn a_name_is_kept_once_for_all_addresses() {
    let mut wanted = Wanted::new((0..100).map(|at| (at, 0)));
    assert!(wanted.note(0, 100, &[b'a'; NAME_MAX], None));
    let mut names = wanted.names().map(|(_, name)| name);
    let first = names.next().unwrap();
    assert!(names.all(|name| Rc::ptr_eq(first, name)));
}

#[test]
fn the_bytes_of_names_are_limited() {
    let mut wanted = Wanted::new([(1, 0)]);
    for _ in 0..NAMES_MAX / NAME_MAX {
        assert!(wanted.note(0, 2, &[b'a'; NAME_MAX], None));
    }
    assert!(!wanted.note(0, 2, b"b", None));
    assert_eq!(wanted.names().next().unwrap().1.len(), NAME_MAX);
}

#[test]
fn a_function_has_the_addresses_of_its_code() {
    let mut wanted = Wanted::new([(0x1fff, 0), (0x100, 0), (0x10f, 0), (0x110, 0), (0xff, 0), (u64::MAX, 0)]);
    wanted.note(0x100, 0x10, b"one", None);
    wanted.note(u64::MAX, u64::MAX, b"end\n\0", None);
    assert_eq!(names(&wanted), [(0x100, "one"), (0x10f, "one"), (u64::MAX, "end\u{fffd}\u{fffd}")]);
    assert_eq!(wanted.unnamed().map(|(address, _)| address).collect::<Vec<_>>(), [0xff, 0x110, 0x1fff]);
}

#[test]
fn without_times_the_last_function_counts() {
    let mut wanted = Wanted::new([(0x100, 0)]);
    wanted.note(0x100, 0x10, b"one", None);
    wanted.note(0xf0, 0x20, b"two", None);
    assert_eq!(names(&wanted), [(0x100, "two")]);
}

#[test]
fn with_times_the_function_that_was_there_counts() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let mut wanted = Wanted::new([(0x100, 25), (0x200, 5), (0x300, 100)]);
        for at in order {
            let (name, since) = [("ten", 10), ("twenty", 20), ("thirty", 30), ("forty", 40)][at];
            for start in [0x100, 0x200, 0x300] {
                wanted.note(start, 1, name.as_bytes(), Some(since));
            }
        }
        // At 5 nothing was there yet: the first one is nearest.
        assert_eq!(names(&wanted), [(0x100, "twenty"), (0x200, "ten"), (0x300, "forty")]);
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        fuzzing::code_map(&bytes);
    }

    #[test]
    fn damaged_files(at in 0_usize..400, byte: u8, cut in 0_usize..400, is_map: bool) {
        let mut file = if is_map { perf_map::tests::FILE.as_bytes().to_vec() } else { jitdump::tests::file(false) };
        if let Some(to) = file.get_mut(at) {
            *to = byte;
        }
        file.truncate(cut.max(1));
        fuzzing::code_map(&file);
    }
}
