//! Programs that count their own calls: the recording must have exactly the same counts.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::Value;

use crate::harness::{Job, Recording, Scratch, heapledger, installed, number, shared_library};

/// Records a truth program once idle and once at work; all its printed counts must be the
/// difference between the recordings.
#[track_caller]
pub(crate) fn agrees(job: impl Fn(&str) -> Job, work: &str) -> (Value, Recording) {
    let scratch = Scratch::new();
    // As many zeros as digits: in some languages the length of an argument is the size of a block.
    let (idle, without) = job(&"0".repeat(work.len())).recorded(&scratch);
    let (busy, with) = job(work).recorded(&scratch);
    assert!(idle.status.success() && busy.status.success(), "{idle:?}\n{busy:?}");
    let (idle, busy) = (idle.printed_objects().pop().unwrap(), busy.printed_objects().pop().unwrap());
    let mut wrong = vec![];
    for (name, value) in busy.as_object().unwrap() {
        let told = value.as_i64().unwrap() - number(&idle, name);
        let recorded = with.total(name) - without.total(name);
        // A program prints -1 for an unknown count.
        if value != -1 && told != recorded {
            wrong.push(format!("{name}: the program made {told}, the recording says {recorded}"));
        }
    }
    assert!(wrong.is_empty(), "{}\n{with:?}", wrong.join("\n"));
    without.assert_whole().assert_adds_up();
    with.assert_whole().assert_adds_up();
    (busy, with)
}

#[test]
fn every_call_on_one_thread() {
    let (_, recording) = agrees(|work| Job::fixture("mix", work), "100000");
    assert_eq!(recording.total("threads"), 1, "{recording:?}");
    assert_eq!(recording.processes().len(), 1, "{recording:?}");
}

#[test]
fn every_call_on_eight_threads() {
    let (_, recording) = agrees(|work| Job::fixture("mix_threads", work), "30000");
    assert!((8..=9).contains(&recording.total("threads")), "{recording:?}");
}

#[test]
fn every_call_on_sixty_four_threads() {
    let (_, recording) = agrees(|work| Job::fixture("crowd", work), "1000");
    assert_eq!(recording.total("threads"), 65, "{recording:?}");
}

/// From `.preinit_array`: before the constructors of all libraries, including ours.
#[test]
fn blocks_before_every_constructor() {
    agrees(|work| Job::fixture("early", work), "500");
}

#[test]
fn temporary_blocks() {
    agrees(|work| Job::fixture("temporary", work), "1000");
}

#[test]
fn operators_of_cxx() {
    if installed("c++").is_none() {
        return;
    }
    agrees(|work| Job::fixture("operators", work), "300");
}

#[test]
fn a_rust_program() {
    agrees(|work| Job::fixture("growth", work), "200");
}

#[test]
fn failures_keep_errno() {
    let scratch = Scratch::new();
    Job::fixture("failures", "1").both(&scratch);
    agrees(|work| Job::fixture("failures", work), "500");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn frees_by_other_threads() {
    agrees(|work| Job::fixture("queue", work), "500000"); // 4 million events
}

/// The order of events across threads: a single wrong pair would be a free of an unknown block, or
/// a block that is live twice.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn blocks_exchanged_through_atomic_slots() {
    for caches in ["", "glibc.malloc.tcache_count=0"] {
        let job = |work: &str| Job::fixture("exchange", work).variable("GLIBC_TUNABLES", caches);
        agrees(job, "150000"); // 2.4 million events
    }
}

