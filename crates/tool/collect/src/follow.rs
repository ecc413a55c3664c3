//! Follows statically linked programs into the programs that they execute.
//!
//! A placed library asks for it before execve(2). The process is traced until it has executed the
//! program; there, the library is placed into that one, too, or its dynamic linker is asked to load
//! the other library. Nothing is visible to the process before, and no tracer stays.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heapledger_core::program::{self, Obstacle};
use heapledger_inject::{ExecStop, Followed, Follower, InjectError};
use heapledger_wire::session::{Answer, REQUEST_LENGTH, Request};
use rustix::process::Pid;

use crate::files_of::Files;
use crate::launch::with_additions;
use crate::placed::Placement;
use crate::way::{INTERPRETERS_MAX, Way, way, way_by};

/// Sends an answer, without waiting.
type Send = fn(&OwnedFd, Answer, &[OwnedFd]);

/// All that recording an executed program takes.
#[derive(Debug)]
pub(crate) struct Follow {
    /// The library that is placed into statically linked programs.
    pub(crate) placed_library: Cow<'static, [u8]>,
    /// The library that glibc's dynamic linker loads.
    pub(crate) library: PathBuf,
    /// The library that musl's dynamic linker loads.
    pub(crate) library_for_musl: Option<PathBuf>,
    pub(crate) hooks: Vec<PathBuf>,
    /// The session's address.
    pub(crate) session: OsString,
}

impl Follow {
    /// Answers a process that is about to execute a program, in a thread of its own, which follows
    /// it there.
    pub(crate) fn answer(self: Arc<Follow>, pid: u32, request: &Request, connection: OwnedFd, send: Send) {
        let (thread, path) = (request.thread, request.thunk);
        let refused = Answer { refused: 1, image: 0, common_length: 0, ring_length: 0 };
        let follow = move || {
            let Some(process) = Pid::from_raw(pid.cast_signed()) else { return };
            match self.judge(pid, path) {
                Ok(()) => {}
                Err(obstacle) => {
                    let image = obstacle.map_or(0, |obstacle| obstacle as u32);
                    return send(&connection, Answer { image, ..refused }, &[]);
                }
            }
            // In another pid namespace, the thread has another number.
            let is_there = fs::exists(format!("/proc/{pid}/task/{thread}")).unwrap_or(false);
            let thread = Pid::from_raw(thread.cast_signed()).filter(|_| is_there).unwrap_or(process);
            let Ok(follower) = Follower::seize(process, thread) else { return send(&connection, refused, &[]) };
            send(&connection, Answer { refused: 0, ..refused }, &[]);
            match follower.wait(|| is_asked_to_stop(&connection)) {
                // The program runs in any case.
                Ok(Followed::Executed(stop)) => _ = self.handle(*stop),
                Ok(Followed::Left) => send(&connection, Answer { refused: 0, ..refused }, &[]),
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
        // That of a script is its interpreter.
        let open = |path: &Path| {
            let found = files.find(path)?;
            has_capabilities.set(has_capabilities.get() || found.has_capabilities());
            found.open()
        };
        let way = way_by(&path, INTERPRETERS_MAX, &open);
        // A traced process gets no rights from a file.
        if has_capabilities.get() {
            return Err(Some(Obstacle::OtherRights));
        }
        match way {
            Way::Musl if self.library_for_musl.is_none() => Err(Some(Obstacle::OtherLibrary)),
            Way::Preloaded | Way::Musl | Way::Placed => Ok(()),
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
                // A program without an allocator runs as it is.
                let _ = placement.place_in(&mut stop, pid);
                Ok(())
            }
            way @ (Way::Preloaded | Way::Musl) => match self.library_for(way) {
                Some(library) if is_loadable(library, pid, &executable) => stop.change_environment(|entries| {
                    let entries = entries.into_iter().map(OsString::from_vec).collect();
                    let changed = with_additions(entries, library, &self.hooks, Some(&self.session));
                    changed.into_iter().map(OsString::into_vec).collect()
                }),
                _ => Ok(()),
            },
            Way::None(_) => Ok(()),
        };
        stop.release()?;
        done
    }

    fn library_for(&self, way: Way) -> Option<&Path> {
        if way == Way::Musl { self.library_for_musl.as_deref() } else { Some(&self.library) }
    }
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

/// True if the process has asked to be left, because it has not executed the program. It closes the
/// connection when it has.
fn is_asked_to_stop(connection: &OwnedFd) -> bool {
    let mut bytes = [0_u8; REQUEST_LENGTH];
    let flags = rustix::net::RecvFlags::DONTWAIT;
    rustix::net::recv(connection, &mut bytes[..], flags).is_ok_and(|(length, _)| length == REQUEST_LENGTH)
}
