//! Tests which files are used for a module, and which problems are reported about the others.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use heapledger_symbols::{BuildId, DebugInfo, ModuleRef, NameSource, Problem, Symbolizer, SymbolizerOptions};
use support::{Scratch, Subject, build_id, chain, extent, line_of};

const SOURCE: &str = "
extern void *malloc(unsigned long);
void *volatile sink;
static inline __attribute__((always_inline)) void *inner(unsigned long size) {
    return malloc(size); /* in inner */
}
__attribute__((noinline)) void *outer(unsigned long size) {
    sink = inner(size + 1); /* in outer */
    return 0;
}
int main(void) { return outer(7) != 0; }
";

/// A stripped program in `bin/`, with its debug information in `program.debug`.
struct Split {
    scratch: Scratch,
    program: PathBuf,
    debug: PathBuf,
    build_id: Vec<u8>,
    /// The beginning of `outer`.
    outer: u64,
    /// An address where `inner` is inlined into `outer`.
    inlined: u64,
}

impl Split {
    fn new(flags: &[&str]) -> Option<Self> {
        let scratch = Scratch::new();
        scratch.write("code.c", SOURCE);
        fs::create_dir(scratch.path("bin")).unwrap();
        let mut arguments = vec!["-g", "-O2", "-Wl,--build-id=sha1", "-o", "full", "code.c"];
        arguments.extend(flags);
        let made = scratch.run("cc", &arguments)
            && scratch.run("objcopy", &["--only-keep-debug", "full", "program.debug"])
            && scratch.run("strip", &["-o", "bin/program", "full"]);
        if !made {
            return None;
        }
        let full = scratch.path("full");
        let subject = Subject::new(&full);
        let (outer, size) = extent(&full, |name| name == "outer");
        let inlined = (outer..outer + size).find(|&offset| subject.frames(offset).len() == 2).unwrap();
        assert!(inlined > outer);
        let build_id = build_id(&full);
        fs::remove_file(full).unwrap();
        let (program, debug) = (scratch.path("bin/program"), scratch.path("program.debug"));
        Some(Self { scratch, program, debug, build_id, outer, inlined })
    }

    #[must_use]
    fn link(&self) -> bool {
        self.scratch.run("objcopy", &["--add-gnu-debuglink=program.debug", "bin/program"])
    }

