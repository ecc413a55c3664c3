//! Damaged files, and all questions about them: about names, too.

#[path = "../../symbols/tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use heapledger_block_types::{SiteSizes, TypeFinder};
use heapledger_core::sample::Random;
use heapledger_symbols::SymbolizerOptions;
use object::{Object, ObjectSection};
use support::{Scratch, Subject, extent};

const SOURCE: &str = "
extern void *malloc(unsigned long);
void *volatile sink;
static inline __attribute__((always_inline)) void *inner(unsigned long size) { return malloc(size); }
__attribute__((noinline)) void *outer(unsigned long size) { sink = inner(size + 1); return 0; }
int main(void) { return outer(7) != 0; }
";

/// All sources of types: template parameters, a constructor, source text, a variable, results.
const CXX: &str = "
namespace std { template <class T> struct allocator { T *allocate(unsigned long n); }; }
template <class T> inline __attribute__((always_inline)) T *std::allocator<T>::allocate(unsigned long n) {
    return static_cast<T *>(operator new(n * sizeof(T)));
}
namespace app {
template <class T, int N> struct Grid { T cells[N]; };
struct Point { int x, y; Point(int x, int y) : x(x), y(y) {} };
typedef Grid<Point *const, 3> Points;
struct Open { int size; char rest[]; };
}
extern \"C\" void *malloc(unsigned long);
void *volatile sink;
extern \"C\" __attribute__((noinline)) int outer(int size) {
    std::allocator<app::Points> points;
    auto *grid = points.allocate(size);
    sink = grid;
    app::Point *point = new app::Point(size, 2);
    sink = point;
    auto *open = (app::Open *) malloc(sizeof(app::Open) + size);
    sink = open;
    return point->x;
}
";

/// A replacement of Rust's own library, with the crate name of that.
const RUST: &str = "
#![no_std]
#![allow(dead_code)]
#[panic_handler] fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }
extern \"C\" { fn malloc(size: usize) -> *mut u8; }
pub mod raw_vec {
    pub struct RawVec<T, A>(pub *mut T, pub A);
    impl<T, A> RawVec<T, A> {
        #[inline(always)] pub fn grow_one(&mut self) {
            // SAFETY: malloc(3) takes any size.
            self.0 = unsafe { crate::malloc(core::mem::size_of::<T>()) }.cast();
        }
    }
}
pub mod vec {
    pub struct Vec<T, A>(pub crate::raw_vec::RawVec<T, A>);
    impl<T, A> Vec<T, A> { #[inline(always)] pub fn push(&mut self) { self.0.grow_one() } }
}
pub enum Token<'t> { Word(&'t str), Number([u64; 3]), None(Option<(u8, *const u16)>) }
#[no_mangle] pub extern \"C\" fn outer(vec: &mut vec::Vec<Token<'static>, ()>) { vec.push(); vec.0.grow_one() }
";

/// Asks all possible questions; returns the types that were found.
fn exercise(path: &Path, offsets: &[u64]) -> BTreeSet<String> {
    let subject =
        Subject::with(path, SymbolizerOptions { debug_dirs: vec!["/nowhere".into()], ..SymbolizerOptions::default() });
    let finder = TypeFinder::new(subject.symbolizer.clone());
    for &offset in offsets {
        assert!(!subject.frames(offset).is_empty());
        assert!(!finder.typed_frames(subject.module(), offset).is_empty());
    }
    let stack: Vec<_> = offsets.iter().map(|&offset| (subject.module(), offset)).collect();
    let sizes = SiteSizes::of_one(24);
    let types = (0..stack.len())
        .flat_map(|at| {
            let alone = finder.site_type(&stack[at..][..1], sizes).block;
            [alone, finder.site_type(&stack[at..], sizes).block]
        })
        .flatten();
    let types = types.map(|block| block.to_string()).collect();
    let _ = (subject.state().problems.iter().map(ToString::to_string).collect::<String>(), subject.hint());
    types
}

