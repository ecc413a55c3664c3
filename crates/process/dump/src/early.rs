//! Set-up before `main`.

use heapledger_profiles::chrome::set_scope;
use heapledger_report::{Collector, between};

use crate::{made, malloc, profiling, reports};

/// The environment variable that turns on heap profiling from the beginning, if it is `1`.
const VARIABLE: &str = "HEAPLEDGER_HEAP_PROFILING";

extern "C" fn begin() {
    between::untracked::scope(|| {
        set_scope(|run| between::untracked::scope(run));
        let _ = between::MAKE_DUMP.set(made::answer);
        if std::env::var_os(VARIABLE).is_some_and(|value| value == "1") {
            profiling::note(true);
            // Providers are told when they are registered.
            malloc::set_heap_profiling(true);
        }
    });
}

// SAFETY: the loader calls what is there, functions of this type, once each.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Reports the figures of the providers as memory reports, too.
fn report(collector: &mut Collector) {
    between::untracked::scope(|| reports::report(collector));
}

heapledger_report::__reporter!("dumps", report);
