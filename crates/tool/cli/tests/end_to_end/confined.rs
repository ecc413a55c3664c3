//! Programs that put themselves in a sandbox in which a system call of the recorder would kill
//! them.

use crate::harness::{Build, Job, Recording, Scratch, build, exited, heapledger, installed, program, skipped};
use crate::static_programs::static_with_musl;
use crate::truth::agrees;

fn assert_says_so(recording: &Recording) {
    let shown = heapledger(["summary".as_ref(), recording.path.as_os_str()]);
    assert!(String::from_utf8_lossy(&shown.stderr).contains("HL0077"), "{shown:?}");
}

/// The thread that enters the sandbox is still recorded, into its existing ring, without a system
/// call.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_thread_in_a_sandbox() {
    let scratch = Scratch::new();
    for how in ["strict", "filter", "seccomp"] {
        let (outcome, recording) = Job::fixture("confined", how).both(&scratch);
        assert!(outcome.status.code().is_some_and(|code| (7..9).contains(&code)), "{how}: {outcome:?}");
        let all = recording.total("allocations") + recording.total("frees") + recording.total("events_lost");
        assert!(all >= 400_000, "{how}: {all} calls, and silence about the others: {recording:?}");
        // In strict mode the time stamp counter may not be read.
        assert!(recording.total("allocations") > 10_000 || how == "strict", "{how}: {recording:?}");
        assert_says_so(&recording);
    }
}

/// New threads are recorded, children are counted but not recorded, and new programs start.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn threads_children_and_programs_in_a_sandbox() {
    let scratch = Scratch::new();
    for (how, code) in [("threads", 9), ("fork", 10), ("exec", 5)] {
        let (outcome, recording) = Job::fixture("confined", how).both(&scratch);
        assert_eq!(outcome.status.code(), Some(code), "{how}: {outcome:?}");
        if how == "exec" {
            let unrecorded = &recording.ask("info", &[])["unrecorded"][0];
            assert_eq!(unrecorded["code"], "HL0077", "{recording:?}");
            assert!(unrecorded["path"].as_str().unwrap().ends_with("/confined"), "{unrecorded}");
        } else if how == "threads" {
            assert_eq!((recording.total("events_lost"), recording.total("threads")), (0, 5), "{recording:?}");
            // Five functions that run in parallel allocate, and the C library a little.
            let allocations = recording.total("allocations");
            assert!((62_000..62_100).contains(&allocations), "{recording:?}");
        } else {
            assert!(recording.total("events_lost") > 0, "{how}: {recording:?}");
        }
        assert_says_so(&recording);
    }
}

/// Statically linked programs are not killed for the recorder's system calls, either: those that
/// begin threads there, and those whose mappings are recorded.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn static_programs_in_a_sandbox() {
    let scratch = Scratch::new();
    let musl = installed("musl-gcc").map(|_| static_with_musl("confined_maps"));
    let (confined, maps) = (build("confined", Build::Static), build("confined_maps", Build::Static));
    let of_calls = [Some(maps), musl].into_iter().flatten().map(|program| (program, "", 9));
    for (program, how, code) in [(confined.clone(), "filter", 8), (confined, "threads", 9)].into_iter().chain(of_calls)
    {
        for options in [&[][..], &["--mappings"]] {
            let job = Job::new([program.as_os_str(), how.as_ref()]);
            let job = options.iter().fold(job, |job, option| job.option(option));
            let (outcome, recording) = job.both(&scratch);
            assert_eq!(outcome.status, exited(code), "{} {how} {options:?}: {outcome:?}", program.display());
            assert_says_so(&recording);
        }
    }
}

/// The checks stop: earlier findings are reported, and the program ends as it does without them.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_checked_program_in_a_sandbox() {
    for how in ["strict", "filter", "seccomp", "threads", "fork", "exec"] {
        let job = Job::fixture("confined", how);
        let bare = job.bare();
        let program = program("confined");
        let checked = heapledger(["check".as_ref(), "--".as_ref(), program.as_os_str(), how.as_ref()]);
        assert_eq!((checked.status, &checked.stdout), (bare.status, &bare.stdout), "{how}: {checked:?}");
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(told.contains("[HL0077]:\n") && told.contains("  confined"), "{how}: {told}");
    }
}

/// Processes in another network namespace are recorded, and so are children and threads of one that
/// has no file system any more: no event is lost.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_sandbox_of_namespaces() {
    let bare = Job::fixture("sandboxed", "10").bare();
    if bare.status == exited(77) {
        return skipped("no user namespaces can be made here");
    }
    assert_eq!(bare.status, exited(0), "{bare:?}");
    let (_, recording) = agrees(|work| Job::fixture("sandboxed", work), "20000");
    // The program, the child that executes it again, and that one's three.
    assert_eq!(recording.processes().len(), 5, "{recording:?}");
}

/// `man` formats a page by programs that confine themselves with libseccomp.
#[test]
fn man_confines_its_children() {
    let Some(man) = installed("man") else { return };
    let scratch = Scratch::new();
    let page = scratch.file("confined.1");
    std::fs::write(&page, ".TH CONFINED 1\n.SH NAME\nconfined \\- a page\n").unwrap();
    let job = Job::new([man.as_os_str(), "-P".as_ref(), "cat".as_ref(), "-l".as_ref(), page.as_os_str()]);
    let (outcome, recording) = job.both(&scratch);
    assert!(outcome.status.success() && outcome.text().contains("a page"), "{outcome:?}");
    assert_says_so(&recording);
}
