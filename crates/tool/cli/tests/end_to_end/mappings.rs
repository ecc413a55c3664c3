//! Mappings over time: `record --mappings`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use heapledger_core::Bytes;
use heapledger_recording::{
    AddressSpace, ImageId, MappingCall, MappingChange, MappingEvent, MappingFlags, MappingKind, MappingSerial,
    Protection, Recording,
};

use crate::harness::{
    Build, HEAPLEDGER, Job, Scratch, build, exited, heapledger, installed, number, plain_command, skipped, wait_until,
};
use crate::static_programs::{static_go, static_with_musl};

/// The rows of an image.
fn rows(recording: &Recording<'_>, image: ImageId) -> Vec<MappingEvent> {
    recording.mapping_events(image).map(|row| row.unwrap()).collect()
}

/// Repeats the rows: what is mapped in the end, without the boundaries between mappings.
fn mapped(rows: &[MappingEvent]) -> AddressSpace {
    let mut space = AddressSpace::default();
    for row in rows {
        let overlapped = space.apply(row);
        let is_mapped = matches!(row.change, MappingChange::Mapped { .. });
        assert!(!is_mapped || overlapped.is_empty(), "{row:?} replaces {overlapped:?}");
    }
    let mut joined = AddressSpace::default();
    for piece in space.pieces() {
        joined.map(piece.start, piece.bytes, MappingSerial(0), piece.protection);
    }
    joined
}

/// Compares what is mapped with the lines `START END PROTECTION` of a program.
fn assert_has(space: &AddressSpace, printed: &str) {
    for line in printed.lines() {
        let numbers: Vec<u64> = line.split(' ').map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
        let [start, end, protection] = numbers[..] else { panic!("{line}") };
        let found = space.within(start, Bytes(end - start));
        let whole = found.iter().map(|piece| piece.bytes.0).sum::<u64>() == end - start;
        let as_printed = found.iter().all(|piece| u64::from(piece.protection.bits()) == protection);
        assert!(whole && as_printed, "{line}: {found:x?}");
    }
}

