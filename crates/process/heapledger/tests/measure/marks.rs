//! Marks in the ledger.

use heapledger::{Bytes, Counter, HeapSize, Ledger, Mark, Marked, Meter, Options};

use crate::truth::words;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("marks_say_who_reported", marks_say_who_reported),
    ("marks_go_with_their_blocks", marks_go_with_their_blocks),
    ("a_sample_stands_for_all", a_sample_stands_for_all),
    ("counters", counters),
];

fn marks_say_who_reported() {
    let ledger = Ledger::start(Options::EXACT).unwrap();
    let text = "a text of a page".to_owned();
    assert_eq!(ledger.mark(text.as_ptr(), "explicit/one"), Marked::Once);
    assert_eq!(ledger.mark(text.as_ptr(), "explicit/two"), Marked::Again);
    assert_eq!(ledger.mark(text.as_ptr(), "explicit/three"), Marked::Again);
    assert_eq!(ledger.mark(text.as_ptr().wrapping_add(3), "explicit/one"), Marked::Inside);
    assert_eq!(ledger.mark(&raw const text, "explicit/one"), Marked::NoBlock);
    let wrong: Vec<_> = ledger.misreports().collect();
    assert_eq!((wrong.len() as u64, ledger.misreports_count()), (2, 2));
    assert_eq!(wrong[0].inside, Some(text.as_ptr().addr() as u64));
    assert_eq!((wrong[1].inside, wrong[1].address), (None, (&raw const text).addr() as u64));
    assert!(wrong.iter().all(|wrong| wrong.mark.reporter == "explicit/one" && wrong.mark.stack.frames().count() >= 2));
    let block = ledger.block_at(text.as_ptr()).unwrap();
    let names = block.marks.map(|mark| mark.map(|mark: Mark| mark.reporter));
    assert_eq!(names, [Some("explicit/one"), Some("explicit/two")], "the first two are kept");
    for mark in block.marks.into_iter().flatten() {
        let stack = mark.stack.to_string();
        assert!(stack.contains("marks_say_who_reported"), "{stack}");
        assert!(mark.stack.frames().count() >= 2 && !mark.is_kept);
    }
    let reported = ledger.reported();
    assert_eq!((reported.once.blocks.0, reported.twice.blocks.0), (0, 1));
    assert_eq!(reported.twice.bytes.0, text.len() as u64);

    // A meter's marks have the stack of the traversal.
    let names: Vec<String> = words(3).collect();
    let measured = names.heap_size(&mut Meter::marking("explicit/names"));
    let marked: Vec<_> =
        ledger.blocks().filter(|block| block.marks[0].is_some_and(|mark| mark.reporter == "explicit/names")).collect();
    assert_eq!(marked.iter().map(|block| block.usable).sum::<Bytes>(), measured);
    let mut meter = Meter::marking("explicit/again");
    names.heap_size(&mut meter);
    assert_eq!((meter.mark_counts().once, meter.mark_counts().again), (0, 4));

    ledger.clear_marks();
    let reported = ledger.reported();
    assert_eq!((reported.once.blocks.0, reported.twice.blocks.0), (0, 0));
    assert_eq!((ledger.misreports().count(), ledger.misreports_count()), (0, 0));
    (0..100).for_each(|_| assert_eq!(ledger.mark(&raw const text, "explicit/one"), Marked::NoBlock));
    assert_eq!((ledger.misreports().count(), ledger.misreports_count()), (64, 100));
    ledger.stop();
    assert_eq!(ledger.mark(text.as_ptr(), "explicit/one"), Marked::Unknown);
}

fn marks_go_with_their_blocks() {
    let ledger = Ledger::start(Options::EXACT).unwrap();
    let reported = || ledger.reported().once.blocks.0;
    let many: Vec<Box<u64>> = (0..10_000).map(Box::new).collect();
    for (at, one) in many.iter().enumerate() {
        let kept = at % 4 == 0;
        let marked =
            if kept { ledger.mark_and_keep(&**one, "explicit/kept") } else { ledger.mark(&**one, "explicit/many") };
        assert_eq!(marked, Marked::Once);
    }
    assert_eq!(reported(), 10_000);
    ledger.clear_marks();
    assert_eq!(reported(), 2500, "those that are to be kept");
    drop(many);
    assert_eq!(reported(), 0);

    let kept = Box::new(7_u64);
    ledger.mark(&*kept, "explicit/parent");
    // SAFETY: the child asks the ledger and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let marks = ledger.block_at(&*kept).map(|block| block.marks.map(|mark| mark.map(|mark| mark.reporter)));
        let again = ledger.mark(&*kept, "explicit/child");
        let is_right = marks == Some([Some("explicit/parent"), None]) && again == Marked::Again;
        // SAFETY: the child ends.
        unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: the status may be written.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!((status, reported()), (0, 1), "the child has marks of its own");
    drop(kept);

    let mut growing = vec![1_u8; 100];
    ledger.mark(growing.as_ptr(), "explicit/growing");
    assert_eq!(reported(), 1);
    growing.extend([2; 100_000]);
    assert_eq!(reported(), 0, "it is another block");
    let old = growing.as_ptr();
    ledger.mark(old, "explicit/growing");
    drop(growing);
    assert_eq!(ledger.mark(old, "explicit/growing"), Marked::NoBlock, "freed");

    // A reallocation that fails changes nothing.
    let mut stays = vec![1_u8; 100];
    ledger.mark(stays.as_ptr(), "explicit/stays");
    assert!(stays.try_reserve_exact((isize::MAX as usize) - 4096).is_err());
    assert_eq!(ledger.block_at(stays.as_ptr()).unwrap().marks[0].unwrap().reporter, "explicit/stays");
}

fn a_sample_stands_for_all() {
    let ledger = Ledger::start(Options { sample_every: Some(Bytes(4096)), ..Options::EXACT }).unwrap();
    let (some, others) =
        [30_000, 60_000].map(|count| (0..count).map(|_| Box::new([0_u8; 500])).collect::<Vec<_>>()).into();
    let mut meter = Meter::marking("explicit/some");
    assert!(some.heap_size(&mut meter).0 > 15_000_000, "the allocator is asked, not the sample");
    assert_eq!(meter.mark_counts().no_block, 0, "unknown is not wrong");
    let reported = ledger.reported();
    // Of about 3,500 and 7,000 samples: four times the standard error, and more.
    let is_about = |bytes: Bytes, expected: f64| (bytes.0 as f64 / expected - 1.0).abs() < 0.08;
    assert!(is_about(reported.once.bytes, 500.0 * some.len() as f64), "{reported:?}");
    assert!(is_about(reported.unreported.bytes, 500.0 * others.len() as f64), "{reported:?}");
}

fn counters() {
    static LIBRARY: Counter = Counter::new("explicit/library");
    let ledger = Ledger::start(Options::EXACT).unwrap();
    let blocks: Vec<Box<[u8; 100]>> = (0..10).map(|_| Box::new([0; 100])).collect();
    for block in &blocks {
        // SAFETY: a box is where its block begins.
        unsafe { LIBRARY.allocated(&raw const **block, 100) };
    }
    let usable: u64 = blocks.iter().map(|block| ledger.block_at(&raw const **block).unwrap().usable.0).sum();
    assert_eq!(LIBRARY.bytes().0, usable);
    ledger.clear_marks();
    assert_eq!(ledger.reported().once.blocks.0, 10);
    for block in &blocks {
        // SAFETY: as above.
        unsafe { LIBRARY.freeing(&raw const **block, 100) };
    }
    assert_eq!(LIBRARY.bytes(), Bytes(0));
}
