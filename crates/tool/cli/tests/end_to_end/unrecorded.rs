//! Programs that run unrecorded are named, with the reason: each row of docs/unrecorded.md.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Build, Job, Recording, Scratch, build, exited, heapledger, installed, number, program};

/// Returns the name and the code of each program that ran unrecorded, in order.
fn departures(recording: &Recording) -> Vec<(String, String)> {
    let list = recording.summary["unrecorded"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    list.iter().map(|one| (text(&one["path"]), text(&one["code"]))).collect()
}

/// Asserts that the job behaves the same with the recorder, and that these programs ran unrecorded.
#[track_caller]
fn leaves(job: &Job, expected: &[(&str, &str)]) -> Recording {
    let scratch = Scratch::new();
    let (_, recording) = job.both(&scratch);
    let expected: Vec<_> = expected.iter().map(|&(path, code)| (path.to_owned(), code.to_owned())).collect();
    assert_eq!(departures(&recording), expected, "{recording:?}");
    assert_eq!(recording.ask("info", &[])["unrecorded"], recording.summary["unrecorded"]);
    let text = heapledger(["summary".as_ref(), recording.path.as_os_str()]).text();
    for (path, code) in &expected {
        assert!(text.lines().any(|line| line.contains(path) && line.contains(code)), "{path} {code}: {text}");
        assert!(heapledger(["explain", code]).text().contains(code));
    }
    recording
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// Returns the report of `record`.
fn reported(job: Job, scratch: &Scratch) -> String {
    String::from_utf8_lossy(&job.with_report().recorded(scratch).0.stderr).into_owned()
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn static_programs() {
    let scratch = Scratch::new();
    // Without a C library, so there is nothing to be redirected.
    let fixed = crate::foreseen::without_allocator(&scratch);
    let fixed = fixed.to_str().unwrap();
    leaves(&Job::shell(&format!("{fixed} none 0; true")), &[(fixed, "HL0001")]);
    // Started in every way: exec in the same process, vfork, posix_spawn.
    leaves(&Job::shell(&format!("exec {fixed} none 0")), &[(fixed, "HL0001")]);
    for how in ["fork+execv", "vfork+execv", "posix_spawn", "posix_spawnp"] {
        leaves(&Job::fixture("spawns", &format!("{how} {fixed} none 0")), &[(fixed, "HL0001")]);
    }
    // The first line of the report counts them.
    let said = reported(Job::shell(&format!("{fixed} none 0; {fixed} none 0; ls /")), &scratch);
    assert!(said.contains(" · 2 programs ran unrecorded\n"), "{said}");
    assert!(said.contains(&format!("warning[HL0001]: `{fixed}` ran unrecorded 2 times: statically linked")), "{said}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_of_other_machines_libraries_and_sanitizers() {
    let scratch = Scratch::new();
    scratch.write("empty.c", "int main(void) { return 0; }\n");
    // musl's linker under another name.
    let linker = scratch.file("ld-other.so.1");
    let _ = fs::copy("/lib/ld-musl-x86_64.so.1", &linker);
    let other = format!("-Wl,--dynamic-linker={}", linker.display());
    for (compiler, option, code) in
        [("gcc", "-m32", "HL0003"), ("gcc", "-fsanitize=address", "HL0007"), ("musl-gcc", &*other, "HL0004")]
    {
        let made = Job::new([compiler, option, "empty.c", "-o", "empty"]).directory(scratch.path()).bare();
        if !made.status.success() {
            crate::harness::skipped(&format!("{compiler} {option} does not link here"));
            continue;
        }
        let empty = scratch.file("empty");
        let empty = empty.to_str().unwrap();
        leaves(&Job::shell(&format!("{empty}; true")), &[(empty, code)]);
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn an_exec_that_fails_is_none() {
    let scratch = Scratch::new();
    for how in ["vfork+failed", "posix_spawn-failed"] {
        leaves(&Job::fixture("spawns", &format!("{how} -")), &[]);
    }
    let job = Job::new([program("execs").to_str().unwrap(), "after a failure"]);
    leaves(&job, &[]);
    // A static program that cannot be read.
    let fixed = build("limits", Build::Static);
    let plain = scratch.file("plain");
    fs::write(&plain, fs::read(fixed).unwrap()).unwrap();
    leaves(&Job::shell(&format!("{} 2>/dev/null; true", plain.display())), &[]);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_of_other_users() {
    if !is_root() {
        return crate::harness::skipped("only root becomes another user");
    }
    if let Some(setpriv) = installed("setpriv") {
        let job = Job::new([setpriv.to_str().unwrap(), "--reuid", "65534", "--clear-groups", "/bin/ls", "/"]);
        leaves(&job, &[("/bin/ls", "HL0072")]);
    }
    if let Some(su) = installed("su") {
        let job = Job::new([su.to_str().unwrap(), "nobody", "-s", "/bin/sh", "-c", "ls / | sort"]);
        let recording = leaves(&job, &[("/bin/sh", "HL0072")]);
        assert!(number(&recording.summary["unrecorded"][0], "pid") > 0);
    }
}

/// A library of the program is missing: it ends in the dynamic linker.
#[test]
fn a_program_that_ends_before_it_begins() {
    let scratch = Scratch::new();
    scratch.write("lib.c", "int answer(void) { return 42; }\n");
    scratch.write("main.c", "int answer(void);\nint main(void) { return answer() != 42; }\n");
    let lines = "gcc -shared -fPIC lib.c -o libanswer.so && gcc main.c -L. -lanswer -o asks && rm libanswer.so";
    assert_eq!(Job::shell(lines).directory(scratch.path()).bare().status, exited(0));
    let asks = scratch.file("asks");
    leaves(&Job::shell(&format!("{}; true", asks.display())), &[(asks.to_str().unwrap(), "HL0074")]);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_with_other_rights() {
    if !is_root() {
        return crate::harness::skipped("only root makes programs of other users");
    }
    let scratch = Scratch::new();
    let file = scratch.file("other");
    let other = file.to_str().unwrap();
    let made = Job::shell(&format!("cp /bin/true {other} && chown 65534 {other} && chmod 4755 {other}")).bare();
    assert_eq!(made.status, exited(0), "{made:?}");
    leaves(&Job::shell(&format!("{other}; true")), &[(other, "HL0002")]);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn another_root_directory() {
    let Some(chroot) = installed("chroot").filter(|_| is_root()) else {
        return crate::harness::skipped("only root changes the root directory");
    };
    let scratch = Scratch::new();
    let directory = scratch.path().to_str().unwrap();
    // All files of a dynamic program, without our library.
    let script = format!(
        "cd {directory}; mkdir -p bin lib64 lib/x86_64-linux-gnu; cp /bin/true bin; cp -L /lib64/ld-linux-x86-64.so.2 lib64; \
         cp -L /lib/x86_64-linux-gnu/libc.so.6 lib/x86_64-linux-gnu"
    );
    assert_eq!(Job::shell(&script).bare().status, exited(0));
    leaves(&Job::new([chroot.to_str().unwrap(), directory, "/bin/true"]), &[("/bin/true", "HL0072")]);
    // The same system under another path is not an obstacle.
    leaves(&Job::new([chroot.to_str().unwrap(), "/", "/bin/ls", "/"]), &[]);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn other_network_namespaces() {
    let Some(unshare) = installed("unshare").filter(|_| is_root()) else {
        return crate::harness::skipped("only root makes network namespaces");
    };
    let unshare = unshare.to_str().unwrap();
    // The recorder's socket in the file system is found there.
    leaves(&Job::new([unshare, "--net", "/bin/ls", "/"]), &[]);
    leaves(&Job::new([unshare, "--net", "--fork", "/bin/ls", "/"]), &[]);
    // Unless its path is too long for a socket. A process that is forked there cannot introduce
    // itself, and so cannot announce its exec.
    let scratch = Scratch::new();
    let deep = scratch.file(&"d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let far = |job: Job| job.variable("XDG_RUNTIME_DIR", &deep).variable("TMPDIR", &deep);
    leaves(&far(Job::new([unshare, "--net", "/bin/ls", "/"])), &[("/bin/ls", "HL0071")]);
    let recording = leaves(&far(Job::new([unshare, "--net", "--fork", "/bin/ls", "/"])), &[(unshare, "HL0071")]);
    assert_eq!(recording.summary["unrecorded"][0]["fork"], true);
    if let Some(bwrap) = installed("bwrap") {
        let bwrap = bwrap.to_str().unwrap();
        leaves(&Job::new([bwrap, "--dev-bind", "/", "/", "/bin/ls", "/"]), &[]);
        leaves(&Job::new([bwrap, "--dev-bind", "/", "/", "--unshare-pid", "/bin/ls", "/"]), &[]);
        leaves(&Job::new([bwrap, "--dev-bind", "/", "/", "--unshare-net", "/bin/ls", "/"]), &[]);
    }
}

#[test]
fn little_address_space() {
    let Some(bash) = installed("bash") else { return };
    let line = "ulimit -v 6000; (:); true";
    let scratch = Scratch::new();
    let (_, recording) = Job::new([bash.to_str().unwrap(), "-c", line]).both(&scratch);
    let path = bash.canonicalize().unwrap().to_str().unwrap().to_owned();
    assert_eq!(departures(&recording), [(path, "HL0073".to_owned())], "{recording:?}");
}

/// bear replaces LD_PRELOAD in the programs that it starts, and wraps exec in them.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_under_bear() {
    let (Some(bear), Some(_)) = (installed("bear"), installed("gcc")) else { return };
    let scratch = Scratch::new();
    scratch.write("empty.c", "int main(void) { return 0; }\n");
    let job = Job::new([bear.to_str().unwrap(), "--", "gcc", "-c", "empty.c"]).directory(scratch.path());
    let recording = leaves(&job, &[]);
    assert!(!recording.running("cc1").is_empty(), "{recording:?}");
    let list = fs::read_to_string(scratch.file("compile_commands.json")).unwrap();
    assert!(list.contains("empty.c"), "{list}");
}

/// A recorded child whose malloc is its own is no loss: its entry points are redirected.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn allocators_of_their_own() {
    let scratch = Scratch::new();
    let own = program("own_malloc");
    let said = reported(Job::shell(&format!("{} >/dev/null; ls /", own.display())), &scratch);
    assert!(!said.contains("warning[HL0005]"), "{said}");
}

/// A static program that the recorder may not trace: it is named, and runs as always.
#[test]
fn static_programs_that_are_traced_already() {
    let Some(strace) = installed("strace") else { return };
    let scratch = Scratch::new();
    let (fixed, file) = (build("limits", Build::Static), scratch.file("traced.hl"));
    // strace(1) traces every process, so nobody else can.
    let words = Job::shell(&format!("{} none 0; true", fixed.display())).recording_words(&file);
    let outcome = Job::shell(&format!("{} -f -o /dev/null {words}", strace.display())).bare();
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(departures(&Recording::open(file)), [(fixed.to_str().unwrap().to_owned(), "HL0122".to_owned())]);
}

/// Rewritten recordings keep the list of unrecorded programs.
#[test]
fn recordings_made_of_recordings() {
    let scratch = Scratch::new();
    let fixed = crate::foreseen::without_allocator(&scratch);
    let (_, recording) = Job::shell(&format!("{} none 0; ls /", fixed.display())).recorded(&scratch);
    let whole = departures(&recording);
    assert_eq!(whole, [(fixed.to_str().unwrap().to_owned(), "HL0001".to_owned())]);
    let made = |name: &str, options: &[&str], files: &[&Path]| {
        let to = scratch.file(name);
        let line = [options[0].as_ref(), "-o".as_ref(), to.as_os_str()].into_iter();
        let line = line.chain(options[1..].iter().map(AsRef::as_ref)).chain(files.iter().map(|file| file.as_os_str()));
        let outcome = heapledger(line);
        assert!(outcome.status.success(), "{outcome:?}");
        Recording::open(to)
    };
    let twice = made("merged.hl", &["merge"], &[&recording.path, &recording.path]);
    assert_eq!(departures(&twice), [whole.clone(), whole.clone()].concat());
    assert_eq!(departures(&made("trimmed.hl", &["trim", "--from", "0s"], &[&recording.path])), whole);
    let [(path, code)] = &departures(&made("public.hl", &["anonymize"], &[&recording.path]))[..] else { panic!() };
    assert!(code == "HL0001" && !path.contains("alone") && !path.is_empty(), "{path}");
}
