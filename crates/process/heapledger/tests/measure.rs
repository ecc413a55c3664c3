//! What is measured against what the ledger knows to be live. Without the test harness: its threads allocate, too.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::ffi::{CString, OsString};
use std::hint::black_box;
use std::io::{BufReader, BufWriter, Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::{self, Rc};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use heapledger::{
    Allocator, Bytes, Counter, HeapContainer, HeapSize, Ledger, Mark, Marked, Meter, Options, Reported, SharedHeapSize,
    Sizes,
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

fn main() {
    let tests: &[(&str, fn())] = &[
        ("boxes_and_texts", boxes_and_texts),
        ("sequences", sequences),
        ("deques_wherever_they_begin", deques_wherever_they_begin),
        ("hash_tables", hash_tables),
        ("trees_and_lists", trees_and_lists),
        ("cells_and_locks", cells_and_locks),
        ("buffers", buffers),
        ("nothing_owns_nothing", nothing_owns_nothing),
        ("shared_by_many", shared_by_many),
        ("weak_owners", weak_owners),
        ("containers_of_anything", containers_of_anything),
        ("graphs", graphs),
        ("marks_say_who_reported", marks_say_who_reported),
        ("marks_go_with_their_blocks", marks_go_with_their_blocks),
        ("counters", counters),
        ("derived", derived),
    ];
    let wanted = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    for (name, test) in tests {
        if wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str())) {
            test();
            Ledger::get().stop();
            println!("test {name} ... ok");
        }
    }
}

/// How what is measured without a ledger relates to the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    /// The allocator can be asked about everything.
    Asked,
    /// Some is computed: what was requested, so slop is missing.
    Computed,
    /// Some cannot be seen: a lower bound.
    Partly,
}
use Without::{Asked, Computed, Partly};

fn live() -> (u64, u64, u64) {
    let Reported { unreported, once, twice, .. } = Ledger::get().reported();
    let held = [unreported, once, twice];
    (
        held.iter().map(|held| held.blocks.0).sum(),
        held.iter().map(|held| held.bytes.0).sum(),
        held.iter().map(|held| held.bytes_usable.0).sum(),
    )
}

/// A value that was made while the ledger looked: what it is measured to own is what became live with it, block by block.
#[track_caller]
fn expect<T>(what: &str, without: Without, make: impl FnOnce() -> T, measure: impl Fn(&T, &mut Meter) -> Bytes) -> u64 {
    let ledger = Ledger::start(Options::EXACT).unwrap();
    let before = live();
    let value = black_box(make());
    let after = live();
    let (blocks, requested, usable) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);

    let mut meter = Meter::new();
    assert_eq!(measure(&value, &mut meter), Bytes(usable), "{what}: {blocks} blocks, {requested} requested");
    assert_eq!(meter.computed_bytes(), Bytes(0), "{what}: computed");
    drop(meter);
    assert_eq!(live(), after, "{what}: measuring has left something");
    assert_eq!(ledger.reported().once.blocks.0, 0, "{what}: marked");

    let mut meter = Meter::marking("explicit/test");
    assert_eq!(measure(&value, &mut meter), Bytes(usable), "{what}: marking");
    let counts = meter.mark_counts();
    drop(meter);
    let reported = ledger.reported();
    assert_eq!((counts.once, counts.again, counts.no_block, counts.inside), (blocks, 0, 0, 0), "{what}");
    assert_eq!((reported.once.blocks.0, reported.once.bytes_usable.0), (blocks, usable), "{what}");
    assert_eq!(reported.twice.blocks.0, 0, "{what}");

    ledger.stop();
    let mut meter = Meter::new();
    let measured = measure(&value, &mut meter).0;
    match without {
        Asked => assert_eq!((measured, meter.computed_bytes().0), (usable, 0), "{what}: without a ledger"),
        Computed => {
            assert!(meter.computed_bytes().0 > 0, "{what}: computed without a ledger");
            assert!(measured >= requested && measured <= usable, "{what}: {requested} <= {measured} <= {usable}");
        }
        Partly => assert!(measured <= usable, "{what}: {measured} <= {usable}"),
    }
    drop(value);
    usable
}

#[track_caller]
fn owns<T: HeapSize>(what: &str, without: Without, make: impl FnOnce() -> T) -> u64 {
    expect(what, without, make, |value, meter| value.heap_size(meter))
}

