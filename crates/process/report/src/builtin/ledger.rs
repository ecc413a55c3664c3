//! What Heapledger itself needs.

use heapledger_reports::{Kind, Report, Unit};
use heapledger_resident::{control, overhead};

use super::add_kind;

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
        ("stacks", overhead.bytes_stacks, "The stacks that have allocated, as mapped."),
        ("rules", overhead.bytes_rules, "Rules by which stacks are unwound, as mapped."),
        ("threads", overhead.bytes_threads, "What the ledger has of each thread, as mapped."),
    ];
    for (name, bytes, description) in parts {
        let path = format!("explicit/heapledger/ledger/{name}");
        add_kind(reports, &path, Kind::NonHeap, Unit::Bytes, bytes.0, description);
    }
}
