//! The session page and the messages of the handshake.
//!
//! A request is one [`Request`] on a fresh `SOCK_SEQPACKET` connection to the session's abstract
//! address; the answer is one [`Answer`] with descriptors (`SCM_RIGHTS`): for an image or a fork
//! the common ring, the requester's own ring and the session page, in this order; for a ring just
//! the ring; for a plan or a table of modules its file.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heapledger_core::{arch, sandbox, sys};

/// The environment variable that leads a program to its session: `NAME:TOKEN`, both in hexadecimal,
/// followed by [`SAMPLES_SUFFIX`] if the session samples, [`USABLE_SUFFIX`] if it records usable
/// sizes, [`MAPPINGS_SUFFIX`] if it records mappings, and [`WAITS_SUFFIX`] if threads wait for the
/// recorder for ever.
pub const ENVIRONMENT_VARIABLE: &str = "HEAPLEDGER_SESSION";
/// The suffix of that variable in a session that records a sample of all blocks: for the whole
/// session, whatever the rate.
pub const SAMPLES_SUFFIX: &str = ":s";
/// The suffix of that variable in a session that records the usable sizes of blocks.
pub const USABLE_SUFFIX: &str = ":u";
/// The suffix of that variable in a session that records the calls that change mappings.
pub const MAPPINGS_SUFFIX: &str = ":m";
/// The suffix of that variable, after all others, in a session whose threads wait for the recorder
/// however long it is stalled. The session page contains this too, but a new program gets the page
/// only from the recorder.
pub const WAITS_SUFFIX: &str = ":w";
/// The suffix of that variable, after all others, for a program that an *armed* one starts: the
/// library is in `LD_PRELOAD` because the user put it there, and stays.
pub const ARMED_SUFFIX: &str = ":a";
/// A suffix that a recorded program adds to that variable for a program that it starts while the
/// recorder is known to be stalled. It is not part of the address, and is not handed on.
pub const STALLED_SUFFIX: &str = ":x";
/// The environment variable that names the hook libraries, separated by colons as in `LD_PRELOAD`,
/// in which they follow the preload library.
pub const HOOKS_VARIABLE: &str = "HEAPLEDGER_HOOKS";
/// The file name of the allocator that the command carries (`hook/heap-preload`). It is listed like
/// a hook library, as the last one, and has no hooks.
pub const ALLOCATOR_FILE_NAME: &str = "libheapledger_allocator.so";
/// The file name of the preload library in the directory of a recorder.
pub const LIBRARY_FILE_NAME: &str = "libheapledger.so";
/// The end of that name, in place of `.so`, of the copy for programs with musl, beside it.
pub const MUSL_SUFFIX: &str = ".musl.so";
/// The prefix of the abstract socket address; the session's name follows.
pub const ADDRESS_PREFIX: &str = "heapledger-";
/// The file name of the session's socket in the directory of a recorder, for processes in another
/// network namespace: abstract addresses are found in their own namespace only.
pub const SOCKET_FILE_NAME: &str = "socket";
/// The number of hexadecimal digits of a session's name, and of its token.
pub const NAME_LENGTH: usize = 32;
/// The size of the session page in bytes.
pub const PAGE_LENGTH: usize = 4096;

/// Values of [`SessionPage::state`].
pub mod state {
    /// The collector reads.
    pub const RECORDING: u32 = 1;
    /// The collector has finished: programs go on unrecorded.
    pub const OVER: u32 = 2;
}

/// Bits of [`SessionPage::mode`]. None of them is set in the usual case.
pub mod mode {
    /// Allocations are not recorded at the moment; frees are.
    pub const PAUSED: u32 = 1;
    /// Allocations and frees for which there is no room are dropped, and counted in the ring;
    /// threads do not wait.
    pub const DROPS: u32 = 2;
    /// No allocation has been recorded yet, so no free needs recording. Only together with
    /// [`PAUSED`].
    pub const IDLE: u32 = 4;
    /// Programs compare their stacks with those of their C library. Fixed for the session.
    pub const VERIFIES_STACKS: u32 = 8;
    /// Stacks are not taken. Fixed for the session.
    pub const NO_STACKS: u32 = 16;
    /// The recorder is stalled: until it is back, events are dropped as with [`DROPS`]. Set by a
    /// thread that has waited for the recorder in vain, cleared by the collector.
    pub const STALLED: u32 = 32;
    /// The session is over, and nothing is recorded: with [`PAUSED`] and [`IDLE`]. Set only in a
    /// session of armed processes, which can join another one.
    pub const OVER: u32 = 64;
}

