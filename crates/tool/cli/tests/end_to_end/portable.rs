//! The command as a static binary, and the systems that it is for: those with musl, with static
//! programs alone, and with an older glibc.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

use crate::armed;
use crate::harness::{
    Build, HEAPLEDGER, Job, Outcome, Recording, Scratch, build, exited, headers, heapledger, installed, number,
    program, skipped, wait_until,
};
use crate::truth::agrees;

/// The totals of a recording that depend on the program alone.
const TOTALS: [&str; 8] = [
    "allocations",
    "reallocations",
    "frees",
    "failed",
    "bytes_allocated",
    "bytes_live_max",
    "blocks_live_end",
    "events_lost",
];

/// Returns the static command, which is built if need be; `None`, with a message, if it cannot be
/// built here.
fn static_command() -> Option<PathBuf> {
    static BUILT: LazyLock<Option<PathBuf>> = LazyLock::new(build_static_command);
    BUILT.clone()
}

fn build_static_command() -> Option<PathBuf> {
    const TARGET: &str = "x86_64-unknown-linux-musl";
    if let Some(given) = std::env::var_os("HEAPLEDGER_STATIC") {
        return Some(given.into());
    }
    // For the C code of zstd.
    installed("musl-gcc")?;
    let target = Path::new(HEAPLEDGER).ancestors().nth(2).unwrap();
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--bin", "heapledger", "--target", TARGET, "--manifest-path"]).arg(manifest);
    let output = cargo.arg("--target-dir").arg(target).env_remove("CARGO_TARGET_DIR").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("target may not be installed") {
        skipped("the Rust target x86_64-unknown-linux-musl is not installed");
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(target.join(TARGET).join("debug/heapledger"))
}

fn run<Item: AsRef<OsStr>>(command: &Path, arguments: impl IntoIterator<Item = Item>) -> Outcome {
    let line = arguments.into_iter().map(|argument| argument.as_ref().to_owned());
    Job::new([command.as_os_str().to_owned()].into_iter().chain(line)).bare()
}

/// Records a command line by this command.
fn recorded_by<Item: AsRef<OsStr>>(command: &Path, file: PathBuf, line: &[Item]) -> (Outcome, Recording) {
    let words = ["record", "--quiet", "--names", "none", "-o"].map(OsString::from).into_iter();
    let words = words.chain([file.clone().into(), "--".into()]).chain(line.iter().map(|word| word.as_ref().to_owned()));
    let outcome = run(command, words);
    (outcome, Recording::open(file))
}

fn totals(recording: &Recording) -> Vec<i64> {
    TOTALS.iter().map(|name| recording.total(name)).collect()
}

/// It has no dynamic linker, records the same events, and answers every question in the same words.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_static_command_does_what_the_other_does() {
    let Some(command) = static_command() else { return };
    let scratch = Scratch::new();
    for (name, work) in [("mix", "20000"), ("mix_threads", "3000"), ("spawns", "posix_spawn /bin/true")] {
        let path = program(name).into_os_string().into_string().unwrap();
        let line: Vec<&str> = [&*path].into_iter().chain(work.split_whitespace()).collect();
        let (outcome, recording) = recorded_by(&command, scratch.file(&format!("{name}.static.hl")), &line);
        let (expected, other) = recorded_by(Path::new(HEAPLEDGER), scratch.file(&format!("{name}.hl")), &line);
        assert_eq!(outcome, expected, "{name}");
        recording.assert_whole().assert_adds_up();
        if name != "mix_threads" {
            assert_eq!(totals(&recording), totals(&other), "{name}: {recording:?}\n{other:?}");
        }
        // The peak of threads depends on their order.
        assert_eq!(recording.total("allocations"), other.total("allocations"), "{name}: {recording:?}");
        assert_eq!(recording.processes().len(), other.processes().len(), "{name}: {recording:?}");
        for verb in ["summary", "info", "top", "tree", "leaks", "timeline"] {
            let words = [verb.as_ref(), other.path.as_os_str()];
            assert_eq!(run(&command, words), heapledger(words), "{verb} of {name}");
        }
    }
    let doctor = run(&command, ["doctor"]);
    assert_eq!(doctor.status, exited(0), "{doctor:?}");
    for expected in ["glibc 2.", "self-test", "allocations of /bin/sh", "stacks verified"] {
        assert!(doctor.text().contains(expected), "{expected}: {doctor:?}");
    }
    let replayed = run(&command, ["replay".as_ref(), "--rounds=1".as_ref(), scratch.file("mix.hl").as_os_str()]);
    assert_eq!(replayed.status, exited(0), "{replayed:?}");
}

