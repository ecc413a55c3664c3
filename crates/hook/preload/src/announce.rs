//! Announces programs that are started to the collector, with the known reason why they will not be
//! recorded, if any.

use core::ffi::c_int;
use core::ptr;

use heapledger_core::program::Obstacle;
use heapledger_core::{arch, sandbox, sys};
use heapledger_recorder::follow::{Executor, Follower, follow};
use heapledger_recorder::hook::processes::{self, Exec};
use heapledger_recorder::process;

use crate::additions::for_child;
use crate::child::{Child, ChildPath, ChildStatus};
use crate::environment::Environment;
use crate::guard::with_guard;
use crate::libraries::around_exec;

/// Calls a function of the `exec` family with the environment for the other program, after
/// announcing it. If the function returns, it has failed.
pub(crate) fn replaced(environment: Environment, child: Child, exec: impl FnOnce(Environment) -> c_int) -> c_int {
    let since = ticks();
    // A child of a raw system call introduces itself at its first allocation. Browsers start their
    // sandboxed programs in such children, without one. A child of vfork(2) does not.
    if process::is_to_be_introduced() {
        with_guard(processes::child_begins);
    }
    let mut found = ChildPath::default();
    let (environment, status) = for_child(environment, child, &mut found);
    let (status, follower) = followed(status, child, &mut found, Executor::Caller);
    let pid = sys::process_id();
    announce(status, pid, since, found.path());
    let result = around_exec(|| exec(environment));
    if let Some(follower) = follower {
        follower.stop();
    }
    if !matches!(status, ChildStatus::Unobserved) {
        with_guard(|sp| processes::exec_failed(pid, sp));
    }
    result
}

/// Calls a function of the `posix_spawn` family with the environment for the other program, which
/// is announced when it runs.
pub(crate) fn spawned(
    pid: *mut c_int,
    environment: Environment,
    child: Child,
    spawn: impl FnOnce(*mut c_int, Environment) -> c_int,
) -> c_int {
    let since = ticks();
    let (mut found, mut own) = (ChildPath::default(), 0);
    let (environment, status) = for_child(environment, child, &mut found);
    let pid = if pid.is_null() { &raw mut own } else { pid };
    let (status, follower) = followed(status, child, &mut found, Executor::Child);
    let result = spawn(pid, environment);
    if let Some(follower) = follower {
        follower.stop();
    }
    if result == 0 {
        // SAFETY: the C library has written it; it is ours, or memory that the program gave for
        // that purpose.
        let pid = unsafe { ptr::read(pid) };
        announce(status, pid.unsigned_abs(), since, found.path());
    }
    result
}

/// Asks the recorder to follow a process into a program that is statically linked, for which
/// nothing can be added to the environment. Returns what becomes of the child then. For all other
/// programs, nothing is done.
pub(crate) fn followed(
    status: ChildStatus,
    child: Child,
    found: &mut ChildPath,
    executor: Executor,
) -> (ChildStatus, Option<Follower>) {
    if !matches!(status, ChildStatus::Unrecorded(Obstacle::Static)) {
        return (status, None);
    }
    let path = match child {
        // As the program gave it: it may be longer than what is kept.
        Child::At(path) => Some(path.cast()),
        _ => found.text(),
    };
    match path.map_or(Err(0), |path| follow(path.addr() as u64, executor)) {
        Ok(follower) => (ChildStatus::Recorded, Some(follower)),
        Err(number) => {
            let obstacle = Obstacle::of_followed(number).unwrap_or(Obstacle::NotFollowed);
            (ChildStatus::Unrecorded(obstacle), None)
        }
    }
}

/// Returns the time stamp; 0 in a sandbox, since strict mode forbids reading it.
pub(crate) fn ticks() -> u64 {
    if sandbox::is_entered() { 0 } else { arch::ticks() }
}

/// Announces a program that a process starts. `pid` is 0 if the process is not known.
pub(crate) fn announce(status: ChildStatus, pid: u32, since: u64, path: &[u8]) {
    let (obstacle, is_tight) = match status {
        ChildStatus::Unobserved => return,
        ChildStatus::Recorded => (None, is_tight()),
        ChildStatus::Unrecorded(obstacle) => (Some(obstacle), false),
    };
    with_guard(|sp| processes::exec_begins(Exec { pid, obstacle, is_tight, since, path }, sp));
}

/// True if so little address space is allowed that the recorder may not find room.
fn is_tight() -> bool {
    const TIGHT: u64 = 1 << 30;
    const START: &[u8] = b"Max address space";
    // In a mapping: the caller's stack may be small.
    const LENGTH: usize = 4096;
    let Ok(memory) = sys::map_private(LENGTH) else { return true };
    // SAFETY: just mapped, zeroed, and given up below, after its last use.
    let text = unsafe { core::slice::from_raw_parts_mut(memory, LENGTH) };
    // SAFETY: `sys::read_head` requires a NUL-terminated path: a C string literal is one.
    let read = unsafe { sys::read_head(c"/proc/self/limits".as_ptr().cast(), text) };
    let text = text.get(..read.map_or(0, |(length, _)| length)).unwrap_or(&[]);
    let mut lines = text.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(START));
    let values = lines.next().unwrap_or(&[]).trim_ascii_start();
    let digits = values.split(|byte| !byte.is_ascii_digit()).next().unwrap_or(&[]);
    let limit = digits.iter().fold(0_u64, |number, digit| number.saturating_mul(10) + u64::from(digit - b'0'));
    let is_tight = !digits.is_empty() && limit < TIGHT;
    // SAFETY: `sys::unmap` requires a mapping of `map_private` to which nothing refers: it was made
    // above with this length. `text` and its parts are not used below.
    unsafe { sys::unmap(memory, LENGTH) };
    is_tight
}
