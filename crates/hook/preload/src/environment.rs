//! The two additions to the environment: taken out at start, put in again for children.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::ptr;

use heapledger_core::arch::{nr, syscall};
use heapledger_core::program::{self, Program};
use heapledger_core::sys;
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

/// A program that is about to be started.
#[derive(Clone, Copy)]
pub(crate) enum Child {
    /// A file.
    At(*const c_char),
    /// A file, or a name to be looked for in `PATH`.
    InPath(*const c_char),
    /// An open file (no path, or an empty one), or a file by its path from an open directory.
    Below(c_int, *const c_char),
    /// A program of the system's.
    Any,
}

/// The environment that a child is to get: the program's, with our two additions, in memory of the calling thread. The
/// program's own when the child is not to be recorded, or could not take them out again.
pub(crate) fn for_child(environment: Environment, child: Child) -> Environment {
    let Some(added) = Added::new(environment, child) else { return environment };
    let memory = hook::scratch(added.length());
    // SAFETY: as much memory as asked for, or null.
    if memory.is_null() { environment } else { unsafe { added.write(memory) } }
}

/// The additions to an environment, before they are written.
pub(crate) struct Added {
    environment: Environment,
    count: usize,
    strings_length: usize,
    library: &'static [u8],
    session: &'static [u8],
    /// The value of `LD_PRELOAD` in the environment.
    preloaded: Option<&'static [u8]>,
}

impl Added {
    /// `None` when nothing is to be added.
    pub(crate) fn new(environment: Environment, child: Child) -> Option<Added> {
        // SAFETY: written before any caller can be here; not written since.
        let taken = unsafe { &*TAKEN.0.get() };
        let library = taken.library.get(..taken.library_length).unwrap_or(&[]);
        if library.is_empty() || !hook::session_is_live() || !is_readable(&taken.library) || !is_recordable(child) {
            return None;
        }
        let mut added =
            Added { environment, count: 0, strings_length: 0, library, session: &taken.session, preloaded: None };
        for_each(environment, |entry| {
            added.count += 1;
            if let Some(value) = value_of(entry, PRELOAD.iter().copied()) {
                added.preloaded = Some(value);
            }
        });
        added.strings_length = added.strings().into_iter().flatten().map(|part| part.len()).sum::<usize>() + 2;
        Some(added)
    }

    /// Bytes that [`Added::write`] needs.
    pub(crate) fn length(&self) -> usize {
        (self.count + 3) * size_of::<*const c_char>() + self.strings_length
    }

