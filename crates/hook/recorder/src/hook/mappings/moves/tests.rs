extern crate std;

use std::sync::mpsc;
use std::thread;

use core::sync::atomic::Ordering;

use heapledger_core::arch::{self, nr};
use heapledger_core::sys;

use super::*;
use crate::process;

/// Returns the exit status of a child, which is made by a raw system call, as by a program that
/// does not tell its C library, and runs `child`.
fn in_child(child: impl FnOnce() -> bool) -> usize {
    const SYS_FORK: usize = 57;
    const SYS_WAIT4: usize = 61;
    // SAFETY: `arch::syscall` requires valid pointers and no effect that breaks assumptions: fork
    // has none of the first, and the child only reads and writes its own memory until it exits.
    let pid = sys::check(unsafe { arch::syscall(SYS_FORK, [0; 6]) }).unwrap();
    if pid == 0 {
        let status = usize::from(!child());
        // SAFETY: as for fork; nothing of the child is needed any more.
        unsafe { arch::syscall(nr::EXIT_GROUP, [status, 0, 0, 0, 0, 0]) };
    }
    let mut status = 0_i32;
    // SAFETY: the kernel writes the status to a live integer; the child is this function's own.
    let waited = unsafe { arch::syscall(SYS_WAIT4, [pid, (&raw mut status).expose_provenance(), 0, 0, 0, 0]) };
    assert_eq!(sys::check(waited), Ok(pid));
    status as usize
}

/// A child that is forked in the middle of another thread's move does not wait for that thread, and
/// the parent's turn is as it was.
#[test]
fn a_child_has_no_turn_of_its_parents() {
    process::keep_id();
    let turns = Process::known().map(Process::turns).unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (end, may_end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            let turn = begin(1);
            assert!(turn.of.is_some());
            begun.send(arch::thread_pointer()).unwrap();
            may_end.recv().unwrap();
        });
        let holder = has_begun.recv().unwrap();
        turns.waiting.fetch_add(1, Ordering::Relaxed);
        let status = in_child(|| {
            let is_free = turns.holder.load(Ordering::Relaxed) == 0 && turns.waiting.load(Ordering::Relaxed) == 0;
            let turn = begin(1);
            is_free && turn.of.is_some() && turns.holder.load(Ordering::Relaxed) == arch::thread_pointer()
        });
        turns.waiting.fetch_sub(1, Ordering::Relaxed);
        assert_eq!((status, turns.holder.load(Ordering::Relaxed)), (0, holder));
        end.send(()).unwrap();
        other.join().unwrap();
    });
    assert_eq!(turns.holder.load(Ordering::Relaxed), 0);
    // A signal handler's move is a part of the one that it interrupts.
    let outer = begin(1000);
    assert!(begin(900).of.is_none());
    // One that is made further out is another: the handler has left by a jump.
    assert!(begin(1100).of.is_some());
    drop(outer);
}
