//! Reporters of every kind, and what becomes of those that fail.

use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use heapledger_core::Bytes;
use heapledger_reporters::{
    Collector, Kind, Pending, Report, ReportItself, ReportOptions, Reports, Unit, collect, part, private, register,
    register_async, register_strong, register_weak, variable,
};

/// One collection at a time, each with its own reporters.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// On a busy machine it takes seconds to print the stack of a panic.
fn long_deadlines() -> ReportOptions {
    let (reporter_deadline, deadline) = (Duration::from_secs(300), Duration::from_secs(600));
    ReportOptions { reporter_deadline, deadline, ..ReportOptions::default() }
}

fn find<'r>(reports: &'r Reports, path: &str) -> Option<&'r Report> {
    reports.reports.iter().find(|report| &*report.path == path)
}

fn amount(reports: &Reports, path: &str) -> Option<i64> {
    find(reports, path).map(|report| report.amount)
}

fn reason(reports: &Reports, name: &str) -> String {
    let path = format!("heapledger-failed/{}", part(name));
    find(reports, &path).map_or_else(String::new, |report| report.description.to_string())
}

#[test]
fn every_kind_and_unit() {
    let _alone = alone();
    let values: Vec<u64> = Vec::with_capacity(1000);
    let measured = values.capacity() as u64 * 8;
    let _cache = register("explicit/cache", move |collector: &mut Collector| {
        collector.heap("values", collector.measure(&values), "What is kept.");
        collector.non_heap("pages", Bytes(4096), "What is mapped.");
        collector.bytes("more", Bytes(1), "Heap, by its path.");
        collector.bytes("/cache-size", Bytes(2), "No heap, by its path.");
        collector.count("/cache-entries", 3, "How many.");
        collector.cumulative("/cache-hits", u64::MAX, "How often.");
        collector.percentage("/cache-ratio", 12.345, "How well.");
        collector.report("/cache-odd", Kind::Other, Unit::Count, -1, "Less than nothing.");
    });
    let reports = collect(&long_deadlines());
    let seen = |path: &str| find(&reports, path).map(|report| (report.kind, report.unit, report.amount));
    let (_, unit, values) = seen("explicit/cache/values").unwrap();
    assert_eq!(unit, Unit::Bytes);
    assert!(values as u64 >= measured, "{values}");
    assert_eq!(seen("explicit/cache/pages"), Some((Kind::NonHeap, Unit::Bytes, 4096)));
    assert_eq!(seen("explicit/cache/more"), Some((Kind::Heap, Unit::Bytes, 1)));
    assert_eq!(seen("cache-size"), Some((Kind::Other, Unit::Bytes, 2)));
    assert_eq!(seen("cache-entries"), Some((Kind::Other, Unit::Count, 3)));
    assert_eq!(seen("cache-hits"), Some((Kind::Other, Unit::CountCumulative, i64::MAX)));
    assert_eq!(seen("cache-ratio"), Some((Kind::Other, Unit::Percentage, 1235)));
    assert_eq!(seen("cache-odd"), Some((Kind::Other, Unit::Count, -1)));
    let process = format!(", pid {})", std::process::id());
    let is_ours = |report: &Report| report.process.starts_with("Main Process (collection-");
    assert!(reports.reports.iter().all(|report| is_ours(report) && report.process.ends_with(&process)));
    assert!(reports.reports.iter().all(|report| !report.description.is_empty()));
    assert_eq!(reason(&reports, "explicit/cache"), "");
}

#[test]
fn what_the_system_says_comes_first() {
    let _alone = alone();
    let _last = register("last", |collector: &mut Collector| collector.count("", 1, "The last."));
    let reports = collect(&long_deadlines());
    let at = |path: &str| reports.reports.iter().position(|report| &*report.path == path);
    let bytes = |path: &str| amount(&reports, path).unwrap();
    assert!(at("resident") < at("last") && at("resident").is_some());
    assert!(bytes("vsize") > bytes("resident") && bytes("resident-peak") >= bytes("resident-unique"));
    assert!(bytes("resident-unique") > 100 << 10);
    assert!(bytes("heap-allocated") > 1000 && bytes("heap-allocated") < bytes("resident"));
    assert!(bytes("page-faults-soft") > 0 && bytes("page-faults-hard") >= 0);
}

