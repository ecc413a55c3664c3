//! The C ABI between the parts of a process that have reporters: each part may have its own copy of
//! this crate, made by another compiler.
//!
//! A part is an executable or a shared library. It has an ELF note ([`crate::loaded_objects`]) that
//! leads to a [`Registry`]. A collection asks every registry for its [`Entry`]s, and has each of
//! them report to a [`Sink`].

use std::ffi::c_void;
use std::ops::Deref;
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
    /// It is null, or describes bytes of one object that stay as they are during the call.
    pub(crate) unsafe fn to_string(self) -> String {
        if self.start.is_null() || self.length == 0 {
            return String::new();
        }
        // SAFETY: `from_raw_parts` requires that many bytes of one object, which stay as they are.
        // By this function's `# Safety` the text is such bytes for the time of the call; null was
        // excluded above.
        String::from_utf8_lossy(unsafe { slice::from_raw_parts(self.start, self.length) }).into_owned()
    }
}

/// The reporters of one loaded object.
///
/// *Given entries*: `visit` may be called with any `each` that may be called with `context`. Each
/// entry is live during that call of `each`, and has as many bytes as its `size` says.
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

/// A reporter of some loaded object.
///
/// *Until released*: `path` stays, and `run` may be called with `reporter` and a sink that is
/// [held](Sink), in any thread, until `release` is called with `reporter`, which is once. Both
/// functions are there for as long as the object is loaded.
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
///
/// *Held*: the functions may be called with `context`, in any thread, during the call of
/// [`Entry::run`] that the sink was passed to and, after each `retain`, until its `release`. A
/// report with its texts, or a reason, stays as it is during the call that it is passed to: the
/// functions copy it.
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

/// A sink that stays *held* until this is dropped.
#[derive(Debug)]
pub(crate) struct RetainedSink(Sink);

impl RetainedSink {
    /// # Safety
    ///
    /// The sink is *held* ([`Sink`]).
    pub(crate) unsafe fn new(sink: &Sink) -> RetainedSink {
        // SAFETY: `retain` requires a sink that is held, and so does this function.
        unsafe { (sink.retain)(sink.context) };
        RetainedSink(*sink)
    }
}

impl Clone for RetainedSink {
    fn clone(&self) -> RetainedSink {
        // SAFETY: `new` requires a sink that is held; this one is, since it was retained.
        unsafe { RetainedSink::new(&self.0) }
    }
}

impl Deref for RetainedSink {
    type Target = Sink;

    fn deref(&self) -> &Sink {
        &self.0
    }
}

impl Drop for RetainedSink {
    fn drop(&mut self) {
        // SAFETY: `release` requires one call of `retain` that is not given back yet: that of
        // `new`.
        unsafe { (self.0.release)(self.0.context) };
    }
}

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
