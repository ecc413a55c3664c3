//! Advice on logs as programs make them.

use heapledger_dmd::{
    Adviser, Analysis, Block, Builder, DmdOptions, KindName, Log, Mode, Plan, Record, Report, TraceId,
};

/// The blocks of a test.
#[derive(Default)]
struct Made {
    alloc: &'static [&'static str],
    reports: &'static [(&'static str, &'static [&'static str])],
    type_name: &'static str,
    size: u64,
    count: u64,
}

fn log(made: &[Made]) -> Log {
    let mut builder = Builder::new(Mode::DarkMatter);
    for made in made {
        let mut trace = |frames: &[&str]| -> TraceId {
            let frames: Vec<_> = frames.iter().map(|frame| builder.frame(frame)).collect();
            builder.trace(&frames)
        };
        let alloc = (!made.alloc.is_empty()).then(|| trace(made.alloc));
        let mut reports = [None; 2];
        for (place, (name, frames)) in reports.iter_mut().zip(made.reports) {
            let frames: Vec<_> = frames.iter().map(|frame| builder.frame(frame)).collect();
            let reporter = (!name.is_empty()).then(|| builder.name(name));
            *place = Some(Report { trace: builder.trace(&frames), reporter });
        }
        let type_name = (!made.type_name.is_empty()).then(|| builder.name(made.type_name));
        builder.add(&Block {
            requested: made.size,
            slop: 0,
            count: made.count.max(1),
            weight: 1.0,
            variance: 0.0,
            alloc,
            reports,
            type_name,
            context: None,
        });
    }
    builder.finish()
}

/// Returns the advice on the first blocks.
fn first(made: &[Made]) -> Option<String> {
    let analysis = Analysis::of(&log(made), &DmdOptions { max_frames: 24, ..DmdOptions::default() });
    let kind = match made[0].reports.len() {
        0 => KindName::Unreported,
        1 => KindName::OnceReported,
        _ => KindName::TwiceReported,
    };
    let is_first = |record: &&Record| {
        let alloc: Vec<&str> = record.alloc.iter().map(|frame| &**frame).collect();
        alloc == made[0].alloc || made[0].alloc.is_empty()
    };
    let record = analysis.kind(kind).unwrap().records.iter().find(is_first).unwrap();
    Adviser::of(&analysis).record(kind, record).map(|advice| advice.to_string())
}

const SET: &[&str] = &[
    "alloc::raw_vec::RawVec<T,A>::grow_one (/rustc/01/library/alloc/src/raw_vec.rs:340)",
    "bytes::bytes_mut::BytesMut::reserve (/home/me/.cargo/registry/src/index/bytes-1.0.0/src/bytes_mut.rs:600)",
    "store::db::Db::set (/home/me/store/src/db.rs:142)",
    "store::main (/home/me/store/src/main.rs:7)",
];
const EXPIRE: &[&str] = &["store::db::Db::expire (/home/me/store/src/db.rs:200)"];
const MEASURE: &[&str] = &[
    "heapledger_measure::meter::Meter::measure",
    "<store::db::Db as heapledger_measure::HeapSize>::heap_size (/home/me/store/src/reporters.rs:9)",
];
const ELSEWHERE: &[&str] = &["store::cache::report (/home/me/store/src/cache.rs:70)"];

#[test]
fn what_nobody_reports_needs_a_reporter() {
    let unreported = || Made { alloc: SET, size: 100, ..Made::default() };
    let far = Made { alloc: ELSEWHERE, reports: &[("explicit/cache", ELSEWHERE)], size: 1, ..Made::default() };
    assert_eq!(
        first(&[unreported(), far]).unwrap(),
        "register a reporter for store::db::Db: nobody reports what store::db::Db::set (src/db.rs:142) allocates"
    );
    // If nothing is reported, the reporters may not have been asked.
    assert_eq!(
        first(&[unreported()]).unwrap(),
        "register a reporter for store::db::Db, unless there is one: store::db::Db::set (src/db.rs:142) allocates these"
    );
    // A reporter far away does not matter.
    let far = Made { alloc: ELSEWHERE, reports: &[("explicit/cache", ELSEWHERE)], size: 9000, ..Made::default() };
    assert!(first(&[unreported(), far]).unwrap().starts_with("register"));
    // Nothing to go by.
    assert_eq!(first(&[Made { size: 100, ..Made::default() }]), None);
    let library = Made { alloc: &SET[..1], size: 100, ..Made::default() };
    assert_eq!(first(&[library]), None);
}