/// Asserts that a recording of a fixture for musl has the counts that the program prints.
fn musl_agrees(name: &str, work: &str) -> (Value, Recording) {
    agrees(|work| Job::new([build(name, Build::Musl).as_os_str(), work.as_ref()]), work)
}

#[test]
fn programs_for_musl_count_their_own_calls() {
    if installed("musl-gcc").is_none() {
        return;
    }
    let (_, recording) = musl_agrees("mix", "20000");
    assert_eq!((recording.total("threads"), recording.processes().len()), (1, 1), "{recording:?}");
    // `calloc` of musl calls `malloc`, and `memalign` calls `aligned_alloc`: one call is one event.
    let (_, recording) = musl_agrees("mix_threads", "3000");
    assert!((8..=9).contains(&recording.total("threads")), "{recording:?}");
    musl_agrees("queue", "3000");
    let (_, recording) = musl_agrees("crowd", "100");
    assert_eq!(recording.total("threads"), 65, "{recording:?}");
}

/// Asserts that one process ran this program, and made its only allocation.
#[track_caller]
fn started(recording: &Recording, program: &Path, how: &str) {
    let is_it =
        |process: &&Value| process["command"].as_str().is_some_and(|it| it.starts_with(program.to_str().unwrap()));
    let found: Vec<_> = recording.processes().iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{how}: {recording:?}");
    assert_eq!(number(found[0], "bytes_live_max"), 5000, "{how}: {recording:?}");
}

/// The program finds its environment as it is without the recorder; what it starts is followed, of
/// either C library.
#[test]
fn programs_for_musl_start_others() {
    if installed("musl-gcc").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let [environment, spawns] = ["environment", "spawns"].map(|name| build(name, Build::Musl));
    Job::new([environment.as_os_str()]).both(&scratch);
    let other = program("tower");
    for how in ["fork+execv", "vfork+execv", "posix_spawn", "posix_spawnp"] {
        let job = Job::new([spawns.as_os_str(), how.as_ref(), other.as_os_str(), "5000".as_ref(), "0".as_ref()]);
        let (_, recording) = job.both(&scratch);
        started(&recording, &other, how);
        assert_eq!(recording.summary["unrecorded"].as_array().unwrap().len(), 0, "{how}: {recording:?}");
        // And the other way round.
        let musl = build("tower", Build::Musl);
        let words = [how.as_ref(), musl.as_os_str(), "5000".as_ref(), "0".as_ref()];
        let (_, recording) = Job::new([program("spawns").as_os_str()].into_iter().chain(words)).both(&scratch);
        started(&recording, &musl, how);
    }
    // A shell in between, by `system` and `popen`, which the C library starts.
    let line = format!("{}; {} 5000 0", environment.display(), other.display());
    Job::shell(&line).both(&scratch);
}

/// Functions of a program for musl are on its stacks; with libraries for glibc it is not recorded.
#[test]
fn stacks_of_programs_for_musl() {
    if installed("musl-gcc").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let tower = build("tower", Build::Musl);
    let (_, recording) =
        Job::new([tower.as_os_str(), "5000".as_ref(), "0".as_ref()]).with_names("all").recorded(&scratch);
    let shown = heapledger(["tree".as_ref(), recording.path.as_os_str()]);
    assert!(shown.text().contains("main"), "{shown:?}");
    let job =
        Job::new([tower.as_os_str(), "5000".as_ref(), "0".as_ref()]).option("--allocator=heapledger").with_report();
    let (outcome, _) = job.recorded(&scratch);
    let told = String::from_utf8_lossy(&outcome.stderr);
    assert!(told.contains("HL0004"), "{told}");
}

// ------------------------------------------------------------------------------------ other roots

/// Another root directory, with a folder `/out` that is the scratch directory of the test.
struct Root {
    words: Vec<OsString>,
}

