//! Arenas over the program's own allocator: its blocks, with totals and a limit for each arena.
//!
//! [`with_arenas`] adds the functions for arenas to an allocator's table. They allocate with the
//! allocator's plain functions, and enter each block in a register. The first arena
//! also installs a replacement, which handles the plain functions for the blocks in
//! the register: so a plain `free` or `realloc` of an arena's block keeps the totals right.
//!
//! **What is not seen**: a block that is freed past the hook table (by `__libc_free`, or by code in
//! a namespace of its own) stays in its arena's totals until malloc returns its address to an arena
//! again. So an arena that is disposed of with blocks in its totals may be empty: then there is a
//! message, and the program goes on. Its blocks are malloc's and stay valid. They are in no arena
//! from then on: the register has the generation of each block's arena.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::fatal::Part::{self, Decimal, Hex, Text};
use heapledger_core::fatal::{abort, print};
use heapledger_core::hooks::arena::{PointerInfo, pointer};
use heapledger_core::hooks::{self, Functions, Pointer, Replacement, dispatch};
use heapledger_core::lock::Lock;
use heapledger_core::sys;

use crate::blocks::{self, ArenaBlock};
use crate::forks::{self, AllLocks};
use crate::labels;
use crate::parameters::Settings;
use crate::table::{self, Entry};

/// Handles plain calls for blocks that are in arenas. It is the last replacement, next to the
/// allocator: the blocks in the register are the allocator's.
static REPLACEMENT: Replacement = Replacement {
    name: c"arenas".as_ptr(),
    order: i32::MAX,
    owns: Some(owns),
    functions: Functions {
        realloc: Some(realloc),
        free: Some(free),
        malloc_usable_size: Some(malloc_usable_size),
        ..Functions::EMPTY
    },
    ..Replacement::new(NEXT.as_ptr().cast())
};

/// The table below the replacement. It is not used: nothing is below but the allocator.
static NEXT: AtomicPtr<Functions> = AtomicPtr::new(ptr::null_mut());

/// Adds functions for arenas to the table of an allocator that has none; returns a table with some
/// unchanged. Without an allocator (its blocks come from nowhere) it has no effect either.
pub fn with_arenas(functions: Functions) -> Functions {
    if functions.create_arena.is_some() {
        return functions;
    }
    Functions {
        create_arena: Some(create_arena),
        dispose_arena: Some(dispose_arena),
        arena_malloc: Some(arena_malloc),
        arena_calloc: Some(arena_calloc),
        arena_realloc: Some(arena_realloc),
        arena_free: Some(arena_free),
        arena_memalign: Some(arena_memalign),
        arena_of: Some(arena_of),
        pointer_info: functions.pointer_info.or(Some(pointer_info)),
        ..functions
    }
}

/// Calls a function of the program's own allocator.
macro_rules! underlying {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: the table is static, and complete: functions for arenas are reached through it
        // alone, after `set_underlying`. The arguments are the program's own, or a block that the
        // allocator returned and that is still live.
        unsafe { (*dispatch::underlying_table()).$name.unwrap_unchecked()($($argument),*) }
    };
}

/// Installs the replacement, which the first arena needs. False if there is no room for it.
fn prepare() -> bool {
    static IS_READY: AtomicBool = AtomicBool::new(false);
    if IS_READY.load(Ordering::Acquire) {
        return true;
    }
    // Two threads may come here at a time: one of them finds the replacement installed.
    //
    // SAFETY: the table is static, and its functions keep the contract of `Replacement`: they
    // behave as the C functions, and call the allocator only. `owns` calls nothing, and takes the
    // lock of a part of the register, under which nobody calls or waits.
    match unsafe { hooks::install_replacement(&raw const REPLACEMENT) } {
        Ok(()) | Err(hooks::HookError::AlreadyInstalled) => {}
        Err(_) => return false,
    }
    IS_READY.store(true, Ordering::Release);
    true
}

/// The addresses of functions of the C library that are called here; 0 for those that there are
/// not.
#[derive(Clone, Copy, Debug, Default)]
pub struct CFunctions {
    /// `__register_atfork`, or `pthread_atfork`, whose arguments are the first three. Without one,
    /// a child that was forked while another thread used an arena must not use arenas.
    pub register_atfork: usize,
    /// `__errno_location`. Without it, `errno` is not set when an arena has reached its limit.
    pub errno_location: usize,
}

static REGISTER_ATFORK: AtomicUsize = AtomicUsize::new(0);
static ERRNO_LOCATION: AtomicUsize = AtomicUsize::new(0);

