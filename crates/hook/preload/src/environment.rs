//! The additions to the environment: taken out at start, put in again for children. `LD_PRELOAD` begins with this library
//! and the hook libraries; one variable names the session, one the hook libraries.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::ptr;

use heapledger_core::arch::{nr, syscall};
use heapledger_core::program::{self, Program};
use heapledger_core::sys;
use heapledger_record::hook;
use heapledger_wire::session::{ENVIRONMENT_VARIABLE, HOOKS_VARIABLE, NAME_LENGTH, SAMPLES_SUFFIX};

use crate::scratch;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const SESSION: &[u8] = b"HEAPLEDGER_SESSION=";
const HOOKS: &[u8] = b"HEAPLEDGER_HOOKS=";
/// Of a session that samples; of another one it is shorter by the suffix.
const SESSION_LENGTH_MAX: usize = 2 * NAME_LENGTH + 1 + SAMPLES_SUFFIX.len();
const PATH_MAX: usize = 4096;

const _: () = assert!(SESSION.len() == ENVIRONMENT_VARIABLE.len() + 1 && HOOKS.len() == HOOKS_VARIABLE.len() + 1);

/// What was taken out. The originals are part of the block that `setproctitle` overwrites: these are copies.
pub(crate) struct Taken {
    session: Text<SESSION_LENGTH_MAX>,
    /// The path of this library.
    library: Text<PATH_MAX>,
    /// The paths of the hook libraries, with colons between.
    hooks: Text<PATH_MAX>,
}

