//! The handshake with the collector: connect, one message, one answer with descriptors, map, close.
//!
//! Raw system calls only. Nothing stays open in the program. Where it has no descriptor left, and only there, a helper
//! thread with a descriptor table of its own does the talking and the mapping.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::arch::{nr, syscall};
use heapledger_core::sys::{self, Errno, check};
use heapledger_wire::VERSION;
use heapledger_wire::ring::Ring;
use heapledger_wire::session::{
    ADDRESS_PREFIX, ANSWER_LENGTH, Answer, NAME_LENGTH, PAGE_LENGTH, REQUEST_LENGTH, Request, RequestKind,
    SAMPLES_SUFFIX, SessionPage,
};

/// How to reach a session: what the environment variable says.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    name: [u8; NAME_LENGTH],
    token: [u8; NAME_LENGTH],
    samples: bool,
}

impl Address {
    /// Parses `NAME:TOKEN`, or `NAME:TOKEN:s` of a session that samples.
    pub fn parse(value: &[u8]) -> Option<Address> {
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
        Some(Address { name: name.try_into().ok()?, token: token.try_into().ok()?, samples })
    }

    /// Whether the session records a sample of all blocks.
    pub fn samples(&self) -> bool {
        self.samples
    }
}

/// What a request brought.
#[derive(Debug)]
pub struct Granted {
    /// The image's number in the session.
    pub image: u32,
    /// The session page; `None` for a ring request.
    pub page: Option<NonNull<SessionPage>>,
    /// The common ring; `None` for a ring request.
    pub common: Option<Ring>,
    /// The asking thread's ring.
    pub ring: Ring,
}

/// Why there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody listens, or the session does not take us: it will not be different later.
    Gone,
    /// No descriptor or memory to be had: it may be different later.
    NotNow,
}

impl From<Errno> for Refusal {
    fn from(Errno(number): Errno) -> Refusal {
        const ENOENT: i32 = 2;
        const EPIPE: i32 = 32;
        const ECONNRESET: i32 = 104;
        const ECONNREFUSED: i32 = 111;
        match number {
            ENOENT | EPIPE | ECONNRESET | ECONNREFUSED => Refusal::Gone,
            // No descriptors, no memory, or a sandbox that the program has put itself in.
            _ => Refusal::NotNow,
        }
    }
}

/// Whether the collector is gone for good. One connection attempt.
pub fn is_gone(address: &Address) -> bool {
    let ask = || match Socket::connect(address) {
        Ok(_) => false,
        Err(error) => Refusal::from(error) == Refusal::Gone,
    };
    if has_room(1) { ask() } else { sys::with_descriptors(1, ask).unwrap_or(false) }
}

/// What to ask for, beside what every request carries.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// What.
    pub kind: RequestKind,
    /// For a ring the own image, for a fork the parent's.
    pub image: u32,
    /// For a fork: its number.
    pub fork: u32,
    /// For a fork: the first stack id of the child's own.
    pub node_base: u32,
}

/// Makes a request and maps what it brings.
pub fn request(address: &Address, asked: Asked) -> Result<Granted, Refusal> {
    // The socket, and what the answer brings; a forked child has the page.
    let needed = match asked.kind {
        RequestKind::Image => 4,
        RequestKind::Fork => 3,
        _ => 2,
    };
    let ask = || ask(address, asked);
    if has_room(needed) { ask() } else { sys::with_descriptors(needed, ask).unwrap_or(Err(Refusal::NotNow)) }
}

/// Whether the program has so many free descriptors: asked before, because an answer for which there is no room would
/// leave an image behind that nobody writes to. Other obstacles, such as a sandbox, are for the request itself to meet.
fn has_room(count: i32) -> bool {
    const EMFILE: Errno = Errno(24);
    fn copies(fd: i32, count: i32) -> bool {
        if count == 0 {
            return true;
        }
        match sys::duplicate(fd) {
            Ok(copy) => {
                let has_room = copies(fd, count - 1);
                sys::close(copy);
                has_room
            }
            Err(error) => error != EMFILE,
        }
    }
    match Socket::open() {
        Ok(socket) => copies(socket.0, count - 1),
        Err(error) => error != EMFILE,
    }
}

fn ask(address: &Address, asked: Asked) -> Result<Granted, Refusal> {
    let socket = Socket::connect(address)?;
    socket.send(&message(address, asked))?;
    let (answer, descriptors) = socket.receive()?;
    if answer.refused != 0 {
        return Err(Refusal::Gone);
    }
    if asked.kind == RequestKind::Ring {
        let ring = map_ring(descriptors.first()?, answer.ring_length)?;
        return Ok(Granted { image: answer.image, page: None, common: None, ring });
    }
    let take = || {
        let common = map_ring(descriptors.first()?, answer.common_length)?;
        let ring = map_ring(descriptors.get(1)?, answer.ring_length)?;
        let page = map_page(descriptors.get(2))?;
        Ok(Granted { image: answer.image, page: Some(page), common: Some(common), ring })
    };
    take().inspect_err(|_| {
        // Else the collector would take it for a process that had nothing to say. It may not hear of it: best effort.
        let decline = Asked { kind: RequestKind::Decline, image: answer.image, ..asked };
        let _ = Socket::connect(address).and_then(|socket| socket.send(&message(address, decline)));
    })
}

