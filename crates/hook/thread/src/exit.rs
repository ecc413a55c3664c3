//! Detects that a thread ends: by the destructor of a thread-specific key of the C library; in a
//! library that is placed into a program, when another thread takes its thread pointer over.

use core::ffi::c_void;
use core::mem;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use heapledger_core::sandbox;
use heapledger_core::thread_key::{self, KeyCreate, KeyDelete};

use crate::head::{GATE_OPEN, GATE_UNATTACHED};
use crate::{Block, Current, WORD_TORN_DOWN, arch, current};

/// The maximum number of times that the C library runs a thread's key destructors (POSIX: at least
/// 4; glibc and musl: 4).
const DESTRUCTOR_ITERATIONS: u32 = 4;

type SetSpecific = unsafe extern "C" fn(u32, *const c_void) -> i32;

/// The C library functions that are needed. Each may allocate; the hook is prepared for that.
#[derive(Clone, Copy, Debug)]
pub struct KeyFunctions {
    /// `pthread_key_create`.
    pub key_create: KeyCreate,
    /// `pthread_key_delete`.
    pub key_delete: KeyDelete,
    /// `pthread_setspecific`.
    pub set_specific: SetSpecific,
}

static SET_SPECIFIC: AtomicUsize = AtomicUsize::new(0);
static KEY: AtomicU32 = AtomicU32::new(0);
/// A `fn() -> Option<KeyFunctions>`, if the functions were not there at the start.
static LOOK_UP: AtomicUsize = AtomicUsize::new(0);

/// Creates the key whose destructor detects a thread's end. Called once, before any thread has a
/// block. Without a key, blocks stay with the threads that had them.
///
/// # Safety
///
/// The functions are the process's C library's.
pub unsafe fn create_key<B: Block>(library: KeyFunctions) {
    // SAFETY: `reserve` requires functions of one C library; this function's `# Safety` says that
    // they are the process's.
    if let Some(key) = unsafe { reserve::<B>(library) } {
        KEY.store(key, Ordering::Relaxed);
        SET_SPECIFIC.store(library.set_specific as usize, Ordering::Release);
    }
}

/// Creates the key when a thread gets its block, as soon as `look_up` finds the functions. Before
/// glibc 2.34 they are in a library that a program without threads does not have, and may load
/// later. Threads that have had a block before then keep it.
///
/// # Safety
///
/// `look_up` returns functions of the process's C library, and may be called in any thread at any
/// time, also inside the allocator. [`create_key`] is not called.
pub unsafe fn create_key_later(look_up: fn() -> Option<KeyFunctions>) {
    LOOK_UP.store(look_up as usize, Ordering::Release);
}

/// Creates the key if that was put off, and the functions are there now.
#[cold]
fn create_late<B: Block>() {
    // Nobody else looks up meanwhile: a second key would be one too many.
    let look_up = LOOK_UP.swap(0, Ordering::AcqRel);
    if look_up == 0 {
        return;
    }
    // SAFETY: `transmute` requires a function of this type: the word is not 0, so
    // `create_key_later` stored it, from such a function.
    let function = unsafe { mem::transmute::<usize, fn() -> Option<KeyFunctions>>(look_up) };
    match function() {
        // SAFETY: `create_key` requires the functions of the process's C library, which
        // `create_key_later` demands of `look_up`. No other key has been created: this thread has
        // taken the only word that leads here.
        Some(library) => unsafe { create_key::<B>(library) },
        None => LOOK_UP.store(look_up, Ordering::Release),
    }
}

/// Creates the key of the same number in the C library of another namespace, so that its destructor
/// detects the ends of the threads that this library starts, and the number is given to nobody
/// else. If the number is taken, the blocks of those threads stay with them.
///
/// # Safety
///
/// The functions are the other C library's, and both are glibc.
pub unsafe fn share_key<B: Block>(library: KeyFunctions) {
    let own = (SET_SPECIFIC.load(Ordering::Acquire) != 0).then(|| KEY.load(Ordering::Relaxed));
    // SAFETY: `reserve` requires functions of one C library; this function's `# Safety` says that
    // they are the other one's.
    let Some(key) = own.and_then(|_| unsafe { reserve::<B>(library) }) else { return };
    if Some(key) != own {
        // SAFETY: the other C library's function; the key was made just now, and no thread has a
        // value for it.
        unsafe { (library.key_delete)(key) };
    }
}

