//! The types of blocks, compared with programs that know them: `fixtures/types/truth.hpp` describes
//! how they declare them.
//!
//! An answer is right if it names the full type; an answer that is called exact must be right.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapledger_analysis::{Moment, Names, Profile, Selection};
use heapledger_block_types::{Confidence, Language, SiteSizes, SiteType, SizeCheck, TypeName};
use heapledger_recording::{NodeKind, Recording as File};
use heapledger_symbols::{ModuleRef, Symbolizer, SymbolizerOptions};

use crate::harness::{Job, Scratch, headers, installed, skipped};

/// The number of right and wrong answers about a program's sites.
#[derive(Default)]
pub(crate) struct Score {
    pub(crate) sites: usize,
    pub(crate) right: usize,
    /// Sites whose type is unknown.
    pub(crate) unknown: usize,
    pub(crate) wrong: Vec<String>,
    /// Wrong answers that were called exact.
    pub(crate) wrong_but_exact: Vec<String>,
    /// The number of right answers that were called exact.
    pub(crate) exact: usize,
}

impl Score {
    /// Returns the right answers per thousand sites.
    pub(crate) fn per_mille(&self) -> usize {
        self.right * 1000 / self.sites.max(1)
    }

    pub(crate) fn assert_at_least(&self, per_mille: usize, name: &str) {
        println!("{name}: {self}");
        assert!(self.wrong_but_exact.is_empty(), "{name}: {self:?}");
        assert!(self.sites > 0 && self.per_mille() >= per_mille, "{name}: {self:?}");
    }

    pub(crate) fn assert_none_wrong(&self, name: &str) {
        println!("{name}: {self}");
        assert!(self.sites > 0 && self.wrong.is_empty(), "{name}: {self:?}");
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sites, right, exact, unknown, wrong, .. } = self;
        write!(f, "{right} of {sites} sites right, {exact} exactly; {unknown} unknown; {} wrong", wrong.len())?;
        write!(f, ", {} of these called exact", self.wrong_but_exact.len())
    }
}

impl fmt::Debug for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{self}")?;
        self.wrong.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Asks for the types of all marked sites of a recording, with the debug information in these
