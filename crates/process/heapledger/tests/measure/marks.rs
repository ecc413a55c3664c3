//! Marks in the ledger.

use heapledger::{
    Bytes, Counter, Defect, DefectKind, HeapSize, Ledger, LedgerOptions, Mark, Marked, Meter, SnapshotOptions,
};

use crate::truth::words;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("marks_say_who_reported", marks_say_who_reported),
    ("marks_go_with_their_blocks", marks_go_with_their_blocks),
    ("a_sample_counts_with_its_weight", a_sample_counts_with_its_weight),
    ("counters", counters),
    ("defects", defects),
    ("counted_as_they_come_and_go", counted_as_they_come_and_go),
];

fn marks_say_who_reported() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let text = "a text of a page".to_owned();
    assert_eq!(ledger.mark(text.as_ptr(), "explicit/one"), Marked::Once);
    assert_eq!(ledger.mark(text.as_ptr(), "explicit/two"), Marked::Again);
    assert_eq!(ledger.mark(text.as_ptr(), "explicit/three"), Marked::Again);
    assert_eq!(ledger.mark(text.as_ptr().wrapping_add(3), "explicit/one"), Marked::Inside);
    assert_eq!(ledger.mark(&raw const text, "explicit/one"), Marked::NoBlock);
    let wrong = ledger.defects();
    assert_eq!((wrong.len() as u64, ledger.defects_count()), (2, 2));
    assert_eq!((wrong[0].kind, wrong[0].block), (DefectKind::Interior, Some(text.as_ptr().addr() as u64)));
    assert_eq!((wrong[1].kind, wrong[1].block), (DefectKind::NotHeap, None));
    assert_eq!(wrong[1].address, (&raw const text).addr() as u64);
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
    assert_eq!((ledger.defects().len(), ledger.defects_count()), (0, 0));
    (0..100).for_each(|_| assert_eq!(ledger.mark(&raw const text, "explicit/one"), Marked::NoBlock));
    assert_eq!((ledger.defects().len(), ledger.defects_count(), ledger.defects()[0].count), (1, 100, 100));
    ledger.stop();
    assert_eq!(ledger.mark(text.as_ptr(), "explicit/one"), Marked::Unknown);
}

fn marks_go_with_their_blocks() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
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
    // SAFETY: a forked child has this thread only, and must not rely on others. It asks the ledger,
    // whose locks are free after a fork, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let marks = ledger.block_at(&*kept).map(|block| block.marks.map(|mark| mark.map(|mark| mark.reporter)));
        let again = ledger.mark(&*kept, "explicit/child");
        let is_right = marks == Some([Some("explicit/parent"), None]) && again == Marked::Again;
        // SAFETY: `_exit` requires nothing: it ends the child, and runs no destructors or exit
        // functions, which are the parent's.
        unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: `waitpid` requires an integer that may be written, as `status` is.
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

fn a_sample_counts_with_its_weight() {
    let ledger = Ledger::start(LedgerOptions { sample_every: Some(Bytes(4096)), ..LedgerOptions::EXACT }).unwrap();
    let (some, others) =
        [30_000, 60_000].map(|count| (0..count).map(|_| Box::new([0_u8; 500])).collect::<Vec<_>>()).into();
    let mut meter = Meter::marking("explicit/some");
    assert!(some.heap_size(&mut meter).0 > 15_000_000, "the allocator is asked, not the sample");
    assert_eq!(meter.mark_counts().no_block, 0, "unknown is not wrong");
    let reported = ledger.reported();
    // The estimates come from about 3,500 and 7,000 samples: the tolerance is more than four times
    // the standard error.
    let is_about = |bytes: Bytes, expected: f64| (bytes.0 as f64 / expected - 1.0).abs() < 0.08;
    assert!(is_about(reported.once.bytes, 500.0 * some.len() as f64), "{reported:?}");
    assert!(is_about(reported.unreported.bytes, 500.0 * others.len() as f64), "{reported:?}");
}

