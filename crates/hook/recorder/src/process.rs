//! The process's state: the image, the common ring, the list of free thread blocks.
//!
//! State that must not survive a fork is in a page that a child finds zeroed ([`Process`]). State
//! that a child continues (the [session], the image's number as its parent's) is in
//! statics.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use heapledger_core::lock::Lock;
use heapledger_core::{sandbox, sys};
use heapledger_thread::{self as thread, FreeList, KeyFunctions};
use heapledger_unwind::{bounds, rules, supplied, tree, walk};
use heapledger_wire::publish::Producer;
use heapledger_wire::ring::Ring;
use heapledger_wire::session::{IN_OTHER_NETWORK, ImageCounters, RequestKind, SessionPage};

use crate::block::ThreadBlock;
use crate::connect::{self, Address, Granted, Refusal, RequestArguments};
use crate::turns::Turns;
use crate::{addresses, rings, session, threads};

/// The state that every process has of its own.
#[derive(Debug)]
#[repr(C)]
pub struct Process {
    /// 0 until the process is introduced to the collector, as in a fresh child.
    introduced: AtomicU32,
    /// Taken while introducing.
    lock: Lock,
    /// The id of the process, once it is introduced.
    id: AtomicU32,
    /// Not 0 if the process has counted itself among those that could not introduce themselves.
    is_unreached: AtomicU32,
    /// The monotonic time in nanoseconds at which the process was introduced.
    introduced_at: AtomicU64,
    /// Not 0 once the process has begun to exit.
    is_exiting: AtomicU32,
    /// The number of threads that use the common ring or its counters without a closed gate.
    visitors: AtomicU32,
    /// The turns of threads that move mappings.
    turns: Turns,
    blocks: FreeList<ThreadBlock>,
    common: UnsafeCell<MaybeUninit<Producer>>,
}

/// A stay in the state of a process: see [`Process::visit`].
pub(crate) struct Visit<'a>(&'a Process);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.visitors.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes of memory that the library takes in a process before it has recorded anything: its data,
/// the page with the process's state, and the pages of the C library's symbol table and of the
/// dynamic linker's data that are written. Measured by the kernel's figure for private pages
/// (`Anonymous` in smaps) with glibc 2.36.
const LIBRARY_BYTES: u64 = 96 << 10;

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
/// True once the key is created, or will be.
static IS_KEY_CREATED: AtomicBool = AtomicBool::new(false);
static IMAGE: AtomicU32 = AtomicU32::new(u32::MAX);
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The counters of the image's losses; in a forked child that could not introduce itself, its
/// parent's.
static COUNTERS: AtomicPtr<ImageCounters> = AtomicPtr::new(ptr::null_mut());

/// Joins a session. Call before any hook may find recording on; and again once the process has
/// [left](crate::leave) the session. `is_late` says that the program ran before.
///
/// # Safety
///
/// This is the first call, or the process has left the session that it joined before. `first_top`
/// is the address where the first thread's stack began.
pub unsafe fn start(address: Address, first_top: u64, is_late: bool) {
    bounds::set_first_top(first_top);
    // SAFETY: `session::join` requires that no thread is inside a session, until `turn_on`: this
    // function's `# Safety` requires the same, and `turn_on` is called below.
    unsafe { session::join(address, is_late) };
    if !map_state() || !rules::initialise() || !tree::initialise() {
        return session::turn_off();
    }
    session::turn_on();
}

/// Maps the process's state if that has not been done. False if there is no memory.
fn map_state() -> bool {
    if PROCESS.load(Ordering::Relaxed).is_null() {
        let Ok(page) = sys::map_private(size_of::<Process>()) else { return false };
        // SAFETY: just mapped; a zeroed `Process` is one that is not introduced.
        if unsafe { sys::wipe_on_fork(page, size_of::<Process>()) }.is_err() {
            return false;
        }
        PROCESS.store(page.cast(), Ordering::Release);
    }
    true
}

/// Keeps the id of this process, by which a child of `vfork` is recognised before the process is
/// introduced. Call at the start of the process, and in forked children.
pub fn keep_id() {
    if map_state()
        && let Some(process) = Process::known()
    {
        process.id.store(sys::process_id(), Ordering::Relaxed);
    }
}

/// Leaves the rings that this process has inherited to its parent. Call in a forked child, before
/// it records anything; it does so itself at the latest when it is introduced to the collector.
pub fn leave_rings_to_parent() {
    if Process::known().is_some_and(|process| !process.is_introduced()) {
        rings::leave_to_parent(COUNTERS.load(Ordering::Acquire));
    }
}

