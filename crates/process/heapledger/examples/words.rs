//! An index of the words of its own source, many times over, that says what its blocks are:
//! `words [COPIES]`. Prints what its ledger holds by type; under `heapledger record` the stamps are
//! in the recording instead.

use std::collections::HashMap;

use heapledger::{Allocator, Ledger, LedgerOptions, OwnsBlocks, stamp, stamped};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

/// Where a word is.
struct Place {
    line: u32,
    column: u32,
}

struct Index {
    words: HashMap<String, Vec<Place>>,
    lines: Vec<Box<str>>,
}

/// The table and the list of lines are blocks of the index; what is in them is stamped where it is
/// made.
impl OwnsBlocks for Index {
    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        self.words.blocks(visit);
        self.lines.blocks(visit);
    }
}

#[stamped]
fn index(text: &str, copies: u32) -> Index {
    let mut index = Index { words: HashMap::new(), lines: Vec::new() };
    for (line, text) in (1..).zip((0..copies).flat_map(|_| text.lines())) {
        index.lines.push(stamp!(text.into(), "source"));
        for word in text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()) {
            let column = (word.as_ptr().addr() - text.as_ptr().addr()) as u32;
            let places = match index.words.get_mut(word) {
                Some(places) => places,
                None => {
                    index.words.entry(stamp!(word.to_owned(), "word")).or_insert_with(|| stamp!(Vec::with_capacity(1)))
                }
            };
            places.push(Place { line, column });
        }
    }
    index
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let copies = std::env::args().nth(1).map_or(Ok(100), |copies| copies.parse())?;
    let ledger = Ledger::start(LedgerOptions::EXACT)?;
    let index = index(include_str!("words.rs"), copies);
    let last = index.words.get("fn").and_then(|places| places.last()).map(|place| (place.line, place.column));
    eprintln!("{} words in {} lines, the last fn at {last:?}", index.words.len(), index.lines.len());
    ledger.print_types(std::io::stdout())?;
    Ok(())
}
