//! Reporters against what the ledger knows. Without the test harness: its threads allocate, too.

mod runner;

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use heapledger::reports::dark_matter::{self, DarkMatterError, Mode, dump};
use heapledger::reports::{self, Collector, ReportOptions, Reports};
use heapledger::{Allocator, Bytes, HeapSize, Ledger, Meter};
use heapledger_dmd::{Defect, DefectKind, Group, Log, NameId};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

static STORE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

#[heapledger::reporter("explicit/store")]
fn report(collector: &mut Collector) {
    let store = STORE.lock().unwrap();
    collector.heap("", collector.measure(&*store), "What is stored.");
}

fn main() {
    let tests: &[(&str, fn())] = &[
        ("the_heap_is_what_reporters_say", the_heap_is_what_reporters_say),
        ("marks_show_what_nobody_reports", marks_show_what_nobody_reports),
        ("a_log_is_of_the_heap_that_reporters_saw", a_log_is_of_the_heap_that_reporters_saw),
        ("a_signal_has_a_log_written", a_signal_has_a_log_written),
        ("a_child_can_collect_whatever_its_parent_does", a_child_can_collect_whatever_its_parent_does),
        ("late_ledgers_are_not_believed", late_ledgers_are_not_believed),
    ];
    runner::run(tests, || {
        Ledger::get().stop();
        *STORE.lock().unwrap() = Vec::new();
    });
}

fn fill(count: usize) {
    STORE.lock().unwrap().extend((0..count).map(|number| black_box(Vec::with_capacity(1 + number % 500))));
}

fn amount(reports: &Reports, path: &str) -> u64 {
    let found = reports.reports.iter().find(|report| &*report.path == path);
    u64::try_from(found.unwrap_or_else(|| panic!("no {path}")).amount).unwrap()
}

fn the_heap_is_what_reporters_say() {
    let ledger = Ledger::start(heapledger::LedgerOptions::EXACT).unwrap();
    fill(20_000);
    let live: Bytes = ledger.blocks().map(|block| block.usable).sum();
    let reports = reports::collect(&ReportOptions::default());
    let (allocated, stored) = (amount(&reports, "heap-allocated"), amount(&reports, "explicit/store"));
    assert!((live.0..live.0 + (64 << 10)).contains(&allocated), "{allocated} of {live:?}");
    // The rest is unclassified: less than 1 percent.
    assert!(stored <= allocated && allocated - stored < allocated / 100, "{stored} of {allocated}");
    assert_eq!(stored, STORE.lock().unwrap().heap_size(&mut Meter::new()).0);
    let description =
        |path: &str| reports.reports.iter().find(|report| &*report.path == path).unwrap().description.to_string();
    assert!(description("heap-allocated").contains("as its ledger knows them"));
    assert!(reports.has_usable_size);
}

fn marks_show_what_nobody_reports() {
    let ledger = Ledger::start(heapledger::LedgerOptions::EXACT).unwrap();
    fill(1_000);
    let forgotten = black_box(vec![1_u8; 100_000]);
    let bytes = STORE.lock().unwrap().heap_size(&mut Meter::new());
    reports::collect(&ReportOptions::default());
    assert_eq!(ledger.reported().once.bytes, Bytes(0), "nobody asked for marks");
    let marking = ReportOptions { mark: true, ..ReportOptions::default() };
    for _ in 0..2 {
        reports::collect(&marking);
        let reported = ledger.reported();
        assert_eq!(reported.twice.bytes, Bytes(0));
        // With the little that Heapledger reports of itself.
        assert!((bytes.0..bytes.0 + 4096).contains(&reported.once.bytes_usable.0), "{reported:?} of {bytes:?}");
        assert!(reported.unreported.bytes.0 >= 100_000, "{reported:?}");
    }
    let again = reports::register("explicit/again", |collector: &mut Collector| {
        collector.heap("", collector.measure(&*STORE.lock().unwrap()), "The same once more.");
    });
    reports::collect(&marking);
    assert_eq!(ledger.reported().twice.bytes_usable, bytes);
    drop((again, forgotten));
}

