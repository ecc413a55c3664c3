//! The options of a collection of reports.

use std::time::Duration;

use heapledger_reporters::ReportOptions;

use crate::sized::read;

/// `heapledger_collection`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collection {
    size: u32,
    pub(crate) flags: u32,
    reporter_deadline_ms: u32,
    deadline_ms: u32,
}

const ANONYMOUS: u32 = 1;
const MARK: u32 = 2;
const CHILDREN: u32 = 4;

/// # Safety
///
/// `what` is null or *sized* (see [`crate::sized`]).
pub(crate) unsafe fn given(what: *const Collection) -> Collection {
    let mut given = Collection { size: 0, flags: 0, reporter_deadline_ms: 0, deadline_ms: 0 };
    // SAFETY: `read` requires null or a *sized* structure, as this function's `# Safety` does of
    // `what`, and that any prefix of a `Collection` is valid, as it is of integers.
    unsafe { read(what, &mut given) };
    given
}

impl Collection {
    pub(crate) fn options(&self) -> ReportOptions {
        let defaults = ReportOptions::default();
        let or = |milliseconds: u32, default: Duration| match milliseconds {
            0 => default,
            _ => Duration::from_millis(milliseconds.into()),
        };
        ReportOptions {
            anonymous: self.flags & ANONYMOUS != 0,
            mark: self.flags & MARK != 0,
            children: self.flags & CHILDREN != 0,
            reporter_deadline: or(self.reporter_deadline_ms, defaults.reporter_deadline),
            deadline: or(self.deadline_ms, defaults.deadline),
        }
    }
}
