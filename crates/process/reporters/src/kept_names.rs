//! The names of reporters that are kept for good, for those who mark blocks.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) type Names = Option<HashSet<&'static str>>;

/// Returns the names.
pub(crate) fn names() -> MutexGuard<'static, Names> {
    static NAMES: Mutex<Names> = Mutex::new(None);
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name that is kept for good, once: those who mark blocks keep it.
pub(crate) fn keep_name(name: &str) -> &'static str {
    let mut names = names();
    let names = names.get_or_insert_default();
    match names.get(name) {
        Some(name) => name,
        None => {
            let name: &'static str = Box::leak(name.into());
            names.insert(name);
            name
        }
    }
}
