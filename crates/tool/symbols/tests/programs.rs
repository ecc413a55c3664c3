//! Small programs with known source: names, files, lines and inlining, at each level of debug
//! information.

mod support;

use heapledger_symbols::{DebugInfo, Extent, NameSource};
use support::{Scratch, Subject, assert_chain, chain, extent, line_of};

const C: &str = r#"
extern void *malloc(unsigned long);
void *volatile sink;

static inline __attribute__((always_inline)) void *inner(unsigned long size) {
    void *block = malloc(size); /* in inner */
    sink = block;
    return block;
}

static inline __attribute__((always_inline)) void *middle(unsigned long size) {
    return inner(size * 2); /* in middle */
}

__attribute__((noinline)) static void *hidden(unsigned long size) {
    void *block = malloc(size + 1); /* in hidden */
    sink = block;
    return (char *)block + 1;
}

__attribute__((noinline, visibility("default"))) void *outer(unsigned long size) {
    char *block = middle(size + 3); /* in outer */
    return block + (unsigned long)hidden(size);
}
"#;

const C_MAIN: &str = "void *outer(unsigned long);\nint main(void) { return outer(7) == 0; }\n";

fn c_program(scratch: &Scratch, name: &str, flags: &[&str]) -> bool {
    scratch.write("lib.c", C);
    scratch.write("main.c", C_MAIN);
    let mut arguments = vec!["-O2", "-o", name, "lib.c", "main.c", "-Wl,--build-id=sha1"];
    arguments.extend(flags);
    scratch.run("cc", &arguments)
}

#[test]
fn c_with_debug_information() {
    let scratch = Scratch::new();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        if !c_program(&scratch, "program", &["-g", version]) {
            return;
        }
        let program = scratch.path("program");
        let subject = Subject::new(&program);
        let answers = subject.answers_in(&program, "outer");
        let lines = |text| line_of(C, text);
        let expected = [
            format!("inner:{}", lines("/* in inner */")),
            format!("middle:{}", lines("/* in middle */")),
            format!("outer:{}", lines("/* in outer */")),
        ];
        assert_chain(&answers, &expected, "lib.c");
        let answers = subject.answers_in(&program, "hidden");
        assert_chain(&answers, &[format!("hidden:{}", lines("/* in hidden */"))], "lib.c");
        assert!(answers.iter().flat_map(|frames| frames.iter()).all(|frame| frame.source == NameSource::Debug));
        assert!(answers[0][0].column.is_some());

        let state = subject.state();
        assert_eq!((state.debug, state.problems.len(), state.names.symbols), (DebugInfo::Full, 0, 0));
        assert_eq!(state.file.as_deref(), Some(&*program));
        assert_eq!(subject.hint(), None);
    }
}

#[test]
fn c_without_debug_information() {
    let scratch = Scratch::new();
    if !c_program(&scratch, "program", &[]) {
        return;
    }
    let program = scratch.path("program");
    let subject = Subject::new(&program);
    for name in ["outer", "hidden", "main"] {
        let answers = subject.answers_in(&program, name);
        let [frames] = &*answers else { panic!("{answers:?}") };
        assert_eq!(chain(frames), [format!("{name}:0")]);
        assert_eq!((frames[0].source, &frames[0].file), (NameSource::SymbolTable, &None));
    }
    assert_eq!(subject.state().debug, DebugInfo::SymbolsOnly);
    let hint = subject.hint().unwrap();
    assert!(hint.starts_with("program: build it with debug information"), "{hint}");
}

