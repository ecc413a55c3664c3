//! The reports in memory, for core files: see [`heapledger_core::crash_record`].

use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use heapledger_core::crash_record::{HEADER, LENGTH, MAGIC, VERSION};
use heapledger_core::sys;

/// The bytes that a report has at most: three stacks, and some lines.
const REPORT_MAX: usize = 8 << 10;
/// The offset of the number of bytes.
const BYTES: usize = 20;

/// The mapping; null without memory for it.
static MAPPING: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// Maps the memory, once. Without it there are no reports in core files. One thread at a time.
pub(crate) fn prepare() {
    if !MAPPING.load(Ordering::Acquire).is_null() {
        return;
    }
    let Ok(mapping) = sys::map_guarded(LENGTH, false) else { return };
    // SAFETY: `copy_nonoverlapping` and `write` demand writable memory that nobody else uses: the
    // mapping, which has `LENGTH` bytes, and is aligned to a page.
    unsafe {
        ptr::copy_nonoverlapping(MAGIC.as_ptr(), mapping, MAGIC.len());
        mapping.add(MAGIC.len()).cast::<u32>().write(VERSION);
    }
    MAPPING.store(mapping, Ordering::Release);
}

/// True while a thread writes a report.
static IS_BUSY: AtomicBool = AtomicBool::new(false);

/// Returns the word with the number of bytes.
fn bytes(mapping: *mut u8) -> &'static AtomicU32 {
    // SAFETY: `from_ptr` demands an aligned word that stays, and is accessed as an atomic only: it
    // is in the mapping, which is never unmapped, and only this function leads to it.
    unsafe { AtomicU32::from_ptr(mapping.add(BYTES).cast()) }
}

/// Forgets the reports of the process from which this one was forked.
pub(crate) fn clear() {
    let mapping = MAPPING.load(Ordering::Acquire);
    if !mapping.is_null() {
        bytes(mapping).store(0, Ordering::Relaxed);
    }
    // The thread that wrote is not in this process, unless it is the one that has forked.
    IS_BUSY.store(false, Ordering::Relaxed);
}

/// Appends a report; if there is no room for it, in the place of all others. The report is left out
/// if another thread writes one, or this one, which has faulted meanwhile: waiting might take for
/// ever.
pub(crate) fn write(report: impl FnOnce(&mut dyn Write) -> fmt::Result) {
    let mapping = MAPPING.load(Ordering::Acquire);
    if mapping.is_null() {
        return;
    }
    if IS_BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    let mut from = HEADER + bytes(mapping).load(Ordering::Relaxed) as usize;
    if from + REPORT_MAX > LENGTH {
        bytes(mapping).store(0, Ordering::Relaxed);
        from = HEADER;
    }
    let mut out = Text { mapping, at: from };
    // A report that does not fit is left out.
    if report(&mut out).and_then(|()| out.write_str("maps\n\n")).is_ok() {
        bytes(mapping).store((out.at - HEADER) as u32, Ordering::Release);
    }
    IS_BUSY.store(false, Ordering::Release);
}

/// Text behind the reports.
struct Text {
    mapping: *mut u8,
    at: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.at.checked_add(text.len()).filter(|&end| end <= LENGTH).ok_or(fmt::Error)?;
        // SAFETY: `copy_nonoverlapping` demands memory for the text: the mapping has `LENGTH`
        // bytes. Nobody else writes behind the reports: `write` lets one thread in at a time.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), self.mapping.add(self.at), text.len()) };
        self.at = end;
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
