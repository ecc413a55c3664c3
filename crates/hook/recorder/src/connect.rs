//! The handshake with the collector: connect, one message, one answer with descriptors, map, close.
//!
//! Raw system calls only. Before anything is sent, the kernel is asked whose the listener is.
//! Nothing stays open in the program. If the program has no descriptor left, and only then, a
//! helper thread with a descriptor table of its own does the talking and the mapping.

pub mod elsewhere;
mod entries;
mod modules;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::arch::nr;
use heapledger_core::sandbox;
use heapledger_core::sys::{self, Errno, call, check};
use heapledger_wire::VERSION;
use heapledger_wire::ring::Ring;
use heapledger_wire::session::{
    ADDRESS_PREFIX, ANSWER_LENGTH, ARMED_SUFFIX, Answer, MAPPINGS_SUFFIX, MODULES_MAX, NAME_LENGTH, PAGE_LENGTH,
    REQUEST_LENGTH, Request, RequestKind, SAMPLES_SUFFIX, SessionPage, USABLE_SUFFIX, WAITS_SUFFIX,
};
use heapledger_wire::stall::{POLL_MILLISECONDS, Watchdog};

pub use entries::{LaterEntries, request_entries, request_later_entries, request_redirection, set_entries_missed};
pub(crate) use modules::request_modules;

use crate::rings;

/// The address of a session, from the environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    name: [u8; NAME_LENGTH],
    token: [u8; NAME_LENGTH],
    samples: bool,
    wants_usable: bool,
    wants_mappings: bool,
    waits: bool,
    is_armed: bool,
}

impl Address {
    /// Parses `NAME:TOKEN`, or `NAME:TOKEN:s` for a session that samples; `:u` follows either if it
    /// records usable sizes, then `:m` if it records mappings, then `:w` if threads wait for ever,
    /// and then `:a` for a program that an armed one starts.
    pub fn parse(value: &[u8]) -> Option<Address> {
        let (value, is_armed) = match value.strip_suffix(ARMED_SUFFIX.as_bytes()) {
            Some(value) => (value, true),
            None => (value, false),
        };
        let (value, waits) = match value.strip_suffix(WAITS_SUFFIX.as_bytes()) {
            Some(value) => (value, true),
            None => (value, false),
        };
        let (value, wants_mappings) = match value.strip_suffix(MAPPINGS_SUFFIX.as_bytes()) {
            Some(value) => (value, true),
            None => (value, false),
        };
        let (value, wants_usable) = match value.strip_suffix(USABLE_SUFFIX.as_bytes()) {
            Some(value) => (value, true),
            None => (value, false),
        };
        let (value, samples) = match value.strip_suffix(SAMPLES_SUFFIX.as_bytes()) {
            Some(value) => (value, true),
            None => (value, false),
        };
        let (name, rest) = value.split_at_checked(NAME_LENGTH)?;
        let (separator, token) = rest.split_first()?;
        let is_hexadecimal = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
        if *separator != b':' || !is_hexadecimal(name) || !is_hexadecimal(token) {
            return None;
        }
        Some(Address {
            name: name.try_into().ok()?,
            token: token.try_into().ok()?,
            samples,
            wants_usable,
            wants_mappings,
            waits,
            is_armed,
        })
    }

    /// True if the session records a sample of all blocks.
    pub fn samples(&self) -> bool {
        self.samples
    }

    /// True if the program that started this one is armed, and so this one.
    pub fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// True if the session records the calls that change mappings.
    pub fn wants_mappings(&self) -> bool {
        self.wants_mappings
    }

    /// True if the session records the usable sizes of blocks.
    pub fn wants_usable(&self) -> bool {
        self.wants_usable
    }
}

/// The kind and the version of the program's allocator.
static ALLOCATOR: AtomicU32 = AtomicU32::new(0);
static ALLOCATOR_VERSION: AtomicU32 = AtomicU32::new(0);

/// Sets the allocator that the program uses. Call before the process is introduced.
pub fn set_allocator(kind: AllocatorKind, version: AllocatorVersion) {
    ALLOCATOR.store(kind as u32, Ordering::Relaxed);
    ALLOCATOR_VERSION.store(version.0, Ordering::Relaxed);
}

/// Returns the kind and the version of the program's allocator, as a request has them.
fn allocator() -> (u32, u32) {
    (ALLOCATOR.load(Ordering::Relaxed), ALLOCATOR_VERSION.load(Ordering::Relaxed))
}

