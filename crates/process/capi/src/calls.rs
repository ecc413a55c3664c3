//! The questions of `heapledger.h`: C's view of [`Ledger`].

use std::cmp::Reverse;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;

use heapledger_annotate::untracked;
use heapledger_core::Bytes;
use heapledger_query::{Block, Held, Ledger, LedgerOptions, Site, SiteOrder, Stacks, StandardError};

use crate::location::{Where, location};
use crate::misuses;
use crate::sized::{read, write};
use crate::status::{ELSEWHERE, FAILED, NOTHING, OK, STATE};

/// Sites that can be asked for at once.
const SITES_MAX: usize = 64;
/// `heapledger_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct COptions {
    size: u32,
    stacks: u32,
    sample_every: u64,
    bytes_max: u64,
    stack_probability: f64,
    keep_freed: u32,
    reserved: u32,
}

/// `heapledger_standard_error`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CStandardError {
    bytes: u64,
    blocks: u64,
}

impl From<StandardError> for CStandardError {
    fn from(StandardError { bytes, blocks }: StandardError) -> CStandardError {
        CStandardError { bytes: bytes.0, blocks: blocks.0 }
    }
}

/// `heapledger_totals`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CTotals {
    size: u32,
    is_estimate: u32,
    allocations: u64,
    bytes_allocated: u64,
    frees: u64,
    reallocations: u64,
    temporaries: u64,
    failed: u64,
    frees_unknown: u64,
    blocks_live: u64,
    bytes_live: u64,
    blocks_live_max: u64,
    bytes_live_max: u64,
    refused: u64,
    allocated_standard_error: CStandardError,
    live_standard_error: CStandardError,
    peak_standard_error: CStandardError,
}

/// `heapledger_block`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CBlock {
    size: u32,
    thread: u32,
    address: u64,
    bytes: u64,
    bytes_usable: u64,
    age_ns: u64,
    serial: u64,
    at: Where,
}

/// `heapledger_site`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CSite {
    size: u32,
    reserved: u32,
    allocations: u64,
    bytes_allocated: u64,
    blocks_live: u64,
    bytes_live: u64,
    temporaries: u64,
    at: Where,
    allocated_standard_error: CStandardError,
    live_standard_error: CStandardError,
}

/// `heapledger_dynamic_type`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CDynamicType {
    size: u32,
    reserved: u32,
    name: *const c_char,
    blocks: u64,
    bytes: u64,
}

/// `heapledger_held`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CHeld {
    blocks: u64,
    bytes: u64,
    bytes_usable: u64,
}

/// `heapledger_reported`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CReported {
    size: u32,
    reserved: u32,
    unreported: CHeld,
    once: CHeld,
    twice: CHeld,
}

type EachType = unsafe extern "C" fn(*const CDynamicType, *mut c_void) -> c_int;
type EachBlock = unsafe extern "C" fn(*const CBlock, *mut c_void) -> c_int;
type EachSite = unsafe extern "C" fn(*const CSite, *mut c_void) -> c_int;

/// `heapledger_calls`: functions are only ever appended.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Calls {
    size: u32,
    version: u32,
    start: unsafe extern "C" fn(*const COptions) -> c_int,
    stop: extern "C" fn() -> c_int,
    totals: unsafe extern "C" fn(*mut CTotals) -> c_int,
    block_at: unsafe extern "C" fn(*const c_void, *mut CBlock) -> c_int,
    blocks: unsafe extern "C" fn(Option<EachBlock>, *mut c_void) -> c_int,
    sites: unsafe extern "C" fn(usize, Option<EachSite>, *mut c_void) -> c_int,
    print: extern "C" fn(c_int, c_int, usize) -> c_int,
    census_by_vtable: unsafe extern "C" fn(Option<EachType>, *mut c_void) -> c_int,
    check: extern "C" fn() -> c_int,
    misuses: unsafe extern "C" fn(Option<misuses::Each>, *mut c_void) -> c_int,
    reported: unsafe extern "C" fn(*mut CReported) -> c_int,
    clear_marks: extern "C" fn() -> c_int,
}

pub(crate) static CALLS: Calls = Calls {
    size: size_of::<Calls>() as u32,
    version: 1,
    start,
    stop,
    totals,
    block_at,
    blocks,
    sites,
    print,
    census_by_vtable,
    check: misuses::check,
    misuses: misuses::misuses,
    reported,
    clear_marks,
};

