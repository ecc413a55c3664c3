//! Programs that run without the library, and are recorded from outside: `heapledger attach PID`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::armed::{ALLOCATIONS, assert_has_a_cycle, id, succeeded};
use crate::harness::{
    Build, HEAPLEDGER, Job, Recording, Running, Scratch, build, exited, heapledger, installed, number, program,
    wait_until,
};

/// Begins to record a program, and returns while it is recorded.
fn attach(pid: &str, file: &Path, options: &[&str]) -> Running {
    let words = [HEAPLEDGER, "attach", pid, "--force", "--names", "none", "-o"].map(OsStr::new);
    let options = options.iter().map(OsStr::new);
    Job::new(words.into_iter().chain([file.as_os_str()]).chain(options)).start_bare()
}

/// Returns the mappings of a process that could be the recorder's: code, and memory that is shared.
fn mappings(pid: &str) -> BTreeSet<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let all = maps.lines().map(fields);
    let others = all.filter(|fields| fields[1].contains('x') || fields[1].ends_with('s'));
    others.map(|fields| format!("{} {} {}", fields[0], fields[1], fields.get(5).map_or("", String::as_str))).collect()
}

/// Returns the code of a program's C library and of its dynamic linker, as it is in memory.
fn code(pid: &str) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let is_code = |line: &&str| line.contains("r-xp") && (line.contains("libc.so") || line.contains("/ld-"));
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut all = vec![];
    for line in maps.lines().filter(is_code) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let mut bytes = vec![0; (number(end) - number(start)) as usize];
        memory.read_exact_at(&mut bytes, number(start)).unwrap();
        all.extend(bytes);
    }
    assert!(!all.is_empty(), "{maps}");
    all
}

/// Each recording has exactly what the program does meanwhile. Afterwards the code is as before,
/// and nothing is mapped that was not.
#[test]
fn each_recording_has_what_happens_in_it() {
    let scratch = Scratch::new();
    let cycles: [&[&str]; 4] = [&[], &["--usable"], &["--aggregate"], &["--stacks", "none"]];
    let running = Job::fixture("armed", &format!("{} {}", scratch.path().display(), cycles.len())).start_bare();
    let pid = id(&running);
    let made = |name: &str, cycle: usize| {
        wait_until(name, || scratch.file(&format!("{name}.{cycle}")).exists());
    };
    for (cycle, options) in cycles.iter().enumerate() {
        made("ready", cycle);
        let before = (mappings(&pid), code(&pid));
        let file = scratch.file(&format!("{cycle}.hl"));
        let recorder = attach(&pid, &file, options);
        wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
        assert_ne!(code(&pid), before.1, "{cycle}");
        scratch.write(&format!("go.{cycle}"), "");
        made("did", cycle);
        succeeded(&heapledger(["stop", &*pid]));
        let outcome = recorder.outcome();
        succeeded(&outcome);
        let told = String::from_utf8_lossy(&outcome.stderr);
        assert!(told.contains("heapledger: 5 threads were stopped for "), "{told}");
        assert!(mappings(&pid) == before.0 && code(&pid) == before.1, "{cycle}: {:?} {:?}", before.0, mappings(&pid));
        scratch.write(&format!("over.{cycle}"), "");
        made("left", cycle);
        assert_has_a_cycle(&Recording::open(file));
    }
    let outcome = running.outcome();
    succeeded(&outcome);
    assert_eq!(outcome.text(), format!("{{\"cycles\": {}}}\n", cycles.len()));
}

