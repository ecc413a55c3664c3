//! Raw system calls in safe or narrowly unsafe form. None touches `errno`, allocates or enters
//! libc.

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::arch::{self, nr};
use crate::{program, sandbox};

pub mod mappings;

/// A negated kernel error: `Errno(2)` is `ENOENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Converts the kernel's result into a value or an error.
pub fn check(answer: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&answer) { Err(Errno(-answer as i32)) } else { Ok(answer as usize) }
}

const PROT_NONE: usize = 0;
const PROT_READ_WRITE: usize = 1 | 2;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MADV_DONTNEED: usize = 4;
const MADV_HUGEPAGE: usize = 14;
const MADV_DONTDUMP: usize = 16;
const MADV_WIPEONFORK: usize = 18;
const CLOCK_MONOTONIC: usize = 1;
const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
const PR_GET_NAME: usize = 16;

/// Makes a system call, unless the program has put itself in a [sandbox]: then the result is
/// `EPERM`.
///
/// # Safety
///
/// The contract of [`arch::syscall`]: every pointer argument is valid for what the kernel does with
/// it, and the call has no effect on memory or process state that breaks assumptions of other code.
#[inline]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    const EPERM: isize = 1;
    if sandbox::is_entered() {
        return -EPERM;
    }
    // SAFETY: `arch::syscall` asks for valid pointers and for no effect that breaks assumptions.
    // This function's `# Safety` asks for the same, and the arguments are passed unchanged.
    unsafe { arch::syscall(number, arguments) }
}

/// Maps `length` bytes of zeroed private memory. Pages cost nothing until touched.
pub fn map_private(length: usize) -> Result<*mut u8, Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks unused addresses, so no existing mapping is
    // affected.
    let start = check(unsafe { call(nr::MMAP, [0, length, PROT_READ_WRITE, flags, usize::MAX, 0]) })?;
    mappings::enter(start, length);
    Ok(ptr::with_exposed_provenance_mut(start))
}

/// The size of the inaccessible page on either side of the memory that [`map_guarded`] maps.
pub const GUARD: usize = 4096;

/// The size of a large page.
const HUGE: usize = 2 << 20;

/// Maps zeroed memory as [`map_private`] does, between two inaccessible pages. `length` is a
/// multiple of the page size. If `huge`, the memory is aligned to large pages and uses them as far
/// as the system has them, for tables that are read at random; touched memory is then charged in
/// steps of 2 MiB.
pub fn map_guarded(length: usize, huge: bool) -> Result<*mut u8, Errno> {
    const ENOMEM: Errno = Errno(12);
    let slack = if huge { HUGE } else { 0 };
    let reserved = length.checked_add(2 * GUARD + slack).ok_or(ENOMEM)?;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks unused addresses, so no existing mapping is
    // affected. No argument is a pointer.
    let base = check(unsafe { call(nr::MMAP, [0, reserved, PROT_NONE, flags, usize::MAX, 0]) })?;
    let start = if huge { (base + GUARD).next_multiple_of(HUGE) } else { base + GUARD };
    let (front, end) = (start - GUARD, start + length + GUARD);
    // SAFETY: all within the mapping made above, which nobody else knows. Failures to cut off the
    // unused ends do not matter: they would stay mapped, inaccessible.
    unsafe {
        if front > base {
            call(nr::MUNMAP, [base, front - base, 0, 0, 0, 0]);
        }
        if base + reserved > end {
            call(nr::MUNMAP, [end, base + reserved - end, 0, 0, 0, 0]);
        }
        if let Err(error) = check(call(nr::MPROTECT, [start, length, PROT_READ_WRITE, 0, 0, 0])) {
            call(nr::MUNMAP, [front, end - front, 0, 0, 0, 0]);
            return Err(error);
        }
        if huge {
            // Without large pages, or if they are switched off, the kernel refuses, and the mapping
            // is as it was.
            call(nr::MADVISE, [start, length, MADV_HUGEPAGE, 0, 0, 0]);
        }
    }
    mappings::enter(start, length);
    Ok(ptr::with_exposed_provenance_mut(start))
}

