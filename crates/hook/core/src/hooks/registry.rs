//! This artefact's two lists, and how they are changed.

use super::list::List;
use super::{Error, OBSERVERS_MAX, Observer, REPLACEMENTS_MAX, Replacement, serve, way};

pub(super) static OBSERVERS: List<Observer, OBSERVERS_MAX> = List::new();
pub(super) static REPLACEMENTS: List<Replacement, REPLACEMENTS_MAX> = List::new();

/// Installs an observer. The table is known by its address.
///
/// # Errors
///
/// [`Error::Malformed`], [`Error::Full`], [`Error::AlreadyInstalled`].
///
/// # Safety
///
/// `observer` is null or points to a table that begins as [`Observer`] does and has as many bytes as its `size` says. Its
/// functions keep the contract stated at [`Observer`], for as long as the process lives.
pub unsafe fn install_observer(observer: *const Observer) -> Result<(), Error> {
    // SAFETY: passed on.
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

/// Installs a replacement. The table is known by its address. [`Replacement::below`] is set before any call enters it.
///
/// # Errors
///
/// [`Error::Malformed`], [`Error::Full`], [`Error::AlreadyInstalled`], [`Error::NoAllocator`].
///
/// # Safety
///
/// `replacement` is null or points to a table that begins as [`Replacement`] does and has as many bytes as its `size`s
/// say. Its functions keep the contract stated at [`Replacement`], for as long as the process lives.
pub unsafe fn install_replacement(replacement: *const Replacement) -> Result<(), Error> {
    if !serve::has_bottom() {
        return Err(Error::NoAllocator);
    }
    // SAFETY: passed on.
    let table = unsafe { Replacement::read(replacement) }.ok_or(Error::Malformed)?;
    let below = table.below;
    let lead = |slot| {
        // SAFETY: `Replacement::read` has found it not null; by our caller's contract it is a variable of the hook's that
        // may be written here.
        unsafe { below.write(serve::below(slot)) }
    };
    REPLACEMENTS.install(replacement.cast(), table.order, table, lead, note_replacements)
}

/// Removes a replacement. One that gives [`Replacement::owns`] goes on serving the blocks that it owns.
///
/// # Errors
///
/// [`Error::NotInstalled`].
pub fn remove_replacement(replacement: *const Replacement) -> Result<(), Error> {
    REPLACEMENTS.remove(replacement.cast(), |replacement| replacement.owns.is_some(), note_replacements)
}

/// From now on what is installed is not entered until [`release`]. Meant for the start of a program: hooks may allocate
/// while they are being installed.
pub fn hold() {
    OBSERVERS.hold();
    REPLACEMENTS.hold();
}

/// Ends what [`hold`] began: what has been installed is entered.
pub fn release() {
    REPLACEMENTS.release(note_replacements);
    OBSERVERS.release(note_observers);
}

fn note_observers(_: bool) {
    way::update();
}

fn note_replacements(has_replacements: bool) {
    // In this order: nobody frees straight on what a replacement has made.
    way::update();
    serve::select(has_replacements);
}