    fn move_debug(&self, to: &str) -> PathBuf {
        let to = self.scratch.path(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(&self.debug, &to).unwrap();
        to
    }

    /// Returns the path of the debug file by build id, below the directory `usr/lib/debug`.
    fn by_build_id(&self) -> String {
        let hex = BuildId(self.build_id.as_slice().into()).to_string();
        format!("usr/lib/debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..])
    }

    fn options(&self) -> SymbolizerOptions {
        SymbolizerOptions { debug_dirs: vec![self.scratch.path("usr/lib/debug")], ..SymbolizerOptions::default() }
    }

    fn subject(&self) -> Subject {
        Subject::with(&self.program, self.options())
    }

    #[track_caller]
    fn assert_found(&self, subject: &Subject, debug_file: Option<PathBuf>) {
        let frames = subject.frames(self.inlined);
        let expected = [("inner", "/* in inner */"), ("outer", "/* in outer */")];
        let expected = expected.map(|(name, text)| format!("{name}:{}", line_of(SOURCE, text)));
        let state = subject.state();
        assert_eq!(chain(&frames), expected, "{state:?}");
        assert_eq!((state.debug, state.debug_file), (DebugInfo::Full, debug_file));
        assert_eq!(subject.hint(), None);
    }

    /// Asserts that there is no debug information: the unwind information of the program tells the
    /// beginning of the function, if the program is there.
    #[track_caller]
    fn assert_not_found(&self, subject: &Subject) {
        let frames = subject.frames(self.inlined);
        let told = if subject.state().file.is_some() { self.outer } else { self.inlined };
        assert_eq!(chain(&frames), [format!("program+{told:#x}:0")]);
        assert_eq!((subject.state().debug, subject.state().debug_file), (DebugInfo::Missing, None));
    }
}

#[test]
fn debug_link() {
    for place in ["bin/program.debug", "bin/.debug/program.debug", "under the debug directory"] {
        let Some(split) = Split::new(&[]) else { return };
        if !split.link() {
            return;
        }
        let to = if place.contains(' ') {
            format!("usr/lib/debug{}/program.debug", split.program.parent().unwrap().display())
        } else {
            place.to_owned()
        };
        split.assert_not_found(&split.subject());
        let debug = split.move_debug(&to);
        let subject = split.subject();
        split.assert_found(&subject, Some(debug));
        assert_eq!(subject.state().problems, []);
    }
}

#[test]
fn debug_link_without_build_id() {
    let Some(split) = Split::new(&["-Wl,--build-id=none"]) else { return };
    if !split.link() {
        return;
    }
    assert_eq!(split.build_id, []);
    let debug = split.move_debug("bin/program.debug");
    split.assert_found(&split.subject(), Some(debug.clone()));
    // Another file with that name.
    let mut bytes = fs::read(&debug).unwrap();
    bytes.push(0);
    fs::write(&debug, bytes).unwrap();
    let subject = split.subject();
    split.assert_not_found(&subject);
    assert_eq!(subject.state().problems, [Problem::DebugFileMismatch { file: debug }]);
    assert!(subject.hint().unwrap().ends_with("program.debug is of another build"));
}

#[test]
fn build_id_directory() {
    let Some(split) = Split::new(&[]) else { return };
    let debug = split.move_debug(&split.by_build_id());
    split.assert_found(&split.subject(), Some(debug.clone()));

    // The debug file is enough, if the program is gone.
    fs::remove_file(&split.program).unwrap();
    let mut subject = split.subject();
    split.assert_not_found(&subject);
    subject.build_id = split.build_id.clone();
    split.assert_found(&subject, Some(debug.clone()));
    assert_eq!(subject.state().file, None);

    // A wrong file in the right place.
    fs::write(&debug, fs::read("/proc/self/exe").unwrap()).unwrap();
    let mut subject = split.subject();
    subject.build_id = split.build_id.clone();
    split.assert_not_found(&subject);
}

#[test]
fn compressed_debug_information() {
    for kind in ["zlib", "zlib-gnu", "zstd"] {
        let Some(split) = Split::new(&[]) else { return };
        if kind == "zstd" && !zstd_supported(&split.scratch) {
            support::not_here("objcopy cannot compress with zstd");
            continue;
        }
        let option = format!("--compress-debug-sections={kind}");
        if !split.scratch.run("objcopy", &[&option, "program.debug"]) {
            return;
        }
        let debug = split.move_debug(&split.by_build_id());
        split.assert_found(&split.subject(), Some(debug));
    }
}

fn zstd_supported(scratch: &Scratch) -> bool {
    let mut objcopy = std::process::Command::new("objcopy");
    objcopy.args(["--compress-debug-sections=zstd", "program.debug", "trial"]).current_dir(scratch.path(""));
    objcopy.output().is_ok_and(|output| output.status.success())
}

#[test]
fn other_build() {
    let Some(split) = Split::new(&[]) else { return };
    let mut subject = split.subject();
    subject.build_id = vec![0xab; 20];
    let frames = subject.frames(split.inlined);
    assert_eq!(
        (frames[0].function.short(), frames[0].source),
        (&*format!("program+{:#x}", split.inlined), NameSource::None)
    );
    let state = subject.state();
    assert_eq!((&state.file, state.debug), (&None, DebugInfo::Missing));
    let expected = BuildId(vec![0xab; 20].into());
    let found = Some(BuildId(split.build_id.as_slice().into()));
    assert_eq!(state.problems, [Problem::BuildIdMismatch { file: split.program.clone(), expected, found }]);
    assert!(state.problems[0].to_string().contains("is another build than the one recorded (build id "));
    assert!(subject.hint().unwrap().contains("has changed since the recording"));

    // The recorded build's debug file is used, whatever is at the path now.
    let debug = split.move_debug(&split.by_build_id());
    fs::copy("/proc/self/exe", &split.program).unwrap();
    let mut subject = split.subject();
    subject.build_id = split.build_id.clone();
    split.assert_found(&subject, Some(debug));
    assert_eq!(subject.state().file, None);
    assert!(matches!(subject.state().problems[..], [Problem::BuildIdMismatch { .. }]));
}

#[test]
fn other_file_system_root() {
    let Some(split) = Split::new(&[]) else { return };
    if !split.link() {
        return;
    }
    let root = split.scratch.path("");
    let options = SymbolizerOptions { sysroot: Some(root), ..SymbolizerOptions::default() };
    // Recorded as /bin/program; this system's /bin has none.
    let debug = split.move_debug("usr/lib/debug/bin/program.debug");
    let subject = Subject::with("/bin/program", options.clone());
    split.assert_found(&subject, Some(debug));
    assert_eq!(subject.state().file.as_ref(), Some(&split.program));
    // A file of this system is used for one of the other only if its build id agrees.
    let outside = Scratch::new();
    let other = outside.path("program");
    fs::copy(&split.program, &other).unwrap();
    let mut subject = Subject::with(&other, options);
    split.assert_not_found(&subject);
    subject.build_id = split.build_id.clone();
    assert_eq!(subject.state().file, Some(other));
}

#[test]
fn common_debug_information() {
    let Some(split) = Split::new(&["-DFIRST"]) else { return };
    if !support::installed("dwz") {
        return;
    }
    // dwz moves the parts that are equal in two files into a third.
    let scratch = &split.scratch;
    let made = scratch.run("cc", &["-g", "-O2", "-Wl,--build-id=sha1", "-DSECOND", "-o", "second", "code.c"])
        && scratch.run("objcopy", &["--only-keep-debug", "second", "second.debug"])
        && scratch.run("dwz", &["-m", "common.debug", "-M", "common.debug", "program.debug", "second.debug"]);
    if !made {
        return;
    }
    fs::create_dir_all(scratch.path("usr/lib/debug/.build-id")).unwrap();
    let id = split.by_build_id();
    let link = scratch.path(&id);
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(&split.debug, &link).unwrap();
    split.assert_found(&split.subject(), Some(link.clone()));
    fs::remove_file(scratch.path("common.debug")).unwrap();
    let subject = split.subject();
    assert!(!subject.frames(split.inlined).is_empty());
    assert_eq!(subject.state().problems, [Problem::SupplementaryMissing { file: "common.debug".into() }]);
}

/// The same as `common_debug_information`, with the references to the common file written by hand,
/// so that it needs no `dwz`.
#[test]
fn common_debug_information_by_hand() {
    let scratch = Scratch::new();
    let common = "
        .section .debug_abbrev\n .uleb128 1, 0x11\n .byte 1\n .uleb128 0, 0
        .uleb128 2, 0x2e\n .byte 0\n .uleb128 3, 8, 0, 0\n .byte 0
        .section .debug_info\n .long 2f-1f\n1: .short 4\n .long 0\n .byte 8\n .uleb128 1
        .uleb128 2\n .asciz \"shared_name\"\n .byte 0\n2:\n";
    // One function, whose abstract origin is in the common file: DW_FORM_GNU_ref_alt (0x1f20), at
    // offset 12.
    let program = "
        .text\n .globl code\ncode: nop\n nop\n ret\nend:
        .section .debug_abbrev\n .uleb128 1, 0x11\n .byte 1\n .uleb128 0x11, 1, 0x12, 7, 0, 0
        .uleb128 2, 0x2e\n .byte 0\n .uleb128 0x11, 1, 0x12, 7, 0x31, 0x1f20, 0, 0\n .byte 0
        .section .debug_info\n .long 2f-1f\n1: .short 4\n .long 0\n .byte 8
        .uleb128 1\n .quad code, end - code
        .uleb128 2\n .quad code, end - code\n .long 12\n .byte 0\n2:
        .section .gnu_debugaltlink\n .asciz \"common/file\"\n .fill 20, 1, 0xcd\n";
    scratch.write("common.s", common);
    scratch.write("program.s", program);
    fs::create_dir(scratch.path("common")).unwrap();
    let link = ["-shared", "-nostdlib", "-o"];
    let id = "cd".repeat(20);
    let made = scratch
        .run("cc", &[&link[..], &["common/file", "common.s", &format!("-Wl,--build-id=0x{id}")]].concat())
        && scratch.run("cc", &[&link[..], &["program.so", "program.s"]].concat());
    if !made {
        return;
    }
    let library = scratch.path("program.so");
    let data = fs::read(&library).unwrap();
    use object::{Object, ObjectSymbol};
    let elf = object::File::parse(&*data).unwrap();
    let code = elf.symbols().find(|symbol| symbol.name() == Ok("code")).unwrap().address();
    let subject = Subject::new(&library);
    assert_eq!(subject.frames(code + 1)[0].function.full(), "shared_name");
    assert_eq!(subject.state().problems, []);
    // The file is missing.
    fs::rename(scratch.path("common"), scratch.path("elsewhere")).unwrap();
    let subject = Subject::new(&library);
    assert_eq!(subject.frames(code + 1)[0].function.full(), "code");
    assert_eq!(subject.state().problems, [Problem::SupplementaryMissing { file: "common/file".into() }]);
    // The file is found by build id.
    let debug = scratch.path(&format!("debug/.build-id/cd/{}.debug", &id[2..]));
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    fs::copy(scratch.path("elsewhere/file"), debug).unwrap();
    let options = SymbolizerOptions { debug_dirs: vec![scratch.path("debug")], ..SymbolizerOptions::default() };
    let subject = Subject::with(&library, options);
    assert_eq!(subject.frames(code + 1)[0].function.full(), "shared_name");
}

#[test]
fn split_debug_information() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let scratch = Scratch::new();
        scratch.write("code.c", SOURCE);
        let flags = ["-g", version, "-gsplit-dwarf", "-O2", "-o"];
        if !scratch.run("cc", &[&flags[..], &["program", "code.c"]].concat()) {
            return;
        }
        let program = scratch.path("program");
        let expected = [("inner", "/* in inner */"), ("outer", "/* in outer */")];
        let expected = expected.map(|(name, text)| format!("{name}:{}", line_of(SOURCE, text)));
        let subject = Subject::new(&program);
        support::assert_chain(&subject.answers_in(&program, "outer"), &expected, "code.c");
        // In a package beside the program. (gdb's dwp is for DWARF 4.)
        let made = version == "-gdwarf-4" && support::installed("dwp") && scratch.run("dwp", &["-e", "program"]);
        for entry in fs::read_dir(scratch.path("")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "dwo") {
                fs::remove_file(path).unwrap();
            }
        }
        let subject = Subject::new(&program);
        let answers = subject.answers_in(&program, "outer");
        if made {
            support::assert_chain(&answers, &expected, "code.c");
        } else {
            // Lines are not in the split files; inlined functions are.
            assert!(answers.iter().all(|frames| frames.len() == 1 && frames[0].function.full() == "outer"));
            assert!(answers.iter().any(|frames| frames[0].line.is_some()));
            assert!(matches!(&subject.state().problems[..], [Problem::SplitMissing { .. }]));
            assert!(subject.hint().unwrap().contains(".dwo"));
        }
    }
}

