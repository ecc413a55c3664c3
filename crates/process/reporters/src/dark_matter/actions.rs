//! The logs that are to be written: at signals, and at the end of the program.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::c_int;

use super::options::DarkMatterOptions;

pub(crate) type ExitAction = Option<(u32, PathBuf, DarkMatterOptions)>;

/// Returns the log to write at the end of the program.
pub(super) fn exit_action() -> MutexGuard<'static, ExitAction> {
    static ACTION: Mutex<ExitAction> = Mutex::new(None);
    ACTION.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) type SignalActions = BTreeMap<c_int, (PathBuf, DarkMatterOptions)>;

/// Returns the logs to write, by signal.
pub(super) fn signal_actions() -> MutexGuard<'static, SignalActions> {
    static ACTIONS: Mutex<SignalActions> = Mutex::new(BTreeMap::new());
    ACTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) type ForkGuards = (MutexGuard<'static, SignalActions>, MutexGuard<'static, ExitAction>);

/// Holds both lists, around a fork.
pub(crate) fn lock_for_fork() -> ForkGuards {
    (signal_actions(), exit_action())
}
