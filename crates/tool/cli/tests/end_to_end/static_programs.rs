//! Statically linked programs: the recorder is placed into them, and their calls are recorded as
//! those of other programs are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::comparable;
use crate::harness::{
    Build, Job, Recording, Scratch, build, exited, heapledger, installed, number, plain_command, shared_library,
    skipped,
};
use crate::stacks::stacks;
use crate::truth::agrees;

/// Returns a fixture, linked statically with each C library that is there.
fn linked(name: &str) -> Vec<PathBuf> {
    let musl = installed("musl-gcc").map(|_| static_with_musl(name));
    [build(name, Build::Static)].into_iter().chain(musl).collect()
}

fn directory() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static_programs");
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Compiles a fixture in C with these words of a compiler.
fn compiled(name: &str, output: &str, compiler: &[&str]) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/programs");
    let output = directory().join(output);
    let fresh = output.with_extension(format!("{}.new", std::process::id()));
    let mut command = plain_command(compiler[0]);
    command.args(&compiler[1..]).args(["-std=gnu11", "-O1", "-g", "-fno-builtin", "-pthread"]);
    command.arg(sources.join(name).with_extension("c")).arg("-o").arg(&fresh);
    succeeds(&mut command);
    fs::rename(&fresh, &output).unwrap();
    output
}

/// Builds a program in Go with C parts, linked statically. `None` after saying that it cannot be.
pub(crate) fn static_go(go: &Path, scratch: &Scratch, source: &Path) -> Option<PathBuf> {
    let program = scratch.file("mixed");
    let mut compiler = plain_command(go);
    compiler.args(["build", "-ldflags", "-linkmode external -extldflags -static", "-o"]).arg(&program).arg(source);
    let done = compiler.env("GOCACHE", scratch.file("cache")).env("CGO_ENABLED", "1").output().unwrap();
    if !done.status.success() {
        skipped("go cannot link statically here");
        return None;
    }
    Some(program)
}

/// Returns a fixture in C, linked statically with musl.
pub(crate) fn static_with_musl(name: &str) -> PathBuf {
    compiled(name, &format!("{name}.musl"), &["musl-gcc", "-static"])
}