/// The stacks are those of the program, to `main` and beyond; `record --pid` is the same command.
#[test]
fn stacks_are_those_of_the_program() {
    let scratch = Scratch::new();
    let running = Job::fixture("armed", &format!("{} 1", scratch.path().display())).start_bare();
    let pid = id(&running);
    wait_until("the program is ready", || scratch.file("ready.0").exists());
    let file = scratch.file("recording.hl");
    let words = [HEAPLEDGER, "record", "--pid", &pid, "-o"].map(OsStr::new);
    let recorder = Job::new(words.into_iter().chain([file.as_os_str()])).start_bare();
    wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
    scratch.write("go.0", "");
    wait_until("the program has allocated", || scratch.file("did.0").exists());
    succeeded(&heapledger(["stop", &*pid]));
    succeeded(&recorder.outcome());
    scratch.write("over.0", "");
    succeeded(&running.outcome());
    // The main thread has the blocks that are live at the peak, and the others have allocated most.
    for (options, functions) in [(&[][..], ["_start", "main"]), (&["--total"], ["start_thread", "work"])] {
        let words = ["tree"].into_iter().map(OsStr::new).chain([file.as_os_str()]);
        let text = heapledger(words.chain(options.iter().map(OsStr::new))).text();
        let has_all = functions.iter().all(|function| text.contains(function)) && text.contains("armed.c:");
        assert!(has_all, "{functions:?}: {text}");
    }
}

/// Static programs, and those for musl, are recorded with exactly what happens in them, and nothing
/// of the recorder stays there.
#[test]
fn programs_of_other_c_libraries_are_recorded() {
    let musl = installed("musl-gcc").map(|_| build("armed", Build::Musl));
    for program in [build("armed", Build::Static)].into_iter().chain(musl) {
        let scratch = Scratch::new();
        let running = Job::new([program.as_os_str(), scratch.path().as_os_str(), "1".as_ref()]).start_bare();
        let pid = id(&running);
        wait_until("the program is ready", || scratch.file("ready.0").exists());
        let before = mappings(&pid);
        let file = scratch.file("recording.hl");
        let recorder = attach(&pid, &file, &[]);
        wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
        scratch.write("go.0", "");
        wait_until("the program has allocated", || scratch.file("did.0").exists());
        succeeded(&heapledger(["stop", &*pid]));
        succeeded(&recorder.outcome());
        assert_eq!(mappings(&pid), before, "{program:?}");
        scratch.write("over.0", "");
        succeeded(&running.outcome());
        let recording = Recording::open(file.clone());
        assert_eq!(recording.total("allocations"), ALLOCATIONS, "{program:?}: {recording:?}");
        for (options, function) in [(&[][..], "main"), (&["--total"], "work")] {
            let words = ["tree"].into_iter().map(OsStr::new).chain([file.as_os_str()]);
            let text = heapledger(words.chain(options.iter().map(OsStr::new))).text();
            assert!(text.contains(function) && text.contains("armed.c:"), "{program:?}: {text}");
        }
    }
}

/// Recordings of all kinds, while threads wait in every system call that a stop ends: the program
/// sees no interrupted call, and loses no signal.
#[test]
fn a_program_that_waits_sees_nothing() {
    let scratch = Scratch::new();
    let end = scratch.file("end");
    let running = Job::new([program("waits").as_os_str(), end.as_os_str()]).start_bare();
    let pid = id(&running);
    wait_until("the program runs", || fs::read_dir(format!("/proc/{pid}/task")).unwrap().count() > 10);
    let file = scratch.file("recording.hl");
    for _ in 0..4 {
        succeeded(&attach(&pid, &file, &["--duration", "10ms"]).outcome());
    }
    fs::write(end, "").unwrap();
    let outcome = running.outcome();
    succeeded(&outcome);
    assert_eq!(outcome.text(), "{\"interrupted\": 0, \"which\": 0, \"lost\": 0, \"wrong\": 0}\n");
}