/// directories.
pub(crate) fn score(recording: &Path, language: Language, debug_dirs: &[PathBuf]) -> Score {
    let bytes = fs::read(recording).unwrap();
    let file = File::open(&bytes).unwrap();
    let options = || SymbolizerOptions { debug_dirs: debug_dirs.to_vec(), ..SymbolizerOptions::default() };
    let mut names = Names::new(&file, Symbolizer::new(options()));
    let symbolizer = Symbolizer::new(options());
    let profile = Profile::load(&mut names, &Selection::at(Moment::Total), &mut |_, _| ()).unwrap();
    let mut score = Score::default();
    for site in &profile.sites {
        let scopes = profile.stacks.scopes(profile.stacks.context(site.stack));
        let texts = scopes.iter().filter_map(|scope| file.text(scope.name));
        let text =
            texts.map(|text| String::from_utf8_lossy(&text.bytes).into_owned()).find(|text| text.starts_with("truth "));
        let Some((place, answers)) = text.as_deref().and_then(|text| text.split_once('|')) else { continue };
        let frames: Vec<_> = profile.stacks.frames(site.stack).filter(|frame| frame.kind == NodeKind::Frame).collect();
        let stack: Vec<(ModuleRef<'_>, u64)> = frames
            .iter()
            .filter_map(|frame| {
                let module = file.module(frame.module)?;
                Some((ModuleRef { path: &module.path, build_id: &module.build_id }, frame.offset))
            })
            .collect();
        let inferred = names.typed(&profile.stacks, site.stack).inferred;
        let (found, sizes) = (inferred.site.clone(), inferred.sizes);
        let Some(right) = is_right(&found, answers, sizes, language) else { continue };
        score.sites += 1;
        let is_checked = found.size_check == SizeCheck::Consistent;
        assert!(found.confidence != Confidence::SizeConsistent || is_checked, "{found:?}");
        let exact = found.confidence == Confidence::Exact;
        if right {
            score.right += 1;
            score.exact += usize::from(exact);
            continue;
        }
        if is_unknown(&found) {
            score.unknown += 1;
            continue;
        }
        let at: Vec<String> = stack
            .iter()
            .flat_map(|&(module, offset)| {
                symbolizer.frames(module, offset).iter().map(ToOwned::to_owned).collect::<Vec<_>>()
            })
            .take(24)
            .map(|frame| frame.function.to_string())
            .collect();
        let line = format!("{place}: {answers}, {sizes:?}\n   found {found:?}\n   {}", at.join("\n   "));
        if exact {
            score.wrong_but_exact.push(line.clone());
        }
        score.wrong.push(line);
    }
    score
}

fn is_unknown(found: &SiteType) -> bool {
    found.block.is_none() && found.candidates.is_empty()
}

/// True if the type is one of the answers that the sizes allow. `None`: undecidable.
fn is_right(found: &SiteType, answers: &str, sizes: SiteSizes, language: Language) -> Option<bool> {
    let normal = |spelled: &str| without_numbers(TypeName::new(language, spelled).full());
    let answers: Vec<(&str, u64)> = answers
        .split('|')
        .map(|answer| {
            answer.rsplit_once(" @ ").map(|(name, size)| (name, size.trim_end_matches(" !").parse().unwrap())).unwrap()
        })
        .collect();
    if answers.iter().any(|(name, _)| *name == "?") {
        return None;
    }
    if let [("unknown", _)] = answers[..] {
        return Some(is_unknown(found));
    }
    // Arrays of elements with destructors begin with their length.
    let cookies = [0, 8 * sizes.blocks];
    let fits = |name: &str, size: u64| match name.starts_with('[') {
        true => cookies.iter().any(|cookies| sizes.bytes.saturating_sub(*cookies).is_multiple_of(size.max(1))),
        false => size == 1 || name.contains("Inner<[") || sizes.bytes == sizes.blocks * size,
    };
    let fitting: Vec<&(&str, u64)> = answers.iter().filter(|(name, size)| fits(name, *size)).collect();
    let is_among = |found: &TypeName| {
        let found = without_numbers(found.full());
        fitting.iter().any(|(name, _)| normal(name) == found)
    };
    Some(match found.confidence {
        Confidence::Ambiguous => found.candidates.iter().any(is_among),
        _ => found.block.as_ref().is_some_and(is_among),
    })
}

/// Removes the numbers of closures, which the languages choose differently: `{closure#1}`,
/// `{lambda(int)#1}`, `$_1`.
fn without_numbers(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some(at) = ["{closure", "{lambda", "$_"].iter().filter_map(|start| rest.find(start)).min() {
        let (before, closure) = rest.split_at(at);
        let end = match closure.starts_with('$') {
            true => closure[2..].find(|c: char| !c.is_ascii_digit()).map(|end| end + 2),
            false => closure.find('}').map(|end| end + 1),
        };
        out.push_str(before);
        out.push_str("{closure}");
        rest = &closure[end.unwrap_or(closure.len())..];
    }
    out + rest
}

/// Builds a truth program in Rust, with these options.
fn rust_program(scratch: &Scratch, name: &str, options: &[&str]) -> Option<PathBuf> {
    let sources = headers().join("../fixtures/types");
    let object = truth_object(scratch)?;
    let program = scratch.file(name);
    let mut compiler = Command::new("rustc");
    compiler.args(["--edition", "2021", "-A", "warnings", "-C", "opt-level=3"]).args(options);
    compiler.arg("-C").arg(format!("link-arg={}", object.display()));
    compiler.arg(sources.join(name).with_extension("rs")).arg("-o").arg(&program);
    run(&mut compiler)?;
    Some(program)
}

/// Compiles the code that marks sites.
fn truth_object(scratch: &Scratch) -> Option<PathBuf> {
    let object = scratch.file("truth.o");
    let mut compiler = Command::new("cc");
    let source = headers().join("../fixtures/types/truth.c");
    run(compiler.args(["-O1", "-c", "-I"]).arg(headers()).arg(source).arg("-o").arg(&object))?;
    Some(object)
}

fn run(command: &mut Command) -> Option<()> {
    match command.output() {
        Err(error) => {
            skipped(&format!("{command:?}: {error}"));
            None
        }
        Ok(done) => {
            assert!(done.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&done.stderr));
            Some(())
        }
    }
}

