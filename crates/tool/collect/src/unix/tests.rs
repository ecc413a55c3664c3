use super::*;
use std::os::fd::AsFd;

#[test]
fn the_exit_of_a_reaped_process_is_known_afterwards() {
    let mut child = std::process::Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    child.wait().unwrap();
    // Older kernels do not report it.
    if let Some(exit) = exit_of(pidfd.as_fd()) {
        assert_eq!(exit, ExitStatus::Code(7));
    }
    assert!(children_cpu_ns() > 0);
}

#[test]
fn wait_statuses_are_distinguished() {
    assert_eq!(exit_status(0x0300), ExitStatus::Code(3));
    assert_eq!(exit_status(0x8b), ExitStatus::Signal(11));
}
