//! Measures the cost of entering and leaving scopes, for `benches/scopes`: `cost KIND COUNT`.

extern crate heapledger_annotate as heapledger;

use std::hint::black_box;

use heapledger::{Context, category, context};

category!(OFF = "off", disabled);

/// To be looked at with a disassembler.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn in_a_scope(work: extern "C" fn()) {
    let _scope = context!("scope");
    work();
}

#[inline(never)]
extern "C" fn in_no_scope(work: extern "C" fn()) {
    work();
    black_box(());
}

#[inline(never)]
extern "C" fn in_a_category_that_is_off(work: extern "C" fn()) {
    let _scope = context!(category: OFF, "scope");
    work();
}

#[inline(never)]
extern "C" fn with_a_value(work: extern "C" fn()) {
    let _scope = context!("scope", route = black_box("/users"));
    work();
}

extern "C" fn work() {
    black_box(());
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, kind, count] = arguments.as_slice() else { panic!("usage: cost KIND COUNT") };
    let count = count.parse().unwrap();
    let run: extern "C" fn(extern "C" fn()) = match kind.as_str() {
        "nothing" => in_no_scope,
        "scope" => in_a_scope,
        "off" => in_a_category_that_is_off,
        "value" => with_a_value,
        "context" => {
            // The work of a future at each poll, with a context of three scopes.
            let _scopes = (context!("one"), context!("two"), context!("three"));
            let context = Context::current();
            for _ in 0..count {
                let _entered = context.enter();
                black_box(work as extern "C" fn())();
            }
            return;
        }
        _ => panic!("no such kind"),
    };
    for _ in 0..count {
        run(black_box(work));
    }
}
