//! Malicious and damaged files.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use heapledger_symbols::{DebugInfo, Problem, SiteSizes, SymbolizerOptions};
use object::{Object, ObjectSection, ObjectSymbol};
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

struct Random(u64);

impl Random {
    /// Returns a number below `limit`.
    fn next(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Asks all possible questions; returns the types that were found.
fn exercise(path: &Path, offsets: &[u64]) -> BTreeSet<String> {
    let subject =
        Subject::with(path, SymbolizerOptions { debug_dirs: vec!["/nowhere".into()], ..SymbolizerOptions::default() });
    for &offset in offsets {
        assert!(!subject.frames(offset).is_empty());
        assert!(!subject.symbolizer.typed_frames(subject.module(), offset).is_empty());
    }
    let stack: Vec<_> = offsets.iter().map(|&offset| (subject.module(), offset)).collect();
    let sizes = SiteSizes::of_one(24);
    let types = (0..stack.len())
        .flat_map(|at| {
            let alone = subject.symbolizer.site_type(&stack[at..][..1], sizes).block;
            [alone, subject.symbolizer.site_type(&stack[at..], sizes).block]
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
    let mut random = Random(0x1234_5678_9abc_def1);
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
                bad.truncate(random.next(bad.len()));
            } else {
                for _ in 0..=random.next(4) {
                    let (start, size) = ranges[random.next(ranges.len())];
                    let at = start + random.next(size);
                    bad[at] = match random.next(3) {
                        0 => 0xff,
                        1 => bad[at] ^ 1 << random.next(8),
                        _ => random.next(256) as u8,
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

/// Assembles a shared object of DWARF 4 with one function `code`; returns the subject and the
/// function's address.
fn assembled(name: &str, text: &str) -> Option<(Subject, u64, Scratch)> {
    let scratch = Scratch::new();
    let source = format!("{name}.s");
    scratch.write(
        &source,
        &format!(
            ".text\n.globl code\n.type code, @function\ncode: nop\n nop\n ret\nend:\n.size code, . - code\n{text}"
        ),
    );
    if !scratch.run("cc", &["-shared", "-nostdlib", "-o", "lib.so", &source]) {
        return None;
    }
    let library = scratch.path("lib.so");
    let data = fs::read(&library).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let code = elf.symbols().find(|symbol| symbol.name() == Ok("code")).unwrap().address();
    Some((Subject::new(library), code, scratch))
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(statistics.split(' ').next().unwrap().parse().unwrap())
}

/// Asserts that the bounds stopped the lookup soon, and that the symbol table was used.
#[track_caller]
fn assert_refused(subject: &Subject, code: u64) {
    let begin = processor_time();
    let frames = subject.frames(code + 1);
    assert_eq!((frames.len(), frames[0].function.full()), (1, "code"));
    let state = subject.state();
    assert!(
        matches!(&state.problems[..], [Problem::Damaged { error, .. }] if error.contains("more work or nesting")),
        "{state:?}"
    );
    let took = processor_time() - begin;
    assert!(Duration::from_micros(10) < took && took < Duration::from_secs(10), "{took:?}");
    assert!(peak_kib() < 1 << 20, "{} KiB", peak_kib());
    assert!(subject.hint().unwrap().contains("damaged"));
}

const ABBREVIATIONS: &str = "
    .section .debug_abbrev
    .uleb128 1, 0x11\n .byte 1\n .uleb128 0x11, 1, 0x12, 7, 0, 0
    .uleb128 2, 0x2e\n .byte 1\n .uleb128 3, 8, 0x11, 1, 0x12, 7, 0, 0
    .uleb128 3, 0x1d\n .byte 1\n .uleb128 0, 0
    .byte 0\n";

#[test]
fn nested_without_end() {
    let text = format!(
        "{ABBREVIATIONS}.section .debug_info\n .long 2f-1f\n1: .short 4\n .long 0\n .byte 8
        .uleb128 1\n .quad code, end - code\n .uleb128 2\n .asciz \"code\"\n .quad code, end - code
        .fill 2000000, 1, 3\n .fill 2000002, 1, 0\n2:\n"
    );
    let Some((subject, code, _scratch)) = assembled("nested", &text) else { return };
    assert_refused(&subject, code);
    assert_eq!(subject.state().debug, DebugInfo::Full);
}

#[test]
fn nested_deeply() {
    // Deeper than real code, and still answered.
    let text = format!(
        "{ABBREVIATIONS}.section .debug_info\n .long 2f-1f\n1: .short 4\n .long 0\n .byte 8
        .uleb128 1\n .quad code, end - code\n .uleb128 2\n .asciz \"code\"\n .quad code, end - code
        .fill 150, 1, 3\n .fill 152, 1, 0\n2:\n"
    );
    let Some((subject, code, _scratch)) = assembled("nested", &text) else { return };
    assert_eq!(subject.frames(code + 1)[0].function.full(), "code");
    assert_eq!(subject.state().problems, []);
}

#[test]
fn units_that_share_a_list() {
    // 20,000 units, each with the same 50,000 ranges.
    let text = "
        .section .debug_abbrev\n .uleb128 1, 0x11\n .byte 0\n .uleb128 0x11, 1, 0x55, 0x17, 0, 0\n .byte 0
        .section .debug_ranges
        .set n, 0\n .rept 50000\n .quad n, n + 1\n .set n, n + 2\n .endr\n .quad 0, 0
        .section .debug_info
        .rept 20000\n .long 20\n .short 4\n .long 0\n .byte 8\n .uleb128 1\n .quad 0\n .long 0\n .endr\n";
    let Some((subject, code, _scratch)) = assembled("ranges", text) else { return };
    assert_refused(&subject, code);
    assert_eq!(subject.state().debug, DebugInfo::SymbolsOnly);
}

#[test]
fn units_that_share_abbreviations() {
    // 5,000 units, each with its own part of the same 100,000 abbreviations.
    let text = "
        .section .debug_abbrev
        .set n, 1\n .rept 100000\n .uleb128 n, 0x11\n .byte 0\n .uleb128 3, 8, 0, 0\n .set n, n + 1\n .endr\n .byte 0
        .section .debug_info
        .set n, 0\n .rept 5000\n .long 9\n .short 4\n .long n * 7\n .byte 8\n .uleb128 1\n .byte 0\n .set n, n + 1\n .endr\n";
    let Some((subject, code, _scratch)) = assembled("abbreviations", text) else { return };
    assert_refused(&subject, code);
}

#[test]
fn paths_that_multiply() {
    // 100,000 files in a directory whose name has a million letters.
    let text = "
        .section .debug_abbrev
        .uleb128 1, 0x11\n .byte 0\n .uleb128 0x11, 1, 0x12, 7, 0x10, 0x17, 0x1b, 8, 0, 0\n .byte 0
        .section .debug_info
        .long 2f-1f\n1: .short 4\n .long 0\n .byte 8\n .uleb128 1\n .quad code, end - code\n .long 0
        .byte '/'\n .fill 1000000, 1, 'a'\n .byte 0\n2:
        .section .debug_line
        .long 2f-1f\n1: .short 4\n .long 4f-3f\n3: .byte 1, 1, 1, 1, 1, 1\n .byte 0
        .rept 100000\n .asciz \"f\"\n .byte 0, 0, 0\n .endr\n .byte 0
        4: .byte 0, 9, 2\n .quad code\n .byte 1\n .byte 2, 3\n .byte 0, 1, 1\n2:\n";
    let Some((subject, code, _scratch)) = assembled("paths", text) else { return };
    assert_refused(&subject, code);
}

#[test]
fn compressed_to_nothing() {
    let scratch = Scratch::new();
    scratch.write("code.c", SOURCE);
    if !scratch.run("cc", &["-g", "-O2", "-gz=zlib", "-shared", "-fPIC", "-o", "lib.so", "code.c"]) {
        return;
    }
    let library = scratch.path("lib.so");
    let (outer, _) = extent(&library, |name| name == "outer");
    let mut bytes = fs::read(&library).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let section = elf.section_by_name(".debug_info").unwrap();
    if section.compressed_file_range().unwrap().format == object::CompressionFormat::None {
        return support::skipped("cc does not compress");
    }
    // The header gives the decompressed size of the section: a terabyte.
    let at = section.file_range().unwrap().0 as usize + 8;
    bytes[at..at + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
    fs::remove_file(&library).unwrap();
    fs::write(&library, bytes).unwrap();
    let subject = Subject::new(&library);
    assert_eq!(subject.frames(outer)[0].function.full(), "outer");
    let state = subject.state();
    assert_eq!(state.debug, DebugInfo::SymbolsOnly);
    assert!(
        matches!(&state.problems[..], [Problem::Damaged { error, .. }] if error.contains("incredible")),
        "{state:?}"
    );
}

#[test]
fn not_elf() {
    let scratch = Scratch::new();
    let contents: [&[u8]; 6] = [b"", b"\x7f", b"\x7fELF", b"MZ\0\0", b"#!/bin/sh\n", &[0; 4096]];
    for content in contents {
        let path = scratch.path("file");
        fs::remove_file(&path).ok();
        fs::write(&path, content).unwrap();
        for build_id in [vec![], vec![1; 20]] {
            let mut subject = Subject::new(&path);
            subject.build_id = build_id;
            assert_eq!(subject.frames(0x10)[0].function.full(), "file+0x10");
            let state = subject.state();
            assert!(matches!(state.problems[..], [Problem::Unreadable { .. }]), "{state:?}");
            assert!(subject.hint().is_some());
        }
    }
}

#[test]
fn pipe() {
    // Opening it would wait for a writer.
    let scratch = Scratch::new();
    if !scratch.run("mkfifo", &["pipe"]) {
        return;
    }
    let subject = Subject::new(scratch.path("pipe"));
    assert_eq!(subject.frames(1)[0].function.full(), "pipe+0x1");
    assert!(
        matches!(&subject.state().problems[..], [Problem::Unreadable { error, .. }] if error == "not a regular file")
    );
}