/// MiniDebugInfo as distributions make it: functions that are not exported, in a section of their
/// own, packed by xz.
#[test]
fn mini_debug_information() {
    let scratch = Scratch::new();
    scratch.write(
        "code.c",
        "static int volatile sink;\n__attribute__((noinline)) static void hidden(void) { sink = 1; }\n\
         void exported(void) { hidden(); sink = 2; }\n",
    );
    let made = scratch.run("cc", &["-O1", "-shared", "-fPIC", "-Wl,--build-id=sha1", "-o", "full.so", "code.c"])
        && scratch.run("strip", &["-o", "lib.so", "full.so"])
        && scratch.run("objcopy", &["-S", "--keep-symbol=hidden", "full.so", "mini"])
        && scratch.run("xz", &["-9e", "mini"])
        && scratch.run("objcopy", &["--add-section", ".gnu_debugdata=mini.xz", "lib.so"]);
    if !made {
        return;
    }
    let (library, full) = (scratch.path("lib.so"), scratch.path("full.so"));
    let subject = Subject::new(&library);
    for name in ["hidden", "exported"] {
        let frames = subject.frames(extent(&full, |function| function == name).0 + 1);
        assert_eq!((frames[0].function.full(), frames[0].source), (name, NameSource::SymbolTable));
    }
    assert_eq!((subject.state().debug, subject.state().problems), (DebugInfo::SymbolsOnly, vec![]));

    // Damaged, or unpacking to more than is allowed: exported functions still have their names.
    let packed = fs::read(scratch.path("mini.xz")).unwrap();
    fs::write(scratch.path("damaged.xz"), [&packed[..packed.len() / 2], &[0x55; 100]].concat()).unwrap();
    scratch.write("zeros", &"\0".repeat(20 << 20));
    if !scratch.run("xz", &["zeros"]) {
        return;
    }
    for bad in ["damaged.xz", "zeros.xz"] {
        let update = format!(".gnu_debugdata={bad}");
        if !scratch.run("objcopy", &["--update-section", &update, "lib.so", "bad.so"]) {
            return;
        }
        let subject = Subject::new(scratch.path("bad.so"));
        let frames = subject.frames(extent(&full, |function| function == "exported").0 + 1);
        assert_eq!(frames[0].function.full(), "exported");
        let problems = subject.state().problems;
        assert!(
            matches!(&problems[..], [Problem::Damaged { error, .. }] if error.starts_with(".gnu_debugdata: ")),
            "{problems:?}"
        );
    }
}

