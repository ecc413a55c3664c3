use std::ffi::CString;
use std::{format, fs, process};

use super::group::{is_group_pressed, is_nearly_full};
use super::text::{lines_in, number, number_in};
use super::*;

const GIB: usize = 1 << 30;

fn figures() -> Figures {
    Figures {
        address_space: Limit::NONE,
        data: Limit::NONE,
        mapped: 3 * GIB,
        mapped_data: GIB,
        overcommit: 0,
        commit: (8 * GIB, 6 * GIB),
        memory: 16 * GIB,
    }
}

#[test]
fn the_limit_that_is_exceeded_is_the_cause() {
    let limit = |soft, hard| Limit { soft, hard };
    let of = |change: &dyn Fn(&mut Figures), length| {
        let mut figures = figures();
        change(&mut figures);
        figures.exceeded_by(length)
    };
    assert_eq!(of(&|_| {}, GIB), None);
    // Bytes that are mapped count for one limit, and data for the other.
    let address_space = |soft, hard| move |figures: &mut Figures| figures.address_space = limit(soft, hard);
    assert_eq!(of(&address_space(4 * GIB, 4 * GIB), GIB), None);
    assert_eq!(of(&address_space(4 * GIB, 4 * GIB), GIB + 1), Some(ShortageCause::AddressSpace(false)));
    assert_eq!(of(&address_space(4 * GIB, usize::MAX), 2 * GIB), Some(ShortageCause::AddressSpace(true)));
    assert_eq!(of(&address_space(4 * GIB, 5 * GIB), 6 * GIB), Some(ShortageCause::AddressSpace(false)));
    let data = |soft, hard| move |figures: &mut Figures| figures.data = limit(soft, hard);
    assert_eq!(of(&data(2 * GIB, 2 * GIB), GIB), None);
    assert_eq!(of(&data(2 * GIB, 2 * GIB), GIB + 1), Some(ShortageCause::Data(false)));
    assert_eq!(of(&data(2 * GIB, 8 * GIB), 2 * GIB), Some(ShortageCause::Data(true)));
    // A request for more than the machine has fails for ever; one for what others have does not.
    assert_eq!(of(&|_| {}, 17 * GIB), Some(ShortageCause::TooLarge));
    assert_eq!(of(&|figures| figures.overcommit = 1, 17 * GIB), None);
    let strict = |figures: &mut Figures| figures.overcommit = 2;
    assert_eq!(of(&strict, GIB), None);
    assert_eq!(of(&strict, 3 * GIB), Some(ShortageCause::Commit));
    assert_eq!(of(&strict, 9 * GIB), Some(ShortageCause::TooLarge));
}

#[test]
fn only_what_may_pass_is_waited_for() {
    let passes =
        [ShortageCause::AddressSpace(true), ShortageCause::Data(true), ShortageCause::Commit, ShortageCause::Unknown];
    let stays = [
        ShortageCause::AddressSpace(false),
        ShortageCause::Data(false),
        ShortageCause::TooLarge,
        ShortageCause::Mappings,
        ShortageCause::Group,
        ShortageCause::Refused,
    ];
    assert!(passes.into_iter().all(ShortageCause::may_pass));
    assert!(!stays.into_iter().any(ShortageCause::may_pass));
    assert_eq!(cause_of(Errno(12), usize::MAX / 2), ShortageCause::TooLarge);
    assert_eq!(cause_of(Errno(1), 4096), ShortageCause::Refused);
}

#[test]
fn the_figures_of_this_process_are_those_that_the_standard_library_reads() {
    let kibibytes = |text: &str, name: &str| -> usize {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    };
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    assert_eq!(memory(), kibibytes(&text, "MemTotal:") + kibibytes(&text, "SwapTotal:"));
    let figures = Figures::read();
    assert!(figures.overcommit != HEURISTIC || figures.memory == memory());
    // Other tests allocate meanwhile.
    let is_near = |one: usize, other: usize| one > other / 2 && one < other * 2;
    assert!(is_near(mappings().unwrap(), fs::read_to_string("/proc/self/maps").unwrap().lines().count()));
}

#[test]
fn numbers_and_lines_are_read_from_files() {
    assert_eq!(number(b"  42 kB"), Some(42));
    assert_eq!(number(b"max"), None);
    assert_eq!(number(b"99999999999999999999999"), None);
    let path = std::env::temp_dir().join(format!("heapledger-limits-{}", process::id()));
    let long = "x".repeat(5000);
    fs::write(&path, format!("7\n{long}\nlast")).unwrap();
    let name = CString::new(path.to_str().unwrap()).unwrap();
    assert_eq!((number_in(&name), lines_in(&name)), (Some(7), Some(2)));
    let mut lengths = std::vec::Vec::new();
    assert!(for_lines(&name, |line| lengths.push(line.len())));
    assert_eq!(lengths, [1, 256, 4]);
    fs::remove_file(&path).unwrap();
    assert_eq!((number_in(&name), lines_in(&name)), (None, None));
}

#[test]
fn groups_of_both_versions_are_known() {
    assert!(!is_nearly_full(15 << 20, 16 << 20) && is_nearly_full((15 << 20) + 1, 16 << 20));
    let root = std::env::temp_dir().join(format!("heapledger-groups-{}", process::id()));
    let name = CString::new(root.to_str().unwrap()).unwrap();
    let is_pressed = |line: &str| is_group_pressed(&name, line.as_bytes());
    let one = ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file");
    let two = ("memory.current", "memory.max", "inactive_file");
    for (folder, (used, limit, cache), line) in
        [("memory/a:b/c", one, "4:cpu,memory:/a:b/c"), ("a:b/c", two, "0::/a:b/c"), ("", two, "0::/")]
    {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).unwrap();
        let cases = [("1000", "1000\n", 0, true), ("500\n", "1000", 0, false), ("1000", "max", 0, false)];
        // Files that the kernel can drop do not count.
        for (used_bytes, limit_bytes, cached, expected) in cases.into_iter().chain([("1000", "1000", 100, false)]) {
            fs::write(folder.join(used), used_bytes).unwrap();
            fs::write(folder.join(limit), limit_bytes).unwrap();
            fs::write(folder.join("memory.stat"), format!("cache 999\n{cache} {cached}\nunevictable 0\n")).unwrap();
            assert_eq!(is_pressed(line), expected, "{line}: {used_bytes} of {limit_bytes}, {cached} cached");
        }
    }
    assert!(
        !is_pressed("4:cpu:/a:b/c") && !is_pressed("0::/nowhere") && !is_pressed("") && !is_pressed(&"x:".repeat(999))
    );
    fs::remove_dir_all(&root).unwrap();
}