/// A process whose first thread has ended is found by another one, and left when that has ended,
/// too.
#[test]
fn threads_that_end_before_the_process() {
    let scratch = Scratch::new();
    let running = Job::fixture("first_ends", &scratch.path().display().to_string()).start_bare();
    let pid = id(&running);
    wait_until("the first thread has ended", || scratch.file("ready").exists());
    let others = || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let names = threads.map(|thread| thread.file_name().into_string().unwrap());
        names.filter(|name| *name != pid).collect::<Vec<_>>()
    };
    // The list of the first thread is empty.
    let seen = || {
        let thread = format!("{pid}/task/{}", others().last().unwrap());
        (mappings(&thread), code(&thread))
    };
    let before = seen();
    let file = scratch.file("recording.hl");
    let recorder = attach(&pid, &file, &[]);
    wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
    assert_ne!(seen().1, before.1);
    scratch.write("next", "");
    wait_until("one thread is left", || scratch.file("done").exists() && others().len() == 1);
    succeeded(&heapledger(["stop", &*pid]));
    succeeded(&recorder.outcome());
    let after = seen();
    assert!(after == before, "{:?} {:?}", before.0, after.0);
    scratch.write("over", "");
    let outcome = running.outcome();
    succeeded(&outcome);
    assert_eq!(outcome.text(), "over\n");
    let recording = Recording::open(file);
    assert!(recording.total("allocations") >= 1000, "{recording:?}");
    assert_eq!(recording.total("events_lost"), 0, "{recording:?}");
}

/// Returns the number of cycles of a stress test: some, or those that the environment wants.
fn cycles() -> usize {
    std::env::var("HEAPLEDGER_ATTACH_CYCLES").ok().and_then(|count| count.parse().ok()).unwrap_or(40)
}

/// Recordings of all kinds, while threads allocate and children are forked and become other
/// programs: none is harmed, and nothing stays in the program.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn many_recordings_harm_nobody() {
    const KINDS: [&[&str]; 5] = [&[], &["--sample", "4KiB"], &["--usable"], &["--aggregate"], &["--on-full", "drop"]];
    let scratch = Scratch::new();
    let end = scratch.file("end");
    let running = Job::new([program("armed_storm").as_os_str(), end.as_os_str()]).start_bare();
    let pid = id(&running);
    wait_until("the program runs", || fs::read_dir(format!("/proc/{pid}/task")).unwrap().count() > 1);
    let before = (mappings(&pid), code(&pid));
    let file = scratch.file("recording.hl");
    let mut allocations = [0; KINDS.len()];
    for (cycle, options) in KINDS.iter().cycle().take(cycles()).enumerate() {
        let outcome = attach(&pid, &file, &[options, &["--duration", "30ms"][..]].concat()).outcome();
        succeeded(&outcome);
        assert!(!String::from_utf8_lossy(&outcome.stderr).contains("HL0110"), "{cycle}: {outcome:?}");
        let recording = Recording::open(file.clone());
        // On a busy machine the program may get no processor in that time.
        allocations[cycle % KINDS.len()] += recording.total("allocations");
        assert_eq!(recording.summary["events_lost_by_cause"]["unreadable"], 0, "{cycle}: {recording:?}");
    }
    assert!(allocations.iter().all(|&allocations| allocations > 0), "{allocations:?}");
    assert!(mappings(&pid) == before.0 && code(&pid) == before.1, "{:?} {:?}", before.0, mappings(&pid));
    scratch.write("end", "");
    let outcome = running.outcome();
    succeeded(&outcome);
    let told = &outcome.printed_objects()[0];
    assert_eq!((number(told, "wrong"), number(told, "failed")), (0, 0), "{outcome:?}");
}