/// Tests files that are neither at their old path nor where debug files belong, but below a search
/// directory.
#[test]
fn searched_directories() {
    let Some(split) = Split::new(&[]) else { return };
    if !split.link() {
        return;
    }
    let searched = |path: &str| SymbolizerOptions { search: vec![split.scratch.path(path)], ..split.options() };
    let debug = split.move_debug("kept/deep/down/any name");
    // Stripped in place.
    let subject = Subject::with(&split.program, searched("kept"));
    split.assert_found(&subject, Some(debug.clone()));
    assert_eq!(subject.state().problems, []);
    // The program is elsewhere, too, or another build is in its place. A search path can be the
    // file itself.
    let moved = split.scratch.path("kept/program.old");
    fs::rename(&split.program, &moved).unwrap();
    for place in ["kept", "kept/deep/down/any name"] {
        let mut subject = Subject::with(&split.program, searched(place));
        subject.build_id = split.build_id.clone();
        split.assert_found(&subject, Some(debug.clone()));
        assert_eq!(subject.state().file, (place == "kept").then(|| moved.clone()));
    }
    fs::copy("/proc/self/exe", &split.program).unwrap();
    let mut subject = Subject::with(&split.program, searched("kept"));
    subject.build_id = split.build_id.clone();
    split.assert_found(&subject, Some(debug.clone()));
    // A directory without it, with cyclic links, and a pipe.
    fs::create_dir(split.scratch.path("other")).unwrap();
    symlink("..", split.scratch.path("other/up")).unwrap();
    if !split.scratch.run("mkfifo", &["other/pipe"]) {
        return;
    }
    let mut subject = Subject::with(&split.program, searched("other"));
    subject.build_id = split.build_id.clone();
    split.assert_not_found(&subject);
}