/// # Safety
///
/// `options` is null or *sized* (see [`crate::sized`]).
unsafe extern "C" fn start(options: *const COptions) -> c_int {
    if crate::is_recorded() {
        return ELSEWHERE;
    }
    let mut given = COptions {
        size: 0,
        stacks: Stacks::Mixed as u32,
        sample_every: 0,
        bytes_max: 0,
        stack_probability: 0.0,
        keep_freed: 0,
        reserved: 0,
    };
    // SAFETY: `read` requires null or a *sized* structure, which this function's `# Safety`
    // requires of `options`; and that any prefix of a `COptions` is valid, as it is of integers and
    // a float.
    unsafe { read(options, &mut given) };
    let stacks = match given.stacks {
        0 => Stacks::None,
        1 => Stacks::Native,
        2 => Stacks::Pseudo,
        3 => Stacks::Mixed,
        _ => return FAILED,
    };
    let or = |bytes: u64| Some(bytes).filter(|&bytes| bytes != 0).map(Bytes);
    let bytes_max = or(given.bytes_max).unwrap_or(LedgerOptions::EXACT.bytes_max);
    let sample_every = or(given.sample_every);
    // One that is no probability between 0 and 1 is none.
    let (stack_probability, keep_freed) = (Some(given.stack_probability), given.keep_freed != 0);
    let options = LedgerOptions { sample_every, stacks, bytes_max, keep_freed, stack_probability };
    match Ledger::start(options) {
        Ok(_) => OK,
        Err(heapledger_query::StartError::Running) => STATE,
        Err(_) => FAILED,
    }
}

extern "C" fn stop() -> c_int {
    let ledger = Ledger::get();
    if !ledger.is_running() {
        return STATE;
    }
    ledger.stop();
    OK
}

/// # Safety
///
/// `totals` is null or *sized* (see [`crate::sized`]), for an answer.
unsafe extern "C" fn totals(totals: *mut CTotals) -> c_int {
    let ledger = Ledger::get();
    let now = ledger.totals();
    let answer = CTotals {
        size: 0,
        is_estimate: now.is_estimate.into(),
        allocations: now.allocations.0,
        bytes_allocated: now.bytes_allocated.0,
        frees: now.frees.0,
        reallocations: now.reallocations.0,
        temporaries: now.temporaries.0,
        failed: now.failed.0,
        frees_unknown: now.frees_unknown.0,
        blocks_live: now.blocks_live.0,
        bytes_live: now.bytes_live.0,
        blocks_live_max: now.blocks_live_max.0,
        bytes_live_max: now.bytes_live_max.0,
        refused: ledger.losses().refused.0,
        allocated_standard_error: now.allocated_standard_error.into(),
        live_standard_error: now.live_standard_error.into(),
        peak_standard_error: now.peak_standard_error.into(),
    };
    // SAFETY: `write` requires null or a *sized* structure that may be written; this function's
    // `# Safety` requires the same of `totals`.
    unsafe { write(totals, answer) }
}

/// # Safety
///
/// `block` is null or *sized* (see [`crate::sized`]), for an answer.
unsafe extern "C" fn block_at(pointer: *const c_void, block: *mut CBlock) -> c_int {
    if block.is_null() {
        return FAILED;
    }
    match Ledger::get().block_at(pointer) {
        // SAFETY: `write` requires null or a *sized* structure that may be written; this function's
        // `# Safety` requires the same of `block`.
        Some(found) => unsafe { write(block, c_block(&found)) },
        None => NOTHING,
    }
}

/// # Safety
///
/// `each` may be called, several times, with a pointer to a block and with `data`.
unsafe extern "C" fn blocks(each: Option<EachBlock>, data: *mut c_void) -> c_int {
    let Some(each) = each else { return FAILED };
    for block in Ledger::get().blocks() {
        let block = CBlock { size: size_of::<CBlock>() as u32, ..c_block(&block) };
        // SAFETY: `each` requires a block that stays during the call, as the local does, and the
        // `data` that belongs to it. By this function's `# Safety` it may be called with these.
        if unsafe { each(&block, data) } != 0 {
            break;
        }
    }
    OK
}