/// Records a fixture with all of its mappings. Returns the bytes of the recording and the output.
fn recorded(scratch: &Scratch, job: Job) -> (Vec<u8>, String) {
    let (outcome, recording) = job.option("--mappings").recorded(scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    (fs::read(&recording.path).unwrap(), outcome.text())
}

/// Each call has its rows, with results and errors as without the recorder, and the ranges that are
/// left are those that the program says.
#[test]
fn every_call_is_a_change() {
    let scratch = Scratch::new();
    let (file, printed) = recorded(&scratch, Job::fixture("maps_memory", "all"));
    let recording = Recording::open(&file).unwrap();
    let rows = rows(&recording, ImageId(0));
    assert_has(&mapped(&rows), &printed);
    let count = |call: MappingCall| rows.iter().filter(|row| row.call == call).count();
    for call in MappingCall::ALL {
        assert!(
            count(call) > 0 || [MappingCall::Sbrk, MappingCall::Shmat, MappingCall::Shmdt].contains(&call),
            "{call:?}"
        );
    }
    // The stack of each call leads to `main`, whoever made it.
    let tree = recording.stack_tree(ImageId(0), &mut heapledger_recording::NodeCache::default());
    let mut depths = BTreeMap::new();
    for row in rows.iter().filter(|row| row.call != MappingCall::Unseen) {
        depths.insert(row.stack, tree.frames(row.stack).count());
    }
    assert!(depths.values().all(|&depth| depth >= 4), "{depths:?}");
    // malloc's own mappings: the heap, and the block beyond its threshold, which was moved or
    // grown.
    let kinds = |is_allocators: bool| {
        let mut kinds: Vec<MappingKind> = rows
            .iter()
            .filter_map(|row| match row.change {
                MappingChange::Mapped { kind, flags, .. }
                    if row.call != MappingCall::Unseen && flags.contains(MappingFlags::ALLOCATOR) == is_allocators =>
                {
                    Some(kind)
                }
                _ => None,
            })
            .collect();
        kinds.sort();
        kinds.dedup();
        kinds
    };
    assert!(kinds(true).contains(&MappingKind::Anonymous), "{rows:?}");
    for kind in [MappingKind::Anonymous, MappingKind::Shared, MappingKind::Brk, MappingKind::Code] {
        assert!(kinds(false).contains(&kind), "{kind:?}");
    }
    // Mappings that were there before are found, with the names of files.
    let is_found = |row: &&MappingEvent| row.call == MappingCall::Unseen;
    let named = rows.iter().filter(is_found).filter_map(|row| match row.change {
        MappingChange::Mapped { file, flags, .. } if flags.contains(MappingFlags::FOUND) => recording.text(file),
        _ => None,
    });
    let names: Vec<String> = named.map(|text| String::from_utf8_lossy(&text.bytes).into_owned()).collect();
    assert!(names.iter().any(|name| name.ends_with("/maps_memory")), "{names:?}");
    assert!(names.iter().any(|name| name == "[stack]"), "{names:?}");
}

/// Threads that get each other's addresses at once, and signal handlers that map memory, too.
#[test]
fn a_storm_of_threads_and_signals_leaves_what_it_says() {
    let scratch = Scratch::new();
    let (file, printed) = recorded(&scratch, Job::fixture("maps_memory", "storm 2000"));
    let recording = Recording::open(&file).unwrap();
    let rows = rows(&recording, ImageId(0));
    assert!(rows.len() > 8 * 2000, "{}", rows.len());
    let space = mapped(&rows);
    assert_has(&space, &printed);
    // Nothing else that the threads have mapped is left: all of it can be read and written, and has
    // four pages or fewer.
    let of_program = rows.iter().filter(|row| row.call == MappingCall::Mmap && row.bytes.0 == 4 * 4096);
    let made: u64 = of_program.filter(|row| matches!(row.change, MappingChange::Mapped { .. })).count() as u64;
    assert!(made > 8 * 8, "{made}");
}

/// The same in a statically linked program, whose system calls themselves are redirected.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_storm_in_a_static_program() {
    let scratch = Scratch::new();
    let program = build("maps_memory", Build::Static);
    let job = Job::new([program.as_os_str(), "storm".as_ref(), "2000".as_ref()]);
    let (file, printed) = recorded(&scratch, job);
    let recording = Recording::open(&file).unwrap();
    let rows = rows(&recording, ImageId(0));
    assert_has(&mapped(&rows), &printed);
    let seen: Vec<&MappingEvent> = rows.iter().filter(|row| row.call != MappingCall::Unseen).collect();
    assert!(seen.len() > 8 * 2000, "{} of {}", seen.len(), rows.len());
    let tree = recording.stack_tree(ImageId(0), &mut heapledger_recording::NodeCache::default());
    let shallow = seen.iter().filter(|row| tree.frames(row.stack).count() < 3).count();
    assert!(shallow * 100 < seen.len(), "{shallow} of {} have no stack", seen.len());
}

/// Calls before there is thread-local storage, and so no thread pointer, are the program's alone:
/// what they have mapped is found. Later calls are seen.
#[test]
fn calls_before_a_static_program_has_a_thread_pointer() {
    let scratch = Scratch::new();
    let program = build("maps_early", Build::Static);
    let (file, printed) = recorded(&scratch, Job::new([program.as_os_str()]));
    let recording = Recording::open(&file).unwrap();
    let rows = rows(&recording, ImageId(0));
    assert_has(&mapped(&rows), &printed);
    let later = rows.iter().any(|row| row.call == MappingCall::Mmap && row.bytes.0 == 5 * 4096);
    assert!(later, "{rows:?}");
    // glibc 2.36 maps memory for a long variable before it sets thread-local storage up.
    let text = "glibc.malloc.check=0:".repeat(500);
    let job = || Job::new([program.as_os_str()]).variable("GLIBC_TUNABLES", &text).option("--mappings");
    assert_eq!(job().recorded(&scratch).0.status, job().bare().status);
}

