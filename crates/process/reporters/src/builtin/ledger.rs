//! Reports on the memory of Heapledger itself.

use heapledger_inprocess::{control, overhead};
use heapledger_report_format::{Kind, Report, Unit};

use super::{add, add_kind};

pub(super) fn report(reports: &mut Vec<Report>) {
    if !control::is_running() {
        return;
    }
    let overhead = overhead::overhead();
    let parts = [
        (
            "register",
            overhead.bytes_ledger,
            "The ledger's register of live blocks, and its totals, as mapped: not all of it is touched.",
        ),
        ("stacks", overhead.bytes_stacks, "The stacks that have allocated, as touched."),
        ("rules", overhead.bytes_rules, "Rules by which stacks are unwound, as mapped."),
        ("threads", overhead.bytes_threads, "What the ledger has of each thread, as mapped."),
        ("events", overhead.bytes_events, "Events of sampled blocks that are kept to be seen in order, as mapped."),
    ];
    let parts = parts.into_iter().filter(|(name, bytes, _)| *name != "events" || bytes.0 > 0);
    for (name, bytes, description) in parts {
        let path = format!("explicit/heapledger/ledger/{name}");
        add_kind(reports, &path, Kind::NonHeap, Unit::Bytes, bytes.0, description);
    }
    if let Some(mean) = control::sampling() {
        let description =
            "The program's heap is being sampled, with one sample point in so many bytes that are allocated.";
        add(reports, "heap-sampled-every", Unit::Bytes, mean.0, description);
    }
}
