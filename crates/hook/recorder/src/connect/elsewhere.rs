//! The ways to the recorder from another network namespace, in which its abstract socket is not
//! found: browsers and other programs put their sandboxed processes into one.
//!
//! 1. **By path.** A second socket is in the directory of the preload library. Network namespaces
//!    do not confine sockets of the file system.
//! 2. **By a branch.** A process that has come by path keeps a connection, which its children
//!    inherit: a sandbox may take the file system from them (`chroot`). To connect, a process makes
//!    a pair of sockets, and sends one of them there. The kernel tells the recorder which process
//!    made the pair, as it does for a connection.
//!
//! The branch is the only descriptor that stays open in a program. Its number is high, so that the
//! program's own descriptors have the numbers that they have without us; it is closed on exec. If
//! the program has closed it, or something else has its number, it is not used.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::arch::nr;
use heapledger_core::lock::Lock;
use heapledger_core::sys::{self, Errno, call, check};
use heapledger_wire::session::{RequestKind, SOCKET_FILE_NAME};

use crate::process::is_in_vfork_child;

use super::{AF_UNIX, Address, RequestArguments, Socket, Timeout, message, retry};

/// Bytes of `sun_path` of `struct sockaddr_un`.
const PATH_MAX: usize = 108;
const ECONNREFUSED: Errno = Errno(111);
const EAGAIN: Errno = Errno(11);
const ENOENT: Errno = Errno(2);
const EACCES: Errno = Errno(13);

/// The path of the socket.
static PATH: [AtomicU8; PATH_MAX] = [const { AtomicU8::new(0) }; PATH_MAX];
/// Its length; 0 if there is none.
static PATH_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// True once the recorder has been reached in one of these ways.
static IS_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// The least number that the branch's descriptor is to have. Most programs may have 1,024.
const BRANCH_LEAST: i32 = 960;
/// The branch; -1 if there is none. A forked child has its parent's.
static BRANCH: AtomicI32 = AtomicI32::new(-1);
/// The device and the inode of the socket behind it.
static BRANCH_IDENTITY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Held while a branch is made.
static LOCK: Lock = Lock::new();

/// Sets the path of this library's file, in whose directory the socket is. Call before the first
/// request.
pub fn set_library(path: &[u8]) {
    let Some(directory) = path.iter().rposition(|&byte| byte == b'/').and_then(|slash| path.get(..=slash)) else {
        return;
    };
    let length = directory.len() + SOCKET_FILE_NAME.len();
    // Relative to the directory in which the program was started; or too long for a socket.
    if directory.first() != Some(&b'/') || length >= PATH_MAX {
        return;
    }
    let bytes = directory.iter().copied().chain(SOCKET_FILE_NAME.bytes());
    PATH.iter().zip(bytes).for_each(|(to, from)| to.store(from, Ordering::Relaxed));
    PATH_LENGTH.store(length, Ordering::Release);
}

/// Connects by path, or by the branch. If the recorder has been reached so before, and is not known
/// to be gone, the error is one after which a later attempt may succeed.
#[cold]
pub(super) fn connect(address: &Address, timeout: &mut Timeout) -> Result<Socket, Errno> {
    let refused = match connect_by_path(timeout) {
        Ok(socket) => {
            // A child of vfork(2) may be elsewhere without the program, whose memory it has.
            if !is_in_vfork_child() {
                IS_ELSEWHERE.store(true, Ordering::Relaxed);
                keep_branch(address, timeout);
            }
            return Ok(socket);
        }
        Err(error) => error,
    };
    match branch() {
        Some(branch) if is_closed(branch.0) => Err(ECONNREFUSED),
        Some(branch) => connect_by_branch(branch.0, timeout),
        // The socket is there, and nobody listens: its file outlives a recorder that is killed.
        None if refused == ECONNREFUSED => Err(ECONNREFUSED),
        None if IS_ELSEWHERE.load(Ordering::Relaxed) => Err(EAGAIN),
        None => Err(ECONNREFUSED),
    }
}

/// Connects by path. The error is `ECONNREFUSED` only if nobody listens there.
fn connect_by_path(timeout: &mut Timeout) -> Result<Socket, Errno> {
    let length = PATH_LENGTH.load(Ordering::Acquire);
    if length == 0 {
        return Err(ENOENT);
    }
    // `struct sockaddr_un`: family, path, and a zero byte.
    let mut bytes = [0_u8; 2 + PATH_MAX];
    let path = PATH.iter().take(length).map(|byte| byte.load(Ordering::Relaxed));
    bytes.iter_mut().zip(AF_UNIX.to_ne_bytes().into_iter().chain(path)).for_each(|(to, from)| *to = from);
    let length = 2 + length + 1;
    let socket = Socket::open()?;
    socket.limit_waits();
    retry(timeout, || {
        // SAFETY: `sys::call` requires pointers that suit the call: the kernel reads `length` bytes
        // of the live array, which has as many: a path has less than `PATH_MAX`.
        unsafe { call(nr::CONNECT, [socket.0 as usize, bytes.as_ptr() as usize, length, 0, 0, 0]) }
    })?;
    // In a user namespace, the recorder's user may have no number.
    socket.check_peer().map_err(|_| EACCES)?;
    Ok(socket)
}

