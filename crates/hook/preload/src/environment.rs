//! The two additions to the environment: taken out at start, put in again for children.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::ptr;

use heapledger_core::arch::{nr, syscall};
use heapledger_record::{connect, hook};
use heapledger_wire::session::NAME_LENGTH;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const SESSION_LENGTH: usize = 2 * NAME_LENGTH + 1;
const PATH_MAX: usize = 4096;

/// What was taken out. The originals are part of the block that `setproctitle` overwrites: these are copies.
struct Taken {
    session: [u8; SESSION_LENGTH],
    /// The path of this library, and its length; 0 is none.
    library: [u8; PATH_MAX],
    library_length: usize,
}

struct TakenCell(UnsafeCell<Taken>);
// SAFETY: written once by `take_session`, under the lock of `initialise`, before anything reads it.
unsafe impl Sync for TakenCell {}
static TAKEN: TakenCell =
    TakenCell(UnsafeCell::new(Taken { session: [0; SESSION_LENGTH], library: [0; PATH_MAX], library_length: 0 }));

/// An environment block: pointers to strings, up to a null pointer.
pub(crate) type Environment = *const *const c_char;

/// Finds the session in the environment and removes both additions. `start` is where the kernel put the argument
/// count; the arguments and the environment follow. Returns the session's address, which lives on.
///
/// # Safety
///
/// Call once, before the program has its environment, with that address.
pub(crate) unsafe fn take_session(start: *mut u64) -> Option<&'static [u8]> {
    // SAFETY: the layout of a new process's stack (System V psABI): argc, argv, null, envp, null.
    let environment = unsafe { start.add(1 + *start as usize + 1) }.cast::<*const c_char>();
    // SAFETY: nobody else looks at it yet (the caller's contract).
    let taken = unsafe { &mut *TAKEN.0.get() };
    let is_session = |entry: &[u8]| value_of(entry, connect::environment_prefix()).map(|value| value.len());
    let mut has_session = false;
    for_each(environment, |entry| {
        if is_session(entry) == Some(SESSION_LENGTH) {
            let value = entry.get(entry.len() - SESSION_LENGTH..).unwrap_or(&[]);
            taken.session.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
            has_session = true;
        }
    });
    if !has_session {
        return None;
    }
    let (mut from, mut to) = (environment, environment);
    // SAFETY: both stay inside the block, which ends with a null pointer; strings are NUL-terminated and writable, as
    // the kernel made them for this process.
    unsafe {
        while !(*from).is_null() {
            let entry = CStr::from_ptr(*from).to_bytes();
            let mut kept = *from;
            if is_session(entry).is_some() {
                kept = ptr::null();
            } else if let Some(value) = value_of(entry, PRELOAD.iter().copied()) {
                let length = value.iter().position(|&byte| byte == b':').unwrap_or(value.len());
                taken.library.iter_mut().zip(value.iter().take(length)).for_each(|(to, from)| *to = *from);
                taken.library_length = if length < PATH_MAX { length } else { 0 };
                kept = if length == value.len() {
                    ptr::null()
                } else {
                    // What the program had follows ours: give it the name again, over the end of ours.
                    let rest = kept.add(length + 1).cast_mut();
                    PRELOAD.iter().enumerate().for_each(|(index, &byte)| *rest.add(index) = byte as c_char);
                    rest
                };
            }
            if !kept.is_null() {
                *to = kept;
                to = to.add(1);
            }
            from = from.add(1);
        }
        while to != from {
            *to = ptr::null();
            to = to.add(1);
        }
    }
    Some(&taken.session)
}

/// The environment that a child is to get: the program's, and our two additions, in memory of the calling thread. The
/// program's own when the child is not to be recorded.
pub(crate) fn for_child(environment: Environment) -> Environment {
    // SAFETY: written before any caller can be here; not written since.
    let taken = unsafe { &*TAKEN.0.get() };
    let library = taken.library.get(..taken.library_length).unwrap_or(&[]);
    if library.is_empty() || !hook::session_is_live() || !is_readable(&taken.library) {
        return environment;
    }
    let (mut count, mut preloaded) = (0, None);
    for_each(environment, |entry| {
        count += 1;
        if let Some(value) = value_of(entry, PRELOAD.iter().copied()) {
            preloaded = Some(value);
        }
    });
    let strings = [
        (PRELOAD, library, if preloaded.is_some() { &b":"[..] } else { &[] }, preloaded.unwrap_or(&[])),
        (heapledger_wire::session::ENVIRONMENT_VARIABLE.as_bytes(), b"=", &taken.session[..], &[]),
    ];
    let strings_length: usize = strings.iter().map(|(a, b, c, d)| a.len() + b.len() + c.len() + d.len() + 1).sum();
    let length = (count + 3) * size_of::<*const c_char>() + strings_length;
    let memory = hook::scratch(length);
    if memory.is_null() {
        return environment;
    }
    let entries = memory.cast::<*const c_char>();
    // SAFETY: `memory` has `length` bytes: `count + 3` pointers, then the strings with their terminators.
    unsafe {
        let mut to = entries.add(count + 3).cast::<u8>();
        let mut entry = entries;
        for (a, b, c, d) in strings {
            *entry = to.cast();
            entry = entry.add(1);
            for byte in [a, b, c, d].into_iter().flatten() {
                to.write(*byte);
                to = to.add(1);
            }
            to.write(0);
            to = to.add(1);
        }
        let mut from = environment;
        while !from.is_null() && !(*from).is_null() {
            let bytes = CStr::from_ptr(*from).to_bytes();
            let is_ours = value_of(bytes, PRELOAD.iter().copied()).is_some()
                || value_of(bytes, connect::environment_prefix()).is_some();
            if !is_ours {
                *entry = *from;
                entry = entry.add(1);
            }
            from = from.add(1);
        }
        *entry = ptr::null();
    }
    entries.cast_const()
}

/// Takes what [`for_child`] put into `added` out of `current`, another array that was copied from it.
///
/// # Safety
///
/// Both are environment blocks, and `current` is writable.
pub(crate) unsafe fn take_out(current: *mut *const c_char, added: Environment) {
    // SAFETY: the first two entries of what `for_child` made are ours.
    let ours = unsafe { [*added, *added.add(1)] };
    let (mut from, mut to) = (current, current);
    // SAFETY: both stay inside the block, which ends with a null pointer.
    unsafe {
        while !(*from).is_null() {
            if !ours.contains(&*from) {
                *to = *from;
                to = to.add(1);
            }
            from = from.add(1);
        }
        *to = ptr::null();
    }
}

fn for_each<'a>(environment: Environment, mut look: impl FnMut(&'a [u8])) {
    let mut at = environment;
    // SAFETY: an environment block, or null: strings up to a null pointer.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            look(CStr::from_ptr(*at).to_bytes());
            at = at.add(1);
        }
    }
}

/// What follows the prefix, when the entry has it.
fn value_of(entry: &[u8], prefix: impl Iterator<Item = u8>) -> Option<&[u8]> {
    let mut at = 0;
    for byte in prefix {
        if entry.get(at) != Some(&byte) {
            return None;
        }
        at += 1;
    }
    entry.get(at..)
}

/// Whether a file can be read from here, by this user: not in a chroot without it, say.
fn is_readable(path: &[u8; PATH_MAX]) -> bool {
    const R_OK: usize = 4;
    // SAFETY: the path is NUL-terminated: it is shorter than its zeroed array.
    unsafe { syscall(nr::ACCESS, [path.as_ptr() as usize, R_OK, 0, 0, 0, 0]) == 0 }
}
