use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

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
    // Memory that is not writable is written all the same, by either way.
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
