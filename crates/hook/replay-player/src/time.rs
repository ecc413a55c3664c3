//! The clocks.

use core::ffi::{c_int, c_long};
use core::ptr;

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut Time) -> c_int;
    fn clock_nanosleep(clock: c_int, flags: c_int, time: *const Time, rest: *mut Time) -> c_int;
}

const MONOTONIC: c_int = 1;
const THREAD_CPUTIME: c_int = 3;
const TIMER_ABSTIME: c_int = 1;

#[repr(C)]
struct Time {
    seconds: c_long,
    nanoseconds: c_long,
}

/// Returns the processor time of this thread in nanoseconds.
pub(crate) fn thread_time() -> u64 {
    clock(THREAD_CPUTIME)
}

/// Returns the time of the monotonic clock in nanoseconds.
pub(crate) fn now() -> u64 {
    clock(MONOTONIC)
}

/// Sleeps until the monotonic clock shows this time in nanoseconds.
pub(crate) fn sleep_until(time: u64) {
    const SECOND: u64 = 1_000_000_000;
    let time = Time { seconds: (time / SECOND) as c_long, nanoseconds: (time % SECOND) as c_long };
    // SAFETY: `time` is one; the rest is not asked for.
    unsafe { clock_nanosleep(MONOTONIC, TIMER_ABSTIME, &raw const time, ptr::null_mut()) };
}

fn clock(clock: c_int) -> u64 {
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    // SAFETY: `clock_gettime` writes to the variable.
    unsafe { clock_gettime(clock, &raw mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}
