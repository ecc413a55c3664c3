//! The functions that install hooks and remove them.

use super::installed::{OBSERVERS, REPLACEMENTS};
use super::observer::Observer;
use super::replacement::Replacement;
use super::{HookError, dispatch, dispatch_path};

/// Installs an observer. The address of the table identifies it.
///
/// # Errors
///
/// [`HookError::Malformed`], [`HookError::Full`], [`HookError::AlreadyInstalled`].
///
/// # Safety
///
/// `observer` is null or points to a table that begins as [`Observer`] does and has as many bytes
/// as its `size` says. Its functions keep the contract stated at [`Observer`], for as long as the
/// process lives.
pub unsafe fn install_observer(observer: *const Observer) -> Result<(), HookError> {
    // SAFETY: `Observer::read` asks for null or a table that has as many bytes as its `size` says.
    // This function's `# Safety` asks for the same.
    let table = unsafe { Observer::read(observer) }.ok_or(HookError::Malformed)?;
    OBSERVERS.install(observer.cast(), table.order, table, |_| {}, on_observers_changed)
}

/// Removes an observer.
///
/// # Errors
///
/// [`HookError::NotInstalled`].
pub fn remove_observer(observer: *const Observer) -> Result<(), HookError> {
    OBSERVERS.remove(observer.cast(), |_| false, on_observers_changed)
}

/// Installs a replacement. The address of the table identifies it. [`Replacement::below`] is set
/// before any call enters it.
///
/// # Errors
///
/// [`HookError::Malformed`], [`HookError::Full`], [`HookError::AlreadyInstalled`],
/// [`HookError::NoAllocator`].
///
/// # Safety
///
/// `replacement` is null or points to a table that begins as [`Replacement`] does and has as many
/// bytes as its `size`s say. Its functions keep the contract stated at [`Replacement`], for as long
/// as the process lives.
pub unsafe fn install_replacement(replacement: *const Replacement) -> Result<(), HookError> {
    if !dispatch::has_underlying() {
        return Err(HookError::NoAllocator);
    }
    // SAFETY: `Replacement::read` asks for null or a table that has as many bytes as its `size`s
    // say. This function's `# Safety` asks for the same.
    let table = unsafe { Replacement::read(replacement) }.ok_or(HookError::Malformed)?;
    let below = table.below;
    let prepare = |slot| {
        // SAFETY: `Replacement::read` has checked that it is not null; by the caller's contract it
        // is a variable of the hook's that may be written here.
        unsafe { below.write(dispatch::next_table(slot)) }
    };
    REPLACEMENTS.install(replacement.cast(), table.order, table, prepare, on_replacements_changed)
}

/// Removes a replacement. One that has [`Replacement::owns`] goes on handling the blocks that it
/// owns.
///
/// # Errors
///
/// [`HookError::NotInstalled`].
pub fn remove_replacement(replacement: *const Replacement) -> Result<(), HookError> {
    REPLACEMENTS.remove(replacement.cast(), |replacement| replacement.owns.is_some(), on_replacements_changed)
}

/// Disables hooks that are installed until [`release`] is called. Meant for the start of a program:
/// hooks may allocate while they are being installed.
pub fn hold() {
    OBSERVERS.hold();
    REPLACEMENTS.hold();
}

/// Ends [`hold`]: calls enter the hooks that have been installed.
pub fn release() {
    REPLACEMENTS.release(on_replacements_changed);
    OBSERVERS.release(on_observers_changed);
}

fn on_observers_changed(_: bool) {
    dispatch_path::update();
}

fn on_replacements_changed(has_replacements: bool) {
    // In this order, so that nobody frees on the straight path what a replacement has allocated.
    dispatch_path::update();
    dispatch::select(has_replacements);
}