#[test]
fn a_library_alone_on_the_stack_is_named_as_one() {
    let dependency = Made { alloc: &SET[..2], size: 100, ..Made::default() };
    assert_eq!(
        first(&[dependency]).unwrap(),
        "report these where the program keeps bytes::bytes_mut::BytesMut: bytes::bytes_mut::BytesMut::reserve \
         (src/bytes_mut.rs:600) allocates them, which is a library's"
    );
}

#[test]
fn the_reporter_that_is_near_is_extended() {
    let unreported = || Made { alloc: SET, size: 100, ..Made::default() };
    let of_type = Made { alloc: EXPIRE, reports: &[("explicit/store", MEASURE)], size: 10, ..Made::default() };
    assert_eq!(
        first(&[unreported(), of_type]).unwrap(),
        "extend explicit/store: it reports what else is allocated in store::db::Db, but not by store::db::Db::set \
         (src/db.rs:142)"
    );
    // The function's own reporter is nearer than the type's, however little it reports.
    let of_type = Made { alloc: EXPIRE, reports: &[("explicit/store", MEASURE)], size: 1000, ..Made::default() };
    let of_function = Made { alloc: SET, reports: &[("explicit/index", MEASURE)], size: 1, ..Made::default() };
    assert_eq!(
        first(&[unreported(), of_type, of_function]).unwrap(),
        "extend explicit/index: it reports other blocks that store::db::Db::set (src/db.rs:142) allocates"
    );
    // In C, a file plays the role of a type.
    let of_file = Made {
        alloc: &["malloc[libc.so.6 +0x1]", "cache_grow (/src/cache.c:9)"],
        reports: &[("explicit/cache", ELSEWHERE)],
        size: 10,
        ..Made::default()
    };
    let unreported =
        Made { alloc: &["xmalloc (/src/util.c:3)", "cache_put (/src/cache.c:44)"], size: 1, ..Made::default() };
    assert_eq!(
        first(&[unreported, of_file]).unwrap(),
        "extend explicit/cache: it reports what else is allocated in /src/cache.c, but not by cache_put (src/cache.c:44)"
    );
}

#[test]
fn of_two_reporters_the_owners_keeps_them() {
    let twice = || Made {
        alloc: SET,
        reports: &[("explicit/cache", ELSEWHERE), ("explicit/store", ELSEWHERE)],
        size: 100,
        ..Made::default()
    };
    let once = |reports, size| Made { alloc: SET, reports, size, ..Made::default() };
    let (store, cache): (&[_], &[_]) = (&[("explicit/store", MEASURE)], &[("explicit/cache", ELSEWHERE)]);
    assert_eq!(
        first(&[twice(), once(store, 1)]).unwrap(),
        "leave these out of explicit/cache: only explicit/store reports others that store::db::Db::set allocates"
    );
    assert_eq!(
        first(&[twice(), once(store, 10), once(cache, 20)]).unwrap(),
        "leave these out of explicit/store: explicit/cache reports the most of what store::db::Db::set allocates"
    );
    let measured = Made { reports: &[("a/one", MEASURE), ("a/other", ELSEWHERE)], ..twice() };
    assert_eq!(
        first(&[measured]).unwrap(),
        "leave these out of a/other: a/one measures them in store::db::Db, which allocates them"
    );
    let called = Made { reports: &[("explicit/x", ELSEWHERE), ("explicit/db", ELSEWHERE)], ..twice() };
    assert_eq!(
        first(&[called]).unwrap(),
        "leave these out of explicit/x: explicit/db is called as store::db::Db is, which allocates them"
    );
    let unclear = Made { reports: &[("explicit/x", ELSEWHERE), ("explicit/y", ELSEWHERE)], ..twice() };
    assert_eq!(
        first(&[unclear]).unwrap(),
        "leave these out of one reporter: both explicit/x and explicit/y report them"
    );
}

