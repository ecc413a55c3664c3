//! The means by which processes join a session: a socket, a token, the session page, and the
//! library on disk.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use heapledger_core::sample::Rate;
use heapledger_inject::Mapping;
use heapledger_wire::session::{
    ADDRESS_PREFIX, ALLOCATOR_FILE_NAME, LIBRARY_FILE_NAME, MAPPINGS_SUFFIX, MUSL_SUFFIX, NAME_LENGTH, SAMPLES_SUFFIX,
    SOCKET_FILE_NAME, USABLE_SUFFIX, WAITS_SUFFIX, state,
};
use rustix::fs::{FlockOperation, Mode, OFlags, StatVfsMountFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::RecordError;
use crate::heap_checker::{Checker, HeapChecker};
use crate::libraries::{CommandAllocator, CommandLibraries, is_loadable, parts_of_older_glibc};
use crate::musl;
use crate::proc_maps;
use crate::shared::Page;
use crate::way::Way;

/// The parts of a session that exist before the program starts.
#[derive(Debug)]
pub(crate) struct Session {
    /// The socket at the abstract address.
    listener: OwnedFd,
    /// The one in the library's directory, if there is one.
    listener_at_path: Option<OwnedFd>,
    pub(crate) token: [u8; NAME_LENGTH],
    name: [u8; NAME_LENGTH],
}

impl Session {
    pub(crate) fn new() -> Result<Session, RecordError> {
        let name = random_digits().map_err(RecordError::session("the session's name"))?;
        let token = random_digits().map_err(RecordError::session("the session's token"))?;
        let listener = listen(&name).map_err(RecordError::session("the session's socket"))?;
        Ok(Session { listener, listener_at_path: None, token, name })
    }

    /// Listens in the directory of a library, too: for processes in other network namespaces.
    /// Without that, they go unrecorded.
    pub(crate) fn listen_beside(&mut self, library: &Library) {
        let path = library.directory.join(SOCKET_FILE_NAME);
        self.listener_at_path = SocketAddrUnix::new(path).and_then(|address| listen_at(&address)).ok();
    }

    /// Returns the sockets to accept connections from.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [Some(&self.listener), self.listener_at_path.as_ref()].into_iter().flatten().map(AsFd::as_fd)
    }

    /// Creates a session whose socket is in the network namespace of a process, which could not
    /// reach it otherwise.
    pub(crate) fn in_network_of(pid: u32) -> Result<Session, RecordError> {
        let namespace = |path: &str| std::fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
        let path = format!("/proc/{pid}/ns/net");
        if namespace(&path) == namespace("/proc/self/ns/net") {
            return Session::new();
        }
        let failed = "the session's socket in the network namespace of the process";
        let file = File::open(&path).map_err(RecordError::session(failed))?;
        // Only this thread enters the namespace, and it ends here.
        let made = std::thread::scope(|scope| {
            let make = || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(file.as_fd(), kind).map_err(RecordError::session(failed))?;
                Session::new()
            };
            scope.spawn(make).join()
        });
        made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns the value of the environment variable: `NAME:TOKEN`, and what the session wants.
    pub(crate) fn to_environment(&self, wants: Wants) -> OsString {
        let mut value = OsString::new();
        for part in [&self.name[..], b":", &self.token[..]] {
            value.push(std::ffi::OsStr::from_bytes(part));
        }
        let suffixes = [
            (wants.samples, SAMPLES_SUFFIX),
            (wants.usable, USABLE_SUFFIX),
            (wants.mappings, MAPPINGS_SUFFIX),
            (wants.waits, WAITS_SUFFIX),
        ];
        for (_, suffix) in suffixes.into_iter().filter(|(is_wanted, _)| *is_wanted) {
            value.push(suffix);
        }
        value
    }
}