trait Shape: HeapSize {}

#[repr(align(128))]
struct Aligned {
    _bytes: [u8; 200],
}

impl HeapSize for Aligned {
    fn heap_size(&self, _: &mut Meter) -> Bytes {
        Bytes(0)
    }
}

struct Named(String);

impl HeapSize for Named {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.0.heap_size(meter)
    }
}

impl Shape for Named {}

fn words(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("word {number}, longer or shorter: {}", "x".repeat(number % 37)))
}

fn boxes_and_texts() {
    assert!(owns("a box", Asked, || Box::new(7_u64)) >= 8);
    assert_eq!(owns("a box of nothing", Asked, || Box::new(())), 0);
    owns("boxes in boxes", Asked, || Box::new(Box::new(Box::new([1_u8; 100]))));
    owns("a box of a trait object", Asked, || Box::new(Named("a name".repeat(9))) as Box<dyn Shape>);
    owns("a boxed slice", Asked, || words(10).collect::<Box<[String]>>());
    owns("a boxed text", Asked, || "some text".repeat(10).into_boxed_str());
    owns("a boxed path", Asked, || PathBuf::from("a/path").into_boxed_path());
    owns("an aligned box", Asked, || Box::new(Aligned { _bytes: [1; 200] }));
    owns("a pinned box", Asked, || Box::pin(String::from("pinned")));
    owns("a large box", Asked, || vec![1_u8; 1 << 20].into_boxed_slice());
    assert_eq!(owns("no text", Asked, String::new), 0);
    owns("a text", Asked, || "text".to_owned());
    owns("a text with room", Asked, || String::with_capacity(1000));
    owns("a path", Asked, || PathBuf::from("/some/path/to/a/file"));
    owns("a text of the system", Asked, || OsString::from("of the system"));
    owns("a text of C", Asked, || CString::new("of C").unwrap());
    owns("an empty text of C", Asked, CString::default);
    assert_eq!(owns("borrowed", Asked, || Cow::Borrowed("borrowed")), 0);
    owns("owned", Asked, || Cow::<str>::Owned("owned".to_owned()));
    owns("a path that is owned", Asked, || Cow::<Path>::Owned("owned".into()));
    owns("options and results", Asked, || {
        let result: Result<Box<u32>, String> = Err("an error".to_owned());
        (Some(Box::new(1)), None::<Box<u32>>, result)
    });
    owns("ranges", Asked, || ("a".repeat(30).."b".repeat(40), "c".repeat(50)..="d".repeat(60)));
    owns("an array", Asked, || {
        [const { None }; 5].map(|none: Option<()>| none.map_or("x".repeat(50), |()| String::new()))
    });
}

fn sequences() {
    assert_eq!(owns("an empty vector", Asked, Vec::<u64>::new), 0);
    owns("a vector", Asked, || vec![1_u16; 3]);
    owns("a vector with room", Asked, || Vec::<u64>::with_capacity(100));
    assert_eq!(owns("a vector of nothing", Asked, || vec![(); 1000]), 0);
    owns("a vector of texts", Asked, || words(1000).collect::<Vec<_>>());
    owns("vectors of vectors", Asked, || (0..50).map(|length| vec![length as u8; length]).collect::<Vec<_>>());
    owns("an aligned vector", Asked, || vec![const { Aligned { _bytes: [0; 200] } }]);
    owns("a large vector", Asked, || vec![1_u8; 3 << 20]);
    owns("a heap", Asked, || words(100).collect::<BinaryHeap<_>>());
    assert_eq!(owns("an empty heap", Asked, BinaryHeap::<u64>::new), 0);
}

fn deques_wherever_they_begin() {
    assert_eq!(owns("an empty deque", Asked, VecDeque::<u64>::new), 0);
    assert_eq!(owns("a deque of nothing", Asked, || VecDeque::from(vec![(); 9])), 0);
    for (taken, added) in (0..20).flat_map(|taken| (0..20).map(move |added| (taken, added))) {
        for length in [0, 1, 9, 16] {
            owns("a deque", Asked, || {
                let mut deque: VecDeque<u64> = VecDeque::with_capacity(16);
                deque.extend(0..length);
                deque.drain(..taken.min(deque.len()));
                deque.extend(0..added);
                deque
            });
        }
    }
    owns("an emptied deque", Asked, || {
        let mut deque: VecDeque<u8> = (0..100).collect();
        deque.drain(..90);
        deque.drain(..);
        deque
    });
    owns("a deque of texts", Asked, || {
        let mut deque: VecDeque<String> = words(30).collect();
        deque.rotate_left(11);
        deque.pop_front();
        deque.push_back("at the back".repeat(10));
        deque
    });
}

