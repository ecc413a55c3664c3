//! Tests of shared values and graphs.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::{self, Rc};
use std::sync::{Arc, Mutex, RwLock, Weak};

use heapledger::{Bytes, HeapContainer, HeapSize, Meter, SharedHeapSize};

use crate::truth::Without::{Asked, Computed};
use crate::truth::{expect, words};

pub(crate) const TESTS: &[(&str, fn())] =
    &[("shared_by_many", shared_by_many), ("weak_owners", weak_owners), ("graphs", graphs)];

pub(crate) trait Shape: HeapSize {}

#[repr(align(128))]
pub(crate) struct Aligned {
    pub(crate) _bytes: [u8; 200],
}

impl HeapSize for Aligned {
    fn heap_size(&self, _: &mut Meter) -> Bytes {
        Bytes(0)
    }
}

pub(crate) struct Named(pub(crate) String);

impl HeapSize for Named {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.0.heap_size(meter)
    }
}

impl Shape for Named {}

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
    expect(
        "shared things in collections",
        Computed,
        || {
            let one = Arc::new("one".repeat(9));
            let map = HashMap::from([("a".to_owned(), one.clone()), ("b".to_owned(), Arc::new("other".repeat(9)))]);
            let list = Some(vec![one.clone(), one.clone(), Arc::new("third".to_owned())]);
            (Mutex::new(map), RwLock::new(BTreeMap::from([(1, [one])])), list)
        },
        |(map, tree, list), meter| first(list, meter) + first(map, meter) + first(tree, meter),
    );
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
                // SAFETY: each node is a live box that `Box::into_raw` has just given away, and no
                // reference to it exists. The links are cells, so they may be set through a shared
                // reference.
                unsafe { (*node).next.set(nodes[(at + 1) % nodes.len()]) };
            }
            nodes[0]
        },
        |&first, meter| {
            let (mut bytes, mut at) = (Bytes(0), first.cast_const());
            while meter.is_first_visit(at) {
                // SAFETY: `at` is a node of the ring: `first`, or the `next` of a node. The nodes
                // are leaked, so they are valid for good, and nobody changes them any more.
                let node = unsafe { &*at };
                // SAFETY: `Meter::block` requires where a live block of the global allocator
                // begins. By the documentation of `Box` a node, which has a size, lies there, and
                // it is leaked.
                bytes += unsafe { meter.block(at, size_of::<Node>()) } + node.name.heap_size(meter);
                at = node.next.get();
            }
            // Unmarked, it can be measured again.
            while meter.forget(at) {
                // SAFETY: `at` is a node of the ring, which is leaked: it is valid for good, and
                // nobody changes it any more.
                at = unsafe { (*at).next.get() };
            }
            bytes
        },
    );
}