unsafe extern "C" {
    safe fn fork() -> i32;
    safe fn waitpid(pid: i32, status: Option<&mut i32>, options: i32) -> i32;
    safe fn _exit(code: i32) -> !;
    safe fn alarm(seconds: u32) -> u32;
}

/// Runs something in a child, which has at most ten seconds for it.
fn in_a_child(what: impl FnOnce() -> bool) {
    // Which no other thread holds in the child, whose reporters wait for it.
    let store = STORE.lock().unwrap();
    let child = fork();
    drop(store);
    assert!(child >= 0);
    if child == 0 {
        alarm(10);
        let is_right = what();
        _exit(if is_right { 0 } else { 1 });
    }
    let mut status = 0;
    assert_eq!(waitpid(child, Some(&mut status), 0), child);
    assert!(ExitStatus::from_raw(status).success(), "{:?}", ExitStatus::from_raw(status));
}

fn a_child_can_collect_whatever_its_parent_does() {
    // In the middle of a collection, and of a reporter.
    let (begun, has_begun) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let (begun, wait) = (Mutex::new(begun), Mutex::new(wait));
    let parent = std::process::id();
    let registration = reports::register("stuck", move |collector: &mut Collector| {
        if std::process::id() == parent {
            begun.lock().unwrap().send(()).unwrap();
            let _ = wait.lock().unwrap().recv();
        }
        collector.count("", 1, "It is over.");
    });
    let collection = thread::spawn(|| reports::collect(&ReportOptions::default()));
    has_begun.recv().unwrap();
    in_a_child(|| amount(&reports::collect(&ReportOptions::default()), "stuck") == 1);
    drop(go);
    assert_eq!(amount(&collection.join().unwrap(), "stuck"), 1);
    registration.unregister();

    // And at any moment of many.
    let is_over = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let _registration = reports::register("brief", |_: &mut Collector| {});
                    reports::collect(&ReportOptions::default());
                }
            })
        })
        .collect();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        in_a_child(|| {
            let _registration = reports::register("own", |collector: &mut Collector| collector.count("", 1, "One."));
            amount(&reports::collect(&ReportOptions::default()), "own") == 1
        });
    }
    is_over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Blocks and usable bytes of a log that so many have reported, the first of them under this name.
fn reported(log: &Log, reporter: Option<&str>) -> (u64, u64) {
    let name = |group: &Group| Some(&*log.names[group.reports[0]?.reporter?.0 as usize]);
    let wanted = log.groups.iter().filter(|group| group.reports[1].is_none() && name(group) == reporter);
    let sizes = wanted.flat_map(|group| &group.sizes);
    sizes.fold((0, 0), |(blocks, bytes), size| (blocks + size.count, bytes + size.count * (size.requested + size.slop)))
}

/// Named in the program itself, functions have their whole paths.
#[cfg(feature = "symbols")]
fn is_named(mut log: Log, stack: heapledger_dmd::TraceId) {
    dark_matter::name_frames(&mut log);
    let frames: Vec<&str> = log.trace(stack).iter().map(|frame| log.frame(*frame)).collect();
    assert!(frames.iter().any(|frame| frame.starts_with("reporters::forget (")), "{frames:?}");
    assert!(frames.iter().any(|frame| frame.starts_with("reporters::main (")), "{frames:?}");
}

#[inline(never)]
fn forget() -> Vec<Vec<u8>> {
    let _scope = heapledger::context!("forgetting");
    (0..300).map(|_| heapledger::stamp!(black_box(Vec::with_capacity(5000)))).collect()
}