/// True if the session with this [address](Session::to_environment) records mappings.
pub(crate) fn records_mappings(environment: &std::ffi::OsStr) -> bool {
    let bytes = environment.as_bytes();
    bytes.strip_suffix(WAITS_SUFFIX.as_bytes()).unwrap_or(bytes).ends_with(MAPPINGS_SUFFIX.as_bytes())
}

/// The properties of a session that programs learn from their environment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wants {
    /// It records a sample.
    pub(crate) samples: bool,
    /// It records usable sizes.
    pub(crate) usable: bool,
    /// It records the calls that change mappings.
    pub(crate) mappings: bool,
    /// Programs wait for a recorder however long it stands still.
    pub(crate) waits: bool,
}

fn listen(name: &[u8; NAME_LENGTH]) -> rustix::io::Result<OwnedFd> {
    let address = [ADDRESS_PREFIX.as_bytes(), name].concat();
    listen_at(&SocketAddrUnix::new_abstract_name(&address)?)
}

fn listen_at(address: &SocketAddrUnix) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&listener, address)?;
    // If the backlog is full, connecting programs wait. The kernel limits the number (to 4,096 by
    // default).
    rustix::net::listen(&listener, 4096)?;
    Ok(listener)
}

/// True if a recorder listens at a session's address, as far as this network namespace shows.
pub(crate) fn is_listened_to(address: &[u8]) -> bool {
    let Some(name) = address.get(..NAME_LENGTH) else { return false };
    let connect = || {
        let address = SocketAddrUnix::new_abstract_name(&[ADDRESS_PREFIX.as_bytes(), name].concat())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::connect(&socket, &address)
    };
    // A full backlog is that of a recorder, too.
    matches!(connect(), Ok(()) | Err(rustix::io::Errno::AGAIN))
}

/// Returns the session page for a new session, in this [mode](heapledger_wire::session::mode) and
/// with this sampling rate. Threads wait for `stall_timeout` for a recorder that stands still.
pub(crate) fn page(mode: u32, rate: Rate, stall_timeout: Option<Duration>) -> Result<Page, RecordError> {
    let page = Page::new().map_err(RecordError::session("the session page"))?;
    // 0 means forever.
    let milliseconds = stall_timeout.map_or(0, |time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1));
    page.stall_milliseconds.store(milliseconds, Ordering::Relaxed);
    page.mode.store(mode, Ordering::Relaxed);
    page.rate.store(rate.logarithm().into(), Ordering::Relaxed);
    page.version.store(heapledger_wire::VERSION, Ordering::Relaxed);
    page.state.store(state::RECORDING, Ordering::Release);
    Ok(page)
}

/// Returns 128 random bits in hexadecimal.
pub(crate) fn random_digits() -> rustix::io::Result<[u8; NAME_LENGTH]> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut random = [0_u8; NAME_LENGTH / 2];
    // Up to 256 bytes are returned whole once the kernel's pool is initialised; until then the call
    // waits.
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
    let mut digits = [0_u8; NAME_LENGTH];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(random) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    Ok(digits)
}

/// The private directory with the preload library, and links to hook libraries; removed when
/// dropped.
#[derive(Debug)]
pub struct Library {
    directory: PathBuf,
    file: PathBuf,
    /// The copy for programs with musl, if it can be used.
    musl: Option<PathBuf>,
    /// Links to the hooks, because the loader does not accept paths with spaces or colons. The
    /// allocator is the last of them.
    hooks: Vec<PathBuf>,
    /// Held as long as the directory is in use: a directory whose lock is free was left behind by a
    /// recorder that was killed.
    _lock: OwnedFd,
}