/// A process that starts other programs in its place all the time: a recording ends with the
/// program that it was begun with, or is refused, and the next program is not touched.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_are_replaced_go_on() {
    let scratch = Scratch::new();
    let end = scratch.file("end");
    let running = Job::new([program("reexecs").as_os_str(), end.as_os_str()]).start_bare();
    let pid = id(&running);
    let file = scratch.file("recording.hl");
    let (mut recorded, mut attempts) = (0, 0);
    // On a busy machine, the program may have been replaced in each of these.
    while attempts < cycles() || recorded == 0 && attempts < 20 * cycles() {
        attempts += 1;
        let outcome = attach(&pid, &file, &["--duration", "5ms"]).outcome();
        recorded += i32::from(outcome.status == exited(0));
        assert!(!String::from_utf8_lossy(&outcome.stderr).contains("panicked"), "{outcome:?}");
    }
    assert!(recorded > 0);
    scratch.write("end", "");
    let outcome = running.outcome();
    succeeded(&outcome);
    assert_eq!(outcome.text(), "{\"started\": 1}\n");
}

/// A recorder that is killed leaves its jumps behind. The program goes on, and the next recorder
/// takes the jumps over, and back.
#[test]
fn the_jumps_of_a_killed_recorder_are_taken_over() {
    let scratch = Scratch::new();
    let running = Job::fixture("armed", &format!("{} 1", scratch.path().display())).start_bare();
    let pid = id(&running);
    wait_until("the program is ready", || scratch.file("ready.0").exists());
    let before = code(&pid);
    let file = scratch.file("recording.hl");
    let first = attach(&pid, &file, &[]);
    wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
    drop(first);
    assert_ne!(code(&pid), before);
    let second = attach(&pid, &file, &[]);
    wait_until("the next one is ready", || heapledger(["status", &*pid]).status == exited(0));
    scratch.write("go.0", "");
    wait_until("the program has allocated", || scratch.file("did.0").exists());
    succeeded(&heapledger(["stop", &*pid]));
    succeeded(&second.outcome());
    assert!(code(&pid) == before, "the code is not as before");
    scratch.write("over.0", "");
    succeeded(&running.outcome());
    let recording = Recording::open(file);
    assert_eq!((recording.total("allocations"), recording.total("events_lost")), (ALLOCATIONS, 0), "{recording:?}");
}

/// A process that forks while it is recorded: its children are recorded, too, and nothing of the
/// recorder stays in those that are still there.
#[test]
fn children_are_recorded_and_left() {
    let scratch = Scratch::new();
    let Some(python) = installed("python3") else { return };
    let script = scratch.write(
        "forks.py",
        "import os, sys, time\n\
         d = sys.argv[1]\n\
         while not os.path.exists(d + '/go'): time.sleep(0.005)\n\
         child = os.fork()\n\
         blocks = [bytes(5000) for _ in range(1000)]\n\
         open(d + ('/parent' if child else '/child'), 'w').write(str(os.getpid()))\n\
         while not os.path.exists(d + '/end'): time.sleep(0.005)\n\
         blocks = None\n\
         if child: sys.exit(os.waitpid(child, 0)[1])\n",
    );
    let running = Job::new([python.as_os_str(), script.as_os_str(), scratch.path().as_os_str()]).start_bare();
    let pid = id(&running);
    wait_until("Python runs", || fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("sleep")));
    let before = mappings(&pid);
    let file = scratch.file("recording.hl");
    let recorder = attach(&pid, &file, &[]);
    wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
    scratch.write("go", "");
    wait_until("both have allocated", || scratch.file("parent").exists() && scratch.file("child").exists());
    wait_until("the child's number is there", || !fs::read_to_string(scratch.file("child")).unwrap().is_empty());
    let child = fs::read_to_string(scratch.file("child")).unwrap();
    succeeded(&heapledger(["stop", &*pid]));
    succeeded(&recorder.outcome());
    for pid in [&pid, &child] {
        let shared = mappings(pid).into_iter().filter(|mapping| mapping.contains("memfd")).count();
        assert_eq!((shared, mappings(pid).len()), (0, before.len()), "{:?} {before:?}", mappings(pid));
    }
    scratch.write("end", "");
    succeeded(&running.outcome());
    let recording = Recording::open(file);
    assert_eq!(recording.processes().len(), 2, "{recording:?}");
    assert!(recording.total("allocations") >= 2000, "{recording:?}");
}