/// Unmaps memory and its guard pages.
///
/// # Safety
///
/// [`map_guarded`] returned `start` for `length`, and nothing refers to the memory any more.
pub unsafe fn unmap_guarded(start: *mut u8, length: usize) {
    mappings::remove(start.expose_provenance());
    // SAFETY: the caller owns the range by the contract above, and the guards with it, by
    // `map_guarded`.
    unsafe { call(nr::MUNMAP, [start.expose_provenance() - GUARD, length + 2 * GUARD, 0, 0, 0, 0]) };
}

/// Gives the physical memory of a part of a private mapping back; it reads as zero from now on.
/// False if the kernel refuses, as it does for memory that the program has locked (mlockall(2)), or
/// in a [sandbox]: then the content is as it was.
///
/// # Safety
///
/// The range is page-aligned and part of a private mapping that the caller owns; its content is not
/// needed any more.
pub unsafe fn discard(start: *mut u8, length: usize) -> bool {
    // SAFETY: MADV_DONTNEED zeroes the pages that the range touches. By this function's `# Safety`
    // those are exactly the range, they are the caller's own, and nobody needs their content.
    unsafe { call(nr::MADVISE, [start.expose_provenance(), length, MADV_DONTNEED, 0, 0, 0]) == 0 }
}

/// Maps `length` bytes of the file `fd` shared, for reading and writing.
pub fn map_shared(fd: i32, length: usize) -> Result<*mut u8, Errno> {
    // SAFETY: without MAP_FIXED the kernel picks unused addresses, so no existing mapping is
    // affected. The call leaves the descriptor and the file as they are, and refuses a wrong
    // descriptor.
    let answer = unsafe { call(nr::MMAP, [0, length, PROT_READ_WRITE, MAP_SHARED, fd as usize, 0]) };
    check(answer).map(ptr::with_exposed_provenance_mut)
}

/// Maps `length` bytes of the file `fd` for reading.
pub fn map_file(fd: i32, length: usize) -> Result<*mut u8, Errno> {
    const PROT_READ: usize = 1;
    // SAFETY: as for `map_shared`: without MAP_FIXED no existing mapping is affected, and a wrong
    // descriptor is refused.
    let answer = unsafe { call(nr::MMAP, [0, length, PROT_READ, MAP_PRIVATE, fd as usize, 0]) };
    check(answer).map(ptr::with_exposed_provenance_mut)
}

/// Maps `length` bytes of the file `fd` shared, for reading and writing, in the place of an earlier
/// mapping: whoever reads there sees the old content or the new.
///
/// # Safety
///
/// `start` and `length` are multiples of the page size. The range was mapped by [`map_shared`] or
/// [`replace_private`], or is a part of such a mapping. Its users cope with another content at any
/// moment.
pub unsafe fn replace_shared(fd: i32, start: *mut u8, length: usize) -> Result<(), Errno> {
    let flags = MAP_SHARED | MAP_FIXED;
    // SAFETY: MAP_FIXED replaces exactly the range, which is the caller's own, and whose users cope
    // with that by this function's `# Safety`.
    let answer = unsafe { call(nr::MMAP, [start as usize, length, PROT_READ_WRITE, flags, fd as usize, 0]) };
    check(answer).map(drop)
}

/// Maps `length` bytes of zeroed private memory in the place of an earlier mapping.
///
/// # Safety
///
/// As for [`replace_shared`].
pub unsafe fn replace_private(start: *mut u8, length: usize) -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    // SAFETY: MAP_FIXED replaces exactly the range, which is the caller's own, and whose users cope
    // with that by this function's `# Safety`.
    let answer = unsafe { call(nr::MMAP, [start as usize, length, PROT_READ_WRITE, flags, usize::MAX, 0]) };
    check(answer).map(drop)
}

