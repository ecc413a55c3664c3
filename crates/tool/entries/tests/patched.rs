//! Trampolines do what the entries do: programs in whose files each entry begins with a jump to its
//! trampoline run as before.

mod support;

use std::fs;
use std::path::Path;

use heapledger_entries::relocate;
use object::{Object, ObjectSegment, ObjectSymbol};
use tempfile::TempDir;

use self::support::{LIBRARIES, installed, look, prefixed_jemalloc, run};

/// Room for trampolines among a program's code.
const ROOM: &str = "__asm__(\".pushsection .text\\n.globl room\\n.type room,@object\\n.balign 64\\n\"\n\
                    \"room: .skip 32768, 0xcc\\n.size room, .-room\\n.popsection\\n\");\n";

/// Redirects all entries of a program that is loaded at a fixed address. Returns their number.
fn redirect(path: &Path, to: &Path) -> usize {
    let mut bytes = fs::read(path).unwrap();
    let (room, segments) = {
        let elf = object::File::parse(&*bytes).unwrap();
        let room = elf.symbols().find(|symbol| symbol.name() == Ok("room")).unwrap().address();
        let segments = elf.segments().map(|segment| (segment.address(), segment.file_range()));
        (room, segments.collect::<Vec<_>>())
    };
    let offset = |address: u64| {
        let holds = |(start, (_, size)): &&(u64, (u64, u64))| (*start..*start + *size).contains(&address);
        let (start, (offset, _)) = segments.iter().find(holds).unwrap();
        (address - start + offset) as usize
    };
    let (allocators, plans) = look(path);
    assert!(!allocators.is_empty(), "{}", path.display());
    let (mut next, mut count) = (room, 0);
    for plan in &plans {
        assert_eq!(plan.refused, []);
        for patch in &plan.patches {
            let code = relocate(patch, patch.at, next).unwrap();
            bytes[offset(next)..][..code.len()].copy_from_slice(&code);
            let displacement = next.wrapping_sub(patch.at + 5) as i32;
            assert_eq!(bytes[offset(patch.at)..][..patch.displaced.len()], patch.displaced);
            bytes[offset(patch.at)] = 0xe9;
            bytes[offset(patch.at) + 1..][..4].copy_from_slice(&displacement.to_le_bytes());
            next += code.len().next_multiple_of(16) as u64;
        }
        count += plan.patches.len();
    }
    assert!(next - room <= 32768, "there is no room for {count} trampolines");
    fs::write(to, bytes).unwrap();
    fs::set_permissions(to, fs::metadata(path).unwrap().permissions()).unwrap();
    count
}

/// Calls each of malloc's functions, with this prefix, in several threads, and prints a sum.
fn calls(prefix: &str, others: &str) -> String {
    format!(
        "#include <pthread.h>\n#include <stdio.h>\n#include <string.h>\n#include <stdint.h>\n#include <stddef.h>\n{ROOM}\
         void *{prefix}malloc(size_t); void {prefix}free(void *); void *{prefix}calloc(size_t, size_t);\n\
         void *{prefix}realloc(void *, size_t); int {prefix}posix_memalign(void **, size_t, size_t);\n\
         void *{prefix}aligned_alloc(size_t, size_t); size_t {prefix}malloc_usable_size(void *);\n\
         static void *work(void *seed) {{\n\
             uintptr_t x = (uintptr_t) seed, sum = 0; unsigned char *blocks[64] = {{0}};\n\
             for (int i = 0; i < 20000; i++) {{\n\
                 x = x * 6364136223846793005u + 1442695040888963407u; int at = x >> 58; size_t size = (x >> 40) % 3000 + 1;\n\
                 if (i % 1000 == 0) size *= 1000;\n\
                 if (blocks[at]) sum += blocks[at][0];\n\
                 switch (x >> 30 & 7) {{\n\
                 case 0: blocks[at] = {prefix}realloc(blocks[at], size); break;\n\
                 case 1: {prefix}free(blocks[at]); blocks[at] = {prefix}calloc(size, 2); sum += blocks[at][size]; break;\n\
                 case 2: {prefix}free(blocks[at]); if ({prefix}posix_memalign((void **) &blocks[at], 64, size)) return 0; break;\n\
                 case 3: {prefix}free(blocks[at]); blocks[at] = {prefix}aligned_alloc(64, (size + 63) / 64 * 64); break;\n\
                 {others}\n\
                 default: {prefix}free(blocks[at]); blocks[at] = {prefix}malloc(size);\n\
                 }}\n\
                 memset(blocks[at], i & 0xff, size); if ({prefix}malloc_usable_size(blocks[at]) < size) return 0;\n\
             }}\n\
             for (int i = 0; i < 64; i++) {prefix}free(blocks[i]);\n\
             return (void *) sum;\n\
         }}\n\
         int main(void) {{\n\
             pthread_t threads[4]; uintptr_t sum = 0;\n\
             for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *) i);\n\
             for (int i = 0; i < 4; i++) {{ void *part; pthread_join(threads[i], &part); sum += (uintptr_t) part; }}\n\
             printf(\"%lu\\n\", (unsigned long) sum);\n\
         }}\n"
    )
}