impl Root {
    /// `None`, with a message, if there is no bubblewrap that works here.
    fn new(root: &Path, out: &Path) -> Option<Root> {
        let bwrap = installed("bwrap")?;
        let mut words: Vec<OsString> = vec![bwrap.into()];
        let mut add = |option: &str, paths: &[&OsStr]| {
            words.push(option.into());
            words.extend(paths.iter().map(|path| path.to_os_string()));
        };
        add("--bind", &[root.as_os_str(), "/".as_ref()]);
        add("--proc", &["/proc".as_ref()]);
        add("--dev", &["/dev".as_ref()]);
        add("--tmpfs", &["/tmp".as_ref()]);
        add("--bind", &[out.as_os_str(), "/out".as_ref()]);
        add("--chdir", &["/out".as_ref()]);
        add("--unshare-pid", &[]);
        let root = Root { words };
        let outcome = root.run(&["/bin/heapledger", "--version"]);
        if outcome.status != exited(0) {
            skipped(&format!("bubblewrap does not work here: {outcome:?}"));
            return None;
        }
        Some(root)
    }

    fn run(&self, line: &[&str]) -> Outcome {
        Job::new(self.words.iter().cloned().chain(line.iter().map(OsString::from))).bare()
    }

    /// Records a command line in there, to a file of this name.
    fn recorded(&self, scratch: &Scratch, name: &str, line: &[&str]) -> (Outcome, Recording) {
        self.recorded_with(scratch, name, &[], line)
    }

    fn recorded_with(&self, scratch: &Scratch, name: &str, options: &[&str], line: &[&str]) -> (Outcome, Recording) {
        let file = format!("/out/{name}");
        let words = ["/bin/heapledger", "record", "--names=none", "-o", &file];
        let outcome = self.run(&[&words[..], options, &["--"], line].concat());
        let file = scratch.file(name);
        assert!(file.exists(), "{line:?}: {outcome:?}");
        (outcome, Recording::open(file))
    }
}

/// A system of musl and busybox, as small as containers are.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_system_with_musl() {
    let (Some(command), Some(busybox)) = (static_command(), installed("busybox")) else { return };
    let linker = Path::new("/lib/ld-musl-x86_64.so.1");
    if !linker.exists() {
        return skipped("musl is not installed");
    }
    let scratch = Scratch::new();
    let root = scratch.file("root");
    for name in ["bin", "lib", "proc", "dev", "tmp", "out"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    let mix = build("mix", Build::Musl);
    let copies = [
        (command.as_path(), "bin/heapledger"),
        (&busybox, "bin/busybox"),
        (linker, "lib/ld-musl-x86_64.so.1"),
        (&mix, "bin/mix"),
        (&build("spawns", Build::Musl), "bin/spawns"),
    ];
    for (from, to) in copies {
        fs::copy(from, root.join(to)).unwrap();
    }
    std::os::unix::fs::symlink("busybox", root.join("bin/sh")).unwrap();
    let Some(inside) = Root::new(&root, scratch.path()) else { return };

    let doctor = inside.run(&["/bin/heapledger", "doctor"]);
    assert_eq!(doctor.status, exited(0), "{doctor:?}");
    assert!(doctor.text().contains("HL0112"), "{doctor:?}");

    // A program for musl is recorded as it is outside.
    let (outcome, recording) = inside.recorded(&scratch, "mix.hl", &["/bin/mix", "20000"]);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    recording.assert_whole().assert_adds_up();
    let (_, outside) = Job::new([mix.as_os_str(), "20000".as_ref()]).recorded(&scratch);
    assert_eq!(totals(&recording), totals(&outside), "{recording:?}\n{outside:?}");
    // The program's file is not here: its names are found there.
    for words in [["top", "/out/mix.hl"], ["summary", "/out/mix.hl"], ["advise", "/out/mix.hl"]] {
        let outcome = inside.run(&[&["/bin/heapledger"], &words[..]].concat());
        assert_eq!(outcome.status, exited(0), "{words:?}: {outcome:?}");
    }
    let (_, recording) = inside.recorded(&scratch, "spawns.hl", &["/bin/spawns", "fork+execv", "/bin/mix", "100"]);
    let mix = |process: &&Value| process["command"].as_str().is_some_and(|command| command.starts_with("/bin/mix"));
    assert_eq!(recording.processes().iter().filter(mix).count(), 1, "{recording:?}");
}

