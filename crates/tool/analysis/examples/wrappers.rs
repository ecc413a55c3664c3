//! Prints the functions that are found to allocate for their callers:
//! `cargo run -p heapledger-analysis --example wrappers FILE …`.

use heapledger_analysis::Names;
use heapledger_recording::Recording;
use heapledger_symbols::{Symbolizer, SymbolizerOptions};

fn main() {
    for path in std::env::args().skip(1) {
        let file = std::fs::read(&path).unwrap();
        let recording = Recording::open(&file).unwrap();
        let mut names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));
        println!("{path}");
        for wrapper in names.wrappers() {
            let name = names.function(wrapper.function).short.clone();
            let (code, blocks, stacks) = (wrapper.code_bytes, wrapper.blocks, wrapper.stacks);
            println!("  {name}: {code} bytes of code, {blocks} blocks, {stacks} stacks");
        }
    }
}
