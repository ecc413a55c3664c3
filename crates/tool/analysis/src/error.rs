//! Why a question has no answer.

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] heapledger_recording::Error),
    /// No process of the session had this pid.
    #[error("the recording has no process {0}")]
    NoSuchProcess(u32),
    /// Nothing was recorded at that moment.
    #[error("the recording ends before that moment")]
    AfterEnd,
    /// The question takes events, and the recording has none.
    #[error("the recording has totals only, no events that could answer this")]
    NoEvents,
    /// A replay needs more memory than there is.
    #[error("not enough memory to keep the blocks that are live at once")]
    OutOfMemory,
}

impl From<heapledger_ledger::OutOfMemory> for Error {
    fn from(_: heapledger_ledger::OutOfMemory) -> Error {
        Error::OutOfMemory
    }
}