#[test]
fn stripped() {
    let scratch = Scratch::new();
    if !c_program(&scratch, "program", &["-g"])
        || !scratch.run("cc", &["-O2", "-shared", "-fPIC", "-o", "lib.so", "lib.c"])
        || !scratch.run("strip", &["-o", "program.stripped", "program"])
        || !scratch.run("strip", &["-o", "lib.stripped.so", "lib.so"])
    {
        return;
    }
    // A program exports nothing.
    let subject = Subject::new(scratch.path("program.stripped"));
    let (hidden, size) = extent(&scratch.path("program"), |name| name == "hidden");
    for offset in [hidden, hidden + 1, hidden + size - 1] {
        let frames = subject.frames(offset);
        assert_eq!(frames[0].function.full(), format!("program.stripped+{hidden:#x}"));
        assert_eq!((frames.len(), frames[0].source), (1, NameSource::None));
    }
    assert_eq!(subject.state().debug, DebugInfo::Missing);

    // A library has its exported names, and other functions are not mistaken for them.
    let library = scratch.path("lib.so");
    let subject = Subject::new(scratch.path("lib.stripped.so"));
    let (outer, size) = extent(&library, |name| name == "outer");
    for offset in [outer, outer + size - 1] {
        let frames = subject.frames(offset);
        assert_eq!((frames[0].function.full(), frames[0].source), ("outer", NameSource::SymbolTable));
    }
    let (hidden, size) = extent(&library, |name| name == "hidden");
    let frames = subject.frames(hidden);
    assert_eq!(frames[0].function.full(), format!("lib.stripped.so+{hidden:#x}"));
    // Its neighbour is the one function that has a name.
    let function = subject.symbolizer.extents(subject.module(), &[hidden + 1, 0]);
    assert_eq!(function, [Some(Extent { start: hidden, size }), None]);
    let [after, before] = subject.symbolizer.neighbours(subject.module(), function[0].unwrap());
    let neighbours = if outer < hidden { [after, before] } else { [before, after] };
    let neighbours = neighbours.map(|function| function.map(|function| function.full().to_owned()));
    assert_eq!(neighbours, [Some("outer".to_owned()), None]);
    let state = subject.state();
    assert_eq!((state.debug, state.names.symbols, state.names.none), (DebugInfo::ExportsOnly, 2, 1));
}

#[test]
fn partly_with_debug_information() {
    let scratch = Scratch::new();
    scratch.write("lib.c", C);
    scratch.write("main.c", C_MAIN);
    if !scratch.run("cc", &["-O2", "-c", "lib.c"])
        || !scratch.run("cc", &["-O2", "-g", "-o", "program", "main.c", "lib.o"])
    {
        return;
    }
    let program = scratch.path("program");
    let subject = Subject::new(&program);
    assert_eq!(subject.answers_in(&program, "outer")[0][0].source, NameSource::SymbolTable);
    assert_eq!(subject.answers_in(&program, "main")[0][0].source, NameSource::Debug);
    assert_eq!(subject.state().debug, DebugInfo::Full);
    let hint = subject.hint().unwrap();
    assert!(hint.contains("addresses are in parts built without debug information"), "{hint}");
}

#[test]
fn assembly_without_extent() {
    let scratch = Scratch::new();
    // `routine` is a label without type and size, as in hand-written code.
    scratch.write(
        "code.s",
        ".text\n.globl routine\nroutine:\n nop\n nop\n nop\n ret\n.section .other,\"ax\"\n nop\n nop\n",
    );
    if !scratch.run("cc", &["-shared", "-nostdlib", "-o", "code.so", "code.s"]) {
        return;
    }
    let library = scratch.path("code.so");
    let data = std::fs::read(&library).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    use object::{Object, ObjectSection, ObjectSymbol};
    let routine = elf.symbols().find(|symbol| symbol.name() == Ok("routine")).unwrap().address();
    let other = elf.section_by_name(".other").unwrap().address();
    let subject = Subject::new(&library);
    let frames = subject.frames(routine + 2);
    assert_eq!((frames[0].function.full(), frames[0].source), ("routine", NameSource::Nearest));
    assert_eq!(subject.frames(other + 1)[0].source, NameSource::None);
}

const CPP: &str = r#"
#include <vector>

void *volatile sink;

