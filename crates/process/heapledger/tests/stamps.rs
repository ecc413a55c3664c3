//! Stamps in the ledger of a program that knows what its blocks are. Without the test harness: its
//! threads allocate, too.

mod runner;

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::ffi::CString;
use std::hint::black_box;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{self, Poll, Waker};

use heapledger::{Allocator, Block, Bytes, Ledger, LedgerOptions, OwnsBlocks, Pool, Stamp, stamp, stamped};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Token {
    words: [u64; 5],
}

trait Shape {}
impl Shape for Token {}

/// Aligned by more than the counts in front of it take.
#[repr(align(64))]
struct Aligned;

fn main() {
    let tests: &[(&str, fn())] = &[
        ("blocks_are_of_what_owns_them", blocks_are_of_what_owns_them),
        ("what_owns_no_block_is_no_error", what_owns_no_block_is_no_error),
        ("places_and_labels_come_along", places_and_labels_come_along),
        ("functions_stamp_what_they_return", functions_stamp_what_they_return),
        ("stamps_come_late_again_and_stay", stamps_come_late_again_and_stay),
        ("stamps_on_no_block_are_counted", stamps_on_no_block_are_counted),
        ("blocks_of_pools_are_stamped", blocks_of_pools_are_stamped),
        ("samples_keep_their_weight", samples_keep_their_weight),
        ("a_child_keeps_them", a_child_keeps_them),
        ("threads_stamp_at_once", threads_stamp_at_once),
        ("tables_show_types_and_places", tables_show_types_and_places),
    ];
    runner::run(tests, || Ledger::get().stop());
}

fn start() -> Ledger {
    Ledger::start(LedgerOptions::EXACT).unwrap()
}

/// The blocks with stamps of a type, and with what.
#[track_caller]
fn all(type_name: &str) -> Vec<Block> {
    let blocks = Ledger::get().blocks().filter(|block| block.type_name() == Some(type_name));
    let blocks: Vec<Block> = blocks.collect();
    assert_eq!(Ledger::get().losses().stamps_unknown, 0, "{type_name}");
    blocks
}

/// Asserts that stamping such a value gives so many blocks of that type.
#[track_caller]
fn expect<B: OwnsBlocks>(value: B, type_name: &str, count: usize) {
    let before = all(type_name).len();
    let value = black_box(stamp!(value));
    let found = all(type_name);
    assert_eq!(found.len() - before, count, "{type_name}: {found:?}");
    let mut addresses = Vec::new();
    value.blocks(&mut |address| addresses.push(address));
    for address in addresses {
        let block = Ledger::get().block_at(address).unwrap();
        assert_eq!((block.type_name(), block.stamp.unwrap().line > 0), (Some(type_name), true));
    }
}

fn token(number: u64) -> Token {
    Token { words: [number; 5] }
}

fn blocks_are_of_what_owns_them() {
    let ledger = start();
    expect(Box::new(token(1)), "stamps::Token", 1);
    expect(Box::new(token(1)) as Box<dyn Shape>, "dyn stamps::Shape", 1);
    expect(Box::<[Token]>::from(vec![token(1); 3]), "[stamps::Token]", 1);
    expect(Box::<str>::from("text"), "str", 1);
    expect(Box::pin(token(1)), "stamps::Token", 1);
    expect(Rc::new(token(1)), "stamps::Token", 1);
    expect(Arc::new(token(1)), "stamps::Token", 1);
    expect(Arc::new(()), "()", 1);
    expect(Rc::new(Aligned), "stamps::Aligned", 1);
    expect(Arc::<[u16]>::from(vec![7; 100]), "[u16]", 1);
    expect(Rc::<str>::from(""), "str", 1);
    expect(vec![token(1); 7], "[stamps::Token]", 1);
    expect(Vec::<Token>::with_capacity(1), "[stamps::Token]", 1);
    expect(String::from("text"), "alloc::string::String", 1);
    expect(std::ffi::OsString::from("text"), "std::ffi::os_str::OsString", 1);
    expect(PathBuf::from("/tmp"), "std::path::PathBuf", 1);
    expect(CString::default(), "alloc::ffi::c_str::CString", 1);
    expect(VecDeque::<u32>::with_capacity(10), "[u32]", 1);
    // One whose first element is deep inside of a large block; and one that begins at the end and
    // goes on at the front.
    let mut rotated: VecDeque<u32> = (0..10_000).collect();
    rotated.drain(..9_000);
    expect(rotated.clone(), "[u32]", 1);
    rotated.extend(0..8_000);
    assert!(!rotated.as_slices().1.is_empty());
    expect(rotated, "[u32]", 1);
    expect(BinaryHeap::from(vec![3, 1, 2]), "[i32]", 1);
    let map = "std::collections::hash::map::HashMap<u64, stamps::Token>";
    for elements in [1, 3, 100, 10_000] {
        expect((0..elements).map(|number| (number, token(number))).collect::<HashMap<_, _>>(), map, 1);
    }
    expect(HashMap::from([((), 7_u8)]), "std::collections::hash::map::HashMap<(), u8>", 1);
    expect((0..1000_u32).collect::<HashSet<_>>(), "std::collections::hash::set::HashSet<u32>", 1);
    let before = ledger.totals().blocks_live.0;
    let map: BTreeMap<u64, Token> = (0..1000).map(|number| (number, token(number))).collect();
    let nodes = (ledger.totals().blocks_live.0 - before) as usize;
    assert!(nodes > 80);
    expect(map, "alloc::collections::btree::map::BTreeMap<u64, stamps::Token>", nodes);
    expect(BTreeSet::from([token(1)]), "alloc::collections::btree::set::BTreeSet<stamps::Token>", 1);
    expect(BTreeMap::from([((), 1_u8)]), "alloc::collections::btree::map::BTreeMap<(), u8>", 1);
    expect(LinkedList::from([1, 2, 3]), "alloc::collections::linked_list::LinkedList<i32>", 3);
    expect(Some(Box::new(1_u8)), "u8", 1);
    expect(Ok::<_, ()>(Box::new(1_u8)), "u8", 1);
    let mut held = (String::from("held"), Box::new(9_i128));
    expect(&held.0, "alloc::string::String", 1);
    expect(&mut held.1, "i128", 1);
    expect(&raw const *held.1, "i128", 0);
    expect(&raw mut *held.1, "i128", 0);
    expect(NonNull::from(&*held.1), "i128", 0);
}

