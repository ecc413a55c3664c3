//! Types at addresses, from small programs with known source.

#[path = "../../symbols/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;

use heapledger_block_types::{Language, TypeFinder, TypedFrame};
use support::{Scratch, Subject, extent};

const CXX: &str = r#"
extern "C" void *malloc(unsigned long);
namespace space {
struct Point { int x, y, z; };
template <typename T> struct Outer {
    template <typename U> struct Allocator {
        // No compiler makes a function of this, or of what calls it.
        __attribute__((always_inline)) T *allocate(unsigned long n) { return (T *)malloc(n * sizeof(T) + sizeof(U)); }
    };
    template <typename V> __attribute__((noinline)) T *make(V n) { return Allocator<short>().allocate(n); }
};
}
void *volatile sink;
int main(int argc, char **) {
    space::Outer<space::Point> outer;
    sink = outer.make<long>(argc);
}
"#;

/// Returns all distinct answers in the function whose raw name satisfies `wanted`.
fn typed_in(subject: &Subject, file: &Path, wanted: impl Fn(&str) -> bool) -> Vec<Arc<[TypedFrame]>> {
    let (start, size) = extent(file, wanted);
    let finder = TypeFinder::new(subject.symbolizer.clone());
    let mut answers: Vec<Arc<[TypedFrame]>> = Vec::new();
    for offset in start..start + size {
        let frames = finder.typed_frames(subject.module(), offset);
        if !answers.contains(&frames) {
            answers.push(frames);
        }
    }
    answers
}

fn parameters(frame: &TypedFrame) -> Vec<(&str, &str, Option<u64>, bool)> {
    let each = frame.parameters.iter();
    each.map(|each| (&*each.name, each.type_name.full(), each.size, each.of_class)).collect()
}

fn cxx_program(scratch: &Scratch, compiler: &str, flags: &[&str]) {
    scratch.write("app.cc", CXX);
    let mut arguments = vec!["-O2", "-o", "app", "app.cc"];
    arguments.extend(flags);
    if !scratch.run(compiler, &arguments) {
        return;
    }
    let program = scratch.path("app");
    let subject = Subject::new(&program);
    let answers = typed_in(&subject, &program, |name| name.contains("4make"));
    let found = answers.iter().find(|frames| frames.len() == 2);
    let [allocate, make] = &**found.unwrap_or_else(|| panic!("{compiler} {flags:?}: {answers:#?}")) else { panic!() };
    assert_eq!((allocate.language, allocate.inlined), (Language::Cxx, true));
    assert_eq!(allocate.plain.as_deref(), Some("allocate"));
    let class = [("U", "short", Some(2), true), ("T", "space::Point", Some(12), true)];
    let class = class.map(|(name, full, size, of_class)| (name, full.to_owned(), size, of_class));
    let spelled = |frame| -> Vec<_> {
        let each = parameters(frame).into_iter();
        each.map(|(name, full, size, of_class)| (name.to_owned(), full.replace(" int", ""), size, of_class)).collect()
    };
    assert_eq!(spelled(allocate), class.map(|(name, full, size, of_class)| (name.to_owned(), full, size, of_class)));
    let scope = allocate.scope.as_deref().unwrap();
    assert!(scope.starts_with("space::Outer<space::Point>::Allocator<short"), "{scope}");
    assert_eq!(make.plain.as_deref(), Some("make<long int>").filter(|_| compiler == "g++").or(Some("make<long>")));
    assert_eq!(
        spelled(make),
        [
            ("V".to_owned(), "long".to_owned(), Some(8), false),
            ("T".to_owned(), "space::Point".to_owned(), Some(12), true)
        ]
    );
    assert_eq!(make.aliases.len(), 1);
}

#[test]
fn template_parameters_of_functions_and_classes() {
    let scratch = Scratch::new();
    for compiler in ["g++", "clang++"] {
        for flags in [&["-g"][..], &["-g", "-gdwarf-4"], &["-g", "-gsplit-dwarf"]] {
            cxx_program(&scratch, compiler, flags);
        }
    }
    // Type units have their classes elsewhere in the file.
    cxx_program(&scratch, "g++", &["-g", "-fdebug-types-section"]);
}

const RUST: &str = r#"
pub struct Foo(u64, u32);
#[inline(never)]
pub fn grow(list: &mut Vec<Foo>, count: usize) { for at in 0..count { list.push(Foo(at as u64, 7)); } }
#[inline(never)]
pub fn boxed(value: u64) -> Box<Foo> { Box::new(Foo(value, 7)) }
fn main() {
    let mut list = Vec::new();
    grow(&mut list, std::env::args().count());
    println!("{} {}", boxed(list[0].0).1, list.len());
}
"#;

#[test]
fn type_arguments_of_rust_at_each_level() {
    if !support::installed("rustc") {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("app.rs", RUST);
    for (level, mangling) in [("2", "legacy"), ("2", "v0"), ("1", "legacy"), ("line-tables-only", "v0"), ("0", "v0")] {
        let (debug, mangling) = (format!("debuginfo={level}"), format!("symbol-mangling-version={mangling}"));
        let mut arguments = vec!["-O", "-C", &debug, "-C", "codegen-units=1", "-o", "app", "app.rs"];
        if !mangling.ends_with("legacy") {
            arguments.extend(["-C", &mangling]);
        }
        if !scratch.run("rustc", &arguments) {
            return;
        }
        let program = scratch.path("app");
        let subject = Subject::new(&program);
        let answers = typed_in(&subject, &program, |name| name.contains("3app4grow"));
        let push = answers.iter().flat_map(|frames| frames.iter()).find(|frame| frame.name.contains("push"));
        if level == "0" {
            assert!(push.is_none());
            let grow_one = typed_in(&subject, &program, |name| name.contains("3Foo") && name.contains("grow_one"));
            assert_eq!(&*grow_one[0][0].name, "<alloc::raw_vec::RawVec<app::Foo>>::grow_one");
            continue;
        }
        let push = push.unwrap_or_else(|| panic!("{level} {mangling}: {answers:#?}"));
        assert_eq!(
            push.plain.as_deref().map(|name| name.replace("_mut", "")).as_deref(),
            Some("push<app::Foo, alloc::alloc::Global>")
        );
        assert_eq!((push.language, push.inlined), (Language::Rust, true));
        assert!(push.file.as_deref().unwrap().ends_with("/alloc/src/vec/mod.rs"), "{push:?}");
        if level == "2" {
            let expected = [("T", "app::Foo", Some(16), false), ("A", "alloc::alloc::Global", Some(0), false)];
            assert_eq!(parameters(push), expected, "{mangling}");
        }
    }
}