/// Without a build id, files are found by name, including one that a debug link names.
#[test]
fn searched_directories_without_build_id() {
    let Some(split) = Split::new(&["-Wl,--build-id=none"]) else { return };
    if !split.link() {
        return;
    }
    let debug = split.move_debug("kept/1/program.debug");
    fs::create_dir_all(split.scratch.path("kept/2")).unwrap();
    fs::rename(&split.program, split.scratch.path("kept/2/program")).unwrap();
    let options = SymbolizerOptions { search: vec![split.scratch.path("kept")], ..split.options() };
    split.assert_found(&Subject::with(&split.program, options), Some(debug));
}

/// Split debug information of DWARF 5 with moved files; then in a package. (gdb's dwp is for DWARF
/// 4, LLVM's for both.)
#[test]
fn searched_directories_with_split_debug_information() {
    let scratch = Scratch::new();
    scratch.write("build/code.c", SOURCE);
    let flags = ["-g", "-gdwarf-5", "-gsplit-dwarf", "-O2", "-o", "program", "build/code.c"];
    if !scratch.run("cc", &flags) {
        return;
    }
    let program = scratch.path("program");
    let expected = [("inner", "/* in inner */"), ("outer", "/* in outer */")];
    let expected = expected.map(|(name, text)| format!("{name}:{}", line_of(SOURCE, text)));
    fs::create_dir(scratch.path("kept")).unwrap();
    let parts = || {
        let here = fs::read_dir(scratch.path("")).unwrap();
        here.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "dwo"))
    };
    if support::installed("llvm-dwp") {
        let names: Vec<String> = parts().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        let names = names.iter().map(String::as_str);
        if !scratch.run("llvm-dwp", &["-o", "program.dwp"].into_iter().chain(names).collect::<Vec<_>>()) {
            return;
        }
    }
    for part in parts() {
        fs::rename(&part, scratch.path("kept").join(part.file_name().unwrap())).unwrap();
    }
    let options =
        || SymbolizerOptions { search: vec![scratch.path("kept")], debug_dirs: vec![], ..SymbolizerOptions::default() };
    let packaged = scratch.path("program.dwp");
    if packaged.exists() {
        support::assert_chain(&Subject::new(&program).answers_in(&program, "outer"), &expected, "code.c");
        fs::remove_file(packaged).unwrap();
    }
    let subject = Subject::with(&program, options());
    support::assert_chain(&subject.answers_in(&program, "outer"), &expected, "code.c");
    assert_eq!(subject.state().problems, []);
}

