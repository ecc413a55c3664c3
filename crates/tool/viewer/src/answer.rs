//! The source of the data that the page shows.

use std::fmt;

use crate::columns::ColumnTree;
use crate::question::Question;
use crate::work::Work;

/// The source of the data that the page shows: the files of a session, and the verbs that answer
/// questions about them. It is called by several threads at once.
pub trait Answer: fmt::Debug + Send + Sync {
    /// Returns the session as JSON: its files, and the memory that the server keeps.
    ///
    /// Called by the thread that serves all clients, so it must be quick.
    fn session(&self, memory: &Memory) -> Vec<u8>;

    /// Returns the state of each file of the session, in the order of their numbers. Called by the
    /// thread that serves all clients, before each question and once a second.
    fn files(&self) -> Vec<FileState>;

    /// Answers a question as JSON.
    ///
    /// It may take long: it reports to `work`, and should end early once that is cancelled. The
    /// answer to a cancelled question is not used.
    ///
    /// # Errors
    ///
    /// The reason why there is no answer, for people.
    fn ask(&self, question: &Question, work: &Work) -> Result<Vec<u8>, AnswerError>;

    /// Returns the call tree that the options of a question ask for.
    ///
    /// # Errors
    ///
    /// As [`Answer::ask`].
    fn columns(&self, question: &Question, work: &Work) -> Result<ColumnTree, AnswerError>;
}

/// The state of a file: equal as long as the file has not been changed or replaced. `None` if it is
/// not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileState(pub Option<String>);

/// The memory that the server keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The size of the answers that are kept, in bytes.
    pub bytes: u64,
    /// The maximum of `bytes`. A single answer that is larger is kept until its client has had it,
    /// or another one is finished.
    pub bound: u64,
    /// The resident memory of the process that is not of a file, in bytes; 0 if it is not known.
    pub resident: u64,
}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerError {
    /// The HTTP status: 400 if the question makes no sense, 404 if its file is not there.
    pub status: u16,
    /// The code, as `heapledger explain` takes it.
    pub code: String,
    /// The failure, in the user's terms.
    pub message: String,
    /// Its causes, the nearest first.
    pub causes: Vec<String>,
    /// The remedy.
    pub hint: Option<String>,
}

impl AnswerError {
    /// Creates an error without causes and hint.
    pub fn new(status: u16, code: impl Into<String>, message: impl Into<String>) -> AnswerError {
        let (causes, hint) = Default::default();
        AnswerError { status, code: code.into(), message: message.into(), causes, hint }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> AnswerError {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for AnswerError {}
