//! The threads of a replay, and their time.

use core::ffi::{c_int, c_long, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_wire::replay::flag;

use crate::files::{Files, map_shared};
use crate::play::{Player, Thread, Zeroes};
use crate::system_calls;
use crate::time::{now, thread_time};

unsafe extern "C" {
    fn pthread_create(
        thread: *mut usize,
        attributes: *const c_void,
        run: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_join(thread: usize, answer: *mut *mut c_void) -> c_int;
    fn sched_yield() -> c_int;
    fn usleep(microseconds: u32) -> c_int;
    fn pause() -> c_int;
    fn getrusage(whose: c_int, usage: *mut Usage) -> c_int;
}

const RUSAGE_SELF: c_int = 0;

/// `struct rusage`.
#[repr(C)]
struct Usage {
    times: [c_long; 4],
    sizes: [c_long; 4],
    faults_minor: c_long,
    faults_major: c_long,
    rest: [c_long; 8],
}

/// A thread to be started.
struct Task {
    player: *const Player,
    number: usize,
    /// The words that all threads share.
    shared: *const Shared,
}

/// The gate at which threads wait, and the sums of their figures.
#[derive(Default)]
struct Shared {
    ready: AtomicU64,
    is_open: AtomicU64,
    cpu: AtomicU64,
    done: AtomicU64,
}

/// Plays all threads of the work and writes the figures. False if there is no memory for the slots,
/// or if a thread cannot be started.
pub(crate) fn play_all(files: &Files) -> bool {
    let (threads, outcome) = (files.head.threads as usize, files.outcome());
    let flags = outcome.flags.load(Ordering::Relaxed);
    let counts_calls = flags & flag::CALLS != 0;
    if counts_calls {
        system_calls::prepare(outcome);
    }
    let Some(zeroes) = zeroes(files, flags) else { return false };
    let mut player = Player::new(files, &zeroes);
    player.inherit();
    let shared = Shared::default();
    let before;
    if threads == 1 {
        before = faults();
        let cpu = thread_time();
        if counts_calls {
            system_calls::count();
        }
        player.figures.begin();
        let began = now();
        let waited = Thread::<false>::play(&player, 0);
        outcome.wall.store(now() - began, Ordering::Relaxed);
        outcome.cpu.store((thread_time() - cpu).saturating_sub(waited), Ordering::Relaxed);
    } else {
        // Not in anonymous memory: a handle, and a task of three words, for each thread.
        let (Some(handles), Some(tasks)) = (map_shared(threads), map_shared(threads * 3)) else { return false };
        let (handles, tasks) = (handles.cast::<usize>().cast_mut(), tasks.cast::<Task>().cast_mut());
        for number in 0..threads {
            let task = Task { player: &raw const player, number, shared: &raw const shared };
            // SAFETY: both tables have an entry for each thread. What the task points to stays
            // until all threads have been joined, or the process has ended: if this returns before,
            // the caller ends it.
            unsafe {
                tasks.add(number).write(task);
                if pthread_create(handles.add(number), ptr::null(), run, tasks.add(number).cast()) != 0 {
                    return false;
                }
            }
        }
        while shared.ready.load(Ordering::Acquire) < threads as u64 {
            // SAFETY: lets others run; no memory is involved.
            unsafe { sched_yield() };
        }
        before = faults();
        player.figures.begin();
        let began = now();
        shared.is_open.store(1, Ordering::Release);
        while shared.done.load(Ordering::Acquire) < threads as u64 {
            // SAFETY: sleeps for a moment; no memory is involved.
            unsafe { usleep(100) };
        }
        for number in (0..threads).filter(|_| !counts_calls) {
            // SAFETY: a handle that `pthread_create` has written, joined once.
            unsafe { pthread_join(handles.add(number).read(), ptr::null_mut()) };
        }
        outcome.wall.store(now() - began, Ordering::Relaxed);
        outcome.cpu.store(shared.cpu.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    let (minor, major) = faults();
    player.figures.end();
    outcome.faults_minor.store(minor.saturating_sub(before.0), Ordering::Relaxed);
    outcome.faults_major.store(major.saturating_sub(before.1), Ordering::Relaxed);
    true
}

/// Maps what a replay needs. `None` if there is no memory.
fn zeroes(files: &Files, flags: u64) -> Option<Zeroes> {
    let slots = files.head.slots as usize;
    Some(Zeroes {
        slots: map_shared(slots)?,
        epochs: map_shared(files.head.epochs as usize)?,
        points: map_shared(2)?.cast(),
        arenas: map_shared(files.head.arenas as usize)?,
        sizes: map_shared(if flags & flag::SIZES == 0 { 0 } else { slots })?,
    })
}

extern "C" fn run(task: *mut c_void) -> *mut c_void {
    // SAFETY: `play_all` has passed a task, which stays until this thread was joined, as do the
    // player and the shared words.
    let (task, shared) = unsafe {
        let task = &*task.cast::<Task>();
        (task, &*task.shared)
    };
    shared.ready.fetch_add(1, Ordering::Release);
    while shared.is_open.load(Ordering::Acquire) == 0 {
        // SAFETY: lets others run; no memory is involved.
        unsafe { sched_yield() };
    }
    // SAFETY: as above. `play_all` writes to the player before it opens the gate, and not after.
    let player = unsafe { &*task.player };
    if player.counts_calls() {
        system_calls::count();
    }
    let before = thread_time();
    let waited = Thread::<true>::play(player, task.number);
    shared.cpu.fetch_add((thread_time() - before).saturating_sub(waited), Ordering::Relaxed);
    shared.done.fetch_add(1, Ordering::Release);
    while player.counts_calls() {
        // SAFETY: sleeps until the process ends; see `system_calls::count`.
        unsafe { pause() };
    }
    ptr::null_mut()
}

/// Returns the minor and major page faults of the process.
fn faults() -> (u64, u64) {
    let mut usage = Usage { times: [0; 4], sizes: [0; 4], faults_minor: 0, faults_major: 0, rest: [0; 8] };
    // SAFETY: `getrusage` writes a `struct rusage`, whose layout `Usage` has.
    unsafe { getrusage(RUSAGE_SELF, &raw mut usage) };
    (usage.faults_minor as u64, usage.faults_major as u64)
}
