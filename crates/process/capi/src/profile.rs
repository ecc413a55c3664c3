//! `heapledger/profile.h`: the always-on profile, for C.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process;
use std::sync::{Mutex, PoisonError};

use heapledger_annotate::untracked;
use heapledger_core::Bytes;
use heapledger_live_profile::formats::pprof;
use heapledger_live_profile::{
    self as profile, FrameNames, ProfileOptions, ProfileServer, ProfileServerOptions, StartError,
};

use crate::address::write_address;
use crate::status::{ELSEWHERE, FAILED, OK, STATE};

/// `heapledger_profile`: functions are only ever appended.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    size: u32,
    version: u32,
    start: extern "C" fn(u64) -> c_int,
    stop: extern "C" fn() -> c_int,
    set_rate: extern "C" fn(u64) -> c_int,
    save: unsafe extern "C" fn(*const c_char) -> c_int,
    serve: unsafe extern "C" fn(u32, *mut c_char, usize) -> c_int,
}

/// The table of the profile. Programs find it also if a recorder observes them, unlike the ledger.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_profile_v1: Table =
    Table { size: size_of::<Table>() as u32, version: 1, start, stop, set_rate, save, serve };

extern "C" fn start(sample_every: u64) -> c_int {
    if crate::is_recorded() {
        return ELSEWHERE;
    }
    let _untracked = untracked::enter();
    let options =
        if sample_every == 0 { ProfileOptions::default() } else { ProfileOptions::every(Bytes(sample_every)) };
    match profile::start(options) {
        Ok(()) => OK,
        Err(StartError::Running) => STATE,
        Err(_) => FAILED,
    }
}

extern "C" fn stop() -> c_int {
    if !profile::is_on() {
        return STATE;
    }
    profile::stop();
    OK
}

extern "C" fn set_rate(sample_every: u64) -> c_int {
    if !profile::is_on() {
        return STATE;
    }
    if sample_every == 0 {
        return FAILED;
    }
    profile::set_rate(Bytes(sample_every));
    OK
}

/// # Safety
///
/// `file` is null or a path that ends with NUL and stays during the call.
unsafe extern "C" fn save(file: *const c_char) -> c_int {
    if file.is_null() {
        return FAILED;
    }
    if crate::is_recorded() {
        return ELSEWHERE;
    }
    // SAFETY: `CStr::from_ptr` requires a text that ends with NUL and stays as long as the result,
    // which this call uses. By this function's `# Safety` `file` is such a text, and it is not null
    // here.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(file) }.to_bytes()));
    if write(path).is_ok() { OK } else { FAILED }
}

fn write(path: &Path) -> io::Result<()> {
    let _untracked = untracked::enter();
    let mut out = BufWriter::new(File::create(path)?);
    pprof::write(&profile::snapshot(FrameNames::Known), &mut out)?;
    out.flush()
}

/// The server and its process: a forked child has none of its parent's threads.
static SERVER: Mutex<Option<(u32, ProfileServer)>> = Mutex::new(None);

/// Serves profiles for the rest of the process's life, and writes the address below which they are
/// to `url`.
///
/// # Safety
///
/// `url` is null, or may be written for `length` bytes.
unsafe extern "C" fn serve(port: u32, url: *mut c_char, length: usize) -> c_int {
    if crate::is_recorded() {
        return ELSEWHERE;
    }
    let Ok(port) = u16::try_from(port) else { return FAILED };
    let _untracked = untracked::enter();
    let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if server.as_ref().is_none_or(|(of, _)| *of != process::id()) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let Ok(new) = ProfileServer::start(ProfileServerOptions { address, ..ProfileServerOptions::default() }) else {
            return FAILED;
        };
        if let Some((_, parents)) = server.replace((process::id(), new)) {
            parents.keep();
        }
    }
    let Some((_, running)) = &*server else { return FAILED };
    // SAFETY: `write_address` requires null, or `length` bytes that may be written; this function's
    // `# Safety` requires the same of `url`.
    unsafe { write_address(running.url(), url, length) }
}