/// Scores a truth program in Rust, built with these options.
fn rust_score(name: &str, options: &[&str]) -> Option<Score> {
    let scratch = Scratch::new();
    let program = rust_program(&scratch, name, options)?;
    let (_, recording) = Job::new([program]).both(&scratch);
    recording.assert_whole();
    Some(score(&recording.path, Language::Rust, &[]))
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn rust_with_debug_information() {
    if let Some(score) = rust_score("containers", &["-C", "debuginfo=1"]) {
        score.assert_at_least(990, "containers, debug 1");
    }
}

#[test]
#[ignore = "builds two programs a dozen times, for some minutes: .ci/run full"]
fn rust_at_each_level() {
    const V0: &[&str] = &["-C", "symbol-mangling-version=v0"];
    const LTO: &[&str] = &["-C", "lto=fat"];
    const ONE_UNIT: &[&str] = &["-C", "codegen-units=1"];
    const OWN_ALLOCATOR: &[&str] = &["--cfg", "own_allocator"];
    let builds: [(&str, &[&str], usize); 13] = [
        ("debuginfo=2", &[], 990),
        ("debuginfo=2", V0, 990),
        ("debuginfo=1", &[], 990),
        ("debuginfo=1", V0, 990),
        ("debuginfo=line-tables-only", &[], 990),
        ("debuginfo=line-tables-only", V0, 990),
        ("debuginfo=2", LTO, 990),
        ("debuginfo=1", ONE_UNIT, 990),
        ("debuginfo=1", OWN_ALLOCATOR, 990),
        ("debuginfo=2", &["-C", "opt-level=0"], 990),
        ("debuginfo=1", &["-C", "opt-level=s"], 990),
        // Symbols only: inlined functions are unknown.
        ("debuginfo=0", V0, 400),
        // These symbols contain no types.
        ("debuginfo=0", &[], 0),
    ];
    for name in ["containers", "workload"] {
        for (level, more, least) in builds {
            let options = [&["-C", level], more].concat();
            let Some(score) = rust_score(name, &options) else { return };
            score.assert_at_least(least, &format!("{name} {options:?}"));
        }
    }
}

/// Containers of well-known crates, which call the allocator themselves, and containers made of
/// elements that are containers.
#[test]
#[ignore = "fetches and builds half a dozen crates, for a minute or two: .ci/run full"]
fn rust_containers_of_crates() {
    let scratch = Scratch::new();
    let Some(object) = truth_object(&scratch) else { return };
    for profile in ["release", "lto"] {
        let mut cargo = Command::new("cargo");
        cargo.args(["rustc", "--quiet", "--locked", "--profile", profile, "--target-dir"]).arg(scratch.path());
        cargo.arg("--manifest-path").arg(headers().join("../fixtures/types/crates/Cargo.toml"));
        let Some(()) = run(cargo.arg("--").arg("-C").arg(format!("link-arg={}", object.display()))) else { return };
        let (_, recording) = Job::new([scratch.path().join(profile).join("real_crates")]).both(&scratch);
        let score = score(&recording.path, Language::Rust, &[]);
        score.assert_none_wrong(profile);
        score.assert_at_least(950, profile);
    }
}

/// Scores a truth program in C or C++, built with these options.
fn c_score(compiler: &str, name: &str, options: &[&str]) -> Option<Score> {
    let scratch = Scratch::new();
    let program = c_program(&scratch, compiler, name, options)?;
    Some(recorded_score(&scratch, &program, name, &[]))
}

/// Builds a truth program in C or C++.
fn c_program(scratch: &Scratch, compiler: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
    let source = headers().join("../fixtures/types").join(name);
    let program = scratch.file(&format!("{name}.truth"));
    let mut command = Command::new(installed(compiler)?);
    command.arg(if name.ends_with(".c") { "-std=gnu11" } else { "-std=c++17" }).arg("-I").arg(headers());
    run(command.args(options).arg(source).arg("-o").arg(&program).current_dir(scratch.path()))?;
    Some(program)
}

fn recorded_score(scratch: &Scratch, program: &Path, name: &str, debug_dirs: &[PathBuf]) -> Score {
    let (_, recording) = Job::new([program]).both(scratch);
    recording.assert_whole();
    score(&recording.path, if name.ends_with(".c") { Language::C } else { Language::Cxx }, debug_dirs)
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn cxx_with_debug_information() {
    if let Some(score) = c_score("g++", "objects.cpp", &["-g", "-O2"]) {
        score.assert_at_least(970, "objects.cpp");
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn c_with_debug_information() {
    for compiler in ["gcc", "clang"] {
        if let Some(score) = c_score(compiler, "c_sites.c", &["-g", "-O2"]) {
            score.assert_at_least(970, "c_sites.c");
            assert_eq!(score.exact, 0, "{score:?}");
        }
    }
}

/// The functions of nested containers have the same code and the same callers as those of others.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn cxx_containers_within_containers() {
    if let Some(score) = c_score("clang++", "nested.cpp", &["-g", "-Os"]) {
        score.assert_at_least(1000, "nested.cpp");
    }
}

/// Without debug information there are fewer answers, but none of them is wrong.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn cxx_without_debug_information() {
    if let Some(score) = c_score("g++", "objects.cpp", &["-O2"]) {
        score.assert_none_wrong("objects.cpp");
    }
}

/// The C library's debug information describes types in its own functions: none of them is taken
/// for the type of a block of the program, and its own blocks are named as without it.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn c_with_debug_information_of_the_c_library() {
    let directory = PathBuf::from("/usr/lib/debug");
    if !directory.join(".build-id").exists() {
        return skipped("the debug information of the C library (Debian's libc6-dbg)");
    }
    let scratch = Scratch::new();
    for options in [&["-g", "-O2"][..], &["-g1", "-O2"]] {
        let Some(program) = c_program(&scratch, "gcc", "c_sites.c", options) else { return };
        let score = recorded_score(&scratch, &program, "c_sites.c", std::slice::from_ref(&directory));
        score.assert_none_wrong(&format!("c_sites.c {options:?}"));
    }
}

const CXX_AND_C: [&str; 4] = ["objects.cpp", "containers.cpp", "nested.cpp", "c_sites.c"];

/// Both compilers, with the lowest and highest optimisation, and with other forms of debug
/// information.
#[test]
#[ignore = "builds each program a dozen times, for five minutes or so: .ci/run full"]
fn cxx_and_c_however_built() {
    const WAYS: [&[&str]; 10] = [
        &["-g", "-O0"],
        &["-g", "-O1"],
        &["-g", "-O2"],
        &["-g", "-Os"],
        &["-g", "-O2", "-gdwarf-4"],
        &["-g", "-O2", "-fdebug-types-section"],
        &["-g", "-O2", "-gdwarf-4", "-fdebug-types-section"],
        &["-g", "-O2", "-gsplit-dwarf"],
        &["-g", "-O2", "-flto"],
        &["-g", "-O1", "-fPIE", "-fno-plt"],
    ];
    for name in CXX_AND_C {
        let compilers = if name.ends_with(".c") { ["gcc", "clang"] } else { ["g++", "clang++"] };
        for compiler in compilers {
            // Debian's clang has no linker plug-in.
            let ways = WAYS.into_iter().filter(|way| !compiler.starts_with("clang") || !way.contains(&"-flto"));
            for options in ways {
                let Some(score) = c_score(compiler, name, options) else { return };
                // Clang's type units lack the scope of a class that is in another one.
                let is_apart = compiler == "clang++" && options.contains(&"-fdebug-types-section");
                score.assert_at_least(if is_apart { 940 } else { 970 }, &format!("{compiler} {name} {options:?}"));
            }
        }
    }
}

/// With less debug information, or none, there are fewer answers, but none of them is wrong.
#[test]
#[ignore = "builds each program half a dozen times, for three minutes or so: .ci/run full"]
fn cxx_and_c_with_less_debug_information() {
    for name in CXX_AND_C {
        let compilers = if name.ends_with(".c") { ["gcc", "clang"] } else { ["g++", "clang++"] };
        for compiler in compilers {
            let tables: &[&str] = if compiler.starts_with("clang") { &["-gline-tables-only"] } else { &[] };
            for (options, level) in [(&["-g1"][..], "-g1"), (tables, "line tables"), (&[], "no debug information")] {
                for optimised in ["-O0", "-O2"] {
                    let Some(score) = c_score(compiler, name, &[options, &[optimised]].concat()) else { return };
                    score.assert_none_wrong(&format!("{compiler} {name} {optimised}, {level}"));
                }
            }
        }
    }
}

/// Debug information compressed by `dwz`, with the common parts of several files in a file of its
/// own.
#[test]
#[ignore = "builds each program, for half a minute: .ci/run full"]
fn cxx_and_c_with_debug_information_in_common() {
    let Some(dwz) = installed("dwz") else { return };
    let scratch = Scratch::new();
    let programs = CXX_AND_C.map(|name| {
        let compiler = if name.ends_with(".c") { "gcc" } else { "g++" };
        c_program(&scratch, compiler, name, &["-g", "-O2"])
    });
    let Some(programs) = programs.into_iter().collect::<Option<Vec<_>>>() else { return };
    let common = scratch.file("common.debug");
    let Some(()) = run(Command::new(dwz).arg("-m").arg(&common).args(&programs)) else { return };
    assert!(common.exists());
    for (name, program) in CXX_AND_C.into_iter().zip(&programs) {
        recorded_score(&scratch, program, name, &[]).assert_at_least(970, &format!("{name}, dwz -m"));
    }
}