fn hash_tables() {
    assert_eq!(owns("an empty map", Asked, HashMap::<u32, u64>::new), 0);
    for count in [1, 3, 4, 7, 8, 14, 15, 28, 29, 100, 1000, 10_000] {
        owns("a map", Computed, || (0..count).map(|number| (number as u32, number as u64)).collect::<HashMap<_, _>>());
        owns("a set", Computed, || (0..count as u16).collect::<HashSet<_>>());
    }
    owns("a map of texts", Computed, || words(500).zip(words(500)).collect::<HashMap<_, _>>());
    owns("a map with room", Computed, || HashMap::<u64, [u8; 100]>::with_capacity(50));
    owns("a set of values in a map", Computed, || words(9).map(|word| (word, ())).collect::<HashMap<_, _>>());
    owns("a map to values that take room", Computed, || HashMap::from([((), 7_u64)]));
    owns("a set of nothing", Computed, || HashSet::from([()]));
    owns("an emptied map", Partly, || {
        let mut map: HashMap<_, _> = (0..1000).map(|number| (number, "x".repeat(50))).collect();
        map.retain(|_, _| false);
        map
    });
    owns("a map after removals", Partly, || {
        let mut map: HashMap<_, _> = (0..1000).map(|number| (number, "x".repeat(50))).collect();
        map.retain(|&key, _| key % 17 == 0);
        map
    });
    owns("a map with a hasher that owns something", Computed, || {
        #[derive(Clone)]
        struct Seeds(Vec<u64>);
        impl std::hash::BuildHasher for Seeds {
            type Hasher = std::hash::DefaultHasher;
            fn build_hasher(&self) -> Self::Hasher {
                std::hash::DefaultHasher::new()
            }
        }
        impl HeapSize for Seeds {
            fn heap_size(&self, meter: &mut Meter) -> Bytes {
                self.0.heap_size(meter)
            }
        }
        let mut map = HashMap::with_hasher(Seeds(vec![7; 100]));
        map.insert(1, 2);
        map
    });
}

fn trees_and_lists() {
    assert_eq!(owns("an empty tree", Asked, BTreeMap::<u32, u32>::new), 0);
    for count in [1, 2, 11, 12, 13, 50, 100, 144, 1000, 20_000] {
        owns("a tree", Computed, || (0..count).map(|number| (number, number as u8)).collect::<BTreeMap<_, _>>());
        // Scattered, so that nodes are not as full.
        owns("a tree of scattered keys", Computed, || {
            let mut tree = BTreeMap::new();
            for number in 0..count as u64 {
                tree.insert(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), [number; 3]);
            }
            tree
        });
        owns("a tree after removals", Computed, || {
            let mut tree: BTreeMap<u64, u64> = (0..2 * count as u64).map(|number| (number, number)).collect();
            tree.retain(|key, _| key % 3 != 0 || *key == 0);
            tree
        });
        owns("a set", Computed, || (0..count as u16).collect::<BTreeSet<_>>());
    }
    owns("a tree of texts", Computed, || words(500).zip(words(500)).collect::<BTreeMap<_, _>>());
    owns("a tree of large things", Computed, || {
        (0..100).map(|number| (number, [number; 500])).collect::<BTreeMap<_, _>>()
    });
    owns("a tree to nothing", Computed, || words(40).map(|word| (word, ())).collect::<BTreeMap<_, _>>());
    owns("a tree from nothing", Computed, || BTreeMap::from([((), 7)]));
    owns("an emptied tree", Partly, || {
        let mut tree = BTreeMap::from([(1, 2)]);
        tree.remove(&1);
        tree
    });
    assert_eq!(owns("an empty list", Asked, LinkedList::<u8>::new), 0);
    owns("a list", Computed, || (0..100_u8).collect::<LinkedList<_>>());
    owns("a list of texts", Computed, || words(100).collect::<LinkedList<_>>());
    owns("a list of nothing", Computed, || LinkedList::from([(), ()]));
}