/// The number of rounds for each variant of compilation: as many as take a few seconds.
const ROUNDS: usize = if cfg!(debug_assertions) { 200 } else { 700 };

#[test]
fn damaged_files() {
    let scratch = Scratch::new();
    for (name, source) in [("code.c", SOURCE), ("code.cc", CXX), ("code.rs", RUST)] {
        scratch.write(name, source);
    }
    // As little foreign code as possible, so that most damage matters.
    let c = ["-O2", "-nostdlib", "-shared", "-fPIC", "-Wl,--build-id=sha1", "code.c"];
    let cxx = ["-O1", "-nostdlib", "-shared", "-fPIC", "-Wl,--build-id=sha1", "code.cc"];
    let rust = [
        "--crate-name=alloc",
        "--crate-type=cdylib",
        "-Clink-arg=-nostdlib",
        "-Copt-level=1",
        "-Cpanic=abort",
        "code.rs",
    ];
    // The last field is a type that is found as long as nothing is damaged.
    type Variant<'v> = (&'v str, &'v [&'v str], &'v [&'v str], Option<&'v str>);
    let variants: [Variant<'_>; 8] = [
        ("cc", &c, &["-gdwarf-4"], None),
        ("cc", &c, &["-gdwarf-5"], None),
        ("cc", &c, &["-gdwarf-5", "-gz=zlib"], None),
        ("cc", &c, &["-gdwarf-4", "-gsplit-dwarf"], None),
        ("c++", &cxx, &["-gdwarf-4"], Some("app::Point")),
        ("c++", &cxx, &["-gdwarf-5", "-fdebug-types-section"], Some("app::Grid<app::Point* const, 3>")),
        ("rustc", &rust, &["-Cdebuginfo=2"], Some("[alloc::Token]")),
        ("rustc", &rust, &["-Cdebuginfo=1"], Some("[alloc::Token]")),
    ];
    let mut random = Random::new(1);
    for (index, (compiler, common, flags, expected)) in variants.into_iter().enumerate() {
        let name = format!("program{index}");
        if !scratch.run(compiler, &[common, flags, &["-o", &name]].concat()) {
            return;
        }
        let program = scratch.path(&name);
        let good = fs::read(&program).unwrap();
        let (start, size) = extent(&program, |name| name == "outer");
        let offsets: Vec<u64> =
            (start..start + size).step_by(4).chain([0, start - 1, u64::MAX - 1, u64::MAX]).collect();
        let types = exercise(&program, &offsets);
        assert!(expected.is_none_or(|expected| types.contains(expected)), "{compiler} {flags:?}: {types:?}");
        // The ranges of the debug information and the tables.
        let elf = object::File::parse(&*good).unwrap();
        let ranges: Vec<(usize, usize)> = elf
            .sections()
            .filter(|section| section.name().is_ok_and(|name| name.contains("debug") || name.contains("tab")))
            .filter_map(|section| section.file_range())
            .map(|(offset, size)| (offset as usize, size as usize))
            .chain([(0, 64), (good.len() - 64 * 30, 64 * 30)])
            .filter(|&(_, size)| size > 0)
            .collect();
        let damaged = scratch.path("damaged");
        for round in 0..ROUNDS {
            let mut bad = good.clone();
            if round % 20 == 0 {
                bad.truncate(random.index(bad.len()));
            } else {
                for _ in 0..=random.index(4) {
                    let (start, size) = ranges[random.index(ranges.len())];
                    let at = start + random.index(size);
                    bad[at] = match random.index(3) {
                        0 => 0xff,
                        1 => bad[at] ^ 1 << random.index(8),
                        _ => random.word() as u8,
                    };
                }
            }
            // A new file each time: the last one may still be mapped.
            fs::remove_file(&damaged).ok();
            fs::write(&damaged, bad).unwrap();
            exercise(&damaged, &offsets);
        }
    }
}