/// Creates a key of a C library, which other C libraries of the process hand out last.
///
/// # Safety
///
/// The functions are of one C library.
unsafe fn reserve<B: Block>(library: KeyFunctions) -> Option<u32> {
    // SAFETY: `create_last` demands functions of one C library: this function's `# Safety`; and a
    // destructor for the values that are set: those are blocks, which `watch_exit` sets.
    unsafe { thread_key::create_last(library.key_create, library.key_delete, thread_exits::<B>) }
}

/// Registers this thread, whose block this is, for the destructor at its end.
pub(crate) fn watch_exit<B: Block>(block: *const c_void) {
    // In a sandbox the C library must not have to allocate.
    if SET_SPECIFIC.load(Ordering::Acquire) == 0 && !sandbox::is_entered() {
        create_late::<B>();
    }
    // The values of higher keys are in memory that it allocates for each thread.
    const KEYS_IN_DESCRIPTOR: u32 = 32;
    if sandbox::is_entered() && KEY.load(Ordering::Relaxed) >= KEYS_IN_DESCRIPTOR {
        return;
    }
    let set_specific = SET_SPECIFIC.load(Ordering::Acquire);
    if set_specific != 0 {
        // SAFETY: `transmute` requires a function of this type: the word is not 0, so `create_key`
        // stored it, from a `SetSpecific`.
        let set_specific = unsafe { mem::transmute::<usize, SetSpecific>(set_specific) };
        // SAFETY: `pthread_setspecific` requires a key that exists: `create_key` stored it before
        // it stored the function, and nobody deletes it. The value may be any; only `thread_exits`
        // receives it.
        unsafe { set_specific(KEY.load(Ordering::Relaxed), block) };
    }
}

/// The key's destructor. Called in every iteration; the last one gives the block up, because
/// destructors of other keys may still allocate and free in the iterations before.
///
/// # Safety
///
/// The C library calls it in the thread that ends. If the thread was inside the hook, it does not
/// return there.
unsafe extern "C" fn thread_exits<B: Block>(block: *mut c_void) {
    let Some(free_list) = B::free_list() else { return };
    let Current::Block(current) = current::<B>() else { return };
    if current.as_ptr().cast() != block {
        return;
    }
    // SAFETY: the block is valid: it is this thread's, and is never unmapped. This thread alone
    // uses it, and has left the hook for good: calls that `watch_exit` causes find `is_untracked`
    // and return.
    let state = unsafe { &mut *current.as_ptr() };
    state.head().iterations += 1;
    if state.head().iterations < DESTRUCTOR_ITERATIONS {
        state.head().is_untracked = true;
        let gate = mem::replace(&mut state.head().gate, u64::MAX);
        watch_exit::<B>(block);
        state.head().gate = gate;
        state.head().is_untracked = false;
        return;
    }
    if state.head().gate == GATE_OPEN {
        state.end();
    }
    state.head().gate = GATE_UNATTACHED;
    arch::set_thread_word(WORD_TORN_DOWN);
    free_list.push(current);
}

/// Gives the blocks of threads up whose ends are noticed by the [slots of
/// threads](heapledger_core::thread_slots).
#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
pub fn watch_slots<B: Block>() {
    heapledger_core::thread_slots::on_thread_end(|word| {
        let block = core::ptr::NonNull::new(core::ptr::with_exposed_provenance_mut::<B>(word));
        let (Some(block), Some(free_list)) = (block.filter(|_| word != WORD_TORN_DOWN), B::free_list()) else { return };
        // SAFETY: the word of a slot is that of a block, which is never unmapped. The thread that
        // had it has ended, or this process is a child that has only one thread, so nobody uses it.
        let state = unsafe { &mut *block.as_ptr() };
        if state.head().gate == GATE_OPEN {
            state.end_elsewhere();
        }
        state.head().gate = GATE_UNATTACHED;
        free_list.push(block);
    });
}