fn succeeds(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn job(program: &Path, work: &str) -> Job {
    Job::new([program.as_os_str()].into_iter().chain(work.split_whitespace().map(AsRef::as_ref)))
}

#[test]
fn every_call_of_a_static_program() {
    let (_, recording) = agrees(|work| job(&build("mix", Build::Static), work), "20000");
    assert_eq!(recording.total("threads"), 1, "{recording:?}");
    // Position-independent: the recorder is there before the program has relocated itself.
    let independent = compiled("mix", "mix.independent", &["cc", "-static-pie", "-fPIE"]);
    agrees(|work| job(&independent, work), "20000");
}

/// Every form of `operator new`, from allocators with operators of their own: one that fails throws
/// through frames of the program alone.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn operators_of_static_allocators() {
    if installed("c++").is_none() {
        return;
    }
    for name in ["libjemalloc.a", "libtcmalloc_minimal.a"] {
        let Some(library) = shared_library(name) else { continue };
        let program = directory().join(format!("operators_{name}"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/programs/operators.cpp");
        let mut compiler = plain_command("c++");
        compiler.args(["-std=c++17", "-O1", "-g", "-fno-builtin", "-pthread", "-static"]).arg(source);
        compiler.args(["-Wl,--whole-archive".as_ref(), library.as_os_str(), "-Wl,--no-whole-archive".as_ref()]);
        succeeds(compiler.args(["-ldl", "-lm", "-o"]).arg(&program));
        // The first exception allocates in the C library, too: the difference of two runs does not.
        let [few, many] = ["100", "400"].map(|work| {
            let scratch = Scratch::new();
            let (outcome, recording) = job(&program, work).both(&scratch);
            let truth: serde_json::Value = serde_json::from_str(&outcome.text()).unwrap();
            recording.assert_whole();
            let keys = ["allocations", "frees", "failed"];
            keys.map(|key| (truth[key].as_i64().unwrap(), recording.total(key)))
        });
        for ((truth, recorded), (more_truth, more_recorded)) in few.into_iter().zip(many) {
            assert!(more_truth > truth);
            assert_eq!(more_truth - truth, more_recorded - recorded, "{few:?} {many:?}");
        }
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_call_on_many_threads() {
    let (_, recording) = agrees(|work| job(&build("mix_threads", Build::Static), work), "10000");
    assert!((8..=9).contains(&recording.total("threads")), "{recording:?}");
    // Blocks that other threads free; then blocks that are exchanged without locks.
    for program in linked("queue") {
        agrees(|work| job(&program, work), "30000");
    }
    // It sets parameters of glibc's malloc.
    agrees(|work| job(&build("exchange", Build::Static), work), "30000");
}

/// C libraries give the memory of a thread that has ended to a new one, which is another thread all
/// the same. glibc also empties the cache of a thread that ends, by calls of `free`.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn threads_that_come_and_go() {
    let scratch = Scratch::new();
    for program in linked("short_threads") {
        let (outcome, recording) = job(&program, "3000").recorded(&scratch);
        recording.assert_whole().assert_adds_up();
        assert!((3000..=3001).contains(&recording.total("threads")), "{recording:?}");
        // glibc allocates the thread-local storage of each thread anew, as far as stacks are new.
        let told = number(&outcome.printed_objects()[0], "allocations");
        let others = recording.total("allocations") - told;
        assert!((0..3100).contains(&others), "{told}: {recording:?}");
        let rows = recording.ask("top", &["--by", "function", "--total", "--metric", "blocks"]);
        let work = rows["rows"].as_array().unwrap().iter().find(|row| row["function"] == "work");
        let of_work = work.map(|row| number(row, "blocks")).unwrap_or_default();
        assert_eq!(of_work, told, "{rows:#}");
    }
}

/// Handlers that allocate interrupt the allocator, and the recorder.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn signal_handlers() {
    for program in linked("signals") {
        agrees(|work| job(&program, work), "10000");
    }
}

/// Neither library has an index of its unwind information, and musl's own code has none.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn stacks_lead_to_where_threads_begin() {
    let scratch = Scratch::new();
    for (name, work) in [("mix", "1000"), ("crowd", "8 20")] {
        for program in linked(name) {
            let (_, recording) = job(&program, work).recorded(&scratch);
            recording.assert_whole();
            assert_eq!(recording.total("stacks_dropped"), 0, "{}: {recording:?}", program.display());
            let starts = ["_start", "clone", "__clone", "__clone3"];
            for stack in stacks(&recording) {
                let first = stack.functions.last().map_or("", String::as_str);
                assert!(starts.contains(&first), "{}: {stack:?}", program.display());
            }
        }
    }
}

/// The parts of the C library that are linked between the functions of malloc allocate and free as
/// the program does.
#[test]
fn what_the_c_library_frees() {
    let scratch = Scratch::new();
    let source = scratch.write(
        "files.c",
        "#define _GNU_SOURCE\n#include <stdio.h>\n#include <stdlib.h>\n
         int main(void) {
             for (int i = 0; i < 1000; i++) {
                 FILE *file = fopen(\"/dev/zero\", \"r\");
                 if (!file || fgetc(file) != 0) return 1;
                 fclose(file);
             }
             free(reallocarray(NULL, 10, 10));
             return 0;
         }\n",
    );
    let program = scratch.file("files");
    succeeds(plain_command("cc").arg("-static").arg(&source).arg("-o").arg(&program));
    let (outcome, recording) = job(&program, "").both(&scratch);
    assert!(outcome.status.success(), "{outcome:?}");
    let of = |name| recording.total(name);
    assert!(of("allocations") > 2000, "{recording:?}");
    assert!(of("allocations") - of("frees") < 50, "{recording:?}");
    recording.assert_whole();
}

#[test]
fn forked_children() {
    let scratch = Scratch::new();
    for program in linked("forks") {
        for how in ["", "raw"] {
            let (outcome, recording) = job(&program, how).recorded(&scratch);
            assert_eq!(outcome.status, exited(10), "{outcome:?}");
            let told = outcome.printed_objects();
            assert_eq!((told.len(), recording.processes().len()), (3, 3), "{recording:?}");
            for told in &told {
                let process = recording.process(number(told, "pid"));
                // The first one does not count what is allocated before `main`.
                let others = number(process, "allocations") - number(told, "allocations");
                assert!((0..20).contains(&others), "{told}: {process}");
                assert_eq!(process["exit"]["code"], told["code"], "{process}");
            }
        }
    }
}

/// The environment, the arguments, the auxiliary vector, descriptors, signals and limits are as
/// without the recorder; no tracer stays.
#[test]
fn the_program_sees_nothing() {
    let scratch = Scratch::new();
    for program in linked("environment") {
        let (_, recording) = job(&program, "one two").both(&scratch);
        assert!(recording.total("events_lost") == 0, "{recording:?}");
    }
    let surroundings = job(&build("surroundings", Build::Static), "one two");
    assert_eq!(comparable(&surroundings.bare()), comparable(&surroundings.recorded(&scratch).0));
    let auxiliary = scratch.write(
        "auxiliary.c",
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n
         int main(int argc, char **argv, char **envp) {
             char **at = envp;
             while (*at) at++;
             // The kinds, and the values that do not depend on addresses.
             for (unsigned long *pair = (unsigned long *)(at + 1); pair[0]; pair += 2)
                 printf(\"%lu %lu\\n\", pair[0], pair[1] < 100000 ? pair[1] : 0);
             char line[300];
             FILE *status = fopen(\"/proc/self/status\", \"r\");
             while (fgets(line, sizeof line, status))
                 if (!strncmp(line, \"TracerPid\", 9) || !strncmp(line, \"SigBlk\", 6)) fputs(line, stdout);
             // The arguments follow each other directly, and the environment follows them.
             printf(\"%d %d\\n\", argc, (int)(envp[0] - argv[0]));
             free(malloc(100));
             return 5;
         }\n",
    );
    let program = scratch.file("auxiliary");
    succeeds(plain_command("cc").arg("-static").arg(&auxiliary).arg("-o").arg(&program));
    let (outcome, recording) = job(&program, "1 22 333").both(&scratch);
    assert_eq!(outcome.status, exited(5));
    assert!(recording.assert_whole().total("allocations") > 0, "{recording:?}");
}

#[test]
fn a_program_that_closes_all_descriptors() {
    let scratch = Scratch::new();
    for program in linked("closes") {
        let (_, recording) = job(&program, "").both(&scratch);
        recording.assert_whole();
        assert!(recording.total("allocations") >= 6000, "{recording:?}");
    }
}

/// Where code may not have been writable (`PR_SET_MDWE`), the recorder is placed all the same.
#[test]
fn code_that_may_not_be_written() {
    let scratch = Scratch::new();
    let source = scratch.write(
        "refuses.c",
        "#include <sys/prctl.h>\n#include <unistd.h>\n
         int main(int argc, char **argv) { return prctl(65, 1, 0, 0, 0) ? 77 : execv(argv[1], argv + 1); }\n",
    );
    let refuses = scratch.file("refuses");
    succeeds(plain_command("cc").arg(&source).arg("-o").arg(&refuses));
    let fixed = build("mix", Build::Static);
    let file = scratch.file("recording.hl");
    let words = job(&fixed, "1000").recording_words(&file);
    let outcome = Job::shell(&format!("exec {} {words}", refuses.display())).bare();
    if outcome.status == exited(77) {
        return skipped("the kernel does not know PR_SET_MDWE");
    }
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(Recording::open(file).assert_whole().total("allocations") > 500);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_rust_program_for_musl() {
    let output = directory().join("growth.musl");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/programs/growth.rs");
    let mut compiler = plain_command("rustc");
    compiler.args(["--edition", "2024", "-O", "-g", "--target", "x86_64-unknown-linux-musl"]);
    let done = compiler.arg(source).arg("-o").arg(&output).output().unwrap();
    if !done.status.success() {
        return skipped("rustc does not build for x86_64-unknown-linux-musl here");
    }
    agrees(|work| job(&output, work), "200");
}

/// A program in Go has an allocator of its own for Go's blocks; those of its C part are recorded.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_c_part_of_a_static_go_program() {
    let Some(go) = installed("go") else { return };
    let scratch = Scratch::new();
    let source = scratch.write(
        "main.go",
        "package main\n\n// #include <stdlib.h>\nimport \"C\"\nimport (\"fmt\"; \"sync\")\n
         func main() {
             var all sync.WaitGroup
             for i := 0; i < 4; i++ {
                 all.Add(1)
                 go func() {
                     for j := 0; j < 1000; j++ { C.free(C.malloc(4321)) }
                     all.Done()
                 }()
             }
             all.Wait()
             fmt.Println(\"done\")
         }\n",
    );
    let Some(program) = static_go(&go, &scratch, &source) else { return };
    let (outcome, recording) = Job::new([&program]).both(&scratch);
    assert_eq!(outcome.text(), "done\n");
    recording.assert_whole();
    let of_size = recording.total("bytes_allocated") / 4321;
    assert!((4000..4010).contains(&of_size), "{recording:?}");
}

/// busybox is stripped: malloc is found by its code. Its applets run in forked children.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_stripped_busybox() {
    let Some(busybox) = installed("busybox") else { return };
    let kind = fs::read(&busybox).unwrap();
    if kind.windows(10).any(|bytes| bytes == b"/ld-linux-") {
        return skipped("busybox is not linked statically");
    }
    let scratch = Scratch::new();
    let line = "echo one; (echo three; echo two) | busybox sort; x=$(echo four); echo $x; exit 6";
    let (outcome, recording) = Job::new([busybox.to_str().unwrap(), "sh", "-c", line]).both(&scratch);
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(6), "one\nthree\ntwo\nfour\n"));
    recording.assert_whole();
    assert!(recording.processes().len() >= 3 && recording.total("allocations") > 60, "{recording:?}");
    let (_, recording) =
        Job::new([busybox.to_str().unwrap(), "awk", "BEGIN { for (i = 0; i < 9999; i++) a[i] = i }"]).both(&scratch);
    assert!(recording.assert_whole().total("allocations") > 9999, "{recording:?}");
}

/// Programs that a static one executes are recorded, whatever they are: by a shell that forks, by
/// one that becomes the program, by `env`, and by the way back from a dynamically linked shell.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn what_a_static_program_executes() {
    let Some(busybox) = installed("busybox") else { return };
    let busybox = busybox.to_str().unwrap().to_owned();
    let scratch = Scratch::new();
    let (dynamic, fixed) = (crate::harness::program("mix"), build("mix", Build::Static));
    let (dynamic, fixed) = (dynamic.to_str().unwrap(), fixed.to_str().unwrap());
    let shell = |line: &str| Job::new([&busybox, "sh", "-c", line]);
    let (_, recording) =
        shell(&format!("{dynamic} 1000; {fixed} 1000; exec {busybox} env {dynamic} 1000")).both(&scratch);
    recording.assert_whole().assert_adds_up();
    for (name, count) in [(dynamic, 2), (fixed, 1)] {
        let found = recording.running(&format!("{name} 1000"));
        assert_eq!(found.len(), count, "{name}: {recording:?}");
        assert!(found.iter().all(|process| number(process, "allocations") > 500), "{recording:?}");
    }
    // The environment is that which the shell gives, and has nothing else.
    let environment = crate::harness::program("environment");
    let environment = environment.to_str().unwrap();
    shell(&format!("A=1 {environment}; LD_PRELOAD= {environment}; exec {busybox} env -i {environment}")).both(&scratch);
    let surroundings = crate::harness::program("surroundings");
    let told = shell(&format!("{} one; true", surroundings.display()));
    assert_eq!(comparable(&told.bare()), comparable(&told.recorded(&scratch).0));
    // A file that is not there or is no program fails, and other programs run, as ever.
    let alone = crate::foreseen::without_allocator(&scratch);
    let text = scratch.write("text", "echo run by the shell\n");
    let line = format!("/nowhere/at/all; {}; echo $?; {} 1; echo $?", text.display(), alone.display());
    shell(&line).both(&scratch);
    // Shells that are written in no other program's memory: vfork, and many at once.
    let many = "i=0; while [ $i -lt 30 ]; do (/bin/true; /bin/echo $i) & i=$((i+1)); done | sort -n; wait";
    let (_, recording) = shell(many).both(&scratch);
    // Blocks that the shell allocates between a fork and the child's first call are inherited: so
    // some frees may seem to be missed.
    assert_eq!((recording.summary["complete"].as_bool(), recording.total("events_lost")), (Some(true), 0));
    // The command line of the shell has that path, too. A forked shell may have become the program
    // when the recorder reads its command line, which is then there twice.
    let commands = recording.running("/bin/echo").into_iter().filter_map(|process| process["command"].as_str());
    let found: BTreeSet<_> = commands.filter(|command| !command.contains("sh -c")).collect();
    assert_eq!(found.len(), 30, "{recording:?}");
}

/// Static programs that a dynamic one starts are recorded, in whatever way it starts them; and what
/// they start. The program that starts them sees the same as ever.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn what_a_dynamic_program_starts() {
    let scratch = Scratch::new();
    for fixed in linked("mix") {
        let name = fixed.to_str().unwrap();
        let is_recorded = |recording: &Recording, count: usize| {
            recording.assert_whole().assert_adds_up();
            assert_eq!(recording.summary["unrecorded"].as_array().map(Vec::len), Some(0), "{recording:?}");
            let found = recording.running(&format!("{name} 1000"));
            let found: Vec<_> = found.iter().filter(|process| number(process, "allocations") > 500).collect();
            assert_eq!(found.len(), count, "{name}: {recording:?}");
        };
        for how in [
            "fork+execv",
            "fork+execve-cleared",
            "fork+execvp",
            "fork+fexecve",
            "fork+execveat",
            "vfork+execv",
            "vfork+execve-cleared",
            "posix_spawn",
            "posix_spawn-cleared",
            "posix_spawnp",
            "system",
            "popen",
        ] {
            let (_, recording) = Job::fixture("spawns", &format!("{how} {name} 1000")).both(&scratch);
            is_recorded(&recording, 1);
        }
        // Python's own way, which is vfork; a script with such an interpreter; many at once.
        if let Some(python) = installed("python3") {
            let line = format!("import subprocess as s; print(s.run(['{name}', '1000']).returncode)");
            is_recorded(&Job::new([python.to_str().unwrap(), "-c", &line]).both(&scratch).1, 1);
        }
        scratch.script("script", format!("#!{name} 1000\n"));
        let line = format!("{}; exec {name} 1000", scratch.file("script").display());
        let (_, recording) = Job::shell(&line).both(&scratch);
        assert_eq!(recording.assert_whole().running(name).len(), 2, "{recording:?}");
        let many = format!("i=0; while [ $i -lt 20 ]; do {name} 1000 & i=$((i+1)); done; wait");
        is_recorded(&Job::shell(&many).recorded(&scratch).1, 20);
    }
    // On to dynamic ones again.
    let fixed = build("spawns", Build::Static);
    let dynamic = crate::harness::program("mix");
    for how in ["fork+execv", "posix_spawn"] {
        for inner in ["vfork+execv", "fork+fexecve", "fork+execveat"] {
            let words = format!("{how} {} {inner} {} 1000", fixed.display(), dynamic.display());
            let (_, recording) = Job::fixture("spawns", &words).both(&scratch);
            let found = recording.assert_whole().running(&format!("{} 1000", dynamic.display()));
            assert!(found.iter().any(|process| number(process, "allocations") > 500), "{words}: {recording:?}");
        }
    }
    // Without a right to execute it, no program starts; the thread that was traced goes on.
    let plain = scratch.file("plain");
    fs::write(&plain, fs::read(&fixed).unwrap()).unwrap();
    for how in ["vfork+execv", "posix_spawn", "posix_spawnp"] {
        let (_, recording) = Job::fixture("spawns", &format!("{how} {} -", plain.display())).both(&scratch);
        assert_eq!(recording.summary["unrecorded"].as_array().map(Vec::len), Some(0), "{recording:?}");
    }
}

/// A program that starts static ones notices nothing, however closely it looks, beside signals and
/// in several threads.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_parent_notices_nothing() {
    let scratch = Scratch::new();
    let fixed = build("spawn_watched", Build::Static);
    let job = Job::fixture("spawn_watched", &format!("30 {}", fixed.display()));
    let (outcome, recording) = job.both(&scratch);
    assert_eq!(outcome.text(), "signals 0, results 0, interrupted 0, timer ran\n");
    assert_eq!(recording.total("events_lost"), 0, "{recording:?}");
    assert_eq!(recording.summary["unrecorded"].as_array().map(Vec::len), Some(0), "{recording:?}");
    let children = recording.running("spawn_watched.static");
    let children = children.iter().filter(|process| process["exit"]["code"] == 7);
    assert_eq!(children.filter(|process| number(process, "allocations") >= 100).count(), 90, "{recording:?}");
}

/// A child of `posix_spawn` has little stack in musl: the recorder uses no more than it can spare.
#[test]
fn a_child_with_a_small_stack() {
    let scratch = Scratch::new();
    let dynamic = crate::harness::program("mix");
    for program in linked("child_stack") {
        for (command, code) in [(dynamic.to_str().unwrap(), 0), ("/nowhere/at/all", 127)] {
            let (outcome, recording) = job(&program, &format!("640 {command} 1000")).both(&scratch);
            assert!(outcome.text().ends_with(&format!("it fits, code {code}\n")), "{outcome:?}");
            let found = recording.running(&format!("{command} 1000"));
            let found = found.iter().filter(|process| number(process, "allocations") > 500).count();
            assert_eq!(found, if code == 0 { 2 } else { 0 }, "{recording:?}");
        }
    }
}

/// `--sample` and `--usable` work there, too.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn samples_and_usable_sizes() {
    let scratch = Scratch::new();
    for program in linked("temporary") {
        let exact = job(&program, "20000").recorded(&scratch).1.total("bytes_allocated");
        let (_, sample) = job(&program, "20000").option("--sample=1KiB").recorded(&scratch);
        let estimate = sample.total("bytes_allocated");
        assert!((exact * 8 / 10..exact * 12 / 10).contains(&estimate), "{exact}: {sample:?}");
        let (_, usable) = job(&program, "1000").option("--usable").recorded(&scratch);
        assert!(usable.summary["usable"].is_object() || usable.total("allocations") > 0, "{usable:?}");
    }
}

/// A program without an allocator runs as always, and so does one when `heapledger` itself is
/// traced; the report says why nothing was recorded.
#[test]
fn what_is_not_recorded_is_said() {
    let scratch = Scratch::new();
    let alone = crate::foreseen::without_allocator(&scratch);
    let outcome = Job::new([&alone]).with_report().start(Some(&scratch.file("alone.hl"))).outcome();
    let told = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.status, exited(3), "{told}");
    assert!(told.contains("nothing was recorded[HL0001]") && told.contains("no allocator that is known"), "{told}");
    let answer = heapledger(["doctor".as_ref(), build("mix", Build::Static).as_os_str()]).text();
    assert!(answer.contains("the recorder is placed into it") && !answer.contains("HL0001"), "{answer}");
    let Some(strace) = installed("strace") else { return };
    let file = scratch.file("traced.hl");
    let words = job(&build("mix", Build::Static), "100").with_report().recording_words(&file);
    let outcome = Job::shell(&format!("{} -f -o /dev/null {words}", strace.display())).bare();
    let told = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success() && told.contains("nothing was recorded[HL0104]"), "{told}");
}
