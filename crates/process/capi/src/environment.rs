//! Environment variables: `HEAPLEDGER_AT_EXIT=totals,sites,blocks,dynamic` keeps a ledger for a
//! program that does not start one itself, and prints it at the program's end; `HEAPLEDGER_LISTEN`
//! answers requests for the program's reports.

use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use heapledger_annotate::untracked;
use heapledger_core::arch::{self, nr};
use heapledger_core::sys;

use heapledger_query::{Ledger, LedgerOptions, SiteOrder};

const VARIABLE: &str = "HEAPLEDGER_AT_EXIT";
/// If this variable is set, requests for reports are answered although the program itself does not
/// listen.
const LISTEN: &str = "HEAPLEDGER_LISTEN";
/// The number of sites that are printed.
const SITES: usize = 10;

/// Runs before `main`, after the C library's own start.
extern "C" fn constructor() {
    heapledger_interpose::initialise();
    let _untracked = untracked::enter();
    heapledger_interpose::watch_forks_of_arenas();
    if !crate::is_recorded() && std::env::var_os(VARIABLE).is_some() {
        IS_WANTED.store(true, Ordering::Relaxed);
        keep_standard_error();
        // If the ledger cannot start, the report says so.
        let _ = Ledger::start(LedgerOptions::EXACT);
    }
    if std::env::var_os(LISTEN).is_some() {
        // If it cannot listen, requests find no listener.
        let _ = crate::reports::listen();
    }
}

/// True if a report is to be printed.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// True if the report was printed before the end, because the program entered a sandbox.
static IS_EARLY: AtomicBool = AtomicBool::new(false);
/// The descriptor of the copy of standard error for the final report: programs close standard error
/// before, to see whether everything was written.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(2);

fn keep_standard_error() {
    const F_DUPFD_CLOEXEC: usize = 1030;
    // High enough to stay out of the program's way.
    const DESCRIPTOR_MIN: usize = 512;
    // SAFETY: `syscall` requires the contract of the call. `F_DUPFD_CLOEXEC` is passed numbers
    // only. It makes a new descriptor and closes none, so nobody's descriptor changes.
    let copy = sys::check(unsafe { arch::syscall(nr::FCNTL, [2, F_DUPFD_CLOEXEC, DESCRIPTOR_MIN, 0, 0, 0]) });
    if let Ok(copy) = copy {
        DESCRIPTOR.store(copy as i32, Ordering::Relaxed);
    }
}

/// Runs after `main`, and after the functions that the program has registered for its exit.
extern "C" fn destructor() {
    if !IS_WANTED.load(Ordering::Relaxed) {
        return;
    }
    let ledger = Ledger::get();
    let has_run = ledger.is_running();
    // The report must not include the memory that printing it allocates.
    ledger.stop();
    print(has_run);
}

/// Prints the report while that is still allowed: the program is about to enter a sandbox.
pub(crate) fn report_early() {
    if IS_WANTED.swap(false, Ordering::Relaxed) {
        IS_EARLY.store(true, Ordering::Relaxed);
        print(Ledger::get().is_running());
    }
}

/// Prints another report at the end: the program was not let into the sandbox.
pub(crate) fn report_later() {
    IS_WANTED.fetch_or(IS_EARLY.swap(false, Ordering::Relaxed), Ordering::Relaxed);
}

fn print(has_run: bool) {
    let _untracked = untracked::enter();
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    // SAFETY: ours, or the program's standard error; it is not closed here.
    let mut to = unsafe { ManuallyDrop::new(File::from_raw_fd(DESCRIPTOR.load(Ordering::Relaxed))) };
    let to = &mut *to;
    // Errors are ignored: the reader of the output may be gone.
    let _ = if IS_EARLY.load(Ordering::Relaxed) {
        writeln!(to, "heapledger: the program enters a sandbox, where nothing can be printed: until here")
            .and_then(|()| report(Ledger::get(), &wanted, to))
    } else if has_run {
        report(Ledger::get(), &wanted, to)
    } else {
        writeln!(to, "heapledger: no ledger was kept")
    };
}

fn report(ledger: Ledger, wanted: &str, to: &mut impl Write) -> io::Result<()> {
    for what in wanted.split(',') {
        match what {
            "totals" => writeln!(to, "heapledger: totals\n{}", ledger.totals())?,
            "sites" => {
                writeln!(to, "heapledger: sites with the most live bytes")?;
                for site in ledger.top_sites(SITES, SiteOrder::BytesLive) {
                    write!(to, "{site}")?;
                }
            }
            "blocks" => {
                writeln!(to, "heapledger: live blocks")?;
                for block in ledger.blocks() {
                    write!(to, "{block}")?;
                }
            }
            "dynamic" => writeln!(to, "heapledger: live blocks by dynamic type\n{}", ledger.census_by_vtable())?,
            other => writeln!(to, "heapledger: {VARIABLE}={other}: it can be totals, sites, blocks, dynamic")?,
        }
    }
    let losses = ledger.losses();
    if losses.refused.0 + losses.nested.0 > 0 {
        writeln!(
            to,
            "heapledger: not recorded: {} allocations for want of memory, {} calls of signal handlers",
            losses.refused.0, losses.nested.0
        )?;
    }
    Ok(())
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;
