//! The hook that is told of purges.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::sys::monotonic_nanoseconds;

use super::super::SharedArena;

/// A purge of one arena, in the layout of C's `heapledger_purge`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PurgeEvent {
    /// The size of this structure in bytes. Entries are only appended.
    pub size: u32,
    /// 0.
    pub flags: u32,
    /// The arena's id.
    pub arena: u64,
    /// The arena's label, a string of C, which is valid during the call. Empty if it has none.
    pub label: *const c_char,
    /// The reason of the purge, a static string of C: `budget`, `deferred`, `decay`, `all`,
    /// `excess` or `trim`.
    pub caller: *const c_char,
    /// The pages of 4 KiB that may have had memory, and were returned.
    pub pages: usize,
    /// The number of system calls, or of calls of the arena's own function.
    pub calls: usize,
    /// The number of chunks that had these pages.
    pub chunks: usize,
    /// The time at which the purge began, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub start_ns: u64,
    /// The time at which it ended.
    pub end_ns: u64,
}

/// A function that is told of purges. It is called in the middle of functions of the allocator,
/// with locks held, by any thread: it must not allocate or free, nor call functions of arenas.
pub type PurgeHook = unsafe extern "C" fn(event: *const PurgeEvent);

/// The hook, or null.
static HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sets the function that is told of each purge that returned something, or removes it. A call of
/// the previous function may still be on its way.
pub(crate) fn set(hook: Option<PurgeHook>) {
    HOOK.store(hook.map_or(ptr::null_mut(), |hook| hook as *mut ()), Ordering::Release);
}

fn hook() -> Option<PurgeHook> {
    let hook = HOOK.load(Ordering::Acquire);
    // SAFETY: `transmute` demands a value of the new type: `Option` of a function pointer has null
    // as `None`, and `set` stores null or the address of such a function.
    unsafe { core::mem::transmute::<*mut (), Option<PurgeHook>>(hook) }
}

/// The numbers of a purge that is being made.
#[derive(Debug)]
pub(crate) struct Watch<'arena> {
    arena: &'arena SharedArena,
    caller: &'static CStr,
    hook: Option<PurgeHook>,
    start_ns: u64,
    pub(crate) calls: usize,
    pub(crate) chunks: usize,
}

impl<'arena> Watch<'arena> {
    /// Notes the time at which a purge begins, if there is a hook.
    pub(crate) fn begin(arena: &'arena SharedArena, caller: &'static CStr) -> Watch<'arena> {
        let hook = hook();
        let start_ns = if hook.is_some() { monotonic_nanoseconds() } else { 0 };
        Watch { arena, caller, hook, start_ns, calls: 0, chunks: 0 }
    }

    /// Tells the hook, if there is one and something was returned.
    pub(crate) fn end(self, pages: usize) {
        let Some(hook) = self.hook.filter(|_| pages > 0) else { return };
        let label = if self.arena.is_main() { c"main".as_ptr() } else { self.arena.settings().label.as_ptr().cast() };
        let event = PurgeEvent {
            size: size_of::<PurgeEvent>() as u32,
            flags: 0,
            arena: self.arena.id(),
            label,
            caller: self.caller.as_ptr(),
            pages,
            calls: self.calls,
            chunks: self.chunks,
            start_ns: self.start_ns,
            end_ns: monotonic_nanoseconds(),
        };
        // SAFETY: a function for this purpose, which `set` was given; the event and its strings are
        // valid during the call, because this thread holds the arena's lock `purging`.
        unsafe { hook(&raw const event) };
    }
}
