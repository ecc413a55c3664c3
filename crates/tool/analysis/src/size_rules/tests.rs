use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

/// Prints the usable size of a block of each size that it reads.
const ASKING: &str = r#"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    size_t size;
    while (scanf("%zu", &size) == 1) {
        void *volatile block = malloc(size);
        printf("%zu\n", malloc_usable_size(block));
        free(block);
    }
}
"#;

/// Small sizes, and larger ones around powers of two and their quarters.
fn sizes() -> Vec<u64> {
    let quarters = (14..28).flat_map(|shift| (4..8_u64).map(move |quarter| quarter << (shift - 2)));
    let around = |size: u64| [size - 4097, size - 1, size, size + 1, size + 8, size + 16, size + 4096];
    let mut sizes: Vec<u64> = (0..20_000).chain(quarters.flat_map(around)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Asks an allocator for the usable sizes of blocks.
fn asked(program: &Path, library: Option<&str>, sizes: &[u64]) -> Vec<u64> {
    let mut command = Command::new(program);
    // The threshold would change with the first mapped block that is freed.
    command.env("MALLOC_MMAP_THRESHOLD_", "131072").stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    let mut child = command.spawn().unwrap();
    let mut text = String::new();
    sizes.iter().for_each(|size| writeln!(text, "{size}").unwrap());
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn rules_give_what_the_allocators_give() {
    let directory = std::env::temp_dir().join(format!("heapledger-size-rules-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (source, program) = (directory.join("asking.c"), directory.join("asking"));
    std::fs::write(&source, ASKING).unwrap();
    let built = Command::new("cc").args(["-O1", "-fno-builtin", "-o"]).args([&program, &source]).status();
    assert!(built.unwrap().success());
    let sizes = sizes();
    for (rule, library) in [
        (SizeRule::Glibc, None),
        (SizeRule::Jemalloc, Some("libjemalloc.so.2")),
        (SizeRule::Tcmalloc, Some("libtcmalloc_minimal.so.4")),
        (SizeRule::Mimalloc20, Some("libmimalloc.so.2.0")),
    ] {
        let path = library.map(|library| format!("/usr/lib/x86_64-linux-gnu/{library}"));
        if let Some(path) = path.as_ref().filter(|path| !Path::new(path).exists()) {
            eprintln!("skipped: {path} is not installed");
            continue;
        }
        let usable = asked(&program, path.as_deref(), &sizes);
        assert_eq!(usable.len(), sizes.len());
        let wrong = |&(&size, &usable): &(&u64, &u64)| {
            let computed = rule.usable(Bytes(size)).0;
            // glibc may give a piece that is 16 bytes larger, and a block that it would map may
            // find room in the heap, which has 132 KiB at first.
            let may_be = |usable| {
                computed + 16 == usable
                    || (128 << 10..132 << 10).contains(&usable) && usable == (size + 23) / 16 * 16 - 8
            };
            computed != usable && (rule != SizeRule::Glibc || !may_be(usable))
        };
        let wrong: Vec<_> = sizes.iter().zip(&usable).filter(wrong).take(10).collect();
        assert!(wrong.is_empty(), "{rule:?}, sizes and usable sizes: {wrong:?}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Later versions of mimalloc, which Debian does not have: the figures are from 2.3.2 and 3.3.2,
/// built with their release options.
#[test]
fn rules_give_what_later_versions_of_mimalloc_gave() {
    let measured_of_2_3_2 = [
        (1000, 1024),
        (65_536, 65_536),
        (65_537, 69_632),
        (131_073, 135_168),
        (525_000, 589_824),
        (6_291_457, 6_553_600),
    ];
    let measured_of_3_3_2 = [
        (1000, 1024),
        (65_537, 81_920),
        (133_000, 163_840),
        (395_000, 458_752),
        (525_000, 589_824),
        (6_291_457, 6_553_600),
    ];
    for (rule, measured) in [(SizeRule::Mimalloc22, measured_of_2_3_2), (SizeRule::Mimalloc32, measured_of_3_3_2)] {
        for (size, usable) in measured {
            assert_eq!(rule.usable(Bytes(size)), Bytes(usable), "{rule:?} {size}");
        }
    }
}

#[test]
fn the_version_chooses_the_rule() {
    let mimalloc =
        |major, minor| SizeRule::of(AllocatorKind::Mimalloc, AllocatorVersion::new(major, minor, 1)).unwrap();
    assert_eq!([(1, 8), (2, 0), (2, 1)].map(|(a, b)| mimalloc(a, b)), [SizeRule::Mimalloc20; 3]);
    assert_eq!([(2, 2), (2, 3), (3, 0), (3, 1)].map(|(a, b)| mimalloc(a, b)), [SizeRule::Mimalloc22; 4]);
    assert_eq!([(3, 2), (3, 3)].map(|(a, b)| mimalloc(a, b)), [SizeRule::Mimalloc32; 2]);
    assert_eq!(SizeRule::of(AllocatorKind::Other, AllocatorVersion::default()), None);
}

/// A damaged file may ask for any size.
#[test]
fn no_size_is_too_large() {
    use SizeRule::*;
    for rule in [Glibc, Jemalloc, Tcmalloc, Mimalloc20, Mimalloc22, Mimalloc32, Heapledger] {
        for size in (0..64).map(|shift| u64::MAX >> shift).chain([1 << 63, (1 << 63) + 1]) {
            assert!(rule.usable(Bytes(size)).0 >= size, "{rule:?} {size}");
        }
    }
}
