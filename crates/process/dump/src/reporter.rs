//! The memory reporter of the providers: an allocator dump `cache/pages` becomes the report
//! `dumps/cache/pages`, in a tree of its own, since reporters may have reported the same memory
//! below `explicit/`.

use heapledger_profile_formats::chrome::{Level, leaves};
use heapledger_reporters::{Collector, Kind, Unit};

use crate::process;

/// Makes a light dump of the providers, and reports it.
pub(crate) fn report(collector: &mut Collector) {
    if collector.is_for_dump() {
        return;
    }
    let dump = process::of_providers(Level::Light);
    let strong = dump.allocators().filter(|dump| !dump.is_weak());
    for (name, bytes) in leaves(strong.map(|dump| (dump.name.as_str(), dump.size()))) {
        // The path below its first part may contain private data.
        let path = match name.split_once('/') {
            Some((root, _)) if collector.is_anonymous() => format!("/dumps/{root}"),
            _ => format!("/dumps/{name}"),
        };
        let amount = i64::try_from(bytes).unwrap_or(i64::MAX);
        collector.report(path, Kind::Other, Unit::Bytes, amount, "What a provider of memory dumps says.");
    }
}