/// A program that starts others while it is recorded: they are recorded, dynamic and static ones,
/// in whatever way it starts them. Those that it starts afterwards are not, and nothing of the
/// recorder is in the environment of any.
#[test]
fn what_it_starts_is_recorded() {
    let scratch = Scratch::new();
    let Some(python) = installed("python3") else { return };
    let script = scratch.write(
        "starts.py",
        "import os, subprocess, sys, time\n\
         d, dynamic, fixed, environment = sys.argv[1:]\n\
         def wait(name):\n    while not os.path.exists(d + name): time.sleep(0.005)\n\
         def look(name): return subprocess.run([environment], stdout=open(d + name, 'w')).returncode\n\
         wait('/go')\n\
         assert subprocess.run([dynamic, '1000']).returncode == subprocess.run([fixed, '1001']).returncode == 0\n\
         assert os.waitpid(os.posix_spawn(dynamic, [dynamic, '1002'], {}), 0)[1] == 0\n\
         assert os.system(dynamic + ' 1003; ' + fixed + ' 1004') == look('/during') == 0\n\
         child = os.fork()\n\
         if child == 0: os.execv(fixed, [fixed, '1005'])\n\
         assert os.waitpid(child, 0)[1] == 0\n\
         try: subprocess.run(['/nowhere/at/all'])\n\
         except FileNotFoundError: open(d + '/did', 'w').close()\n\
         wait('/over')\n\
         assert subprocess.run([dynamic, '1006']).returncode == look('/after') == 0\n\
         os.execv(dynamic, [dynamic, '1007'])\n",
    );
    let (dynamic, fixed) = (program("mix"), build("mix", Build::Static));
    let environment = program("environment");
    let words = [python.as_os_str(), script.as_os_str(), scratch.path().as_os_str()].into_iter();
    let words = words.chain([dynamic.as_os_str(), fixed.as_os_str(), environment.as_os_str()]);
    let running = Job::new(words).start_bare();
    let pid = id(&running);
    wait_until("Python runs", || fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("sleep")));
    let before = (mappings(&pid), code(&pid));
    let file = scratch.file("recording.hl");
    let recorder = attach(&pid, &file, &[]);
    wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
    scratch.write("go", "");
    wait_until("it has started all", || scratch.file("did").exists());
    succeeded(&heapledger(["stop", &*pid]));
    succeeded(&recorder.outcome());
    assert!(mappings(&pid) == before.0 && code(&pid) == before.1, "{:?} {:?}", before.0, mappings(&pid));
    scratch.write("over", "");
    succeeded(&running.outcome());
    let recording = Recording::open(file);
    assert_eq!((recording.total("events_lost"), recording.summary["complete"].as_bool()), (0, Some(true)));
    for number_of in 1000..=1007 {
        let found = recording.running(&format!(
            "mix{} {number_of}",
            if [1001, 1004, 1005].contains(&number_of) { ".static" } else { "" }
        ));
        let found = found.iter().filter(|process| number(process, "allocations") > 500).count();
        // The shell's command line has two of them.
        assert_eq!(found > 0, number_of < 1006, "{number_of}: {recording:?}");
    }
    let seen = |name: &str| fs::read_to_string(scratch.file(name)).unwrap();
    assert_eq!(seen("during"), seen("after"));
    assert!(!seen("during").contains("sees"), "{}", seen("during"));
}

