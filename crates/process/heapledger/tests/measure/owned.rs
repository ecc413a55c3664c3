//! Tests of the memory that the standard library's types own.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::ffi::{CString, OsString};
use std::io::{BufReader, BufWriter, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use heapledger::{Bytes, HeapContainer, HeapSize, Meter, SharedHeapSize};

use crate::shared::{Aligned, Named, Shape};
use crate::truth::Without::{Asked, Computed, Partly};
use crate::truth::{expect, owns, words};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("boxes_and_texts", boxes_and_texts),
    ("sequences", sequences),
    ("deques_wherever_they_begin", deques_wherever_they_begin),
    ("hash_tables", hash_tables),
    ("trees_and_lists", trees_and_lists),
    ("cells_and_locks", cells_and_locks),
    ("buffers", buffers),
    ("nothing_owns_nothing", nothing_owns_nothing),
    ("containers_of_anything", containers_of_anything),
];

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
    for (taken, added) in (0..20).step_by(3).flat_map(|taken| (0..20).step_by(4).map(move |added| (taken, added))) {
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
    // The elements may be borrowed.
    let text = "borrowed".to_owned();
    let all: LinkedList<&str> = [text.as_str()].into();
    let own = all.shallow_size(&mut Meter::new());
    assert_eq!(all.heap_size_with(&mut Meter::new(), |_, _| Bytes(1)), own + Bytes(1));
    expect("a vector alone", Asked, || vec![1_u64; 9], |vector, meter| vector.shallow_size(meter));
    expect("a set alone", Computed, || HashSet::from([1]), |set, meter| set.shallow_size(meter));
    expect("a tree alone", Computed, || BTreeSet::from([1, 2]), |set, meter| set.shallow_size(meter));
}
