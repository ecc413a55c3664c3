//! The obstacles to recording programs that are about to be started: the reasons why they would not
//! load this library.

use core::ffi::{CStr, c_char, c_int};

use heapledger_core::arch::nr;
use heapledger_core::program::{self, Obstacle, Program};
use heapledger_core::sys;

use crate::child::{Child, ChildPath};
use crate::environment::{environ, for_each};

/// The largest length of a path, with the zero at its end.
pub(crate) const PATH_MAX: usize = 4096;

/// Returns what keeps the kernel from starting the child with a dynamic linker that loads us, or
/// our copy for musl. An unknown obstacle counts as none. `found` becomes the child's path, and
/// says which of the two it is.
pub(crate) fn obstacle(child: Child, found: &mut ChildPath) -> Option<Obstacle> {
    match child {
        // The shell: it is started even if it will not be recorded.
        Child::Any => {
            found.keep(b"/bin/sh");
            let obstacle = of_file(c"/bin/sh".as_ptr().cast(), 4, found).flatten();
            obstacle.filter(|obstacle| *obstacle == Obstacle::Static)
        }
        Child::At(path) => at(path, found),
        Child::Below(directory, path) => {
            // SAFETY: `CStr::from_ptr` requires a live, NUL-terminated string: this is one of *the
            // program's arguments*, as `Child` says, and compared with null.
            let path = if path.is_null() { &[] } else { unsafe { CStr::from_ptr(path) }.to_bytes() };
            let mut base = [0_u8; 26];
            let is_from_here = path.starts_with(b"/") || directory < 0;
            let base = if is_from_here { &[] } else { of_descriptor(directory, &mut base) };
            in_directory(base, path, !is_from_here && !path.is_empty(), found).flatten()
        }
        Child::InPath(name) => {
            // SAFETY: `CStr::from_ptr` requires a live, NUL-terminated string: this is one of *the
            // program's arguments*, as `Child` says, and compared with null.
            let name_bytes = if name.is_null() { &[] } else { unsafe { CStr::from_ptr(name) }.to_bytes() };
            if name_bytes.contains(&b'/') {
                return at(name, found);
            }
            let mut search = &b"/bin:/usr/bin"[..];
            for_each(environ(), |entry| {
                if let Some(value) = entry.strip_prefix(b"PATH=") {
                    search = value;
                }
            });
            let search_in = |directory: &[u8]| {
                let directory = if directory.is_empty() { b"." } else { directory };
                in_directory(directory, name_bytes, true, found)
            };
            search.split(|&byte| byte == b':').find_map(search_in).flatten()
        }
    }
}

fn at(path: *const c_char, found: &mut ChildPath) -> Option<Obstacle> {
    // SAFETY: `CStr::from_ptr` requires a live, NUL-terminated string: this is one of *the
    // program's arguments*, as `Child` says, and compared with null.
    let bytes = if path.is_null() { &[] } else { unsafe { CStr::from_ptr(path) }.to_bytes() };
    found.keep(bytes);
    if bytes.is_empty() { None } else { of_file(path.cast(), 4, found).flatten() }
}

/// Returns `/proc/self/fd/NUMBER`.
fn of_descriptor(fd: c_int, path: &mut [u8; 26]) -> &[u8] {
    let start = b"/proc/self/fd/";
    let mut length = start.len();
    path.iter_mut().zip(start).for_each(|(to, from)| *to = *from);
    let digits = fd.unsigned_abs().checked_ilog10().unwrap_or(0);
    for exponent in (0..=digits).rev() {
        if let Some(to) = path.get_mut(length) {
            *to = b'0' + (fd.unsigned_abs() / 10_u32.pow(exponent) % 10) as u8;
            length += 1;
        }
    }
    path.get(..length).unwrap_or(&[])
}

