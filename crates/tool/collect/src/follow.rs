//! Follows processes into the programs that they execute, if no dynamic linker would load the
//! library there by itself.
//!
//! A library in the process asks for it before execve(2). The process is traced until it has
//! executed the program; there, a library is placed into that one, too, or its dynamic linker is
//! asked to load the other library. Nothing is visible to the process before, and no tracer stays.
//!
//! A child of posix_spawn(3) cannot ask. Its parent asks for it: the parent's thread is traced
//! until it has made the child, which is traced from its first instruction on.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use heapledger_core::arch;
use heapledger_core::program::{self, Obstacle};
use heapledger_inject::{ChildFollower, ExecStop, Followed, Follower, InjectError};
use heapledger_wire::event::units;
use heapledger_wire::session::{Answer, LIBRARY_FILE_NAME, REQUEST_LENGTH, Request};
use rustix::process::Pid;

use crate::attachment::Attachment;
use crate::files_of::Files;
use crate::inbox::{Inbox, Message};
use crate::launch::with_additions;
use crate::placed::Placement;
use crate::proc_maps;
use crate::redirection;
use crate::way::{INTERPRETERS_MAX, Way, way, way_by};

/// Sends an answer, without waiting.
type Send = fn(&OwnedFd, Answer, &[OwnedFd]);

/// All that recording an executed program takes.
#[derive(Debug)]
pub(crate) struct Follow {
    /// The library that is placed into statically linked programs.
    pub(crate) placed_library: Cow<'static, [u8]>,
    /// The library that glibc's dynamic linker loads; `None` if programs with a dynamic linker are
    /// not recorded.
    pub(crate) library: Option<PathBuf>,
    /// The library that musl's dynamic linker loads.
    pub(crate) library_for_musl: Option<PathBuf>,
    pub(crate) hooks: Vec<PathBuf>,
    /// The session's address.
    pub(crate) session: OsString,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) work: Work,
    /// The library in the process that ran before the session.
    pub(crate) attached: OnceLock<Arc<Attachment>>,
}

/// The processes that are followed at the moment.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// True if nobody is followed any more.
    is_closed: AtomicBool,
    /// The number of threads that follow a process.
    followers: AtomicUsize,
    /// The processes whose dynamic linker is to load a library, and their programs.
    loading: Mutex<Vec<(u32, PathBuf)>>,
}

