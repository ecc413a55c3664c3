//! Measures how fast a table of sites and a cube answer:
//! `cargo run --release -p heapledger-analysis --example answers FILE …`.
//!
//! The figures are CPU times of one thread: no answer uses another. `benches/answers` makes the
//! recordings.

use std::hint::black_box;
use std::time::Duration;

use heapledger_analysis::{
    CallTree, ColumnRequest, Cube, CubeOptions, CubeQuestion, Direction, Filter, Layer, Metric, Moment, Names, PartBy,
    Pattern, Profile, RankBy, RecordingIdentity, Relation, Selection, SiteTable, rank,
};
use heapledger_recording::Recording;
use heapledger_symbols::{Symbolizer, SymbolizerOptions};

fn main() {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).expect("a file");
        let recording = Recording::open(&bytes).expect("a recording");
        let mut names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));
        let megabytes = bytes.len() >> 20;
        println!("{path}: {megabytes} MiB");
        let table = tables(&mut names);
        cubes(&mut names, &table, &bytes);
    }
}

fn tables(names: &mut Names<'_, '_>) -> SiteTable {
    let selection = Selection::default();
    let before = memory();
    let table = once("table: load", || SiteTable::load(names, &selection, &mut |_, _| ()).expect("sites"));
    println!("  {} sites, {} MiB more memory", table.len(), memory().saturating_sub(before) >> 20);
    let set = table.all();
    for by in [RankBy::Function, RankBy::Owner, RankBy::Site] {
        once(&format!("table: prepare {by:?}"), || table.prepare(names, by));
        answer(&format!("table: rank {by:?}"), || table.rank(names, &set, Moment::Peak, (by, Metric::Bytes), 100));
    }
    let pattern = Pattern::new("alloc").expect("a pattern");
    let filter = Filter { functions: vec![pattern.clone()], ..Filter::default() };
    let selected = answer("table: select by function", || table.select(names, &filter));
    answer("table: rank Function of these", || {
        table.rank(names, &selected, Moment::Total, (RankBy::Function, Metric::Bytes), 100)
    });
    for relation in [Relation::Callers, Relation::Callees] {
        answer(&format!("table: {relation:?}"), || {
            table.relations(names, &set, Moment::Total, (&pattern, relation), Metric::Bytes)
        });
    }
    for (direction, least) in [
        (Direction::TopDown, 0.0),
        (Direction::TopDown, 0.00001),
        (Direction::TopDown, 0.001),
        (Direction::BottomUp, 0.001),
        (Direction::BottomUp, 0.00001),
    ] {
        let metrics = vec![Metric::Bytes, Metric::Blocks];
        let request = ColumnRequest { moment: Moment::Total, metrics, least, direction };
        let columns = answer(&format!("table: columns, {direction:?}, {least}"), || table.columns(&set, &request));
        println!("  {} rows, {} cut", columns.depths.len(), columns.cut.nodes);
    }
    let profile = answer("table: profile", || table.profile(&set, Moment::Total));
    answer("profile: rank Function", || rank(&profile, names, RankBy::Function, Metric::Bytes));
    once("profile: call tree", || CallTree::new(&profile, names, &[Layer::Stack], Direction::TopDown, Metric::Bytes));
    once("recording: profile", || Profile::load(names, &selection, &mut |_, _| ()).expect("sites"));
    table
}

fn cubes(names: &mut Names<'_, '_>, table: &SiteTable, bytes: &[u8]) {
    let (selection, mut events) = (Selection::default(), 0);
    let before = memory();
    let cube = once("cube: build", || {
        let options = CubeOptions::default();
        Cube::build(names, table, &selection, &options, &mut |done, _| events = done).expect("events")
    });
    let more = memory().saturating_sub(before) >> 20;
    println!("  {events} events, {} cells, {} sites merged, {more} MiB more memory", cube.cells(), cube.merged());
    for question in [
        CubeQuestion::LiveAt(128),
        CubeQuestion::Allocated(64, 192),
        CubeQuestion::Freed(64, 192),
        CubeQuestion::LiveSince(64, 192),
    ] {
        answer(&format!("cube: {question:?}"), || cube.table(question, None));
    }
    let set = table.all();
    answer("cube: shares by Function", || cube.shares(names, &set, (RankBy::Function, Metric::Bytes), None, 10));
    answer("cube: by thread", || cube.parts(&set, PartBy::Thread));
    answer("cube: by size class", || cube.parts(&set, PartBy::SizeClass));
    answer("cube: lifetimes", || cube.lifetimes(&set, None));
    let identity = RecordingIdentity::new(bytes, 0);
    let file = answer("cube: encode", || cube.encode(identity, table)).expect("a file");
    let images = selection.filter.images(names.recording()).expect("images");
    let read = answer("cube: decode", || Cube::decode(&file, identity, &images, table));
    assert_eq!(read.map(|read| read.cells()), Some(cube.cells()));
    println!("  the file has {} KiB", file.len() >> 10);
}

/// Prints the CPU time of an answer: the mean of ten.
fn answer<T>(what: &str, mut work: impl FnMut() -> T) -> T {
    let start = cpu_time();
    let result = (0..10).map(|_| black_box(work())).last();
    println!("{what:45} {:9.1} ms", (cpu_time() - start).as_secs_f64() * 1e3 / 10.0);
    result.expect("ten answers")
}

/// Prints the CPU time of work that is done once.
fn once<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = cpu_time();
    let result = black_box(work());
    println!("{what:45} {:9.1} ms", (cpu_time() - start).as_secs_f64() * 1e3);
    result
}

fn cpu_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("/proc");
    Duration::from_nanos(schedstat.split(' ').next().and_then(|time| time.parse().ok()).expect("a time"))
}

/// Returns the resident memory that is no file's, in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() << 10
}