/// The value of [`SessionPage::exit_wait`] by which a process waits for a
/// [share](exit_wait_share) of its run time, and at most [`EXIT_WAIT_MAX`] ns; not at all if that
/// is less than [`EXIT_WAIT_LEAST`] ns.
pub const EXIT_WAIT_SHARE: u32 = u32::MAX;
/// The longest usual wait at an exit, in nanoseconds.
pub const EXIT_WAIT_MAX: u64 = 1_000_000_000;
/// The nanoseconds that a snapshot of a small process takes: in less, there is none.
pub const EXIT_WAIT_LEAST: u64 = 5_000_000;

/// Returns the time for which a process of this age may wait at its exit in any case: a fiftieth.
/// Both are in nanoseconds.
pub const fn exit_wait_share(age: u64) -> u64 {
    age / 50
}

/// Memory shared by the collector and every process of the session.
#[derive(Debug)]
#[repr(C)]
pub struct SessionPage {
    /// [`crate::VERSION`].
    pub version: AtomicU32,
    /// One of [`state`].
    pub state: AtomicU32,
    /// 1 while the collector sleeps; a futex.
    pub sleeping: AtomicU32,
    /// Bits of [`mode`].
    pub mode: AtomicU32,
    /// Not 0 if the contexts that programs declare are left out. Fixed for the session; not a bit
    /// of `mode`, because in the usual case nothing has to read it.
    pub without_contexts: AtomicU32,
    /// In a session that samples: the [logarithm](heapledger_core::sample::Rate::logarithm) of the
    /// mean distance of sample points; 0 while everything is recorded. It may change at any time.
    pub rate: AtomicU32,
    /// Incremented whenever the collector drains or the writer writes: see
    /// [`Watchdog`](crate::stall::Watchdog).
    pub heartbeat: AtomicU32,
    /// Incremented at each iteration of the broker, which may run while the collector is stalled.
    pub heartbeat_of_broker: AtomicU32,
    /// The time in milliseconds for which the recorder may be stalled until threads stop waiting; 0
    /// for ever. Fixed for the session.
    pub stall_milliseconds: AtomicU32,
    /// The time in milliseconds for which a process waits at its exit for a snapshot of its
    /// resident memory: 0 if it does not ask for one, [`EXIT_WAIT_SHARE`] for a share of its run
    /// time. It may change at any time.
    pub exit_wait: AtomicU32,
    /// The time stamp counter when threads stopped waiting; 0 while they do wait.
    pub stalled_at: AtomicU64,
    /// The maximum number of bytes of its own memory that the recorder may take in each process; 0
    /// for no limit. Fixed for the session.
    pub target_memory: AtomicU64,
}

impl SessionPage {
    /// Returns the page of a thread that has joined no session.
    pub const fn none() -> SessionPage {
        SessionPage {
            version: AtomicU32::new(0),
            state: AtomicU32::new(state::OVER),
            sleeping: AtomicU32::new(0),
            mode: AtomicU32::new(mode::OVER | mode::PAUSED | mode::IDLE),
            without_contexts: AtomicU32::new(0),
            rate: AtomicU32::new(0),
            heartbeat: AtomicU32::new(0),
            heartbeat_of_broker: AtomicU32::new(0),
            stall_milliseconds: AtomicU32::new(0),
            exit_wait: AtomicU32::new(0),
            stalled_at: AtomicU64::new(0),
            target_memory: AtomicU64::new(0),
        }
    }

    /// Advances the heartbeat of the collector and the writer.
    pub fn beat(&self) {
        self.heartbeat.fetch_add(1, Ordering::Release);
    }

    /// Advances the heartbeat of the broker.
    pub fn beat_of_broker(&self) {
        self.heartbeat_of_broker.fetch_add(1, Ordering::Release);
    }