/// Builds a program, redirects its entries, and compares what it prints. At least `entries_min`
/// entries are redirected.
fn compare(at: &Path, build: &[&str], entries_min: usize) {
    if run(at, build).is_none() {
        return;
    }
    let count = redirect(&at.join("program"), &at.join("redirected"));
    assert!(count >= entries_min, "{build:?}: {count} entries");
    let [plain, redirected] = ["./program", "./redirected"].map(|program| run(at, &[program]).unwrap());
    assert!(plain.trim().parse::<u64>().is_ok_and(|sum| sum > 0), "{build:?}: {plain}");
    assert_eq!(plain, redirected, "{build:?}");
}

#[test]
fn static_programs() {
    let scratch = TempDir::new().unwrap();
    let at = scratch.path();
    fs::write(at.join("program.c"), calls("", "")).unwrap();
    compare(at, &["gcc", "-static", "-fno-builtin", "-O1", "program.c", "-o", "program"], 8);
    compare(at, &["gcc", "-static", "-fno-builtin", "-fcf-protection", "program.c", "-o", "program"], 8);
    compare(at, &["musl-gcc", "-static", "-no-pie", "-fno-builtin", "program.c", "-o", "program"], 8);
}

#[test]
fn jemalloc_with_a_prefix() {
    let scratch = TempDir::new().unwrap();
    let at = scratch.path();
    if prefixed_jemalloc(at, "je_").is_none() {
        return;
    }
    let others = "case 4: je_sdallocx(je_mallocx(size, 5), size, 5); je_dallocx(je_mallocx(size, 0x40), 0);\n\
                  if (blocks[at]) { blocks[at] = je_rallocx(blocks[at], size, 0); sum += je_xallocx(blocks[at], size, 0, 0) >= size; break; }\n";
    let declarations = "#include <stddef.h>\nvoid *je_mallocx(size_t, int); void je_sdallocx(void *, size_t, int);\n\
                        void je_dallocx(void *, int); void *je_rallocx(void *, size_t, int);\n\
                        size_t je_xallocx(void *, size_t, size_t, int);\n";
    fs::write(at.join("program.c"), format!("{declarations}{}", calls("je_", others))).unwrap();
    let libraries = ["libprefixed.a", "-lstdc++", "-lm", "-lpthread", "-ldl", "-o", "program"];
    compare(at, &[&["gcc", "-no-pie", "-O1", "program.c"][..], &libraries].concat(), 11);
}

#[test]
fn tcmalloc_with_operators_that_throw() {
    let Some(library) = installed(Path::new(LIBRARIES).join("libtcmalloc_minimal.a")) else { return };
    let scratch = TempDir::new().unwrap();
    let at = scratch.path();
    let text = format!(
        "#include <cstdio>\n#include <new>\n#include <string>\n#include <vector>\n{ROOM}\
         struct alignas(256) Wide {{ char text[256]; }};\n\
         int main() {{\n\
             unsigned long sum = 0; volatile std::size_t huge = ~0ul / 2;\n\
             for (int i = 0; i < 3000; i++) {{\n\
                 std::vector<std::string> all(i % 40, std::string(i % 100, 'x'));\n\
                 for (auto &one : all) sum += one.size();\n\
                 Wide *wide = new Wide; sum += (unsigned long) wide % 256 == 0; delete wide;\n\
                 int *few = new (std::nothrow) int[7]; delete[] few;\n\
             }}\n\
             for (int i = 0; i < 10; i++) {{\n\
                 try {{ sum += *static_cast<char *>(operator new(huge)); }} catch (std::bad_alloc &) {{ sum += 1000000; }}\n\
                 sum += operator new(huge, std::nothrow) == nullptr;\n\
             }}\n\
             std::printf(\"%lu\\n\", sum);\n\
         }}\n"
    );
    fs::write(at.join("program.cpp"), text).unwrap();
    let library = library.to_str().unwrap();
    let whole = ["-Wl,--whole-archive", library, "-Wl,--no-whole-archive", "-lpthread", "-o", "program"];
    compare(at, &[&["g++", "-std=c++17", "-no-pie", "-O1", "program.cpp"][..], &whole].concat(), 15);
}
