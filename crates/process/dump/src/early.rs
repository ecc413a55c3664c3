//! Set-up before `main`.

use heapledger_profile_formats::chrome::set_scope;
use heapledger_reporters::{Collector, internal};

use crate::{global_dump, malloc, profiling, reporter};

/// The environment variable that turns on heap profiling from the beginning, if it is `1`.
const VARIABLE: &str = "HEAPLEDGER_HEAP_PROFILING";

extern "C" fn begin() {
    internal::untracked::scope(|| {
        set_scope(|run| internal::untracked::scope(run));
        let _ = internal::MAKE_DUMP.set(global_dump::answer);
        if std::env::var_os(VARIABLE).is_some_and(|value| value == "1") {
            profiling::set_is_profiling(true);
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
    internal::untracked::scope(|| reporter::report(collector));
}

heapledger_reporters::__reporter!("dumps", report);