/// Sets the functions of the C library.
///
/// # Safety
///
/// Each address is 0 or that of such a function.
pub unsafe fn set_c_functions(functions: CFunctions) {
    REGISTER_ATFORK.store(functions.register_atfork, Ordering::Relaxed);
    ERRNO_LOCATION.store(functions.errno_location, Ordering::Relaxed);
}

/// Registers handlers around forks, once, after [`set_c_functions`]. To be called in the
/// constructor of the loaded object. Handlers of the program that were registered earlier run while
/// the locks are held, and may use arenas all the same. May call `malloc`.
pub fn watch_forks() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    type Handler = extern "C" fn();
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, *const c_void) -> c_int;
    let address = REGISTER_ATFORK.load(Ordering::Relaxed);
    if address == 0 || IS_DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: not 0, and so a function of this type, by the contract of `set_c_functions`.
    let register = unsafe { core::mem::transmute::<usize, Register>(address) };
    // SAFETY: the handlers are part of this loaded object, which is never unloaded, since it
    // defines the program's malloc. They only take and release locks.
    unsafe { register(fork_begins, fork_ends, fork_ends, ptr::null()) };
}

/// Held over a fork, also while `forks` has opened the others: two threads may fork at a time, and
/// a second one that took the others then would wait for the locks of the program that the first
/// one's handlers hold.
static FORKS: Lock = Lock::new();

extern "C" fn fork_begins() {
    core::mem::forget(FORKS.lock());
    before_fork();
}

extern "C" fn fork_ends() {
    after_fork();
    // SAFETY: `Lock::unlock` asks that this thread, or the one that it is a copy of, took the lock
    // and forgot the guard: the C library has called `fork_begins` before this.
    unsafe { FORKS.unlock() };
}

static LOCKS: AllLocks = AllLocks { take: before_fork, release: after_fork };

extern "C" fn before_fork() {
    labels::before_fork();
    table::before_fork();
    blocks::before_fork();
    forks::held(&LOCKS);
}

extern "C" fn after_fork() {
    forks::released();
    // SAFETY: `before_fork` was called in this thread, or the one that it is a copy of: by
    // `fork_begins`, or by `forks`, which calls the two in turn.
    unsafe {
        blocks::after_fork();
        table::after_fork();
        labels::after_fork();
    }
}

/// Returns a number for a new arena.
fn draw() -> u64 {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    // SplitMix64 over a counter, the clock and an address that the kernel randomises: the numbers
    // are to be unlikely by accident, not hard to guess.
    let count = DRAWN.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let seed = sys::monotonic_nanoseconds() ^ (&raw const DRAWN).addr() as u64 ^ u64::from(sys::process_id()) << 40;
    let mut word = seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// # Safety
///
/// The contract of `heapledger_arena_create`: parameters as [`Settings::read`] asks for.
unsafe extern "C" fn create_arena(parameters: *const c_void) -> usize {
    // SAFETY: this function's `# Safety` asks for what `Settings::read` asks for.
    let read = unsafe { Settings::read(parameters) };
    // The memory is malloc's: it cannot come from the program's functions.
    if read.has_chunks || !prepare() {
        return 0;
    }
    for _ in 0..4 {
        let id = draw();
        if let Some(entry) = table::insert(id, read.label(), read.flags) {
            if read.bytes_max != 0 {
                entry.bytes_max.store(read.bytes_max as u64, Ordering::Relaxed);
            }
            return id as usize;
        }
    }
    0
}

/// # Safety
///
/// The contract of `heapledger_arena_dispose`.
unsafe extern "C" fn dispose_arena(id: usize) {
    let entry = known(id);
    let blocks = entry.blocks.load(Ordering::Relaxed);
    if blocks != 0 {
        let bytes = entry.bytes.load(Ordering::Relaxed);
        let (disposed, live) = (Text(") was disposed of with "), Text(" live blocks of "));
        // Not fatal: they may have been freed unseen.
        print(&[
            Text("arena "),
            Hex(id as u64),
            Text(" ("),
            label(entry),
            disposed,
            Decimal(blocks),
            live,
            Decimal(bytes),
            Text(" bytes"),
        ]);
    }
    table::remove(id as u64);
}

/// Returns the arena with this number. Aborts the program if there is none.
#[inline]
fn known(id: usize) -> &'static Entry {
    match table::find(id as u64) {
        Some(entry) => entry,
        None => abort(&[Text("no arena has the id "), Hex(id as u64), Text(", or it was disposed of")]),
    }
}

