//! Reports the memory of the store: a first attempt.

use heapledger::HeapSize;
use heapledger::reports::{Collector, ReportItself};

use super::Shared;

impl ReportItself for Shared {
    fn report(&self, collector: &mut Collector) {
        let state = self.state.lock().unwrap();
        let keys = state.entries.keys().map(|key| key.heap_size(collector.meter())).sum();
        collector.heap("entries/keys", keys, "The texts of the keys.");
        collector.count("/store/keys", state.entries.len() as u64, "Keys in the store.");
    }
}
