//! Programs do not notice that they are stopped, and that calls are made in their threads.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use heapledger_inject::{Caller, InjectError, Mapping, Memory, Threads};

const PAGE: u64 = 4096;

/// Compiles a program of the fixtures. `None` without a compiler.
fn fixture(name: &str, directory: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../fixtures/programs/{name}.c"));
    compile(name, &source, directory)
}

fn compile(name: &str, source: &Path, directory: &Path) -> Option<PathBuf> {
    let program = directory.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-builtin", "-pthread", "-o"]).args([program.as_path(), source]);
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
        wait_for_exec(child.id());
        Running { child, end }
    }

    fn output(mut self) -> String {
        fs::write(&self.end, "").expect("the directory is ours");
        let mut text = String::new();
        self.child.stdout.take().expect("it is piped").read_to_string(&mut text).expect("it prints text");
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status:?}");
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a failure it would run for ever.
        let _ = self.child.kill().and_then(|()| self.child.wait());
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
    memory.write(page, b"written")?;
    assert_eq!(tracee.syscall("protect", libc::SYS_mprotect, [page, PAGE, 1, 0, 0, 0])?, 0);
    assert_eq!(tracee.syscall("unmap", libc::SYS_munmap, [page, PAGE, 0, 0, 0, 0])?, 0);
    assert!(memory.read(page, &mut [0]).is_err());
    let refused = tracee.syscall("unmap", libc::SYS_munmap, [1, PAGE, 0, 0, 0, 0]);
    assert!(matches!(refused, Err(InjectError::Call { what: "unmap", .. })), "{refused:?}");
    Ok(())
}

/// Waits until a child has its program: when it has been started, its exec may still be under way.
fn wait_for_exec(pid: u32) {
    let stop = || in_thread(|| Threads::seize(pid).and_then(|mut threads| threads.stop()));
    while matches!(stop(), Err(InjectError::OtherProgram)) {}
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

/// Waits until a condition holds.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns a line of `/proc/PID/status`.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned()
}

/// A thread in `vfork` waits in the kernel until its child is done: it is not waited for, and the
/// child, which uses the same memory, is stopped with the others.
#[test]
fn a_thread_in_vfork_is_not_waited_for() {
    let directory = tempfile::tempdir().expect("there is room");
    let source = directory.path().join("vfork.c");
    let text = "#include <pthread.h>\n#include <unistd.h>\n\
        static void *wait_for_end(void *file) { while (access(file, F_OK) != 0) usleep(1000); return 0; }\n\
        int main(int argc, char **argv) {\n\
            pthread_t thread;\n\
            pthread_create(&thread, 0, wait_for_end, argv[1]);\n\
            if (vfork() == 0) { while (access(argv[1], F_OK) != 0) usleep(1000); _exit(0); }\n\
            pthread_join(thread, 0);\n\
            return argc != 2;\n\
        }\n";
    fs::write(&source, text).expect("the directory is ours");
    let Some(program) = compile("vfork", &source, directory.path()) else { return };
    let running = Running::start(&program, directory.path());
    let pid = running.child.id();
    let children = || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    wait_until("the child runs", || !children().is_empty());
    let child: u32 = children().trim().parse().expect("it is a number");
    for _ in 0..3 {
        in_thread(|| {
            let mut threads = Threads::seize(pid).expect("it is our child");
            threads.stop().expect("the child goes on for as long as we like");
            // Both threads, and the child.
            assert_eq!((threads.count(), threads.stopped().count()), (3, 2));
            assert!(status(child, "State:").contains("t (tracing stop)"), "{}", status(child, "State:"));
        });
        assert!(status(child, "TracerPid:").ends_with("\t0"), "{}", status(child, "TracerPid:"));
    }
    running.output();
}

/// A process that is stopped by job control is worked on, and stays stopped.
#[test]
fn a_stopped_process_stays_stopped() {
    let mut child = Command::new("sleep").arg("100").spawn().expect("every system has it");
    let pid = child.id();
    let signal = |signal| rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal);
    wait_until("it sleeps", || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n"));
    signal(rustix::process::Signal::STOP).expect("it is our child");
    wait_until("it is stopped", || status(pid, "State:").contains("T (stopped)"));
    in_thread(|| map_and_unmap(pid)).expect("it is our child");
    wait_until("it is stopped again", || status(pid, "State:").contains("T (stopped)"));
    signal(rustix::process::Signal::CONT).expect("it is our child");
    wait_until("it goes on", || status(pid, "State:").contains("S (sleeping)"));
    child.kill().and_then(|()| child.wait()).expect("it is our child");
}

