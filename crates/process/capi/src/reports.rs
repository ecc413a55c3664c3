//! The collection of `heapledger/reports.h`: C's view of the reporters of this process.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::{process, ptr};

use heapledger_annotate::untracked;
use heapledger_reporters::{Listener, Report};

use crate::collection::{Collection, given};
use crate::status::{FAILED, OK};

/// `heapledger_report_found`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    size: u32,
    kind: u32,
    unit: u32,
    reserved: u32,
    amount: i64,
    process: *const c_char,
    path: *const c_char,
    stable_path: *const c_char,
    description: *const c_char,
}

type EachReport = unsafe extern "C" fn(*const Found, *mut c_void) -> c_int;

/// `heapledger_reports`: functions are only ever appended.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    size: u32,
    version: u32,
    collect: unsafe extern "C" fn(*const Collection, Option<EachReport>, *mut c_void) -> c_int,
    save: unsafe extern "C" fn(*const Collection, *const c_char) -> c_int,
    listen: extern "C" fn() -> c_int,
    #[cfg(feature = "page")]
    print: unsafe extern "C" fn(*const Collection, c_int) -> c_int,
    #[cfg(feature = "page")]
    serve: unsafe extern "C" fn(*mut c_char, usize) -> c_int,
}

/// The table of reports. Programs find it also if a recorder observes them, unlike the ledger.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_reports_v1: Table = Table {
    size: size_of::<Table>() as u32,
    version: 1,
    collect,
    save,
    listen,
    #[cfg(feature = "page")]
    print: crate::page::print,
    #[cfg(feature = "page")]
    serve: crate::page::serve,
};

/// # Safety
///
/// `what` is null or *sized* (see [`crate::sized`]). `each` may be called, several times, with a
/// pointer to a report and with `data`.
unsafe extern "C" fn collect(what: *const Collection, each: Option<EachReport>, data: *mut c_void) -> c_int {
    let Some(each) = each else { return FAILED };
    let _untracked = untracked::enter();
    // SAFETY: `given` requires null or a *sized* structure; this function's `# Safety` requires the
    // same of `what`.
    let reports = heapledger_reporters::collect(&unsafe { given(what) }.options());
    for report in &reports.reports {
        // SAFETY: `pass_report` requires that `each` may be called with a report and `data`, as
        // this function's `# Safety` does.
        if unsafe { pass_report(report, each, data) } != 0 {
            break;
        }
    }
    OK
}

/// # Safety
///
/// `each` may be called with a pointer to a report and with `data`.
unsafe fn pass_report(report: &Report, each: EachReport, data: *mut c_void) -> c_int {
    let text = |text: &str| CString::new(text.replace('\0', "")).unwrap_or_default();
    let [process, path, description] = [&report.process, &report.path, &report.description].map(|it| text(it));
    let stable_path = report.stable_path.as_deref().map(text);
    let found = Found {
        size: size_of::<Found>() as u32,
        kind: report.kind as u32,
        unit: report.unit as u32,
        reserved: 0,
        amount: report.amount,
        process: process.as_ptr(),
        path: path.as_ptr(),
        stable_path: stable_path.as_ref().map_or(ptr::null(), |path| path.as_ptr()),
        description: description.as_ptr(),
    };
    // SAFETY: `each` requires a report that stays during the call, with its texts, as the locals
    // do, and the `data` that belongs to it. By this function's `# Safety` it may be called with
    // these.
    untracked::callback(|| unsafe { each(&raw const found, data) })
}

/// # Safety
///
/// `what` is null or *sized* (see [`crate::sized`]). `file` is null or a path that ends with NUL
/// and stays during the call.
unsafe extern "C" fn save(what: *const Collection, file: *const c_char) -> c_int {
    if file.is_null() {
        return FAILED;
    }
    let _untracked = untracked::enter();
    // SAFETY: `given` requires null or a *sized* structure, as this function's `# Safety` does of
    // `what`. `CStr::from_ptr` requires a text that ends with NUL and stays as long as the result,
    // which this call uses: the same section says so of `file`, and it is not null here.
    let (options, file) = unsafe { (given(what).options(), CStr::from_ptr(file)) };
    match heapledger_reporters::save(Path::new(OsStr::from_bytes(file.to_bytes())), &options) {
        Ok(()) => OK,
        Err(_) => FAILED,
    }
}

/// Answers requests of other processes from now on.
pub(crate) extern "C" fn listen() -> c_int {
    static LISTENER: Mutex<Option<(u32, Listener)>> = Mutex::new(None);
    let _untracked = untracked::enter();
    let mut listener = LISTENER.lock().unwrap_or_else(PoisonError::into_inner);
    // A listener that was inherited from the parent process does not answer for this one.
    if listener.as_ref().is_none_or(|(process, _)| *process != process::id()) {
        let Ok(new) = heapledger_reporters::listen() else { return FAILED };
        *listener = Some((process::id(), new));
    }
    OK
}