#[test]
fn variable_and_private_parts() {
    let _alone = alone();
    let _files = register(format_args!("files (pid={})", variable(9)), |collector: &mut Collector| {
        let path = format_args!("{}/{}", private("/etc/hosts"), variable(17));
        collector.count(path, 1, format_args!("Of {}.", private("somebody")));
    });
    let open = collect(&long_deadlines());
    let report = find(&open, r"files (pid=9)/\etc\hosts/17").unwrap();
    assert_eq!(report.stable_path.as_deref(), Some(r"files (pid=NNN)/\etc\hosts/NNN"));
    assert_eq!(&*report.description, "Of somebody.");
    let anonymous = collect(&ReportOptions { anonymous: true, ..long_deadlines() });
    let report = find(&anonymous, "files (pid=9)/<anonymized>/17").unwrap();
    assert_eq!(report.stable_path.as_deref(), Some("files (pid=NNN)/<anonymized>/NNN"));
    assert_eq!(&*report.description, "Of <anonymized>.");
    assert!(!format!("{anonymous:?}").contains("hosts"));
}

struct Cache(u64);

impl ReportItself for Cache {
    fn report(&self, collector: &mut Collector) {
        collector.count("", self.0, "What is in it.");
    }
}

#[test]
fn strong_ones_live_weak_ones_die() {
    let _alone = alone();
    let (strong, weak) = (Arc::new(Cache(1)), Arc::new(Cache(2)));
    let held = Arc::downgrade(&strong);
    let registration = register_strong("strong", strong);
    register_weak("weak", &weak).keep();
    let reports = collect(&long_deadlines());
    assert_eq!((amount(&reports, "strong"), amount(&reports, "weak")), (Some(1), Some(2)));
    drop(weak);
    let reports = collect(&long_deadlines());
    assert_eq!((amount(&reports, "strong"), amount(&reports, "weak")), (Some(1), None));
    registration.unregister();
    assert!(held.upgrade().is_none());
    assert_eq!(amount(&collect(&long_deadlines()), "strong"), None);
}

#[test]
fn one_that_panics_does_not_hinder_the_others() {
    let _alone = alone();
    let _a = register("a", |collector: &mut Collector| collector.count("", 1, "Before."));
    let _b = register("explicit/b", |collector: &mut Collector| {
        collector.bytes("half", Bytes(5), "As far as it came.");
        std::panic::panic_any(format!("no {}", "more"));
    });
    let _c = register("c", |collector: &mut Collector| collector.count("", 3, "After."));
    for _ in 0..2 {
        let reports = collect(&long_deadlines());
        assert_eq!((amount(&reports, "a"), amount(&reports, "c")), (Some(1), Some(3)));
        assert_eq!(amount(&reports, "explicit/b/half"), Some(5));
        assert_eq!(
            reason(&reports, "explicit/b"),
            "The reports of explicit/b are missing, or incomplete: it panicked: no more."
        );
    }
}

#[test]
fn one_that_is_stuck_does_not_hinder_the_others() {
    let _alone = alone();
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let _slow = register("slow", move |collector: &mut Collector| {
        collector.count("begun", 1, "Before it waits.");
        let _ = wait.lock().unwrap().recv();
        collector.count("ended", 1, "Too late.");
    });
    let _after = register("after", |collector: &mut Collector| collector.count("", 3, "After."));
    let options = ReportOptions { reporter_deadline: Duration::from_millis(50), ..ReportOptions::default() };
    let reports = collect(&options);
    assert_eq!((amount(&reports, "slow/begun"), amount(&reports, "slow/ended")), (Some(1), None));
    assert_eq!(amount(&reports, "after"), Some(3));
    assert!(reason(&reports, "slow").contains("it had not answered after 0."), "{}", reason(&reports, "slow"));
    let reports = collect(&options);
    assert!(reason(&reports, "slow").contains("it has not returned from an earlier call"));
    assert_eq!(amount(&reports, "after"), Some(3));
    drop(go);
    // Once it has returned it is asked again.
    let begun = Instant::now();
    while amount(&collect(&options), "slow/ended") != Some(1) {
        assert!(begun.elapsed() < Duration::from_secs(300));
    }
}

#[test]
fn the_whole_time_is_bounded() {
    let _alone = alone();
    let gate = Arc::new(Barrier::new(3));
    let reporters: Vec<_> = (0..2)
        .map(|number| {
            let gate = Arc::clone(&gate);
            register(format_args!("stuck-{number}"), move |_: &mut Collector| _ = gate.wait())
        })
        .collect();
    let _after = register("after", |collector: &mut Collector| collector.count("", 3, "After."));
    let (brief, begun) = (Duration::from_millis(60), Instant::now());
    let reports = collect(&ReportOptions { reporter_deadline: brief, deadline: brief, ..ReportOptions::default() });
    assert!(begun.elapsed() < Duration::from_secs(300));
    assert_eq!(amount(&reports, "after"), None);
    assert!(reason(&reports, "after").contains("was over before it was asked"), "{}", reason(&reports, "after"));
    // It is in the first, and never was in the second.
    drop(reporters);
    drop(thread::spawn({
        let gate = Arc::clone(&gate);
        move || gate.wait()
    }));
    gate.wait();
}

