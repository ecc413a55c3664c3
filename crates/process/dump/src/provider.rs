//! What a part of a program implements to be in dumps.

use std::error::Error;

use heapledger_profiles::chrome::{Guid, Kind, Level, ProcessDump};

use crate::inbox::Inbox;

/// Something that knows its memory.
///
/// It is called by one thread at a time: the thread that it [asked for](ProviderOptions::on), or else `MemoryInfra`, which calls all
/// that did not ask.
pub trait Provider: Send {
    /// Says what there is, now. Dumps of one process are made one after the other.
    ///
    /// # Errors
    ///
    /// Where it cannot tell: what it has said until then is left out. One that fails three times in a row, or panics as
    /// often, is not asked any more.
    fn dump(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), Failed>;

    /// Blocks are to be kept account of from now on, whether or not there are dumps; or not any more. Called as early as
    /// possible: when the provider is registered, if that is so by then. In the thread that registers it, or that calls
    /// [`set_heap_profiling`](crate::set_heap_profiling).
    fn heap_profiling_enabled(&mut self, is_enabled: bool) {
        let _ = is_enabled;
    }
}

/// Why a provider could not tell: a text, or any error.
pub type Failed = Box<dyn Error + Send + Sync>;

/// What a dump is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpArgs {
    /// How much is to be told.
    pub level: Level,
    /// Why it is made.
    pub kind: Kind,
    /// Its number, which is the same in all processes.
    pub guid: Guid,
}

impl DumpArgs {
    pub(crate) fn new(level: Level, kind: Kind, guid: Guid) -> DumpArgs {
        DumpArgs { level, kind, guid }
    }
}

/// How a provider is asked.
#[derive(Clone, Debug, Default)]
pub struct ProviderOptions {
    /// The thread that calls it: the one that empties this inbox. `None`: the thread `MemoryInfra`.
    pub on: Option<Inbox>,
    /// The names of allocator dumps that it may use in the background, in which `0x?` stands for any number in hexadecimal. They
    /// must tell nothing of what the program's users do. Empty: it is not asked in the background.
    pub background: Vec<String>,
}
