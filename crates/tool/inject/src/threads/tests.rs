use super::*;

#[test]
fn interrupted_calls_begin_again() {
    let is_made_again = |call: i64, result: i64| {
        // SAFETY: a structure of integers, for which zeroes are valid.
        let zeroed: Registers = unsafe { std::mem::zeroed() };
        has_interrupted_call(&Registers { orig_rax: call as u64, rax: result as u64, ..zeroed })
    };
    assert!(is_made_again(libc::SYS_epoll_wait, EINTR));
    // A descriptor that has been closed is not closed again; the kernel itself makes others again,
    // results stay, and outside of calls there is nothing.
    for (call, result) in [
        (libc::SYS_close, EINTR),
        (libc::SYS_read, -512),
        (libc::SYS_read, 5),
        (libc::SYS_read, -11),
        (-1, EINTR),
        (-1, -512),
    ] {
        assert!(!is_made_again(call, result), "{call} {result}");
    }
}

#[test]
fn workers_of_the_kernel_are_told_by_their_flags() {
    let fields = "S 1 7 7 0 -1";
    assert_eq!(flags_of(&format!("9 (a) b) {fields} 4210752 0 0")), Some(4_210_752));
    assert_eq!(flags_of("9 (name) S 1"), None);
}

#[test]
fn a_status_is_parsed() {
    let text = "Name:\ta\nState:\tS (sleeping)\nTracerPid:\t7\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000004000\n\
                SigBlk:\t0000000000004000\nSigCgt:\t0000000000004000\n";
    let status = Status::parse(text).expect("it is whole");
    assert_eq!((status.state, status.tracer), ('S', 7));
    assert!(!status.has_deliverable_signal());
    let unblocked = Status::parse(&text.replace("SigBlk:\t0000000000004000", "SigBlk:\t0")).expect("it is whole");
    assert!(unblocked.has_deliverable_signal());
    // One without a handler ends no call.
    let text =
        text.replace("SigBlk:\t0000000000004000", "SigBlk:\t0").replace("SigCgt:\t0000000000004000", "SigCgt:\t0");
    assert!(!Status::parse(&text).expect("it is whole").has_deliverable_signal());
    assert!(Status::parse("State:\tS").is_none());
}