/// Bytes that are kept, and zeroes after them. Empty: there are none, or they were too long.
struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    const EMPTY: Text<N> = Text { bytes: [0; N], length: 0 };

    fn keep(&mut self, bytes: &[u8]) {
        self.length = if bytes.len() <= N { bytes.len() } else { 0 };
        self.bytes.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

impl Taken {
    /// The session's address, if there is one.
    pub(crate) fn session(&self) -> Option<&[u8]> {
        Some(self.session.get()).filter(|session| !session.is_empty())
    }

    /// The paths of the hook libraries, as the dynamic linker was given them.
    pub(crate) fn hooks(&self) -> impl Iterator<Item = &[u8]> {
        self.hooks.get().split(|&byte| byte == b':').filter(|path| !path.is_empty())
    }
}

struct TakenCell(UnsafeCell<Taken>);
// SAFETY: written once by `take_additions`, under the lock of `initialise`, before anything reads it.
unsafe impl Sync for TakenCell {}
static TAKEN: TakenCell =
    TakenCell(UnsafeCell::new(Taken { session: Text::EMPTY, library: Text::EMPTY, hooks: Text::EMPTY }));

/// An environment block: pointers to strings, up to a null pointer.
pub(crate) type Environment = *const *const c_char;

/// Where the kernel put the auxiliary vector. `start` is where it put the argument count.
///
/// # Safety
///
/// `start` is that address, and nothing has been taken out of the environment yet.
pub(crate) unsafe fn auxiliary_vector(start: *const u64) -> *const [u64; 2] {
    // SAFETY: the layout of a new process's stack (System V psABI): argc, argv, null, envp, null, auxiliary vector.
    unsafe {
        let mut at = start.add(1 + *start as usize + 1);
        while *at != 0 {
            at = at.add(1);
        }
        at.add(1).cast()
    }
}

/// Finds what was added to the environment and takes it out. `start` is where the kernel put the argument count; the
/// arguments and the environment follow.
///
/// # Safety
///
/// Call once, before the program has its environment, with that address.
pub(crate) unsafe fn take_additions(start: *mut u64) -> &'static Taken {
    // SAFETY: the layout of a new process's stack (System V psABI): argc, argv, null, envp, null.
    let environment = unsafe { start.add(1 + *start as usize + 1) }.cast::<*const c_char>();
    // SAFETY: nobody else looks at it yet (the caller's contract).
    let taken = unsafe { &mut *TAKEN.0.get() };
    for_each(environment, |entry| {
        let is_whole =
            |session: &&[u8]| [SESSION_LENGTH_MAX, SESSION_LENGTH_MAX - SAMPLES_SUFFIX.len()].contains(&session.len());
        if let Some(session) = entry.strip_prefix(SESSION).filter(is_whole) {
            taken.session.keep(session);
        } else if let Some(hooks) = entry.strip_prefix(HOOKS).filter(|hooks| hooks.len() < PATH_MAX) {
            taken.hooks.keep(hooks);
        }
    });
    if taken.session().is_none() && taken.hooks().next().is_none() {
        return taken;
    }
    let (mut from, mut to) = (environment, environment);
    // SAFETY: both stay inside the block, which ends with a null pointer; strings are NUL-terminated and writable, as
    // the kernel made them for this process.
    unsafe {
        while !(*from).is_null() {
            let entry = CStr::from_ptr(*from).to_bytes();
            let mut kept = *from;
            if entry.starts_with(SESSION) || entry.starts_with(HOOKS) {
                kept = ptr::null();
            } else if let Some(value) = entry.strip_prefix(PRELOAD) {
                let library = value.split(|&byte| byte == b':').next().unwrap_or(&[]);
                // With room for the zero that ends it.
                if library.len() < PATH_MAX {
                    taken.library.keep(library);
                }
                let mut length = library.len();
                let hooks = taken.hooks.get();
                let follows = value.get(length + 1..).and_then(|rest| rest.strip_prefix(hooks));
                if !hooks.is_empty() && follows.is_some_and(|rest| matches!(rest.first(), None | Some(b':'))) {
                    length += 1 + hooks.len();
                }
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
    taken
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

/// The environment that a child is to get: the program's, with our additions, in memory of the calling thread. The
/// program's own when the child is not to be followed, or could not take them out again.
pub(crate) fn for_child(environment: Environment, child: Child) -> Environment {
    let Some(added) = Added::new(environment, child) else { return environment };
    let memory = scratch::memory(added.length());
    // SAFETY: as much memory as asked for, or null.
    if memory.is_null() { environment } else { unsafe { added.write(memory) } }
}

/// The additions to an environment, before they are written.
pub(crate) struct Added {
    environment: Environment,
    count: usize,
    strings_length: usize,
    taken: &'static Taken,
    /// The value of `LD_PRELOAD` in the environment.
    preloaded: Option<&'static [u8]>,
}

/// The entries that may be added. The first replaces one that is there.
const ENTRIES: usize = 3;
/// The parts of which an entry is made.
const PARTS: usize = 6;

impl Added {
    /// `None` when nothing is to be added.
    pub(crate) fn new(environment: Environment, child: Child) -> Option<Added> {
        // SAFETY: written before any caller can be here; not written since.
        let taken = unsafe { &*TAKEN.0.get() };
        let is_wanted = match taken.session() {
            Some(_) => hook::session_is_live(),
            None => taken.hooks().next().is_some(),
        };
        let can_load = || core::iter::once(taken.library.get()).chain(taken.hooks()).all(is_readable);
        if !is_wanted || taken.library.get().is_empty() || !can_load() || !is_recordable(child) {
            return None;
        }
        let mut added = Added { environment, count: 0, strings_length: 0, taken, preloaded: None };
        for_each(environment, |entry| {
            added.count += 1;
            if let Some(value) = entry.strip_prefix(PRELOAD) {
                added.preloaded = Some(value);
            }
        });
        added.strings_length = added.entries().as_flattened().iter().map(|part| part.len()).sum::<usize>() + ENTRIES;
        Some(added)
    }

    /// Bytes that [`Added::write`] needs.
    pub(crate) fn length(&self) -> usize {
        (self.count + ENTRIES + 1) * size_of::<*const c_char>() + self.strings_length
    }

    /// The entries, in parts; one that is not to be added has none.
    fn entries(&self) -> [[&'static [u8]; PARTS]; ENTRIES] {
        let (session, hooks) = (self.taken.session.get(), self.taken.hooks.get());
        let before = |bytes: &[u8]| if bytes.is_empty() { &b""[..] } else { &b":"[..] };
        let separator = if self.preloaded.is_some() { &b":"[..] } else { &[] };
        let entry = |name, value: &'static [u8]| {
            if value.is_empty() { [&b""[..]; PARTS] } else { [name, value, &[], &[], &[], &[]] }
        };
        [
            [PRELOAD, self.taken.library.get(), before(hooks), hooks, separator, self.preloaded.unwrap_or(&[])],
            entry(SESSION, session),
            entry(HOOKS, hooks),
        ]
    }

    /// Writes the environment. `LD_PRELOAD` goes where an entry of the name is, so that the order stays, else to the end.
    ///
    /// # Safety
    ///
    /// `memory` has [`Added::length`] bytes, aligned for pointers.
    pub(crate) unsafe fn write(&self, memory: *mut u8) -> Environment {
        let entries = memory.cast::<*const c_char>();
        let mut ours = [ptr::null::<c_char>(); ENTRIES];
        let mut is_placed = false;
        // SAFETY: there is room for `count + ENTRIES + 1` pointers, then the strings with their terminators: `new` has
        // counted both.
        unsafe {
            let mut to = entries.add(self.count + ENTRIES + 1).cast::<u8>();
            for (place, parts) in ours.iter_mut().zip(self.entries()) {
                if parts.iter().all(|part| part.is_empty()) {
                    continue;
                }
                *place = to.cast();
                for byte in parts.into_iter().flatten() {
                    to.write(*byte);
                    to = to.add(1);
                }
                to.write(0);
                to = to.add(1);
            }
            let [preload, others @ ..] = ours;
            let (mut from, mut entry) = (self.environment, entries);
            let mut put = |text: *const c_char| {
                *entry = text;
                entry = entry.add(1);
            };
            while !from.is_null() && !(*from).is_null() {
                let bytes = CStr::from_ptr(*from).to_bytes();
                if !bytes.starts_with(SESSION) && !bytes.starts_with(HOOKS) {
                    let is_preload = bytes.starts_with(PRELOAD);
                    if !is_preload || !is_placed {
                        put(if is_preload { preload } else { *from });
                        is_placed |= is_preload;
                    }
                }
                from = from.add(1);
            }
            if !is_placed {
                put(preload);
            }
            others.into_iter().filter(|text| !text.is_null()).for_each(&mut put);
            put(ptr::null());
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
                if let Some(value) = entry.strip_prefix(b"PATH=") {
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
        if let Some(options) = entry.strip_prefix(b"ASAN_OPTIONS=") {
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
    let [preload, session, hooks] = added.entries();
    // Pieces, and whether they stand in single quotes, so that those in them are to be escaped.
    let quote = (&b"'"[..], false);
    let [name, rest @ ..] = preload;
    let [first, second, third, fourth, fifth] = rest.map(|part| (part, true));
    let pieces: [(&[u8], bool); 17] = [
        (b"export ", false),
        (name, false),
        quote,
        first,
        second,
        third,
        fourth,
        fifth,
        (b"' ", false),
        (session[0], false),
        (session[1], false),
        (b" ", false),
        (hooks[0], false),
        (hooks[1], false),
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

/// Whether a file can be read from here, by this user: not in a chroot without it, say.
fn is_readable(path: &[u8]) -> bool {
    const R_OK: usize = 4;
    let mut text = [0_u8; PATH_MAX];
    text.iter_mut().zip(path).for_each(|(to, from)| *to = *from);
    // SAFETY: the path is NUL-terminated: it is part of a text that is shorter than the zeroed array.
    path.len() < PATH_MAX && unsafe { syscall(nr::ACCESS, [text.as_ptr() as usize, R_OK, 0, 0, 0, 0]) == 0 }
}