/// # Safety
///
/// `each` may be called, several times, with a pointer to a site and with `data`.
unsafe extern "C" fn sites(count: usize, each: Option<EachSite>, data: *mut c_void) -> c_int {
    let Some(each) = each else { return FAILED };
    let mut top = [const { None }; SITES_MAX];
    let top = top.get_mut(..count.min(SITES_MAX)).unwrap_or(&mut []);
    for site in Ledger::get().sites() {
        let bytes = |site: &Option<Site>| site.map_or(0, |site| site.bytes_live.0);
        if let Some(last) = top.last_mut()
            && site.bytes_live.0 > bytes(last)
        {
            *last = Some(site);
            top.sort_unstable_by_key(|site| Reverse(bytes(site)));
        }
    }
    for site in top.iter().flatten() {
        let site = c_site(site);
        // SAFETY: `each` requires a site that stays during the call, as the local does, and the
        // `data` that belongs to it. By this function's `# Safety` it may be called with these.
        if unsafe { each(&site, data) } != 0 {
            break;
        }
    }
    OK
}

extern "C" fn print(what: c_int, descriptor: c_int, count: usize) -> c_int {
    if descriptor < 0 {
        return FAILED;
    }
    // SAFETY: the caller's, for the time of the call; one that is not open is refused by the
    // kernel.
    let to = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let ledger = Ledger::get();
    let printed = match what {
        0 => ledger.print_totals(to),
        1 => ledger.print_sites(to, count, SiteOrder::BytesLive),
        2 => ledger.print_blocks(to),
        3 => ledger.print_types(to),
        4 => return print_text(to, || ledger.census_by_vtable().to_string()),
        5 => return print_text(to, misuses::text),
        _ => return FAILED,
    };
    if printed.is_ok() { OK } else { FAILED }
}

/// Unlike the rest that is printed, this allocates.
pub(crate) fn print_text(to: BorrowedFd<'_>, text: impl FnOnce() -> String) -> c_int {
    let Ok(to) = to.try_clone_to_owned() else { return FAILED };
    let is_written = untracked::scope(|| File::from(to).write_all(text().as_bytes()).is_ok());
    if is_written { OK } else { FAILED }
}

/// # Safety
///
/// `each` may be called, several times, with a pointer to a type and with `data`.
unsafe extern "C" fn census_by_vtable(each: Option<EachType>, data: *mut c_void) -> c_int {
    let Some(each) = each else { return FAILED };
    let _untracked = untracked::enter();
    for found in Ledger::get().census_by_vtable().types {
        let Ok(name) = CString::new(found.name) else { continue };
        let (blocks, bytes) = (found.blocks.0, found.bytes.0);
        let found =
            CDynamicType { size: size_of::<CDynamicType>() as u32, reserved: 0, name: name.as_ptr(), blocks, bytes };
        // SAFETY: `each` requires a type that stays during the call, with its name, as the two
        // locals do, and the `data` that belongs to it. By this function's `# Safety` it may be
        // called with these.
        if untracked::callback(|| unsafe { each(&found, data) }) != 0 {
            break;
        }
    }
    OK
}

/// # Safety
///
/// `reported` is null or *sized* (see [`crate::sized`]), for an answer.
unsafe extern "C" fn reported(reported: *mut CReported) -> c_int {
    let now = Ledger::get().reported();
    let held = |held: Held| CHeld { blocks: held.blocks.0, bytes: held.bytes.0, bytes_usable: held.bytes_usable.0 };
    let [unreported, once, twice] = [now.unreported, now.once, now.twice].map(held);
    // SAFETY: `write` requires null or a *sized* structure that may be written; this function's
    // `# Safety` requires the same of `reported`.
    unsafe { write(reported, CReported { size: 0, reserved: 0, unreported, once, twice }) }
}

extern "C" fn clear_marks() -> c_int {
    Ledger::get().clear_marks();
    OK
}

fn c_block(block: &Block) -> CBlock {
    CBlock {
        size: 0,
        thread: block.thread.0,
        address: block.address,
        bytes: block.size.0,
        bytes_usable: block.usable.0,
        age_ns: block.age.as_nanos() as u64,
        serial: block.serial.0,
        at: location(block.stack),
    }
}

fn c_site(site: &Site) -> CSite {
    CSite {
        size: size_of::<CSite>() as u32,
        reserved: 0,
        allocations: site.allocations.0,
        bytes_allocated: site.bytes_allocated.0,
        blocks_live: site.blocks_live.0,
        bytes_live: site.bytes_live.0,
        temporaries: site.temporaries.0,
        at: location(site.stack),
        allocated_standard_error: site.allocated_standard_error.into(),
        live_standard_error: site.live_standard_error.into(),
    }
}