/// Makes a branch, unless there is one. Without one, children that cannot use the path are not
/// recorded.
fn keep_branch(address: &Address, timeout: &mut Timeout) {
    let Some(_guard) = LOCK.try_lock() else { return };
    if branch().is_some() || super::is_in_helper() {
        return;
    }
    let arguments = RequestArguments { kind: RequestKind::Branch, image: 0, fork: 0, node_base: 0 };
    let Ok(socket) = connect_by_path(timeout) else { return };
    let sent = socket.send(&message(address, arguments), timeout);
    // A program with a lower limit has none that is high.
    let Ok(kept) = sent.and_then(|()| sys::duplicate_from(socket.0, BRANCH_LEAST)) else { return };
    let Some(identity) = sys::identity_of(kept) else { return sys::close(kept) };
    BRANCH_IDENTITY.iter().zip(identity).for_each(|(to, from)| to.store(from, Ordering::Relaxed));
    BRANCH.store(kept, Ordering::Release);
}

/// Returns a copy of the branch's descriptor, if it still is the branch. A copy, since another
/// thread may close the descriptor at any time and open something of its own there.
fn branch() -> Option<Socket> {
    let branch = BRANCH.load(Ordering::Acquire);
    let identity = [0, 1].map(|index| BRANCH_IDENTITY.get(index).map_or(0, |part| part.load(Ordering::Relaxed)));
    // A descriptor of another file is not duplicated: closing the copy would give up the
    // program's locks.
    if branch < 0 || sys::identity_of(branch) != Some(identity) {
        return None;
    }
    let copy = Socket(sys::duplicate_from(branch, BRANCH_LEAST).ok()?);
    (sys::identity_of(copy.0) == Some(identity)).then_some(copy)
}

/// True if the recorder has closed its end.
fn is_closed(branch: i32) -> bool {
    const MSG_PEEK_DONTWAIT: usize = 2 | 0x40;
    let mut byte = 0_u8;
    let (bytes, length) = (&raw mut byte as usize, 1);
    // SAFETY: `sys::call` requires pointers that suit the call: the kernel writes at most `length`
    // bytes to the live variable. The recorder sends nothing here: it reads 0 at the end.
    check(unsafe { call(nr::RECVFROM, [branch as usize, bytes, length, MSG_PEEK_DONTWAIT, 0, 0]) }) != Err(EAGAIN)
}

/// Makes a pair of sockets, sends one of them by the branch, and returns the other.
fn connect_by_branch(branch: i32, timeout: &mut Timeout) -> Result<Socket, Errno> {
    const SOCK_SEQPACKET_CLOEXEC: usize = 5 | 0o2000000;
    const SOL_SOCKET: i32 = 1;
    const SCM_RIGHTS: i32 = 1;
    const MSG_NOSIGNAL: usize = 0x4000;
    /// `struct cmsghdr` with one descriptor, and its padding.
    #[repr(C)]
    struct Control {
        length: usize,
        level: i32,
        kind: i32,
        fd: i32,
        padding: i32,
    }
    /// `struct msghdr`.
    #[repr(C)]
    struct Message {
        name: *const u8,
        name_length: usize,
        parts: *mut [usize; 2],
        parts_count: usize,
        control: *mut Control,
        control_length: usize,
        flags: usize,
    }
    let mut pair = [-1_i32; 2];
    let pair_at = pair.as_mut_ptr() as usize;
    // SAFETY: `sys::call` requires pointers that suit the call, and no effect on other code's
    // state: the kernel writes two numbers to the live array, of descriptors that only we know.
    check(unsafe { call(nr::SOCKETPAIR, [AF_UNIX as usize, SOCK_SEQPACKET_CLOEXEC, 0, pair_at, 0, 0]) })?;
    // Both are closed when they are dropped; the recorder has its own descriptor then.
    let [own, sent] = pair.map(Socket);
    own.limit_waits();
    let byte = 0_u8;
    let mut parts = [&raw const byte as usize, 1];
    let length = size_of::<Control>() - size_of::<i32>();
    let mut control = Control { length, level: SOL_SOCKET, kind: SCM_RIGHTS, fd: sent.0, padding: 0 };
    let mut header = Message {
        name: ptr::null(),
        name_length: 0,
        parts: &raw mut parts,
        parts_count: 1,
        control: &raw mut control,
        control_length: size_of::<Control>(),
        flags: 0,
    };
    retry(timeout, || {
        // SAFETY: `sys::call` requires pointers that suit the call: the header and all that it
        // points to are live, and as long as they say; the kernel only reads them.
        unsafe { call(nr::SENDMSG, [branch as usize, &raw mut header as usize, MSG_NOSIGNAL, 0, 0, 0]) }
    })?;
    Ok(own)
}