/// The place that a signal handler goes back to is told from other words on the stack.
#[test]
fn the_place_that_a_handler_has_interrupted_is_found() {
    let directory = tempfile::tempdir().expect("there is room");
    let source = directory.path().join("handler.c");
    let text = "#include <signal.h>\n#include <unistd.h>\n\
        static const char *file;\n\
        static volatile int is_done;\n\
        static void handle(int number) { while (access(file, F_OK) != 0) usleep(1000); is_done = number; }\n\
        int main(int argc, char **argv) {\n\
            file = argv[1];\n\
            signal(SIGALRM, handle);\n\
            ualarm(50000, 0);\n\
            while (!is_done) {}\n\
            return argc != 2;\n\
        }\n";
    fs::write(&source, text).expect("the directory is ours");
    let Some(program) = compile("handler", &source, directory.path()) else { return };
    let running = Running::start(&program, directory.path());
    let pid = running.child.id();
    wait_until("the handler sleeps", || {
        // usleep(3) is clock_nanosleep(2).
        fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|call| call.starts_with("230 "))
    });
    in_thread(|| {
        let memory = Memory::open(pid).expect("it is our child");
        let mappings = memory.mappings().expect("it runs");
        let code_of = |name: &str| {
            let is_of = |mapping: &&Mapping| String::from_utf8_lossy(&mapping.name).contains(name);
            let code = mappings.iter().filter(|mapping| mapping.is_executable && is_of(mapping));
            code.map(|mapping| mapping.range.clone()).collect::<Vec<_>>()
        };
        let (own, library) = (code_of("/handler"), code_of("libc.so"));
        assert!(!own.is_empty() && !library.is_empty(), "{mappings:?}");
        let mut threads = Threads::seize(pid).expect("it is our child");
        threads.stop().expect("it runs");
        assert!(threads.have_stacks_in(&mappings));
        assert!(threads.are_interrupted_in(&own, &memory, &mappings));
        // The C library has called `main`, and the handler has called it.
        assert!(!threads.are_interrupted_in(&library, &memory, &mappings));
        assert!(threads.refer_to(&library, &memory, &mappings, u64::MAX));
    });
    running.output();
}

/// A signal that comes while calls are made ends a system call that the program was in, if its
/// handler does not make calls begin again.
#[test]
fn a_call_ends_by_a_signal_that_came_meanwhile() {
    let directory = tempfile::tempdir().expect("there is room");
    let source = directory.path().join("alarm.c");
    let text = "#include <errno.h>\n#include <signal.h>\n#include <unistd.h>\n\
        static volatile int handled;\n\
        static void handle(int number) { handled = number; }\n\
        int main(void) {\n\
            struct sigaction action = {.sa_handler = handle};\n\
            char byte;\n\
            sigaction(SIGALRM, &action, 0);\n\
            long count = read(0, &byte, 1);\n\
            return !(count == -1 && errno == EINTR && handled == SIGALRM);\n\
        }\n";
    fs::write(&source, text).expect("the directory is ours");
    let Some(program) = compile("alarm", &source, directory.path()) else { return };
    let mut child = Command::new(program).stdin(Stdio::piped()).spawn().expect("it has been compiled");
    let pid = child.id();
    let is_reading = || fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|call| call.starts_with("0 "));
    wait_until("the program reads", is_reading);
    // The call goes on when others have been made in its thread, and no signal has come.
    in_thread(|| map_and_unmap(pid)).expect("it is our child");
    wait_until("the program reads again", is_reading);
    in_thread(|| {
        let memory = Memory::open(pid).expect("it is our child");
        let instruction = memory.syscall_instruction(&memory.mappings().expect("it runs")).expect("there is a vDSO");
        let mut threads = Threads::stop_one(pid).expect("it is our child");
        let mut caller = Caller::new(&mut threads, instruction).expect("it is stopped");
        let signal = rustix::process::Signal::ALARM;
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).expect("it is our child");
        assert_eq!(caller.syscall("ask", libc::SYS_getpid, [0; 6]).expect("it runs"), u64::from(pid));
    });
    // Its input stays open until the end: it would read for ever.
    let input = child.stdin.take();
    wait_until("the call has ended", || child.try_wait().expect("it is our child").is_some());
    drop(input);
    assert!(child.wait().expect("it is our child").success());
}

