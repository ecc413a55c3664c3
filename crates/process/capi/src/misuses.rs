//! The checks of `heapledger.h`: C's view of [`Checks`].

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use heapledger_annotate::untracked;
use heapledger_interpose::next::Objects;
use heapledger_query::elf;
use heapledger_query::{Call, Checks, ChecksError, Misuse, MisuseKind, Stack};

use crate::location::{Where, location};
use crate::status::{ELSEWHERE, FAILED, OK, STATE};

/// `heapledger_misuse`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CMisuse {
    size: u32,
    kind: u32,
    address: u64,
    bytes: u64,
    first: u64,
    last: u64,
    times: u64,
    allocated_by: *const c_char,
    freed_by: *const c_char,
    freed_before_by: *const c_char,
    allocated_at: Where,
    freed_at: Where,
    freed_before_at: Where,
}

pub(crate) type Each = unsafe extern "C" fn(*const CMisuse, *mut c_void) -> c_int;

/// Returns all misuses, as text for people. Checks the canaries of all live blocks first.
pub(crate) fn text() -> String {
    let checks = Checks::get();
    checks.check_canaries();
    checks.misuses().map(|misuse| misuse.to_string()).collect()
}

pub(crate) extern "C" fn check() -> c_int {
    if crate::is_recorded() {
        return ELSEWHERE;
    }
    let _untracked = untracked::enter();
    if has_unseen_calls() {
        return FAILED;
    }
    match Checks::start() {
        Ok(_) => OK,
        Err(ChecksError::Running) => STATE,
        Err(_) => FAILED,
    }
}

/// Searches the libraries that are loaded now, under the linker's lock: other threads may be
/// loading and unloading some.
pub(crate) fn has_unseen_calls() -> bool {
    unsafe extern "C" {
        fn dl_iterate_phdr(
            callback: unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> c_int,
            data: *mut c_void,
        ) -> c_int;
    }

    // SAFETY: `Objects::locked` requires the C library's `dl_iterate_phdr`, to which the linker
    // resolves the declaration of this name. In its type `c_void` stands for the structure that
    // `<link.h>` describes.
    let look = || unsafe { Objects::locked(dl_iterate_phdr, |objects| objects.has_unseen_calls()) };
    elf::without_forks(look).unwrap_or(true)
}

/// # Safety
///
/// `each` may be called, several times, with a pointer to a misuse and with `data`.
pub(crate) unsafe extern "C" fn misuses(each: Option<Each>, data: *mut c_void) -> c_int {
    let Some(each) = each else { return FAILED };
    let checks = Checks::get();
    if !checks.is_running() {
        return STATE;
    }
    checks.check_canaries();
    for misuse in checks.misuses() {
        let misuse = c_misuse(&misuse);
        // SAFETY: `each` requires a misuse that stays during the call, as the local does, and the
        // `data` that belongs to it. By this function's `# Safety` it may be called with these.
        if unsafe { each(&misuse, data) } != 0 {
            break;
        }
    }
    OK
}

fn c_misuse(misuse: &Misuse) -> CMisuse {
    let by = |call: Option<(Call, Stack)>| call.map_or(ptr::null(), |(call, _)| call.c_name().as_ptr());
    let at = |call: Option<(Call, Stack)>| call.map_or(Where::NONE, |(_, stack)| location(stack));
    let (kind, first, last) = match &misuse.kind {
        MisuseKind::DoubleFree(..) => (1, 0, 0),
        MisuseKind::NotABlock(inside) => (2, inside.map_or(0, |inside| inside.0), 0),
        MisuseKind::Mismatch => (3, 0, 0),
        MisuseKind::WrongSize(said) => (4, said.0, 0),
        MisuseKind::Overwrite(bytes) => {
            let size = misuse.size.0;
            (5, size.saturating_add(bytes.start), size.saturating_add(bytes.end).saturating_sub(1))
        }
        MisuseKind::Underwrite(bytes) => (6, bytes.start as u64, bytes.end.wrapping_sub(1) as u64),
        MisuseKind::WriteAfterFree(bytes) => (7, bytes.start as u64, bytes.end.wrapping_sub(1) as u64),
        _ => (0, 0, 0),
    };
    let before = match misuse.kind {
        MisuseKind::DoubleFree(call, stack) => Some((call, stack)),
        _ => None,
    };
    CMisuse {
        size: size_of::<CMisuse>() as u32,
        kind,
        address: misuse.address,
        bytes: misuse.size.0,
        first,
        last,
        times: misuse.times,
        allocated_by: by(misuse.allocated),
        freed_by: by(misuse.freed),
        freed_before_by: by(before),
        allocated_at: at(misuse.allocated),
        freed_at: at(misuse.freed),
        freed_before_at: at(before),
    }
}