/// musl's detached threads unmap the stacks on which they run.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn detached_threads_of_static_programs() {
    let scratch = Scratch::new();
    let musl = installed("musl-gcc").map(|_| static_with_musl("detached"));
    let rust = rust_for_musl(
        &scratch,
        "fn main() {
             for _ in 0..200 {
                 let (begun, has_begun) = std::sync::mpsc::channel();
                 std::thread::spawn(move || begun.send(vec![1_u8; 24]));
                 has_begun.recv().unwrap();
             }
             println!(\"200\");
         }",
    );
    for program in [Some(build("detached", Build::Static)), musl, rust].into_iter().flatten() {
        let (file, printed) = recorded(&scratch, Job::new([program.as_os_str(), "200".as_ref()]));
        assert_eq!(printed, "200\n", "{}", program.display());
        assert!(Recording::open(&file).unwrap().has_mapping_events());
    }
}

/// Compiles a program in Rust that is linked statically with musl; `None` if that is not there.
fn rust_for_musl(scratch: &Scratch, source: &str) -> Option<PathBuf> {
    let (source, program) = (scratch.write("musl.rs", source), scratch.file("musl"));
    let mut compiler = plain_command("rustc");
    compiler.args(["--edition", "2024", "-O", "--target", "x86_64-unknown-linux-musl"]).arg(source);
    let done = compiler.arg("-o").arg(&program).output().unwrap();
    if !done.status.success() {
        skipped("rustc does not build for x86_64-unknown-linux-musl here");
    }
    done.status.success().then_some(program)
}

/// Go's runtime changes mappings on the stacks of goroutines, which have no room for a recorder:
/// its calls are left alone, and what they have mapped is found.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_runtime_of_go_is_left_alone() {
    let Some(go) = installed("go") else { return skipped("go is not installed") };
    let scratch = Scratch::new();
    let source = scratch.write(
        "main.go",
        "package main\n\n// #include <stdlib.h>\nimport \"C\"\nimport (\"fmt\"; \"os\"; \"runtime/debug\"; \"sync\")\n
         func main() {
             var all sync.WaitGroup
             for i := 0; i < 8; i++ {
                 all.Add(1)
                 go func() {
                     for j := 0; j < 200; j++ {
                         block := make([]byte, 1 << 20)
                         block[j] = 1
                         C.free(C.malloc(100))
                         if j % 50 == 0 { debug.FreeOSMemory() }
                     }
                     all.Done()
                 }()
             }
             all.Wait()
             fmt.Println(\"done\")
             os.Exit(3)
         }\n",
    );
    let Some(program) = static_go(&go, &scratch, &source) else { return };
    let (outcome, recording) = Job::new([program.as_os_str()]).option("--mappings").recorded(&scratch);
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(3), "done\n"), "{outcome:?}");
    assert!(recording.total("allocations") >= 8 * 200, "{recording:?}");
    let file = fs::read(&recording.path).unwrap();
    let rows = rows(&Recording::open(&file).unwrap(), ImageId(0));
    let seen: Vec<&MappingEvent> = rows.iter().filter(|row| row.call != MappingCall::Unseen).collect();
    assert!(!rows.is_empty() && seen.is_empty(), "{seen:?}");
}