/// A reporter that exchanges its collector for that of an earlier collection, and keeps it.
#[test]
fn collectors_may_be_kept() {
    let _alone = alone();
    let kept: Arc<Mutex<Option<Pending>>> = Arc::default();
    let later = {
        let kept = kept.clone();
        register_async("earlier", move |pending| *kept.lock().unwrap() = Some(pending))
    };
    let soon = ReportOptions { reporter_deadline: Duration::from_millis(20), ..ReportOptions::default() };
    assert!(reason(&collect(&soon), "earlier").contains("it had not answered"));
    drop(later);
    let _swaps = register("swaps", move |own: &mut Collector| {
        let pending = kept.lock().unwrap().take().unwrap();
        pending.collect(|other| {
            std::mem::swap(own, other);
            other.count("heard", 2, "To this collection.");
        });
        drop(pending);
        own.count("lost", 1, "To one that has ended.");
    });
    let reports = collect(&long_deadlines());
    assert_eq!(amount(&reports, "swaps/heard"), Some(2));
    assert!(amount(&reports, "earlier/lost").is_none() && amount(&reports, "swaps/lost").is_none());
}

#[test]
fn asynchronous_ones_are_waited_for_together() {
    let _alone = alone();
    let pause = Duration::from_millis(100);
    let _reporters: Vec<_> = (0..8)
        .map(|number| {
            register_async(format_args!("later-{number}"), move |pending| {
                thread::spawn(move || {
                    let second = pending.clone();
                    pending.collect(|collector| collector.count("first", 1, "At once."));
                    drop(pending);
                    thread::sleep(pause);
                    second.collect(|collector| collector.count("second", 2, "Later."));
                });
            })
        })
        .collect();
    let _dies = register_async("dies", |pending| {
        let thread = thread::spawn(move || {
            let _pending = pending;
            std::panic::panic_any("oh");
        });
        assert!(thread.join().is_err());
    });
    let reports = collect(&long_deadlines());
    for number in 0..8 {
        assert_eq!(amount(&reports, &format!("later-{number}/first")), Some(1));
        assert_eq!(amount(&reports, &format!("later-{number}/second")), Some(2));
    }
    assert!(reason(&reports, "dies").contains("it panicked in another thread"), "{}", reason(&reports, "dies"));

    let _never = register_async("never", std::mem::forget);
    let begun = Instant::now();
    let reports = collect(&ReportOptions { reporter_deadline: Duration::from_secs(5), ..ReportOptions::default() });
    // One after the other, the reporter that never answers alone would be waited for as often as
    // there are others.
    assert!(begun.elapsed() < Duration::from_secs(40));
    assert!(reason(&reports, "never").contains("it had not answered after"), "{}", reason(&reports, "never"));
}

#[test]
fn a_reporter_cannot_collect() {
    let _alone = alone();
    let _inner = register("inner", |collector: &mut Collector| {
        let reports = collect(&long_deadlines());
        collector.count("", reports.reports.len() as u64, "What it got.");
    });
    assert_eq!(amount(&collect(&long_deadlines()), "inner"), Some(0));
}

#[test]
fn unregistering_waits_for_a_call() {
    let _alone = alone();
    let (begun, has_begun) = mpsc::channel();
    let ended = Arc::new(Mutex::new(false));
    let registration = register("busy", {
        let (begun, ended) = (Mutex::new(begun), Arc::clone(&ended));
        move |_: &mut Collector| {
            begun.lock().unwrap().send(()).unwrap();
            thread::sleep(Duration::from_millis(50));
            *ended.lock().unwrap() = true;
        }
    });
    let collection = thread::spawn(|| collect(&long_deadlines()));
    has_begun.recv().unwrap();
    registration.unregister();
    assert!(*ended.lock().unwrap());
    collection.join().unwrap();
}