fn cells_and_locks() {
    owns("cells", Asked, || {
        (Cell::new(7), RefCell::new(vec![1, 2]), OnceCell::from(Box::new(1)), OnceCell::<Box<u8>>::new())
    });
    owns("locks", Asked, || (Mutex::new("locked".to_owned()), RwLock::new(vec![1, 2]), OnceLock::from(Box::new(3))));
    let poisoned = Arc::new(Mutex::new(vec![1, 2, 3]));
    let inside = poisoned.clone();
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::spawn(move || {
        let _guard = inside.lock();
        panic!("on purpose");
    })
    .join()
    .unwrap_err();
    let _ = std::panic::take_hook();
    assert!(poisoned.heap_size_as_owner(&mut Meter::new()).0 >= 12);
}

fn buffers() {
    owns("a reader", Computed, || BufReader::new(Cursor::new(vec![1_u8; 100])));
    owns("a reader at work", Computed, || {
        let mut reader = BufReader::with_capacity(64, Cursor::new(vec![1_u8; 100]));
        reader.read_exact(&mut [0; 10]).unwrap();
        reader
    });
    owns("a reader that is through", Computed, || {
        let mut reader = BufReader::with_capacity(64, Cursor::new(vec![1_u8; 64]));
        reader.read_exact(&mut [0; 64]).unwrap();
        reader
    });
    owns("a writer", Asked, || BufWriter::new(vec![1_u8; 100]));
}

fn nothing_owns_nothing() {
    let text = "somebody else's".to_owned();
    let plain = (1_u8, 'x', 2.0_f64, &text, &raw const text, std::time::Duration::from_secs(1));
    assert_eq!(plain.heap_size(&mut Meter::new()), Bytes(0));
    fn function(_: u8) {}
    assert_eq!((function as fn(u8)).heap_size(&mut Meter::new()), Bytes(0));
}

fn shared_by_many() {
    fn first<S: SharedHeapSize<Shared: HeapSize>>(shared: &S, meter: &mut Meter) -> Bytes {
        shared.heap_size_if_first(meter)
    }
    expect("an Arc", Asked, || Arc::new(7_u64), first);
    expect("an Rc", Asked, || Rc::new(words(10).collect::<Vec<_>>()), first);
    expect("an Arc of a text", Asked, || Arc::<str>::from("a text"), first);
    expect("an Rc of a slice", Asked, || Rc::<[String]>::from(words(7).collect::<Vec<_>>()), first);
    expect("an Arc of nothing", Asked, || Arc::new(()), first);
    expect("an Arc of a trait object", Asked, || Arc::new(Named("named".repeat(20))) as Arc<dyn Shape>, first);
    expect("an aligned Arc", Asked, || Arc::new(Aligned { _bytes: [0; 200] }), first);
    expect(
        "an aligned Rc, as a trait object",
        Asked,
        || Rc::new(Aligned { _bytes: [0; 200] }) as Rc<dyn HeapSize>,
        first,
    );
    expect("none", Asked, || None::<Arc<String>>, first);
    expect(
        "many owners",
        Asked,
        || std::iter::repeat_n(Arc::new("shared".repeat(10)), 20).collect::<Vec<_>>(),
        |owners, meter| owners.heap_size_with(meter, |owner, meter| owner.heap_size_if_first(meter)),
    );
    expect(
        "an owner, and others",
        Asked,
        || (Arc::new("shared".repeat(10)), ()),
        |(owner, ()), meter| {
            let others = [owner.clone(), owner.clone()];
            others.iter().for_each(|_| ());
            owner.heap_size_as_owner(meter)
        },
    );
    expect("without what is in it", Asked, || Arc::new(7), |shared, meter| shared.shallow_size_if_first(meter));
    let shared = Rc::new("shared".to_owned());
    let mut meter = Meter::new();
    let whole = shared.heap_size_as_owner(&mut meter);
    assert_eq!(shared.heap_size_as_owner(&mut meter), whole, "an owner counts as often as it is asked");
    assert!(shared.shallow_size_as_owner(&mut meter) < whole);
    assert_eq!(shared.heap_size_if_first(&mut meter), whole);
    assert_eq!(shared.clone().heap_size_if_first(&mut meter), Bytes(0));
    assert_eq!(shared.shallow_size_if_first(&mut meter), Bytes(0));
    assert_eq!(shared.heap_size_if_first(&mut Meter::new()), whole);
}

