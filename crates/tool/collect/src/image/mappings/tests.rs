use std::collections::BTreeMap;

use heapledger_inject::Mapping as Region;
use heapledger_recording::Session as SessionRecord;
use proptest::prelude::*;

use super::*;
use crate::destination::Destination;
use crate::writer::Writer;

mod simulated;

fn mappings() -> Mappings {
    let mut mappings = Mappings::new(ImageId(0), 1, Time(0), true);
    mappings.opening = None;
    mappings
}

fn call(call: MapCall, step: MapStep, address: u64, length: u64, arguments: [u64; 3]) -> Call {
    let (time, thread, stack) = (Time(1), ThreadId(0), StackId(7));
    Call { time, thread, stack, call, step, is_allocators: false, address, length, arguments }
}

fn mmap(address: u64, length: u64) -> Call {
    call(MapCall::Mmap, MapStep::Done, address, length, [3, 0x22, 0])
}

/// Returns what the rows are about: serial, start, pages, and the change.
fn rows(mappings: &Mappings) -> Vec<(u64, u64, u64, String)> {
    let what = |change| match change {
        MappingChange::Mapped { kind, .. } => kind.name().to_owned(),
        MappingChange::Unmapped => "unmapped".to_owned(),
        MappingChange::Moved { to } => format!("to {to:x}"),
        MappingChange::Protected { protection } => format!("protected {}", protection.bits()),
        MappingChange::Advised { advice } => format!("advised {advice}"),
        _ => "unknown".to_owned(),
    };
    let row = |row: &MappingEvent| (row.serial.0, row.start, row.bytes.0 / PAGE, what(row.change));
    mappings.rows.iter().map(row).collect()
}

fn row(serial: u64, start: u64, pages: u64, what: &str) -> (u64, u64, u64, String) {
    (serial, start, pages, what.to_owned())
}

/// An unmapping concerns the parts of all mappings in its range, and nothing else.
#[test]
fn a_partial_unmapping_leaves_the_rest() {
    let mut mappings = mappings();
    mappings.apply(&mmap(0x10000, 4 * PAGE));
    mappings.apply(&mmap(0x14000, 3 * PAGE - 5));
    mappings.apply(&call(MapCall::Munmap, MapStep::Begins, 0x13000, 2 * PAGE, [0; 3]));
    mappings.apply(&call(MapCall::Munmap, MapStep::Begins, 0x90000, PAGE, [0; 3]));
    let expected = [
        row(0, 0x10000, 4, "anonymous"),
        row(1, 0x14000, 3, "anonymous"),
        row(0, 0x13000, 1, "unmapped"),
        row(1, 0x14000, 1, "unmapped"),
    ];
    assert_eq!(rows(&mappings), expected);
    assert_eq!(mappings.mapped.space.bytes(), Bytes(5 * PAGE));
    // A mapping in the place of others.
    mappings.apply(&call(MapCall::Mmap, MapStep::Done, 0x11000, 5 * PAGE, [5, 0x12, 0x3000]));
    let expected = [row(0, 0x11000, 2, "unmapped"), row(1, 0x15000, 1, "unmapped"), row(2, 0x11000, 5, "file")];
    assert_eq!(rows(&mappings)[4..], expected);
}

/// A range that moves takes its parts along; what it grows by is a mapping of its own.
#[test]
fn a_move_keeps_serials() {
    let mut mappings = mappings();
    mappings.apply(&mmap(0x10000, 4 * PAGE));
    mappings.apply(&call(MapCall::Mremap, MapStep::Begins, 0x11000, 3 * PAGE, [0; 3]));
    mappings.apply(&call(MapCall::Mremap, MapStep::Failed, 0x11000, 9 * PAGE, [1, 0x11000, 3 * PAGE]));
    assert_eq!(rows(&mappings).len(), 1, "a failure changes nothing");
    mappings.apply(&call(MapCall::Mremap, MapStep::Begins, 0x12000, 2 * PAGE, [0; 3]));
    mappings.apply(&call(MapCall::Mremap, MapStep::Done, 0x50000, 3 * PAGE, [1, 0x12000, 2 * PAGE]));
    mappings.apply(&call(MapCall::Mremap, MapStep::Begins, 0x50000, 3 * PAGE, [0; 3]));
    mappings.apply(&call(MapCall::Mremap, MapStep::Done, 0x50000, PAGE, [1, 0x50000, 3 * PAGE]));
    let expected = [
        row(0, 0x12000, 2, "to 50000"),
        row(1, 0x52000, 1, "anonymous"),
        row(0, 0x51000, 1, "unmapped"),
        row(1, 0x52000, 1, "unmapped"),
    ];
    assert_eq!(rows(&mappings)[1..], expected);
    assert!(!mappings.mapped.known.contains_key(&MappingSerial(1)), "it is over");
}