fn counters() {
    static LIBRARY: Counter = Counter::new("explicit/library");
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let blocks: Vec<Box<[u8; 100]>> = (0..10).map(|_| Box::new([0; 100])).collect();
    for block in &blocks {
        // SAFETY: `allocated` requires where a live block of the global allocator begins, as
        // `Meter::block` does. By the documentation of `Box` its value, of 100 bytes, lies there,
        // and `blocks` keeps it.
        unsafe { LIBRARY.allocated(&raw const **block, 100) };
    }
    let usable: u64 = blocks.iter().map(|block| ledger.block_at(&raw const **block).unwrap().usable.0).sum();
    assert_eq!(LIBRARY.bytes().0, usable);
    ledger.clear_marks();
    assert_eq!(ledger.reported().once.blocks.0, 10);
    for block in &blocks {
        // SAFETY: `freeing` requires where a live block of the global allocator begins, as
        // `Meter::block` does. The box's value lies there, and `blocks` is dropped only after this
        // loop.
        unsafe { LIBRARY.freeing(&raw const **block, 100) };
    }
    assert_eq!(LIBRARY.bytes(), Bytes(0));
    drop(blocks);
    assert_eq!(ledger.defects(), [], "each mark was taken off");
}

fn defects() {
    static TABLE: [u64; 4] = [1, 2, 3, 4];
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let kinds = |reporter: &str| -> Vec<_> {
        let snapshot = ledger.snapshot(&SnapshotOptions::default()).unwrap();
        // Which memory looks like the heap's depends on the blocks that are live at the moment.
        let said = |defects: Vec<Defect>| -> Vec<_> {
            defects.into_iter().map(|defect| (defect.mark, defect.address, defect.count)).collect()
        };
        assert_eq!(said(snapshot.defects()), said(ledger.defects()));
        let defects = ledger.defects().into_iter();
        defects.filter(|defect| defect.mark.reporter == reporter).map(|defect| (defect.kind, defect.count)).collect()
    };
    // Addresses that are not in a block of the heap, and one in a block that has been freed.
    let here = 1_u64;
    let mapping = Mapping::new();
    for elsewhere in [&raw const here, &raw const TABLE[1], mapping.start.cast()] {
        assert_eq!(ledger.mark(elsewhere, "explicit/elsewhere"), Marked::NoBlock);
    }
    let not_heap = kinds("explicit/elsewhere");
    assert!(not_heap.iter().all(|&(kind, _)| kind == DefectKind::NotHeap), "{not_heap:?}");
    assert_eq!(not_heap.iter().map(|(_, count)| count).sum::<u64>(), 3);
    // Memory is the heap's if a live block is in its mapping.
    let neighbours: Vec<Box<u64>> = (0..64).map(Box::new).collect();
    let (freed, unmapped) = (Box::into_raw(Box::new(7_u64)), std::ptr::without_provenance::<u8>(4096));
    // SAFETY: `Box::from_raw` requires a box that `Box::into_raw` gave away, once: `freed` is from
    // the line above. After this only its address is used.
    drop(unsafe { Box::from_raw(freed) });
    assert_eq!(ledger.mark(freed.cast_const(), "explicit/freed"), Marked::NoBlock);
    assert_eq!(ledger.mark(unmapped, "explicit/unmapped"), Marked::NoBlock);
    assert_eq!(
        (kinds("explicit/freed"), kinds("explicit/unmapped")),
        (vec![(DefectKind::NoBlock, 1)], vec![(DefectKind::NoBlock, 1)])
    );
    drop(neighbours);

    // Partly reported: by a reporter that counts elements, and forgets what else there is room for.
    let mut list: Vec<u64> = Vec::with_capacity(100);
    list.push(1);
    let mut meter = Meter::marking("explicit/list");
    assert_eq!(meter.block_counted_as(list.as_ptr(), list.len() * 8), Bytes(8));
    let defect = ledger.defects().into_iter().find(|defect| defect.kind == DefectKind::Partly).unwrap();
    let usable = ledger.block_at(list.as_ptr()).unwrap().usable;
    assert_eq!((defect.measured, defect.usable, defect.count), (Some(Bytes(8)), Some(usable), 1));
    assert_eq!((defect.address, defect.block), (list.as_ptr().addr() as u64, Some(list.as_ptr().addr() as u64)));
    let allocated_at = defect.allocated_at.unwrap().to_string();
    assert!(allocated_at.contains("defects"), "{allocated_at}");
    ledger.mark_measured(list.as_ptr(), "explicit/all", usable);
    assert_eq!(kinds("explicit/all"), []);

    // Freed while reporters are asked; and after that, as anything may be.
    ledger.begin_marks();
    assert_eq!(ledger.defects(), []);
    let (early, late) = (Box::new(1), Box::new(2));
    ledger.mark(&*early, "explicit/early");
    ledger.mark(&*late, "explicit/late");
    drop(early);
    ledger.marks_complete();
    drop(late);
    assert_eq!((kinds("explicit/early"), kinds("explicit/late")), (vec![(DefectKind::FreedWhileReported, 1)], vec![]));
}

