//! Allocators in stripped Rust programs: what is found by the calls is what the symbol table says.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use heapledger_entries::{Allocator, Evidence, Family, Module, find};
use tempfile::TempDir;

use self::support::{look, prefixed, prefixed_jemalloc, run};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/programs/own_allocator_rust.rs");

/// The functions of jemalloc that the program calls.
const CALLED: [&str; 5] = ["malloc", "calloc", "mallocx", "rallocx", "sdallocx"];

/// Builds the program with a jemalloc whose functions have the prefix `own_`.
fn built(at: &Path, options: &[&str]) -> Option<()> {
    std::fs::rename(prefixed(at, "libjemalloc_pic.a", "own_")?, at.join("libown.a")).unwrap();
    let rustc = ["rustc", "--edition", "2024", "-O", "-l", "static:-bundle=own", "-l", "dl", "-l", "m", "-L", "."];
    run(at, &[&rustc[..], options, &[PROGRAM, "-o", "program"]].concat())?;
    run(at, &["strip", "-o", "stripped", "program"]).map(drop)
}

/// Returns the kinds of an allocator's functions that the program calls, by address.
fn kinds(allocator: &Allocator) -> BTreeMap<u64, String> {
    let is_called = |name: &str| CALLED.contains(&name.trim_start_matches("own_"));
    let entries = allocator.entries.iter().filter(|entry| is_called(&entry.name));
    entries.map(|entry| (entry.at, format!("{:?}", entry.kind))).collect()
}

/// With link-time optimisation, `.ci/programs` has such programs.
#[test]
fn jemalloc_is_found_by_the_calls_of_rust_code() {
    let scratch = TempDir::new().unwrap();
    if built(scratch.path(), &["-C", "panic=abort"]).is_none() {
        return;
    }
    let (named, _) = look(&scratch.path().join("program"));
    let (found, plans) = look(&scratch.path().join("stripped"));
    assert_eq!((named.len(), found.len()), (1, 1), "{named:?} {found:?}");
    assert_eq!(found[0].family, Family::Jemalloc);
    assert_eq!(kinds(&found[0]), kinds(&named[0]), "{found:#?} {named:#?}");
    assert!(found[0].entries.len() == CALLED.len() && plans[0].refused.is_empty(), "{found:#?}");
    assert!(found[0].entries.iter().all(|entry| entry.evidence == Evidence::Calls));
}

/// Programs with the texts but without the calls: a C program has no Rust code.
#[test]
fn nothing_is_found_in_a_stripped_program_in_c() {
    let scratch = TempDir::new().unwrap();
    let at = scratch.path();
    let Some(library) = prefixed_jemalloc(at, "_rjem_") else { return };
    let text = "void *_rjem_malloc(unsigned long); void _rjem_free(void *);\n\
                int main(void) { _rjem_free(_rjem_malloc(9)); return 0; }\n";
    std::fs::write(at.join("program.c"), text).unwrap();
    let library = library.to_str().unwrap();
    let gcc = ["gcc", "-s", "program.c", library, "-lstdc++", "-lm", "-lpthread", "-ldl", "-o", "program"];
    if run(at, &gcc).is_some() {
        assert_eq!(look(&at.join("program")).0, []);
    }
}

/// Damage means fewer entries, or none.
#[test]
fn a_damaged_program_is_read_without_panic() {
    let scratch = TempDir::new().unwrap();
    if built(scratch.path(), &["-C", "panic=abort"]).is_none() {
        return;
    }
    let bytes = std::fs::read(scratch.path().join("stripped")).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize
    };
    for round in 0..8 {
        let mut damaged = bytes.clone();
        // The headers, and the tables behind them; or anything.
        let end = if round % 2 == 0 { 0x1_8000 } else { damaged.len() };
        for _ in 0..50 {
            let at = 0x40 + next() % (end - 0x40);
            damaged[at] = next() as u8;
        }
        if let Ok(module) = Module::from_bytes(Path::new("damaged"), damaged) {
            let _ = find(&module);
        }
    }
}