namespace space {

struct Item { long a, b; };

static __attribute__((noinline)) int local(std::vector<Item> &items) {
    items.reserve(items.size() + 10); // in local
    return items.size();
}

template <typename T> struct Box {
    T *block;
    __attribute__((noinline)) explicit Box(T value) {
        block = new T(value); // in Box
        sink = this;
    }
};

template <typename T, int N> __attribute__((noinline)) T pick(T value) {
    T *block = new T[N]; // in pick
    block[0] = value;
    sink = block;
    return block[N - 1];
}

} // namespace space

int main(int argc, char **) {
    std::vector<space::Item> items;
    space::Box<int> box(argc);
    auto lambda = [&](int value) __attribute__((noinline)) { return *new int(value) + argc; };
    return space::local(items) + *box.block + space::pick<long, 3>(argc) + lambda(argc);
}
"#;

#[test]
fn cpp_templates() {
    let scratch = Scratch::new();
    scratch.write("code.cpp", CPP);
    if !scratch.run("c++", &["-g", "-O2", "-o", "program", "code.cpp"])
        || !scratch.run("objcopy", &["--strip-debug", "program", "program.nodebug"])
    {
        return;
    }
    let program = scratch.path("program");
    let subject = Subject::new(&program);
    let expected = [
        ("_ZN5space4pickIlLi3EEET_S1_", "long space::pick<long, 3>(long)", "space::pick", "// in pick"),
        ("_ZN5space3BoxIiEC2Ei", "space::Box<int>::Box(int)", "space::Box::Box", "// in Box"),
    ];
    for (raw, full, short, text) in expected {
        let answers = subject.answers_in(&program, raw);
        assert_chain(&answers, &[format!("{short}:{}", line_of(CPP, text))], "code.cpp");
        let function = &answers[0].last().unwrap().function;
        assert_eq!((function.full(), function.linkage()), (full, Some(raw)));
    }
    // gcc writes no linkage name for a local function, so the scope comes from the symbol table.
    let (start, _) = extent(&program, |name| name.contains("5spaceL5local"));
    let frames = subject.frames(start);
    let function = &frames.last().unwrap().function;
    assert_eq!(function.short(), "space::local");
    assert!(function.full().starts_with("space::local(std::vector<space::Item, "), "{function}");
    // A part of vector is inlined into it.
    let raw = function.linkage().unwrap();
    let answers = subject.answers_in(&program, raw);
    let reserve = answers.iter().find(|frames| frames.len() > 1 && frames[0].function.full().contains("vector"));
    let reserve = reserve.unwrap_or_else(|| panic!("{answers:#?}"));
    assert!(reserve.iter().any(|frame| frame.function.short() == "std::vector::reserve"), "{reserve:#?}");
    assert_eq!(reserve.last().unwrap().line, Some(line_of(CPP, "// in local")));
    // The lambda.
    let (start, _) = extent(&program, |name| name.contains("clEi"));
    let frames = subject.frames(start);
    assert_eq!(frames.last().unwrap().function.short(), "main::{lambda(int)#1}::operator()");

    // The same names, from the symbol table only.
    let bare = Subject::new(scratch.path("program.nodebug"));
    let frames = bare.frames(start);
    assert_eq!(frames[0].function.short(), "main::{lambda(int)#1}::operator()");
    assert_eq!(frames[0].source, NameSource::SymbolTable);
}

const RUST: &str = r#"
use std::hint::black_box;

struct Foo(u64, u64);

#[inline(always)]
fn fill<T>(items: &mut Vec<T>, item: T) {
    items.push(item); // in fill
}

#[inline(never)]
fn collect<T>(item: T) -> Vec<T> {
    let mut items = Vec::new();
    fill(&mut items, item); // in collect
    black_box(items)
}

trait Shape {
    fn area(&self) -> Vec<u8>;
}

impl Shape for Foo {
    #[inline(never)]
    fn area(&self) -> Vec<u8> {
        black_box(vec![1; self.0 as usize]) // in area
    }
}

