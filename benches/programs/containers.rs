//! Work with Rust's containers: `containers tree|text|pipe|boxes ROUNDS`. `benches/allocator`
//! builds it with the system's allocator and, with `--cfg linked`, with Heapledger's.
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

#[cfg(linked)]
#[global_allocator]
static ALLOCATOR: heapledger_heap::HeapAllocator = heapledger_heap::HeapAllocator;

fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// Keeps a tree of strings and vectors, whose entries are replaced at random.
fn tree() -> usize {
    let (mut tree, mut state) = (BTreeMap::new(), 1);
    for _ in 0..150_000 {
        let key = next(&mut state) % 40_000;
        let value: Vec<String> = (0..key % 4).map(|part| format!("{key} and {part}")).collect();
        tree.insert(key, value);
        tree.remove(&(next(&mut state) % 40_000));
    }
    tree.values().map(Vec::len).sum()
}

/// A value of a document.
enum Value {
    Text(String),
    List(Vec<Value>),
    Fields(HashMap<String, Value>),
}

/// Builds a document, writes it, and counts the words of the text.
fn text() -> usize {
    fn build(depth: usize, state: &mut u64) -> Value {
        match next(state) % 3 {
            _ if depth == 0 => Value::Text(format!("text {}", next(state) % 1000)),
            0 => Value::List((0..8).map(|_| build(depth - 1, state)).collect()),
            1 => Value::Fields((0..6).map(|at| (format!("field {at}"), build(depth - 1, state))).collect()),
            _ => Value::Text("x".repeat(next(state) % 100)),
        }
    }
    fn write(value: &Value, to: &mut String) {
        match value {
            Value::Text(text) => to.push_str(text),
            Value::List(values) => values.iter().for_each(|value| write(value, to)),
            Value::Fields(fields) => fields.iter().for_each(|(name, value)| {
                to.push_str(&name.to_uppercase());
                write(value, to);
            }),
        }
        to.push(' ');
    }
    let mut state = 3;
    let mut words = HashMap::<String, usize>::new();
    for _ in 0..120 {
        let mut text = String::new();
        write(&build(6, &mut state), &mut text);
        text.split(' ').for_each(|word| *words.entry(word.to_owned()).or_default() += 1);
    }
    words.len()
}

/// Sends vectors of strings to a thread, which drops them.
fn pipe() -> usize {
    let (sender, receiver) = mpsc::sync_channel::<Vec<String>>(64);
    let other = thread::spawn(move || receiver.into_iter().map(|parcel| parcel.len()).sum::<usize>());
    for number in 0..8_000 {
        let parcel = (0..20).map(|at| "y".repeat(20 + (number * at) % 90)).collect();
        sender.send(parcel).expect("the other thread receives until this one ends");
    }
    drop(sender);
    other.join().expect("the other thread does not panic")
}

/// Boxes and drops small values: nearly nothing but the allocator.
fn boxes() -> usize {
    (0..3_000_000_usize).map(|number| *black_box(Box::new([number, 1, 2, 3]))).map(|four| four[0] & 1).sum()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let rounds = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1);
    let work: fn() -> usize = match name.as_str() {
        "tree" => tree,
        "text" => text,
        "pipe" => pipe,
        _ => boxes,
    };
    println!("{}", (0..rounds).map(|_| work()).sum::<usize>());
}
