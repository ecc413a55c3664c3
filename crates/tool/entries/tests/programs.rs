//! Allocators in real programs and libraries. What is not installed is skipped, and said so.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use heapledger_entries::{Allocator, Evidence, Family, Module, Refusal, find};
use heapledger_wire::entries::EntryKind;
use tempfile::TempDir;

use self::support::{LIBRARIES, installed, look, prefixed_jemalloc, run, skipped};

/// Returns the only allocator in a file, all of whose entries can be redirected, except those that
/// throw and have no form that does not. If it is a known one that is redirected, no caller relies
/// on registers that its entries leave alone.
fn only(path: &Path) -> Allocator {
    let (mut allocators, plans) = look(path);
    assert_eq!(allocators.len(), 1, "{}: {allocators:?}", path.display());
    let mut refused = plans[0].refused.iter().map(|refused| refused.entry.kind);
    assert!(refused.all(|kind| kind.layout().throws && kind.nothrow().is_none()), "{}: {plans:?}", path.display());
    let allocator = allocators.remove(0);
    if !matches!(allocator.family, Family::Malloc | Family::Musl | Family::Operators | Family::RustShims) {
        let keeping = plans[0].patches.iter().filter(|patch| !patch.clobbers_all);
        assert_eq!(keeping.map(|patch| &patch.entry.name).collect::<Vec<_>>(), [""; 0], "{}", path.display());
    }
    allocator
}

fn has(allocator: &Allocator, names: &[&str]) {
    for name in names {
        assert!(allocator.entries.iter().any(|entry| entry.name == *name), "no {name}: {allocator:?}");
    }
}

