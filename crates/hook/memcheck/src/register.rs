//! The register of blocks.

use heapledger_ledger::SharedRegister;

/// The live blocks, and those in quarantine, with a [`Stamp`](crate::stamp::Stamp) each.
pub(crate) static REGISTER: SharedRegister = SharedRegister::new();