fn what_owns_no_block_is_no_error() {
    start();
    fn none<B: OwnsBlocks>(value: B) {
        stamp!(value).blocks(&mut |block| panic!("{block:?}"));
    }
    none(Box::new(()));
    none(Pin::from(Box::new(())));
    none(Box::<[u64]>::default());
    none(Vec::<u64>::new());
    none(vec![(); 100]);
    none(String::new());
    none(PathBuf::new());
    none(std::ffi::OsString::new());
    none(VecDeque::<u8>::new());
    none(BinaryHeap::<u8>::new());
    none(HashMap::<u8, u8>::new());
    none(HashSet::<()>::from([()]));
    none(BTreeMap::<u8, u8>::new());
    none(BTreeSet::from([()]));
    none(LinkedList::<u8>::new());
    none(None::<Box<u8>>);
    none(Err::<Box<u8>, _>(7));
    none(std::ptr::null::<u8>());
    assert_eq!(Ledger::get().losses().stamps_unknown, 0);
}

/// Returns the stamp of a value's block.
#[track_caller]
fn stamp_of<T: ?Sized>(block: *const T) -> Stamp {
    Ledger::get().block_at(block).unwrap().stamp.unwrap()
}

fn make<T: Default>() -> Box<T> {
    stamp!(Box::default(), "made")
}

fn places_and_labels_come_along() {
    start();
    let (first, line) = (stamp!(Box::new(token(1))), line!());
    let found = stamp_of(&raw const *first);
    assert_eq!((found.type_name, found.file, found.line), ("stamps::Token", Some(file!()), line));
    assert_eq!((found.label, found.to_string()), (None, format!("stamps::Token at {}:{line}", file!())));
    // One place, and as many types as it is made for.
    let (token, number) = (make::<Token>(), make::<[u64; 7]>());
    let found = [stamp_of(&raw const *token), stamp_of(&raw const *number)];
    assert_eq!(found.map(|stamp| stamp.type_name), ["stamps::Token", "[u64; 7]"]);
    assert!(found.iter().all(|stamp| stamp.label == Some("made") && stamp.line == found[0].line));
    const LABEL: &str = "a label";
    let labelled = stamp!(vec![1_u8], LABEL);
    assert_eq!(stamp_of(labelled.as_ptr()).label, Some(LABEL));
}

struct Table {
    rows: Vec<f64>,
    name: String,
}

impl OwnsBlocks for Table {
    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        self.rows.blocks(visit);
        self.name.blocks(visit);
    }
}

impl Table {
    #[stamped]
    fn named(name: &str) -> Option<Table> {
        if name.is_empty() {
            return None;
        }
        let name = name.strip_prefix("table ")?;
        Some(Table { rows: vec![0.5; 9], name: name.to_owned() })
    }

    #[stamped("a column")]
    fn column<T>(&mut self, mut of: impl FnMut(f64) -> T) -> Vec<T> {
        self.rows.push(1.0);
        self.rows.iter().map(|row| of(*row)).collect()
    }

    #[stamped("borrowed")]
    fn text(&self) -> &String {
        &self.name
    }
}