/// A page that is no memory of the allocator's.
struct Mapping {
    start: *mut u8,
}

impl Mapping {
    /// Between two pages that nobody may touch: so the kernel lists it as one.
    fn new() -> Mapping {
        // SAFETY: a mapping of its own, of which the middle is made writable.
        unsafe {
            let (none, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let around = libc::mmap(std::ptr::null_mut(), 3 * 4096, none, flags, -1, 0).cast::<u8>();
            let start = around.add(4096);
            assert_eq!(libc::mprotect(start.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE), 0);
            Mapping { start }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `munmap` requires a mapping that nobody uses any more. `new` mapped these three
        // pages, `start` is the second of them, and others had its address only to look it up.
        unsafe { libc::munmap(self.start.sub(4096).cast(), 3 * 4096) };
    }
}

fn counted_as_they_come_and_go() {
    const REPORTER: &str = "explicit/pages";
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let pages: Vec<String> = words(3).collect();
    let bytes = pages.heap_size(&mut Meter::marking_and_keeping(REPORTER));
    ledger.clear_marks();
    assert_eq!(ledger.reported().once.bytes_usable, bytes, "they stay");
    assert_eq!(pages.heap_size(&mut Meter::unmarking(REPORTER)), bytes);
    assert_eq!(ledger.reported().once.blocks.0, 0);

    assert_eq!(ledger.mark_and_keep(pages[0].as_ptr(), REPORTER), Marked::Once);
    assert_eq!(ledger.mark(pages[0].as_ptr(), "explicit/other"), Marked::Again);
    assert!(!ledger.unmark(pages[0].as_ptr(), "explicit/other"), "it is none that stays");
    assert!(ledger.unmark(pages[0].as_ptr(), REPORTER));
    let [first, second] = ledger.block_at(pages[0].as_ptr()).unwrap().marks;
    assert_eq!((first.unwrap().reporter, second), ("explicit/other", None));
    assert_eq!(ledger.mark_and_keep(pages[1].as_ptr(), REPORTER), Marked::Once);
    let allocated_at = ledger.block_at(pages[1].as_ptr()).unwrap().stack;
    drop(pages);
    let [defect] = ledger.defects().try_into().unwrap();
    assert_eq!((defect.kind, defect.mark.reporter, defect.count), (DefectKind::FreedWhileReported, REPORTER, 1));
    assert_eq!(defect.allocated_at, Some(allocated_at));
    ledger.clear_marks();
    assert_eq!(ledger.defects_count(), 1, "marks that stay, and what is wrong with them");
}
