//! The collection of `heapledger/reports.h`: C's view of the reporters of this process.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;
use std::{process, ptr};

use heapledger_inspect::Ledger;
use heapledger_report::{Options, Report, Reports, collect as collect_reports};

use crate::calls::{FAILED, OK, read};

/// `heapledger_collection`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collection {
    size: u32,
    flags: u32,
    reporter_deadline_ms: u32,
    deadline_ms: u32,
}

const ANONYMOUS: u32 = 1;
const MARK: u32 = 2;
const CHILDREN: u32 = 4;

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
}

/// Found by programs also where a recorder observes them, other than the ledger.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_reports_v1: Table = Table { size: size_of::<Table>() as u32, version: 1, collect, save };

/// # Safety
///
/// `what` is null or of so many bytes as its first field says; `each` may be called with a report and `data`.
unsafe extern "C" fn collect(what: *const Collection, each: Option<EachReport>, data: *mut c_void) -> c_int {
    let Some(each) = each else { return FAILED };
    // SAFETY: the caller's contract.
    let reports = unsafe { collected(what) };
    for report in &reports.reports {
        // SAFETY: the caller's contract.
        if unsafe { tell(report, each, data) } != 0 {
            break;
        }
    }
    OK
}

/// # Safety
///
/// See [`collect`].
unsafe fn tell(report: &Report, each: EachReport, data: *mut c_void) -> c_int {
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
    // SAFETY: the caller's contract; the texts stay for the time of the call.
    unsafe { each(&raw const found, data) }
}

/// # Safety
///
/// As [`collect`]; `file` is null or a path that ends with NUL.
unsafe extern "C" fn save(what: *const Collection, file: *const c_char) -> c_int {
    if file.is_null() {
        return FAILED;
    }
    // SAFETY: the caller's contract.
    let (reports, file) = unsafe { (collected(what), CStr::from_ptr(file)) };
    match write_whole(Path::new(OsStr::from_bytes(file.to_bytes())), &reports.to_gzip()) {
        Ok(()) => OK,
        Err(_) => FAILED,
    }
}

/// Of this user only, and whole or not at all.
fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    const PRIVATE: u32 = 0o600;
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".incomplete-{}", process::id()));
    let incomplete = Path::new(&name);
    let mut to = OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(incomplete)?;
    let written = to.write_all(bytes).and_then(|()| fs::rename(incomplete, file));
    if written.is_err() {
        let _ = fs::remove_file(incomplete);
    }
    written
}

/// # Safety
///
/// `what` is null or of so many bytes as its first field says.
unsafe fn collected(what: *const Collection) -> Reports {
    let mut given = Collection { size: 0, flags: 0, reporter_deadline_ms: 0, deadline_ms: 0 };
    // SAFETY: the caller's contract; a collection is integers.
    unsafe { read(what, &mut given) };
    if given.flags & MARK != 0 {
        Ledger::get().clear_marks();
    }
    let defaults = Options::default();
    let or = |milliseconds: u32, default: Duration| match milliseconds {
        0 => default,
        _ => Duration::from_millis(milliseconds.into()),
    };
    collect_reports(&Options {
        anonymous: given.flags & ANONYMOUS != 0,
        mark: given.flags & MARK != 0,
        children: given.flags & CHILDREN != 0,
        reporter_deadline: or(given.reporter_deadline_ms, defaults.reporter_deadline),
        deadline: or(given.deadline_ms, defaults.deadline),
    })
}