fn a_log_is_of_the_heap_that_reporters_saw() {
    assert_eq!(dump(&Default::default()).unwrap_err(), DarkMatterError::NotRunning);
    let ledger = Ledger::start(heapledger::LedgerOptions::EXACT).unwrap();
    fill(20_000);
    let forgotten = forget();
    let live = |size| ledger.blocks().filter(|block| block.usable.0 >= size).count() as u64;
    let store: Bytes = STORE.lock().unwrap().heap_size(&mut Meter::new());
    let counted = reports::register("explicit/counted", |collector: &mut Collector| {
        collector.heap("", Bytes(300 * 5000), "What is forgotten, as somebody has counted.");
    });
    let log = dump(&Default::default()).unwrap();
    drop(counted);

    // All of the store, and nothing else, to the byte; the collection itself has left a few blocks
    // at most.
    assert_eq!(reported(&log, Some("explicit/store")), (20_001, store.0));
    let (blocks, bytes) = reported(&log, None);
    assert!((301..320).contains(&blocks) && (1_500_000..1_600_000).contains(&bytes), "{blocks} {bytes}");
    assert_eq!(live(5000), 301 + 1);
    assert!(log.about.pause_ns > 0);
    let took = log.about.dump.unwrap();
    assert!(took.register > 0 && took.stacks > 0 && took.copy > 0, "{took:?}");
    const OWN: &str = "explicit/heapledger/reporters";
    let name = |name: NameId| &*log.names[name.0 as usize];
    // Apart from what there was before the ledger: somebody counts, and marks nothing.
    let is_old = |defect: &Defect| defect.kind == DefectKind::NoBlock && defect.reporter.map(name) == Some(OWN);
    let (old, found): (Vec<_>, Vec<_>) = log.about.defects.iter().partition(|defect| is_old(defect));
    assert!(old.len() < 5 && log.about.defects_count == old.len() as u64 + 1, "{:?}", log.about);
    let [Defect { kind: DefectKind::Unmarked, reporter: Some(reporter), measured, usable: 0, .. }] = *found else {
        panic!("{found:?}")
    };
    assert_eq!((name(*reporter), *measured), ("explicit/counted", 300 * 5000));
    let group = log.groups.iter().find(|group| group.type_name.is_some()).unwrap();
    assert_eq!((name(group.type_name.unwrap()), name(group.context.unwrap())), ("[u8]", "forgetting"));
    assert_eq!(group.sizes[0].requested, 5000);

    // Frames are of this program; the same place is called from one of its functions.
    let here = std::env::current_exe().unwrap().display().to_string();
    let frames = &log.traces[group.alloc.unwrap().0 as usize];
    let text = &log.frames[frames[0].0 as usize];
    assert!(text.starts_with(&format!("???[{here} +0x")), "{text}");
    let module = log.about.modules.iter().find(|module| module.path == here).unwrap();
    assert!(!module.build_id.is_empty());
    #[cfg(feature = "symbols")]
    is_named(log.clone(), group.alloc.unwrap());
    drop(forgotten);

    // Without asking anybody: the marks are those of the last time.
    let as_it_is = dark_matter::DarkMatterOptions { report: false, ..Default::default() };
    assert_eq!(reported(&dump(&as_it_is).unwrap(), Some("explicit/store")), (20_001, store.0));
    let of = |mode| dump(&dark_matter::DarkMatterOptions { mode, ..Default::default() });
    let pointed_to = black_box(Box::new(7_u64));
    assert!(of(Mode::Live).unwrap().groups.iter().all(|group| group.reports == [None, None]));
    let pointers = black_box(vec![0x1234_5678_9abc_def0_u64, &raw const *pointed_to as u64]);
    let log = of(Mode::Scan).unwrap();
    let block = log.scanned.blocks.iter().find(|block| block.address == pointers.as_ptr() as u64).unwrap();
    assert_eq!((block.requested, log.scanned.contents(block)), (16, &pointers[..]));
    assert!(log.scanned.blocks.iter().any(|block| block.address == pointers[1]));
    let log =
        dump(&dark_matter::DarkMatterOptions { mode: Mode::Scan, anonymous: true, ..Default::default() }).unwrap();
    assert!(log.scanned.words.is_empty() && log.scanned.blocks.len() > 20_000);
    assert_eq!(of(Mode::Cumulative).unwrap_err(), DarkMatterError::NotKept);
    ledger.stop();
    let ledger =
        Ledger::start(heapledger::LedgerOptions { keep_freed: true, ..heapledger::LedgerOptions::EXACT }).unwrap();
    (0..1000).for_each(|_| drop(black_box(Vec::<u8>::with_capacity(3333))));
    let log = of(Mode::Cumulative).unwrap();
    let freed = log.groups.iter().flat_map(|group| &group.sizes).filter(|size| size.requested == 3333);
    assert_eq!(freed.map(|size| size.count).sum::<u64>(), 1000);
    assert!(ledger.keeps_freed());
    ledger.stop();
    a_log_has_stacks_of_some_blocks();
}