/// Another thread may get an address before the one that has left it says where its range is now.
#[test]
fn an_address_that_a_move_has_left_is_another_mapping() {
    let mut mappings = mappings();
    let at = |time, thread, call: Call| Call { time: Time(time), thread: ThreadId(thread), ..call };
    mappings.apply_in_turn(&mmap(0x10000, 4 * PAGE));
    mappings.apply_in_turn(&at(2, 0, call(MapCall::Mremap, MapStep::Begins, 0x10000, 4 * PAGE, [0; 3])));
    mappings.apply_in_turn(&at(3, 1, mmap(0x11000, PAGE)));
    mappings.apply_in_turn(&at(4, 1, mmap(0x90000, PAGE)));
    assert_eq!(rows(&mappings).len(), 2, "the first waits");
    mappings.apply_in_turn(&at(5, 0, call(MapCall::Mremap, MapStep::Done, 0x50000, 4 * PAGE, [1, 0x10000, 4 * PAGE])));
    let expected = [row(1, 0x90000, 1, "anonymous"), row(0, 0x10000, 4, "to 50000"), row(2, 0x11000, 1, "anonymous")];
    assert_eq!(rows(&mappings)[1..], expected);
    assert!(mappings.rows.is_sorted_by_key(|row| row.time));
    // So may a thread that moves another range there.
    mappings.apply_in_turn(&at(5, 0, call(MapCall::Mremap, MapStep::Begins, 0x50000, 4 * PAGE, [0; 3])));
    mappings.apply_in_turn(&at(5, 1, call(MapCall::Mremap, MapStep::Begins, 0x11000, PAGE, [0; 3])));
    mappings.apply_in_turn(&at(5, 1, call(MapCall::Mremap, MapStep::Done, 0x53000, PAGE, [1, 0x11000, PAGE])));
    mappings.apply_in_turn(&at(5, 0, call(MapCall::Mremap, MapStep::Done, 0x60000, 4 * PAGE, [1, 0x50000, 4 * PAGE])));
    assert_eq!(rows(&mappings)[4..], [row(0, 0x50000, 4, "to 60000"), row(2, 0x11000, 1, "to 53000")]);
    // A thread that ends in the middle of its call leaves the range where it was.
    mappings.apply_in_turn(&at(6, 1, call(MapCall::Mremap, MapStep::Begins, 0x90000, PAGE, [0; 3])));
    mappings.apply_in_turn(&at(7, 0, call(MapCall::Munmap, MapStep::Begins, 0x90000, PAGE, [0; 3])));
    mappings.end_moves();
    assert_eq!(rows(&mappings)[6..], [row(1, 0x90000, 1, "unmapped")]);
}

/// The heap grows by mappings and shrinks from its end.
#[test]
fn the_heap_grows_and_shrinks() {
    let mut mappings = mappings();
    let brk = |now, before| call(MapCall::Brk, MapStep::Done, now, 0, [before, 0, 0]);
    for (now, before) in [(0x21000, 0x10000), (0x21800, 0x21000), (0x21900, 0x21800), (0x20000, 0x21900)] {
        mappings.apply(&brk(now, before));
    }
    let expected = [
        row(0, 0x10000, 0x11, "brk"),
        row(1, 0x21000, 1, "brk"),
        row(0, 0x20000, 1, "unmapped"),
        row(1, 0x21000, 1, "unmapped"),
    ];
    assert_eq!(rows(&mappings), expected);
}

#[test]
fn kinds_come_from_flags_and_names() {
    for (flags, protection, kind) in [
        (0x22, 3, MappingKind::Anonymous),
        (0x22, 7, MappingKind::Code),
        (0x21, 3, MappingKind::Shared),
        (0x2_0022, 3, MappingKind::Stack),
        (0x4_0022, 3, MappingKind::Huge),
        (0x02, 1, MappingKind::File),
    ] {
        let new = new_mapping(&call(MapCall::Mmap, MapStep::Done, 0x1000, PAGE, [protection, flags, 0]));
        assert_eq!(new.kind, kind, "{flags:x}");
        assert_eq!(new.flags.contains(MappingFlags::SHARED), flags & 1 != 0);
    }
    let region = |name: &str, inode| Region {
        range: 0..PAGE,
        is_readable: true,
        is_writable: false,
        is_executable: false,
        is_shared: false,
        offset: 0,
        device: (0, 0),
        inode,
        name: name.as_bytes().to_vec(),
    };
    for (name, inode, kind) in [
        ("[heap]", 0, MappingKind::Brk),
        ("[stack]", 0, MappingKind::Stack),
        ("[vdso]", 0, MappingKind::Kernel),
        ("[anon: arena]", 0, MappingKind::Anonymous),
        ("/SYSV00000000 (deleted)", 5, MappingKind::SystemV),
        ("/memfd:x (deleted)", 5, MappingKind::Shared),
        ("/usr/lib/a.so", 5, MappingKind::File),
        ("", 0, MappingKind::Anonymous),
    ] {
        assert_eq!(kind_of(&region(name, inode)), kind, "{name}");
    }
}

