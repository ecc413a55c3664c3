//! Reports the memory of the store.

use heapledger::reports::{Collector, ReportItself};
use heapledger::{HeapContainer, HeapSize, Ledger, Meter, SharedHeapSize};

use super::{Shared, State};

impl ReportItself for Shared {
    /// Reports the store itself, because its fields are private.
    fn report(&self, collector: &mut Collector) {
        let state = self.state.lock().unwrap();
        let sizes = state.sizes(collector.meter());
        // `self` lies in the block that all handles share.
        let shared = collector.meter().block_around(self).unwrap_or_default();

        collector.heap("entries/table", sizes.table, "The hash table of keys and entries, its empty places too.");
        collector.heap("entries/keys", sizes.keys, "The texts of the keys.");
        collector.heap("entries/values", sizes.values, "The values.");
        collector.heap("expirations/tree", sizes.tree, "The nodes of the tree that has the keys in the order of their end.");
        collector.heap("expirations/keys", sizes.expiring_keys, "The texts of these keys once more.");
        collector.heap("channels/table", sizes.channel_table, "The hash table of channels, and their names.");
        collector.heap(
            "channels/slots",
            sizes.slots,
            "The 1,024 places for messages that every channel has from the beginning, whether anybody publishes or not.",
        );
        collector.heap("shared", shared, "The block with the lock.");
        collector.count("/store/keys", state.entries.len() as u64, "Keys in the store.");
        collector.count("/store/keys-that-expire", state.expirations.len() as u64, "Keys in the store that have an end.");
        collector.count("/store/channels", state.pub_sub.len() as u64, "Channels that somebody has subscribed to, ever.");
    }
}

#[derive(Default, heapledger::Sizes)]
struct Sizes {
    table: heapledger::Bytes,
    keys: heapledger::Bytes,
    values: heapledger::Bytes,
    tree: heapledger::Bytes,
    expiring_keys: heapledger::Bytes,
    channel_table: heapledger::Bytes,
    slots: heapledger::Bytes,
}

impl State {
    fn sizes(&self, meter: &mut Meter) -> Sizes {
        let mut sizes = Sizes { table: self.entries.shallow_size(meter), ..Sizes::default() };
        for (key, entry) in &self.entries {
            sizes.keys += key.heap_size(meter);
            sizes.values += entry.data.heap_size_if_first(meter);
        }
        sizes.tree = self.expirations.shallow_size(meter);
        for key in self.expirations.values() {
            sizes.expiring_keys += key.heap_size(meter);
        }
        sizes.channel_table = self.pub_sub.heap_size_with(meter, |(name, _), meter| name.heap_size(meter));
        // tokio does not tell where they are. The ledger knows the blocks allocated while a channel
        // was made.
        for block in Ledger::get().blocks() {
            if block.stack.context().any(|scope| scope.name == "channel") {
                sizes.slots += meter.block_around(block.address as *const u8).unwrap_or_default();
            }
        }
        sizes
    }
}