/// All that is exact without stacks stays so.
fn a_log_has_stacks_of_some_blocks() {
    let sampled = heapledger::LedgerOptions { stack_probability: Some(0.003), ..heapledger::LedgerOptions::EXACT };
    let ledger = Ledger::start(sampled).unwrap();
    STORE.lock().unwrap().clear();
    fill(20_000);
    let store: Bytes = STORE.lock().unwrap().iter().map(|value| value.heap_size(&mut Meter::new())).sum();
    let log = dump(&Default::default()).unwrap();
    assert_eq!(log.about.sampling.map(|sampling| sampling.probability), Some(0.003));
    assert_eq!(reported(&log, Some("explicit/store")), (20_000, store.0));
    let count = |has_stack: bool| {
        let wanted = log.groups.iter().filter(|group| group.alloc.is_some() == has_stack);
        wanted.flat_map(|group| &group.sizes).map(|size| size.count).sum::<u64>()
    };
    // 1 - 0.997^bytes of the blocks of 1 to 500 bytes.
    assert!((7_000..12_000).contains(&count(true)) && count(false) > 8_000, "{} {}", count(true), count(false));
    ledger.stop();
}

fn a_signal_has_a_log_written() {
    let _ledger = Ledger::start(heapledger::LedgerOptions::EXACT).unwrap();
    let directory = std::env::temp_dir().join(format!("heapledger-signal-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let on_signal = dark_matter::on_signal(libc::SIGUSR2, &directory, Default::default()).unwrap();
    // SAFETY: `raise` requires that the signal's disposition may run here. It is the handler that
    // `on_signal` has installed, and that runs at any point of a program.
    unsafe { libc::raise(libc::SIGUSR2) };
    let end = Instant::now() + Duration::from_secs(30);
    let ending = format!("-{}.json.gz", std::process::id());
    let file = loop {
        let files = std::fs::read_dir(&directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let found = files.into_iter().find(|name| name.starts_with("dmd-") && name.ends_with(&ending));
        assert!(Instant::now() < end);
        if let Some(found) = found {
            break found;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let bytes = std::fs::read(directory.join(file)).unwrap();
    assert!(bytes.starts_with(b"\x1f\x8b"));
    drop(on_signal);
    std::fs::remove_dir_all(directory).unwrap();
    // The signal does what it did before: it ends the process.
    // SAFETY: a forked child of a process with threads may make calls only that a signal handler
    // may: `raise` and `_exit` are such. `waitpid` requires an integer that may be written, as
    // `status` is.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::raise(libc::SIGUSR2);
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(ExitStatus::from_raw(status).signal(), Some(libc::SIGUSR2));
    }
}

fn late_ledgers_are_not_believed() {
    fill(20_000);
    let _ledger = Ledger::start(heapledger::LedgerOptions::EXACT).unwrap();
    let reports = reports::collect(&ReportOptions::default());
    let (allocated, stored) = (amount(&reports, "heap-allocated"), amount(&reports, "explicit/store"));
    assert!(allocated >= stored, "{allocated} {stored}");
}