/// Returns an arena's label for a message.
fn label(entry: &Entry) -> Part<'_> {
    Part::Bytes(entry.arena().map_or(b"", |arena| arena.name.bytes()))
}

/// Adds to the bytes of an arena. False if that would exceed the limit.
fn reserve(entry: &Entry, size: u64) -> bool {
    let bytes_max = entry.bytes_max.load(Ordering::Relaxed);
    // The total never has bytes that are refused: another thread would be refused because of them.
    let add = |bytes: u64| bytes.checked_add(size).filter(|&bytes| bytes <= bytes_max);
    size == 0 || entry.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

/// Counts a block of `size` bytes in an arena. False if it would exceed the limit.
fn count(entry: &Entry, size: u64) -> bool {
    let is_counted = reserve(entry, size);
    if is_counted {
        entry.blocks.fetch_add(1, Ordering::Relaxed);
    }
    is_counted
}

/// Takes a block of `size` bytes out of an arena's totals.
fn discount(entry: &Entry, size: u64) {
    entry.bytes.fetch_sub(size, Ordering::Relaxed);
    entry.blocks.fetch_sub(1, Ordering::Relaxed);
}

/// Returns null, with `errno` as the allocator sets it for memory that there is not.
fn out_of_memory() -> Pointer {
    const ENOMEM: c_int = 12;
    let address = ERRNO_LOCATION.load(Ordering::Relaxed);
    if address != 0 {
        // SAFETY: the C library's `__errno_location`, by the contract of `set_c_functions`. It
        // returns this thread's `errno`.
        unsafe { *core::mem::transmute::<usize, extern "C" fn() -> *mut c_int>(address)() = ENOMEM };
    }
    ptr::null_mut()
}

/// Returns the arena that a block is in; `None` if that has been disposed of.
fn arena_around(block: ArenaBlock) -> Option<&'static Entry> {
    table::at(block.arena).filter(|entry| entry.generation() == Some(block.generation))
}

/// Enters a block that the allocator has returned into the register. False if there is no memory
/// for that.
fn enter(entry: &'static Entry, block: Pointer, size: usize) -> bool {
    // The arena is live, so it has a generation.
    let generation = entry.generation().unwrap_or(0);
    let arena_block = ArenaBlock { arena: entry.index(), generation, size: size as u64 };
    match blocks::insert(block.addr() as u64, arena_block) {
        Ok(None) => true,
        // Its free was not seen.
        Ok(Some(old)) => {
            if let Some(entry) = arena_around(old) {
                discount(entry, old.size);
            }
            true
        }
        Err(_) => false,
    }
}

/// Returns a block of `size` bytes of an arena, made by `allocate`.
fn allocate(id: usize, size: usize, allocate: impl FnOnce() -> Pointer) -> Pointer {
    let entry = known(id);
    if !count(entry, size as u64) {
        return out_of_memory();
    }
    let block = allocate();
    if block.is_null() {
        discount(entry, size as u64);
        return block;
    }
    if !enter(entry, block, size) {
        discount(entry, size as u64);
        underlying!(free(block));
        return out_of_memory();
    }
    block
}

/// # Safety
///
/// The contract of `heapledger_arena_malloc`.
unsafe extern "C" fn arena_malloc(id: usize, size: usize) -> Pointer {
    allocate(id, size, || underlying!(malloc(size)))
}

/// # Safety
///
/// The contract of `heapledger_arena_calloc`.
unsafe extern "C" fn arena_calloc(id: usize, count: usize, each: usize) -> Pointer {
    match count.checked_mul(each) {
        Some(size) => allocate(id, size, || underlying!(calloc(count, each))),
        None => out_of_memory(),
    }
}

/// # Safety
///
/// The contract of `heapledger_arena_memalign`.
unsafe extern "C" fn arena_memalign(id: usize, alignment: usize, size: usize) -> Pointer {
    allocate(id, size, || underlying!(memalign(alignment, size)))
}

/// # Safety
///
/// The contract of `heapledger_arena_realloc`. `old` is not null.
unsafe extern "C" fn arena_realloc(id: usize, old: Pointer, size: usize) -> Pointer {
    check_member(id, old);
    // SAFETY: `realloc` asks for a live block that is in an arena: `check_member` has found it.
    unsafe { realloc(old, size) }
}

