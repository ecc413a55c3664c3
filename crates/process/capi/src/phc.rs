//! `heapledger/phc.h`: the heap checker, for C.

use std::ffi::{CStr, c_char, c_int, c_void};

use heapledger_query::{HeapChecker, PhcBlock, PhcEvent, PhcOptions, PhcPlacement, PhcSites, PhcStartError, PhcState};

use crate::misuses::has_unseen_calls;
use crate::sized::{read, write};
use crate::status::{ELSEWHERE, FAILED, OK, STATE};

/// The addresses of a stack.
const FRAMES: usize = 64;

/// `heapledger_phc_options`. 0 stands for the default.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct COptions {
    size: u32,
    placement: u32,
    delay_first: u64,
    delay_normal: u64,
    delay_reuse: u64,
    bytes_max: u64,
    memory_min: u64,
    adaptive: u32,
    quiet: u32,
}

/// `heapledger_phc_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CStats {
    size: u32,
    slots_allocated: u32,
    slots_freed: u32,
    slots_unused: u32,
    bytes_allocated: u64,
    bytes_fragmentation: u64,
    bytes_metadata: u64,
    bytes_reserved: u64,
    blocks_sampled: u64,
    blocks_refused: u64,
}

/// `heapledger_phc_call`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CCall {
    thread: u32,
    frames_count: u32,
    frames: [u64; FRAMES],
}

impl CCall {
    const NONE: CCall = CCall { thread: 0, frames_count: 0, frames: [0; FRAMES] };

    fn of(event: PhcEvent) -> CCall {
        let mut call = CCall { thread: event.thread, ..CCall::NONE };
        for (slot, frame) in call.frames.iter_mut().zip(HeapChecker::frames(event)) {
            *slot = frame;
            call.frames_count += 1;
        }
        call
    }
}

/// `heapledger_phc_found`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CFound {
    size: u32,
    kind: u32,
    is_overflow: u32,
    was_locked: u32,
    base: u64,
    bytes: u64,
    allocated: CCall,
    freed: CCall,
}

/// `heapledger_phc`: functions are only ever appended.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    size: u32,
    version: u32,
    start: unsafe extern "C" fn(*const c_void) -> c_int,
    choose: unsafe extern "C" fn(c_int, *const c_char) -> c_int,
    enable: extern "C" fn(c_int) -> c_int,
    stats: unsafe extern "C" fn(*mut c_void) -> c_int,
    find: unsafe extern "C" fn(*const c_void, *mut c_void) -> c_int,
    disable_thread: extern "C" fn(),
    enable_thread: extern "C" fn(),
}

/// The table of the heap checker. Programs find it also if a recorder observes them, unlike the
/// ledger.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_phc_v1: Table = Table {
    size: size_of::<Table>() as u32,
    version: 1,
    start,
    choose,
    enable,
    stats,
    find,
    disable_thread,
    enable_thread,
};

/// # Safety
///
/// `options` is null or *sized* (see [`sized`](crate::sized)).
unsafe extern "C" fn start(options: *const c_void) -> c_int {
    if crate::is_recorded() {
        return ELSEWHERE;
    }
    let mut given = COptions::default();
    // SAFETY: `read` demands null or a *sized* structure, as this function does, and that any
    // prefix of `COptions` is one: its fields are numbers.
    unsafe { read(options.cast(), &mut given) };
    let placement = match given.placement {
        0 => PhcPlacement::End,
        1 => PhcPlacement::Start,
        2 => PhcPlacement::Drawn,
        _ => return FAILED,
    };
    let usual = PhcOptions::default();
    let or = |given: u64, usual: u64| if given == 0 { usual } else { given };
    let options = PhcOptions {
        delay_first: or(given.delay_first, usual.delay_first),
        delay_normal: or(given.delay_normal, usual.delay_normal),
        delay_reuse: or(given.delay_reuse, usual.delay_reuse),
        bytes_max: or(given.bytes_max, usual.bytes_max as u64) as usize,
        memory_min: or(given.memory_min, usual.memory_min),
        placement,
        is_adaptive: given.adaptive != 0,
        prints: given.quiet == 0,
    };
    if has_unseen_calls() {
        return FAILED;
    }
    match HeapChecker::start_with(&options) {
        Ok(_) => OK,
        Err(PhcStartError::Running) => STATE,
        Err(_) => FAILED,
    }
}

/// # Safety
///
/// `function` is null or a C string.
unsafe extern "C" fn choose(list: c_int, function: *const c_char) -> c_int {
    let sites = match list {
        0 => PhcSites::Only,
        1 => PhcSites::Never,
        _ => return FAILED,
    };
    if function.is_null() {
        return FAILED;
    }
    if HeapChecker::get().is_running() {
        return STATE;
    }
    // SAFETY: `from_ptr` demands a C string: by this function's `# Safety` it is one, or null.
    let Ok(name) = unsafe { CStr::from_ptr(function) }.to_str() else { return FAILED };
    if !name.is_empty() && HeapChecker::choose(sites, name) { OK } else { FAILED }
}

extern "C" fn enable(is_on: c_int) -> c_int {
    let checker = HeapChecker::get();
    if !checker.is_running() {
        return STATE;
    }
    checker.set_state(if is_on != 0 { PhcState::Enabled } else { PhcState::OnlyFree });
    OK
}

/// # Safety
///
/// `stats` is null or *sized* (see [`sized`](crate::sized)), for an answer.
unsafe extern "C" fn stats(stats: *mut c_void) -> c_int {
    let checker = HeapChecker::get();
    if !checker.is_running() {
        return STATE;
    }
    let now = checker.stats();
    let answer = CStats {
        size: 0,
        slots_allocated: now.slots_allocated,
        slots_freed: now.slots_freed,
        slots_unused: now.slots_unused,
        bytes_allocated: now.bytes_allocated as u64,
        bytes_fragmentation: now.bytes_fragmentation as u64,
        bytes_metadata: now.bytes_metadata as u64,
        bytes_reserved: now.bytes_reserved as u64,
        blocks_sampled: now.blocks_sampled,
        blocks_refused: now.blocks_refused,
    };
    // SAFETY: `write` demands null or a *sized* structure, as this function does.
    unsafe { write(stats.cast(), answer) }
}

/// Allocates nothing, and waits for nobody.
///
/// # Safety
///
/// `found` is null or *sized* (see [`sized`](crate::sized)), for an answer.
unsafe extern "C" fn find(address: *const c_void, found: *mut c_void) -> c_int {
    let lookup = HeapChecker::get().lookup(address.cast());
    let PhcBlock { base, size, .. } = lookup.block.unwrap_or_default();
    let allocated = lookup.block.map_or(CCall::NONE, |block| CCall::of(block.allocated));
    let freed = lookup.block.and_then(|block| block.freed).map_or(CCall::NONE, CCall::of);
    let answer = CFound {
        size: 0,
        kind: lookup.kind as u32,
        is_overflow: u32::from(lookup.is_overflow),
        was_locked: u32::from(lookup.was_locked),
        base: base as u64,
        bytes: size as u64,
        allocated,
        freed,
    };
    // SAFETY: `write` demands null or a *sized* structure, as this function does.
    unsafe { write(found.cast(), answer) }
}

extern "C" fn disable_thread() {
    HeapChecker::disable_thread();
}

extern "C" fn enable_thread() {
    HeapChecker::enable_thread();
}