/// A program that runs: what is mapped comes first, then the calls with their stacks. In the end,
/// all is as before.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_python_program_that_is_attached_to() {
    if installed("python3").is_none() {
        return skipped("python3 is not installed");
    }
    let scratch = Scratch::new();
    let script = "import mmap, sys\n\
        before = mmap.mmap(-1, 5 << 20)\n\
        print('ready', flush=True)\n\
        sys.stdin.readline()\n\
        kept = [mmap.mmap(-1, 3 << 20) for _ in range(4)]\n\
        gone = mmap.mmap(-1, 7 << 20)\n\
        gone.close()\n\
        print('did', flush=True)\n\
        sys.stdin.readline()\n";
    let mut command = Command::new("python3");
    let mut running = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = running.stdin.take().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let pid = running.id().to_string();
    let file = scratch.file("attached.hl");
    let words = [HEAPLEDGER, "attach", &pid, "--mappings", "-o"].map(OsStr::new);
    let recorder = Job::new(words.into_iter().chain([file.as_os_str()])).start_bare();
    wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
    writeln!(input, "go").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "did");
    assert_eq!(heapledger(["stop", &*pid]).status, exited(0));
    let outcome = recorder.outcome();
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    drop(input);
    assert_eq!(running.wait().unwrap(), exited(0));

    let bytes = fs::read(&file).unwrap();
    let recording = Recording::open(&bytes).unwrap();
    let rows = rows(&recording, ImageId(0));
    let mapped = |bytes: u64, call| {
        let is_one = |row: &&MappingEvent| matches!(row.change, MappingChange::Mapped { .. }) && row.bytes.0 == bytes;
        rows.iter().filter(is_one).filter(|row| row.call == call).count()
    };
    assert_eq!(mapped(3 << 20, MappingCall::Mmap), 4, "{rows:?}");
    assert_eq!(mapped(7 << 20, MappingCall::Mmap), 1, "{rows:?}");
    let unmapped = rows.iter().any(|row| row.call == MappingCall::Munmap && row.bytes.0 == 7 << 20);
    assert!(unmapped, "{rows:?}");
    // Before the recording, nobody saw the call.
    let found: u64 = rows.iter().filter(|row| row.call == MappingCall::Unseen).map(|row| row.bytes.0).sum();
    assert!(found > 5 << 20, "{rows:?}");
    let answer = heapledger(["top", file.to_str().unwrap(), "--mappings", "--at", "end", "--by", "function", "--json"]);
    assert!(answer.text().contains("new_mmap_object"), "{}", answer.text());
}

/// A signal handler that changes a mapping in the middle of an event of its thread: neither loses
/// the other, and the ring stays whole.
#[test]
fn handlers_change_mappings_in_the_middle_of_events() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("maps_in_handlers", "").option("--mappings").recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let printed = &outcome.printed_objects()[0];
    assert_eq!(recording.total("allocations"), number(printed, "blocks"), "{recording:?}");
    assert_eq!(recording.total("events_lost"), 0, "{recording:?}");
    let file = fs::read(&recording.path).unwrap();
    let rows = rows(&Recording::open(&file).unwrap(), ImageId(0));
    let changes = rows.iter().filter(|row| row.call == MappingCall::Mprotect).count() as i64;
    // The program makes others as it starts.
    assert!(changes >= number(printed, "signals"), "{changes} {printed:?}");
}

/// A child begins with the mappings of its parent, and changes only its own. A vfork child changes
/// its parent's.
#[test]
fn a_child_inherits_mappings() {
    let scratch = Scratch::new();
    let (file, printed) = recorded(&scratch, Job::fixture("maps_memory", "fork"));
    let recording = Recording::open(&file).unwrap();
    let (of_child, of_parent) = printed.split_once("parent\n").unwrap();
    assert_eq!(recording.images().len(), 2);
    let child = rows(&recording, ImageId(1));
    assert_has(&mapped(&child), of_child);
    let inherited = child.iter().filter(|row| match row.change {
        MappingChange::Mapped { flags, .. } => flags.contains(MappingFlags::INHERITED),
        _ => false,
    });
    let of_call = inherited.clone().find(|row| row.call == MappingCall::Mmap && row.bytes.0 == 8 * 4096).unwrap();
    let tree = recording.stack_tree(ImageId(1), &mut heapledger_recording::NodeCache::default());
    assert!(tree.frames(of_call.stack).count() >= 3, "the stack of the parent's call");
    let parent = mapped(&rows(&recording, ImageId(0)));
    let line = of_parent.trim();
    let start = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let left: u64 = parent.within(start, Bytes(8 * 4096)).iter().map(|piece| piece.bytes.0).sum();
    assert_eq!(left, 7 * 4096, "one page went in the vfork child");
}