/// A restartable sequence in which calls are made begins again: otherwise its last instruction
/// would take effect although others have run meanwhile.
#[test]
fn a_restartable_sequence_begins_again() {
    let directory = tempfile::tempdir().expect("there is room");
    let source = directory.path().join("sequence.c");
    // The sequence is a loop that is left only when it is interrupted. The C library registers
    // `struct rseq` since glibc 2.35.
    let text = r#"
        #include <stddef.h>
        #include <sys/rseq.h>
        #include <unistd.h>
        struct sequence { unsigned version, flags; unsigned long start, length, abort; };
        static struct sequence sequence __attribute__((aligned(32)));
        int main(int argc, char **argv) {
            if (argc != 2 || __rseq_size == 0) pause();
            struct rseq *own = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
            for (;;) {
                __asm__ goto(
                    "leaq 1f(%%rip), %%rax; movq %%rax, 8(%0);"
                    "leaq 2f(%%rip), %%rcx; subq %%rax, %%rcx; movq %%rcx, 16(%0);"
                    "leaq 3f(%%rip), %%rax; movq %%rax, 24(%0);"
                    "movq %0, 8(%1);"
                    "1: pause; jmp 1b;"
                    "2: nop; jmp 4f;"
                    ".byte 0x0f, 0xb9, 0x3d; .long 0x53053053;"
                    "3: jmp %l[aborted];"
                    "4:" : : "r"(&sequence), "r"(own) : "rax", "rcx", "memory", "cc" : aborted);
            aborted:
                if (access(argv[1], F_OK) == 0) return 0;
            }
        }
    "#;
    fs::write(&source, text).expect("the directory is ours");
    let program = directory.path().join("sequence");
    let compiled = Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(&source).output();
    if !compiled.is_ok_and(|compiled| compiled.status.success()) {
        return println!("skipped: there is no C compiler, or no sys/rseq.h");
    }
    let end = directory.path().join("end");
    let mut child = Command::new(&program).arg(&end).spawn().expect("it has been compiled");
    let pid = child.id();
    wait_for_exec(pid);
    for _ in 0..5 {
        in_thread(|| map_and_unmap(pid)).expect("it is our child");
    }
    // A sequence that did not begin again would go on for ever, since the kernel has forgotten it.
    fs::write(&end, "").expect("the directory is ours");
    wait_until("the sequence has begun again", || {
        let has_ended = child.try_wait().expect("it is our child").is_some();
        if !has_ended {
            // It may end meanwhile.
            let _ = in_thread(|| map_and_unmap(pid));
        }
        has_ended
    });
}

/// A program with threads that executes itself again and again while its threads are seized: the
/// kernel would let both wait for each other.
#[test]
fn an_exec_of_many_threads_is_not_waited_for() {
    let directory = tempfile::tempdir().expect("there is room");
    let source = directory.path().join("again.c");
    let text = "#include <pthread.h>\n#include <unistd.h>\n\
        static void *wait_for_end(void *nothing) { for (;;) pause(); return nothing; }\n\
        int main(int argc, char **argv) {\n\
            pthread_t thread;\n\
            if (argc != 2 || access(argv[1], F_OK) == 0) return argc != 2;\n\
            if (getppid() == 1) return 3;\n\
            for (int i = 0; i < 30; i++) pthread_create(&thread, 0, wait_for_end, 0);\n\
            execv(\"/proc/self/exe\", argv);\n\
            return 1;\n\
        }\n";
    fs::write(&source, text).expect("the directory is ours");
    let Some(program) = compile("again", &source, directory.path()) else { return };
    let running = Running::start(&program, directory.path());
    let pid = running.child.id();
    for _ in 0..200 {
        let seized = in_thread(|| Threads::seize(pid).map(drop));
        let is_known = |error: &InjectError| matches!(error, InjectError::OtherProgram | InjectError::Gone);
        assert!(seized.as_ref().err().is_none_or(is_known), "{seized:?}");
    }
    running.output();
}