/// The root directory of a system with a glibc before 2.34, made by `.ci/old-glibc`. `.ci/run`
/// says `none` if its packages are no longer to be had.
fn old_root() -> Option<PathBuf> {
    let given = std::env::var_os("HEAPLEDGER_OLD_ROOT");
    let cannot_be_had = given.as_deref() == Some(OsStr::new("none"));
    let given = given.map(PathBuf::from).filter(|root| root.join("bin/ls").exists());
    if given.is_none() && !cannot_be_had {
        skipped("there is no system with an older glibc: HEAPLEDGER_OLD_ROOT=$(.ci/old-glibc DIRECTORY)");
    }
    given
}

/// Compiles a fixture against an older glibc.
fn compile_for(root: &Path, name: &str, output: &Path) {
    let libraries = root.join("lib/x86_64-linux-gnu");
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/programs").join(name).with_extension("c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-g", "-fno-builtin", "-std=gnu11", "-fno-stack-protector", "-I"]).arg(headers());
    compiler.arg(source).arg("-o").arg(output).arg("-nodefaultlibs").arg("-Wl,--no-as-needed");
    let made = compiler
        .args(["libpthread.so.0", "libc.so.6", "ld-linux-x86-64.so.2"].map(|name| libraries.join(name)))
        .arg("-lgcc")
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Beside a glibc before 2.34, where the functions for threads are in a library of their own, and
/// before 2.35, where the unwinder cannot ask the dynamic linker.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_system_with_an_older_glibc() {
    let (Some(command), Some(old)) = (static_command(), old_root()) else { return };
    let scratch = Scratch::new();
    fs::copy(command, old.join("bin/heapledger")).unwrap();
    let Some(inside) = Root::new(&old, scratch.path()) else { return };
    let doctor = inside.run(&["/bin/heapledger", "doctor"]);
    assert_eq!(doctor.status, exited(0), "{doctor:?}");
    for expected in ["self-test", "allocations of /bin/sh"] {
        assert!(doctor.text().contains(expected), "{expected}: {doctor:?}");
    }
    for (name, works) in [("mix", ["00000", "20000"]), ("mix_threads", ["0000", "3000"])] {
        compile_for(&old, name, &scratch.file(name));
        let path = format!("/out/{name}");
        let [idle, busy] = works.map(|work| {
            let (outcome, recording) = inside.recorded(&scratch, &format!("{name}.{work}.hl"), &[&path, work]);
            assert_eq!(outcome.status, exited(0), "{outcome:?}");
            recording.assert_whole().assert_adds_up();
            (outcome.printed_objects().pop().unwrap(), recording)
        });
        for (counted, value) in busy.0.as_object().unwrap() {
            let told = value.as_i64().unwrap() - number(&idle.0, counted);
            let recorded = busy.1.total(counted) - idle.1.total(counted);
            assert!(value == -1 || told == recorded, "{counted}: {told}, recorded {recorded}: {:?}", busy.1);
        }
    }
    // Programs of that system; most have no library for threads.
    let perl = "my %h; $h{$_} = 'x' x $_ for 1..2000; print scalar(keys %h), \"\\n\"";
    let lines: [&[&str]; 5] = [
        &["/bin/ls", "-la", "/usr/bin"],
        &["/usr/bin/perl", "-e", perl],
        &["/bin/bash", "-c", "for i in $(seq 200); do x=$x$i; done; echo ${#x}; ls / | sort | wc -l"],
        &["/usr/bin/sqlite3", ":memory:", "create table t(a); insert into t values (1); select count(*) from t;"],
        &["/usr/bin/python3.9", "-S", "-c", "print(sum(len(str(i)) for i in range(10000)))"],
    ];
    for (index, line) in lines.into_iter().enumerate() {
        let bare = inside.run(line);
        assert_eq!(bare.status, exited(0), "{line:?}: {bare:?}");
        let (outcome, recording) = inside.recorded(&scratch, &format!("program.{index}.hl"), line);
        assert_eq!((outcome.status, &outcome.stdout), (bare.status, &bare.stdout), "{line:?}: {outcome:?}");
        recording.assert_whole().assert_adds_up();
        assert!(recording.total("allocations") > 20, "{line:?}: {recording:?}");
        assert_eq!(recording.summary["unrecorded"].as_array().unwrap().len(), 0, "{line:?}: {recording:?}");
        assert_eq!(recording.total("stacks_dropped"), 0, "{line:?}: {recording:?}");
        let (_, verified) = inside.recorded_with(&scratch, "verified.hl", &["--force", "--verify-stacks"], line);
        let of = |name| verified.total(name);
        assert!(of("stacks_verified") > 20, "{line:?}: {verified:?}");
        assert_eq!((of("stacks_mismatched"), of("stacks_dropped")), (0, 0), "{line:?}: {verified:?}");
    }
    other_verbs_in(&inside, &scratch);
}