/// Makes every thread of the process that runs pass a full memory barrier: what this thread has
/// stored before is visible to them, and what they have stored before is visible to this thread
/// (membarrier(2)). False if the kernel refuses, as kernels before 4.14 and sandboxes do.
pub fn barrier_of_all_threads() -> bool {
    const PRIVATE_EXPEDITED: usize = 8;
    const REGISTER_PRIVATE_EXPEDITED: usize = 16;
    // SAFETY: `call` requires arguments that suit the call, and no effect on other code's state:
    // the call takes numbers, and only orders memory accesses. To register is a precondition, and
    // may be repeated.
    let ask = |command: usize| unsafe { call(nr::MEMBARRIER, [command, 0, 0, 0, 0, 0]) == 0 };
    ask(REGISTER_PRIVATE_EXPEDITED) && ask(PRIVATE_EXPEDITED)
}

/// Unmaps memory.
///
/// # Safety
///
/// The range was mapped by [`map_private`], [`map_shared`] or [`map_file`], and nothing refers to
/// it any more.
pub unsafe fn unmap(start: *mut u8, length: usize) {
    mappings::remove(start.expose_provenance());
    // SAFETY: the caller owns the range and gives it up. The kernel's result is ignored: the only
    // failures are unaligned ranges, which the two map functions never return.
    unsafe { call(nr::MUNMAP, [start as usize, length, 0, 0, 0, 0]) };
}

/// Asks the kernel to zero this private mapping in a forked child. Kernel 4.14 and later.
///
/// # Safety
///
/// The range was mapped by [`map_private`], and its users can cope with its being zeroed in a
/// forked child.
pub unsafe fn wipe_on_fork(start: *mut u8, length: usize) -> Result<(), Errno> {
    // SAFETY: the caller owns the range; the advice changes nothing in this process.
    check(unsafe { call(nr::MADVISE, [start as usize, length, MADV_WIPEONFORK, 0, 0, 0]) }).map(drop)
}

/// Leaves a mapping out of core dumps.
pub fn dont_dump(start: *mut u8, length: usize) {
    // SAFETY: the advice affects core dumps only; a wrong range is refused by the kernel.
    unsafe { call(nr::MADVISE, [start as usize, length, MADV_DONTDUMP, 0, 0, 0]) };
}

/// The approximate duration of a wait in a sandbox: a pause instruction takes 40 to 140 ticks.
pub const SPIN_NANOSECONDS: u64 = 20_000;
const SPINS: u32 = 500;

/// Sleeps while `*word == expected`, until woken, interrupted or `milliseconds` have passed.
///
/// The wait works between processes. Every return may be spurious; in a [sandbox] it always is,
/// after about [`SPIN_NANOSECONDS`].
pub fn futex_wait(word: &AtomicU32, expected: u32, milliseconds: Option<u32>) {
    if sandbox::is_entered() {
        return (0..SPINS).for_each(|_| core::hint::spin_loop());
    }
    let timeout = milliseconds.map(|ms| [u64::from(ms / 1000), u64::from(ms % 1000) * 1_000_000]);
    let timeout = timeout.as_ref().map_or(0, |timeout| timeout.as_ptr() as usize);
    // SAFETY: the word is a live AtomicU32 and the timeout, if given, a live `struct timespec` of
    // two 64-bit words.
    unsafe { call(nr::FUTEX, [word.as_ptr() as usize, FUTEX_WAIT, expected as usize, timeout, 0, 0]) };
}

/// Wakes up to `count` sleepers on `word`.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    // SAFETY: the address is that of a live, aligned word. FUTEX_WAKE uses it as a key, and writes
    // nothing; to be woken without need is no harm, because every wait may end so.
    unsafe { call(nr::FUTEX, [word.as_ptr() as usize, FUTEX_WAKE, count as usize, 0, 0, 0]) };
}

