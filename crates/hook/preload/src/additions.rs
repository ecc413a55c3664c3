//! The additions to the environment: taken out at start, put in again for children. `LD_PRELOAD`
//! begins with this library and the hook libraries; one variable names the session, another the
//! hook libraries.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::ptr;

use heapledger_core::lock::Lock;
use heapledger_core::program::Obstacle;
use heapledger_core::sandbox;
use heapledger_recorder::{connect, leave, process, session};
use heapledger_unwind::modules;
use heapledger_wire::session::{
    ARMED_SUFFIX, ENVIRONMENT_VARIABLE, HOOKS_VARIABLE, MAPPINGS_SUFFIX, MUSL_SUFFIX, NAME_LENGTH, SAMPLES_SUFFIX,
    STALLED_SUFFIX, USABLE_SUFFIX, WAITS_SUFFIX,
};

use crate::child::{Child, ChildPath, ChildStatus};
use crate::environment::{Environment, for_each};
use crate::obstacles::{self, PATH_MAX, is_readable};
use crate::scratch;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const SESSION: &[u8] = b"HEAPLEDGER_SESSION=";
const HOOKS: &[u8] = b"HEAPLEDGER_HOOKS=";
/// The longest session address; without suffixes it is shorter.
const SESSION_LENGTH_MAX: usize = SESSION_LENGTH
    + SAMPLES_SUFFIX.len()
    + USABLE_SUFFIX.len()
    + MAPPINGS_SUFFIX.len()
    + WAITS_SUFFIX.len()
    + ARMED_SUFFIX.len();
const STALLED: &[u8] = STALLED_SUFFIX.as_bytes();
const SESSION_LENGTH: usize = 2 * NAME_LENGTH + 1;

const _: () = assert!(SESSION.len() == ENVIRONMENT_VARIABLE.len() + 1 && HOOKS.len() == HOOKS_VARIABLE.len() + 1);

/// The additions that were taken out. The originals are part of the memory that `setproctitle`
/// overwrites: these are copies.
pub(crate) struct Taken {
    session: Text<SESSION_LENGTH_MAX>,
    /// The path of this library.
    library: Text<PATH_MAX>,
    /// The paths of the hook libraries, with colons between.
    hooks: Text<PATH_MAX>,
}

/// Bytes that are kept, and zeroes after them. Empty if there are none, or they were too long.
#[derive(Clone, Copy)]
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
    /// Returns the session's address, if there is one.
    pub(crate) fn session(&self) -> Option<&[u8]> {
        Some(self.session.get()).filter(|session| !session.is_empty())
    }

    /// Returns the paths of the hook libraries, as the dynamic linker was given them.
    pub(crate) fn hooks(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.hooks.get().split(|&byte| byte == b':').filter(|path| !path.is_empty())
    }
}

struct TakenCell(UnsafeCell<Taken>);
// SAFETY: written once by `take_additions`, under the lock of `initialise`, before anything reads
// it.
unsafe impl Sync for TakenCell {}
static TAKEN: TakenCell =
    TakenCell(UnsafeCell::new(Taken { session: Text::EMPTY, library: Text::EMPTY, hooks: Text::EMPTY }));

/// The address of the session that an armed process belongs to, with [`ARMED_SUFFIX`].
struct JoinedSession {
    lock: Lock,
    text: UnsafeCell<Text<SESSION_LENGTH_MAX>>,
}
// SAFETY: the text is accessed under the lock only.
unsafe impl Sync for JoinedSession {}
static JOINED: JoinedSession = JoinedSession { lock: Lock::new(), text: UnsafeCell::new(Text::EMPTY) };

/// The time to wait for the lock: in a forked child, its holder may not exist.
const JOINED_MILLISECONDS_MAX: u32 = 100;

/// Keeps the address of the session that this armed process joins, for the programs that it starts.
pub(crate) fn keep_session(address: &[u8]) {
    let mut bytes = [0; SESSION_LENGTH_MAX];
    let length = address.len() + ARMED_SUFFIX.len();
    bytes.iter_mut().zip(address.iter().chain(ARMED_SUFFIX.as_bytes())).for_each(|(to, from)| *to = *from);
    let mut text = Text::EMPTY;
    text.keep(bytes.get(..length).unwrap_or(&[]));
    keep_joined(text);
}