proptest! {
    /// A reader that repeats the rows has the recorder's address space, whatever the calls.
    #[test]
    fn rows_repeat_what_was_mapped(calls in prop::collection::vec((0_u8..8, 0..24_u64, 1..9_u64, 0..24_u64, 1..9_u64), 0..60)) {
        let mut mappings = mappings();
        for (kind, page, pages, to, new_pages) in calls {
            let (address, length) = (page * PAGE, pages * PAGE);
            let other = [1, address, length];
            match kind {
                0 | 1 => mappings.apply(&mmap(address, length)),
                2 => mappings.apply(&call(MapCall::Munmap, MapStep::Begins, address, length, [0; 3])),
                3 => mappings.apply(&call(MapCall::Mprotect, MapStep::Done, address, length, [to % 8, 0, 0])),
                4 => mappings.apply(&call(MapCall::Madvise, MapStep::Done, address, length, [4, 0, 0])),
                5 => mappings.apply(&call(MapCall::Brk, MapStep::Done, address, 0, [to * PAGE, 0, 0])),
                _ => {
                    // The kernel refuses ranges that overlap, and moves whole ranges.
                    let is_apart = page + pages <= to || to + new_pages <= page;
                    let target = if is_apart && kind == 6 { to * PAGE } else { address };
                    let step = if kind == 7 && to % 3 == 0 { MapStep::Failed } else { MapStep::Done };
                    mappings.apply(&call(MapCall::Mremap, MapStep::Begins, address, length, [0; 3]));
                    mappings.apply(&call(MapCall::Mremap, step, target, new_pages * PAGE, other));
                }
            }
        }
        let mut repeated = AddressSpace::default();
        let (mut mapped, mut unmapped) = (0, 0);
        for row in &mappings.rows {
            let overlapped = repeated.apply(row);
            match row.change {
                MappingChange::Mapped { .. } => {
                    prop_assert!(overlapped.is_empty(), "what was there is unmapped first");
                    mapped += row.bytes.0;
                }
                MappingChange::Unmapped => unmapped += row.bytes.0,
                _ => {}
            }
        }
        let pieces = |space: &AddressSpace| space.pieces().collect::<Vec<_>>();
        prop_assert_eq!(pieces(&repeated), pieces(&mappings.mapped.space));
        prop_assert_eq!(mapped - unmapped, mappings.mapped.space.bytes().0);
        let mut of_mappings = BTreeMap::new();
        for piece in mappings.mapped.space.pieces() {
            *of_mappings.entry(piece.serial).or_insert(0) += piece.bytes.0;
        }
        let known: BTreeMap<MappingSerial, u64> = mappings.mapped.known.iter().map(|(&serial, known)| (serial, known.bytes)).collect();
        prop_assert_eq!(known, of_mappings);
    }
}

fn shared() -> Shared {
    let destination = Destination::appended(tempfile::tempfile().unwrap(), false);
    Shared::new(&SessionRecord::default(), Writer::start(destination, None).unwrap())
}

/// Compares what is known with a list of mappings.
fn compare(mappings: &mut Mappings, list: &str, shared: &mut Shared) {
    mappings.begin(Region::parse_list(list.as_bytes()), Time(2), shared);
}

