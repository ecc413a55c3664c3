//! A library that is loaded while a program runs, with a copy of Heapledger of its own, and with
//! reporters: its reports are there while it is, and go with it. `tests/libraries.rs` loads it.

use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heapledger_core::Bytes;
use heapledger_reporters::{Collector, ReportOptions, ReporterRegistration, collect, register};

fn of_the_library(collector: &mut Collector) {
    collector.heap("tables", Bytes(4096), "What the library keeps.");
}

// The expansion of the attribute `#[heapledger::reporter("explicit/plugin")]`.
heapledger_reporters::__reporter!("explicit/plugin", of_the_library);

static SESSION: Mutex<Option<ReporterRegistration>> = Mutex::new(None);
static IS_STUCK: AtomicBool = AtomicBool::new(false);

/// Registers two reporters, one of which panics.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_begin() {
    let registration = register("plugin-session", |collector: &mut Collector| {
        collector.count("open", 1, "Sessions that have begun.");
        let is_stuck = || IS_STUCK.load(Ordering::Relaxed);
        while is_stuck() {
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("there is nothing");
    });
    *SESSION.lock().unwrap() = Some(registration);
}

/// Unregisters it, if 1; else 0 lets it return, and 2 keeps it from returning.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_set(what: c_int) {
    match what {
        1 => drop(SESSION.lock().unwrap().take()),
        stuck => IS_STUCK.store(stuck == 2, Ordering::Relaxed),
    }
}

/// How many of the program's own reports a collection of the library's finds.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_collect() -> c_int {
    let reports = collect(&ReportOptions::default());
    reports.reports.iter().filter(|report| report.path.starts_with("of-the-program")).count() as c_int
}
