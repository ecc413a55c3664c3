//! The program that this is a part of, as what the page is of.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use heapledger_annotate::untracked;
use heapledger_dmd::Log;
use heapledger_report_format::Reports;
use heapledger_reporters::{ReportOptions, allocator_statistics, collect, dark_matter};
use heapledger_web::{Capabilities, MeasureOptions, Source};

/// The program that this code is part of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Program {
    /// True to ask its children that [listen](heapledger_reporters::listen), too.
    pub children: bool,
}

impl Source for Program {
    fn title(&self) -> String {
        let path = std::env::current_exe().unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        format!("{name} (pid {})", std::process::id())
    }

    fn capabilities(&self) -> Capabilities {
        // Marks are kept in the ledger; under a recorder they are in the recording.
        let dark_matter = heapledger_inprocess::control::is_running();
        Capabilities { measure: true, dark_matter, minimise: true, allocator: true }
    }

    fn measure(&self, measure_options: MeasureOptions) -> Result<Reports, String> {
        Ok(collect(&ReportOptions {
            anonymous: measure_options.anonymous,
            children: self.children,
            ..ReportOptions::default()
        }))
    }

    fn dark_matter(&self, measure_options: MeasureOptions) -> Result<Log, String> {
        let options = dark_matter::DarkMatterOptions {
            anonymous: measure_options.anonymous,
            ..dark_matter::DarkMatterOptions::default()
        };
        let log = dark_matter::dump(&options).map_err(|error| error.to_string())?;
        #[cfg(feature = "symbols")]
        let log = {
            let mut log = log;
            dark_matter::name_frames(&mut log);
            log
        };
        Ok(log)
    }

    fn minimise(&self) -> Result<(), String> {
        minimise();
        Ok(())
    }

    fn allocator(&self) -> Result<String, String> {
        let text = allocator_statistics();
        if text.is_empty() { Err("This allocator says nothing of itself.".to_owned()) } else { Ok(text) }
    }

    fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }
}

type Minimiser = Arc<dyn Fn() + Send + Sync>;

static MINIMISERS: Mutex<Vec<Minimiser>> = Mutex::new(Vec::new());

/// Registers a function that is called when the program is asked to give back memory that it can
/// spare: it may empty caches and shrink buffers. It stays registered for as long as the program
/// runs.
///
/// The function is called in the thread of the page, or in the thread that calls [`minimise`].
pub fn on_minimise(give_back: impl Fn() + Send + Sync + 'static) {
    untracked::scope(|| {
        let mut minimisers = MINIMISERS.lock().unwrap_or_else(PoisonError::into_inner);
        minimisers.push(Arc::new(give_back));
    });
}

/// Has the program give back memory that it can spare: calls all functions registered by
/// [`on_minimise`], in that order, then the C library's allocator, which returns free pages to the
/// system. If a function panics, the rest are called nevertheless.
pub fn minimise() {
    let all = untracked::scope(|| MINIMISERS.lock().unwrap_or_else(PoisonError::into_inner).clone());
    for give_back in all {
        // The panic has been printed; an incomplete state is the function's own concern.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| untracked::callback(|| give_back())));
    }
    let trim = heapledger_core::weak_address!("malloc_trim");
    if trim != 0 {
        // SAFETY: `transmute` requires the address of a function of this type, and the address is
        // not 0. It is that of glibc's `malloc_trim`, which is declared so.
        let trim = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(usize) -> std::ffi::c_int>(trim) };
        // SAFETY: it may be called at any time, in any thread; 0 leaves no free memory at the top
        // of the heap.
        unsafe { trim(0) };
    }
}
