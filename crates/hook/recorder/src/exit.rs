//! The exit of the process: the recorder reads where its resident memory is before that is gone.

use heapledger_core::{sandbox, sys};
use heapledger_wire::session::{EXIT_WAIT_MAX, Request, RequestKind};
use heapledger_wire::stall::Watchdog;

use crate::attach::enter;
use crate::connect::{RequestArguments, Socket, Timeout, has_free_descriptors, message};
use crate::process::{self, Process};
use crate::session;

/// The time in nanoseconds after which a recorder without a heartbeat is not waited for. At work,
/// it has one every 50 ms. Longer only if the user has asked for a longer wait than the usual one.
const QUIET_MAX: u64 = 200_000_000;
const QUIET_MAX_ASKED: u64 = 5_000_000_000;

/// Asks the recorder for a snapshot of this process's resident memory, and waits until it has read
/// the memory: for as long as the session page says, and not for a recorder that stands still. Does
/// nothing in a child of vfork, in a sandbox, in a thread that is inside the recorder, and at the
/// second call. Makes system calls only, so it may be called in a signal handler.
#[cold]
#[inline(never)]
pub fn process_exits(sp: u64) {
    let Some(process) = Process::get().filter(|process| process.is_introduced()) else { return };
    if sandbox::is_entered() || process::is_in_vfork_child() {
        return;
    }
    let Some(page) = session::known_page() else { return };
    let wait = page.exit_wait(process.age());
    if wait == 0 || page.is_over() || page.is_stalled() {
        return;
    }
    // A thread that was interrupted inside the recorder has perhaps begun an event: others wait for
    // its end, so there would be no snapshot.
    let Some(block) = enter(sp) else { return };
    // While the thread is inside, the process does not join another session.
    let address = *session::address();
    block.head.leave();
    if !process.begin_exit() {
        return;
    }
    let ask = || {
        let quiet = if wait > EXIT_WAIT_MAX { QUIET_MAX_ASKED } else { QUIET_MAX };
        let until = sys::monotonic_nanoseconds().saturating_add(wait);
        let mut timeout = Timeout::Until(until, quiet, page, Watchdog::new(page.heartbeat_of_all()));
        let Ok(socket) = Socket::connect(&address, &mut timeout) else { return };
        let arguments = RequestArguments { kind: RequestKind::Exit, image: process::image(), fork: 0, node_base: 0 };
        let request = Request { capacity: wait, ..message(&address, arguments) };
        if socket.send(&request, &mut timeout).is_ok() {
            // The end of the connection: there is no answer.
            let _ = socket.receive(&mut timeout);
        }
    };
    if has_free_descriptors(1) {
        ask();
    } else {
        let _ = sys::with_descriptors(1, ask);
    }
}