fn main() {
    let items = collect(Foo(black_box(1), 2));
    let lengths = collect(items[0].area().len());
    let add = |extra: usize| black_box(Box::new(lengths[0] + extra));
    println!("{}", add(items[0].1 as usize));
}
"#;

#[test]
fn rust_programs() {
    if !support::installed("rustc") {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("app.rs", RUST);
    for level in ["2", "1", "line-tables-only", "0"] {
        for mangling in ["legacy", "v0"] {
            rust_program(&scratch, &format!("debuginfo={level}"), mangling);
        }
    }
}

fn rust_program(scratch: &Scratch, level: &str, mangling: &str) {
    let name = format!("app-{}-{mangling}", level.trim_start_matches("debuginfo="));
    let mut arguments = vec!["-O", "-C", level, "-C", "codegen-units=1", "-o", &name, "--crate-name", "app", "app.rs"];
    if mangling == "v0" {
        arguments.extend(["-C", "symbol-mangling-version=v0"]);
    }
    if !scratch.run("rustc", &arguments) {
        return;
    }
    let program = scratch.path(&name);
    let subject = Subject::new(&program);
    let has_lines = level != "debuginfo=0";

    let (area, size) = extent(&program, |raw| raw.contains("app") && raw.contains("4area"));
    let physical = subject.frames(area).last().unwrap().clone();
    let names = (physical.function.full(), physical.function.short());
    assert_eq!(names, ("<app::Foo as app::Shape>::area", "app::Foo::area"), "{name}");
    assert_eq!(physical.source == NameSource::Debug, has_lines, "{name}");
    if has_lines {
        let line = Some(line_of(RUST, "// in area"));
        let hit = (area..area + size).find(|&offset| subject.frames(offset).last().unwrap().line == line);
        let frames = subject.frames(hit.unwrap_or_else(|| panic!("{name}: no such line")));
        assert!(frames.last().unwrap().file.as_deref().unwrap().ends_with("/app.rs"), "{name}: {frames:?}");
    }

    let (collect, size) = extent(&program, |raw| raw.contains("7collect") && raw.contains("app"));
    let frames: Vec<_> = (collect..collect + size).map(|offset| subject.frames(offset)).collect();
    let physical = &frames[0].last().unwrap().function;
    assert_eq!(physical.short(), "app::collect", "{name}");
    assert!(physical.linkage().is_some(), "{name}: {physical}");
    // Legacy names have no types; debug information of any level has.
    if mangling == "legacy" && !has_lines {
        assert_eq!(physical.full(), "app::collect");
    } else {
        assert!(["app::collect::<app::Foo>", "app::collect::<usize>"].contains(&physical.full()), "{name}: {physical}");
    }
    let inlined = frames.iter().find(|frames| {
        let short: Vec<_> = frames.iter().map(|frame| frame.function.short().rsplit("::").next().unwrap()).collect();
        short.ends_with(&["push", "fill", "collect"])
    });
    assert_eq!(inlined.is_some(), has_lines, "{name}");
    if let Some(frames) = inlined {
        let [.., push, fill, collect] = &**frames else { unreachable!() };
        assert!(push.file.as_deref().unwrap().ends_with("library/alloc/src/vec/mod.rs"), "{name}: {push:?}");
        assert_eq!(fill.line, Some(line_of(RUST, "// in fill")), "{name}");
        assert_eq!(collect.line, Some(line_of(RUST, "// in collect")), "{name}");
        assert!(push.inlined && fill.inlined && !collect.inlined);
        // At each level, the name of the inlined function has the type.
        assert!(fill.function.full().contains("<app::Foo>") || fill.function.full().contains("<usize>"), "{fill:?}");
    }
    // User code without debug information: the standard library has its own, so this shows only per
    // address.
    if !has_lines {
        let state = subject.state();
        assert_eq!(state.names.debug, 0, "{name}");
        if state.debug == DebugInfo::Full {
            assert!(subject.hint().unwrap().contains("without debug information"));
        }
    }
}