#[test]
fn one_reporter_can_report_twice() {
    let same = |second| Made { alloc: SET, reports: second, size: 1, ..Made::default() };
    assert_eq!(
        first(&[same(&[("explicit/store", MEASURE), ("explicit/store", MEASURE)])]).unwrap(),
        "measure once what is shared: explicit/store reports these twice"
    );
    assert_eq!(
        first(&[same(&[("explicit/store", MEASURE), ("explicit/store", ELSEWHERE)])]).unwrap(),
        "report these in one place: explicit/store reports them twice, in store::db::Db::heap_size \
         (src/reporters.rs:9) and in store::cache::report (src/cache.rs:70)"
    );
    // Reporters without names are known by their places.
    assert_eq!(
        first(&[same(&[("", ELSEWHERE), ("", ELSEWHERE)])]).unwrap(),
        "measure once what is shared: the reporter at store::cache::report (src/cache.rs:70) reports these twice"
    );
}

#[test]
fn a_plan_begins_with_what_is_most() {
    let log = log(&[
        Made { alloc: EXPIRE, size: 1000, type_name: "Node", ..Made::default() },
        Made { alloc: SET, size: 100, count: 50, type_name: "Vec<u8>", ..Made::default() },
        Made { alloc: ELSEWHERE, size: 7000, ..Made::default() },
        Made { size: 2000, ..Made::default() },
        Made { alloc: SET, reports: &[("x", MEASURE), ("x", MEASURE)], size: 3, ..Made::default() },
        Made { alloc: ELSEWHERE, reports: &[("x", MEASURE)], size: 3, ..Made::default() },
    ]);
    let plan = Plan::of_log(&log, None);
    let expected = "\
Advice {
  Unreported:
  1. 7,000 bytes (46.67% of unreported) in 1 block
     extend x: it reports other blocks that store::cache::report (src/cache.rs:70) allocates
       7,000 bytes in 1 block by store::cache::report (src/cache.rs:70)
  2. 6,000 bytes (40.00% of unreported) in 51 blocks
     register a reporter for store::db::Db: nobody reports what store::db::Db::set (src/db.rs:142) allocates
       5,000 bytes in 50 blocks by store::db::Db::set (src/db.rs:142), of type Vec<u8>
       1,000 bytes in 1 block by store::db::Db::expire (src/db.rs:200), of type Node
  Twice-reported:
  1. 3 bytes (100.00% of twice-reported) in 1 block
     measure once what is shared: x reports these twice
       3 bytes in 1 block by store::db::Db::set (src/db.rs:142)
}
";
    assert_eq!(plan.to_string(), expected);
    assert_eq!(Plan::of_log(&Builder::new(Mode::DarkMatter).finish(), None).to_string(), "Advice {\n  none\n}\n");
}

#[test]
fn the_kind_with_the_largest_step_comes_first() {
    let log = log(&[
        Made { alloc: EXPIRE, size: 24, ..Made::default() },
        Made { alloc: SET, reports: &[("x", MEASURE), ("x", MEASURE)], size: 472_000, ..Made::default() },
    ]);
    let text = Plan::of_log(&log, None).to_string();
    assert!(text.starts_with("Advice {\n  Twice-reported:\n  1. 472,000 bytes"), "{text}");
    assert!(text.contains("\n  Unreported:\n  1. 24 bytes"), "{text}");
}