/// True if the caller is a child of `vfork`, which uses this process's memory: the collector would
/// take it for the process. False if the id has not been kept.
pub fn is_in_vfork_child() -> bool {
    let id = Process::known().map_or(0, Process::id);
    id != 0 && id != sys::process_id()
}

/// Creates the key whose destructor reports the end of a thread, at the first call. Call when the C
/// library can do that.
///
/// # Safety
///
/// [`start`] has been called; at the first call no thread has a block yet; and the functions are
/// the process's C library's.
pub unsafe fn create_key(library: KeyFunctions) {
    if session::is_on() && !IS_KEY_CREATED.swap(true, Ordering::Relaxed) {
        // SAFETY: `thread::create_key` requires functions of the process's C library; this
        // function's `# Safety` requires the same of `library`.
        unsafe { thread::create_key::<ThreadBlock>(library) };
    }
}

/// Creates the key as soon as a thread needs it and the C library can do that: see
/// [`create_key`] and [`thread::create_key_later`].
///
/// # Safety
///
/// `look_up` returns functions of the process's C library, and may be called in any thread at any
/// time, also inside the allocator.
pub unsafe fn create_key_later(look_up: fn() -> Option<KeyFunctions>) {
    if session::is_on() && !IS_KEY_CREATED.swap(true, Ordering::Relaxed) {
        // SAFETY: the contract of `thread::create_key_later` is that of this function, and its key
        // is the only one: `create_key` and this function call it once, both together.
        unsafe { thread::create_key_later(look_up) };
    }
}

/// Notes that a linker namespace with a C library of its own records in this process: the ends of
/// threads are learnt from that library as well, and the program's C library no longer knows how
/// many threads there are.
///
/// # Safety
///
/// The functions are that library's. It and the process's own C library are glibc.
pub unsafe fn share_key(library: KeyFunctions) {
    threads::stop_watching_threads();
    // SAFETY: `thread::share_key` requires functions of the other C library, and both to be glibc;
    // this function's `# Safety` requires the same.
    unsafe { thread::share_key::<ThreadBlock>(library) };
}

/// Returns the image's number.
pub fn image() -> u32 {
    IMAGE.load(Ordering::Relaxed)
}

/// Returns a number for a fork that is about to happen.
pub(crate) fn next_fork() -> u32 {
    FORKS.fetch_add(1, Ordering::Relaxed) + 1
}

/// True if the process belongs to a session, has not been introduced to the collector, and may do
/// that now. A child that has its parent's memory may not: what it wrote there about itself would
/// be the parent's. Takes two system calls if the process has not been introduced.
pub fn is_to_be_introduced() -> bool {
    let is_new = || Process::get().is_some_and(|process| !process.is_introduced());
    !sandbox::is_entered() && is_new() && !may_have_memory_of_parent()
}

/// True if this process runs in the memory of the process that made it, as a child of vfork(2)
/// does, or if the kernel does not say. A parent in another pid namespace is not known: such a
/// child is taken for one with memory of its own.
fn may_have_memory_of_parent() -> bool {
    const SYS_GETPPID: usize = 110;
    const SYS_KCMP: usize = 312;
    const KCMP_VM: usize = 1;
    // SAFETY: `sys::call` requires arguments that suit the call, and no effect on other code's
    // state: getppid has none of either.
    let parent = unsafe { sys::call(SYS_GETPPID, [0; 6]) };
    if parent == 0 {
        return false;
    }
    let own = sys::process_id() as usize;
    // SAFETY: as above: kcmp takes numbers only, and changes nothing.
    let compared = unsafe { sys::call(SYS_KCMP, [own, parent.cast_unsigned(), KCMP_VM, 0, 0, 0]) };
    // 1 and 2 give an order; an error is negative.
    compared <= 0
}

/// The time that [`Process::with_common`] waits for the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// None: this thread may hold it.
    Not,
    /// At most about so many milliseconds: this thread may hold it, but hardly ever does.
    Milliseconds(u32),
    /// Until it is free: this thread does not hold it.
    Ever,
}

/// True if the session is there to take the events of a child.
pub fn session_is_live() -> bool {
    Process::get().is_some_and(Process::is_introduced) && session::known_page().is_some_and(|page| !page.is_over())
}