/// The mapped answer to a request.
#[derive(Debug)]
pub struct Granted {
    /// The number of the process image in the session.
    pub image: u32,
    /// The session page; `None` for a ring request.
    pub page: Option<NonNull<SessionPage>>,
    /// The common ring; `None` for a ring request.
    pub common: Option<Ring>,
    /// The asking thread's ring.
    pub ring: Ring,
}

/// The reason why a request brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody listens, or the session does not take us: a later attempt fails too.
    Permanent,
    /// No descriptor or memory is available: a later attempt may succeed.
    Temporary,
}

impl From<Errno> for Refusal {
    fn from(Errno(number): Errno) -> Refusal {
        const ENOENT: i32 = 2;
        const EPIPE: i32 = 32;
        const ECONNRESET: i32 = 104;
        const ECONNREFUSED: i32 = 111;
        match number {
            ENOENT | EPIPE | ECONNRESET | ECONNREFUSED => Refusal::Permanent,
            // No descriptors, no memory, a sandbox, or a recorder that stands still.
            _ => Refusal::Temporary,
        }
    }
}

/// True if the collector is gone for good. Makes one connection attempt.
pub fn is_gone(address: &Address) -> bool {
    if sandbox::is_entered() {
        return false;
    }
    let ask = || match Socket::connect(address, &mut Timeout::Immediate) {
        Ok(_) => false,
        Err(error) => Refusal::from(error) == Refusal::Permanent,
    };
    if has_free_descriptors(1) { ask() } else { with_descriptors(1, ask).unwrap_or(false) }
}

/// The arguments of a request, beside what every request carries.
#[derive(Clone, Copy, Debug)]
pub struct RequestArguments {
    /// The kind of the request.
    pub kind: RequestKind,
    /// For a ring: the process's own image. For a fork: the parent's.
    pub image: u32,
    /// For a fork: its number.
    pub fork: u32,
    /// For a fork: the first stack id of the child's own.
    pub node_base: u32,
}

