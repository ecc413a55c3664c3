use std::sync::atomic::{AtomicU32, Ordering};

use heapledger_core::sample::Rate;

use super::*;
use crate::session::{Session, Wants};

#[test]
fn libraries_are_found_by_their_names() {
    let maps = b"\
7f0000000000-7f0000001000 r--p 00000000 08:01 11   /usr/lib/libc.so.6
7f0000002000-7f0000003000 r--p 00000000 08:01 12   /opt/a b/libheapledger_preload.so (deleted)
7f0000003000-7f0000004000 r-xp 00001000 08:01 12   /opt/a b/libheapledger_preload.so (deleted)
7f0000005000-7f0000006000 r--p 00000000 08:01 13   /opt/renamed.so
7f0000007000-7f0000008000 rw-p 00000000 00:00 0    [heap]
x-y r--p z 08:01 12   /opt/libheapledger.so
";
    let named = preloaded(b"A=1\0LD_PRELOAD=/x/y.so:/opt/renamed.so\0B=2\0");
    assert_eq!(named, [b"y.so".to_vec(), b"renamed.so".to_vec()]);
    let mappings = Mapping::parse_list(maps);
    assert_eq!(libraries(&mappings, &named), [0x7f00_0000_2000, 0x7f00_0000_5000]);
    assert_eq!(libraries(&mappings, &[]), [0x7f00_0000_2000]);
    assert!(libraries(&[], &preloaded(b"")).is_empty());
}

#[test]
fn the_note_is_found_among_others() {
    let note = |name: &[u8], kind: u32, content: &[u8]| {
        let mut bytes = Vec::new();
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(name);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let other = note(b"GNU\0", 3, &[7; 20]);
    let own = note(NOTE_NAME, NOTE_TYPE, &(-16_i64).to_le_bytes());
    let both = [other.clone(), own.clone()].concat();
    assert_eq!(find_note(&both), Some((other.len() as u64 + 24, -16)));
    assert_eq!(find_note(&other), None);
    // Cut anywhere, and with lengths that lead out of it.
    for length in 0..both.len() {
        assert_eq!(find_note(&both[..length]), None, "{length}");
    }
    assert_eq!(find_note(&[0xff; 64]), None);
}

#[test]
fn processes_without_the_library_are_told_apart() {
    let own = std::process::id();
    assert!(matches!(ArmedProcess::find(own), Err(ArmError::NotArmed { pid }) if pid == own));
    // No process has this number: the kernel's limit is 2^22.
    assert!(matches!(ArmedProcess::find(1 << 22), Err(ArmError::Gone { .. })));
}

/// Returns this process as one that has this cell.
fn with_cell(cell: &'static ArmedCell) -> ArmedProcess {
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    ArmedProcess { pid: std::process::id(), memory, cell: (&raw const *cell).expose_provenance() as u64 }
}

fn new_cell() -> &'static ArmedCell {
    Box::leak(Box::new(ArmedCell::new()))
}

#[test]
fn a_process_without_a_word_to_set_is_not_asked() {
    let cell = new_cell();
    let process = with_cell(cell);
    assert!(!process.is_armed());
    assert!(matches!(process.leave_dead_session(), Err(ArmError::NotArmed { .. })));
    let word = &*Box::leak(Box::new(AtomicU32::new(0)));
    cell.requested_at.store((&raw const *word).expose_provenance() as u64, Ordering::Release);
    assert!(process.is_armed());
    process.leave_dead_session().unwrap();
}

#[test]
fn a_request_belongs_to_the_recorder_that_made_it() {
    let (cell, word) = (new_cell(), &*Box::leak(Box::new(AtomicU32::new(0))));
    cell.requested_at.store((&raw const *word).expose_provenance() as u64, Ordering::Release);
    let process = with_cell(cell);
    let session = Session::new().unwrap();
    let address = session.to_environment(Wants::default());
    process.ask(&address).unwrap();
    assert_eq!(word.load(Ordering::Acquire), 1);
    assert!(matches!(process.leave_dead_session(), Err(ArmError::Recorded { .. })));
    let other = Session::new().unwrap().to_environment(Wants::default());
    process.withdraw(&other);
    assert_eq!(word.load(Ordering::Acquire), 1);
    // Nobody listens at the address of a recorder that was killed.
    drop(session);
    process.leave_dead_session().unwrap();
    process.withdraw(&address);
    assert_eq!(word.load(Ordering::Acquire), 0);
}

#[test]
fn a_process_that_was_told_the_end_is_asked_at_once() {
    let (cell, word) = (new_cell(), &*Box::leak(Box::new(AtomicU32::new(0))));
    cell.requested_at.store((&raw const *word).expose_provenance() as u64, Ordering::Release);
    cell.state.store(state::JOINED, Ordering::Release);
    let page: &'static SessionPage = Box::leak(Box::new(SessionPage::none()));
    cell.page_at.store((&raw const *page).expose_provenance() as u64, Ordering::Release);
    // Not after the time in which a recorder that lives would be seen.
    let since = Instant::now();
    with_cell(cell).leave_dead_session().unwrap();
    assert!(since.elapsed() < DEAD_AFTER);
}

/// With the right to open the file that is mapped, another page that takes its place is not
/// written to.
#[test]
fn a_page_is_reached_by_its_file_or_by_its_address() {
    let cell = new_cell();
    let process = with_cell(cell);
    let page = session::page(0, Rate::EXACT, None).unwrap();
    let address = (&raw const *page).expose_provenance() as u64;
    let mappings = proc_maps::read(std::process::id()).unwrap();
    assert!(mapped_file(&mappings, address).is_some_and(|range| range.starts_with(&format!("{address:x}-"))));
    assert_eq!(mapped_file(&mappings, address + 1), None);
    let reached = PageMemory::of(&process, address).unwrap();
    assert!(reached.start == 0 || reached.start == address, "{reached:?}");
    reached.set(offset_of!(SessionPage, rate), 7).unwrap();
    assert_eq!((page.rate(), reached.number(offset_of!(SessionPage, rate)).unwrap()), (7, 7));
    // Memory that is no file's.
    let other: &'static SessionPage = Box::leak(Box::new(SessionPage::none()));
    let address = (&raw const *other).expose_provenance() as u64;
    assert_eq!(PageMemory::of(&process, address).unwrap().start, address);
}

#[test]
fn sandboxes_are_those_of_the_kernel() {
    let of = |mode: &str| sandbox_in(&format!("Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t{mode}\nSeccomp_filters:\t3\n"));
    assert_eq!([of("0"), of("1"), of("2")], [None, Some(Sandbox::Strict), Some(Sandbox::Filters)]);
    assert_eq!(sandbox_in("Name:\tx\n"), None);
    assert!(Sandbox::Strict > Sandbox::Filters);
}

#[test]
fn filters_are_accepted_by_those_who_say_so_or_have_been_recorded() {
    let cell = new_cell();
    let process = with_cell(cell);
    // There are some, or none, depending on where the tests run.
    process.check_sandbox(true).unwrap();
    cell.taken.store(1, Ordering::Release);
    process.check_sandbox(false).unwrap();
}
