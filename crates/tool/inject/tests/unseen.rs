//! Programs do not notice that they are stopped, and that calls are made in their threads.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use heapledger_inject::{Caller, InjectError, Memory, Threads};

const PAGE: u64 = 4096;

/// Compiles a program of the fixtures. `None` without a compiler.
fn fixture(name: &str, directory: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../fixtures/programs/{name}.c"));
    let program = directory.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-builtin", "-pthread", "-o"]).args([&program, &source]);
    match compiler.status() {
        Ok(status) => assert!(status.success(), "{} does not compile", source.display()),
        Err(error) => {
            println!("skipped: there is no C compiler ({error})");
            return None;
        }
    }
    Some(program)
}

/// A program that ends when the file appears.
struct Running {
    child: Child,
    end: PathBuf,
}

impl Running {
    fn start(program: &Path, directory: &Path) -> Running {
        let end = directory.join("end");
        let child = Command::new(program).arg(&end).stdout(Stdio::piped()).spawn().expect("it has been compiled");
        Running { child, end }
    }

    fn output(self) -> String {
        fs::write(&self.end, "").expect("the directory is ours");
        let output = self.child.wait_with_output().expect("it is our child");
        assert!(output.status.success(), "{:?}", output.status);
        String::from_utf8(output.stdout).expect("it prints text")
    }
}

/// Maps and unmaps a page in a thread of the process.
fn map_and_unmap(pid: u32) -> Result<(), InjectError> {
    let memory = Memory::open(pid)?;
    let mappings = memory.mappings()?;
    let instruction = memory.syscall_instruction(&mappings).expect("there is a vDSO");
    let mut threads = Threads::stop_one(pid)?;
    let mut tracee = Caller::new(&mut threads, instruction)?;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let page = tracee.syscall("map memory", libc::SYS_mmap, [0, PAGE, protection, flags, u64::MAX, 0])?;
    // A function: mov rax, rdi; add rax, rsi; ret.
    memory.write(page, &[0x48, 0x89, 0xf8, 0x48, 0x01, 0xf0, 0xc3])?;
    tracee.syscall("protect", libc::SYS_mprotect, [page, PAGE, 5, 0, 0, 0])?;
    let stack = tracee.syscall("map memory", libc::SYS_mmap, [0, PAGE, protection, flags, u64::MAX, 0])?;
    assert_eq!(tracee.call("call", page, [40, 2, 0, 0], stack + PAGE)?, 42);
    for unmapped in [page, stack] {
        assert_eq!(tracee.syscall("unmap", libc::SYS_munmap, [unmapped, PAGE, 0, 0, 0, 0])?, 0);
    }
    let refused = tracee.syscall("unmap", libc::SYS_munmap, [1, PAGE, 0, 0, 0, 0]);
    assert!(matches!(refused, Err(InjectError::Call { what: "unmap", .. })), "{refused:?}");
    Ok(())
}

/// Runs in a thread of its own, whose end lets every thread go.
fn in_thread<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[test]
fn waiting_calls_and_signals_go_on() {
    let directory = tempfile::tempdir().expect("there is room");
    let Some(program) = fixture("waits", directory.path()) else { return };
    let running = Running::start(&program, directory.path());
    let pid = running.child.id();
    let (began, mut cycles, mut most) = (Instant::now(), 0, 0);
    while cycles < 30 || (cycles < 200 && began.elapsed() < Duration::from_secs(1)) {
        in_thread(|| {
            let mut threads = Threads::seize(pid).expect("it is our child");
            threads.stop().expect("it runs");
            most = most.max(threads.count());
        });
        in_thread(|| map_and_unmap(pid)).expect("it runs");
        cycles += 1;
    }
    assert!(most >= 12, "there were {most} threads");
    assert_eq!(running.output(), "{\"interrupted\": 0, \"which\": 0, \"lost\": 0, \"wrong\": 0}\n");
}

#[test]
fn programs_that_fork_and_start_others_go_on() {
    let directory = tempfile::tempdir().expect("there is room");
    let Some(program) = fixture("armed_storm", directory.path()) else { return };
    let running = Running::start(&program, directory.path());
    let pid = running.child.id();
    for _ in 0..30 {
        in_thread(|| Threads::seize(pid).and_then(|mut threads| threads.stop())).expect("it runs");
        in_thread(|| map_and_unmap(pid)).expect("it runs");
    }
    assert_eq!(running.output(), "{\"wrong\": 0, \"failed\": 0, \"has_children\": 1}\n");
}

#[test]
fn processes_that_cannot_be_stopped_are_refused() {
    let mut child = Command::new("true").spawn().expect("every system has it");
    let pid = child.id();
    child.wait().expect("it is our child");
    let gone = in_thread(|| Threads::seize(pid).map(drop));
    assert!(matches!(gone, Err(InjectError::Gone)), "{gone:?}");
    // A second tracer.
    let mut child = Command::new("sleep").arg("100").spawn().expect("every system has it");
    let pid = child.id();
    let refused = in_thread(|| {
        let _threads = Threads::seize(pid).expect("it is our child");
        in_thread(|| Threads::seize(pid).map(drop))
    });
    assert!(matches!(refused, Err(InjectError::Traced { .. })), "{refused:?}");
    child.kill().and_then(|()| child.wait()).expect("it is our child");
}