/// True if the recorder is known to stand still.
pub fn session_is_stalled() -> bool {
    Process::get().is_some_and(Process::is_introduced) && session::known_page().is_some_and(SessionPage::is_stalled)
}

impl Process {
    /// Returns the process's state, if recording is on.
    #[inline]
    pub(crate) fn get() -> Option<&'static Process> {
        if !session::is_on() {
            return None;
        }
        // SAFETY: set by `start` before `STATE_ON`, never unmapped; all access to its cells is
        // under its lock.
        unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the process's state, whether recording is on or not.
    pub(crate) fn known() -> Option<&'static Process> {
        // SAFETY: `as_ref` requires null or a live value: `start` stores the address of a mapping
        // that stays. All access to its cells is under its lock.
        unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
    }

    /// Keeps the common ring and its counters mapped as long as the result lives. `None` if the
    /// session is over. Threads whose gate is closed need not call this.
    pub(crate) fn visit(&self) -> Option<Visit<'_>> {
        self.visitors.fetch_add(1, Ordering::SeqCst);
        let visit = Visit(self);
        session::is_on().then_some(visit)
    }

    /// True if a thread is [visiting](Process::visit).
    pub(crate) fn has_visitors(&self) -> bool {
        self.visitors.load(Ordering::SeqCst) != 0
    }

    /// Makes the process one that is not introduced.
    ///
    /// # Safety
    ///
    /// No thread is inside the hook, or visiting.
    pub(crate) unsafe fn reset(&self) {
        let counters = COUNTERS.swap(ptr::null_mut(), Ordering::AcqRel);
        if self.introduced.swap(0, Ordering::AcqRel) == 0 {
            // In a child that has not been introduced, the counters are its parent's.
            if !counters.is_null() {
                rings::leave_header(counters);
            }
        } else {
            // SAFETY: the producer was written before `introduced` was set. `unmap_ring` requires
            // that nobody uses the ring: this function's `# Safety`.
            unsafe { connect::unmap_ring(*(*self.common.get()).assume_init_ref().ring()) };
        }
        self.is_unreached.store(0, Ordering::Relaxed);
        IMAGE.store(u32::MAX, Ordering::Relaxed);
        FORKS.store(0, Ordering::Relaxed);
    }

    /// Obtains a ring for the calling thread: with the introduction for a process's first thread,
    /// by request for others.
    pub(crate) fn obtain_ring(&self) -> Result<Ring, Refusal> {
        if self.introduced.load(Ordering::Acquire) == 0 {
            let _lock = self.lock.lock();
            if self.introduced.load(Ordering::Acquire) == 0 {
                return self.introduce();
            }
        }
        let arguments = RequestArguments { kind: RequestKind::Ring, image: image(), fork: 0, node_base: 0 };
        connect::request(session::address(), session::known_page(), arguments).map(|granted| granted.ring)
    }

    /// Makes the first contact with the collector. Call under the lock.
    fn introduce(&self) -> Result<Ring, Refusal> {
        if is_in_vfork_child() {
            return Err(Refusal::Temporary);
        }
        let parent = image();
        let arguments = if parent == u32::MAX {
            let kind = if session::is_late() { RequestKind::Attach } else { RequestKind::Image };
            RequestArguments { kind, image: 0, fork: 0, node_base: 0 }
        } else {
            leave_rings_to_parent();
            // SAFETY: in a fresh child there is one thread, which is here.
            unsafe {
                tree::start_child();
                supplied::start_child();
            }
            rules::start_child();
            walk::start_child();
            thread::start_child();
            RequestArguments {
                kind: RequestKind::Fork,
                image: parent,
                fork: FORKS.load(Ordering::Relaxed),
                node_base: tree::next_id().0,
            }
        };
        let granted = connect::request(session::address(), session::known_page(), arguments)
            .inspect_err(|_| self.count_unreached())?;
        let Granted { image, page: Some(page), common: Some(common), ring } = granted else {
            return Err(Refusal::Permanent);
        };
        let of_parent = COUNTERS.swap(ptr::from_ref(&common.header().image).cast_mut(), Ordering::AcqRel);
        if !of_parent.is_null() {
            rings::leave_header(of_parent);
        }
        // SAFETY: no other reference to the cell exists: `introduce` runs under `lock`, while
        // `introduced` is 0, and `with_common` uses the cell only once it is not.
        unsafe { (*self.common.get()).write(Producer::new(common)) };
        session::set_page(page);
        IMAGE.store(image, Ordering::Relaxed);
        FORKS.store(0, Ordering::Relaxed);
        self.id.store(sys::process_id(), Ordering::Relaxed);
        self.introduced_at.store(sys::monotonic_nanoseconds(), Ordering::Relaxed);
        self.introduced.store(1, Ordering::Release);
        Ok(ring)
    }

    /// Counts this process as unrecorded, once, in the counters of the parent's image, which it has
    /// inherited.
    #[cold]
    fn count_unreached(&self) {
        let Some(counters) = self.counters() else { return };
        let is_over = session::known_page().is_none_or(SessionPage::is_over);
        if is_over || self.is_unreached.swap(1, Ordering::Relaxed) != 0 {
            return;
        }
        let index = counters.children_unreached.fetch_add(1, Ordering::Relaxed);
        if let Some(child) = counters.unreached.get(index as usize) {
            let flag = if session::is_in_other_network() { IN_OTHER_NETWORK } else { 0 };
            child.store(sys::process_id() | flag, Ordering::Relaxed);
        }
    }

    /// Returns the id of the process, as its own pid namespace numbers it. In a child of `vfork`
    /// this is not the caller's id.
    pub(crate) fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    /// Lends the common ring of the process, under a lock in the ring itself, so that the process
    /// page's lock stays free. `None` if the lock is not free in time, and if the process is not
    /// introduced.
    pub(crate) fn with_common<R>(&self, wait: Wait, lend: impl FnOnce(&mut Producer) -> R) -> Option<R> {
        if self.introduced.load(Ordering::Acquire) == 0 {
            return None;
        }
        // SAFETY: written before `introduced`; only the ring's address is read before the lock is
        // held.
        let ring = *unsafe { (*self.common.get()).assume_init_ref() }.ring();
        let lock = &ring.header().common;
        let _guard = match wait {
            Wait::Not => lock.try_lock()?,
            Wait::Milliseconds(milliseconds) => lock.lock_within(milliseconds)?,
            Wait::Ever => lock.lock(),
        };
        // SAFETY: the producer was written before `introduced` was set, which was seen above. Every
        // exclusive reference to it is made here, under the lock that `_guard` holds; a thread
        // without the lock reads the ring's address only, which does not change.
        Some(lend(unsafe { (*self.common.get()).assume_init_mut() }))
    }

    /// Returns the counters of this image, which the collector reads; the parent's, if this process
    /// could not introduce itself.
    pub(crate) fn counters(&self) -> Option<&'static ImageCounters> {
        // SAFETY: null, or in the header of a common ring, whose mapping is inherited, and stays
        // until `reset`, which makes `COUNTERS` null first. By the contract of `reset` no thread is
        // inside the hook then, or visiting, and others do not come here.
        unsafe { COUNTERS.load(Ordering::Acquire).as_ref() }
    }

    /// True if the collector knows this process.
    pub(crate) fn is_introduced(&self) -> bool {
        self.introduced.load(Ordering::Acquire) != 0
    }

    /// Returns the nanoseconds since the process was introduced.
    pub(crate) fn age(&self) -> u64 {
        sys::monotonic_nanoseconds().saturating_sub(self.introduced_at.load(Ordering::Relaxed))
    }

    /// Notes that the process begins to exit. Returns true the first time.
    pub(crate) fn begin_exit(&self) -> bool {
        self.is_exiting.swap(1, Ordering::Relaxed) == 0
    }

    /// Returns the turns of threads that move mappings.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Returns the thread blocks whose threads have ended, with their rings.
    pub(crate) fn blocks(&self) -> &FreeList<ThreadBlock> {
        &self.blocks
    }

    /// Reports what memory the recorder takes in this process, and keeps the stack tree within what
    /// is left of the limit.
    pub(crate) fn report_memory(&self) {
        if let Some(counters) = self.counters().filter(|_| self.is_introduced()) {
            let of_sample = if session::samples() { addresses::BYTES } else { 0 };
            let blocks = thread::blocks() * ThreadBlock::BYTES_LEAST + walk::bytes();
            let fixed_bytes = LIBRARY_BYTES + blocks + rules::bytes() + of_sample;
            counters.private_bytes.store(fixed_bytes + tree::bytes(), Ordering::Relaxed);
            match session::page().target_memory.load(Ordering::Relaxed) {
                0 => {}
                limit => tree::limit(limit.saturating_sub(fixed_bytes)),
            }
        }
    }
}