/// Records that program again and again until there are this many events, in parallel: loops of
/// single recordings hardly ever show a wrong order. Each thread of the program makes `rounds`
/// rounds. Prints its progress every 100 million events.
///
/// A thread that gets no processor for a second while it writes an event is skipped, and the event
/// is late: such a recording does not count. At most `late_max` of a number of recordings may be
/// like that.
#[track_caller]
fn exchanges(events_min: i64, rounds: u32, late_max: fn(i64) -> i64) {
    const AT_ONCE: usize = 3;
    const TOLD_EVERY: i64 = 100_000_000;
    let scratch = Scratch::new();
    let job = |work: &str, variant: usize| {
        let (caches, pinned) = (["", "glibc.malloc.tcache_count=0"][variant % 2], ["", " pinned"][variant / 2 % 2]);
        let job = Job::fixture("exchange", &format!("{work}{pinned}")).option("--aggregate");
        job.variable("GLIBC_TUNABLES", caches)
    };
    let work = rounds.to_string();
    let nothing = "0".repeat(work.len());
    let idle: Vec<_> = (0..4).map(|variant| job(&nothing, variant).recorded(&scratch).1).collect();
    let [events, reordered, recordings, late] = [(); 4].map(|()| AtomicI64::new(0));
    std::thread::scope(|scope| {
        for first in 0..AT_ONCE {
            let (scratch, idle, work) = (&scratch, &idle, &work);
            let (events, reordered, recordings, late) = (&events, &reordered, &recordings, &late);
            scope.spawn(move || {
                let mut variant = first;
                while events.load(Ordering::Relaxed) < events_min {
                    let (outcome, recording) = job(work, variant).recorded(scratch);
                    let made = 1 + recordings.fetch_add(1, Ordering::Relaxed);
                    if recording.total("events_late") > 0 {
                        let late = 1 + late.fetch_add(1, Ordering::Relaxed);
                        assert!(late <= late_max(made), "{late} of {made} recordings are late: {recording:?}");
                        continue;
                    }
                    let told = &outcome.printed_objects()[0];
                    for name in ["allocations", "frees", "reallocations", "bytes_allocated", "blocks_live_end"] {
                        let recorded = recording.total(name) - idle[variant % 4].total(name);
                        assert_eq!(recorded, number(told, name), "{name}, variant {}: {recording:?}", variant % 4);
                    }
                    recording.assert_whole();
                    reordered.fetch_add(recording.total("events_reordered"), Ordering::Relaxed);
                    let more = recording.total("allocations") + recording.total("frees");
                    let before = events.fetch_add(more, Ordering::Relaxed);
                    if before / TOLD_EVERY < (before + more) / TOLD_EVERY {
                        println!("{} events so far, {reordered:?} put right; {late:?} recordings late", before + more);
                    }
                    std::fs::remove_file(&recording.path).unwrap();
                    variant += 1;
                }
            });
        }
    });
    println!(
        "{events:?} events without a wrong pair, {reordered:?} put right; {late:?} of {recordings:?} recordings late"
    );
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn blocks_exchanged_beside_other_recordings() {
    exchanges(25_000_000, 100_000, |_| 0);
}

/// A short recording consists mostly of its beginning and its end, so these are longer. At the
/// lowest priority beside 20 busy processes 2 of 517 were late.
#[test]
#[ignore = "half an hour and more"]
fn blocks_exchanged_ten_billion_times() {
    exchanges(10_000_000_000, 1_000_000, |recordings| 2 + recordings / 4);
}

/// A program that returns the same addresses again, although their frees were not observed.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn frees_that_nobody_saw() {
    let scratch = Scratch::new();
    for threads in ["0", "4"] {
        let job = |rounds: &str| Job::fixture("bypass", &format!("{rounds} {threads}"));
        let ((_, without), (_, with)) = (job("00000").recorded(&scratch), job("10000").recorded(&scratch));
        let blocks = 10_000 * threads.parse::<i64>().unwrap().max(1);
        let live = blocks / 10_000;
        let more = |name: &str| with.total(name) - without.total(name);
        assert_eq!(more("allocations"), blocks, "{with:?}");
        assert_eq!((with.total("frees_missed"), with.total("frees_unknown")), (blocks - live, 0), "{with:?}");
        assert_eq!((more("frees"), more("blocks_live_end")), (blocks - live, live), "{with:?}");
        assert_eq!((with.total("events_late"), with.total("events_reordered")), (0, 0), "{with:?}");
        let told = format!("{},{:03}", (blocks - live) / 1000, (blocks - live) % 1000);
        for verb in ["summary", "info"] {
            let shown = heapledger([verb.as_ref(), with.path.as_os_str()]);
            let warning = String::from_utf8_lossy(&shown.stderr).into_owned();
            assert!(warning.contains(&format!("[HL0075]: {told} frees were not seen")), "{warning}");
            assert!(shown.text().contains(&told), "{verb}: {}", shown.text());
        }
        assert_eq!(with.ask("info", &[])["frees_missed"], blocks - live);
    }
    assert!(heapledger(["explain", "HL0075"]).text().contains("Frees were not seen"));
}

/// With unobserved frees, the observed ones are still all known: a reused address does not delay
/// any thread.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn frees_that_nobody_saw_among_others() {
    let scratch = Scratch::new();
    for caches in ["", "glibc.malloc.tcache_count=0"] {
        let job = Job::fixture("exchange", "200000 bypass").variable("GLIBC_TUNABLES", caches);
        let (outcome, recording) = job.recorded(&scratch);
        let told = &outcome.printed_objects()[0];
        assert!(recording.total("frees_missed") > 100_000, "{recording:?}");
        assert_eq!((recording.total("frees_unknown"), recording.total("events_late")), (0, 0), "{recording:?}");
        // Each of them is one more free, except for the blocks whose addresses are not in use
        // again.
        let (freed, missed) = (recording.total("frees"), recording.total("frees_missed"));
        assert!((0..100).contains(&(freed - missed - number(told, "frees"))), "{told} {recording:?}");
    }
}

#[test]
fn blocks_of_signal_handlers() {
    agrees(|work| Job::fixture("signals", work), "2000");
}

#[test]
fn blocks_of_fibers() {
    agrees(|work| Job::fixture("fibers", work), "1600");
}

#[test]
fn blocks_of_a_deep_recursion() {
    agrees(|work| Job::fixture("deep", work), "50000");
}

/// The user's own preloaded library is between the recorder and libc, and is called as before.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn behind_another_preloaded_allocator() {
    let checked = |name: &'static str| {
        move |work: &str| {
            let job = Job::fixture(name, work).variable("LD_PRELOAD", "libc_malloc_debug.so.0");
            job.variable("MALLOC_CHECK_", "3")
        }
    };
    agrees(checked("mix"), "20000");
    agrees(checked("queue"), "20000");
    // Not `operators`: jemalloc has its own operator new, which then does not call malloc.
    let Some(jemalloc) = shared_library("libjemalloc.so.2") else { return };
    for (name, work) in [("queue", "200000"), ("growth", "100"), ("exchange", "50000")] {
        agrees(|work| Job::fixture(name, work).variable("LD_PRELOAD", &jemalloc), work);
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn blocks_of_very_many_stacks() {
    agrees(|work| Job::fixture("stacks", work), "65536");
}

/// The memory of a pool is not counted twice, its blocks are counted as blocks, and a reset frees
/// all of them.
#[test]
fn user_pools() {
    agrees(|work| Job::fixture("pools", work), "300");
}