    /// Returns the heartbeat of the collector.
    pub fn heartbeat(&self) -> u32 {
        self.heartbeat.load(Ordering::Acquire)
    }

    /// Returns the heartbeat of the recorder as a whole.
    pub fn heartbeat_of_all(&self) -> u32 {
        self.heartbeat().wrapping_add(self.heartbeat_of_broker.load(Ordering::Acquire))
    }

    /// Declares that the recorder is stalled.
    #[cold]
    pub fn stall(&self) {
        let _ = self.stalled_at.compare_exchange(0, arch::ticks(), Ordering::Relaxed, Ordering::Relaxed);
        self.mode.fetch_or(mode::STALLED, Ordering::Release);
    }

    /// Declares the stall ended. Returns the ticks at which it began; `None` if there was none.
    pub fn end_stall(&self) -> Option<u64> {
        if self.mode.load(Ordering::Acquire) & mode::STALLED == 0 {
            return None;
        }
        let from = self.stalled_at.swap(0, Ordering::Relaxed);
        self.mode.fetch_and(!mode::STALLED, Ordering::Release);
        Some(from)
    }

    /// True while the recorder is known to be stalled.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.mode() & mode::STALLED != 0
    }

    /// Wakes the collector if it sleeps. Does nothing in a sandbox: the collector wakes by itself
    /// some 20 times a second.
    #[inline]
    pub fn ring_doorbell(&self) {
        if sandbox::is_entered() {
            return;
        }
        if self.sleeping.load(Ordering::Relaxed) != 0 && self.sleeping.swap(0, Ordering::AcqRel) != 0 {
            sys::futex_wake(&self.sleeping, 1);
        }
    }

    /// Makes this page that of a session that is over. Callable on any page, also while threads
    /// read it.
    pub fn end(&self) {
        self.mode.fetch_or(mode::OVER | mode::PAUSED | mode::IDLE, Ordering::Release);
        // No thread has a countdown at this rate: the next block of each brings it to the mode.
        self.rate.store(0, Ordering::Release);
        self.state.store(state::OVER, Ordering::Release);
    }

    /// Returns the present [`mode`].
    #[inline(always)]
    pub fn mode(&self) -> u32 {
        self.mode.load(Ordering::Relaxed)
    }

    /// True if the contexts that programs declare are left out.
    #[inline(always)]
    pub fn is_without_contexts(&self) -> bool {
        self.without_contexts.load(Ordering::Relaxed) != 0
    }

    /// Returns the nanoseconds for which a process of this age, in nanoseconds, waits at its exit;
    /// 0 if it does not.
    pub fn exit_wait(&self, age: u64) -> u64 {
        match self.exit_wait.load(Ordering::Relaxed) {
            EXIT_WAIT_SHARE if exit_wait_share(age) < EXIT_WAIT_LEAST => 0,
            EXIT_WAIT_SHARE => exit_wait_share(age).min(EXIT_WAIT_MAX),
            milliseconds => u64::from(milliseconds) * 1_000_000,
        }
    }

    /// Returns the present logarithm of the mean distance of sample points.
    #[inline(always)]
    pub fn rate(&self) -> u32 {
        self.rate.load(Ordering::Relaxed)
    }

    /// True if the session is over.
    pub fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) == state::OVER
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RequestKind {
    /// First contact of a program image: after launch or exec.
    Image = 1,
    /// First contact of a forked child.
    Fork = 2,
    /// One more ring for a known image.
    Ring = 3,
    /// Asks for nothing; tests whether the broker answers.
    Probe = 4,
    /// Asks for nothing; an image was granted, but the process has no room for the mappings that
    /// came with it.
    Decline = 5,
    /// Asks for the plan by which the entry points of allocators inside of the program are
    /// redirected ([`redirection`](crate::redirection)); before the process is introduced.
    Entries = 6,
    /// First contact of a program that ran before the session began.
    Attach = 7,
    /// Asks for the table of the process's modules ([`module_table`](crate::module_table)), because
    /// an address is in code of a file that the program knows no module for.
    Modules = 8,
    /// Asks the recorder to follow the process into the program that it is about to execute, by
    /// tracing it until then; or its next child of vfork(2) ([`Request::fork`]). If that fails, a
    /// second request of this kind on the same connection ends it.
    Follow = 9,
    /// Asks for the plan for [`Request::modules`], which the program has just opened: as
    /// [`Entries`](RequestKind::Entries), from a process that has been introduced.
    LaterEntries = 10,
    /// Asks for no answer: the connection is kept by the process and its children. Each later
    /// message on it has a descriptor (`SCM_RIGHTS`): the other end of a socket pair, which is a
    /// fresh connection of the process that has made the pair.
    Branch = 11,
    /// Asks for a snapshot of the resident memory of the process, which is about to exit, and has
    /// at most [`Request::capacity`] nanoseconds to wait for it. There is no answer: the recorder
    /// closes the connection when it has read the memory, or will not read it.
    Exit = 12,
}