fn weak_owners() {
    fn first<S: SharedHeapSize<Shared: HeapSize>>(shared: &S, meter: &mut Meter) -> Bytes {
        shared.heap_size_if_first(meter)
    }
    expect("the last is weak", Asked, || Arc::downgrade(&Arc::new("gone".repeat(10))), first);
    expect("the last of an Rc", Asked, || Rc::downgrade(&Rc::new(Aligned { _bytes: [0; 200] })), first);
    expect(
        "made from nothing",
        Asked,
        || (Weak::<String>::new(), rc::Weak::<u8>::new()),
        |(one, other), meter| one.heap_size_if_first(meter) + other.heap_size_as_owner(meter),
    );
    expect(
        "the strong one answers",
        Asked,
        || {
            let strong = Arc::new(vec![1, 2, 3]);
            (Arc::downgrade(&strong), strong)
        },
        |(weak, strong), meter| weak.heap_size_if_first(meter) + strong.heap_size_if_first(meter),
    );
    expect(
        "two weak ones",
        Asked,
        || {
            let weak = Rc::downgrade(&Rc::new([7_u64; 9]));
            (weak.clone(), weak)
        },
        |(one, other), meter| one.heap_size_if_first(meter) + other.heap_size_if_first(meter),
    );
}

fn containers_of_anything() {
    struct Foreign {
        name: String,
    }
    let foreign = |count| words(count).map(|name| Foreign { name });
    expect(
        "a vector",
        Asked,
        || foreign(40).collect::<Vec<_>>(),
        |all, meter| all.heap_size_with(meter, |foreign, meter| foreign.name.heap_size(meter)),
    );
    expect(
        "a map",
        Computed,
        || foreign(40).enumerate().collect::<HashMap<_, _>>(),
        |all, meter| all.heap_size_with(meter, |(_, foreign), meter| foreign.name.heap_size(meter)),
    );
    expect(
        "a tree",
        Computed,
        || foreign(40).enumerate().collect::<BTreeMap<_, _>>(),
        |all, meter| all.heap_size_with(meter, |(_, foreign), meter| foreign.name.heap_size(meter)),
    );
    // What is borrowed may be in them.
    let text = "borrowed".to_owned();
    let all: LinkedList<&str> = [text.as_str()].into();
    let own = all.shallow_size(&mut Meter::new());
    assert_eq!(all.heap_size_with(&mut Meter::new(), |_, _| Bytes(1)), own + Bytes(1));
    expect("a vector alone", Asked, || vec![1_u64; 9], |vector, meter| vector.shallow_size(meter));
    expect("a set alone", Computed, || HashSet::from([1]), |set, meter| set.shallow_size(meter));
    expect("a tree alone", Computed, || BTreeSet::from([1, 2]), |set, meter| set.shallow_size(meter));
}

/// Nodes that point to each other.
struct Node {
    name: String,
    next: Cell<*const Node>,
}

fn graphs() {
    expect(
        "a ring",
        Asked,
        || {
            let nodes: Vec<*mut Node> = words(20)
                .map(|name| Box::into_raw(Box::new(Node { name, next: Cell::new(std::ptr::null()) })))
                .collect();
            for (at, &node) in nodes.iter().enumerate() {
                // SAFETY: the nodes were made just now.
                unsafe { (*node).next.set(nodes[(at + 1) % nodes.len()]) };
            }
            nodes[0]
        },
        |&first, meter| {
            let (mut bytes, mut at) = (Bytes(0), first.cast_const());
            while meter.is_first_visit(at) {
                // SAFETY: the nodes of the ring are leaked.
                let node = unsafe { &*at };
                // SAFETY: a box is where its block begins.
                bytes += unsafe { meter.block(at, size_of::<Node>()) } + node.name.heap_size(meter);
                at = node.next.get();
            }
            // Unmarked, it can be measured again.
            while meter.forget(at) {
                // SAFETY: as above.
                at = unsafe { (*at).next.get() };
            }
            bytes
        },
    );
}

