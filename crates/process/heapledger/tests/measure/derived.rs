//! Tests of the derived implementations.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use heapledger::{Bytes, HeapContainer, HeapSize, Meter, Sizes};

use crate::truth::Without::{Asked, Computed};
use crate::truth::{owns, words};

pub(crate) const TESTS: &[(&str, fn())] = &[("derived", derived)];

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
