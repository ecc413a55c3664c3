use super::*;

fn registers(call: i64, result: i64) -> Registers {
    // SAFETY: a structure of integers, for which zeroes are valid.
    let zeroed: Registers = unsafe { std::mem::zeroed() };
    Registers { rip: 0x1002, orig_rax: call as u64, rax: result as u64, ..zeroed }
}

#[test]
fn interrupted_calls_begin_again() {
    let epoll_wait = resumed(&registers(libc::SYS_epoll_wait, EINTR));
    assert_eq!((epoll_wait.rip, epoll_wait.rax as i64), (0x1000, libc::SYS_epoll_wait));
    let read = resumed(&registers(libc::SYS_read, -512));
    assert_eq!((read.rip, read.rax as i64), (0x1000, libc::SYS_read));
    let nanosleep = resumed(&registers(libc::SYS_nanosleep, -516));
    assert_eq!((nanosleep.rip, nanosleep.rax as i64), (0x1000, libc::SYS_restart_syscall));
    // A descriptor that has been closed is not closed again, results stay, and so do registers
    // outside of calls.
    for (call, result) in
        [(libc::SYS_close, EINTR), (libc::SYS_read, 5), (libc::SYS_read, -11), (-1, EINTR), (-1, -512)]
    {
        let other = resumed(&registers(call, result));
        assert_eq!((other.rip, other.rax as i64), (0x1002, result), "{call} {result}");
        assert_eq!(other.orig_rax, u64::MAX, "the kernel makes no call again");
    }
}

#[test]
fn a_status_is_parsed() {
    let text = "Name:\ta\nState:\tS (sleeping)\nTracerPid:\t7\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000004000\n\
                SigBlk:\t0000000000004000\n";
    let status = Status::parse(text).expect("it is whole");
    assert_eq!((status.state, status.tracer), ('S', 7));
    assert!(!status.has_deliverable_signal());
    let unblocked = Status::parse(&text.replace("SigBlk:\t0000000000004000", "SigBlk:\t0")).expect("it is whole");
    assert!(unblocked.has_deliverable_signal());
    assert!(Status::parse("State:\tS").is_none());
}