/// Keeps the address of the session that the program which started this one belongs to.
fn keep_joined(address: Text<SESSION_LENGTH_MAX>) {
    let Some(_guard) = JOINED.lock.lock_within(JOINED_MILLISECONDS_MAX) else { return };
    // SAFETY: the lock is held, without which nobody accesses the text.
    unsafe { *JOINED.text.get() = address };
}

/// Returns the address of the session that this process belongs to; empty if there is none.
fn session_text() -> Text<SESSION_LENGTH_MAX> {
    // SAFETY: `take_additions` has written it before any caller can be here, and nobody writes it
    // since.
    let taken = unsafe { &*TAKEN.0.get() };
    if !leave::is_armed() {
        return taken.session;
    }
    let guard = JOINED.lock.lock_within(JOINED_MILLISECONDS_MAX);
    // SAFETY: the lock is held, without which nobody accesses the text.
    guard.map_or(Text::EMPTY, |_guard| unsafe { *JOINED.text.get() })
}

/// Returns a session's address without the note that the recorder stands still, and true if there
/// was one.
fn without_stall(session: &[u8]) -> (&[u8], bool) {
    session.strip_suffix(STALLED).map_or((session, false), |session| (session, true))
}

/// Finds the additions to the environment and takes them out, including the text, which
/// `/proc/PID/environ` shows: zeroes stay in its place, because other strings cannot be moved (the
/// C library may have pointers into them). `start` is the address at which the kernel put the
/// argument count; the arguments and the environment follow.
///
/// # Safety
///
/// Call once, before the program has its environment, with that address.
pub(crate) unsafe fn take_additions(start: *mut u64) -> &'static Taken {
    // SAFETY: the layout of a new process's stack (System V psABI): argc, argv, null, envp, null.
    let environment = unsafe { start.add(1 + *start as usize + 1) }.cast::<*const c_char>();
    // SAFETY: no other reference to the cell exists: by its `# Safety` this function is called
    // once, before the program has its environment. `Added::new`, the other user, serves calls of
    // the program.
    let taken = unsafe { &mut *TAKEN.0.get() };
    for_each(environment, |entry| {
        let is_whole = |session: &&[u8]| (SESSION_LENGTH..=SESSION_LENGTH_MAX).contains(&session.len());
        let session = entry.strip_prefix(SESSION).map(without_stall);
        if let Some((session, is_stalled)) = session.filter(|(session, _)| is_whole(session)) {
            taken.session.keep(session);
            if is_stalled {
                connect::expect_stall();
            }
        } else if let Some(hooks) = entry.strip_prefix(HOOKS).filter(|hooks| hooks.len() < PATH_MAX) {
            taken.hooks.keep(hooks);
        }
    });
    if taken.session().is_none() && taken.hooks().next().is_none() {
        return taken;
    }
    let is_armed = taken.session().is_some_and(|session| session.ends_with(ARMED_SUFFIX.as_bytes()));
    if is_armed {
        keep_joined(taken.session);
    }
    let (mut from, mut to) = (environment, environment);
    // SAFETY: both stay inside the block, which ends with a null pointer; strings are
    // NUL-terminated and writable, as the kernel made them for this process.
    unsafe {
        while !(*from).is_null() {
            let entry = CStr::from_ptr(*from).to_bytes();
            let mut kept = *from;
            if entry.starts_with(SESSION) || entry.starts_with(HOOKS) {
                kept = ptr::null();
            } else if let Some(value) = entry.strip_prefix(PRELOAD).filter(|_| !is_armed) {
                let library = value.split(|&byte| byte == b':').next().unwrap_or(&[]);
                // There must be room for the zero that ends it.
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
                    // The program's own libraries follow ours: give them the variable's name again,
                    // over the end of ours.
                    let rest = kept.add(length + 1).cast_mut();
                    PRELOAD.iter().enumerate().for_each(|(index, &byte)| *rest.add(index) = byte as c_char);
                    rest
                };
            }
            if kept != *from {
                let end = if kept.is_null() { (*from).add(entry.len()) } else { kept };
                ptr::write_bytes((*from).cast_mut(), 0, end.offset_from_unsigned(*from));
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

/// Returns the environment for a child: the program's, with our additions, in memory of the calling
/// thread. Returns the program's own if the child is not to be followed, or could not take the
/// additions out again.
pub(crate) fn for_child(environment: Environment, child: Child, found: &mut ChildPath) -> (Environment, ChildStatus) {
    let added = match Added::new(environment, child, found) {
        Ok(added) => added,
        Err(status) => return (environment, status),
    };
    let memory = scratch::memory(added.length());
    if memory.is_null() {
        return (environment, ChildStatus::Unrecorded(Obstacle::NoRoom));
    }
    // SAFETY: `Added::write` requires `length` bytes, aligned for pointers: `scratch::memory` has
    // returned whole pages, at least as many. It also requires the environment that `new` has
    // counted: the program changes none while a call reads it (POSIX).
    (unsafe { added.write(memory) }, ChildStatus::Recorded)
}

/// The additions to an environment, before they are written.
pub(crate) struct Added {
    environment: Environment,
    /// The path of the library for the child, without its end, and the end.
    library: (&'static [u8], &'static [u8]),
    count: usize,
    strings_length: usize,
    taken: &'static Taken,
    session: Text<SESSION_LENGTH_MAX>,
    /// The value of `LD_PRELOAD` in the environment.
    preloaded: Option<&'static [u8]>,
    /// True if the recorder stands still: the new program would wait for it.
    is_stalled: bool,
}

/// Returns the path of this library for a child, without its end, and the end: there is a copy for
/// programs with musl beside it. `None` if the child's C library is musl, and there is no copy, or
/// there are hook libraries, which are not for musl. An armed program's library is not added.
fn library_for(taken: &'static Taken, is_musl: bool) -> Option<(&'static [u8], &'static [u8])> {
    let own = taken.library.get();
    let (musl, glibc) = (MUSL_SUFFIX.as_bytes(), &b".so"[..]);
    let stem = own.strip_suffix(musl).or_else(|| own.strip_suffix(glibc));
    match stem {
        _ if !is_musl && own.is_empty() => Some((own, own)),
        Some(stem) if is_musl => taken.hooks().next().is_none().then_some((stem, musl)),
        Some(stem) => Some((stem, glibc)),
        None => (!is_musl).then_some((own, &b""[..])),
    }
}

/// True if the libraries that are added for a child can be read from here.
fn can_load(taken: &'static Taken, is_musl: bool) -> bool {
    let own = library_for(taken, is_musl).filter(|_| !leave::is_armed());
    own.is_none_or(|(path, end)| is_readable(path, end)) && taken.hooks().all(|path| is_readable(path, b""))
}

/// True if a value of `LD_PRELOAD` names this library, as far as that can be told: by the name of
/// the file, because a path may be relative.
fn has_own_library(value: &[u8]) -> bool {
    fn file_name(path: &[u8]) -> &[u8] {
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }
    // None before glibc 2.35.
    let Some(own) = modules::find(has_own_library as *const () as u64) else { return true };
    let own = file_name(own.bias_and_path().1);
    own.is_empty() || value.split(|byte| b": ".contains(byte)).any(|path| file_name(path) == own)
}

/// The entries that may be added. The first replaces one that is there.
const ENTRIES: usize = 3;
/// The number of parts in an entry.
const PARTS: usize = 7;

impl Added {
    /// Returns the additions; or, if nothing is to be added, what becomes of the child.
    ///
    /// Nothing is added if the environment has the additions of another Heapledger, which this
    /// program is, or runs: the programs that it starts are its own. (Ours were taken out when this
    /// program started.) Nor is anything added in a sandbox: the new program's start would make
    /// system calls of ours.
    pub(crate) fn new(environment: Environment, child: Child, found: &mut ChildPath) -> Result<Added, ChildStatus> {
        // SAFETY: written before any caller can be here; not written since.
        let taken = unsafe { &*TAKEN.0.get() };
        let session = session_text();
        let has_session = !session.get().is_empty();
        let is_wanted = match has_session {
            true => process::session_is_live(),
            false => taken.hooks().next().is_some(),
        };
        let unrecorded =
            |obstacle| if has_session { ChildStatus::Unrecorded(obstacle) } else { ChildStatus::Unobserved };
        if sandbox::is_entered() {
            let is_over = leave::is_armed() && !is_wanted;
            found.keep_as_named(child);
            return Err(if is_over { ChildStatus::Unobserved } else { unrecorded(Obstacle::Sandbox) });
        }
        if !is_wanted || (taken.library.get().is_empty() && !leave::is_armed()) {
            return Err(ChildStatus::Unobserved);
        }
        // The file is checked first, for its path; that reason stays the same wherever the program
        // starts.
        let obstacle = obstacles::obstacle(child, found)
            .or_else(|| session::is_in_other_network_out_of_reach().then_some(Obstacle::OtherNetwork))
            .or_else(|| library_for(taken, found.is_musl).is_none().then_some(Obstacle::OtherLibrary))
            .or_else(|| (!can_load(taken, found.is_musl)).then_some(Obstacle::LibraryUnreadable));
        if let Some(obstacle) = obstacle {
            return Err(ChildStatus::Unrecorded(obstacle));
        }
        let is_stalled = process::session_is_stalled();
        let library = library_for(taken, found.is_musl).unwrap_or_default();
        let mut added =
            Added { environment, library, count: 0, strings_length: 0, taken, session, preloaded: None, is_stalled };
        let mut has_foreign_entries = false;
        for_each(environment, |entry| {
            added.count += 1;
            has_foreign_entries |= entry.strip_prefix(SESSION).is_some_and(|it| without_stall(it).0 != session.get())
                || entry.strip_prefix(HOOKS).is_some_and(|hooks| hooks != taken.hooks.get());
            if let Some(value) = entry.strip_prefix(PRELOAD) {
                added.preloaded = Some(value);
            }
        });
        if has_foreign_entries {
            return Err(unrecorded(Obstacle::OtherSession));
        }
        // An armed program's library is in the environment by the user's will, or is not wanted.
        if leave::is_armed() && !added.preloaded.is_some_and(has_own_library) {
            return Err(ChildStatus::Unobserved);
        }
        added.strings_length = added.entries().as_flattened().iter().map(|part| part.len()).sum::<usize>() + ENTRIES;
        Ok(added)
    }

    /// Returns the number of bytes that [`Added::write`] needs.
    pub(crate) fn length(&self) -> usize {
        (self.count + ENTRIES + 1) * size_of::<*const c_char>() + self.strings_length
    }

    /// Returns the entries, in parts; one that is not to be added has none.
    pub(crate) fn entries(&self) -> [[&[u8]; PARTS]; ENTRIES] {
        let (session, hooks) = (self.session.get(), self.taken.hooks.get());
        let before = |bytes: &[u8]| if bytes.is_empty() { &b""[..] } else { &b":"[..] };
        let separator = if self.preloaded.is_some() { &b":"[..] } else { &[] };
        fn entry<'a>(name: &'a [u8], value: &'a [u8], suffix: &'a [u8]) -> [&'a [u8]; PARTS] {
            if value.is_empty() { [&b""[..]; PARTS] } else { [name, value, suffix, &[], &[], &[], &[]] }
        }
        if leave::is_armed() {
            return [
                [&b""[..]; PARTS],
                entry(SESSION, session, if self.is_stalled { STALLED } else { &[] }),
                [&b""[..]; PARTS],
            ];
        }
        [
            [PRELOAD, self.library.0, self.library.1, before(hooks), hooks, separator, self.preloaded.unwrap_or(&[])],
            entry(SESSION, session, if self.is_stalled { STALLED } else { &[] }),
            entry(HOOKS, hooks, &[]),
        ]
    }

    /// Writes the environment. `LD_PRELOAD` goes where an entry of that name is, so that the order
    /// stays, or else to the end.
    ///
    /// # Safety
    ///
    /// `memory` has [`Added::length`] bytes, aligned for pointers. The environment has not changed
    /// since [`Added::new`].
    pub(crate) unsafe fn write(&self, memory: *mut u8) -> Environment {
        let entries = memory.cast::<*const c_char>();
        let mut ours = [ptr::null::<c_char>(); ENTRIES];
        let mut is_placed = false;
        // SAFETY: there is room for `count + ENTRIES + 1` pointers, then the strings with their
        // terminators: `new` has counted both.
        unsafe {
            let mut to = entries.add(self.count + ENTRIES + 1).cast::<u8>();
            for (entry, parts) in ours.iter_mut().zip(self.entries()) {
                if parts.iter().all(|part| part.is_empty()) {
                    continue;
                }
                *entry = to.cast();
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
                    if !is_preload || !is_placed || preload.is_null() {
                        put(if is_preload && !preload.is_null() { preload } else { *from });
                        is_placed |= is_preload;
                    }
                }
                from = from.add(1);
            }
            if !is_placed && !preload.is_null() {
                put(preload);
            }
            others.into_iter().filter(|text| !text.is_null()).for_each(&mut put);
            put(ptr::null());
        }
        entries.cast_const()
    }
}