#[stamped("opaque")]
fn opaque() -> impl OwnsBlocks {
    Box::new([7_u16; 3])
}

#[stamped("later")]
async fn later(number: u64) -> Result<Box<Token>, std::num::ParseIntError> {
    std::future::ready(()).await;
    let number: u64 = if number == 0 { "none".parse()? } else { number };
    Ok(Box::new(token(number)))
}

fn functions_stamp_what_they_return() {
    start();
    assert!(Table::named("").is_none() && Table::named("other").is_none());
    let mut table = Table::named("table of rows").unwrap();
    let found = [stamp_of(table.rows.as_ptr()), stamp_of(table.name.as_ptr())];
    assert!(found.iter().all(|stamp| stamp.type_name == "stamps::Table" && stamp.label.is_none()), "{found:?}");
    let column = table.column(|row| row as u32);
    assert_eq!((stamp_of(column.as_ptr()).label, column.len()), (Some("a column"), 10));
    assert_eq!(stamp_of(table.text().as_ptr()).label, Some("borrowed"));
    opaque().blocks(&mut |block| assert_eq!(stamp_of(block).label, Some("opaque")));
    let mut context = task::Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(made)) = pin!(later(7)).poll(&mut context) else { panic!("it waits for nothing") };
    assert_eq!((stamp_of(&raw const *made).label, made.words[0]), (Some("later"), 7));
    assert!(matches!(pin!(later(0)).poll(&mut context), Poll::Ready(Err(_))));
}

fn stamps_come_late_again_and_stay() {
    let ledger = start();
    let mut numbers = black_box(vec![1_u64; 10]);
    assert_eq!(ledger.block_at(numbers.as_ptr()).unwrap().stamp, None);
    stamp!(&numbers, "late");
    assert_eq!(stamp_of(numbers.as_ptr()).label, Some("late"));
    stamp!(&mut numbers, "again").push(7);
    // It has been reallocated, and grows into a large block.
    assert_eq!(stamp_of(numbers.as_ptr()).label, Some("again"));
    numbers.extend(0..100_000);
    assert_eq!((stamp_of(numbers.as_ptr()).label, stamp_of(numbers.as_ptr()).type_name), (Some("again"), "[u64]"));
    let pointer = numbers.as_ptr();
    drop(numbers);
    assert!(ledger.block_at(pointer).is_none_or(|block| block.stamp.is_none()));
    assert_eq!(ledger.losses().stamps_unknown, 0);
}

fn stamps_on_no_block_are_counted() {
    let before = Box::new(token(1));
    let ledger = start();
    let local = 7;
    stamp!(&raw const local);
    let gone = {
        let gone = Box::new(token(2));
        &raw const *gone
    };
    stamp!(gone);
    stamp!(NonNull::<u64>::dangling());
    // Allocated before the ledger was started: it does not know it.
    stamp!(&before);
    assert!(!ledger.stamp(&raw const local, "nothing"));
    assert_eq!(ledger.losses().stamps_unknown, 5);
    // A stamp within `ignore` is not an error, nor is a stamp if there is no observer.
    {
        let _ignored = heapledger::ignore();
        stamp!(Box::new(token(3)));
    }
    assert_eq!(ledger.losses().stamps_unknown, 5);
    ledger.stop();
    stamp!(&before);
    assert_eq!(ledger.losses().stamps_unknown, 5);
    assert_eq!(start().losses().stamps_unknown, 0);
}

fn blocks_of_pools_are_stamped() {
    static ARENA: Pool = Pool::new("arena");
    let ledger = start();
    let memory = black_box(vec![0_u8; 20_000]);
    stamp!(&memory, "memory");
    ARENA.back(memory.as_ptr());
    ARENA.alloc(memory.as_ptr(), 100);
    ARENA.alloc(&raw const memory[100], 9_000);
    stamp!(memory.as_ptr().cast::<Token>(), "first");
    stamp!((&raw const memory[9_000]).cast::<[Token; 2]>(), "second");
    let found = [stamp_of(memory.as_ptr()), stamp_of(&raw const memory[5_000])];
    assert_eq!(found.map(|stamp| stamp.type_name), ["stamps::Token", "[stamps::Token; 2]"]);
    assert_eq!(ledger.blocks().filter(|block| block.stack.heap() == Some("arena")).count(), 2);
    // A stamp on backing memory of the pool that is in no block is ignored, without an error.
    stamp!(&raw const memory[15_000]);
    assert_eq!(ledger.losses().stamps_unknown, 0);
    ARENA.reset();
}