fn message(address: &Address, asked: Asked) -> [u8; REQUEST_LENGTH] {
    let Asked { kind, image, fork, node_base } = asked;
    let thread = sys::thread_id();
    Request { version: VERSION, kind: kind as u32, token: address.token, image, thread, fork, node_base, capacity: 0 }
        .to_bytes()
}

/// The session page, mapped at most once per process: forked children keep the mapping.
fn map_page(fd: Result<i32, Refusal>) -> Result<NonNull<SessionPage>, Refusal> {
    static PAGE: AtomicPtr<SessionPage> = AtomicPtr::new(core::ptr::null_mut());
    if let Some(page) = NonNull::new(PAGE.load(Ordering::Acquire)) {
        return Ok(page);
    }
    let page = sys::map_shared(fd?, PAGE_LENGTH)?.cast::<SessionPage>();
    PAGE.store(page, Ordering::Release);
    // SAFETY: freshly mapped, page-aligned, at least as long as a `SessionPage`; all atomics.
    if unsafe { &*page }.version.load(Ordering::Relaxed) != VERSION {
        return Err(Refusal::Gone);
    }
    NonNull::new(page).ok_or(Refusal::Gone)
}

fn map_ring(fd: i32, length: u64) -> Result<Ring, Refusal> {
    let length = usize::try_from(length).map_err(|_| Refusal::Gone)?;
    let mapping = NonNull::new(sys::map_shared(fd, length)?).ok_or(Refusal::Gone)?;
    sys::dont_dump(mapping.as_ptr(), length);
    // SAFETY: a shared mapping of that length, which stays mapped for the life of the process unless refused here.
    unsafe { Ring::new(mapping, length) }.ok_or(Refusal::Gone)
}

/// Descriptors received; closed when dropped.
struct Descriptors {
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
        self.fds.get(..self.count).and_then(|fds| fds.get(index)).copied().ok_or(Refusal::NotNow)
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

struct Socket(i32);

impl Drop for Socket {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

impl Socket {
    fn open() -> Result<Socket, Errno> {
        const SOCK_SEQPACKET_CLOEXEC: usize = 5 | 0o2000000;
        // SAFETY: makes a descriptor that only we know.
        let fd = check(unsafe { syscall(nr::SOCKET, [AF_UNIX as usize, SOCK_SEQPACKET_CLOEXEC, 0, 0, 0, 0]) })?;
        Ok(Socket(fd as i32))
    }

    fn connect(address: &Address) -> Result<Socket, Errno> {
        let socket = Socket::open()?;
        // `struct sockaddr_un`: family, a zero byte for the abstract namespace, then the name, without terminator.
        const LENGTH: usize = 2 + 1 + ADDRESS_PREFIX.len() + NAME_LENGTH;
        let mut bytes = [0_u8; LENGTH];
        let content = AF_UNIX.to_ne_bytes().into_iter().chain([0]).chain(ADDRESS_PREFIX.bytes()).chain(address.name);
        for (to, from) in bytes.iter_mut().zip(content) {
            *to = from;
        }
        retry(|| {
            // SAFETY: the kernel reads `LENGTH` bytes of the live array.
            unsafe { syscall(nr::CONNECT, [socket.0 as usize, bytes.as_ptr() as usize, LENGTH, 0, 0, 0]) }
        })?;
        Ok(socket)
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        const MSG_NOSIGNAL: usize = 0x4000;
        retry(|| {
            // SAFETY: the kernel reads the live slice.
            unsafe { syscall(nr::SENDTO, [self.0 as usize, bytes.as_ptr() as usize, bytes.len(), MSG_NOSIGNAL, 0, 0]) }
        })
        .map(drop)
    }

    fn receive(&self) -> Result<(Answer, Descriptors), Refusal> {
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
        let received = retry(|| {
            // SAFETY: `message` and all it points to are live and as long as they say; the kernel writes there only.
            unsafe { syscall(nr::RECVMSG, [self.0 as usize, &raw mut message as usize, MSG_CMSG_CLOEXEC, 0, 0, 0]) }
        })?;
        let mut descriptors = Descriptors { fds: [0; Descriptors::MAX], count: 0 };
        if message.control_length >= 16 && control.level == SOL_SOCKET && control.kind == SCM_RIGHTS {
            let count = control.length.saturating_sub(16) / 4;
            for (to, &from) in descriptors.fds.iter_mut().zip(control.fds.iter().take(count)) {
                *to = from;
                descriptors.count += 1;
            }
        }
        // An empty message is the end of the connection: the collector went away, or does not want us.
        if received != ANSWER_LENGTH {
            return Err(Refusal::Gone);
        }
        Ok((Answer::from_bytes(bytes), descriptors))
    }
}

/// Repeats a system call that a signal interrupted.
fn retry(mut call: impl FnMut() -> isize) -> Result<usize, Errno> {
    const EINTR: Errno = Errno(4);
    loop {
        match check(call()) {
            Err(EINTR) => {}
            other => return other,
        }
    }
}