/// A request. All fields are plain numbers; the bytes on the socket are those of the struct, native
/// endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    /// [`crate::VERSION`].
    pub version: u32,
    /// A [`RequestKind`].
    pub kind: u32,
    /// The session's token, as in the environment.
    pub token: [u8; NAME_LENGTH],
    /// For a ring, and to decline: the image. For a fork: the parent's image. For a table of
    /// modules: 1 if the process does not notice that a module is unloaded, otherwise 0. For
    /// modules that were opened later: 1 if the recorder is to redirect their entries itself, from
    /// outside, and to look for them.
    pub image: u32,
    /// The thread that asks, as its own pid namespace numbers it.
    pub thread: u32,
    /// For a fork: the sequence number of the parent's fork event, 0 if there is none. To be
    /// followed: 1 if a child executes the program that the thread is about to make by vfork(2), as
    /// posix_spawn(3) does, otherwise 0.
    pub fork: u32,
    /// For a fork: the first stack id of the child's own nodes.
    pub node_base: u32,
    /// For a ring: the smallest useful capacity in bytes, 0 for the collector's choice. At an exit:
    /// the time in nanoseconds for which the process waits.
    pub capacity: u64,
    /// The program's allocator: an [`AllocatorKind`](heapledger_core::allocator::AllocatorKind).
    pub allocator: u32,
    /// The allocator's version: an
    /// [`AllocatorVersion`](heapledger_core::allocator::AllocatorVersion).
    pub allocator_version: u32,
    /// For a plan: the address of the first [`Thunk`](crate::redirection::Thunk). For a table of
    /// modules: the address whose module is not known. To be followed: the address of the path of
    /// the program. Otherwise 0.
    pub thunk: u64,
    /// For an image: the number of entries that were to be redirected and were not;
    /// [`ENTRIES_UNKNOWN`] if the program has got no plan. Otherwise 0.
    pub entries_missed: u64,
    /// For a plan for modules that were opened later: an address inside of each; 0 for none.
    pub modules: [u64; MODULES_MAX],
}

/// The most modules for which one request asks.
pub const MODULES_MAX: usize = 8;

/// The number of entries where nobody knows it.
pub const ENTRIES_UNKNOWN: u64 = u64::MAX;

/// Bytes of a [`Request`].
pub const REQUEST_LENGTH: usize = size_of::<Request>();

impl Request {
    /// Returns the bytes to send.
    pub fn to_bytes(self) -> [u8; REQUEST_LENGTH] {
        // SAFETY: `Request` is repr(C), made of integers and a byte array whose offsets leave no
        // padding (checked below), so all its bytes are initialised and every bit pattern is valid
        // in the target type.
        unsafe { core::mem::transmute(self) }
    }

    /// Returns a request from received bytes. Any bytes are accepted; the caller has to check the
    /// fields.
    pub fn from_bytes(bytes: [u8; REQUEST_LENGTH]) -> Request {
        // SAFETY: every bit pattern is a valid `Request`: integers and bytes only; sizes are equal
        // by type.
        unsafe { core::mem::transmute(bytes) }
    }
}