/// Names are kept for the next run, and used as long as there is nothing better.
#[test]
fn names_of_earlier_runs() {
    let Some(split) = Split::new(&[]) else { return };
    let cache = split.scratch.path("cache/symbols");
    let kept = cache.join(BuildId(split.build_id.as_slice().into()).to_string());
    let subject = |cache: &PathBuf| {
        let mut subject =
            Subject::with(&split.program, SymbolizerOptions { cache: Some(cache.clone()), ..split.options() });
        subject.build_id = split.build_id.clone();
        subject
    };
    // Without debug information there is no name; this is kept, too.
    let parked = split.move_debug("parked");
    split.assert_not_found(&subject(&cache));
    assert!(kept.is_file());
    split.assert_not_found(&subject(&cache));
    // With debug information there is.
    let debug = split.scratch.path(&split.by_build_id());
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    fs::copy(&parked, &debug).unwrap();
    split.assert_found(&subject(&cache), Some(debug.clone()));
    let written = fs::read(&kept).unwrap();
    split.assert_found(&subject(&cache), Some(debug.clone()));
    assert_eq!(fs::read(&kept).unwrap(), written, "written again, although there was nothing new");
    // Then the debug information may be removed, and the program with it.
    let elsewhere = split.scratch.path("elsewhere");
    fs::rename(&split.program, &elsewhere).unwrap();
    fs::remove_file(&debug).unwrap();
    split.assert_found(&subject(&cache), None);
    // An address that was never asked for has no name, and does not affect the others.
    let other = subject(&cache);
    assert!(other.frames(1)[0].function.full().starts_with("program+0x1"));
    drop(other);
    split.assert_found(&subject(&cache), None);
    // A damaged file is not used; and it is replaced when there is something to replace it with.
    for damage in [&b""[..], &written[..written.len() / 2], &[0xff; 5000]] {
        fs::write(&kept, damage).unwrap();
        split.assert_not_found(&subject(&cache));
    }
    fs::rename(&elsewhere, &split.program).unwrap();
    fs::copy(&parked, &debug).unwrap();
    split.assert_found(&subject(&cache), Some(debug.clone()));
    assert_ne!(fs::read(&kept).unwrap(), [0xff; 5000]);
    // The directory cannot be made; or the path of the file is taken by something else.
    split.assert_found(&subject(&split.program.join("below a file")), Some(debug.clone()));
    fs::remove_file(&kept).unwrap();
    fs::create_dir(&kept).unwrap();
    split.assert_found(&subject(&cache), Some(debug));
    // Nothing else is left behind.
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
}

