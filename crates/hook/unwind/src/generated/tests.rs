use core::ops::Range;

use super::maps::{Search, Unknown};
use super::*;

const MAPS: &str = "\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus daemon\n\
00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/dbus daemon\n\
7f0000000000-7f0000010000 rwxp 00000000 00:00 0 \n\
7f0000010000-7f0000020000 r-xp 00000000 00:00 0\n\
7f0000020000-7f0000030000 r-xp 014c4000 fe:00 247584                     /usr/bin/node\n\
7f0000030000-7f0000040000 r-xp 014c4000 fe:00 247584                     /usr/bin/node\n\
7f0000050000-7f0000060000 rw-p 00000000 00:00 0 \n\
7f0000060000-7f0000070000 r-xp 00000000 00:00 0                          [vdso]\n\
7f0000080000-7f0000090000 r-xp 00000000 00:00 0                          [anon:v8]\n\
7f0000090000-7f00000a0000 r-xp 00000000 00:00 0 \n\
7f00000b0000-7f00000c0000 r-xs 00000000 00:01 5                          /memfd:code (deleted)\n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";

fn search(address: u64, piece: usize) -> Option<Range<u64>> {
    let mut search = Search::new(address);
    for piece in MAPS.as_bytes().chunks(piece) {
        if search.feed(piece) {
            break;
        }
    }
    search.finish().map(|found| found.start..found.end)
}

#[test]
fn the_list_is_read_in_pieces_of_any_length() {
    for piece in [1, 2, 7, 64, 10_000] {
        assert_eq!(search(0x40_1000, piece), Some(0x40_0000..0x45_2000));
        assert_eq!(search(0x65_1000, piece), None);
        // Anonymous memory that borders on other such memory is one range; a file's is not.
        assert_eq!(search(0x7f00_0000_0000, piece), Some(0x7f00_0000_0000..0x7f00_0002_0000));
        assert_eq!(search(0x7f00_0001_ffff, piece), Some(0x7f00_0000_0000..0x7f00_0002_0000));
        assert_eq!(search(0x7f00_0002_0000, piece), Some(0x7f00_0002_0000..0x7f00_0003_0000));
        assert_eq!(search(0x7f00_0003_ffff, piece), Some(0x7f00_0003_0000..0x7f00_0004_0000));
        assert_eq!(search(0x7f00_0004_0000, piece), None);
        assert_eq!(search(0x7f00_0005_0000, piece), None);
        assert_eq!(search(0x7f00_0006_0000, piece), None);
        // The program has given a name to its memory.
        assert_eq!(search(0x7f00_0008_0000, piece), Some(0x7f00_0008_0000..0x7f00_000a_0000));
        assert_eq!(search(0x7f00_000b_0000, piece), Some(0x7f00_000b_0000..0x7f00_000c_0000));
        assert_eq!(search(u64::MAX, piece), None);
        assert_eq!(search(0, piece), None);
    }
}

#[test]
fn ranges_hold_their_addresses() {
    let (start, end) = (0x1234_5000_0000, 0x1234_5004_0000);
    assert!(!is_known(start));
    keep(start, end);
    assert!(is_known(start) && is_known(end - 1));
    assert!(!is_known(start - 1) && !is_known(end));
}

#[cfg(not(miri))]
#[test]
fn this_process_has_code_and_data() {
    let own = ranges_hold_their_addresses as *const () as u64;
    let code = maps::executable_around(own).unwrap().expect("code");
    assert!((code.start..code.end).contains(&own) && code.is_named_file);
    let data = &raw const code as u64;
    assert_eq!(maps::executable_around(data), Ok(None));
}

/// Looks an address up in a child that may have this number of descriptors. Returns 0 if nothing is
/// known, 1 if there is no code, 2 if there is.
#[cfg(not(miri))]
fn look_up_with_descriptors(count: u64, address: u64) -> i32 {
    unsafe extern "C" {
        fn fork() -> i32;
        fn setrlimit(resource: i32, limits: *const [u64; 2]) -> i32;
        fn _exit(status: i32) -> !;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    }
    const RLIMIT_NOFILE: i32 = 7;
    let mut status = 0;
    // SAFETY: `fork` in a program of several threads requires that the child calls only what a
    // signal handler may call: it makes system calls. The limits and the status are live.
    unsafe {
        let child = fork();
        if child == 0 {
            setrlimit(RLIMIT_NOFILE, &[count, count]);
            _exit(match maps::executable_around(address) {
                Err(Unknown) => 0,
                Ok(None) => 1,
                Ok(Some(_)) => 2,
            });
        }
        assert_eq!(waitpid(child, &mut status, 0), child);
    }
    assert_eq!(status & 0x7f, 0);
    status >> 8
}

#[cfg(not(miri))]
#[test]
fn a_list_that_cannot_be_read_is_no_answer() {
    let own = a_list_that_cannot_be_read_is_no_answer as *const () as u64;
    assert_eq!(look_up_with_descriptors(0, own), 0);
    let data = &raw const own as u64;
    assert_eq!(look_up_with_descriptors(1 << 10, data), 1);
}

#[cfg(not(miri))]
#[test]
fn the_programs_descriptors_are_not_used() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    if !status.contains("\nSeccomp:\t0\n") {
        return std::eprintln!("skipped: system calls are filtered here");
    }
    let own = the_programs_descriptors_are_not_used as *const () as u64;
    // Number 0 is the standard input.
    assert_eq!(look_up_with_descriptors(1, own), 2);
}

#[test]
fn refused_addresses_are_asked_about_again() {
    let address = 0x5678_1234;
    assert!(!is_refused(address));
    refuse(address);
    let asked = (0..REFUSED_UNTIL).filter(|_| !is_refused(address)).count();
    assert_eq!(asked, 1);
}

#[cfg(not(miri))]
#[test]
fn a_trampoline_is_known_by_its_bytes() {
    let code: [u8; 16] = [0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3, 0, 0, 0, 0, 0];
    assert_eq!(is_trampoline(code.as_ptr() as u64 + 6), Some(true));
    assert_eq!(is_trampoline(code.as_ptr() as u64 + 5), Some(false));
    // Bytes that cannot be read may be one: no rule must be remembered.
    assert_eq!(is_trampoline(8), None);
}