/// A program that starts another in its own place is recorded there, too.
#[test]
fn the_program_in_its_place_is_recorded() {
    let scratch = Scratch::new();
    let line = format!(
        "while ! [ -e {0}/go ]; do read -t 0.01 x; done; exec {1} 1000",
        scratch.path().display(),
        program("mix").display()
    );
    let Some(bash) = installed("bash") else { return };
    let running = Job::new([bash.as_os_str(), "-c".as_ref(), line.as_ref()]).start_bare();
    let pid = id(&running);
    wait_until("it runs", || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "bash\n"));
    let file = scratch.file("recording.hl");
    let recorder = attach(&pid, &file, &[]);
    wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
    scratch.write("go", "");
    succeeded(&running.outcome());
    succeeded(&recorder.outcome());
    let recording = Recording::open(file);
    let [process] = recording.processes() else { panic!("{recording:?}") };
    assert_eq!(process["images"].as_array().map(Vec::len), Some(2), "{recording:?}");
    assert!(number(process, "allocations") > 500, "{recording:?}");
}

/// Libraries with an allocator of their own that a program opens while it is recorded: every call
/// is recorded, from their constructors on, and their code is as before afterwards.
#[test]
fn libraries_that_it_opens() {
    let scratch = Scratch::new();
    let [one, other] = crate::own_allocator::later::plugins(&scratch);
    // The number of calls, by the recording and by the program itself.
    let calls = |program: &Path, [one, other]: [&Path; 2], mode: &str, work: &str| {
        let scratch = Scratch::new();
        let words = [program.as_os_str(), one.as_os_str(), other.as_os_str(), mode.as_ref(), work.as_ref()];
        let job = Job::new(words).variable("WORK", work).variable("WAIT", scratch.path());
        let running = job.start_bare();
        let pid = id(&running);
        wait_until("the program is ready", || scratch.file("ready").exists());
        let before = code(&pid);
        let file = scratch.file("recording.hl");
        let recorder = attach(&pid, &file, &[]);
        wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
        scratch.write("go", "");
        wait_until("the program is done", || scratch.file("did").exists());
        succeeded(&heapledger(["stop", &*pid]));
        let outcome = recorder.outcome();
        succeeded(&outcome);
        assert!(!String::from_utf8_lossy(&outcome.stderr).contains("HL0"), "{outcome:?}");
        assert!(code(&pid) == before, "the code is not as before");
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(!maps.contains("heapledger:") && !maps.contains("memfd:heapledger"), "{maps}");
        scratch.write("over", "");
        let ended = running.outcome();
        succeeded(&ended);
        let recording = Recording::open(file);
        assert_eq!((recording.total("events_lost"), recording.total("frees_missed")), (0, 0), "{recording:?}");
        let told = ended.printed_objects().pop().unwrap();
        ["allocations", "frees", "bytes_allocated"].map(|name| (recording.total(name), number(&told, name)))
    };
    let compare = |program: &Path, plugins: [&Path; 2], mode: &str| {
        // The dynamic linker's own blocks are the same for both.
        let (few, many) = (calls(program, plugins, mode, "10"), calls(program, plugins, mode, "100"));
        for (few, many) in few.into_iter().zip(many) {
            assert!(many.1 > few.1 && many.0 - few.0 == many.1 - few.1, "{mode}: {few:?} {many:?}");
        }
    };
    for mode in ["once", "again", "both"] {
        compare(&program("later"), [&one, &other], mode);
    }
    if installed("musl-gcc").is_none() {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/programs/later_plugin.c");
    let plugin = scratch.file("plugin.so");
    let mut compiler = Command::new("musl-gcc");
    compiler.args(["-O1", "-fno-builtin", "-shared", "-fPIC", "-o"]).arg(&plugin).arg(&source);
    assert!(compiler.status().unwrap().success());
    compare(&build("later", Build::Musl), [&plugin, &plugin], "once");
}

/// Processes that cannot be recorded, each with what to do.
#[test]
fn refusals_say_what_to_do() {
    let says = |target: &str, words: &[&str]| {
        let outcome = heapledger(["attach", target]);
        assert_ne!(outcome.status, exited(0), "{outcome:?}");
        let text = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(words.iter().all(|word| text.contains(word)) && text.contains("hint:"), "{words:?}: {text}");
        assert!(outcome.stdout.is_empty(), "{outcome:?}");
    };
    says("4194304", &["there is no process 4194304"]);
    says("redis", &["`redis` is not the number of a process", "pgrep redis"]);
    if let Some(strace) = installed("strace") {
        let traced =
            Job::new([strace.as_os_str(), "-o".as_ref(), "/dev/null".as_ref(), "sleep".as_ref(), "60".as_ref()]);
        let traced = traced.start_bare();
        let children = format!("/proc/{0}/task/{0}/children", id(&traced));
        let child = || fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
        let is_traced = || {
            fs::read_to_string(format!("/proc/{}/status", child()))
                .is_ok_and(|status| status.contains("Name:\tsleep") && !status.contains("TracerPid:\t0"))
        };
        wait_until("strace traces", is_traced);
        says(&child(), &["HL0108", "is being traced by process", "ps -o pid,args -p"]);
    }
    if let Some(bubblewrap) = installed("bwrap") {
        // A filter that allows everything: `ret SECCOMP_RET_ALLOW`.
        let line = "printf '\\006\\000\\000\\000\\000\\000\\377\\177' > filter; \
                    exec \"$0\" --ro-bind / / --dev-bind /dev /dev --proc /proc --seccomp 9 sleep 61 9< filter";
        let scratch = Scratch::new();
        let job = Job::new(["/bin/sh".as_ref(), "-c".as_ref(), line.as_ref(), bubblewrap.as_os_str()]);
        let _confined = job.directory(scratch.path()).start_bare();
        let found = || Command::new("pgrep").args(["-n", "-f", "^sleep 61$"]).output().unwrap().stdout;
        let pid = || String::from_utf8(found()).unwrap().trim().to_owned();
        wait_until("the program is confined", || !pid().is_empty());
        says(&pid(), &["HL0109", "is in a sandbox (seccomp)", "heapledger record -- sleep 61"]);
    }
}

/// A real server under load: its clients get all their answers, and it goes on.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_server_under_load_is_recorded_many_times() {
    let (Some(server), Some(client), Some(load)) =
        (installed("redis-server"), installed("redis-cli"), installed("redis-benchmark"))
    else {
        return;
    };
    let scratch = Scratch::new();
    let socket = scratch.file("socket");
    let words = ["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"].map(OsStr::new);
    let line = [server.as_os_str()].into_iter().chain(words).chain([socket.as_os_str()]);
    let running = Job::new(line).start_bare();
    let pid = id(&running);
    let ask = |word: &str| Command::new(&client).arg("-s").arg(&socket).arg(word).output().unwrap().stdout;
    wait_until("the server answers", || ask("ping") == b"PONG\n");
    let before = mappings(&pid);
    let words = ["-q", "-l", "-t", "set,lpush,get", "-n", "100000", "-d", "200", "-s"].map(OsStr::new);
    let clients = Job::new([load.as_os_str()].into_iter().chain(words).chain([socket.as_os_str()])).start_bare();
    let file = scratch.file("redis.hl");
    let mut allocations = 0;
    for cycle in 0..(cycles() / 2).min(100) {
        let options: &[&str] = if cycle % 2 == 0 { &[] } else { &["--sample", "4KiB"] };
        let outcome = attach(&pid, &file, &[options, &["--duration", "50ms"]].concat()).outcome();
        succeeded(&outcome);
        assert!(!String::from_utf8_lossy(&outcome.stderr).contains("HL0110"), "{cycle}: {outcome:?}");
        let recording = Recording::open(file.clone());
        allocations += recording.total("allocations");
        assert_eq!(recording.total("events_lost"), 0, "{recording:?}");
    }
    assert!(allocations > 1000, "{allocations}");
    assert_eq!(mappings(&pid), before);
    drop(clients);
    assert_eq!(ask("ping"), b"PONG\n");
    ask("shutdown");
    succeeded(&running.outcome());
}