/// Returns this process's id, as its own pid namespace numbers it.
pub fn process_id() -> u32 {
    // SAFETY: getpid has no arguments, so no pointers, and changes nothing.
    check(unsafe { call(nr::GETPID, [0; 6]) }).map_or(0, |id| id as u32)
}

/// The distance from the thread pointer to the word in which the C library has the thread's id; 0
/// if it is not known.
static THREAD_ID_AT: AtomicUsize = AtomicUsize::new(0);

/// Finds out where the C library has the id of a thread, for the time in a [sandbox]: glibc for
/// x86-64, in all versions of this century, at the same distance from the thread pointer. Call in
/// the first thread of a program, before it can have made a process by a raw system call, in which
/// the word is stale.
///
/// # Safety
///
/// The C library is glibc: the descriptor of a thread begins at the thread pointer, and is longer.
pub unsafe fn find_thread_id() {
    const DISTANCE: usize = 0x2d0;
    // SAFETY: by this function's `# Safety` the word is a part of this thread's descriptor.
    let word = unsafe { thread_id_word(DISTANCE) };
    if word != 0 && word == thread_id() {
        THREAD_ID_AT.store(DISTANCE, Ordering::Relaxed);
    }
}

/// Forgets what [`find_thread_id`] has found: threads without a ring record nothing in a sandbox
/// then.
pub fn forget_thread_id() {
    THREAD_ID_AT.store(0, Ordering::Relaxed);
}

/// Reads the word at a distance from the thread pointer.
///
/// # Safety
///
/// It is a part of the C library's descriptor of this thread.
unsafe fn thread_id_word(distance: usize) -> u32 {
    let address = arch::thread_pointer().wrapping_add(distance);
    // SAFETY: `read_volatile` requires a mapped, aligned word: this function's `# Safety`; the
    // descriptor is aligned to more than 4 bytes, and so is the distance.
    unsafe { ptr::with_exposed_provenance::<u32>(address).read_volatile() }
}

/// Returns this thread's id, as its own pid namespace numbers it. In a [sandbox] it is the one that
/// the C library has; 0 if that is not known.
pub fn thread_id() -> u32 {
    if sandbox::is_entered() {
        return match THREAD_ID_AT.load(Ordering::Relaxed) {
            0 => 0,
            // SAFETY: `find_thread_id` has found the word there, in a descriptor of this C library.
            distance => unsafe { thread_id_word(distance) },
        };
    }
    // SAFETY: gettid has no arguments, so no pointers, and changes nothing.
    check(unsafe { call(nr::GETTID, [0; 6]) }).map_or(0, |id| id as u32)
}

