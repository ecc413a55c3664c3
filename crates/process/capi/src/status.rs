//! The numbers that calls return.

use std::ffi::c_int;

/// Done.
pub(crate) const OK: c_int = 0;
/// There is nothing of the kind that was asked for.
pub(crate) const NOTHING: c_int = 1;
/// It runs already, or does not run.
pub(crate) const STATE: c_int = 2;
/// Another process observes the program, and has the answers.
pub(crate) const ELSEWHERE: c_int = 3;
/// It could not be done: an argument that makes no sense, no memory, or a descriptor that does not
/// take it.
pub(crate) const FAILED: c_int = 4;
