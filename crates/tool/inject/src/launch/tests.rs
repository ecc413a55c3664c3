use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use super::*;

/// Starts a program that stops before its first instruction; `None` if nothing may be traced here.
fn stopped(program: &mut Command) -> Option<(Child, ExecStop)> {
    // SAFETY: after the fork the closure makes one system call, and allocates nothing.
    unsafe { program.pre_exec(trace_me) };
    match program.spawn() {
        Ok(child) => {
            let stop = ExecStop::wait(Pid::from_child(&child)).unwrap();
            Some((child, stop))
        }
        Err(error) => {
            eprintln!("skipped: nothing may be traced here: {error}");
            None
        }
    }
}

#[test]
fn memory_is_mapped_and_written_and_the_program_runs() {
    let Some((mut child, mut stop)) = stopped(Command::new("sh").args(["-c", "exit 7"])) else { return };
    let module = stop.module().unwrap()[0];
    assert!(module.start < module.end && module.end < stop.stack_top(), "{module:?}");
    let base = stop.reserve(0x3000).unwrap();
    stop.place_code(base - 0x10_0000, b"code").unwrap();
    assert!(stop.place_code(base, b"code").is_err());
    assert!(stop.has_code(base - 0x10_0000, b"code").unwrap());
    assert!(!stop.has_code(base - 0x10_0000, b"cold").unwrap());
    // Memory that is not writable is written all the same.
    let tracee = stop.tracee();
    tracee.write(module.start, b"\x7fELF").unwrap();
    let mut bytes = [0; 6];
    tracee.read(base - 0x10_0000, &mut bytes).unwrap();
    assert_eq!(&bytes, b"code\0\0");
    assert!(tracee.read(8, &mut bytes).is_err() && tracee.write(8, &bytes).is_err());
    stop.unmap(base, 0x3000).unwrap();
    stop.release().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

/// A signal that comes while the program is worked on arrives.
#[test]
fn signals_that_come_meanwhile_arrive() {
    let Some((mut child, mut stop)) = stopped(Command::new("sleep").arg("600")) else { return };
    // SAFETY: `kill` takes numbers; the child has not been reaped.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    stop.reserve(0x1000).unwrap();
    stop.release().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
}

/// An ignored SIGTRAP stays ignored, blocked signals stay blocked, and others are not.
#[test]
fn the_handling_of_signals_stays() {
    let mut program = Command::new("cat");
    program.arg("/proc/self/status").stdout(Stdio::piped());
    // SAFETY: after the fork the closure makes one system call, and allocates nothing.
    unsafe {
        program.pre_exec(|| {
            libc::signal(libc::SIGTRAP, libc::SIG_IGN);
            Ok(())
        })
    };
    // A child has the mask of the thread that makes it, which is this test's own.
    change_mask(Some(1 << (libc::SIGUSR1 - 1))).unwrap();
    let Some((child, mut stop)) = stopped(&mut program) else { return };
    let at = stop.reserve(0x1000).unwrap();
    stop.unmap(at, 0x1000).unwrap();
    stop.release().unwrap();
    let status = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let has = |field: &str, signal: i32| {
        let mask = status.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim();
        u64::from_str_radix(mask, 16).unwrap() >> (signal - 1) & 1 == 1
    };
    assert!(has("SigIgn:", libc::SIGTRAP) && has("SigBlk:", libc::SIGUSR1), "{status}");
    assert!(!has("SigBlk:", libc::SIGTERM), "{status}");
}

/// Where the kernel refuses `/proc/PID/mem`, memory is read and written word by word.
#[test]
fn memory_is_written_without_its_file() {
    let Some((mut child, mut stop)) = stopped(Command::new("sh").args(["-c", "exit 7"])) else { return };
    let base = stop.reserve(0x1000).unwrap();
    stop.unmap(base, 0x1000).unwrap();
    stop.tracee().memory = None;
    stop.place_code(base, b"code of ours").unwrap();
    assert!(stop.has_code(base, b"code of ours\0\0\0\0").unwrap());
    stop.tracee().write(base + 5, b"is").unwrap();
    assert!(stop.has_code(base, b"code is ours").unwrap());
    stop.release().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

/// A signal that comes before the program is executed arrives when it runs.
#[test]
fn signals_that_come_before_arrive() {
    let mut program = Command::new("sleep");
    program.arg("600");
    // SAFETY: after the fork the closure makes system calls, and allocates nothing.
    unsafe {
        program.pre_exec(|| {
            trace_me()?;
            libc::raise(libc::SIGTERM);
            Ok(())
        })
    };
    let Ok(mut child) = program.spawn() else { return eprintln!("skipped: nothing may be traced here") };
    let mut stop = ExecStop::wait(Pid::from_child(&child)).unwrap();
    stop.reserve(0x1000).unwrap();
    stop.release().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
}

/// If the program is killed meanwhile, that is an error, and its end is left for its parent.
#[test]
fn a_killed_program_is_gone() {
    let Some((mut child, mut stop)) = stopped(Command::new("sleep").arg("600")) else { return };
    // SAFETY: `kill` takes numbers; the child has not been reaped.
    unsafe { libc::kill(child.id() as i32, libc::SIGKILL) };
    while stop.reserve(0x1000).is_ok() {}
    assert!(stop.release().is_err());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}
