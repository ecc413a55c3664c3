//! The allocator's hook for purges: observers are notified, and the program's own hook is called.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::hooks::{Purge, notify};

/// A function that the allocator tells of purges.
type PurgeHook = unsafe extern "C" fn(*const Purge);

/// The program's own hook, or null.
static PURGE_HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sets the program's hook for purges, or removes it with null. The allocator's own hook is ours,
/// which calls the program's.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_set_purge_hook(hook: Option<PurgeHook>) {
    PURGE_HOOK.store(hook.map_or(ptr::null_mut(), |hook| hook as *mut ()), Ordering::Release);
}

/// Sets our hook for purges, given the address of the allocator's function for that.
///
/// # Safety
///
/// `address` is 0, or that of the allocator's `heapledger_set_purge_hook`.
pub(crate) unsafe fn watch_purges(address: usize) {
    // SAFETY: 0 is `None`; otherwise the function is of this type, by this function's `# Safety`.
    let set = unsafe { core::mem::transmute::<usize, Option<unsafe extern "C" fn(PurgeHook)>>(address) };
    if let Some(set) = set {
        // SAFETY: the function accepts any hook of this type, which is static.
        unsafe { set(purged) };
    }
}

/// Notifies the observers, and the program, of a purge.
///
/// # Safety
///
/// The contract of the allocator's hook: `purge` is complete during the call.
unsafe extern "C" fn purged(purge: *const Purge) {
    // SAFETY: `as_ref` requires null or a complete structure; this function's `# Safety` requires
    // the same. `notify::purged` requires no more.
    unsafe {
        if let Some(purge) = purge.as_ref().filter(|purge| purge.size as usize >= size_of::<Purge>()) {
            notify::purged(purge);
        }
    }
    // SAFETY: `transmute` requires null or a `PurgeHook`: `heapledger_set_purge_hook` stores these
    // alone. The program's hook has the same contract as this function.
    unsafe {
        let hook = core::mem::transmute::<*mut (), Option<PurgeHook>>(PURGE_HOOK.load(Ordering::Acquire));
        if let Some(hook) = hook {
            hook(purge);
        }
    }
}
