//! Reports the memory of connections. They are owned by their tasks, so no reporter can reach them;
//! they are counted as they come and go.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use heapledger::reports::Collector;
use heapledger::{Bytes, Meter};

use crate::Connection;

static BUFFERS: AtomicU64 = AtomicU64::new(0);
static TASKS: AtomicU64 = AtomicU64::new(0);
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

#[heapledger::reporter("explicit/connections")]
fn report(collector: &mut Collector) {
    let bytes = |counter: &AtomicU64| Bytes(counter.load(Relaxed));
    collector.heap("buffers", bytes(&BUFFERS), "What clients send and get goes through two buffers for each of them.");
    collector.heap("tasks", bytes(&TASKS), "The task of each connection, with all that it keeps while it waits.");
    collector.count("/connections", CONNECTIONS.load(Relaxed), "Clients that are connected.");
}

/// A connection, counted until this is dropped. Buffers that grow meanwhile keep their first size.
pub(crate) struct Counted {
    addresses: [usize; 3],
    buffers: u64,
    task: u64,
}

impl Counted {
    /// Counts a connection. Must be called in the connection's task, which is the block that
    /// contains the connection.
    pub(crate) fn new(connection: &Connection) -> Counted {
        let [first, second] = connection.buffers().map(|buffer| buffer as usize);
        let addresses = [first, second, connection as *const Connection as usize];
        // The marks are kept, as the counts are.
        let [first, second, task] = around(addresses, Meter::marking_and_keeping("explicit/connections"));
        BUFFERS.fetch_add(first + second, Relaxed);
        TASKS.fetch_add(task, Relaxed);
        CONNECTIONS.fetch_add(1, Relaxed);
        Counted { addresses, buffers: first + second, task }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        around(self.addresses, Meter::unmarking("explicit/connections"));
        BUFFERS.fetch_sub(self.buffers, Relaxed);
        TASKS.fetch_sub(self.task, Relaxed);
        CONNECTIONS.fetch_sub(1, Relaxed);
    }
}

/// Returns the sizes of the blocks around the addresses.
fn around(addresses: [usize; 3], mut meter: Meter) -> [u64; 3] {
    addresses.map(|address| meter.block_around(address as *const u8).unwrap_or_default().0)
}