fn marks_say_who_reported() {
    let ledger = Ledger::start(Options::EXACT).unwrap();
    let text = "a text of a page".to_owned();
    assert_eq!(ledger.mark(text.as_ptr(), "explicit/one"), Marked::Once);
    assert_eq!(ledger.mark(text.as_ptr(), "explicit/two"), Marked::Again);
    assert_eq!(ledger.mark(text.as_ptr(), "explicit/three"), Marked::Again);
    assert_eq!(ledger.mark(text.as_ptr().wrapping_add(3), "explicit/one"), Marked::Inside);
    assert_eq!(ledger.mark(&raw const text, "explicit/one"), Marked::NoBlock);
    let block = ledger.block_at(text.as_ptr()).unwrap();
    let names = block.marks.map(|mark| mark.map(|mark: Mark| mark.reporter));
    assert_eq!(names, [Some("explicit/one"), Some("explicit/two")], "the first two are kept");
    for mark in block.marks.into_iter().flatten() {
        let stack = mark.stack.to_string();
        assert!(!cfg!(feature = "symbols") || stack.contains("marks_say_who_reported"), "{stack}");
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

#[derive(HeapSize)]
struct Page<K, V: Iterator, const N: usize>
where
    V::Item: std::fmt::Debug,
{
    names: HashMap<K, String>,
    last: Vec<V::Item>,
    parts: [Option<Box<str>>; N],
    #[heap(shared)]
    shared: Arc<String>,
    #[heap(shared)]
    perhaps: Option<Rc<[u8]>>,
    #[heap(owner)]
    owned: Arc<Vec<u8>>,
    #[heap(with = size_of_foreign)]
    foreign: Vec<Foreign>,
    #[heap(skip = "nothing of it is on the heap")]
    values: V,
    number: u64,
}

struct Foreign(String);

fn size_of_foreign(all: &Vec<Foreign>, meter: &mut Meter) -> Bytes {
    all.heap_size_with(meter, |foreign, meter| foreign.0.heap_size(meter))
}

#[derive(HeapSize)]
enum Tree {
    Leaf,
    Text(String),
    Branch { left: Box<Tree>, right: Box<Tree>, meter: Vec<u8> },
}

#[derive(HeapSize)]
struct Tail<T: ?Sized> {
    head: String,
    tail: T,
}

#[derive(HeapSize)]
enum Never {}

#[derive(HeapSize)]
struct Nothing;

#[derive(Default, Sizes)]
struct PageSizes {
    names: Bytes,
    rest: RestSizes,
}

#[derive(Default, Sizes)]
struct RestSizes(Bytes, Bytes);

fn derived() {
    let page = || Page {
        names: words(30).enumerate().collect(),
        last: vec!["x".repeat(40); 3],
        parts: [None, Some("part".into()), None, Some("another".into())],
        shared: Arc::new("shared".repeat(5)),
        perhaps: Some(vec![1, 2, 3].into()),
        owned: Arc::new(vec![1; 77]),
        foreign: words(4).map(Foreign).collect(),
        values: None::<String>.into_iter(),
        number: 7,
    };
    owns("a struct", Computed, page);
    let page = page();
    assert_eq!((page.number, page.values.len()), (7, 0));
    let branch = |left, right| Tree::Branch { left: Box::new(left), right: Box::new(right), meter: vec![1; 50] };
    owns("an enum", Asked, || branch(branch(Tree::Leaf, Tree::Text("text".repeat(30))), Tree::Leaf));
    owns("an unsized tail", Asked, || {
        Box::new(Tail { head: "head".repeat(9), tail: ["a".repeat(20), "b".repeat(30)] }) as Box<Tail<[String]>>
    });
    owns("nothing", Asked, || (Vec::<Never>::new(), Nothing));
    assert!(<(Nothing, [u8; 3]) as HeapSize>::owns_nothing() && !Tree::owns_nothing());

    let mut meter = Meter::new();
    let mut sizes = PageSizes::default();
    for _ in 0..2 {
        sizes.names += page.names.heap_size(&mut meter);
        sizes.rest += RestSizes(page.last.heap_size(&mut meter), Bytes(1));
    }
    assert_eq!(sizes.total(), sizes.names + sizes.rest.0 + Bytes(2));
    assert!(sizes.rest.0.0 >= 2 * 3 * (24 + 40));
}