/// The time for which the recorder is waited for.
pub(crate) enum Timeout {
    /// As long as the session page says.
    Heartbeat(&'static SessionPage, Watchdog),
    /// A number of nanoseconds, whether the recorder is at work or not: for the time before there
    /// is a session page, which has the recorder's heartbeat.
    Fixed(u64, Watchdog),
    /// A number of nanoseconds for a step of the way to a plan of redirection. If it was in vain,
    /// later requests wait all the same: without them, nothing is recorded.
    Entries(u64, Watchdog),
    /// Until a monotonic time in nanoseconds, and not for a recorder without a heartbeat for the
    /// second number of nanoseconds.
    Until(u64, u64, &'static SessionPage, Watchdog),
    /// Waits for ever.
    Never,
    /// Does not wait.
    Immediate,
}

impl Timeout {
    /// The time for which a program that is new to the session waits at first, and at later
    /// attempts.
    const FIXED_NANOSECONDS: u64 = 5_000_000_000;
    const FIXED_AGAIN_NANOSECONDS: u64 = 100_000_000;
    /// The time for which a plan is waited for while the recorder is at work on it.
    const PLAN_NANOSECONDS: u64 = 30_000_000_000;

    pub(crate) fn new(address: &Address, page: Option<&'static SessionPage>) -> Timeout {
        match page {
            _ if address.waits => Timeout::Never,
            Some(page) => Timeout::Heartbeat(page, Watchdog::new(page.heartbeat_of_all())),
            None if HAS_TIMED_OUT.load(Ordering::Relaxed) => {
                Timeout::Fixed(Self::FIXED_AGAIN_NANOSECONDS, Watchdog::new(0))
            }
            None => Timeout::Fixed(Self::FIXED_NANOSECONDS, Watchdog::new(0)),
        }
    }

    /// Returns the time for which a plan is asked for, before there is a session page.
    pub(crate) fn of_entries(address: &Address) -> Timeout {
        if address.waits { Timeout::Never } else { Timeout::Entries(Self::FIXED_NANOSECONDS, Watchdog::new(0)) }
    }

    /// True if the time is over. Called after each wait.
    fn has_expired(&mut self) -> bool {
        match self {
            Timeout::Heartbeat(page, watchdog) => page.is_over() || watchdog.has_stalled(page, page.heartbeat_of_all()),
            Timeout::Fixed(nanoseconds, watchdog) => {
                let has_expired = watchdog.poll(0) >= *nanoseconds;
                if has_expired {
                    HAS_TIMED_OUT.store(true, Ordering::Relaxed);
                }
                has_expired
            }
            Timeout::Entries(nanoseconds, watchdog) => watchdog.poll(0) >= *nanoseconds,
            Timeout::Until(time, quiet, page, watchdog) => {
                let unchanged_for = watchdog.poll(page.heartbeat_of_all());
                page.is_over() || unchanged_for >= *quiet || sys::monotonic_nanoseconds() >= *time
            }
            Timeout::Never => false,
            Timeout::Immediate => true,
        }
    }
}

/// True once a wait without a page was in vain, or would be.
static HAS_TIMED_OUT: AtomicBool = AtomicBool::new(false);

/// Says that the recorder was standing still when this program was started: no attempt waits for
/// long.
pub fn expect_stall() {
    HAS_TIMED_OUT.store(true, Ordering::Relaxed);
}

/// Lets the next session be waited for as long as any.
pub(crate) fn forget_timeout() {
    HAS_TIMED_OUT.store(false, Ordering::Relaxed);
}

/// Makes a request and maps what the answer brings. `page` is the session page, if it is mapped.
pub fn request(
    address: &Address,
    page: Option<&'static SessionPage>,
    arguments: RequestArguments,
) -> Result<Granted, Refusal> {
    if sandbox::is_entered() || page.is_some_and(SessionPage::is_stalled) {
        return Err(Refusal::Temporary);
    }
    // The socket, and the descriptors of the answer; a forked child has the page already.
    let needed = match arguments.kind {
        RequestKind::Image | RequestKind::Attach => 4,
        RequestKind::Fork => 3,
        _ => 2,
    };
    let ask = || ask(address, page, arguments);
    if has_free_descriptors(needed) { ask() } else { with_descriptors(needed, ask).unwrap_or(Err(Refusal::Temporary)) }
}

/// The number of threads that are in [`with_descriptors`].
static HELPERS: AtomicU32 = AtomicU32::new(0);

/// Runs a function in a helper with a descriptor table of its own: see [`sys::with_descriptors`].
/// Descriptors that are opened there are not open in the program.
pub(crate) fn with_descriptors<R>(free: i32, run: impl FnOnce() -> R) -> Option<R> {
    HELPERS.fetch_add(1, Ordering::SeqCst);
    let result = sys::with_descriptors(free, run);
    HELPERS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// True if this thread may be a helper with a descriptor table of its own.
fn is_in_helper() -> bool {
    HELPERS.load(Ordering::SeqCst) != 0
}

/// True if the program has `count` free descriptors. Checked before the request, because an answer
/// for which there is no room would leave an image behind that nobody writes to. Other obstacles,
/// such as a sandbox, are left for the request itself to meet.
pub(crate) fn has_free_descriptors(count: i32) -> bool {
    const EMFILE: Errno = Errno(24);
    fn can_duplicate(fd: i32, count: i32) -> bool {
        if count == 0 {
            return true;
        }
        match sys::duplicate(fd) {
            Ok(copy) => {
                let has_free_descriptors = can_duplicate(fd, count - 1);
                sys::close(copy);
                has_free_descriptors
            }
            Err(error) => error != EMFILE,
        }
    }
    match Socket::open() {
        Ok(socket) => can_duplicate(socket.0, count - 1),
        Err(error) => error != EMFILE,
    }
}

fn ask(address: &Address, page: Option<&'static SessionPage>, arguments: RequestArguments) -> Result<Granted, Refusal> {
    let mut timeout = Timeout::new(address, page);
    let socket = Socket::connect(address, &mut timeout)?;
    socket.send(&message(address, arguments), &mut timeout)?;
    let (answer, descriptors) = socket.receive(&mut timeout)?;
    if answer.refused != 0 {
        return Err(Refusal::Permanent);
    }
    if arguments.kind == RequestKind::Ring {
        let ring = map_ring(descriptors.first()?, answer.ring_length)?;
        return Ok(Granted { image: answer.image, page: None, common: None, ring });
    }
    // SAFETY: `unmap_ring` requires a ring that was granted to this process, and that nobody uses:
    // nobody has been given these yet.
    let give_back = |ring| unsafe { unmap_ring(ring) };
    let take = || {
        let common = map_ring(descriptors.first()?, answer.common_length)?;
        let ring = descriptors.get(1).and_then(|fd| map_ring(fd, answer.ring_length));
        let ring = ring.inspect_err(|_| give_back(common))?;
        let page = map_page(descriptors.get(2)).inspect_err(|_| {
            give_back(ring);
            give_back(common);
        })?;
        Ok(Granted { image: answer.image, page: Some(page), common: Some(common), ring })
    };
    take().inspect_err(|_| {
        // Otherwise the collector would take this for a process that had nothing to record. Best
        // effort: the message may not arrive.
        let decline = RequestArguments { kind: RequestKind::Decline, image: answer.image, ..arguments };
        let _ = Socket::connect(address, &mut Timeout::Immediate)
            .and_then(|socket| socket.send(&message(address, decline), &mut Timeout::Immediate));
    })
}

pub(crate) fn message(address: &Address, arguments: RequestArguments) -> Request {
    let RequestArguments { kind, image, fork, node_base } = arguments;
    let thread = sys::thread_id();
    let (allocator, allocator_version) = allocator();
    Request {
        version: VERSION,
        kind: kind as u32,
        token: address.token,
        image,
        thread,
        fork,
        node_base,
        capacity: 0,
        allocator,
        allocator_version,
        thunk: 0,
        entries_missed: if kind == RequestKind::Image { entries::missed() } else { 0 },
        modules: [0; MODULES_MAX],
    }
}

/// The address of the session page, which is the same for all sessions of a process: threads that
/// are not inside the recorder may read the page at any moment.
static PAGE: AtomicPtr<SessionPage> = AtomicPtr::new(core::ptr::null_mut());
/// True if the page there is that of a session.
static IS_PAGE_MAPPED: AtomicBool = AtomicBool::new(false);

/// Replaces the page of a session that is over by one that says so.
pub(crate) fn forget_page(page: &SessionPage) {
    // SAFETY: `replace_private` requires a mapping of this module's, whose users cope with other
    // content: the page is the one that `map_page` has mapped, and its fields are atomic.
    let replaced = unsafe { sys::replace_private(core::ptr::from_ref(page).cast_mut().cast(), PAGE_LENGTH) };
    // Otherwise it is still the page of the session, which has nobody to be told.
    if replaced.is_ok() {
        page.end();
    }
    IS_PAGE_MAPPED.store(false, Ordering::Release);
}

/// Maps the session page, at most once per process and session: forked children keep the mapping.
fn map_page(fd: Result<i32, Refusal>) -> Result<NonNull<SessionPage>, Refusal> {
    let known = PAGE.load(Ordering::Acquire);
    let page = match NonNull::new(known) {
        Some(page) if IS_PAGE_MAPPED.load(Ordering::Acquire) => return Ok(page),
        Some(page) => {
            // SAFETY: `replace_shared` requires a mapping of this module's, whose users cope with
            // other content: `forget_page` has left it, and all fields are atomic.
            unsafe { sys::replace_shared(fd?, page.as_ptr().cast(), PAGE_LENGTH) }?;
            page.as_ptr()
        }
        None => sys::map_shared(fd?, PAGE_LENGTH)?.cast::<SessionPage>(),
    };
    PAGE.store(page, Ordering::Release);
    // SAFETY: freshly mapped, page-aligned, at least as long as a `SessionPage`; all atomics.
    let mapped = unsafe { &*page };
    if mapped.version.load(Ordering::Relaxed) != VERSION {
        // The next session's page takes its place.
        forget_page(mapped);
        return Err(Refusal::Permanent);
    }
    IS_PAGE_MAPPED.store(true, Ordering::Release);
    NonNull::new(page).ok_or(Refusal::Permanent)
}

fn map_ring(fd: i32, length: u64) -> Result<Ring, Refusal> {
    let length = usize::try_from(length).map_err(|_| Refusal::Permanent)?;
    let mapping = NonNull::new(sys::map_shared(fd, length)?).ok_or(Refusal::Permanent)?;
    sys::dont_dump(mapping.as_ptr(), length);
    // SAFETY: a shared mapping of that length, which stays mapped until `unmap_ring`: by its
    // contract nobody uses the ring then.
    unsafe { Ring::new(mapping, length) }.inspect(rings::enter).ok_or(Refusal::Permanent)
}

/// Unmaps a ring.
///
/// # Safety
///
/// The ring was granted to this process, and nobody uses it in this process any more.
pub(crate) unsafe fn unmap_ring(ring: Ring) {
    let length = Ring::mapping_length(ring.capacity() as usize * size_of::<u64>());
    rings::remove(&ring);
    // SAFETY: `unmap` requires memory of `map_shared` to which nothing refers: rings are mapped by
    // it, with this length, and this one is not used any more by this function's `# Safety`.
    unsafe { sys::unmap(ring.mapping().as_ptr(), length) };
}

/// Received descriptors; closed when dropped.
pub(crate) struct Descriptors {
    fds: [i32; Descriptors::MAX],
    count: usize,
}

impl Descriptors {
    const MAX: usize = 3;

    fn first(&self) -> Result<i32, Refusal> {
        self.get(0)
    }

    fn get(&self, index: usize) -> Result<i32, Refusal> {
        // The kernel drops the descriptors for which the program has no room.
        self.fds.get(..self.count).and_then(|fds| fds.get(index)).copied().ok_or(Refusal::Temporary)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for &fd in self.fds.iter().take(self.count) {
            sys::close(fd);
        }
    }
}

const AF_UNIX: u16 = 1;

#[derive(Debug)]
pub(crate) struct Socket(i32);

impl Drop for Socket {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

impl Socket {
    fn open() -> Result<Socket, Errno> {
        const SOCK_SEQPACKET_CLOEXEC: usize = 5 | 0o2000000;
        // SAFETY: `sys::call` requires arguments that suit the call, and no effect on other code's
        // state: `socket` takes numbers, and makes a descriptor that only we know.
        let fd = check(unsafe { call(nr::SOCKET, [AF_UNIX as usize, SOCK_SEQPACKET_CLOEXEC, 0, 0, 0, 0]) })?;
        Ok(Socket(fd as i32))
    }

    /// Makes each system call on the socket return after [`POLL_MILLISECONDS`] at the latest, with
    /// `EAGAIN`.
    fn limit_waits(&self) {
        const SOL_SOCKET: usize = 1;
        const SO_RCVTIMEO: usize = 20;
        const SO_SNDTIMEO: usize = 21;
        // `struct timeval`: seconds and microseconds.
        let time = [0_u64, u64::from(POLL_MILLISECONDS) * 1000];
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            let (value, length) = ((&raw const time) as usize, size_of_val(&time));
            // SAFETY: the kernel reads `length` bytes of the live array.
            unsafe { call(nr::SETSOCKOPT, [self.0 as usize, SOL_SOCKET, option, value, length, 0]) };
        }
    }

    pub(crate) fn connect(address: &Address, timeout: &mut Timeout) -> Result<Socket, Errno> {
        const ECONNREFUSED: Errno = Errno(111);
        match Socket::connect_here(address, timeout) {
            Err(ECONNREFUSED) => elsewhere::connect(address, timeout),
            connected => connected,
        }
    }

    /// Connects to the session's socket in this network namespace.
    fn connect_here(address: &Address, timeout: &mut Timeout) -> Result<Socket, Errno> {
        let socket = Socket::open()?;
        socket.limit_waits();
        // `struct sockaddr_un`: family, a zero byte for the abstract namespace, then the name,
        // without terminator.
        const LENGTH: usize = 2 + 1 + ADDRESS_PREFIX.len() + NAME_LENGTH;
        let mut bytes = [0_u8; LENGTH];
        let content = AF_UNIX.to_ne_bytes().into_iter().chain([0]).chain(ADDRESS_PREFIX.bytes()).chain(address.name);
        for (to, from) in bytes.iter_mut().zip(content) {
            *to = from;
        }
        retry(timeout, || {
            // SAFETY: the kernel reads `LENGTH` bytes of the live array.
            unsafe { call(nr::CONNECT, [socket.0 as usize, bytes.as_ptr() as usize, LENGTH, 0, 0, 0]) }
        })?;
        socket.check_peer()?;
        Ok(socket)
    }

    /// Refuses a listener of another user, as if nobody listened: the name is free for everybody
    /// once the recorder has ended, and known to everybody before. A listener of root is taken for
    /// a recorder whose program has given up root's rights.
    ///
    /// The listener's pid is of no use: it is not known which the recorder's is, and in a pid
    /// namespace it reads as 0.
    fn check_peer(&self) -> Result<(), Errno> {
        const SOL_SOCKET: usize = 1;
        const SO_PEERCRED: usize = 17;
        const ECONNREFUSED: Errno = Errno(111);
        /// `struct ucred`.
        #[derive(Default)]
        #[repr(C)]
        struct Credentials {
            pid: i32,
            uid: u32,
            gid: u32,
        }
        let mut credentials = Credentials::default();
        let mut length = size_of::<Credentials>() as u32;
        let (value, bytes) = (&raw mut credentials as usize, &raw mut length as usize);
        // SAFETY: the kernel writes a ucred, no longer than `length` says, which is the live
        // struct's, and its length.
        check(unsafe { call(nr::GETSOCKOPT, [self.0 as usize, SOL_SOCKET, SO_PEERCRED, value, bytes, 0]) })?;
        // SAFETY: `sys::call` requires arguments that suit the call, and no effect on other code's
        // state: `geteuid` takes none, and only returns a number.
        let own = unsafe { call(nr::GETEUID, [0; 6]) } as u32;
        if credentials.uid == own || credentials.uid == 0 { Ok(()) } else { Err(ECONNREFUSED) }
    }

    pub(crate) fn send(&self, request: &Request, timeout: &mut Timeout) -> Result<(), Errno> {
        const MSG_NOSIGNAL: usize = 0x4000;
        let bytes: [u8; REQUEST_LENGTH] = request.to_bytes();
        retry(timeout, || {
            // SAFETY: `sys::call` requires pointers that suit the call: the kernel reads
            // `bytes.len()` bytes of the live array, and sends them on our own socket.
            unsafe { call(nr::SENDTO, [self.0 as usize, bytes.as_ptr() as usize, bytes.len(), MSG_NOSIGNAL, 0, 0]) }
        })
        .map(drop)
    }

    pub(crate) fn receive(&self, timeout: &mut Timeout) -> Result<(Answer, Descriptors), Refusal> {
        const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
        const SOL_SOCKET: i32 = 1;
        const SCM_RIGHTS: i32 = 1;
        #[repr(C)]
        struct Control {
            length: usize,
            level: i32,
            kind: i32,
            fds: [i32; Descriptors::MAX + 1],
        }
        /// `struct msghdr`.
        #[repr(C)]
        struct Message {
            name: usize,
            name_length: usize,
            parts: *mut [usize; 2],
            parts_count: usize,
            control: *mut Control,
            control_length: usize,
            flags: usize,
        }
        let mut bytes = [0_u8; ANSWER_LENGTH];
        let mut parts = [bytes.as_mut_ptr() as usize, bytes.len()];
        let mut control = Control { length: 0, level: 0, kind: 0, fds: [0; Descriptors::MAX + 1] };
        let mut message = Message {
            name: 0,
            name_length: 0,
            parts: &mut parts,
            parts_count: 1,
            control: &mut control,
            control_length: size_of::<Control>(),
            flags: 0,
        };
        let received = retry(timeout, || {
            // SAFETY: `message` and all it points to are live and as long as they say; the kernel
            // writes there only.
            unsafe { call(nr::RECVMSG, [self.0 as usize, &raw mut message as usize, MSG_CMSG_CLOEXEC, 0, 0, 0]) }
        })?;
        let mut descriptors = Descriptors { fds: [0; Descriptors::MAX], count: 0 };
        if message.control_length >= 16 && control.level == SOL_SOCKET && control.kind == SCM_RIGHTS {
            let count = control.length.saturating_sub(16) / 4;
            for (to, &from) in descriptors.fds.iter_mut().zip(control.fds.iter().take(count)) {
                *to = from;
                descriptors.count += 1;
            }
        }
        // An empty message is the end of the connection: the collector went away, or does not want
        // us.
        if received != ANSWER_LENGTH {
            return Err(Refusal::Permanent);
        }
        Ok((Answer::from_bytes(bytes), descriptors))
    }
}

/// Repeats a system call that a signal interrupted, or that returned early while `timeout` has not
/// expired.
fn retry(timeout: &mut Timeout, mut call: impl FnMut() -> isize) -> Result<usize, Errno> {
    const EINTR: Errno = Errno(4);
    const EAGAIN: Errno = Errno(11);
    loop {
        match check(call()) {
            Err(EINTR) => {}
            Err(EAGAIN) if !timeout.has_expired() => {}
            other => return other,
        }
    }
}