const _: () =
    assert!(REQUEST_LENGTH == 4 + 4 + NAME_LENGTH + 4 * 4 + 8 + 2 * 4 + (2 + MODULES_MAX) * 8, "padding in Request");

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Answer {
    /// 0 if granted, then descriptors follow. Otherwise the session does not take this process or
    /// thread.
    pub refused: u32,
    /// The image's number in the session. For a plan for modules that were opened later: bit `i` is
    /// set if there is an allocator to redirect in the one at index `i`.
    pub image: u32,
    /// Bytes of the common ring's mapping. For a plan: its bytes without the code; 0 if there is
    /// nothing to redirect, and no descriptor follows. For a table of modules: its bytes; 0 if the
    /// address is in none, and no descriptor follows.
    pub common_length: u64,
    /// Bytes of the own ring's mapping. For a plan: the number of entries that should be redirected
    /// (the plan may lack some), or [`ENTRIES_UNKNOWN`].
    pub ring_length: u64,
}

/// The [`Answer::image`] that says that a plan or a table is being made: another answer follows,
/// and while that takes, this one is repeated. So a program waits for it as long as it takes, but
/// not for a recorder that stands still.
pub const PLAN_PENDING: u32 = 1 << 31;

/// Bytes of an [`Answer`].
pub const ANSWER_LENGTH: usize = size_of::<Answer>();

impl Answer {
    /// Returns the bytes to send.
    pub fn to_bytes(self) -> [u8; ANSWER_LENGTH] {
        // SAFETY: `transmute` requires types of one size, which it checks, and bytes that are all
        // initialised: `Answer` is `repr(C)`, of integers only, without padding (checked below).
        unsafe { core::mem::transmute(self) }
    }

    /// Returns an answer from received bytes.
    pub fn from_bytes(bytes: [u8; ANSWER_LENGTH]) -> Answer {
        // SAFETY: every bit pattern is a valid `Answer`; sizes are equal by type.
        unsafe { core::mem::transmute(bytes) }
    }
}

const _: () = assert!(ANSWER_LENGTH == 24, "padding in Answer");

/// A flag in [`ImageCounters::unreached`]: the child is in another network namespace than the one
/// that its parent's program began in.
pub const IN_OTHER_NETWORK: u32 = 1 << 31;

/// The counters that an image keeps about itself, in the header of its common ring.
#[derive(Debug)]
#[repr(C)]
pub struct ImageCounters {
    /// Bytes of private memory that the recorder takes in the program and that are resident.
    pub private_bytes: AtomicU64,
    /// Events lost because a signal handler interrupted the recorder, and the common ring could not
    /// be used: it was taken, or the recorder stood still, or the program is in a sandbox. Stamps
    /// and marks never go to the common ring.
    pub lost_nested: AtomicU64,
    /// Events lost because a thread found neither a ring of its own nor the common ring, with those
    /// of forked children that got no rings.
    pub lost_no_ring: AtomicU64,
    /// Events of user pools lost because there were too many pools, or because of their addresses.
    pub lost_pools: AtomicU64,
    /// Stacks cut because they were deeper than the recorder's limit.
    pub stacks_truncated: AtomicU64,
    /// Stacks without their outer frames, because a frame had no usable unwind information.
    pub stacks_dropped: AtomicU64,
    /// Stacks that equal the result of glibc's `backtrace`.
    pub stacks_verified: AtomicU64,
    /// Stacks that differ from it.
    pub stacks_mismatched: AtomicU64,
    /// Stacks that could not be compared, because `backtrace` could not be called.
    pub stacks_unasked: AtomicU64,
    /// Stacks that continue beyond the end of glibc's.
    pub stacks_outlasting: AtomicU64,
    /// Events that have no stack although they should, because the thread could not use a ring of
    /// its own.
    pub stacks_missing: AtomicU64,
    /// Events whose stacks or contexts end at an outer frame, because the stack tree is full.
    pub stacks_folded: AtomicU64,
    /// Forked children that could not connect to the recorder.
    pub children_unreached: AtomicU32,
    /// The first of these children, as their pid namespaces number them, with [`IN_OTHER_NETWORK`].
    pub unreached: [AtomicU32; 7],
}

#[cfg(test)]
mod tests;
