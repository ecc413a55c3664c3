//! The hooks that are installed in this loaded object.

use super::list::List;
use super::observer::Observer;
use super::replacement::Replacement;
use super::{OBSERVERS_MAX, REPLACEMENTS_MAX};

pub(super) static OBSERVERS: List<Observer, OBSERVERS_MAX> = List::new();
pub(super) static REPLACEMENTS: List<Replacement, REPLACEMENTS_MAX> = List::new();