/// # Safety
///
/// The contract of `heapledger_arena_free`. `block` is not null.
unsafe extern "C" fn arena_free(id: usize, block: Pointer) {
    check_member(id, block);
    // SAFETY: `free` asks for a live block that is in an arena: `check_member` has found it.
    unsafe { free(block) };
}

/// Aborts the program unless a block is in the arena with this number. The messages are those of
/// the allocator's own arenas.
fn check_member(id: usize, block: Pointer) {
    let entry = known(id);
    match blocks::get(block.addr() as u64).and_then(arena_around) {
        Some(other) if ptr::eq(other, entry) => {}
        Some(other) => {
            let number = other.arena().map_or(0, |arena| arena.id);
            abort(&[
                Text("a block of arena "),
                Hex(number),
                Text(" ("),
                label(other),
                Text(") was passed as one of arena "),
                Hex(id as u64),
                Text(": "),
                Hex(block.addr() as u64),
            ]);
        }
        None => {
            let defect = Text("an address that is not a block was passed as one of an arena: ");
            abort(&[defect, Hex(block.addr() as u64)]);
        }
    }
}

/// Returns the arena of a block; 0 if it is in none.
extern "C" fn arena_of(block: Pointer) -> usize {
    let entry = blocks::get(block.addr() as u64).and_then(arena_around);
    entry.and_then(Entry::arena).map_or(0, |arena| arena.id as usize)
}

/// Tells about blocks in arenas: only first addresses are known.
///
/// # Safety
///
/// `info` is null or valid for a write.
unsafe extern "C" fn pointer_info(address: *const c_void, info: *mut PointerInfo) {
    let block = address.cast_mut();
    let answer = match blocks::get(block.addr() as u64) {
        Some(found) => PointerInfo {
            kind: pointer::LIVE,
            reserved: 0,
            address: block.addr() as u64,
            bytes: found.size,
            arena: arena_of(block) as u64,
        },
        None => PointerInfo::default(),
    };
    if !info.is_null() {
        // SAFETY: not null, and by this function's `# Safety` valid for a write.
        unsafe { info.write(answer) };
    }
}

// The plain functions, for blocks in the register.

extern "C" fn owns(block: Pointer) -> c_int {
    c_int::from(table::is_any() && blocks::get(block.addr() as u64).is_some())
}

/// # Safety
///
/// The contract of the C function.
unsafe extern "C" fn free(block: Pointer) {
    // Before the free: afterwards another thread may be given the address.
    if let Some(found) = blocks::remove(block.addr() as u64)
        && let Some(entry) = arena_around(found)
    {
        discount(entry, found.size);
    }
    underlying!(free(block));
}

/// Reallocates a block, which stays in its arena.
///
/// # Safety
///
/// The contract of the C function; `old` is not null.
unsafe extern "C" fn realloc(old: Pointer, size: usize) -> Pointer {
    let address = old.addr() as u64;
    let Some((found, entry)) = blocks::get(address).and_then(|found| Some((found, arena_around(found)?))) else {
        // It is of an arena that has been disposed of: a plain block.
        blocks::remove(address);
        return underlying!(realloc(old, size));
    };
    let old_size = found.size;
    // A size of 0 frees the block in some allocators; counting no bytes fits both answers.
    let grows = (size as u64).saturating_sub(old_size);
    if !reserve(entry, grows) {
        return out_of_memory();
    }
    // Before the call: afterwards another thread may be given the old address.
    blocks::remove(address);
    let block = underlying!(realloc(old, size));
    if block.is_null() && size != 0 {
        entry.bytes.fetch_sub(grows, Ordering::Relaxed);
        if !enter(entry, old, old_size as usize) {
            discount(entry, old_size);
        }
        return block;
    }
    let shrinks = old_size.saturating_sub(size as u64);
    entry.bytes.fetch_sub(shrinks, Ordering::Relaxed);
    // Without memory for the register the block goes on as one that is in no arena.
    if block.is_null() || !enter(entry, block, size) {
        discount(entry, size as u64);
    }
    block
}

/// # Safety
///
/// The contract of the C function.
unsafe extern "C" fn malloc_usable_size(block: Pointer) -> usize {
    underlying!(malloc_usable_size(block))
}

/// Returns the live blocks of an arena over malloc, and their requested bytes. `None` if there is
/// no such arena.
pub fn totals(id: u64) -> Option<(u64, u64)> {
    table::find(id).map(|entry| (entry.blocks.load(Ordering::Relaxed), entry.bytes.load(Ordering::Relaxed)))
}
