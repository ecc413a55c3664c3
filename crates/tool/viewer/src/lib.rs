//! The local web server of `heapledger open`.
//!
//! - [`Viewer`] listens on the loopback, under a path that cannot be guessed, and serves the page.
//! - [`Answer`] gives the data: the command implements it by its verbs. This crate knows no verb.
//! - [`Question`] is a verb with its options, from the query of an address.
//! - [`Work`] is a question that is being answered: its progress, and whether it is cancelled.
//! - [`ColumnTree`] is a call tree as the page reads it.
//! - [`SavedPage`] is the page with answers in one file, which needs no server.
//!
//! Each question runs on a thread of its own. A client that waits longer than 80 ms gets the number
//! of a job, by which it asks again or cancels. Answers are kept, by question and by the state of
//! the files, up to a number of bytes. `docs/open.md` of the project describes the addresses.
#![forbid(unsafe_code)]

mod answer;
mod assets;
mod columns;
mod connections;
mod events;
mod jobs;
mod question;
mod reply;
mod results;
mod router;
mod saved;
mod server;
#[cfg(test)]
mod testing;
mod work;

pub use answer::{Answer, AnswerError, FileState, Memory};
pub use columns::{ColumnFrame, ColumnTree, MetricColumn};
pub use question::{Question, QuestionError};
pub use saved::{SavedCut, SavedPage};
pub use server::{Viewer, ViewerOptions};
pub use work::Work;