#[test]
fn what_cannot_be_shown_is_left_out_and_named() {
    let _alone = alone();
    let _wrong = register("explicit/wrong", |collector: &mut Collector| {
        collector.count("count", 1, "No bytes.");
        collector.report("other", Kind::Other, Unit::Bytes, 1, "Neither on the heap nor off it.");
        collector.bytes("right", Bytes(5), "As it has to be.");
        collector.bytes("/mixed/a", Bytes(5), "Bytes.");
        collector.count("/mixed/b", 5, "In another unit.");
    });
    let _unnamed = register("", |collector: &mut Collector| collector.count("", 1, "It has no path."));
    let reports = collect(&long_deadlines());
    let reports = Reports::parse(&reports.to_gzip()).unwrap();
    assert_eq!((amount(&reports, "explicit/wrong/right"), amount(&reports, "mixed/a")), (Some(5), Some(5)));
    assert_eq!(amount(&reports, "(no path)"), Some(1));
    for (path, why) in
        [("explicit/wrong/count", "neither"), ("explicit/wrong/other", "neither"), ("mixed/b", "has other units")]
    {
        assert_eq!(amount(&reports, path), None);
        let reason = reason(&reports, path);
        assert!(reason.contains("cannot be shown") && reason.contains(why), "{reason}");
    }
}

#[test]
fn it_reports_itself() {
    let _alone = alone();
    let own = || amount(&collect(&long_deadlines()), "explicit/heapledger/reporters").unwrap();
    let before = own();
    let state = [1_u8; 1000];
    let registrations: Vec<_> = (0..10)
        .map(|n| register(format!("itself-{n}"), move |_: &mut Collector| _ = std::hint::black_box(state)))
        .collect();
    let with = own();
    assert!(with >= before + 10 * 1000, "{before} {with}");
    drop(registrations);
    assert!(own() < before + 1000);
}

#[test]
fn allocators_speak_for_themselves() {
    let text = heapledger_reporters::allocator_statistics();
    assert!(text.contains("glibc, malloc_info:") && text.contains("</malloc>"), "{text}");
}

fn early(collector: &mut Collector) {
    collector.count("", 42, "Registered before the program began.");
}

heapledger_reporters::__reporter!("early", early);

#[test]
fn static_ones_are_there_from_the_beginning() {
    let _alone = alone();
    assert_eq!(amount(&collect(&long_deadlines()), "early"), Some(42));
}

#[test]
fn every_thread_has_its_stack() {
    let _alone = alone();
    fn deep(bytes: usize) -> u64 {
        // By reference: a copy would be as large again.
        let mut page = [1_u8; 4096];
        std::hint::black_box(&mut page);
        let below = if bytes > 4096 { deep(bytes - 4096) } else { 0 };
        below + u64::from(page[bytes % 4096])
    }
    let gate = Arc::new(Barrier::new(4));
    let threads: Vec<thread::JoinHandle<()>> = (0..3_usize)
        .map(|number| {
            let gate = Arc::clone(&gate);
            let thread = thread::Builder::new().name(format!("of/stack-{number}")).stack_size(4 << 20);
            thread
                .spawn(move || {
                    assert!(deep(number << 20) > 0);
                    gate.wait();
                    gate.wait();
                })
                .unwrap()
        })
        .collect();
    gate.wait();
    // As another mapping would be that is right above a stack.
    let above = std::hint::black_box(vec![1_u8; 64 << 20]);
    let reports = collect(&long_deadlines());
    let stack = |name: &str| {
        let of = |report: &&Report| report.path.starts_with(&format!("explicit/threads/stacks/{name} (tid="));
        let report = reports.reports.iter().find(of).unwrap();
        assert_eq!(report.stable_path.as_deref().unwrap(), format!("explicit/threads/stacks/{name} (tid=NNN)"));
        assert_eq!((report.kind, report.unit), (Kind::NonHeap, Unit::Bytes));
        report.amount
    };
    for number in 0..3 {
        let bytes = stack(&format!(r"of\stack-{number}"));
        let least = number << 20;
        assert!((least..least + (1 << 20)).contains(&bytes), "{number}: {bytes}");
    }
    let process = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert!((4096..8 << 20).contains(&stack(process.trim_end())));
    gate.wait();
    for thread in threads {
        thread.join().unwrap();
    }
    drop(above);
}

#[test]
#[ignore = "a figure for docs/reporters.md: `cargo test --release -p heapledger-reporters --test collection hundred -- --ignored --nocapture`"]
fn a_hundred_thousand_reports() {
    let _alone = alone();
    let _many = register("explicit/many", |collector: &mut Collector| {
        for number in 0..100_000_u64 {
            collector.heap(format_args!("of/{}/{}", number % 100, variable(number)), Bytes(number), "One of many.");
        }
    });
    // Processor time, which does not depend on the load of the machine.
    let spent = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `clock_gettime` requires a `timespec` that may be written, as the local is.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    for _ in 0..3 {
        let begun = spent();
        let reports = collect(&long_deadlines());
        let took = spent() - begun;
        assert!(reports.reports.len() > 100_000);
        let file = reports.to_gzip();
        println!("{took:.0?} to collect, {:.0?} more for a file of {} KiB", spent() - begun - took, file.len() >> 10);
    }
}
