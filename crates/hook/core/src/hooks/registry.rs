//! The two lists of this loaded object, and the functions that change them.

use super::list::List;
use super::{Error, OBSERVERS_MAX, Observer, REPLACEMENTS_MAX, Replacement, serve, way};

pub(super) static OBSERVERS: List<Observer, OBSERVERS_MAX> = List::new();
pub(super) static REPLACEMENTS: List<Replacement, REPLACEMENTS_MAX> = List::new();

/// Installs an observer. The address of the table identifies it.
///
/// # Errors
///
/// [`Error::Malformed`], [`Error::Full`], [`Error::AlreadyInstalled`].
///
/// # Safety
///
/// `observer` is null or points to a table that begins as [`Observer`] does and has as many bytes
/// as its `size` says. Its functions keep the contract stated at [`Observer`], for as long as the
/// process lives.
pub unsafe fn install_observer(observer: *const Observer) -> Result<(), Error> {
    // SAFETY: `Observer::read` asks for null or a table that has as many bytes as its `size` says.
    // This function's `# Safety` asks for the same.
    let table = unsafe { Observer::read(observer) }.ok_or(Error::Malformed)?;
    OBSERVERS.install(observer.cast(), table.order, table, |_| {}, note_observers)
}

/// Removes an observer.
///
/// # Errors
///
/// [`Error::NotInstalled`].
pub fn remove_observer(observer: *const Observer) -> Result<(), Error> {
    OBSERVERS.remove(observer.cast(), |_| false, note_observers)
}

/// Installs a replacement. The address of the table identifies it. [`Replacement::below`] is set
/// before any call enters it.
///
/// # Errors
///
/// [`Error::Malformed`], [`Error::Full`], [`Error::AlreadyInstalled`], [`Error::NoAllocator`].
///
/// # Safety
///
/// `replacement` is null or points to a table that begins as [`Replacement`] does and has as many
/// bytes as its `size`s say. Its functions keep the contract stated at [`Replacement`], for as long
/// as the process lives.
pub unsafe fn install_replacement(replacement: *const Replacement) -> Result<(), Error> {
    if !serve::has_bottom() {
        return Err(Error::NoAllocator);
    }
    // SAFETY: `Replacement::read` asks for null or a table that has as many bytes as its `size`s
    // say. This function's `# Safety` asks for the same.
    let table = unsafe { Replacement::read(replacement) }.ok_or(Error::Malformed)?;
    let below = table.below;
    let lead = |slot| {
        // SAFETY: `Replacement::read` has checked that it is not null; by the caller's contract it
        // is a variable of the hook's that may be written here.
        unsafe { below.write(serve::below(slot)) }
    };
    REPLACEMENTS.install(replacement.cast(), table.order, table, lead, note_replacements)
}

/// Removes a replacement. One that has [`Replacement::owns`] goes on handling the blocks that it
/// owns.
///
/// # Errors
///
/// [`Error::NotInstalled`].
pub fn remove_replacement(replacement: *const Replacement) -> Result<(), Error> {
    REPLACEMENTS.remove(replacement.cast(), |replacement| replacement.owns.is_some(), note_replacements)
}

/// Disables hooks that are installed until [`release`] is called. Meant for the start of a program:
/// hooks may allocate while they are being installed.
pub fn hold() {
    OBSERVERS.hold();
    REPLACEMENTS.hold();
}

/// Ends [`hold`]: calls enter the hooks that have been installed.
pub fn release() {
    REPLACEMENTS.release(note_replacements);
    OBSERVERS.release(note_observers);
}

fn note_observers(_: bool) {
    way::update();
}

fn note_replacements(has_replacements: bool) {
    // In this order, so that nobody frees on the straight path what a replacement has allocated.
    way::update();
    serve::select(has_replacements);
}