/// Returns the obstacle of a file in a directory; `None` if there is no such file.
fn in_directory(directory: &[u8], name: &[u8], is_separated: bool, found: &mut ChildPath) -> Option<Option<Obstacle>> {
    let mut path = [0_u8; 1024];
    let parts = directory.iter().chain(if is_separated { &b"/"[..] } else { &[] }).chain(name);
    if directory.len() + name.len() + 2 > path.len() {
        return None;
    }
    path.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
    let obstacle = of_file(path.as_ptr(), 4, found)?;
    found.keep(path.split(|&byte| byte == 0).next().unwrap_or(&[]));
    Some(obstacle)
}

/// Returns the obstacle of a file, following interpreters; `None` if it cannot be read.
fn of_file(path: *const u8, interpreters_left: u32, found: &mut ChildPath) -> Option<Option<Obstacle>> {
    let head_length = program::HEAD_LENGTH;
    // In a mapping: the caller's stack may be small.
    let memory = sys::map_private(head_length).ok()?;
    // SAFETY: just mapped, zeroed, and given up below, after its last use.
    let head = unsafe { core::slice::from_raw_parts_mut(memory, head_length) };
    // SAFETY: `sys::read_head` requires a NUL-terminated path: callers pass that of a `Child`, the
    // zero-ended array of `in_directory`, or the interpreter's, which is ended below.
    let read = unsafe { sys::read_head(path, head.get_mut(..head_length - 1).unwrap_or(&mut [])) };
    let obstacle = match read {
        None => None,
        Some((_, true)) => Some(Some(Obstacle::OtherRights)),
        Some((length, false)) => match program::classify(head.get(..length).unwrap_or(&[])) {
            Program::Dynamic => {
                let head = head.get(..length).unwrap_or(&[]);
                // SAFETY: `path` is a NUL-terminated string, as the callers pass.
                let read = |offset, bytes: &mut [u8]| unsafe { sys::read_at(path, offset, bytes) };
                let is_refused = program::needs_to_be_first(head, read) && !is_link_order_excused();
                Some(is_refused.then_some(Obstacle::AddressSanitizer))
            }
            Program::Musl => {
                found.is_musl = true;
                Some(None)
            }
            Program::Unknown => Some(None),
            Program::Other(obstacle) => Some(Some(obstacle)),
            Program::Script(interpreter) if interpreters_left > 0 => {
                let (start, length) = (interpreter.as_ptr() as usize - memory as usize, interpreter.len());
                // The path ends where the line does: make it a string in place.
                if let Some(end) = head.get_mut(start + length) {
                    *end = 0;
                }
                of_file(memory.wrapping_add(start), interpreters_left - 1, found)
            }
            Program::Script(_) => Some(Some(Obstacle::Silent)),
        },
    };
    // SAFETY: `sys::unmap` requires a mapping of `map_private` to which nothing refers: it was made
    // above with this length. `head` and its parts are not used below.
    unsafe { sys::unmap(memory, head_length) };
    obstacle
}

/// True if the user has told AddressSanitizer to accept a library before it.
fn is_link_order_excused() -> bool {
    let mut is_excused = false;
    for_each(environ(), |entry| {
        if let Some(options) = entry.strip_prefix(b"ASAN_OPTIONS=") {
            let wanted = b"verify_asan_link_order=0";
            is_excused |= options.windows(wanted.len()).any(|window| window == wanted);
        }
    });
    is_excused
}

/// True if this user can read a file, by its path in two parts, from here: not in a chroot without
/// it, for instance.
pub(crate) fn is_readable(path: &[u8], end: &[u8]) -> bool {
    const R_OK: usize = 4;
    let mut text = [0_u8; PATH_MAX];
    text.iter_mut().zip(path.iter().chain(end)).for_each(|(to, from)| *to = *from);
    // SAFETY: the path is NUL-terminated: it is part of a text that is shorter than the zeroed
    // array.
    path.len() + end.len() < PATH_MAX
        && unsafe { sys::call(nr::ACCESS, [text.as_ptr() as usize, R_OK, 0, 0, 0, 0]) == 0 }
}