/// A thread that follows a process.
struct Following(Arc<Follow>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.work.followers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Work {
    fn loading(&self) -> MutexGuard<'_, Vec<(u32, PathBuf)>> {
        // The vector is consistent between any two calls.
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_loading(&self, pid: u32, program: PathBuf) {
        let mut loading = self.loading();
        if loading.len() >= LOADING_MAX {
            loading.retain(|(pid, program)| is_loading(*pid, program));
        }
        loading.push((pid, program));
    }
}

/// The number of processes from which on those that have loaded a library are forgotten.
const LOADING_MAX: usize = 256;

/// True if a process still has this program, and has not loaded a library of ours.
fn is_loading(pid: u32, program: &Path) -> bool {
    let name = LIBRARY_FILE_NAME.trim_end_matches(".so").as_bytes();
    let executable = fs::read_link(format!("/proc/{pid}/exe"));
    executable.is_ok_and(|found| found == program) && !proc_maps::has_name(pid, name)
}

/// The time for which followers, and dynamic linkers that load a library, are waited for.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
const SETTLE_INTERVAL: Duration = Duration::from_millis(1);
/// The time from the jumps to the note that they are written.
const ATTACHED_TIMEOUT: Duration = Duration::from_secs(1);

impl Follow {
    /// Answers a process that is about to execute a program, in a thread of its own, which follows
    /// it, or its child, there.
    pub(crate) fn answer(self: Arc<Follow>, pid: u32, request: &Request, connection: OwnedFd, send: Send) {
        let (thread, path) = (request.thread, request.thunk);
        let is_child = request.fork != 0;
        let granted = Answer { refused: 0, image: 0, common_length: 0, ring_length: 0 };
        self.work.followers.fetch_add(1, Ordering::AcqRel);
        let following = Following(Arc::clone(&self));
        // The process goes on, as it does without an answer.
        if self.work.is_closed.load(Ordering::Acquire) {
            return;
        }
        let follow = move || {
            let _following = following;
            let Some(process) = Pid::from_raw(pid.cast_signed()) else { return };
            let refuse = |obstacle: Option<Obstacle>| {
                let image = obstacle.map_or(0, |obstacle| obstacle as u32);
                send(&connection, Answer { refused: 1, image, ..granted }, &[]);
            };
            if let Err(obstacle) = self.judge(pid, path) {
                return refuse(obstacle);
            }
            let thread = thread_of(pid, thread).unwrap_or(process);
            let not_traced = |_: InjectError| refuse(Some(Obstacle::NotFollowed));
            let follower = match is_child {
                false => Follower::seize(process, thread).map_err(not_traced),
                true => match ChildFollower::seize(process, thread).map_err(not_traced) {
                    Ok(parent) => {
                        send(&connection, granted, &[]);
                        let child = parent.wait(|| has_ended_or_asked(&connection));
                        // The parent waits for that, and has been left.
                        send(&connection, granted, &[]);
                        match child {
                            Ok(Some(child)) => Ok(child),
                            Ok(None) | Err(_) => return,
                        }
                    }
                    Err(()) => return,
                },
            };
            let Ok(follower) = follower else { return };
            if !is_child {
                send(&connection, granted, &[]);
            }
            match follower.wait(|| !is_child && is_asked_to_stop(&connection)) {
                // The program runs in any case.
                Ok(Followed::Executed(stop)) => _ = self.handle(*stop),
                Ok(Followed::Left) => send(&connection, granted, &[]),
                Err(_) => {}
            }
        };
        // Without a thread, the connection is closed, and the process goes on unrecorded.
        let _ = std::thread::Builder::new().name("follower".into()).spawn(follow);
    }

    /// Decides if the program with the path at an address of a process can be followed into.
    fn judge(&self, pid: u32, path: u64) -> Result<(), Option<Obstacle>> {
        let path = read_path(pid, path).ok_or(None)?;
        let files = Files::of(pid).map_err(|_| None)?;
        let program = files.find(&path).map_err(|_| None)?;
        let has_capabilities = Cell::new(program.has_capabilities());
        // The program that a script executes is its interpreter.
        let executed = Cell::new(None);
        let open = |path: &Path| {
            let found = files.find(path)?;
            has_capabilities.set(has_capabilities.get() || found.has_capabilities());
            let file = found.open();
            executed.set(Some(found));
            file
        };
        let way = way_by(&path, INTERPRETERS_MAX, &open);
        // A traced process gets no rights from a file.
        if has_capabilities.get() {
            return Err(Some(Obstacle::OtherRights));
        }
        match way {
            Way::Musl if self.library_for_musl.is_none() => Err(Some(Obstacle::OtherLibrary)),
            Way::Preloaded if self.library.is_none() => Err(None),
            Way::Preloaded | Way::Musl => {
                match self.library_for(way).is_some_and(|library| has_same(&files, library)) {
                    true => Ok(()),
                    false => Err(Some(Obstacle::LibraryUnreadable)),
                }
            }
            // Found once for a file, and kept for when it is placed.
            Way::Placed => match executed.take().is_some_and(|file| has_allocator(&file.path())) {
                true => Ok(()),
                false => Err(Some(Obstacle::Static)),
            },
            Way::None(obstacle) => Err(obstacle),
        }
    }

    /// Makes a program that has not run yet one that is recorded, and lets it run.
    fn handle(&self, mut stop: ExecStop) -> Result<(), InjectError> {
        let pid = stop.pid().as_raw_pid() as u32;
        let executable = PathBuf::from(format!("/proc/{pid}/exe"));
        let done = match way(&executable, 0) {
            Way::Placed => {
                let placement = Placement { library: &self.placed_library, session: &self.session };
                // A program that calls no function of its allocator never introduces itself.
                let message = match placement.place_in(&mut stop, pid) {
                    Ok(()) => Message::Followed { pid, stamp: units(arch::ticks()) },
                    // It runs as it is.
                    Err(_) => Message::NotFollowed { pid },
                };
                self.inbox.post([message]);
                Ok(())
            }
            way @ (Way::Preloaded | Way::Musl) => match self.library_for(way) {
                Some(library) if is_loadable(library, pid, &executable) => {
                    let program = fs::read_link(&executable).unwrap_or_default();
                    self.work.note_loading(pid, program);
                    stop.change_environment(|entries| {
                        let entries = entries.into_iter().map(OsString::from_vec).collect();
                        let changed = with_additions(entries, library, &self.hooks, Some(&self.session));
                        changed.into_iter().map(OsString::into_vec).collect()
                    })
                }
                _ => Ok(()),
            },
            Way::None(_) => Ok(()),
        };
        stop.release()?;
        done
    }

    fn library_for(&self, way: Way) -> Option<&Path> {
        if way == Way::Musl { self.library_for_musl.as_deref() } else { self.library.as_deref() }
    }

    /// Redirects the allocators of modules that a process has opened, into which the library was
    /// placed while it ran. Returns the number of entries that should be redirected and are not.
    pub(crate) fn redirect_opened(&self, pid: u32) -> u64 {
        let until = Instant::now() + ATTACHED_TIMEOUT;
        // The process may be faster than the thread that has written the jumps.
        while self.attached.get().is_none() && Instant::now() < until {
            std::thread::sleep(SETTLE_INTERVAL);
        }
        self.attached.get().map_or(0, |attachment| attachment.redirect_opened(pid))
    }

    /// Follows nobody any more: requests from now on get no answer.
    pub(crate) fn close(&self) {
        self.work.is_closed.store(true, Ordering::Release);
    }

    /// Waits until nobody is followed any more, and the processes whose dynamic linkers are to load
    /// a library have done so: then the process that asked can be traced by others, and the file of
    /// the library can be removed. For at most 5 s. Call after [`Follow::close`].
    pub(crate) fn settle(&self) {
        let until = Instant::now() + SETTLE_TIMEOUT;
        while Instant::now() < until {
            let mut loading = self.work.loading();
            loading.retain(|(pid, program)| is_loading(*pid, program));
            if loading.is_empty() && self.work.followers.load(Ordering::Acquire) == 0 {
                return;
            }
            drop(loading);
            std::thread::sleep(SETTLE_INTERVAL);
        }
    }
}

/// True if a process finds our file at its path.
fn has_same(files: &Files, library: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let inside = files.find(library).and_then(|found| fs::metadata(found.path()));
    inside.is_ok_and(|inside| fs::metadata(library).is_ok_and(|own| identity(own) == identity(inside)))
}

/// True if an allocator is found in a statically linked program's file.
fn has_allocator(file: &Path) -> bool {
    !redirection::placed_allocators(file).is_empty()
}

/// Returns the thread of a process that has this number in the pid namespace of the process.
fn thread_of(pid: u32, inner: u32) -> Option<Pid> {
    let has_number = |thread: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        // Kernels before 4.1 do not tell.
        numbers.map_or(*thread == inner, |numbers| {
            numbers.split_ascii_whitespace().next_back().is_some_and(|last| last.parse() == Ok(inner))
        })
    };
    if has_number(&inner) {
        return Pid::from_raw(inner.cast_signed());
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut threads = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    Pid::from_raw(threads.find(has_number)?.cast_signed())
}

/// True if the dynamic linker of a program finds the library, and the program copes with it.
fn is_loadable(library: &Path, pid: u32, executable: &Path) -> bool {
    let Ok(relative) = library.strip_prefix("/") else { return false };
    let inside = fs::metadata(PathBuf::from(format!("/proc/{pid}/root")).join(relative));
    let is_same = |own: fs::Metadata| inside.is_ok_and(|found| (own.dev(), own.ino()) == (found.dev(), found.ino()));
    let Ok(file) = fs::File::open(executable) else { return false };
    let mut head = vec![0; program::HEAD_LENGTH];
    let length = file.read_at(&mut head, 0).unwrap_or(0);
    head.truncate(length);
    let is_sanitized = program::needs_to_be_first(&head, |offset, bytes| file.read_at(bytes, offset).ok());
    fs::metadata(library).is_ok_and(is_same) && !is_sanitized
}

/// Reads a path in the memory of a process.
fn read_path(pid: u32, address: u64) -> Option<PathBuf> {
    /// The kernel's limit.
    const PATH_MAX: usize = 4096;
    let memory = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let (mut path, mut at) = (Vec::new(), address);
    while path.len() < PATH_MAX {
        let mut bytes = [0; 256];
        // To the end of a page: the next may not be mapped.
        let length = (4096 - at % 4096).min(bytes.len() as u64) as usize;
        let bytes = bytes.get_mut(..length)?;
        memory.read_exact_at(bytes, at).ok()?;
        if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
            path.extend(&bytes[..end]);
            return (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&path)));
        }
        path.extend_from_slice(bytes);
        at += length as u64;
    }
    None
}

/// True if the process has asked to be left, or is gone.
fn has_ended_or_asked(connection: &OwnedFd) -> bool {
    let mut bytes = [0_u8; REQUEST_LENGTH];
    let received = rustix::net::recv(connection, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT);
    !matches!(received, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR))
}

/// True if the process has asked to be left, because it has not executed the program. It closes the
/// connection when it has.
fn is_asked_to_stop(connection: &OwnedFd) -> bool {
    let mut bytes = [0_u8; REQUEST_LENGTH];
    let flags = rustix::net::RecvFlags::DONTWAIT;
    rustix::net::recv(connection, &mut bytes[..], flags).is_ok_and(|(length, _)| length == REQUEST_LENGTH)
}