/// Without the option there are none.
#[test]
fn nothing_is_recorded_unless_asked_for() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("maps_memory", "all").recorded(&scratch);
    let file = fs::read(&recording.path).unwrap();
    assert!(!Recording::open(&file).unwrap().has_mapping_events());
}

/// Each file of a recording says by itself what is mapped.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_later_segment_repeats_what_is_mapped() {
    let scratch = Scratch::new();
    let file = scratch.file("parts.hl");
    let job = Job::fixture("maps_memory", "storm 60000").option("--mappings").option("--rotate=100ms");
    let outcome = job.start(Some(&file)).outcome();
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let mut parts = scratch.recordings();
    parts.sort();
    assert!(parts.len() > 1, "{parts:?}");
    let last = fs::read(parts.last().unwrap()).unwrap();
    let recording = Recording::open(&last).unwrap();
    let rows = rows(&recording, ImageId(0));
    let carried = rows.iter().filter(|row| match row.change {
        MappingChange::Mapped { flags, .. } => flags.contains(MappingFlags::CARRIED),
        _ => false,
    });
    assert!(carried.count() > 20);
    assert_has(&mapped(&rows), &outcome.text());
}

/// As many calls as strace counts, of those that the dynamic linker does not make.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn as_many_calls_as_strace_counts() {
    let (Some(strace), Some(python)) = (installed("strace"), installed("python3")) else {
        return skipped("strace or python3 is not installed");
    };
    let script = "\
import mmap
kept = []
for i in range(50):
    m = mmap.mmap(-1, 4096 * (i + 1))
    m.resize(4096 * (i + 20))
    m.madvise(mmap.MADV_DONTNEED)
    kept.append(m)
for m in kept[::2]: m.close()
x = [bytes(1 << 20) for _ in range(40)]
";
    let scratch = Scratch::new();
    let log = scratch.file("strace");
    let traced = Command::new(strace)
        .args(["-f", "-e", "trace=mremap,madvise", "-o"])
        .arg(&log)
        .arg(&python)
        .args(["-S", "-c", script])
        .env("PYTHONHASHSEED", "0")
        .status()
        .unwrap();
    if !traced.success() {
        return skipped("strace may not trace here");
    }
    let log = fs::read_to_string(&log).unwrap();
    let job = Job::new([python.as_os_str(), "-S".as_ref(), "-c".as_ref(), script.as_ref()]);
    let (file, _) = recorded(&scratch, job.variable("PYTHONHASHSEED", "0"));
    let recording = Recording::open(&file).unwrap();
    let rows = rows(&recording, ImageId(0));
    for (name, call) in [("mremap(", MappingCall::Mremap), ("madvise(", MappingCall::Madvise)] {
        let calls = log.lines().filter(|line| line.contains(name)).count();
        let mut seen: Vec<_> = rows.iter().filter(|row| row.call == call).map(|row| row.time).collect();
        seen.dedup();
        assert!(calls >= 50, "{name}: {calls}");
        assert_eq!(seen.len(), calls, "{name}");
    }
    let made = rows.iter().filter(|row| {
        let is_anonymous = matches!(
            row.change,
            MappingChange::Mapped { kind: MappingKind::Shared, protection, .. }
                if protection.contains(Protection::WRITE)
        );
        is_anonymous && row.call == MappingCall::Mmap
    });
    assert_eq!(made.count(), 50, "one for each object");
}