#[test]
fn no_file() {
    let symbolizer = Symbolizer::new(SymbolizerOptions::default());
    let expected = [
        ("[vdso]", "[vdso]+0x91f"),
        ("linux-vdso.so.1", "[vdso]+0x91f"),
        ("", "[unknown]+0x91f"),
        ("/", "[unknown]+0x91f"),
        ("[anon:heap]", "[anon:heap]+0x91f"),
        ("/memfd:jit (deleted)", "memfd:jit+0x91f"),
        ("/no/such/lib.so", "lib.so+0x91f"),
        ("/no/such/lib.so (deleted)", "lib.so+0x91f"),
        ("/dev/null", "null+0x91f"),
        ("/etc", "etc+0x91f"),
    ];
    for (path, name) in expected {
        let module = ModuleRef { path: path.as_bytes(), build_id: b"" };
        let frames = symbolizer.frames(module, 0x91f);
        assert_eq!((frames.len(), frames[0].function.full(), frames[0].function.short()), (1, name, name));
        assert_eq!((frames[0].source, &frames[0].file, frames[0].line), (NameSource::None, &None, None));
        let state = symbolizer.module_state(module);
        assert_eq!((state.debug, state.problems.len(), state.names.none), (DebugInfo::Missing, 1, 1), "{path}");
        let special = state.problems[0] == Problem::NotAFile;
        assert_eq!(symbolizer.hint(module).is_none(), special, "{path}");
    }
    // Paths are bytes.
    let module = ModuleRef { path: b"/no/such/\xff.so", build_id: b"\x01" };
    assert_eq!(symbolizer.frames(module, 1)[0].function.full(), "\u{fffd}.so+0x1");
}

#[test]
fn one_path_two_builds() {
    let Some(split) = Split::new(&[]) else { return };
    let symbolizer = Symbolizer::new(split.options());
    split.move_debug(&split.by_build_id());
    let path = split.program.to_str().unwrap().as_bytes();
    let right = ModuleRef { path, build_id: &split.build_id };
    let wrong = ModuleRef { path, build_id: &[1, 2, 3] };
    assert_eq!(symbolizer.frames(right, split.inlined).len(), 2);
    assert_eq!(symbolizer.frames(wrong, split.inlined).len(), 1);
    assert_eq!(symbolizer.module_state(right).debug, DebugInfo::Full);
    assert_eq!(symbolizer.module_state(wrong).debug, DebugInfo::Missing);
}

#[test]
fn answers_are_shared_between_threads() {
    fn is_shareable<T: Send + Sync>(_: &T) {}
    let scratch = Scratch::new();
    let path = support::rust_program(&scratch);
    let subject = Subject::new(&path);
    is_shareable(&subject.symbolizer);
    let (start, size) = extent(&path, |name| name.contains("4crew4main"));
    let ask = || (start..start + size).map(|offset| subject.frames(offset)).collect::<Vec<_>>();
    let answers = std::thread::scope(|scope| {
        let threads = [scope.spawn(ask), scope.spawn(ask), scope.spawn(ask)];
        threads.map(|thread| thread.join().unwrap())
    });
    for other in &answers[1..] {
        let same = answers[0].iter().zip(other).all(|(left, right)| std::sync::Arc::ptr_eq(left, right));
        assert!(same);
    }
    assert_eq!(subject.state().names.debug as u64, size);
}

#[test]
fn hint_names_the_package() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    if !fs::exists(path).unwrap() || !fs::exists("/var/lib/dpkg/info/libc6:amd64.list").unwrap() {
        return support::not_here("not Debian on x86-64");
    }
    for path in [path, &format!("/usr{path}")] {
        let subject = Subject::new(path);
        let (malloc, _) = extent(path.as_ref(), |name| name == "malloc");
        let frames = subject.frames(malloc + 1);
        assert_eq!((frames[0].function.full(), frames[0].source), ("malloc", NameSource::SymbolTable));
        assert_eq!(subject.state().debug, DebugInfo::ExportsOnly);
        let hint = subject.hint().unwrap();
        assert_eq!(hint, "libc.so.6: install the debug symbols of libc6 (libc6-dbg or libc6-dbgsym)");
    }
}

#[test]
fn nobody_is_told_to_build_a_wheel() {
    let scratch = support::Scratch::new();
    scratch.write("code.c", SOURCE);
    fs::create_dir_all(scratch.path("lib/site-packages")).unwrap();
    let hint = |file: &str| {
        if !scratch.run("cc", &["-s", "-rdynamic", "-o", file, "code.c"]) {
            return None;
        }
        let subject = Subject::new(scratch.path(file));
        let (main, _) = extent(&scratch.path(file), |name| name == "main");
        subject.frames(main);
        Some(subject.hint())
    };
    let Some(own) = hint("own.so") else { return };
    assert!(own.is_some_and(|hint| hint.starts_with("own.so: build it with debug information")));
    assert_eq!(hint("lib/site-packages/wheel.so"), Some(None));
}