impl Library {
    /// Creates the directory. `hooks` must be absolute paths.
    ///
    /// # Errors
    ///
    /// Fails if there is no place for it from which the loader can map a library.
    pub fn install(bytes: &[u8], hooks: &[PathBuf]) -> Result<Library, RecordError> {
        let mut failure = None;
        for parent in parents() {
            match Library::install_in(&parent, bytes, hooks) {
                Ok(library) => return Ok(library),
                Err(source) => failure = failure.or(Some(RecordError::Library { path: parent, source })),
            }
        }
        let nowhere = || RecordError::Library { path: std::env::temp_dir(), source: io::ErrorKind::NotFound.into() };
        Err(failure.unwrap_or_else(nowhere))
    }

    fn install_in(parent: &Path, bytes: &[u8], hooks: &[PathBuf]) -> io::Result<Library> {
        // The loader could not map a library from there.
        if rustix::fs::statvfs(parent)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(io::Error::other("the file system is mounted noexec"));
        }
        sweep(parent);
        let digits = random_digits()?;
        let name = format!("{DIRECTORY_PREFIX}{}", String::from_utf8_lossy(&digits));
        let directory = parent.join(name);
        DirBuilder::new().mode(0o700).create(&directory)?;
        let lock = lock(&directory)?;
        let file = directory.join(FILE_NAME);
        let mut library = Library { file, musl: None, hooks: Vec::new(), directory, _lock: lock };
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o500).open(&library.file)?;
        file.write_all(bytes)?;
        if musl::is_installed()
            && let Some(bytes) = musl::for_musl(bytes)
        {
            let path = library.file.with_extension(MUSL_SUFFIX.trim_start_matches('.'));
            OpenOptions::new().write(true).create_new(true).mode(0o500).open(&path)?.write_all(&bytes)?;
            library.musl = Some(path);
        }
        for (index, hook) in hooks.iter().enumerate() {
            let link = library.directory.join(format!("hook.{index}.so"));
            std::os::unix::fs::symlink(hook, &link)?;
            library.hooks.push(link);
        }
        Ok(library)
    }

    /// Adds a hook library from its bytes.
    pub(crate) fn add_hook(&mut self, name: &str, bytes: &[u8]) -> Result<(), RecordError> {
        let path = self.add_file(name, bytes)?;
        self.hooks.push(path);
        Ok(())
    }

    /// Adds the heap checker and its options.
    pub(crate) fn add_heap_checker(&mut self, checker: &HeapChecker) -> Result<(), RecordError> {
        self.add_file("phc.conf", checker.settings.as_bytes())?;
        self.add_hook("phc.so", &checker.library)
    }

    /// Adds the checks and their options.
    pub(crate) fn add_checker(&mut self, checker: &Checker<'_>) -> Result<(), RecordError> {
        let options = format!("quarantine {}\ncanary {}\n", checker.quarantine.0, checker.canary.0);
        self.add_file("checks.conf", options.as_bytes())?;
        self.add_hook("checks.so", checker.library)
    }

    /// Adds a file beside the library.
    pub(crate) fn add_file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, RecordError> {
        let path = self.directory.join(name);
        let write = || -> io::Result<()> {
            OpenOptions::new().write(true).create_new(true).mode(0o500).open(&path)?.write_all(bytes)
        };
        write().map_err(|source| RecordError::Library { path: self.directory.clone(), source })?;
        Ok(path)
    }

    /// Adds what is below all hooks: the heap checker, the allocator, and what hooks need beside an
    /// older glibc. Nothing may be added after it.
    pub(crate) fn add_below(&mut self, libraries: &CommandLibraries<'_>) -> Result<(), RecordError> {
        if let Some(checker) = libraries.heap_checker {
            self.add_heap_checker(checker)?;
        }
        self.add_allocator(libraries.allocator)?;
        if !self.hooks.is_empty() {
            self.hooks.extend(parts_of_older_glibc());
        }
        Ok(())
    }

    /// Adds the allocator, after all hook libraries.
    pub(crate) fn add_allocator(&mut self, allocator: &CommandAllocator) -> Result<(), RecordError> {
        match allocator {
            CommandAllocator::System => Ok(()),
            CommandAllocator::Carried(bytes) => self.add_hook(ALLOCATOR_FILE_NAME, bytes),
            // Not by a link if that can be: the library may look for others beside it (`$ORIGIN`).
            CommandAllocator::File(file) if is_loadable(file) => {
                self.hooks.push(file.clone());
                Ok(())
            }
            CommandAllocator::File(file) => {
                let link = self.directory.join("allocator.so");
                let failed = |source| RecordError::Library { path: self.directory.clone(), source };
                std::os::unix::fs::symlink(file, &link).map_err(failed)?;
                self.hooks.push(link);
                Ok(())
            }
        }
    }

    /// Returns the path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn hooks(&self) -> &[PathBuf] {
        &self.hooks
    }

    /// Returns the path of the library.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Returns the path of the library that a program's dynamic linker loads. `None` if there is
    /// none. With hook libraries there is none for musl, because they are not for musl.
    pub(crate) fn path_for(&self, way: Way) -> Option<&Path> {
        match way {
            Way::Preloaded => Some(&self.file),
            Way::Musl => self.musl.as_deref().filter(|_| self.hooks.is_empty()),
            Way::Placed | Way::None(_) => None,
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // A failure cannot be reported to anyone any more; the directory is a temporary one.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

const DIRECTORY_PREFIX: &str = "heapledger-";
const FILE_NAME: &str = LIBRARY_FILE_NAME;

/// Returns true if a private directory has this name.
fn is_directory_name(name: &[u8]) -> bool {
    let digits = name.strip_prefix(DIRECTORY_PREFIX.as_bytes());
    digits.is_some_and(|digits| digits.len() == NAME_LENGTH && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Returns true if this process itself has the library of a `heapledger record`, `check` or `run`.
pub fn is_observed() -> bool {
    // The library removes the variables that loaded it from the environment.
    let Ok(mappings) = Mapping::read_list("/proc/self/maps", proc_maps::LENGTH_MAX) else { return false };
    mappings.iter().any(|mapping| is_library_path(mapping.name_before_deletion()))
}

/// Returns true if a path is that of a library in a private directory.
fn is_library_path(path: &[u8]) -> bool {
    let mut names = path.rsplit(|&byte| byte == b'/');
    let name = names.next().unwrap_or_default();
    let is_library = name.strip_suffix(MUSL_SUFFIX.as_bytes()) == FILE_NAME.as_bytes().strip_suffix(b".so");
    (name == FILE_NAME.as_bytes() || is_library) && names.next().is_some_and(is_directory_name)
}

/// Takes the lock of a private directory, if nobody has it.
fn lock(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(directory, flags, Mode::empty())?;
    rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
    Ok(fd)
}

/// Removes the directories of this user's recorders that were killed. Failures do no harm.
fn sweep(parent: &Path) {
    /// The age before which a directory is left alone: its lock may not be taken yet.
    const AGE_MIN: Duration = Duration::from_secs(60);
    /// The maximum number of entries that are looked at: temporary directories can be large.
    const ENTRIES_MAX: usize = 10_000;
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.take(ENTRIES_MAX).flatten() {
        let name = entry.file_name();
        if !is_directory_name(name.as_bytes()) {
            continue;
        }
        let Ok(metadata) = entry.metadata() else { continue };
        let is_old = metadata.modified().is_ok_and(|time| time.elapsed().is_ok_and(|age| age > AGE_MIN));
        if metadata.is_dir() && metadata.uid() == rustix::process::getuid().as_raw() && is_old {
            let directory = entry.path();
            if let Ok(_lock) = lock(&directory) {
                let _ = std::fs::remove_dir_all(&directory);
            }
        }
    }
}

/// Returns possible parents of the private directory.
fn parents() -> impl Iterator<Item = PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let others = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
    std::iter::once(std::env::temp_dir()).chain(others).chain(runtime).filter(|path| is_loadable(path))
}

#[cfg(test)]
mod tests;