/// Asserts that the verbs work that load other libraries than `record` does, with a program for
/// which the functions for threads are no part of the C library.
fn other_verbs_in(inside: &Root, scratch: &Scratch) {
    let lines: [&[&str]; 3] =
        [&["/out/mix_threads", "3000"], &["/bin/ls", "/usr/bin"], &["/usr/bin/python3.9", "-S", "-c", "print(7)"]];
    let log = ["log", "record", "--force", "-o", "/out/calls.log"];
    let verbs: [&[&str]; 4] = [&["check"], &["run", "--allocator=heapledger"], &["run", "--phc"], &log];
    for verb in verbs {
        for line in lines {
            let bare = inside.run(line);
            let outcome = inside.run(&[&["/bin/heapledger"], verb, &["--"], line].concat());
            assert_eq!(outcome.status, exited(0), "{verb:?} {line:?}: {outcome:?}");
            // Its threads print what they counted, in any order.
            if line[0] != "/out/mix_threads" {
                assert_eq!(outcome.stdout, bare.stdout, "{verb:?} {line:?}: {outcome:?}");
            }
        }
        assert!(scratch.file("calls.log").exists() || verb[0] != "log", "{verb:?}");
    }
    let replayed = inside.run(&["/bin/heapledger", "replay", "--rounds=1", "/out/mix.20000.hl"]);
    assert_eq!(replayed.status, exited(0), "{replayed:?}");
    for expected in ["system", "heapledger"] {
        assert!(replayed.text().contains(expected), "{replayed:?}");
    }
}

// --------------------------------------------------------------------------------------- services

/// The script by which systemd becomes process 1 of namespaces of its own, with these units alone.
const SYSTEMD: &str = "mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir -p /run/systemd /run/lock && \
    container=unshare SYSTEMD_UNIT_PATH=\"$0\" exec \"$1\" --system --unit=armed.target --log-target=console";

/// Returns the process that runs a program with this argument, as this namespace sees it.
fn process_with(program: &Path, argument: &Path) -> Option<String> {
    let wanted = [program.as_os_str().as_encoded_bytes(), b"\0", argument.as_os_str().as_encoded_bytes()].concat();
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    processes
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .find(|process| fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.starts_with(&wanted)))
}

/// Services of a real systemd, with what units restrict, are recorded from outside while they run.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn services_of_systemd() {
    let systemd = Path::new("/lib/systemd/systemd");
    let can = Job::new(["unshare", "-fpmuiC", "--mount-proc", "mount", "--make-rprivate", "/"]).bare();
    if !systemd.exists() || can.status != exited(0) {
        return skipped("systemd is not installed, or this user makes no namespaces");
    }
    let scratch = Scratch::new();
    let (library, program) = (armed::library(&scratch), program("armed"));
    let units = scratch.file("units");
    fs::create_dir(&units).unwrap();
    let restricted = [
        ("plain", ""),
        ("tight", "PrivateTmp=yes\nProtectSystem=strict\nNoNewPrivileges=yes\nPrivateNetwork=yes\nProtectHome=tmpfs\n"),
        ("filtered", "SystemCallFilter=@system-service\nRestrictAddressFamilies=AF_UNIX\n"),
    ];
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).display();
    let mut wanted = String::new();
    for (name, options) in restricted {
        let directory = scratch.file(name);
        fs::create_dir(&directory).unwrap();
        // The shell is armed, too, and tells systemd that it is ready.
        let start = format!("systemd-notify --ready; exec {} {} 1", program.display(), directory.display());
        let service = format!(
            "[Unit]\nDefaultDependencies=no\n[Service]\nType=notify\nNotifyAccess=all\nExecStart=/bin/sh -c '{start}'\n\
             Environment=LD_PRELOAD={}\nBindPaths={target}\n{options}",
            library.display()
        );
        fs::write(units.join(format!("{name}.service")), service).unwrap();
        wanted += &format!(" {name}.service");
    }
    let unit = format!("[Unit]\nDefaultDependencies=no\nWants={}\n", wanted.trim_start());
    fs::write(units.join("armed.target"), unit).unwrap();
    let words = ["unshare", "-fpmuiC", "--mount-proc", "--kill-child", "sh", "-c", SYSTEMD].map(OsStr::new);
    let running = Job::new(words.into_iter().chain([units.as_os_str(), systemd.as_os_str()])).start_bare();
    for (name, _) in restricted {
        let directory = scratch.file(name);
        wait_until(name, || directory.join("ready.0").exists());
        let process = process_with(&program, &directory).unwrap_or_else(|| panic!("no process of {name}"));
        let file = scratch.file(&format!("{name}.hl"));
        // A process with filters of system calls joins if it is said that they allow it (HL0116).
        let options: &[&str] = if name == "filtered" { &["--sandboxed"] } else { &[] };
        let recorder = armed::start(&process, &file, options);
        wait_until("the recorder is ready", || heapledger(["status", &*process]).status == exited(0));
        fs::write(directory.join("go.0"), "").unwrap();
        wait_until("the work is done", || directory.join("did.0").exists());
        armed::succeeded(&heapledger(["stop", &*process]));
        armed::succeeded(&recorder.outcome());
        fs::write(directory.join("over.0"), "").unwrap();
        wait_until("the service goes on", || directory.join("left.0").exists());
        let recording = Recording::open(file);
        let [allocations, unknown, lost] =
            ["allocations", "frees_unknown", "events_lost"].map(|total| recording.total(total));
        assert_eq!((allocations, unknown, lost), (armed::ALLOCATIONS, armed::OLD, 0), "{name}: {recording:?}");
    }
    drop(running);
}

