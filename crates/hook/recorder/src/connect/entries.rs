//! Asks the recorder how the entry points of allocators inside of this program are redirected: of
//! all modules, before the program starts, and of those that it opens later.

use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::sandbox;
use heapledger_wire::session::{Answer, ENTRIES_UNKNOWN, MODULES_MAX, PLAN_PENDING, Request, RequestKind};
use heapledger_wire::stall::Watchdog;

use super::{Address, Descriptors, Refusal, RequestArguments, Socket, Timeout, has_free_descriptors, message};
use crate::session;

/// The descriptors that a request takes: the socket, the plan's file, and `/proc/self/mem`.
const DESCRIPTORS: i32 = 3;

/// The number of entries of this program that were to be redirected and were not, which the
/// recorder is told when the program is introduced.
static ENTRIES_MISSED: AtomicU64 = AtomicU64::new(0);

/// Sets that number, if the recorder has redirected the entries itself. Call before the process is
/// introduced.
pub fn set_entries_missed(missed: u64) {
    ENTRIES_MISSED.store(missed, Ordering::Relaxed);
}

/// Returns the number of entries that were to be redirected at the start and were not.
pub(super) fn missed() -> u64 {
    ENTRIES_MISSED.load(Ordering::Relaxed)
}

/// Asks how the entry points of allocators inside of this program are redirected, and calls
/// `install` with the plan's file and the length of the plan in it; not if there is nothing to
/// redirect. `thunk` is the address to which redirected entries lead; `install` returns their
/// number. The file is closed afterwards.
///
/// To be called before anything else of this crate, while the process has one thread.
pub fn request_entries(address: &Address, thunk: u64, install: impl FnOnce(i32, usize) -> usize) {
    let ask = || {
        let arguments = RequestArguments { kind: RequestKind::Entries, image: 0, fork: 0, node_base: 0 };
        let request = Request { thunk, ..message(address, arguments) };
        let (answer, descriptors) = ask(address, &request, &mut Timeout::of_entries(address), || {
            Timeout::Entries(Timeout::PLAN_NANOSECONDS, Watchdog::new(0))
        })?;
        missed_after(&answer, &descriptors, install)
    };
    ENTRIES_MISSED.store(with_descriptors(ask).unwrap_or(ENTRIES_UNKNOWN), Ordering::Relaxed);
}

/// The answer about modules that were opened later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterEntries {
    /// Bit `i` is set if there is an allocator to redirect in the module at index `i`.
    pub with_allocator: u32,
    /// The number of entries that were to be redirected and were not.
    pub missed: u64,
}

/// Asks the recorder of this process's session how the entry points of allocators are redirected
/// in modules that have just been opened: `modules` has an address inside of each, or 0. `thunk` is
/// that of [`request_entries`], and `install` too, which is also given the
/// [modules that have an allocator](LaterEntries::with_allocator). `None` if there is no answer, or
/// the modules cannot be examined.
///
/// May be called in any thread that is not inside the recorder. Waits for the answer as long as the
/// recorder is at work; one examination of a large file takes seconds, of most files less than a
/// millisecond.
pub fn request_later_entries(
    thunk: u64,
    modules: &[u64; MODULES_MAX],
    install: impl FnOnce(u32, i32, usize) -> usize,
) -> Option<LaterEntries> {
    if !session::is_on() {
        return None;
    }
    let (address, page) = (session::address(), session::known_page());
    if page.is_some_and(|page| page.is_stalled()) {
        return None;
    }
    let ask = || {
        let arguments = RequestArguments { kind: RequestKind::LaterEntries, image: 0, fork: 0, node_base: 0 };
        let request = Request { thunk, modules: *modules, ..message(address, arguments) };
        let timeout = || Timeout::new(address, page);
        let (answer, descriptors) = ask(address, &request, &mut timeout(), timeout)?;
        let missed = missed_after(&answer, &descriptors, |fd, length| install(answer.image, fd, length))?;
        Ok(LaterEntries { with_allocator: answer.image, missed })
    };
    with_descriptors(ask).ok().filter(|answer| answer.missed != ENTRIES_UNKNOWN)
}

/// Tells the recorder that modules have been loaded whose allocators it is to redirect itself, from
/// outside, and waits until it has. For a library that was placed into a program that ran.
///
/// May be called in any thread that is not inside the recorder.
pub fn request_redirection() {
    let (address, page) = (session::address(), session::known_page());
    if page.is_some_and(|page| page.is_stalled() || page.is_over()) {
        return;
    }
    let ask = || {
        let arguments = RequestArguments { kind: RequestKind::LaterEntries, image: 1, fork: 0, node_base: 0 };
        let timeout = || Timeout::new(address, page);
        ask(address, &message(address, arguments), &mut timeout(), timeout)
    };
    // Without an answer, the program goes on all the same.
    let _ = with_descriptors(ask);
}

/// Runs a request, where it has the descriptors that it needs.
fn with_descriptors<R>(ask: impl FnOnce() -> Result<R, Refusal>) -> Result<R, Refusal> {
    if sandbox::is_entered() {
        Err(Refusal::Temporary)
    } else if has_free_descriptors(DESCRIPTORS) {
        ask()
    } else {
        super::with_descriptors(DESCRIPTORS, ask).unwrap_or(Err(Refusal::Temporary))
    }
}

/// Sends a request for a plan, and waits for the answer: each time that the recorder says that it
/// is at work, anew.
fn ask(
    address: &Address,
    request: &Request,
    timeout: &mut Timeout,
    again: impl Fn() -> Timeout,
) -> Result<(Answer, Descriptors), Refusal> {
    let socket = Socket::connect(address, timeout)?;
    socket.send(request, timeout)?;
    let (mut answer, mut descriptors) = socket.receive(timeout)?;
    while answer.refused == 0 && answer.image == PLAN_PENDING {
        (answer, descriptors) = socket.receive(&mut again())?;
    }
    if answer.refused == 0 { Ok((answer, descriptors)) } else { Err(Refusal::Permanent) }
}

/// Installs the plan that an answer brings. Returns the number of entries that were to be
/// redirected and were not, or [`ENTRIES_UNKNOWN`].
fn missed_after(
    answer: &Answer,
    descriptors: &Descriptors,
    install: impl FnOnce(i32, usize) -> usize,
) -> Result<u64, Refusal> {
    let installed = match usize::try_from(answer.common_length) {
        Ok(length) if length != 0 => install(descriptors.first()?, length),
        _ => 0,
    };
    Ok(match answer.ring_length {
        ENTRIES_UNKNOWN => ENTRIES_UNKNOWN,
        planned => planned.saturating_sub(installed as u64),
    })
}