    /// The two entries, in parts.
    fn strings(&self) -> [[&'static [u8]; 4]; 2] {
        let separator = if self.preloaded.is_some() { &b":"[..] } else { &[] };
        [
            [PRELOAD, self.library, separator, self.preloaded.unwrap_or(&[])],
            [heapledger_wire::session::ENVIRONMENT_VARIABLE.as_bytes(), b"=", self.session, &[]],
        ]
    }

    /// Writes the environment. Ours goes where an entry of the name is, so that the order stays, else to the end.
    ///
    /// # Safety
    ///
    /// `memory` has [`Added::length`] bytes, aligned for pointers.
    pub(crate) unsafe fn write(&self, memory: *mut u8) -> Environment {
        let entries = memory.cast::<*const c_char>();
        let mut ours = [ptr::null::<c_char>(); 2];
        let mut is_placed = false;
        // SAFETY: there is room for `count + 3` pointers, then the strings with their terminators: `new` has counted both.
        unsafe {
            let mut to = entries.add(self.count + 3).cast::<u8>();
            for (place, parts) in ours.iter_mut().zip(self.strings()) {
                *place = to.cast();
                for byte in parts.into_iter().flatten() {
                    to.write(*byte);
                    to = to.add(1);
                }
                to.write(0);
                to = to.add(1);
            }
            let [preload, session] = ours;
            let (mut from, mut entry) = (self.environment, entries);
            while !from.is_null() && !(*from).is_null() {
                let bytes = CStr::from_ptr(*from).to_bytes();
                if value_of(bytes, connect::environment_prefix()).is_none() {
                    let is_preload = value_of(bytes, PRELOAD.iter().copied()).is_some();
                    if !is_preload || !is_placed {
                        *entry = if is_preload { preload } else { *from };
                        entry = entry.add(1);
                        is_placed |= is_preload;
                    }
                }
                from = from.add(1);
            }
            if !is_placed {
                *entry = preload;
                entry = entry.add(1);
            }
            *entry = session;
            *entry.add(1) = ptr::null();
        }
        entries.cast_const()
    }
}

/// Whether the kernel would start the child with a dynamic linker that loads us. What cannot be told is.
fn is_recordable(child: Child) -> bool {
    match child {
        Child::Any => true,
        Child::At(path) => is_file_recordable(path.cast(), 4) != Some(false),
        Child::Below(directory, path) => {
            // SAFETY: the program's own argument, a NUL-terminated string or null.
            let path = if path.is_null() { &[] } else { unsafe { CStr::from_ptr(path) }.to_bytes() };
            let mut base = [0_u8; 26];
            let is_from_here = path.starts_with(b"/") || directory < 0;
            let base = if is_from_here { &[] } else { of_descriptor(directory, &mut base) };
            is_recordable_in(base, path, !is_from_here && !path.is_empty()) != Some(false)
        }
        Child::InPath(name) => {
            // SAFETY: the program's own argument, a NUL-terminated string or null.
            let name_bytes = if name.is_null() { &[] } else { unsafe { CStr::from_ptr(name) }.to_bytes() };
            if name_bytes.contains(&b'/') {
                return is_file_recordable(name.cast(), 4) != Some(false);
            }
            let mut search = &b"/bin:/usr/bin"[..];
            for_each(crate::exec::environ(), |entry| {
                if let Some(value) = value_of(entry, b"PATH=".iter().copied()) {
                    search = value;
                }
            });
            let in_directory = |directory: &[u8]| {
                let directory = if directory.is_empty() { b"." } else { directory };
                is_recordable_in(directory, name_bytes, true)
            };
            search.split(|&byte| byte == b':').find_map(in_directory) != Some(false)
        }
    }
}

/// `/proc/self/fd/NUMBER`.
fn of_descriptor(fd: c_int, path: &mut [u8; 26]) -> &[u8] {
    let start = b"/proc/self/fd/";
    let mut length = start.len();
    path.iter_mut().zip(start).for_each(|(to, from)| *to = *from);
    let digits = fd.unsigned_abs().checked_ilog10().unwrap_or(0);
    for place in (0..=digits).rev() {
        if let Some(to) = path.get_mut(length) {
            *to = b'0' + (fd.unsigned_abs() / 10_u32.pow(place) % 10) as u8;
            length += 1;
        }
    }
    path.get(..length).unwrap_or(&[])
}

/// The verdict on a file in a directory; `None` when there is no such file.
fn is_recordable_in(directory: &[u8], name: &[u8], is_separated: bool) -> Option<bool> {
    let mut path = [0_u8; 1024];
    let parts = directory.iter().chain(if is_separated { &b"/"[..] } else { &[] }).chain(name);
    if directory.len() + name.len() + 2 > path.len() {
        return None;
    }
    path.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
    is_file_recordable(path.as_ptr(), 4)
}

/// The verdict on a file, following interpreters; `None` when it cannot be read.
fn is_file_recordable(path: *const u8, interpreters_left: u32) -> Option<bool> {
    let head_length = program::HEAD_LENGTH;
    // In a mapping: the caller's stack may be small.
    let memory = sys::map_private(head_length).ok()?;
    // SAFETY: just mapped, zeroed, and given up below, after its last use.
    let head = unsafe { core::slice::from_raw_parts_mut(memory, head_length) };
    // SAFETY: the callers pass NUL-terminated strings.
    let read = unsafe { sys::read_head(path, head.get_mut(..head_length - 1).unwrap_or(&mut [])) };
    let verdict = match read {
        None => None,
        Some((_, true)) => Some(false),
        Some((length, false)) => match program::judge(head.get(..length).unwrap_or(&[])) {
            Program::Dynamic => {
                let head = head.get(..length).unwrap_or(&[]);
                // SAFETY: as above.
                let read = |offset, bytes: &mut [u8]| unsafe { sys::read_at(path, offset, bytes) };
                Some(!program::needs_to_be_first(head, read) || is_link_order_excused())
            }
            Program::Unknown => Some(true),
            Program::Other => Some(false),
            Program::Script(interpreter) if interpreters_left > 0 => {
                let (start, length) = (interpreter.as_ptr() as usize - memory as usize, interpreter.len());
                // The path ends where the line does: make it a string in place.
                if let Some(end) = head.get_mut(start + length) {
                    *end = 0;
                }
                is_file_recordable(memory.wrapping_add(start), interpreters_left - 1)
            }
            Program::Script(_) => Some(false),
        },
    };
    // SAFETY: mapped above; nothing refers to it any more.
    unsafe { sys::unmap(memory, head_length) };
    verdict
}

/// Whether the user has told AddressSanitizer to accept a library before it.
fn is_link_order_excused() -> bool {
    let mut is_excused = false;
    for_each(crate::exec::environ(), |entry| {
        if let Some(options) = value_of(entry, b"ASAN_OPTIONS=".iter().copied()) {
            let wanted = b"verify_asan_link_order=0";
            is_excused |= options.windows(wanted.len()).any(|window| window == wanted);
        }
    });
    is_excused
}

/// Calls `start` with a shell command that does what `command` does, in a shell that is recorded.
///
/// `system` and `popen` give their shell the program's `environ`, and that must not change while other threads may look
/// at it. So the command first exports the two variables, then becomes a shell that runs the original.
pub(crate) fn with_shell_command<R>(command: *const c_char, start: impl FnOnce(*const c_char) -> R) -> R {
    if command.is_null() {
        return start(command);
    }
    let Some(added) = Added::new(crate::exec::environ(), Child::Any) else { return start(command) };
    // SAFETY: the program's own argument: a NUL-terminated string.
    let original = unsafe { CStr::from_ptr(command) }.to_bytes();
    let [[preload, library, separator, preloaded], [name, equals, session, _]] = added.strings();
    // Pieces, and whether they stand in single quotes, so that those in them are to be escaped.
    let pieces: [(&[u8], bool); 13] = [
        (b"export ", false),
        (preload, false),
        (b"'", false),
        (library, true),
        (separator, true),
        (preloaded, true),
        (b"' ", false),
        (name, false),
        (equals, false),
        (session, false),
        (b"; exec /bin/sh -c '", false),
        (original, true),
        // The last word is `$0`, which `system` and `popen` make `sh`.
        (b"' sh", false),
    ];
    let length = pieces.iter().map(|(bytes, _)| bytes.len()).sum::<usize>()
        + 3 * pieces.iter().flat_map(|(bytes, _)| bytes.iter()).filter(|&&byte| byte == b'\'').count()
        + 1;
    let Ok(memory) = sys::map_private(length) else { return start(command) };
    let mut to = memory;
    let mut put = |byte: u8| {
        // SAFETY: `length` counts every byte and three more for every quote; the mapping is zeroed, so the end is there.
        unsafe {
            to.write(byte);
            to = to.add(1);
        }
    };
    for (bytes, is_quoted) in pieces {
        for &byte in bytes {
            if is_quoted && byte == b'\'' {
                b"'\\''".iter().for_each(|&byte| put(byte));
            } else {
                put(byte);
            }
        }
    }
    let result = start(memory.cast());
    // SAFETY: mapped above; `system` and `popen` have started their shell when they return.
    unsafe { sys::unmap(memory, length) };
    result
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
