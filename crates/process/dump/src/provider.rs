//! The trait for parts of a program that add to memory dumps.

use std::error::Error;

use heapledger_profile_formats::chrome::{Guid, Kind, Level, ProcessDump};

use crate::call_queue::CallQueue;

/// A part of a program that knows its memory.
///
/// A provider is called by one thread at a time: the thread that it [asked
/// for](ProviderOptions::on), or else `MemoryInfra`, which calls all others.
pub trait Provider: Send {
    /// Adds the provider's memory, as it is now, to a dump. Dumps of one process are made one after
    /// the other.
    ///
    /// # Errors
    ///
    /// An error if the provider cannot answer: its answer is left out. A provider that fails or
    /// panics three times in a row is not asked any more.
    fn dump(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), ProviderError>;

    /// Turns the provider's accounting of blocks on or off, whether or not there are dumps. Called
    /// as early as possible: in the thread that registers the provider, if profiling is on by then,
    /// or in the thread that calls [`set_heap_profiling`](crate::set_heap_profiling).
    fn heap_profiling_enabled(&mut self, is_enabled: bool) {
        let _ = is_enabled;
    }
}

/// The reason why a provider could not answer: a text, or any error.
pub type ProviderError = Box<dyn Error + Send + Sync>;

/// The properties of a dump that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpArgs {
    /// The level of detail.
    pub level: Level,
    /// The reason for the dump.
    pub kind: Kind,
    /// The number of the dump, which is the same in all processes.
    pub guid: Guid,
}

impl DumpArgs {
    pub(crate) fn new(level: Level, kind: Kind, guid: Guid) -> DumpArgs {
        DumpArgs { level, kind, guid }
    }
}

/// The ways in which a provider is asked.
#[derive(Clone, Debug, Default)]
pub struct ProviderOptions {
    /// The queue of the thread that calls the provider. `None` for the thread `MemoryInfra`.
    pub on: Option<CallQueue>,
    /// The names of allocator dumps that the provider may use in the background; `0x?` in them
    /// stands for any hexadecimal number. They must not reveal anything about the program's users.
    /// If empty, the provider is not asked in the background.
    pub background: Vec<String>,
}
