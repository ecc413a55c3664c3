//! Malicious files. The test `hostile` of `block-types` damages files at random, and asks for names
//! too.

mod support;

use std::fs;
use std::time::Duration;

use heapledger_symbols::{DebugInfo, Problem};
use object::{Object, ObjectSection, ObjectSymbol};
use support::{Scratch, Subject, extent};

const SOURCE: &str = "
extern void *malloc(unsigned long);
void *volatile sink;
static inline __attribute__((always_inline)) void *inner(unsigned long size) { return malloc(size); }
__attribute__((noinline)) void *outer(unsigned long size) { sink = inner(size + 1); return 0; }
int main(void) { return outer(7) != 0; }
";

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
