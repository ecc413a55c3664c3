//! The C ABI between the parts of a process that have reporters: each part may have its own copy of
//! this crate, made by another compiler.
//!
//! A part is an executable or a shared library. It has an ELF note ([`crate::artefacts`]) that
//! leads to a [`Registry`]. A collection asks every registry for its [`Entry`]s, and has each of
//! them report to a [`Sink`].

use std::ffi::c_void;
use std::slice;

/// The version of all that is here. Tables grow at their ends only: users check their sizes.
pub(crate) const VERSION: u32 = 1;

/// Bytes of somebody else's; not terminated, UTF-8 by agreement only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    start: *const u8,
    length: usize,
}

impl Text {
    pub(crate) const fn new(text: &str) -> Text {
        Text { start: text.as_ptr(), length: text.len() }
    }

    pub(crate) fn is_null(self) -> bool {
        self.start.is_null()
    }

    /// # Safety
    ///
    /// It describes bytes that stay as they are during the call.
    pub(crate) unsafe fn to_string(self) -> String {
        if self.start.is_null() || self.length == 0 {
            return String::new();
        }
        // SAFETY: the caller's contract.
        String::from_utf8_lossy(unsafe { slice::from_raw_parts(self.start, self.length) }).into_owned()
    }
}

/// The reporters of one artefact.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) size: u32,
    pub(crate) version: u32,
    /// Calls `each(context, entry)` for each reporter, in the order of registration. The entry is
    /// borrowed; the reporter in it is given away, and has to be released.
    pub(crate) visit: unsafe extern "C" fn(context: *mut c_void, each: Each),
}

pub(crate) type Each = unsafe extern "C" fn(context: *mut c_void, entry: *const Entry);

/// A reporter of some artefact.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) size: u32,
    pub(crate) version: u32,
    /// The path below which it reports, and what it is called. Valid until it is released.
    pub(crate) path: Text,
    pub(crate) reporter: *const c_void,
    /// Has it report, once. Does not unwind.
    pub(crate) run: unsafe extern "C" fn(reporter: *const c_void, sink: *const Sink),
    /// Gives it back.
    pub(crate) release: unsafe extern "C" fn(reporter: *const c_void),
}

/// Where a reporter's measurements go. To be copied by whoever keeps it: then it has to be
/// retained, and released, which says that nothing more will come.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sink {
    pub(crate) size: u32,
    pub(crate) version: u32,
    /// See [`flag`].
    pub(crate) flags: u32,
    pub(crate) context: *const c_void,
    pub(crate) report: unsafe extern "C" fn(context: *const c_void, report: *const RawReport),
    /// The reporter has failed, for this reason.
    pub(crate) fail: unsafe extern "C" fn(context: *const c_void, reason: Text),
    pub(crate) retain: unsafe extern "C" fn(context: *const c_void),
    pub(crate) release: unsafe extern "C" fn(context: *const c_void),
}

// SAFETY: functions and a context that may be used in any thread: whoever makes a sink sees to that
// (`slot`).
unsafe impl Send for Sink {}

/// Bits of a sink's flags.
pub(crate) mod flag {
    /// Private data is left out.
    pub(crate) const ANONYMOUS: u32 = 1;
    /// Blocks that are measured are marked in the ledger.
    pub(crate) const MARK: u32 = 2;
    /// The reports go into a memory dump: reporters that report the figures of such dumps report
    /// nothing.
    pub(crate) const DUMP: u32 = 4;
}

/// One measurement.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawReport {
    pub(crate) path: Text,
    /// Empty: nothing in the path changes from run to run. Null: the path and the description are
    /// as they were written, with the marks of [`crate::path`].
    pub(crate) stable_path: Text,
    pub(crate) description: Text,
    /// The number of a `Kind`.
    pub(crate) kind: u32,
    /// The number of a `Unit`.
    pub(crate) unit: u32,
    pub(crate) amount: i64,
}