/// Children in other namespaces are followed, as long as they can reach the recorder's socket and
/// library.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_in_namespaces_of_their_own() {
    let scratch = Scratch::new();
    let own = [
        "unshare --user --map-root-user --pid --fork --mount",
        "unshare --user",
        "bwrap --dev-bind / / --unshare-user --uid 1000 --gid 1000 --unshare-pid",
        "setpriv --no-new-privs",
    ];
    for line in own {
        let words: Vec<&str> = line.split(' ').collect();
        if installed(words[0]).is_none() {
            continue;
        }
        let job = Job::new(words.iter().chain(&["/bin/ls", "/"]));
        if job.bare().status != exited(0) {
            skipped(&format!("this user may not run `{line}`"));
            continue;
        }
        let (_, recording) = job.both(&scratch);
        let ls = |process: &&Value| process["command"].as_str().is_some_and(|command| command.starts_with("/bin/ls"));
        let ls = recording.processes().iter().find(ls).unwrap_or_else(|| panic!("{line}: {recording:?}"));
        assert!(number(ls, "allocations") > 20, "{line}: {recording:?}");
        assert_eq!(recording.summary["unrecorded"].as_array().unwrap().len(), 0, "{line}: {recording:?}");
    }
}

/// The files of a container are found in the root directory of its process, and names in them, also
/// when it has ended: nothing is at these paths outside.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn names_of_a_program_in_another_root() {
    let Some(bwrap) = installed("bwrap") else { return };
    let scratch = Scratch::new();
    let inside = scratch.file("app");
    fs::create_dir(&inside).unwrap();
    // With a build id, by which the file is known.
    let source = "#include <stdlib.h>\n__attribute__((noinline)) void *named(void) { return malloc(5000000); }\n\
                  int main(void) { return named() == 0; }\n";
    let source = scratch.write("named.c", source);
    let built =
        Job::new(["cc", "-g", "-O0", "-Wl,--build-id"]).argument(&source).argument("-o").argument(inside.join("named"));
    assert_eq!(built.bare().status, exited(0));
    let words = ["--dev-bind", "/", "/", "--tmpfs", "/mnt", "--bind"].map(OsStr::new);
    let line = [bwrap.as_os_str()].into_iter().chain(words).chain([
        inside.as_os_str(),
        "/mnt/app".as_ref(),
        "/mnt/app/named".as_ref(),
    ]);
    let job = Job::new(line).with_names("all");
    if job.bare().status != exited(0) {
        return skipped("bubblewrap does not work here");
    }
    let (_, recording) = job.recorded(&scratch);
    assert!(!Path::new("/mnt/app").exists());
    let shown = heapledger(["top".as_ref(), recording.path.as_os_str()]);
    assert!(shown.text().contains("named"), "{shown:?}");
    assert!(shown.text().contains("named.c:2"), "{shown:?}");
}
