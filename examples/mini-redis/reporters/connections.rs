//! What connections hold: it is in their tasks, out of everybody's reach. So it is counted as they come and go.

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

/// A connection, counted until this is dropped. Buffers that grow meanwhile count as what they were.
pub(crate) struct Counted {
    buffers: u64,
    task: u64,
}

impl Counted {
    /// To be called in the connection's task, which is the block that the connection lies in.
    pub(crate) fn new(connection: &Connection) -> Counted {
        let mut meter = Meter::new();
        let around = |meter: &mut Meter, inside: *const u8| meter.block_around(inside).unwrap_or_default().0;
        let buffers = connection.buffers().iter().map(|&buffer| around(&mut meter, buffer)).sum();
        let task = around(&mut meter, (connection as *const Connection).cast());
        BUFFERS.fetch_add(buffers, Relaxed);
        TASKS.fetch_add(task, Relaxed);
        CONNECTIONS.fetch_add(1, Relaxed);
        Counted { buffers, task }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        BUFFERS.fetch_sub(self.buffers, Relaxed);
        TASKS.fetch_sub(self.task, Relaxed);
        CONNECTIONS.fetch_sub(1, Relaxed);
    }
}