fn sources(allocator: &Allocator) -> Vec<Evidence> {
    let mut sources: Vec<_> = allocator.entries.iter().map(|entry| entry.evidence).collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

/// A C program that uses an allocator by the names with this prefix.
fn program(prefix: &str) -> String {
    format!(
        "#include <stddef.h>\n\
         void *{prefix}malloc(size_t); void {prefix}free(void *); void *{prefix}calloc(size_t, size_t);\n\
         void *{prefix}realloc(void *, size_t);\n\
         int main(void) {{ void *p = {prefix}malloc(10); p = {prefix}realloc(p, 100); {prefix}free(p);\n\
         {prefix}free({prefix}calloc(2, 3)); return 0; }}\n"
    )
}

#[test]
fn rustc_has_jemalloc_without_a_prefix() {
    let Some(sysroot) = run(Path::new("."), &["rustc", "--print", "sysroot"]) else { return };
    let rustc = Path::new(sysroot.trim()).join("bin/rustc");
    // Distributions link it with the system's allocator.
    let (allocators, _) = look(&rustc);
    if allocators.is_empty() && !sysroot.contains("toolchains") {
        return skipped("this rustc has no allocator of its own");
    }
    let allocator = only(&rustc);
    assert_eq!((allocator.family, allocator.prefix.as_str()), (Family::Jemalloc, ""));
    has(&allocator, &["malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc"]);
}

#[test]
fn shared_allocators_are_found_by_their_exports() {
    let libraries = [
        ("libjemalloc.so.2", Family::Jemalloc, &["malloc", "sdallocx", "_Znwm", "_ZdlPvm", "_ZnwmSt11align_val_t"][..]),
        ("libmimalloc.so.2", Family::Mimalloc, &["malloc", "mi_heap_malloc", "mi_new_n", "mi_recalloc_aligned"]),
        ("libtcmalloc_minimal.so.4", Family::Tcmalloc, &["malloc", "free", "tc_new", "tc_new_nothrow"]),
    ];
    for (name, family, names) in libraries {
        let Some(path) = installed(Path::new(LIBRARIES).join(name)) else { continue };
        let allocator = only(&path);
        assert_eq!(allocator.family, family);
        has(&allocator, names);
        assert!(allocator.entries.iter().all(|entry| entry.is_exported && entry.evidence == Evidence::DynamicSymbols));
    }
}

/// An allocator that calls no function of another file: gcc lets its callers rely on registers.
#[test]
fn functions_that_gcc_knows_all_of_may_leave_registers_alone() {
    let scratch = TempDir::new().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/programs/kept_registers.c");
    let line = ["gcc", "-O2", "-fno-builtin", source.to_str().unwrap(), "-o", "program"];
    if run(scratch.path(), &line).is_none() {
        return;
    }
    let (_, plans) = look(&scratch.path().join("program"));
    assert!(plans[0].patches.len() >= 4 && plans[0].patches.iter().all(|patch| !patch.clobbers_all), "{plans:?}");
}

#[test]
fn displaced_bytes_end_where_objdump_sees_an_instruction_end() {
    for name in ["libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4", "libc.so.6"] {
        let Some(path) = installed(Path::new(LIBRARIES).join(name)) else { continue };
        let (_, plans) = look(&path);
        let mut compared = 0;
        for patch in plans.iter().flat_map(|plan| &plan.patches) {
            let end = patch.at + patch.displaced.len() as u64;
            let range = [format!("--start-address={:#x}", patch.at), format!("--stop-address={:#x}", end + 16)];
            let path = path.to_str().unwrap();
            let Some(text) = run(Path::new("/"), &["objdump", "-d", &range[0], &range[1], path]) else { return };
            let begins = text.lines().filter_map(|line| u64::from_str_radix(line.trim().split_once(":\t")?.0, 16).ok());
            assert!(
                begins.clone().any(|at| at == end),
                "{name} {}: no instruction at {end:#x}:\n{text}",
                patch.entry.name
            );
            assert!(begins.clone().all(|at| at <= patch.at || at >= patch.at + 5 || at < end));
            compared += 1;
        }
        assert!(compared >= 9, "{name}: {compared}");
    }
}

#[test]
fn browsers_are_found_by_their_exports() {
    if let Some(firefox) = installed("/usr/lib/firefox-esr/firefox-esr") {
        let allocator = only(&firefox);
        assert_eq!(allocator.family, Family::Mozjemalloc);
        has(&allocator, &["malloc", "free", "moz_arena_malloc", "moz_arena_realloc", "moz_arena_free"]);
    }
    if let Some(chromium) = installed("/usr/lib/chromium/chromium") {
        let allocator = only(&chromium);
        assert_eq!(allocator.family, Family::PartitionAlloc);
        has(&allocator, &["malloc", "free", "_Znwm", "_ZnwmRKSt9nothrow_t", "posix_memalign"]);
    }
}

/// A stripped program in C++ with mimalloc, whose `operator new` has no other name there.
#[test]
fn operators_of_a_stripped_mimalloc_are_found() {
    let Some(mold) = installed("/usr/bin/mold") else { return };
    // Later versions of the package are linked with the shared library.
    let (allocators, _) = look(&mold);
    if allocators.is_empty() {
        return skipped("this mold has no allocator inside");
    }
    let allocator = only(&mold);
    assert_eq!((allocator.family, sources(&allocator)), (Family::Mimalloc, vec![Evidence::DynamicSymbols]));
    has(&allocator, &["malloc", "free", "_Znwm", "_ZnwmRKSt9nothrow_t", "_ZnwmSt11align_val_t", "_ZdlPvm"]);
}

#[test]
fn a_prefixed_jemalloc_is_found_in_the_symbol_table_and_in_debug_files() {
    let scratch = TempDir::new().unwrap();
    let at = scratch.path();
    if prefixed_jemalloc(at, "_rjem_").is_none() {
        return;
    }
    fs::write(at.join("program.c"), program("_rjem_")).unwrap();
    let link = ["gcc", "-g", "program.c", "libprefixed.a", "-lstdc++", "-lm", "-lpthread", "-ldl", "-o", "program"];
    if run(at, &link).is_none() {
        return;
    }
    let whole = only(&at.join("program"));
    assert_eq!((whole.family, whole.prefix.as_str()), (Family::Jemalloc, "_rjem_"));
    has(&whole, &["_rjem_malloc", "_rjem_free", "_rjem_calloc", "_rjem_realloc", "_rjem_mallocx", "_rjem_sdallocx"]);
    assert_eq!(sources(&whole), [Evidence::SymbolTable]);

    for command in [
        &["objcopy", "--only-keep-debug", "program", "program.debug"][..],
        &["objcopy", "--strip-all", "--add-gnu-debuglink=program.debug", "program", "stripped"],
        &["objcopy", "--strip-all", "program", "bare"],
    ] {
        run(at, command).unwrap();
    }
    let stripped = only(&at.join("stripped"));
    assert_eq!(sources(&stripped), [Evidence::DebugFile]);
    let places =
        |allocator: &Allocator| allocator.entries.iter().map(|entry| (entry.at, entry.kind)).collect::<Vec<_>>();
    assert_eq!(places(&stripped), places(&whole));
    // The same, packed into the file (MiniDebugInfo).
    if run(at, &["xz", "-k", "program.debug"]).is_some() {
        let section = "--add-section=.gnu_debugdata=program.debug.xz";
        run(at, &["objcopy", "--strip-all", section, "program", "packed"]).unwrap();
        let packed = only(&at.join("packed"));
        assert_eq!((sources(&packed), places(&packed)), (vec![Evidence::DebugFile], places(&whole)));
    }
    // Without names, nothing tells: and nothing is taken for an allocator.
    let bare = Module::open(&at.join("bare")).unwrap();
    let found = find(&bare).unwrap();
    assert!(found.allocators.is_empty() && !found.has_names);
}

#[test]
fn tcmalloc_linked_into_a_cpp_program_brings_its_operators() {
    let Some(library) = installed(Path::new(LIBRARIES).join("libtcmalloc_minimal.a")) else { return };
    let scratch = TempDir::new().unwrap();
    let at = scratch.path();
    fs::write(at.join("program.cpp"), "int main() { delete new int; delete[] new int[7]; }\n").unwrap();
    let library = library.to_str().unwrap();
    let whole = ["-Wl,--whole-archive", library, "-Wl,--no-whole-archive"];
    let command = [&["g++", "program.cpp"][..], &whole, &["-lpthread", "-o", "program"]].concat();
    if run(at, &command).is_none() {
        return;
    }
    let allocator = only(&at.join("program"));
    assert_eq!(allocator.family, Family::Tcmalloc);
    has(&allocator, &["malloc", "free", "calloc", "realloc", "tc_new", "tc_new_nothrow"]);
}

#[test]
fn statically_linked_programs_have_that_of_their_c_library() {
    let scratch = TempDir::new().unwrap();
    let at = scratch.path();
    fs::write(at.join("program.c"), program("")).unwrap();
    let builds = [
        (&["gcc", "-static", "program.c", "-o", "glibc"][..], "glibc", Family::Glibc),
        (&["gcc", "-static-pie", "-O2", "program.c", "-o", "pie"], "pie", Family::Glibc),
        (&["musl-gcc", "-static", "program.c", "-o", "musl"], "musl", Family::Musl),
    ];
    for (command, name, family) in builds {
        if run(at, command).is_none() {
            continue;
        }
        let allocator = only(&at.join(name));
        assert_eq!((allocator.family, allocator.prefix.as_str()), (family, ""));
        has(&allocator, &["malloc", "free", "calloc", "realloc"]);
    }
}

#[test]
fn stripped_static_programs_are_found_by_their_code() {
    let scratch = TempDir::new().unwrap();
    let at = scratch.path();
    fs::write(at.join("program.c"), program("")).unwrap();
    fs::write(at.join("program.rs"), "fn main() { println!(\"{:?}\", vec![String::from(\"a\"); 3]); }\n").unwrap();
    let rust = ["rustc", "-O", "--target", "x86_64-unknown-linux-musl", "program.rs", "-o"];
    let builds = [
        (&["gcc", "-static", "program.c", "-o"][..], "glibc", Family::Glibc),
        (&["gcc", "-static-pie", "-O2", "program.c", "-o"], "pie", Family::Glibc),
        (&["musl-gcc", "-static", "program.c", "-o"], "musl", Family::Musl),
        (&rust, "rust", Family::Musl),
    ];
    for (command, name, family) in builds {
        let has_target = || run(at, &["rustc", "--print", "target-libdir", "--target", "x86_64-unknown-linux-musl"]);
        if name == "rust" && !has_target().is_some_and(|path| Path::new(path.trim()).exists()) {
            skipped("Rust's target for musl is not installed");
            continue;
        }
        if run(at, &[command, &[name]].concat()).is_none() {
            continue;
        }
        // The truth is the symbol table.
        let (named, _) = look(&at.join(name));
        run(at, &["strip", name]).unwrap();
        let allocator = only(&at.join(name));
        assert_eq!((allocator.family, sources(&allocator)), (family, vec![Evidence::Signature]), "{name}");
        let entries = &named[0].entries;
        for entry in &allocator.entries {
            assert!(
                entries.iter().any(|one| (one.at, one.kind) == (entry.at, entry.kind)),
                "{name} {entry:?} {entries:?}"
            );
        }
        let kinds = |wanted: &[EntryKind]| wanted.iter().all(|&kind| allocator.entry(kind).is_some());
        assert!(kinds(&[EntryKind::Malloc, EntryKind::Free, EntryKind::Realloc]), "{name}: {allocator:?}");
    }
}

#[test]
fn programs_that_use_malloc_have_no_allocator() {
    let scratch = TempDir::new().unwrap();
    fs::write(
        scratch.path().join("wrappers.c"),
        "#include <stdlib.h>\n\
         void *xmalloc(size_t n) { return malloc(n); } void xfree(void *p) { free(p); }\n\
         void *g_malloc(size_t n) { return malloc(n); } void g_free(void *p) { free(p); }\n\
         void *test_mallocx(size_t n) { return malloc(n); }\n\
         int main(void) { xfree(xmalloc(3)); g_free(g_malloc(3)); free(test_mallocx(3)); return 0; }\n",
    )
    .unwrap();
    let mut files = vec![PathBuf::from("/bin/sh"), Path::new(LIBRARIES).join("libstdc++.so.6")];
    if run(scratch.path(), &["gcc", "wrappers.c", "-o", "wrappers"]).is_some() {
        files.push(scratch.path().join("wrappers"));
    }
    // The test itself is a Rust program with the system's allocator.
    files.push(std::env::current_exe().unwrap());
    for file in files.into_iter().filter(|file| file.exists()) {
        let (allocators, _) = look(&file);
        assert_eq!(allocators, [], "{}", file.display());
    }
}

/// The nothrow form calls the one that throws: it must not be called instead of it.
#[test]
fn operators_of_a_program_with_a_malloc_of_its_own_are_left_alone() {
    let scratch = TempDir::new().unwrap();
    fs::write(
        scratch.path().join("own.cpp"),
        "#include <cstdlib>\n#include <new>\nstatic char heap[1 << 16]; static std::size_t next;\n\
         extern \"C\" void *malloc(std::size_t size) { next += size + 16; return heap + next - size; }\n\
         extern \"C\" void free(void *) {}\n\
         void *operator new(std::size_t size) { if (size > 999) throw std::bad_alloc(); return malloc(size); }\n\
         void operator delete(void *p) noexcept { free(p); }\n\
         void operator delete(void *p, std::size_t) noexcept { free(p); }\n\
         void *operator new(std::size_t size, const std::nothrow_t &) noexcept { return operator new(size); }\n\
         int main() { delete new int; return 0; }\n",
    )
    .unwrap();
    if run(scratch.path(), &["g++", "-O0", "own.cpp", "-o", "own"]).is_none() {
        return;
    }
    let allocator = only(&scratch.path().join("own"));
    let names: Vec<_> = allocator.entries.iter().map(|entry| entry.name.as_str()).collect();
    assert!(names.contains(&"malloc") && names.contains(&"free"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("_Z")), "{names:?}");
}

#[test]
fn code_that_is_relocated_is_left_alone() {
    let scratch = TempDir::new().unwrap();
    fs::write(
        scratch.path().join("own.c"),
        "static char heap[1 << 16]; static long next;\n\
         void *malloc(unsigned long size) { next += size + 16; return heap + next - size; }\n\
         void free(void *block) { next -= block == heap; }\n",
    )
    .unwrap();
    let options = ["-mcmodel=large", "-fno-pic", "-shared", "-nostdlib", "-Wl,-z,notext"];
    let compile = [&["gcc", "own.c", "-o", "own.so"][..], &options].concat();
    if run(scratch.path(), &compile).is_none() {
        return;
    }
    let (_, plans) = look(&scratch.path().join("own.so"));
    let reasons: Vec<_> = plans[0].refused.iter().map(|refused| refused.reason).collect();
    assert_eq!(reasons, [Refusal::TextRelocations; 2]);
}

#[test]
fn operators_that_do_not_call_malloc_are_an_allocator() {
    let scratch = TempDir::new().unwrap();
    let source = |body: &str| {
        format!(
            "#include <cstdlib>\n#include <new>\nstatic char heap[1 << 16]; static std::size_t next;\n\
             void *operator new(std::size_t size) {{ {body} }}\nvoid operator delete(void *p) noexcept {{ (void) p; }}\n\
             void operator delete(void *p, std::size_t) noexcept {{ operator delete(p); }}\n\
             void *operator new(std::size_t size, const std::nothrow_t &) noexcept {{ return operator new(size); }}\n\
             int main() {{ delete new int; return new (std::nothrow) char == nullptr; }}\n"
        )
    };
    fs::write(scratch.path().join("own.cpp"), source("next += size + 16; return heap + next - size;")).unwrap();
    fs::write(scratch.path().join("calls.cpp"), source("return std::malloc(size);")).unwrap();
    for name in ["own", "calls"] {
        if run(scratch.path(), &["g++", "-O0", &format!("{name}.cpp"), "-o", name]).is_none() {
            return;
        }
    }
    let allocator = only(&scratch.path().join("own"));
    assert_eq!(allocator.family, Family::Operators);
    has(&allocator, &["_Znwm", "_ZnwmRKSt9nothrow_t", "_ZdlPv"]);
    assert_eq!(look(&scratch.path().join("calls")).0, []);
}

#[test]
fn a_global_allocator_of_rust_without_c_entries_has_its_shims() {
    let scratch = TempDir::new().unwrap();
    fs::write(
        scratch.path().join("own.rs"),
        "use std::alloc::*; use std::sync::atomic::*;\n\
         struct Bump([u8; 1 << 20]); static mut HEAP: Bump = Bump([0; 1 << 20]); static NEXT: AtomicUsize = AtomicUsize::new(0);\n\
         // SAFETY: `GlobalAlloc` asks for blocks that are aligned, overlap no other one and\n\
         // stay valid. Each call takes the next `size + align` bytes of a static, of which the\n\
         // program needs far fewer than there are, and none is used again. Nothing panics.\n\
         unsafe impl GlobalAlloc for Bump {\n\
             unsafe fn alloc(&self, layout: Layout) -> *mut u8 {\n\
                 let at = NEXT.fetch_add(layout.size() + layout.align(), Ordering::Relaxed);\n\
                 // SAFETY: `add` requires a result inside of `HEAP`. The program needs far less\n\
                 // than its 1 MiB.\n\
                 unsafe { (&raw mut HEAP as *mut u8).add(at).map_addr(|a| a.next_multiple_of(layout.align())) }\n\
             }\n\
             unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}\n\
         }\n\
         #[global_allocator] static GLOBAL: Bump = Bump([0; 1 << 20]);\n\
         fn main() { let mut v = vec![String::from(\"a\")]; v.push(format!(\"{}\", v.len())); println!(\"{v:?}\"); }\n",
    )
    .unwrap();
    if run(scratch.path(), &["rustc", "-O", "own.rs"]).is_none() {
        return;
    }
    let allocator = only(&scratch.path().join("own"));
    assert_eq!(allocator.family, Family::RustShims);
    assert!(allocator.entries.len() >= 3, "{allocator:?}");
}