/// Returns this thread's name as the kernel has it, NUL-padded.
pub fn thread_name() -> [u8; 16] {
    let mut name = [0_u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, terminator included, to its argument.
    unsafe { call(nr::PRCTL, [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    name
}

/// Returns the time of the monotonic clock in nanoseconds.
pub fn monotonic_nanoseconds() -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: the kernel writes one `struct timespec`, two 64-bit words, to the second argument.
    unsafe { call(nr::CLOCK_GETTIME, [CLOCK_MONOTONIC, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0] * 1_000_000_000 + time[1]
}

/// Reads bytes from a descriptor, and returns how many; 0 at the end. An interrupted call is made
/// again.
pub fn read(fd: i32, bytes: &mut [u8]) -> Result<usize, Errno> {
    const EINTR: Errno = Errno(4);
    loop {
        // SAFETY: the kernel writes at most that many bytes to the live, exclusive slice.
        match check(unsafe { call(nr::READ, [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0]) }) {
            Err(EINTR) => {}
            answer => return answer,
        }
    }
}

/// Writes some bytes to a descriptor, and returns how many. An interrupted call is made again.
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    const EINTR: Errno = Errno(4);
    loop {
        // SAFETY: the kernel reads that many bytes of the live slice.
        match check(unsafe { call(nr::WRITE, [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) }) {
            Err(EINTR) => {}
            answer => return answer,
        }
    }
}

/// Writes all bytes to a descriptor.
pub fn write_all(fd: i32, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let count = write(fd, bytes)?;
        bytes = bytes.get(count..).unwrap_or(&[]);
    }
    Ok(())
}

/// Opens a file, with the flags and the mode of open(2).
pub fn open(path: &core::ffi::CStr, flags: usize, mode: usize) -> Result<i32, Errno> {
    // SAFETY: open(2) reads the path up to its NUL, which a `CStr` has. A new descriptor, which
    // only the caller knows, breaks no assumption of other code.
    check(unsafe { call(nr::OPEN, [path.as_ptr().expose_provenance(), flags, mode, 0, 0, 0]) }).map(|fd| fd as i32)
}

/// Gives a new file, open for writing, its length, with room on the disk for all of it: a write to
/// a mapping of a file that has no room ends the process. New bytes are zero.
pub fn allocate(fd: i32, length: usize) -> Result<(), Errno> {
    const EOPNOTSUPP: Errno = Errno(95);
    // SAFETY: no argument is a pointer, and the callers own their files.
    match check(unsafe { call(nr::FALLOCATE, [fd as usize, 0, 0, length, 0, 0]) }) {
        // By hand, on file systems that cannot.
        Err(EOPNOTSUPP) => {
            let zeroes = [0; 4096];
            let rest = zeroes.get(..length % zeroes.len()).unwrap_or(&[]);
            (0..length / zeroes.len()).try_for_each(|_| write_all(fd, &zeroes))?;
            write_all(fd, rest)
        }
        answer => answer.map(drop),
    }
}

/// Sets the status flags of a file that the caller opened itself, such as O_NONBLOCK.
pub fn set_flags(fd: i32, flags: usize) -> Result<(), Errno> {
    const F_SETFL: usize = 4;
    // SAFETY: no argument is a pointer, and only the caller uses the open file.
    check(unsafe { call(nr::FCNTL, [fd as usize, F_SETFL, flags, 0, 0, 0]) }).map(drop)
}

/// Closes a descriptor that the caller opened itself.
pub fn close(fd: i32) {
    // SAFETY: closing affects no memory. The callers own their descriptors.
    unsafe { call(nr::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Duplicates a descriptor to the lowest number that is free; the copy is closed on exec.
pub fn duplicate(fd: i32) -> Result<i32, Errno> {
    duplicate_from(fd, 0)
}

/// Duplicates a descriptor to the first free number from `least` on, closed on exec.
pub fn duplicate_from(fd: i32, least: i32) -> Result<i32, Errno> {
    const F_DUPFD_CLOEXEC: usize = 1030;
    // SAFETY: no argument is a pointer. F_DUPFD_CLOEXEC leaves all open descriptors as they are,
    // and makes one at a free number, which only the caller knows.
    check(unsafe { call(nr::FCNTL, [fd as usize, F_DUPFD_CLOEXEC, least as usize, 0, 0, 0]) }).map(|fd| fd as i32)
}

/// Runs a function with a descriptor table of its own, which is empty (before Linux 5.9, the lowest
/// `free` numbers in it are free): in a helper thread that shares the memory, but not the
/// descriptors, while this thread is suspended. For a program that has no descriptor left. `None`
/// if no such thread can be made, or if a system call filter is in force, which might react to it.
///
/// The helper keeps no descriptor open that the program may want closed, takes no signal meant for
/// the program, and has ended when this returns: a program that counts its threads does not see it.
pub fn with_descriptors<R>(free: i32, run: impl FnOnce() -> R) -> Option<R> {
    const CLONE_VM: usize = 0x100;
    const CLONE_FS: usize = 0x200;
    const CLONE_SIGHAND: usize = 0x800;
    const CLONE_VFORK: usize = 0x4000;
    /// With this flag the peer of a socket is this process, and no parent is notified of the end.
    const CLONE_THREAD: usize = 0x1_0000;
    const PR_GET_SECCOMP: usize = 21;
    struct Task<F, R> {
        free: i32,
        run: Option<F>,
        answer: Option<R>,
    }
    extern "C" fn helper<F: FnOnce() -> R, R>(task: *mut u8) {
        // SAFETY: `task` is the live value below, whose owner sleeps while we run.
        let task = unsafe { &mut *task.cast::<Task<F, R>>() };
        // SAFETY: closes descriptors of a table that is this thread's own: `CLONE_FILES` was not
        // asked for.
        if unsafe { call(nr::CLOSE_RANGE, [0, u32::MAX as usize, 0, 0, 0, 0]) } != 0 {
            (0..task.free).for_each(close);
        }
        task.answer = task.run.take().map(|run| run());
    }
    fn pointer<F: FnOnce() -> R, R>(_: &Task<F, R>) -> extern "C" fn(*mut u8) {
        helper::<F, R>
    }
    // SAFETY: no effect; the result is 0 if no filter is in force.
    if unsafe { call(nr::PRCTL, [PR_GET_SECCOMP, 0, 0, 0, 0, 0]) } != 0 {
        return None;
    }
    let mut task = Task { free, run: Some(run), answer: None };
    without_signals(|| {
        let flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_VFORK | CLONE_THREAD;
        // SAFETY: the flags contain those that the contract asks for; the helper inherits a mask
        // that blocks every signal; it does only what this thread could do, with `task`, which
        // lives until the helper has ended.
        let helper = unsafe { arch::run_in_clone(flags, pointer(&task), ptr::from_mut(&mut task).cast()) };
        if helper > 0 {
            wait_for_end(helper as usize);
        }
    });
    task.answer
}

/// Runs a function while no signal handler interrupts this thread: signals that can be blocked are
/// delayed. In a [sandbox] they are not, because no system call is made there.
pub fn without_signals<R>(run: impl FnOnce() -> R) -> R {
    const SIG_SETMASK: usize = 2;
    let (all, mut before) = (u64::MAX, 0_u64);
    let (new, old) = (ptr::from_ref(&all).expose_provenance(), ptr::from_mut(&mut before).expose_provenance());
    // SAFETY: the kernel reads one live signal set of 8 bytes, and writes the other.
    let is_blocked = unsafe { call(nr::RT_SIGPROCMASK, [SIG_SETMASK, new, old, 8, 0, 0]) == 0 };
    let result = run();
    if is_blocked {
        // Not by `call`: another thread may have entered a sandbox meanwhile, and this one would
        // keep its signals blocked for ever.
        // SAFETY: the kernel reads one live signal set of 8 bytes, which it has written above.
        unsafe { arch::syscall(nr::RT_SIGPROCMASK, [SIG_SETMASK, old, 0, 8, 0, 0]) };
    }
    result
}

/// Waits until a thread of this process that is about to end no longer exists, for a bounded number
/// of attempts: the kernel needs a few microseconds, unless it has no processor for it.
fn wait_for_end(thread: usize) {
    const ITERATIONS: usize = 10_000;
    for _ in 0..ITERATIONS {
        // SAFETY: signal 0 is not sent: the kernel only checks whether the thread exists. Yielding
        // has no other effect.
        unsafe {
            if call(nr::TGKILL, [process_id() as usize, thread, 0, 0, 0, 0]) != 0 {
                return;
            }
            call(nr::SCHED_YIELD, [0; 6]);
        }
    }
}

/// Reads the start of a file into `head`. Returns the number of bytes, and true if the file would
/// run with rights that this process does not have. `None` if it cannot be read.
///
/// # Safety
///
/// `path` points to a NUL-terminated string.
pub unsafe fn read_head(path: *const u8, head: &mut [u8]) -> Option<(usize, bool)> {
    const O_CLOEXEC: usize = 0o2000000;
    // SAFETY: open reads the path up to its NUL, with which it ends by this function's `# Safety`.
    // The new descriptor is known here only.
    let fd = check(unsafe { call(nr::OPEN, [path as usize, O_CLOEXEC, 0, 0, 0, 0]) }).ok()?;
    let mut status = [0_u64; 18];
    // SAFETY: fstat writes one `struct stat`, which has 144 bytes on x86-64, to its second
    // argument: `status`, which is live, has as many, and any bits are valid integers.
    let stated = check(unsafe { call(nr::FSTAT, [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0]) });
    // SAFETY: the kernel writes at most that many bytes to the live slice.
    let read = check(unsafe { call(nr::READ, [fd, head.as_mut_ptr() as usize, head.len(), 0, 0, 0]) });
    close(fd as i32);
    stated.ok()?;
    // Mode at 24, user at 28, group at 32.
    let [_, _, _, mode_and_user, group, ..] = status;
    // SAFETY: geteuid has no arguments, so no pointers, and changes nothing.
    let user = unsafe { call(nr::GETEUID, [0; 6]) as u32 };
    // SAFETY: getegid has no arguments, so no pointers, and changes nothing.
    let own_group = unsafe { call(nr::GETEGID, [0; 6]) as u32 };
    let owner = ((mode_and_user >> 32) as u32, group as u32);
    Some((read.ok()?, program::gains_rights(mode_and_user as u32, owner, (user, own_group))))
}

/// Returns the inode number of a file; `None` if it cannot be opened.
pub fn inode(path: &core::ffi::CStr) -> Option<u64> {
    const O_CLOEXEC: usize = 0o2000000;
    // SAFETY: the kernel reads the string, which ends with a zero.
    let fd = check(unsafe { call(nr::OPEN, [path.as_ptr() as usize, O_CLOEXEC, 0, 0, 0, 0]) }).ok()?;
    let mut status = [0_u64; 18];
    // SAFETY: fstat writes one `struct stat`, which has 144 bytes on x86-64, to its second
    // argument: `status`, which is live, has as many, and any bits are valid integers.
    let stated = check(unsafe { call(nr::FSTAT, [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0]) });
    close(fd as i32);
    let [_, inode, ..] = status;
    stated.ok().map(|_| inode)
}

/// Returns the device and the inode number of an open file; `None` if the descriptor is not open.
pub fn identity_of(fd: i32) -> Option<[u64; 2]> {
    let mut status = [0_u64; 18];
    // SAFETY: fstat writes one `struct stat`, which has 144 bytes on x86-64, to its second
    // argument: `status`, which is live, has as many, and any bits are valid integers.
    check(unsafe { call(nr::FSTAT, [fd as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0]) }).ok()?;
    let [device, inode, ..] = status;
    Some([device, inode])
}

/// Returns a number for the present content of a file: a hash of its device, inode, length and time
/// of the last change. `None` if there is no such file. One system call; nothing is opened.
pub fn file_identity(path: &core::ffi::CStr) -> Option<u64> {
    let mut status = [0_u64; 18];
    // SAFETY: stat reads the string, which ends with a zero, and writes one `struct stat`, which
    // has 144 bytes on x86-64: `status`, which is live, has as many, and any bits are valid
    // integers.
    check(unsafe { call(nr::STAT, [path.as_ptr() as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0]) }).ok()?;
    // The length at 48, the time of the last change at 88 and 96: `struct stat` of the kernel.
    let [device, inode, _, _, _, _, length, _, _, _, _, seconds, nanoseconds, ..] = status;
    let words = [device, inode, length, seconds, nanoseconds];
    // FNV-1a, by words.
    Some(words.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
        (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    }))
}

/// Reads a file from an offset on. Returns the number of bytes read, up to the slice's length;
/// `None` if it cannot be read.
///
/// # Safety
///
/// `path` points to a NUL-terminated string.
pub unsafe fn read_at(path: *const u8, offset: u64, bytes: &mut [u8]) -> Option<usize> {
    const O_CLOEXEC: usize = 0o2000000;
    // SAFETY: open reads the path up to its NUL, with which it ends by this function's `# Safety`.
    // The new descriptor is known here only.
    let fd = check(unsafe { call(nr::OPEN, [path as usize, O_CLOEXEC, 0, 0, 0, 0]) }).ok()?;
    // SAFETY: the kernel writes at most that many bytes to the live slice.
    let read =
        check(unsafe { call(nr::PREAD64, [fd, bytes.as_mut_ptr() as usize, bytes.len(), offset as usize, 0, 0]) });
    close(fd as i32);
    read.ok()
}

/// The maximum number of ranges of memory that the kernel reads at once.
const PIECES_MAX: usize = 1024;

/// Reads memory of this process that may be unmapped, or written meanwhile: an array of words at
/// each of the first of `addresses`, as many as there are elements in `words`, at most 1024.
/// Returns how many could be read before the first failure; 0 if the kernel does not support it.
pub fn read_own_memory<const WORDS: usize>(addresses: &[u64], words: &mut [[u64; WORDS]]) -> usize {
    let count = addresses.len().min(words.len()).min(PIECES_MAX);
    let size = size_of::<[u64; WORDS]>();
    let mut pieces = [[0_usize; 2]; PIECES_MAX];
    for (piece, &address) in pieces.iter_mut().zip(addresses) {
        *piece = [address as usize, size];
    }
    let own = [words.as_mut_ptr() as usize, count * size];
    let (own, pieces) = ((&raw const own) as usize, pieces.as_ptr() as usize);
    // SAFETY: `struct iovec` is an address and a length. The kernel writes at most `count * size`
    // bytes, which the live, exclusive slice has, and any bits are valid integers. It reads the
    // other addresses itself, checking each, and stops at the first that cannot be read. The
    // process is this one, so no other is touched.
    let answer = unsafe { call(nr::PROCESS_VM_READV, [process_id() as usize, own, 1, pieces, count, 0]) };
    check(answer).map_or(0, |read| read / size)
}

/// Reads ranges of this process's memory like [`read_own_memory`], each given by its address and
/// length in bytes, one after the other into `words`. Returns the number of bytes that could be
/// read before the first failure. Reads the first 1024 ranges, as far as there is room, and at most
/// 2 GiB.
pub fn read_own_pieces(pieces: &[[u64; 2]], words: &mut [u64]) -> usize {
    let own = [words.as_mut_ptr() as usize, size_of_val(words)];
    let (own, count) = ((&raw const own) as usize, pieces.len().min(PIECES_MAX));
    // SAFETY: `struct iovec` is an address and a length, of a word each. The kernel writes at most
    // as many bytes as the live, exclusive slice has, and any bits are valid integers. It reads the
    // other addresses itself, checking each.
    let answer =
        unsafe { call(nr::PROCESS_VM_READV, [process_id() as usize, own, 1, pieces.as_ptr() as usize, count, 0]) };
    check(answer).unwrap_or(0)
}

/// True if the eight bytes at `address` (rounded down to a multiple of 8) can be read; does not
/// read them here. In a [sandbox] that is not known, and the result is false.
///
/// One system call: the kernel copies a signal set from there before it checks the (invalid)
/// request.
pub fn is_readable(address: usize) -> bool {
    const EFAULT: isize = -14;
    let invalid_request = usize::MAX;
    // SAFETY: with a request that is none of SIG_BLOCK, SIG_UNBLOCK and SIG_SETMASK the kernel
    // changes nothing: it returns EFAULT if the set cannot be read and EINVAL if it can.
    let answer = unsafe { call(nr::RT_SIGPROCMASK, [invalid_request, address & !7, 0, 8, 0, 0]) };
    answer != EFAULT && !sandbox::is_entered()
}

#[cfg(all(test, not(miri)))]
mod tests;
