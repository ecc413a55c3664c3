use std::process::{Command, Stdio};

use super::*;

#[test]
fn own_memory_is_read_and_written() {
    let memory = Memory::open(std::process::id()).expect("a process may look at itself");
    // Written by the kernel, so the compiler must not know the content.
    let word = std::hint::black_box(Box::new(std::sync::atomic::AtomicU64::new(0x1122_3344)));
    let address = word.as_ptr().expose_provenance() as u64;
    let mut bytes = [0; 8];
    memory.read(address, &mut bytes).expect("it is mapped");
    assert_eq!(u64::from_ne_bytes(bytes), 0x1122_3344);
    memory.write(address, &7_u64.to_ne_bytes()).expect("it is mapped");
    assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), 7);
    assert!(memory.read(8, &mut bytes).is_err(), "nothing is mapped there");
    let mappings = memory.mappings().expect("the process lives");
    let found = mappings.iter().find(|mapping| mapping.range.contains(&address)).expect("the heap is mapped");
    assert!(found.is_writable);
    let instruction = memory.syscall_instruction(&mappings).expect("there is a vDSO");
    let mut code = [0; 2];
    memory.read(instruction, &mut code).expect("it is mapped");
    assert_eq!(code, [0x0f, 0x05]);
}

/// Where the kernel refuses to write to `/proc/PID/mem`, a stopped thread's memory is written word
/// by word, also where the program cannot write. A file that is open for reading refuses, too.
#[test]
fn refused_writes_are_made_by_a_stopped_thread() {
    let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("every system has it");
    let pid = child.id();
    let written = std::thread::scope(|scope| {
        let step = || {
            let stop = || {
                let mut threads = crate::Threads::seize(pid)?;
                threads.stop().map(|()| threads)
            };
            // Its exec may still be under way.
            let threads = loop {
                match stop() {
                    Err(InjectError::OtherProgram) => {}
                    stopped => break stopped?,
                }
            };
            let memory = Memory::open(pid)?;
            let file = File::open(format!("/proc/{pid}/mem")).map_err(InjectError::request("opening"))?;
            let refusing = Memory { file, ..memory };
            let mappings = refusing.mappings()?;
            let code = mappings.iter().find(|mapping| mapping.is_executable).expect("it has code");
            let (at, mut before, mut after) = (code.range.start + 3, [0; 13], [0; 13]);
            refusing.read(at, &mut before)?;
            assert!(refusing.write(at, b"eleven byte").is_err());
            threads.write(&refusing, at, b"eleven byte")?;
            refusing.read(at, &mut after)?;
            assert_eq!((&after[..11], &after[11..]), (&b"eleven byte"[..], &before[11..]));
            assert!(threads.write(&refusing, 8, b"nothing").is_err());
            Ok::<(), InjectError>(())
        };
        scope.spawn(step).join().expect("it does not panic")
    });
    child.kill().and_then(|()| child.wait()).expect("it is our child");
    written.expect("it is our child");
}

/// The memory of a process whose first thread has ended is that of the others.
#[test]
fn the_first_thread_may_have_ended() {
    let directory = tempfile::tempdir().expect("there is room");
    let (source, program) = (directory.path().join("ends.c"), directory.path().join("ends"));
    let code = "#include <pthread.h>
        #include <unistd.h>
        static pthread_t first;
        static void *wait_for_all(void *unused) {
            char byte;
            pthread_join(first, 0);
            write(1, &byte, 1);
            read(0, &byte, 1);
            return unused;
        }
        int main(void) {
            pthread_t other;
            first = pthread_self();
            pthread_create(&other, 0, wait_for_all, 0);
            pthread_exit(0);
        }";
    fs::write(&source, code).expect("it is ours");
    let compiled = Command::new("cc").arg("-w").arg("-o").arg(&program).arg(&source).arg("-pthread").status();
    assert!(compiled.expect("there is a compiler").success());
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it is there");
    child.stdout.as_mut().expect("it is piped").read_exact(&mut [0]).expect("the first thread ends");
    let path = format!("/proc/{}", child.id());
    // It is gone for pthread_join before it is for the kernel.
    while fs::read(format!("{path}/maps")).is_ok_and(|maps| !maps.is_empty()) {
        std::thread::yield_now();
    }
    let memory = Memory::open(child.id()).expect("it is a child");
    let mappings = memory.mappings().expect("the process lives");
    assert!(memory.is_current() && mappings.iter().any(|mapping| mapping.name.ends_with(b"/ends")), "{mappings:?}");
    drop(child.stdin.take());
    assert!(child.wait().expect("it is a child").success());
    assert!(!memory.is_current());
}
