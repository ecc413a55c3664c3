//! The types of live blocks, stamped and inferred, in a program that knows them. Without the test
//! harness: its threads allocate, too.

mod runner;

use std::collections::BTreeSet;
use std::hint::black_box;

use heapledger::{Allocator, Bytes, Ledger, LedgerOptions, LiveTypes, TypeCertainty, stamp};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

#[derive(Clone, Debug, Default)]
struct Token {
    words: [u64; 5],
}

#[derive(Debug)]
struct Node {
    key: u32,
    next: Option<Box<Node>>,
}

fn main() {
    let tests: &[(&str, fn())] = &[
        ("types_are_inferred_where_there_is_no_stamp", types_are_inferred_where_there_is_no_stamp),
        ("contexts_do_not_split_types", contexts_do_not_split_types),
        ("samples_keep_their_weight", samples_keep_their_weight),
        ("an_empty_ledger_has_no_types", an_empty_ledger_has_no_types),
    ];
    runner::run(tests, || Ledger::get().stop());
}

/// Returns blocks and bytes of the rows with a name, and how they are known.
#[track_caller]
fn row(types: &LiveTypes, name: &str) -> (u64, u64, BTreeSet<TypeCertainty>) {
    let rows: Vec<_> = types.rows.iter().filter(|row| row.name == name).collect();
    assert!(!rows.is_empty(), "{name}: {types}");
    let sum = |of: fn(&heapledger::LiveType) -> u64| rows.iter().map(|row| of(row)).sum();
    (sum(|row| row.blocks.0), sum(|row| row.bytes.0), rows.iter().map(|row| row.certainty).collect())
}

fn list(length: u32) -> Option<Box<Node>> {
    (0..length).fold(None, |next, key| Some(Box::new(Node { key, next })))
}

fn types_are_inferred_where_there_is_no_stamp() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let tokens: Vec<Vec<Token>> = (1..8).map(|count| vec![Token::default(); count]).collect();
    let nodes = list(20);
    let texts: Vec<String> = (0..30).map(|number| format!("the text number {number}")).collect();
    let stamped = stamp!(Box::new(Token { words: [7; 5] }), "one that is known");
    black_box((&tokens, &nodes, &texts, &stamped));

    let before = ledger.totals();
    let types = ledger.types();
    assert_eq!(ledger.totals(), before, "the answer is in no ledger");

    let size = size_of::<Token>() as u64;
    let (blocks, bytes, certainty) = row(&types, "[Token]");
    assert_eq!((blocks, bytes), (7, size * (1..8).sum::<u64>()), "{types}");
    assert!(certainty.iter().all(|known| *known != TypeCertainty::Stamped), "{types}");
    let node = (20, 20 * size_of::<Node>() as u64, BTreeSet::from([TypeCertainty::Exact]));
    assert_eq!(row(&types, "Node"), node, "{types}");
    let (blocks, bytes, _) = row(&types, "[u8]");
    let texts_bytes: usize = texts.iter().map(String::capacity).sum();
    assert_eq!((blocks, bytes), (30, texts_bytes as u64), "{types}");
    assert_eq!(row(&types, "types::Token"), (1, size, BTreeSet::from([TypeCertainty::Stamped])));

    // All live blocks are somewhere, and the table says so.
    let sum = |of: fn(&heapledger::LiveType) -> u64| types.rows.iter().map(of).sum::<u64>();
    assert_eq!(sum(|row| row.blocks.0), before.blocks_live.0, "{types}");
    assert_eq!(sum(|row| row.bytes.0), before.bytes_live.0, "{types}");
    assert!(types.rows.windows(2).all(|rows| rows[0].bytes >= rows[1].bytes), "{types}");
    let table = types.to_string();
    let total = table.lines().find(|line| line.starts_with("total")).unwrap();
    assert!(total.split_whitespace().any(|word| word == before.bytes_live.0.to_string()), "{table}");
    let line = table.lines().find(|line| line.starts_with("types::Token")).unwrap();
    assert!(line.ends_with("%  stamped"), "{table}");
    drop((tokens, nodes.map(|node| (node.key, node.next)), texts, stamped.words));
}

fn contexts_do_not_split_types() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let mut kept = Vec::with_capacity(10);
    for number in 0..10 {
        let _scope = (number % 2 == 0).then(|| heapledger::context!("even"));
        kept.push(black_box(Box::new(Node { key: number, next: None })));
    }
    let types = ledger.types();
    let (blocks, bytes, certainties) = row(&types, "Node");
    assert_eq!((blocks, bytes, certainties.len()), (10, 10 * size_of::<Node>() as u64, 1), "{types}");
}

fn samples_keep_their_weight() {
    let ledger = Ledger::start(LedgerOptions { sample_every: Some(Bytes(4096)), ..LedgerOptions::EXACT }).unwrap();
    let nodes: Vec<Box<Node>> = (0..10_000).map(|key| black_box(Box::new(Node { key, next: None }))).collect();
    let types = ledger.types();
    let (blocks, bytes, _) = row(&types, "Node");
    let expected: u64 = ledger.blocks().filter(|block| block.size.0 == 16).map(|block| block.weight.0).sum();
    assert_eq!((blocks, bytes), (expected, 16 * expected), "{types}");
    assert_eq!(nodes.len(), 10_000);
}

fn an_empty_ledger_has_no_types() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    assert!(ledger.types().rows.iter().all(|row| row.bytes.0 < 4096));
}