/// The dynamic linker maps a library where another one was, between two checks.
#[test]
fn another_file_at_the_same_address_is_another_mapping() {
    let (mut mappings, mut shared) = (mappings(), shared());
    compare(&mut mappings, "10000-18000 r-xp 00000000 08:01 7 /lib/a.so\n", &mut shared);
    assert_eq!(rows(&mappings), [row(0, 0x10000, 8, "file")]);
    // A file that is renamed or deleted stays the same.
    compare(&mut mappings, "10000-18000 r-xp 00000000 08:01 7 /lib/old.so (deleted)\n", &mut shared);
    assert_eq!(rows(&mappings).len(), 1);
    let other = "10000-12000 r--p 00000000 08:01 8 /lib/b.so\n12000-19000 r-xp 00002000 08:01 8 /lib/b.so\n";
    compare(&mut mappings, other, &mut shared);
    let expected = [
        row(0, 0x10000, 2, "unmapped"),
        row(1, 0x10000, 2, "file"),
        row(0, 0x12000, 6, "unmapped"),
        row(2, 0x12000, 7, "file"),
    ];
    assert_eq!(rows(&mappings)[1..], expected);
    // The same inode of another device.
    compare(&mut mappings, &other.replace("08:01", "08:02"), &mut shared);
    assert_eq!(rows(&mappings).len(), 9);
    // So is a file that replaces anonymous memory, and the other way round.
    mappings.apply(&mmap(0x40000, 2 * PAGE));
    let both = |inode| format!("10000-12000 r--p 00000000 08:02 {inode} /lib/b.so\n40000-42000 rw-p 0 08:02 9 /x\n");
    compare(&mut mappings, &both(8), &mut shared);
    let file = row(6, 0x40000, 2, "file");
    assert_eq!(
        rows(&mappings)[9..],
        [row(5, 0x40000, 2, "anonymous"), row(4, 0x12000, 7, "unmapped"), row(5, 0x40000, 2, "unmapped"), file]
    );
    let anonymous = both(8).replace("08:02 9 /x", "00:00 0");
    compare(&mut mappings, &anonymous, &mut shared);
    assert_eq!(rows(&mappings)[13..], [row(6, 0x40000, 2, "unmapped"), row(7, 0x40000, 2, "anonymous")]);
}

/// A call's row was written before the name of its file was known: later rows have it.
#[test]
fn a_file_is_named_later() {
    let (mut mappings, mut shared) = (mappings(), shared());
    let name = |mappings: &Mappings| mappings.mapped.known[&MappingSerial(0)].file;
    mappings.apply(&call(MapCall::Mmap, MapStep::Done, 0x10000, 4 * PAGE, [1, 2, 0x3000]));
    mappings.write(&mut shared);
    // Another part of a file cannot be what the call has mapped.
    let list = |offset: &str| format!("10000-14000 r--p {offset} 08:01 7 /data\n");
    compare(&mut mappings, &list("5000"), &mut shared);
    assert_eq!(name(&mappings), TextId::UNKNOWN);
    compare(&mut mappings, &list("3000"), &mut shared);
    assert_eq!((mappings.rows.len(), name(&mappings)), (0, shared.name_text(b"/data")));
    mappings.begin_segment(Time(9));
    let change = mappings.rows[0].change;
    assert!(matches!(change, MappingChange::Mapped { file, offset: 0x3000, .. } if file == name(&mappings)));
}

/// A call after a quiet time brings the next check forward, though not before the last one has been
/// paid for.
#[test]
fn checks_are_made_soon_but_keep_their_distance() {
    let pid = std::process::id();
    let identity = crate::process::image_identity(pid);
    for asking in [
        call(MapCall::Mmap, MapStep::Done, 0x10000, PAGE, [1, 2, 0]),
        call(MapCall::Shmat, MapStep::Done, 0x10000, 0, [0; 3]),
        call(MapCall::Munmap, MapStep::Failed, 0x10000, PAGE, [0; 3]),
    ] {
        let mut shared = shared();
        let mut mappings = Mappings { pid, ..mappings() };
        let mut check = |mappings: &mut Mappings, now: Time| {
            mappings.check(now, identity, &mut shared);
            mappings.snapshot.take().is_some()
        };
        assert!(check(&mut mappings, Time(1)));
        for _ in 0..8 {
            let now = mappings.next_check;
            assert!(check(&mut mappings, now));
        }
        let (earliest, next) = (mappings.earliest_check, mappings.next_check);
        assert!(next.0 >= earliest.0 + 1_000_000_000, "nothing has changed for long");
        mappings.apply(&asking);
        assert!(!check(&mut mappings, Time(earliest.0 - 1)), "{asking:?}");
        assert!(check(&mut mappings, earliest), "{asking:?}");
        assert!(mappings.earliest_check.0 >= earliest.0 + check::INTERVAL_MIN.as_nanos() as u64);
    }
}

/// The list of a process that cannot be read is not asked for all the time.
#[test]
fn a_list_that_cannot_be_read_is_asked_for_later() {
    let mut shared = shared();
    let mut mappings = Mappings::new(ImageId(0), u32::MAX, Time(0), true);
    mappings.check(Time(1), None, &mut shared);
    assert!(mappings.earliest_check > Time(1) && mappings.snapshot.is_none() && mappings.opening.is_some());
}
