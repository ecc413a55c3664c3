//! Adding up the blocks of a log while more of them are read.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use heapledger_dmd::{Added, Adder, Blocks};

/// How often blocks may be read before those are added that have been.
const WAITING_MAX: usize = 4;

/// Adds in a thread of its own, if one can be started.
pub(super) enum Beside {
    Thread(SyncSender<Blocks>, JoinHandle<Added>),
    Here(Added),
}

impl Beside {
    pub(super) fn start() -> Beside {
        let (blocks, received) = sync_channel(WAITING_MAX);
        let adding = move || {
            let mut added = Added::default();
            received.iter().for_each(|blocks| added.add(blocks));
            added
        };
        match thread::Builder::new().name("adding blocks".into()).spawn(adding) {
            Ok(thread) => Beside::Thread(blocks, thread),
            Err(_) => Beside::Here(Added::default()),
        }
    }
}

impl Adder for Beside {
    fn add(&mut self, blocks: Blocks) {
        match self {
            // Nobody receives only after a panic, which `finish` passes on.
            Beside::Thread(sender, _) => drop(sender.send(blocks)),
            Beside::Here(added) => added.add(blocks),
        }
    }

    fn finish(self) -> Added {
        match self {
            Beside::Thread(sender, thread) => {
                drop(sender);
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            Beside::Here(added) => added,
        }
    }
}
