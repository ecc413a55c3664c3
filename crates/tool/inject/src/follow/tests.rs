use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use super::*;

/// Starts a shell that executes what it reads, and waits until it reads: before, it may still be in
/// its own execve(2).
fn shell() -> Child {
    let child = Command::new("sh")
        .arg("-c")
        .arg("read line; eval \"$line\"")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // read(2) is number 0, of the descriptor 0.
    let path = format!("/proc/{}/syscall", child.id());
    while !std::fs::read_to_string(&path).unwrap().starts_with("0 0x0 ") {
        std::thread::yield_now();
    }
    child
}

/// Traces a shell; `None` if nothing may be traced here: then the shell is gone.
fn seized(child: &mut Child) -> Option<Follower> {
    let pid = Pid::from_child(child);
    Follower::seize(pid, pid).ok().or_else(|| {
        eprintln!("skipped: nothing may be traced here");
        child.kill().and_then(|()| child.wait()).unwrap();
        None
    })
}

fn say(child: &mut Child, line: &str) {
    child.stdin.take().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn output(child: Child) -> (String, std::process::ExitStatus) {
    let done = child.wait_with_output().unwrap();
    (String::from_utf8(done.stdout).unwrap(), done.status)
}

#[test]
fn a_program_is_changed_before_it_runs() {
    let mut child = shell();
    let Some(follower) = seized(&mut child) else { return };
    say(&mut child, "A=1 C=3 exec env");
    let Followed::Executed(mut stop) = follower.wait(|| false).unwrap() else { panic!() };
    stop.change_environment(|mut entries| {
        entries.retain(|entry| !entry.starts_with(b"A="));
        entries.extend([b"B=new".to_vec()]);
        entries
    })
    .unwrap();
    stop.release().unwrap();
    let (told, status) = output(child);
    assert!(status.success() && !told.contains("A=1"), "{told}");
    assert!(told.contains("C=3\n") && told.ends_with("B=new\n"), "{told}");
}

#[test]
fn a_process_is_left_as_it_was() {
    let mut child = shell();
    let Some(follower) = seized(&mut child) else { return };
    let mut rounds = 0;
    let followed = follower.wait(|| {
        rounds += 1;
        rounds > 3
    });
    assert!(matches!(followed.unwrap(), Followed::Left));
    say(&mut child, "grep TracerPid /proc/self/status; exit 4");
    let (told, status) = output(child);
    assert_eq!((told.split_whitespace().last(), status.code()), (Some("0"), Some(4)));
}

/// Signals are delivered, and a process that ends is gone.
#[test]
fn signals_are_delivered() {
    let mut child = shell();
    let Some(follower) = seized(&mut child) else { return };
    say(&mut child, "trap 'echo caught' USR1; kill -USR1 $$; kill -KILL $$");
    assert!(matches!(follower.wait(|| false), Err(InjectError::Gone)));
    let mut told = String::new();
    child.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((told.as_str(), child.wait().unwrap().signal()), ("caught\n", Some(libc::SIGKILL)));
}

/// A process that is stopped stays so until it is continued.
#[test]
fn a_stopped_process_stays_stopped() {
    let mut child = shell();
    let Some(follower) = seized(&mut child) else { return };
    let pid = Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    say(&mut child, "exec echo done");
    // A process that is traced has this state whether it may go on or not: it is asked again and
    // again, and has executed nothing all that time.
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let mut rounds = 0;
    let followed = follower.wait(|| {
        rounds += 1;
        if rounds == 100 {
            assert!(state().contains("(sh) t") || state().contains("(sh) T"), "{}", state());
            rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        }
        false
    });
    let Followed::Executed(stop) = followed.unwrap() else { panic!() };
    assert!(rounds >= 100, "it went on after {rounds} rounds");
    stop.release().unwrap();
    assert_eq!(output(child).0, "done\n");
}