fn samples_keep_their_weight() {
    let ledger = Ledger::start(LedgerOptions { sample_every: Some(Bytes(4096)), ..LedgerOptions::EXACT }).unwrap();
    let kept: Vec<Box<[u64; 64]>> = (0..2_000).map(|_| stamp!(Box::new([7; 64]))).collect();
    let sampled: Vec<Block> = ledger.blocks().filter(|block| block.type_name() == Some("[u64; 64]")).collect();
    assert!(sampled.len() > 100 && sampled.len() < 600, "{}", sampled.len());
    let blocks: u64 = sampled.iter().map(|block| block.weight.0).sum();
    assert!((1_600..2_400).contains(&blocks), "{blocks}");
    assert_eq!(ledger.losses().stamps_unknown, 0, "most are not in the sample");
    drop(kept);
    assert!(ledger.totals().bytes_live.0 < 200_000, "{:?}", ledger.totals());
}

fn a_child_keeps_them() {
    start();
    let mut kept = stamp!(vec![1_u8; 3_000], "of the parent");
    // SAFETY: the child allocates, asks and exits; no other thread runs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let own = stamp!(Box::new(token(1)), "of the child");
        let is_kept = stamp_of(kept.as_ptr()).label == Some("of the parent");
        kept.resize(100_000, 2);
        let is_right = is_kept
            && stamp_of(kept.as_ptr()).label == Some("of the parent")
            && stamp_of(&raw const *own).label == Some("of the child");
        // SAFETY: at once, and without what is to be done at exit.
        unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
    }
    let mut status = 1;
    // SAFETY: the child from above, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

fn threads_stamp_at_once() {
    start();
    let work = || {
        let mut kept = Vec::new();
        for round in 0..5_000_u64 {
            let mut token = stamp!(Box::new(token(round)));
            if round % 3 == 0 {
                stamp!(&mut token, "third");
            }
            if round % 10 == 0 {
                kept.push((round % 3 == 0, token));
            }
        }
        kept
    };
    let kept: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((kept.len(), all("stamps::Token").len()), (2_000, 2_000));
    for (is_third, token) in &kept {
        assert_eq!(stamp_of(&raw const **token).label, is_third.then_some("third"));
    }
}

fn tables_show_types_and_places() {
    let ledger = start();
    let (tokens, line) = ([0; 3].map(|_| stamp!(Box::new(token(1)), "of a line")), line!());
    let elsewhere = stamp!(Box::new(token(2)));
    let numbers = stamp!(vec![1_u8; 1_000]);
    let unknown = black_box(Box::new([0_u8; 333]));
    let path = std::env::temp_dir().join(format!("heapledger-stamps-{}", std::process::id()));
    let file = std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let printed = |print: &dyn Fn()| {
        use std::io::{Read, Seek};
        let mut file = &file;
        file.set_len(0).unwrap();
        file.rewind().unwrap();
        let before = ledger.totals();
        print();
        assert_eq!(ledger.totals(), before, "printing allocates nothing");
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        (text, before.blocks_live.0)
    };
    let (table, _) = printed(&|| ledger.print_types(&file).unwrap());
    let row = |name: &str| {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {table}"));
        line[name.len()..].split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // Equal types of different places are one.
    assert_eq!(row("stamps::Token")[0], "4");
    assert_eq!(row("stamps::Token")[2], "160");
    assert_eq!((row("[u8]")[0].as_str(), row("[u8]")[2].as_str()), ("1", "1000"));
    let figure = |text: &str| text.parse::<u64>().unwrap();
    let total = row("total");
    let rows = ["stamps::Token", "[u8]", "[unknown]"].map(row);
    assert_eq!(figure(&total[0]), rows.iter().map(|row| figure(&row[0])).sum::<u64>(), "{table}");
    assert_eq!(figure(&total[2]), rows.iter().map(|row| figure(&row[2])).sum::<u64>(), "{table}");
    let share = |row: &[String]| row[3].trim_end_matches('%').parse::<f64>().unwrap();
    assert!((rows.iter().map(|row| share(row)).sum::<f64>() - 100.0).abs() < 0.3, "{table}");
    assert!(table.find("[u8]").unwrap() < table.find("stamps::Token").unwrap(), "sorted by bytes: {table}");

    let (listing, blocks_live) = printed(&|| ledger.print_blocks(&file).unwrap());
    let row = |address: usize| {
        let start = format!("{address:#014x} ");
        let line = listing.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{listing}"));
        line.split_whitespace().skip(3).collect::<Vec<_>>().join(" ")
    };
    let stamped = row((&raw const *tokens[2]).addr());
    assert!(stamped.starts_with(&format!("stamps::Token at {}:{line}, of a line; thread ", file!())), "{stamped}");
    let unknown = row((&raw const *unknown).addr());
    assert!(unknown.starts_with("[unknown] at [unknown]:0; thread "), "{unknown}");
    let listed = listing.lines().filter(|line| line.starts_with("0x")).count() as u64;
    assert_eq!(listed, blocks_live, "{listing}");
    drop((elsewhere, numbers));
}
