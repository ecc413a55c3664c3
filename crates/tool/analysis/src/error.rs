//! The reasons why a question has no answer.

/// The reason why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] heapledger_recording::RecordingError),
    /// No process of the session had this pid, or ran a program of this name.
    #[error("the recording has no process {0}")]
    NoSuchProcess(String),
    /// No thread of the selected processes had this number, id or name.
    #[error("the recording has no thread {0}")]
    NoSuchThread(String),
    /// Nothing was recorded at that moment.
    #[error("the recording ends before that moment")]
    AfterEnd,
    /// The recording begins in the middle of a run, at this time, so it contains nothing from
    /// before.
    #[error("the recording begins after that moment")]
    BeforeBeginning(heapledger_recording::Time),
    /// The question needs events, and the recording has none.
    #[error("the recording has totals only, no events that could answer this")]
    NoEvents,
    /// The slop of blocks is asked for, and neither are usable sizes recorded nor is the allocator
    /// one whose size classes are known.
    #[error("the recording has no usable sizes, and the program's allocator is not one whose sizes can be computed")]
    NoUsableSizes,
    /// Mappings are asked for, and were not recorded.
    #[error("the recording has no mappings")]
    NoMappings,
    /// An image's mappings have changed more often than can be kept.
    #[error("the mappings of a process have more than 16 million parts and changes")]
    MappingsLimit,
    /// The replay was stopped before its end, because its results are no longer wanted.
    #[error("the answer was not wanted any more")]
    Stopped,
    /// A [`Cube`](crate::Cube) needs more cells than it [may have](crate::CubeOptions::cells_max),
    /// although all blocks of a process are counted together.
    #[error("the processes are too many to be counted over time in {0} cells")]
    CellsLimit(usize),
    /// A replay needs more memory than the system has.
    #[error("not enough memory to keep the blocks that are live at once")]
    OutOfMemory,
    /// A replay needs more memory than it [may take](crate::Selection::memory_max).
    #[error("the blocks that are live at once need more than the {} MiB of memory that are allowed", .0.0 >> 20)]
    MemoryLimit(heapledger_core::Bytes),
}

impl From<heapledger_ledger::OutOfMemory> for Error {
    fn from(_: heapledger_ledger::OutOfMemory) -> Error {
        Error::OutOfMemory
    }
}
